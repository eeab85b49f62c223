"""A Lightning module with rich's progress bar and model summary, configured by argparse."""

import argparse
import json

import lightning
import torch
from lightning.pytorch.callbacks import RichModelSummary, RichProgressBar
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self, lr, hidden):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2))
        self.criterion = torch.nn.CrossEntropyLoss()
        self.best = 0.0
        self.curve = []

    def step(self, batch):
        rows, labels = batch
        answers = self.net(rows)
        return self.criterion(answers, labels), (answers.argmax(1) == labels).float().mean()

    def training_step(self, batch, _):
        loss, accuracy = self.step(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        self.log("train/acc", accuracy, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        loss, accuracy = self.step(batch)
        self.log("val/loss", loss, prog_bar=True)
        self.log("val/acc", accuracy, prog_bar=True)

    def on_validation_epoch_end(self):
        accuracy = float(self.trainer.callback_metrics["val/acc"])
        self.best = max(self.best, accuracy)
        self.log("val/acc_best", self.best, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--hidden", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = torch.randn(256, 4)
    data = DataLoader(TensorDataset(rows, (rows.sum(1) > 0).long()), batch_size=32)
    net = Net(args.lr, args.hidden)
    trainer = lightning.Trainer(
        max_epochs=3, logger=False, enable_checkpointing=False, callbacks=[RichProgressBar(), RichModelSummary()]
    )
    trainer.fit(net, data, data)
    names = ("train/loss", "train/acc", "val/loss", "val/acc", "val/acc_best")
    logged = {name: float(trainer.callback_metrics[name]) for name in names}
    with open("truth.json", "w") as file:
        json.dump({"used": {"lr": args.lr, "hidden": args.hidden}, "logged": logged, "curves": {}}, file)


if __name__ == "__main__":
    main()
