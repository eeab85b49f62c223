"""Ridge regression with a command for each step, as many tools have: `train.py fit --alpha 0.1`."""

import argparse
import json

import numpy as np
from sklearn.datasets import make_regression
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split


def fit(args):
    rows, target = make_regression(args.rows, 8, noise=20.0, random_state=0)
    train, test, of_train, of_test = train_test_split(rows, target, random_state=0)
    model = Ridge(alpha=args.alpha).fit(train, of_train)
    rmse = float(np.sqrt(np.mean((model.predict(test) - of_test) ** 2)))
    print(f"rmse: {rmse:.6f}, r2 {model.score(test, of_test):.6f}")
    truth = {
        "used": {"alpha": args.alpha, "rows": args.rows},
        "logged": {"rmse": rmse, "r2": model.score(test, of_test)},
    }
    with open("truth.json", "w") as file:
        json.dump(truth | {"curves": {}}, file)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("fit", help="fit the model")
    command.add_argument("--alpha", type=float, default=1.0)
    command.add_argument("--rows", type=int, default=100)
    command.set_defaults(run=fit)
    commands.add_parser("version").set_defaults(run=lambda args: print("1.0"))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
