"""How a global batch is cut into processes and micro-batches changes nothing but rounding."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from paretune.cli.main import main
from paretune.spec.container import EventReader, JobFolder, JobReport

# Plain gradient descent, for its steps show the size of a gradient; Adam's do not.
COMMON = [
    *("--global_batch_size", "16", "--max_seq_length", "32", "--num_train_epochs", "2", "--learning_rate", "0.5"),
    *("--precision", "fp32", "--training_arguments", '{"optim": "sgd", "logging_steps": 1, "eval_steps": 7}'),
]
ONE = ["--per_device_train_batch_size", "16"]
ACCUMULATED = ["--per_device_train_batch_size", "8"]
TWO = ["--per_device_train_batch_size", "4", "--instance_count", "2"]


@pytest.fixture
def sober_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model without dropout, whose random numbers would differ from process to process."""
    folder = tmp_path / "sober"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _job(home: Path, words: list[str]) -> JobFolder:
    before = set(home.glob("jobs/*"))
    assert main(["main", *words]) == 0
    (folder,) = set(home.glob("jobs/*")) - before
    return JobFolder(folder)


@pytest.mark.slow
def test_one_process_two_processes_and_accumulation_train_the_same_model(
    workplace: Path, sober_model: Path, reviews: Path
) -> None:
    words = ["--model", str(sober_model), "--dataset", str(reviews), *COMMON]
    home = workplace / ".paretune"
    one = _job(home, [*words, *ONE])
    expected = {
        (event.step, name): value for event in EventReader(one.events).new() for name, value in event.metrics.items()
    }
    assert len([name for _, name in expected if name == "train/loss"]) == 14
    report = JobReport.read(one.report)
    weights = load_file(one.model / "model.safetensors")

    for split in (ACCUMULATED, TWO):
        other = _job(home, [*words, *split])

        found = {
            (event.step, name): value
            for event in EventReader(other.events).new()
            for name, value in event.metrics.items()
        }
        for curve in ("train/loss", "train/grad_norm", "train/learning_rate", "eval/loss", "eval/f1"):
            points = {key: value for key, value in expected.items() if key[1] == curve}
            assert {key: found.get(key) for key in points} == pytest.approx(points, rel=2e-3), split
        measured = JobReport.read(other.report)
        for name in ("f1", "accuracy", "eval_loss"):
            assert measured.metrics[name] == pytest.approx(report.metrics[name], rel=2e-3), (split, name)
        assert measured.confusion_matrix == report.confusion_matrix
        for name, tensor in load_file(other.model / "model.safetensors").items():
            assert tensor == pytest.approx(weights[name], abs=1e-4), (split, name)
