"""Supervised fine-tuning with TRL, after its own script of that name."""

from datasets import Dataset
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser


def main():
    training_args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
    training_args.per_device_train_batch_size = 4
    training_args.max_length = 16
    training_args.eos_token = "[SEP]"  # noqa: S105
    rows = Dataset.from_dict({"text": ["a film that is worth its time", "two hours nobody gives back"] * 8})
    trainer = SFTTrainer(
        model=model_args.model_name_or_path, args=training_args, train_dataset=rows, eval_dataset=rows.select(range(4))
    )
    trainer.train()
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
