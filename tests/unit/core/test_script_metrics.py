"""Numbers of somebody else's training: in printed lines, in files, and by SageMaker's metric definitions."""

import json
import math
import time
from pathlib import Path

import pytest

from paretune.core.script_metrics import LONGEST_LINE, PrintedNumbers, numbers_in, numbers_of_files


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("val_f1: 0.91", {"val_f1": 0.91}),
        ("widgets=3", {"widgets": 3.0}),
        ("eval f1 = 0.91", {"eval_f1": 0.91}),
        ("{'eval_f1': 0.9, 'kpi': '2', 'epoch': 1.0}", {"eval_f1": 0.9, "kpi": 2.0}),
        ("Epoch 1/5 | loss: 0.41 | val acc=.9", {"loss": 0.41, "val_acc": 0.9}),
        ("step 250: train loss 1.5, val loss 2.5", {"train_loss": 1.5, "val_loss": 2.5}),
        ("[7]\ttrain-auc:0.8\tvalidation-auc:0.7", {"train-auc": 0.8, "validation-auc": 0.7}),
        ("23/23 - 0s - 2ms/step - accuracy: 0.85 - val_loss: 4e-1", {"accuracy": 0.85, "val_loss": 0.4}),
        ("epoch 0: {'accuracy': 0.7}", {"accuracy": 0.7}),
        ("Epoch 3: took 5 minutes, loss 0.4", {}),
        ("2026-11-26 10:00:00 loss: 0.3", {}),
        ("INFO eval_accuracy = 0.93, in all", {}),
        ("Modules in train mode: 3", {}),
        ("{'loss': nan, 'f1': 0.5, 'flag': True}", {"loss": math.inf, "f1": 0.5}),
        ("loss: 1e999", {"loss": math.inf}),
        ("epoch 2: loss -inf, f1 NaN", {"loss": -math.inf, "f1": math.nan}),
        ("| End of training | test loss  6.18 | test ppl   483.63", {"test_loss": 6.18, "test_ppl": 483.63}),
        ("| end of epoch   1 | time:  1.00s | valid loss  6.18", {"valid_loss": 6.18}),  # and cells of words
        ("mode: info", {}),
        ("12:30:01 done", {}),
    ],
)
def test_a_printed_line_gives_the_numbers_that_a_reader_sees(line: str, numbers: dict[str, float]) -> None:
    assert numbers_in(line) == pytest.approx(numbers, nan_ok=True)


def test_settings_that_a_training_prints_before_its_first_step_are_no_metrics() -> None:
    printed = PrintedNumbers()
    for line in (
        "batch_size = 64",
        "n_layer = 6",
        "Num_processes: 1",
        "step 0: train loss 4.3, val loss 4.2",
        "f1: 0.8",
    ):
        printed.read(line)

    assert printed.results({}, {}, {})[0] == {"train_loss": 4.3, "val_loss": 4.2, "f1": 0.8}


def test_the_last_state_of_a_progress_bar_and_the_last_line_count() -> None:
    printed = PrintedNumbers()
    for line in ("loss=0.9\n", "loss=0.5\rloss=0.25\r\n", "x" * LONGEST_LINE + " loss=0.1\n"):
        printed.read(line)

    assert printed.results({}, {}, {}) == ({"loss": 0.25}, [], "printed: loss")


def test_a_metric_whose_last_value_is_not_finite_is_named_instead_of_recorded() -> None:
    printed = PrintedNumbers([{"Name": "own", "Regex": r"own (\S+)"}])
    for line in ("f1: 0.5", "auc: nan", "own 0.5", "own nan", "own none", "{'eval_f1': nan}", "f1: inf", "auc: 0.75"):
        printed.read(line)

    renamed = {"eval_f1": "validation_f1"}
    assert printed.results({}, {"loss": float("nan")}, renamed) == (
        {"auc": 0.75},
        ["eval_f1", "f1", "loss", "own", "validation_f1"],
        "printed: auc",
    )


def test_metric_definitions_are_read_as_sagemaker_reads_them() -> None:
    printed = PrintedNumbers(
        [
            {"Name": "train:error", "Regex": r"Train_error=(.*?);"},
            {"Name": "absent", "Regex": "nothing: ([0-9.]+)"},
            {"Name": "word", "Regex": "(hello)"},
        ]
    )
    for line in ("Train_error=0.5;", "hello", "Train_error=0.25;  rows 3;", "Train_error=broken;"):
        printed.read(line)

    assert printed.results({}, {}, {})[0] == {"train:error": 0.25}


def test_files_of_hugging_face_scripts_are_read_with_the_most_telling_last(tmp_path: Path) -> None:
    state = {"log_history": [{"eval_f1": 0.1, "loss": 2.0, "epoch": 1}, {"loss": 1.0, "epoch": 2, "step": 9}]}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "eval_results.json").write_text('{"eval_f1": 0.2, "eval_loss": 0.7, "name": "x"}')
    (tmp_path / "out" / "all_results.json").write_text('{"eval_f1": 0.3, "train_runtime": "4.5", "ok": true}')
    (tmp_path / "metrics.json").write_text("[not a dictionary")
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.8\nepoch = 3\n")
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "metrics.json").write_text('{"eval_f1": 9}')

    numbers = numbers_of_files([tmp_path, tmp_path / "out"], time.time())

    assert numbers == {
        "loss": (1.0, "out/trainer_state.json"),
        "eval_loss": (0.7, "eval_results.json"),
        "eval_f1": (0.3, "out/all_results.json"),
        "train_runtime": (4.5, "out/all_results.json"),
        "eval_accuracy": (0.8, "eval_results.txt"),
    }
    assert numbers_of_files([tmp_path], time.time() + 60) == {}
    assert PrintedNumbers().results(numbers, {"loss": 3.0}, {"eval_f1": "f1"}) == (
        {"f1": 0.3, "loss": 3.0, "eval_loss": 0.7, "eval_f1": 0.3, "train_runtime": 4.5, "eval_accuracy": 0.8},
        [],
        "eval_results.txt: eval_accuracy; out/all_results.json: f1, train_runtime; "
        "eval_results.json: eval_loss; MLflow: loss",
    )
