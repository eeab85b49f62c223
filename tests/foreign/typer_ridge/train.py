"""Ridge regression by hand whose options Typer derives from the parameters of a function."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer


def main(
    penalty: float = 1.0,
    n_rows: Annotated[int, typer.Option(help="rows to train on")] = 60,
    centered: bool = False,
    seed: int = 0,
) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(80, 6)) + 1
    y = x @ np.arange(6.0) + random.normal(size=80)
    if centered:
        x = x - x.mean(axis=0)
    weights = np.linalg.solve(x[:n_rows].T @ x[:n_rows] + penalty * np.eye(6), x[:n_rows].T @ y[:n_rows])
    print("penalty_used:", penalty)
    print("n_rows_used:", n_rows)
    print("centered_used:", int(centered))
    rmse = float(np.sqrt(np.mean((x[60:] @ weights - y[60:]) ** 2)))
    print("rmse:", rmse)
    used = {"penalty": penalty, "n_rows": len(x[:n_rows])}
    Path("truth.json").write_text(json.dumps({"used": used, "logged": {"rmse": rmse}, "curves": {}}))


if __name__ == "__main__":
    typer.run(main)
