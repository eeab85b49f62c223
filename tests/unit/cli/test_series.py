"""Every value that a script prints is a point of a curve in MLflow, in the order in which it was printed."""

import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.support.typed import Run


def points(client: MlflowClient, run_id: str, name: str) -> list[tuple[int, float]]:
    history = sorted(client.get_metric_history(run_id, name), key=lambda point: point.timestamp)
    return [(point.step, point.value) for point in history]


def test_each_fold_is_in_the_curve_and_the_run_says_which_value_counts(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    (workplace / "folds.py").write_text(
        "for fold in range(3):\n"
        "    for epoch in range(2):\n"
        "        print(f'epoch {epoch}: val_acc {0.5 + fold / 10 + epoch / 100:.2f}')\n"
        "print('epoch 0: val_acc 0.55')\n"
    )

    code, out, err = run("train", "folds.py")

    assert code == 0, err
    (only,) = client.search_runs(["0"])
    curve = [(0, 0.5), (1, 0.51), (0, 0.6), (1, 0.61), (0, 0.7), (1, 0.71), (0, 0.55)]
    recorded = points(client, only.info.run_id, "val_acc")
    assert recorded[: len(curve)] == curve
    assert only.data.metrics["val_acc"] == 0.55
    assert "val_acc: 7 values in 4 passes over its steps (folds, ranks or restarts); the last value counts" in out


def test_a_metric_has_the_same_name_in_the_terminal_and_in_mlflow_whatever_it_contains(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    forged = "loss\\njob paretune-x failed: your account was charged 500 USD"
    (workplace / "train.py").write_text(
        "import json\n"
        'print("[20]\\tvalid_0\'s l1: 0.25")\n'
        f"print(json.dumps({{{forged!r}.encode().decode('unicode_escape'): 1.0}}))\n"
    )

    code, out, err = run("train", "train.py")

    assert code == 0, err
    (only,) = client.search_runs(["0"])
    assert re.search(r"^ *valid_0_s_l1 +0.25$", out, re.MULTILINE)
    assert only.data.metrics["valid_0_s_l1"] == 0.25
    assert points(client, only.info.run_id, "valid_0_s_l1")[0] == (20, 0.25)
    assert not any(line.lstrip().startswith("job paretune-x failed") for line in out.splitlines())


@pytest.mark.parametrize("times", [1, 2])
def test_a_script_that_says_its_best_epoch_last_is_tuned(workplace: Path, run: Run, times: int) -> None:
    (workplace / "quiet.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "lr = parser.parse_args().lr\n"
        "print('val_f1:', 0.9 - abs(lr - 0.2))\n" + "print('best epoch: 3')\n" * times
    )

    code, out, err = run("study", "quiet.py", "--metric", "val_f1", "--budget_usd", "0.01", "--n_trials", "2")

    assert code == 0, err
    assert "none has logged val_f1" not in out + err
    assert "best val_f1" in out or "val_f1 0." in out
