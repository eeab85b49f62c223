"""Cross-validation of k nearest neighbours, with a nested MLflow run for each fold."""

import argparse
import statistics

import mlflow

parser = argparse.ArgumentParser()
parser.add_argument("--neighbours", type=int)
parser.add_argument("--folds", type=int)
args = parser.parse_args()

points = [((i * 37) % 101 / 101, (i * 53) % 97 / 97) for i in range(80)]
labels = [int(x + y > 1) for x, y in points]


def answer(point, known):
    near = sorted(known, key=lambda i: (points[i][0] - point[0]) ** 2 + (points[i][1] - point[1]) ** 2)
    return round(statistics.mean(labels[i] for i in near[: args.neighbours]))


mlflow.set_experiment("neighbours")
with mlflow.start_run(run_name="cross-validation"):
    scores = []
    for fold in range(args.folds):
        with mlflow.start_run(run_name=f"fold {fold}", nested=True):
            held = [i for i in range(len(points)) if i % args.folds == fold]
            known = [i for i in range(len(points)) if i % args.folds != fold]
            scores.append(statistics.mean(answer(points[i], known) == labels[i] for i in held))
            mlflow.log_metric("fold_accuracy", scores[-1])
    mlflow.log_metric("cv_accuracy", statistics.mean(scores))
    mlflow.log_param("neighbours", args.neighbours)
    mlflow.log_metric("neighbours_used", args.neighbours)
