"""Sequence classification with the Hugging Face Trainer: which half of the alphabet does a text come from?"""

from dataclasses import dataclass, field

import torch
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class DataArguments:
    """What is trained on."""

    rows: int = field(default=64, metadata={"help": "training rows"})
    length: int = field(default=8, metadata={"help": "tokens per row"})


class Letters(torch.utils.data.Dataset):
    """Random rows of tokens below or above 50."""

    def __init__(self, rows, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 2, (rows,), generator=generator)
        self.tokens = torch.randint(0, 50, (rows, length), generator=generator) + 50 * self.labels[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    data_args, training_args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=Letters(data_args.rows, data_args.length, seed=1),
        eval_dataset=Letters(32, data_args.length, seed=2),
        compute_metrics=accuracy,
    )
    trained = trainer.train()
    trainer.save_metrics("train", trained.metrics)
    trainer.save_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
