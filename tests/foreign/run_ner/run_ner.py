"""Fine-tune a model for token classification, from JSON lines with tokens and tags."""

from dataclasses import dataclass, field

import numpy as np
from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    """The model and its tokenizer."""

    model_name_or_path: str = field(metadata={"help": "path, or name on the hub"})
    hidden_dropout: float = field(default=0.1)


@dataclass
class DataTrainingArguments:
    """The files and their columns."""

    train_file: str | None = field(default=None)
    validation_file: str | None = field(default=None)
    max_seq_length: int = field(default=None)


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    raw = load_dataset("json", data_files={"train": data_args.train_file, "validation": data_args.validation_file})
    labels = sorted({tag for tags in raw["train"]["tags"] for tag in tags})
    name = model_args.model_name_or_path
    config = AutoConfig.from_pretrained(name, num_labels=len(labels), hidden_dropout_prob=model_args.hidden_dropout)
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForTokenClassification.from_pretrained(name, config=config)

    def tokenize_and_align_labels(examples):
        length = data_args.max_seq_length
        inputs = tokenizer(examples["tokens"], truncation=True, max_length=length, is_split_into_words=True)
        inputs["labels"] = []
        for number, tags in enumerate(examples["tags"]):
            words = inputs.word_ids(number)
            inputs["labels"].append([-100 if word is None else labels.index(tags[word]) for word in words])
        return inputs

    rows = raw.map(tokenize_and_align_labels, batched=True, remove_columns=raw["train"].column_names)

    def compute_metrics(p):
        guesses, kept = np.argmax(p.predictions, axis=2), p.label_ids != -100
        return {"accuracy": float((guesses == p.label_ids)[kept].mean())}

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        data_collator=DataCollatorForTokenClassification(tokenizer),
        compute_metrics=compute_metrics,
    )
    metrics = trainer.train().metrics
    trainer.save_metrics("train", metrics | {"weight_decay_used": training_args.weight_decay})
    metrics = trainer.evaluate()
    metrics["hidden_dropout_used"] = model.config.hidden_dropout_prob
    metrics["learning_rate_used"] = trainer.optimizer.defaults["lr"]
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
