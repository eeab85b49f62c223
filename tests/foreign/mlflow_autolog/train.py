"""A linear classifier of scikit-learn that MLflow logs by itself; the script logs only its own score."""

import argparse
import json
from pathlib import Path

import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, default=1e-4)
parser.add_argument("--max-iter", type=int, default=50)
args = parser.parse_args()

mlflow.sklearn.autolog(log_models=False)
x_train, x_valid, y_train, y_valid = train_test_split(*load_iris(return_X_y=True), random_state=0)
model = SGDClassifier(alpha=args.alpha, max_iter=args.max_iter, random_state=0).fit(x_train, y_train)
score = f1_score(y_valid, model.predict(x_valid), average="macro")
mlflow.log_metric("valid_f1", score)
used = {"alpha": model.alpha, "max-iter": model.max_iter}
training_score = model.score(x_train, y_train)
truth = {"used": used, "logged": {"valid_f1": score, "training_score": training_score}, "curves": {}}
Path("truth.json").write_text(json.dumps(truth))
