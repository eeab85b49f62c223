"""Logistic regression by gradient descent, logged to MLflow by hand, with a nested run for each fold."""

import argparse
import json
from pathlib import Path

import mlflow
import numpy as np
from sklearn.datasets import load_breast_cancer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

x, y = load_breast_cancer(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
train, valid = slice(0, None, 2), slice(1, None, 2)
weights, losses = np.zeros(x.shape[1]), []
mlflow.set_experiment("breast cancer")
with mlflow.start_run(run_name="by hand"):
    mlflow.log_params({"lr": args.lr, "epochs": args.epochs, "solver": "gradient descent"})
    for epoch in range(args.epochs):
        chance = 1 / (1 + np.exp(-x[train] @ weights))
        weights -= args.lr * x[train].T @ (chance - y[train]) / len(chance)
        chance = 1 / (1 + np.exp(-x[valid] @ weights))
        losses.append(float(-np.mean(np.log(np.where(y[valid] == 1, chance, 1 - chance)))))
        mlflow.log_metric("valid_loss", losses[-1], step=epoch)
    accuracy = float(np.mean((chance > 0.5) == y[valid]))
    mlflow.log_metrics({"valid_acc": accuracy, "lr_used": args.lr})
    for fold in range(2):
        with mlflow.start_run(run_name=f"fold {fold}", nested=True):
            mlflow.log_metric("fold_acc", float(np.mean((chance[fold::2] > 0.5) == y[valid][fold::2])))
    mlflow.log_text(str(weights.tolist()), "weights.txt")
truth = {"used": {"lr": args.lr, "epochs": args.epochs}, "curves": {"valid_loss": losses}}
Path("truth.json").write_text(json.dumps(truth | {"logged": {"valid_loss": losses[-1], "valid_acc": accuracy}}))
