"""A LightningModule with Lightning's own defaults: a progress bar, tables of results, and a CSV file of metrics."""

import argparse
import json
from pathlib import Path

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.05)
parser.add_argument("--hidden", type=int, default=8)
parser.add_argument("--max_epochs", type=int, default=2)
args = parser.parse_args()


class Classifier(lightning.LightningModule):
    """One hidden layer."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 2)
        )
        self.curve = []

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        accuracy = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_acc", accuracy, prog_bar=True)
        if not self.trainer.sanity_checking:
            self.curve.append(accuracy.item())

    def test_step(self, batch, _):
        self.log("test_acc", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=args.learning_rate)


lightning.seed_everything(7)
x = torch.randn(256, 4)
rows = TensorDataset(x, (x.sum(1) > 0).long())
model = Classifier()
logger = CSVLogger(".", name="lightning_logs")
trainer = lightning.Trainer(max_epochs=args.max_epochs, accelerator="cpu", logger=logger, log_every_n_steps=1)
trainer.fit(model, DataLoader(rows, 64, shuffle=True), DataLoader(rows, 256))
(result,) = trainer.test(model, DataLoader(rows, 256))
logged = {"val_acc": model.curve[-1], "test_acc": result["test_acc"]}
used = {"learning_rate": model.optimizers().param_groups[0]["lr"], "hidden": model.net[0].out_features}
Path("truth.json").write_text(json.dumps({"used": used, "logged": logged, "curves": {"val_acc": model.curve}}))
