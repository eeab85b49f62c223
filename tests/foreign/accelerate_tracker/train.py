"""A loop on Accelerate that logs as Hugging Face's examples without a Trainer do."""

import argparse
import json
import logging
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

logger = get_logger(__name__)
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=16)
parser.add_argument("--learning_rate", type=float, default=1e-2)
parser.add_argument("--num_train_epochs", type=int, default=2)
args = parser.parse_args()

accelerator = Accelerator()
logging.basicConfig(
    format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
)
set_seed(0)
x = torch.randn(128, 4)
rows = TensorDataset(x, (x.sum(1) > 0).long())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
loader = DataLoader(rows, args.per_device_train_batch_size, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
logger.info("***** Running training *****")
logger.info(f"  Num examples = {len(rows)}")
logger.info(f"  Instantaneous batch size per device = {args.per_device_train_batch_size}")
curve = []
for epoch in range(args.num_train_epochs):
    for features, targets in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(model(features), targets))
        optimizer.step()
        optimizer.zero_grad()
    curve.append((model(x).argmax(1) == rows.tensors[1]).float().mean().item())
    logger.info(f"epoch {epoch}: {{'accuracy': {curve[-1]}}}")
used = {
    "learning_rate": optimizer.param_groups[0]["lr"],
    "per_device_train_batch_size": args.per_device_train_batch_size,
}
truth = {"used": used, "logged": {"accuracy": curve[-1]}, "curves": {"accuracy": curve}}
Path("truth.json").write_text(json.dumps(truth))
