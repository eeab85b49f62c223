"""A user's own script: what is read from its output, and what stays of its model; tests/foreign run such scripts."""

import io
import sys
from pathlib import Path

import pytest

from paretune.core.script_metrics import PrintedNumbers
from paretune.specification.container import EventReader, JobDocument, JobFolder, JobReport
from paretune.specification.job import JobSpec
from paretune.training.meter import EventWriter
from paretune.training.script import PrintedMetrics, run_script, trim_model_folder


def test_printed_dictionaries_of_texts_become_curves(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    output, events = PrintedMetrics(io.StringIO(), EventWriter(path), PrintedNumbers()), EventReader(path)

    print({"loss": "0.6931", "learning_rate": "5e-05", "epoch": "0.5"}, file=output)
    print({"eval_loss": "0.5", "eval_f1": "0.75", "epoch": "0.5"}, file=output)
    print({"loss": float("nan"), "epoch": 0.75}, file=output)
    print({"loss": 0.25, "epoch": 1.0}, file=output)

    assert [(event.step, event.metrics) for event in events.new()] == [
        (10, {"train/loss": 0.6931, "train/learning_rate": 5e-05, "train/epoch": 0.5}),
        (10, {"eval/loss": 0.5, "eval/f1": 0.75, "eval/epoch": 0.5}),
        (20, {"train/epoch": 0.75}),
        (30, {"train/loss": 0.25, "train/epoch": 1.0}),
    ]


@pytest.mark.parametrize(("weights", "left"), [("model.safetensors", []), ("training_args.bin", ["checkpoint-20"])])
def test_checkpoints_of_a_script_do_not_travel_as_its_model(tmp_path: Path, weights: str, left: list[str]) -> None:
    for name in ("checkpoint-3", "checkpoint-20", "checkpoint-of-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / weights).touch()

    trim_model_folder(tmp_path)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(["checkpoint-of-mine", weights, *left])


@pytest.mark.parametrize(
    ("left", "fault"),
    [
        ("MLmodel", "its MLmodel has no flavour python_function"),
        ("weights.npz", "no config.json of a Hugging Face model"),
    ],
)
def test_the_report_says_whether_mlflow_can_load_what_a_script_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, fault: str
) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text(f"import pathlib, sys\npathlib.Path({str(folder.model)!r}, {left!r}).touch()\nprint('f1: nan')")
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))

    run_script(JobDocument.first("job", JobSpec(entry_script=str(script))), folder)

    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    assert report.model_fault == fault
    assert report.not_finite == ("f1",)
