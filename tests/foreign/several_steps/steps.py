"""Polynomials by hand: `prepare` writes points, `train` fits them; only NumPy."""

import argparse
import csv
import json
from pathlib import Path

import numpy as np


def prepare(args):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, args.rows)
    y = x**3 - x + rng.normal(0, 0.3, args.rows)
    Path("data").mkdir(exist_ok=True)
    with open("data/points.csv", "w", newline="") as file:
        csv.writer(file).writerows(zip(x.round(4), y.round(4), strict=True))


def train(args):
    x, y = np.loadtxt(args.data, delimiter=",", unpack=True)
    table = np.vander(x, args.degree + 1)
    half = len(x) // 2
    seen, rest = table[:half], table[half:]
    weights = np.linalg.solve(seen.T @ seen + args.ridge * np.eye(args.degree + 1), seen.T @ y[:half])
    rmse = float(np.sqrt(np.mean((rest @ weights - y[half:]) ** 2)))
    Path("results.json").write_text(json.dumps({"rmse": rmse, "weights": weights.tolist()}))


parser = argparse.ArgumentParser()
steps = parser.add_subparsers(dest="step", required=True)
one = steps.add_parser("prepare")
one.add_argument("--rows", type=int)
two = steps.add_parser("train")
two.add_argument("--data")
two.add_argument("--degree", type=int)
two.add_argument("--ridge", type=float)
given = parser.parse_args()
{"prepare": prepare, "train": train}[given.step](given)
