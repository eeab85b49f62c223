"""The preparing process: all faults at once, exit code 2, no traceback, nobody asked."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.container import TELLS
from paretune.training import prepare
from paretune.training.prepare import main


@pytest.mark.slow
def test_faults_of_model_data_and_training_arguments_are_reported_at_once(
    run_prepare: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("review,stars\n" + "fine,good\nawful,bad\n" * 10)

    refused = run_prepare(
        model=str(tiny_model),
        dataset=str(table),
        max_seq_length="9999",
        precision="fp16",
        instance_count="500",
        training_arguments='{"wramup_steps": 5}',
    )

    assert refused.code == 2
    assert all(line.startswith(TELLS) for line in refused.output.splitlines())  # what it was doing
    expected = [
        "training_arguments has no argument wramup_steps in this version of transformers: did you mean warmup_steps",
        "precision fp16 needs a GPU",
        "instance_count must be at most",
        f"max_seq_length must be at most 64 for {tiny_model}, got 9999",
        "text_column 'text' is not in the train rows",
        "label_column 'label' is not in the train rows",
    ]
    if "precision" not in "".join(refused.faults):  # this machine has a GPU
        expected.pop(1)
    assert len(refused.faults) == len(expected)
    for fault, beginning in zip(refused.faults, expected, strict=True):
        assert fault.startswith(beginning)


# --- in this process: the same entry point, without the seconds that importing takes


@pytest.fixture
def faults_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Runs the entry point for job parameters; returns its faults, none when it prepared the job."""
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_UPDATE_DOWNLOAD_COUNTS", "0")

    def run(**parameters: str) -> list[str]:
        request, answer = tmp_path / "request.json", tmp_path / "answer.json"
        request.write_text(json.dumps({"max_seq_length": "16", **parameters}))
        code = main([str(request), str(tmp_path / "prepared"), str(answer)])
        message: dict[str, list[str]] = json.loads(answer.read_text())
        assert code == (2 if "faults" in message else 0)
        return message.get("faults", [])

    yield run
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"lr_scheduler_type": "cosinus"}, "are refused by transformers: cosinus is not a valid SchedulerType"),
        ({"load_best_model_at_end": True}, "requires the save and eval strategy to match"),
        ({"weight_decay": "a lot"}, "training_arguments: weight_decay must be a number, got 'a lot'"),
        ({"logging_first_step": "yes"}, "training_arguments: logging_first_step must be true or false, got 'yes'"),
    ],
)
def test_training_arguments_that_cannot_work_are_refused_before_the_job(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path, arguments: dict[str, Any], fault: str
) -> None:
    (result,) = faults_of(model=str(tiny_model), dataset=str(reviews), training_arguments=json.dumps(arguments))

    assert fault in result


def test_four_bit_weights_without_their_package_are_refused(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "can_be_imported", lambda name: False)

    assert faults_of(model=str(tiny_model), dataset=str(reviews), fine_tuning="qlora") == [
        "fine_tuning=qlora needs the package bitsandbytes, which is not installed here: "
        "python -m pip install -e '.[quantized]', or set fine_tuning=lora"
    ]
