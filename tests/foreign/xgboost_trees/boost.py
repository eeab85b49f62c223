"""Boosted trees on two noisy rings, with the rounds' losses on standard output."""

import argparse

import numpy as np
import xgboost

parser = argparse.ArgumentParser()
parser.add_argument("--max-depth", type=int, default=3)
parser.add_argument("--eta", type=float, default=0.3)
parser.add_argument("--rounds", type=int, default=10)
args = parser.parse_args()

rng = np.random.default_rng(1)
x = rng.normal(size=(600, 4)).astype("float32")
y = (np.hypot(x[:, 0], x[:, 1]) + 0.2 * rng.normal(size=600) > 1.2).astype(int)
train, valid = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])

settings = {"max_depth": args.max_depth, "eta": args.eta, "objective": "binary:logistic", "nthread": 1}
xgboost.train(settings, train, num_boost_round=args.rounds, evals=[(train, "train"), (valid, "valid")])
