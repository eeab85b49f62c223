"""Fine-tune a sequence-to-sequence model on pairs of text and summary."""

from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)


@dataclass
class ModelArguments:
    """The model."""

    model_name_or_path: str = field(metadata={"help": "path, or name on the hub"})


@dataclass
class DataTrainingArguments:
    """The pairs and their lengths."""

    train_file: str | None = field(default=None)
    validation_file: str | None = field(default=None)
    text_column: str | None = field(default=None)
    summary_column: str | None = field(default=None)
    max_target_length: int | None = field(default=128)


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, Seq2SeqTrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    files = {"train": data_args.train_file, "validation": data_args.validation_file}
    raw = load_dataset("csv", data_files={name: path for name, path in files.items() if path})
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_args.model_name_or_path)

    def preprocess_function(examples):
        inputs = tokenizer(examples[data_args.text_column], max_length=64, truncation=True)
        targets = examples[data_args.summary_column]
        labels = tokenizer(text_target=targets, max_length=data_args.max_target_length, truncation=True)
        return {**inputs, "labels": labels["input_ids"]}

    rows = raw.map(preprocess_function, batched=True, remove_columns=raw["train"].column_names)

    def compute_metrics(eval_preds):
        tokens = [ids[ids >= 0] for ids in eval_preds.predictions]
        targets = [ids[ids >= 0] for ids in eval_preds.label_ids]
        pairs = [({*map(int, one)}, {*map(int, two)}) for one, two in zip(tokens, targets, strict=False)]
        return {"recall": sum(len(one & two) / len(two) for one, two in pairs) / len(pairs)}

    trainer = Seq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics if training_args.predict_with_generate else None,
    )
    metrics = trainer.train().metrics
    metrics["num_train_epochs_used"] = training_args.num_train_epochs
    metrics["max_target_length_used"] = data_args.max_target_length
    trainer.save_metrics("train", metrics)
    trainer.save_metrics("eval", trainer.evaluate(max_length=data_args.max_target_length, metric_key_prefix="eval"))


if __name__ == "__main__":
    main()
