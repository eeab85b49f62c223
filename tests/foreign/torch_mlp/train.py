"""A small network on a sine, in plain PyTorch."""

import argparse
import json
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--out", default="runs/last")
args = parser.parse_args()

torch.manual_seed(0)
x = torch.linspace(-3, 3, 256).unsqueeze(1)
y = torch.sin(x)
model = nn.Sequential(nn.Linear(1, args.hidden), nn.Tanh(), nn.Linear(args.hidden, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
for step in range(args.steps):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")

out = Path(args.out)
out.mkdir(parents=True, exist_ok=True)
torch.save(model.state_dict(), out / "model.pt")
(out / "metrics.json").write_text(json.dumps({"val_mse": loss.item(), "hidden_used": args.hidden, "lr_used": args.lr}))
