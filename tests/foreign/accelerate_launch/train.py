"""A custom training loop on Accelerate, started by `accelerate launch` in train.sh."""

import argparse
import json
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--learning_rate", type=float, default=5e-3)
parser.add_argument("--num_train_epochs", type=int, default=3)
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--output_dir", type=str, default=None)
args = parser.parse_args()

accelerator = Accelerator()
if args.seed is not None:
    set_seed(args.seed)
x = torch.randn(128, 4, generator=torch.Generator().manual_seed(0))
rows = TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
loader = DataLoader(rows, args.per_device_train_batch_size, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(args.num_train_epochs):
    for features, targets in loader:
        loss = torch.nn.functional.mse_loss(model(features), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        error = torch.nn.functional.mse_loss(model(x), rows.tensors[1]).item()
    accelerator.print(f"epoch {epoch}: {{'eval_mse': {error}}}")

if accelerator.is_main_process and args.output_dir is not None:
    os.makedirs(args.output_dir, exist_ok=True)
    with open(os.path.join(args.output_dir, "all_results.json"), "w") as f:
        used = {"learning_rate_used": args.learning_rate, "processes": accelerator.num_processes}
        json.dump({"eval_mse": error, "num_train_epochs_used": args.num_train_epochs, **used}, f)
