"""Train a causal language model on a text file, from scratch if no weights are named."""

import math
from dataclasses import dataclass, field
from itertools import chain

from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
)


@dataclass
class ModelArguments:
    """Weights, or a configuration to train from scratch."""

    model_name_or_path: str | None = field(default=None)
    config_name: str | None = field(default=None)
    tokenizer_name: str | None = field(default=None)


@dataclass
class DataTrainingArguments:
    """The text and how it is cut."""

    train_file: str | None = field(default=None)
    validation_split_percentage: int | None = field(default=5)
    block_size: int | None = field(default=None)


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    percent = data_args.validation_split_percentage
    raw = {
        name: load_dataset("text", data_files=data_args.train_file, split=split)
        for name, split in (("train", f"train[{percent}%:]"), ("validation", f"train[:{percent}%]"))
    }
    tokenizer = AutoTokenizer.from_pretrained(model_args.tokenizer_name or model_args.model_name_or_path)
    if model_args.model_name_or_path:
        model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_args.config_name))

    def group_texts(examples):
        tokens = list(chain(*tokenizer(examples["text"])["input_ids"]))
        size = data_args.block_size
        blocks = [tokens[start : start + size] for start in range(0, len(tokens) // size * size, size)]
        return {"input_ids": blocks, "labels": [list(block) for block in blocks]}

    blocks = {name: rows.map(group_texts, batched=True, remove_columns=["text"]) for name, rows in raw.items()}
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=blocks["train"],
        eval_dataset=blocks["validation"],
        data_collator=default_data_collator,
    )
    result = trainer.train()
    trainer.save_metrics("train", result.metrics)
    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    metrics["block_size_used"] = data_args.block_size
    metrics["learning_rate_used"] = training_args.learning_rate
    metrics["global_batch_size_used"] = training_args.train_batch_size * training_args.gradient_accumulation_steps
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
