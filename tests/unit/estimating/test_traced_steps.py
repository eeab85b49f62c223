"""Traced steps are found again, and what could not be traced is not tried twice."""

from dataclasses import asdict, replace
from pathlib import Path

from paretune.estimating.traced_step import TracedSteps
from tests.unit.estimating.test_traced_step import GPU, STEP


def test_what_was_traced_is_found_by_another_process(tmp_path: Path) -> None:
    TracedSteps(tmp_path).store(GPU, asdict(STEP))
    traced_steps = TracedSteps(tmp_path)

    assert traced_steps.find(GPU) == STEP
    assert not traced_steps.is_untried(GPU)
    assert traced_steps.find(replace(GPU, tokens=64)) is None
    assert traced_steps.is_untried(replace(GPU, tokens=64))


def test_what_cannot_be_traced_is_not_tried_again(tmp_path: Path) -> None:
    TracedSteps(tmp_path).store(GPU, {"error": "KeyError: 'phi9'"})
    traced_steps = TracedSteps(tmp_path)

    assert traced_steps.find(GPU) is None
    assert not traced_steps.is_untried(GPU)


def test_half_a_file_is_no_step(tmp_path: Path) -> None:
    TracedSteps(tmp_path).store(GPU, asdict(STEP))
    (path,) = (tmp_path / "traced-steps").iterdir()
    path.write_text(path.read_text()[:100])

    assert TracedSteps(tmp_path).find(GPU) is None
    assert TracedSteps(tmp_path).is_untried(GPU)


def test_a_step_that_is_traced_meanwhile_is_found(tmp_path: Path) -> None:
    traced_steps = TracedSteps(tmp_path)
    assert traced_steps.find(GPU) is None

    TracedSteps(tmp_path).store(GPU, asdict(STEP))

    assert traced_steps.find(GPU) == STEP


def test_without_a_folder_nothing_is_kept() -> None:
    nowhere = TracedSteps(None)
    nowhere.store(GPU, asdict(STEP))

    assert nowhere.find(GPU) is None
    assert not nowhere.is_untried(GPU)
