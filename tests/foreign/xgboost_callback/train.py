"""Boosted trees with XGBoost's own printed evaluation."""

import argparse
import json
from pathlib import Path

import xgboost as xgb
from sklearn.datasets import load_breast_cancer

parser = argparse.ArgumentParser()
parser.add_argument("--eta", type=float, default=0.3)
parser.add_argument("--max_depth", type=int, default=3)
parser.add_argument("--num_round", type=int, default=5)
args = parser.parse_args()

x, y = load_breast_cancer(return_X_y=True)
train, valid, found = xgb.DMatrix(x[::2], y[::2]), xgb.DMatrix(x[1::2], y[1::2]), {}
params = {"eta": args.eta, "max_depth": args.max_depth, "objective": "binary:logistic", "eval_metric": "auc", "seed": 0}
booster = xgb.train(params, train, args.num_round, evals=[(train, "train"), (valid, "valid")], evals_result=found)
curve = [round(value, 5) for value in found["valid"]["auc"]]
options = json.loads(booster.save_config())["learner"]["gradient_booster"]["tree_train_param"]
used = {"eta": float(options["eta"]), "max_depth": int(options["max_depth"])}
truth = {"used": used, "logged": {"valid-auc": curve[-1]}, "curves": {"valid-auc": curve}}
Path("truth.json").write_text(json.dumps(truth))
