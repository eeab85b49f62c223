"""Fits boxes by linear regression, in the form of a detection library.

The settings are a YAML file, and pairs of a key and a value that end the command line. The log is a metrics.json with
a JSON document on each line.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import yaml


def set_up(args):
    config = yaml.safe_load(Path(args.config_file).read_text())
    for key, value in zip(args.opts[::2], args.opts[1::2], strict=True):
        node, (*groups, last) = config, key.split(".")
        for group in groups:
            node = node[group]
        if last not in node:
            raise KeyError(f"Non-existent config key: {key}")
        node[last] = type(node[last])(yaml.safe_load(value))
    return config


def evaluate(weights, images, boxes):
    return 100.0 / (1.0 + float(np.abs(images @ weights - boxes).mean()))


def train(config):
    output = Path(config["OUTPUT_DIR"])
    output.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    images, true = draw.normal(size=(64, 12)), draw.normal(size=(12, 4))
    boxes, weights, began = images @ true, np.zeros((12, 4)), time.perf_counter()
    with (output / "metrics.json").open("a") as log:
        for iteration in range(config["SOLVER"]["MAX_ITER"]):
            error = images @ weights - boxes
            weights -= config["SOLVER"]["BASE_LR"] * images.T @ error / len(images)
            time.sleep(0.01)  # as if each iteration loaded its images
            scalars = {}
            if (iteration + 1) % config["TEST"]["EVAL_PERIOD"] == 0:
                scalars["bbox/AP"] = evaluate(weights, images, boxes)
            if (iteration + 1) % 10 == 0:
                elapsed = (time.perf_counter() - began) / (iteration + 1)
                scalars |= {"data_time": elapsed / 2, "time": elapsed, "eta_seconds": 100 * elapsed}
                scalars |= {"lr": config["SOLVER"]["BASE_LR"], "total_loss": float((error**2).mean())}
            if scalars:
                log.write(json.dumps({"iteration": iteration, **scalars}, sort_keys=True) + "\n")
                log.flush()
    Path("used.json").write_text(json.dumps(config["SOLVER"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a detector")
    parser.add_argument("--config-file", default="configs/boxes.yaml", metavar="FILE", help="path to config file")
    parser.add_argument("--num-gpus", type=int, default=0, help="number of gpus *per machine*")
    parser.add_argument("opts", nargs=argparse.REMAINDER, default=[], help="Modify config options: KEY VALUE pairs")
    arguments = parser.parse_args()
    print("Command Line Args:", arguments)
    train(set_up(arguments))
