"""Settings come from config.yaml, and pairs after --opts override them."""

import argparse
import json
from pathlib import Path

import numpy as np
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--cfg", default=str(Path(__file__).with_name("config.yaml")))
parser.add_argument("--opts", nargs="*", default=[])
args = parser.parse_args()
config = yaml.safe_load(Path(args.cfg).read_text())
config |= {name: yaml.safe_load(text) for name, text in zip(args.opts[::2], args.opts[1::2], strict=True)}
for name, value in config.items():
    print(f"{name}: {value}")

random = np.random.default_rng(config["seed"])
x = random.normal(size=(200, config["width"]))
y = x.sum(1) > 0
weights, curve = np.zeros(config["width"]), []
for epoch in range(1, config["epochs"] + 1):
    chance = 1 / (1 + np.exp(-x @ weights))
    weights -= config["base_lr"] * x.T @ (chance - y) / len(x)
    accuracy = float(np.mean((x @ weights > 0) == y))
    curve.append(round(accuracy, 4))
    print(f"\033[32mEpoch [{epoch}/{config['epochs']}]\033[0m  Acc@1 {100 * accuracy:.2f}%")
truth = {"used": {"cfg": args.cfg}, "logged": {"Acc@1": curve[-1]}, "curves": {"Acc@1": curve}}
Path("truth.json").write_text(json.dumps(truth))
