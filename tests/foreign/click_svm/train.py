"""A linear classifier whose options Click declares, with dashes and a switch that has two names."""

import json
from pathlib import Path

import click
from sklearn.datasets import load_wine
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


@click.command()
@click.option("--learning-rate", "rate", type=float, default=0.1, show_default=True)
@click.option("--max-iter", type=int, default=20)
@click.option("--average/--no-average", default=True)
@click.option("--seed", default=0)
def main(rate: float, max_iter: int, average: bool, seed: int) -> None:
    x, y = load_wine(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(StandardScaler().fit_transform(x), y, random_state=seed)
    model = SGDClassifier(learning_rate="constant", eta0=rate, max_iter=max_iter, average=average, tol=None)
    model.fit(x_train, y_train)
    print(f"learning_rate_used: {rate!r}")
    print(f"average_used: {int(average)}")
    f1 = float(f1_score(y_test, model.predict(x_test), average="macro"))
    print(f"test_f1: {f1}")
    used = {"learning_rate": model.eta0, "max_iter": model.n_iter_}
    Path("truth.json").write_text(json.dumps({"used": used, "logged": {"test_f1": f1}, "curves": {}}))


if __name__ == "__main__":
    main()
