"""A command reads the script of the user once, whatever it does with the script."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.core import reading
from paretune.studies.definition.file import StudyFile
from paretune.user_code.script import Script

TRAINING = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
print({"val_f1": 1 - arguments.lr})
"""
Readings = Callable[[], int]


@pytest.fixture
def script(workplace: Path) -> Path:
    return write(workplace / "train.py", TRAINING)


def write(path: Path, text: str) -> Path:
    """Write a file as if that had been long before the command."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))
    return path


@pytest.fixture
def readings(script: Path, monkeypatch: pytest.MonkeyPatch) -> Readings:
    """Return a function that counts how often this process has opened the script to read its text."""
    read, opened = reading.read_bytes, list[str]()

    def read_bytes(path: str | Path, largest: int, **more: str) -> bytes:
        if Path(path).resolve() == script.resolve():
            opened.append(str(path))
        return read(path, largest, **more)

    monkeypatch.setattr(reading, "read_bytes", read_bytes)
    return lambda: len(opened)


def study_file(folder: Path) -> str:
    """Return a study of six simulated jobs of the script."""
    rows = [f"ml.g5.xlarge,100,{lr},{0.9 - lr}" for lr in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    write(folder / "own.csv", "\n".join(["instance_type,billable_seconds,lr,val_f1", *rows]))
    text = (
        "name: own\n"
        "job: {launcher: simulated, entry_script: train.py, instance_type: ml.g5.xlarge, simulation.runs: own.csv}\n"
        "search: {lr: {choices: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}\n"
        "objectives: {cost_usd: minimize, val_f1: maximize}\n"
        "sampler: grid\nn_trials: 6\nbudget_usd: 50\n"
    )
    return str(write(folder / "study.yaml", text))


@pytest.mark.parametrize(
    "words",
    [
        ("train", "train.py", "--learning_rate", "0.2", "--seed", "3", "--dry_run"),
        ("train", "train.py", "--learning_rate", "0.2", "--seed", "3"),
        ("study", "train.py", "--metric", "val_f1", "--budget_usd", "1", "--dry_run"),
    ],
    ids=["dry run", "job", "study without a file"],
)
def test_a_command_reads_a_script_once(words: tuple[str, ...], readings: Readings) -> None:
    assert main(words) == 0

    assert readings() == 1


@pytest.mark.parametrize("more", [(), ("--dry_run",)], ids=["study", "dry run"])
def test_a_study_reads_a_script_once_for_all_of_its_trials(
    more: tuple[str, ...], script: Path, readings: Readings
) -> None:
    assert main(["study", "--study", study_file(script.parent), *more]) == 0

    assert readings() == 1


def test_a_study_file_is_read_without_the_script_that_it_names(script: Path, readings: Readings) -> None:
    file = StudyFile.read(study_file(script.parent))

    assert [*file.search] == ["training_arguments.lr"]
    assert readings() == 0


def test_a_script_that_changes_is_read_again(script: Path, readings: Readings) -> None:
    assert [Script.read(script).argument("width"), Script.read(script).argument("width")] == [None, None]

    script.write_text(f"{TRAINING}parser.add_argument('--width')\n")

    assert Script.read(script).argument("width") == "width"
    assert readings() == 2


def test_a_script_is_read_again_if_a_file_changes_that_its_arguments_or_settings_come_from(script: Path) -> None:
    text = "import hydra\nimport helper\n@hydra.main(config_path='settings', config_name='config')\ndef main(): pass\n"
    write(script, text)
    (script.parent / "settings").mkdir()
    (script.parent / "conf").mkdir()
    write(script.parent / "settings" / "config.yaml", "lr: 0.1\n")
    assert {*Script.read(script).names} == {"lr"}

    write(script.parent / "settings" / "config.yaml", "lr: 0.1\nwidth: 3\n")
    assert {*Script.read(script).names} == {"lr", "width"}

    write(script.parent / "helper.py", "print('val_kappa:', 1)\n")
    assert Script.read(script).reported.metrics == ("val_kappa",)

    write(script.parent / "conf" / "more.yaml", "depth: 3\n")
    assert "depth" in Script.read(script).reported.settings


def test_a_script_that_changes_again_at_once_is_read_again(script: Path) -> None:
    for name in ("width", "depth", "count"):  # texts of the same size
        script.write_text(TRAINING.replace("lr", name))
        assert Script.read(script).argument(name) == name
