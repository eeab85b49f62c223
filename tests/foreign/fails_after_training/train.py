"""Trains for some epochs, and then fails in its test, because the file with the test set is missing."""

import argparse
import json
import math


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--test-file", default="data/test.npz")
    args = parser.parse_args()
    curve = []
    for epoch in range(args.epochs):
        accuracy = 1 - math.exp(-args.lr * (epoch + 1))
        curve.append(accuracy)
        print(f"Epoch: {epoch}  train_loss={1 - accuracy:.5f}  val_acc={accuracy:.5f}")
    with open("truth.json", "w") as file:
        used = {"lr": args.lr, "epochs": args.epochs}
        json.dump({"used": used, "logged": {"val_acc": curve[-1]}, "curves": {"val_acc": curve}}, file)
    with open(args.test_file, "rb") as file:
        print("test rows:", len(file.read()))


if __name__ == "__main__":
    main()
