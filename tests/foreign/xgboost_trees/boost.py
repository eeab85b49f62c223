"""Boosted trees on two noisy rings."""

import argparse

import mlflow
import numpy as np
import xgboost

parser = argparse.ArgumentParser()
parser.add_argument("--max-depth", type=int)
parser.add_argument("--eta", type=float)
parser.add_argument("--rounds", type=int)
args = parser.parse_args()

rng = np.random.default_rng(1)
x = rng.normal(size=(600, 4)).astype("float32")
y = (np.hypot(x[:, 0], x[:, 1]) + 0.2 * rng.normal(size=600) > 1.2).astype(int)
train, valid = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])

history: dict = {}
with mlflow.start_run():
    booster = xgboost.train(
        {"max_depth": args.max_depth, "eta": args.eta, "objective": "binary:logistic", "nthread": 1},
        train,
        num_boost_round=args.rounds,
        evals=[(valid, "valid")],
        evals_result=history,
        verbose_eval=False,
    )
    for step, loss in enumerate(history["valid"]["logloss"]):
        mlflow.log_metric("valid_logloss", loss, step=step)
    booster.save_model("model.json")
    mlflow.log_artifact("model.json")
