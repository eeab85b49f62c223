"""Regress the sum of eight numbers: everything is set in YAML and on the command line of Lightning."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    """One hidden layer."""

    def __init__(self, width: int = 16, lr: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)

    def on_fit_end(self):
        print(f"lr_used: {self.hparams.lr!r}")
        print(f"width_used: {self.net[0].out_features}")
        print(f"val_loss: {self.trainer.callback_metrics['val_loss']:.6f}")


class Sums(LightningDataModule):
    """Random rows."""

    def __init__(self, rows: int = 64):
        super().__init__()
        x = torch.randn(rows, 8)
        self.rows = TensorDataset(x, x.sum(1, keepdim=True))

    def train_dataloader(self):
        return DataLoader(self.rows, 32, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.rows, 64)


if __name__ == "__main__":
    LightningCLI(Regression, Sums)
