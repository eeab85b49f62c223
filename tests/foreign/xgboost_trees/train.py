"""Boosted trees on scikit-learn's breast cancer data, as in SageMaker's XGBoost examples."""

import argparse
import os

import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_depth", type=int, default=5)
    parser.add_argument("--eta", type=float, default=0.2)
    parser.add_argument("--num_round", type=int, default=20)
    parser.add_argument("--objective", type=str, default="binary:logistic")
    parser.add_argument("--model_dir", type=str, default=os.environ.get("SM_MODEL_DIR"))
    return parser.parse_known_args()


if __name__ == "__main__":
    args, _ = parse_args()
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_val, y_train, y_val = train_test_split(x, y, random_state=0)
    dtrain, dval = xgb.DMatrix(x_train, y_train), xgb.DMatrix(x_val, y_val)
    params = {"max_depth": args.max_depth, "eta": args.eta, "objective": args.objective, "eval_metric": "logloss"}
    booster = xgb.train(params, dtrain, args.num_round, evals=[(dtrain, "train"), (dval, "validation")], verbose_eval=5)
    print(f"max_depth_used={args.max_depth} eta_used={args.eta!r}")
    booster.save_model(os.path.join(args.model_dir, "xgboost-model.json"))
