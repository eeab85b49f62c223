"""Logistic regression by hand: no library logs anything, the loop prints."""

import argparse
import math
import random

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--seed", type=int, default=0)
opt, _ = parser.parse_known_args()

random.seed(opt.seed)
rows = [(random.random(), random.random()) for _ in range(200)]
weights, bias = [0.0, 0.0], 0.0
for epoch in range(1, opt.epochs + 1):
    total = right = 0.0
    for x, y in rows:
        target = float(x + y > 1)
        guess = 1 / (1 + math.exp(-(weights[0] * x + weights[1] * y + bias)))
        total -= math.log(max(1e-9, guess if target else 1 - guess))
        right += (guess > 0.5) == target
        step = opt.lr * (target - guess)
        weights, bias = [weights[0] + step * x, weights[1] + step * y], bias + step
    print(f"Epoch {epoch}/{opt.epochs} | loss: {total / 200:.4f} | acc: {right / 200:.3f} | lr_used: {opt.lr!r}")
