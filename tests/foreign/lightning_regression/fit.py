"""A LightningModule, as in the quick start: regress the sum of eight numbers."""

import argparse

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    """One hidden layer."""

    def __init__(self, width, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(128, 8)
    rows = TensorDataset(x, x.sum(1, keepdim=True))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=CSVLogger("logs"), enable_progress_bar=False, enable_checkpointing=False
    )
    trainer.fit(Regression(args.width, args.lr), DataLoader(rows, 32, shuffle=True), DataLoader(rows, 64))
    print(f"val_loss: {trainer.callback_metrics['val_loss']:.6f}")


if __name__ == "__main__":
    main()
