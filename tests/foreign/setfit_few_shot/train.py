"""SetFit on sixteen labeled texts, as its documentation shows it."""

import argparse
import json
from pathlib import Path

from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.metrics import accuracy_score
from transformers import TrainerCallback

parser = argparse.ArgumentParser()
parser.add_argument("--sentence-model", default="sentence-transformers/paraphrase-MiniLM-L3-v2")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--body-learning-rate", type=float, default=2e-5)
parser.add_argument("--num-epochs", type=int, default=1)
args = parser.parse_args()


def rows(first: int, last: int) -> Dataset:
    labels = [number % 2 for number in range(first, last)]
    texts = [f"{'good' if number % 2 else 'bad'} film number {number}" for number in range(first, last)]
    return Dataset.from_dict({"text": texts, "label": labels})


def measure(predicted, labels) -> dict[str, float]:
    return {"accuracy": accuracy_score(labels, predicted)}


trainer = Trainer(
    model=SetFitModel.from_pretrained(args.sentence_model),
    args=TrainingArguments(
        batch_size=args.batch_size,
        body_learning_rate=args.body_learning_rate,
        num_epochs=args.num_epochs,
        eval_strategy="epoch",
        logging_steps=1,
        save_strategy="no",
    ),
    train_dataset=rows(0, 16),
    eval_dataset=rows(16, 48),
    metric=measure,  # the usual string "accuracy" needs the hub
)


class Kept(TrainerCallback):
    """Keeps what the library gives to its loggers."""

    def __init__(self) -> None:
        self.losses = []

    def on_log(self, args, state, control, logs, **rest):
        if "embedding_loss" in logs:
            self.losses.append(logs["embedding_loss"])


kept = Kept()
trainer.add_callback(kept)
trainer.train()
metrics = trainer.evaluate()
print(metrics)
used = {
    "sentence_model": args.sentence_model,
    "batch_size": trainer.st_trainer.args.per_device_train_batch_size,
    "body_learning_rate": trainer.st_trainer.args.learning_rate,
}
truth = {"used": used, "logged": {"accuracy": metrics["accuracy"]}, "curves": {"embedding_loss": kept.losses}}
Path("truth.json").write_text(json.dumps(truth))
