"""Fine-tune a model for sequence classification, from CSV files."""

from dataclasses import dataclass, field

import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class DataTrainingArguments:
    """What goes into training and evaluation."""

    max_seq_length: int = field(default=128, metadata={"help": "longer sequences are cut"})
    train_file: str | None = field(default=None)
    validation_file: str | None = field(default=None)


@dataclass
class ModelArguments:
    """Which model is fine-tuned."""

    model_name_or_path: str = field(metadata={"help": "path, or name on the hub"})


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    files = {"train": data_args.train_file, "validation": data_args.validation_file}
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(model_args.model_name_or_path, num_labels=2)
    rows = load_dataset("csv", data_files=files).map(
        lambda batch: tokenizer(batch["sentence"], max_length=data_args.max_seq_length, truncation=True), batched=True
    )

    def compute_metrics(p):
        return {"accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())}

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=rows["train"] if training_args.do_train else None,
        eval_dataset=rows["validation"] if training_args.do_eval else None,
        compute_metrics=compute_metrics,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    if training_args.do_train:
        result = trainer.train()
        trainer.save_model()
        metrics = result.metrics | {
            "train_samples": len(rows["train"]),
            "learning_rate_used": training_args.learning_rate,
            "per_device_train_batch_size_used": training_args.per_device_train_batch_size,
            "max_seq_length_used": data_args.max_seq_length,
            "seed_used": training_args.seed,
        }
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
