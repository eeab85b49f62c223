"""A script for SageMaker's script mode: data from channels, results into the folders that SM_... name."""

import argparse
import csv
import logging
import os
import sys

from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score


def read(folder):
    with open(os.path.join(folder, "rows.csv")) as file:
        rows = [[float(value) for value in row] for row in csv.reader(file)]
    return [row[:-1] for row in rows], [int(row[-1]) for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning_rate", type=str, default="0.001")
    parser.add_argument("--output_data_dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
    parser.add_argument("--model_dir", default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--n_gpus", default=os.environ["SM_NUM_GPUS"])
    parser.add_argument("--training_dir", default=os.environ["SM_CHANNEL_TRAIN"])
    parser.add_argument("--test_dir", default=os.environ["SM_CHANNEL_TEST"])
    args, _ = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s - %(levelname)s - %(message)s")

    rows, labels = read(args.training_dir)
    model = SGDClassifier(learning_rate="constant", eta0=float(args.learning_rate), random_state=0)
    for epoch in range(args.epochs):
        model.partial_fit(rows, labels, classes=[0, 1])
        logging.info("epoch %d, training accuracy = %.3f", epoch, model.score(rows, labels))
    print("learning_rate_used:", args.learning_rate)
    print("epochs_used:", args.epochs)
    rows, labels = read(args.test_dir)
    results = {"eval_accuracy": model.score(rows, labels), "eval_f1": f1_score(labels, model.predict(rows))}
    with open(os.path.join(args.output_data_dir, "eval_results.txt"), "w") as file:
        file.writelines(f"{name} = {value}\n" for name, value in sorted(results.items()))
