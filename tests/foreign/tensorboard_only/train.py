"""Least squares by gradient descent; nothing is printed, the curves go to TensorBoard."""

import argparse
import json
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()

writer = SummaryWriter("runs/squares")
generator = torch.Generator().manual_seed(0)
x = torch.randn(64, 4, generator=generator)
y, weights, curve = x.sum(1), torch.zeros(4, requires_grad=True), []
for step in range(args.steps):
    loss = torch.mean((x @ weights - y) ** 2)
    (gradient,) = torch.autograd.grad(loss, [weights])
    weights = (weights - args.learning_rate * gradient).detach().requires_grad_()
    curve.append(loss.item())
    writer.add_scalar("loss/train", loss.item(), step)
truth = {"used": vars(args), "logged": {"loss/train": curve[-1]}, "curves": {"loss/train": curve}}
Path("truth.json").write_text(json.dumps(truth))
