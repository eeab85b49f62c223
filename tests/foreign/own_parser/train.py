"""A bigram model of letters, whose settings are read from words like `--model.smoothing=0.1` by code of its own."""

import json
import math
import sys
from ast import literal_eval

CONFIG = {"model": {"smoothing": 1.0}, "trainer": {"max_iters": 40, "log_every": 10}}
TEXT = "the quick brown fox jumps over the lazy dog " * 20


def merge(words):
    for word in words:
        pair = word.split("=")
        assert len(pair) == 2, f"expecting each argument to be of form --a=b, got {word}"
        key, value = pair
        assert key[:2] == "--"
        *groups, last = key[2:].split(".")
        node = CONFIG
        for group in groups:
            node = node[group]
        assert last in node, f"{last} is not a setting"
        node[last] = literal_eval(value)


def main():
    merge(sys.argv[1:])
    smoothing, steps = CONFIG["model"]["smoothing"], CONFIG["trainer"]["max_iters"]
    counts, curve = {}, []
    for step in range(1, steps + 1):
        left, right = TEXT[step - 1], TEXT[step]
        counts[left, right] = counts.get((left, right), 0) + 1
        if step % CONFIG["trainer"]["log_every"] == 0:
            letters, total = len(set(TEXT)), sum(counts.values())
            chance = [(counts.get(pair, 0) + smoothing) / (total + smoothing * letters**2) for pair in counts]
            loss = -sum(map(math.log, chance)) / len(chance)
            curve.append(loss)
            print(f"iter_dt 0.52ms; iter {step}: train loss {loss:.5f}")
    truth = {"used": {"model.smoothing": smoothing, "trainer.max_iters": steps}, "logged": {"train_loss": curve[-1]}}
    with open("truth.json", "w") as file:
        json.dump(truth | {"curves": {"train_loss": curve}}, file)


if __name__ == "__main__":
    main()
