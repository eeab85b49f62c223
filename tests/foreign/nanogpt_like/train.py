"""Settings are variables of this file, which a configuration file and the command line override."""

import json
import math
from pathlib import Path

import numpy as np

# -----------------------------------------------------------------------------
batch_size = 64
block_size = 16
learning_rate = 0.5
max_iters = 40
eval_interval = 10
weight_decay = 0.1
# -----------------------------------------------------------------------------
exec(open("configurator.py").read())

text = "to be or not to be that is the question " * 40
letters = sorted(set(text))
print(f"found vocab_size = {len(letters)} (inside {__doc__!r})")
print(f"number of parameters: {len(letters) ** 2 / 1e6:.2f}M")
tokens = np.array([letters.index(letter) for letter in text])
random = np.random.default_rng(1)
table, curve = np.zeros((len(letters), len(letters))), []


def chances(rows):
    scores = np.exp(table[rows])
    return scores / scores.sum(-1, keepdims=True)


for iteration in range(max_iters + 1):
    if iteration % eval_interval == 0:
        loss = float(-np.log(chances(tokens[:-1])[np.arange(len(tokens) - 1), tokens[1:]]).mean())
        curve.append(round(loss, 4))
        print(f"step {iteration}: train loss {loss:.4f}, val loss {loss:.4f}")
    places = random.integers(len(tokens) - 1, size=batch_size)
    gradient = chances(tokens[places])
    gradient[np.arange(batch_size), tokens[places + 1]] -= 1
    np.add.at(table, tokens[places], -learning_rate * gradient / math.sqrt(batch_size))
used = {"batch_size": batch_size, "max_iters": max_iters}
truth = {"used": used, "logged": {"val_loss": curve[-1]}, "curves": {"val_loss": curve}}
Path("truth.json").write_text(json.dumps(truth))
