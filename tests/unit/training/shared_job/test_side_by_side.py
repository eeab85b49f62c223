"""LoRA trials side by side on one frozen base: the losses, weights and metrics of jobs alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from paretune.specification.container import FailureKind, JobDocument, JobFolder, JobReport
from paretune.training.loop import train
from paretune.training.shared_job import side_by_side
from paretune.training.trainer import Diverged, LengthGroupedTrainer
from tests.unit.training.shared_job.test_trials import (
    LORA,
    Stop,
    beside,
    curves,
    ends_of,
    events_of,
    quality,
    run,
    weights,
)

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

RATES = (5e-4, 2e-3, 8e-3)

EXACT = replace(LORA, num_train_epochs=2.0)


@pytest.fixture
def joint_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trials took part in each step that was done for several."""
    sizes: list[int] = []
    joint = side_by_side.JointSteps._joint

    def counting(self: Any, steps: Any) -> Any:
        result = joint(self, steps)
        sizes.append(len(steps))
        return result

    monkeypatch.setattr(side_by_side.JointSteps, "_joint", counting)
    return sizes


def assert_equal(folder: JobFolder, member: str, alone: JobFolder, tolerance: float = 1e-5) -> None:
    """The same curves, quality and weights, but for rounding."""
    mine, reference = curves(folder, member), curves(alone)
    assert [item[:2] for item in mine] == [item[:2] for item in reference]
    assert [item[2] for item in mine] == pytest.approx([item[2] for item in reference], abs=tolerance, rel=tolerance)
    custom = folder.of_member(member)
    result, expected = quality(custom), quality(alone)
    assert result.pop("confusion") == expected.pop("confusion")
    assert result == pytest.approx(expected, abs=tolerance)
    tensors, others = weights(custom), weights(alone)
    assert tensors.keys() == others.keys()
    assert all(torch.allclose(tensors[name], others[name], atol=tolerance) for name in tensors)


def test_trials_with_three_learning_rates_are_what_each_is_alone(folder: JobFolder, joint_steps: list[int]) -> None:
    specs = [replace(EXACT, learning_rate=rate, gradient_accumulation_steps=2) for rate in RATES]
    assert run(folder, *specs)

    assert joint_steps == [3] * 12
    for number, spec in enumerate(specs):
        alone = beside(folder, f"alone-{number}")
        assert train(JobDocument(job_name="job", spec=spec, plan=spec.plan()), alone, Stop())
        assert_equal(folder, f"m{number}", alone)
    losses = {tuple(value for _, name, value in curves(folder, f"m{n}") if name == "train/loss") for n in range(3)}
    assert len(losses) == 3


def test_trials_that_stop_or_fail_leave_and_the_others_are_what_they_are_alone(
    folder: JobFolder, joint_steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = LengthGroupedTrainer.training_step

    def leaving(trainer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = step(trainer, *args, **kwargs)
        if trainer.state.global_step == 1 and trainer.args.learning_rate == RATES[0]:
            stop = folder.of_member("m0").stop_request
            stop.parent.mkdir(parents=True)
            stop.touch()
        if trainer.state.global_step == 4 and trainer.args.learning_rate == RATES[1]:
            raise Diverged("the loss is not a finite number")
        return loss

    monkeypatch.setattr(LengthGroupedTrainer, "training_step", leaving)
    monkeypatch.setattr("paretune.training.shared_job.trials.FILE_INTERVAL_S", 0.0)
    specs = [replace(EXACT, learning_rate=rate) for rate in RATES]
    assert run(folder, *specs)
    monkeypatch.undo()

    assert joint_steps == [3, 3, 2, 2, 2]  # and one trial alone
    ends = ends_of(folder)
    assert ends["m0"].report is ends["m0"].failure is None
    assert ends["m1"].failure == (FailureKind.DIVERGED, "the loss is not a finite number")
    assert (folder.of_member("m0").checkpoints / "checkpoint-2" / "complete.json").exists()
    alone = beside(folder, "alone")
    assert train(JobDocument(job_name="job", spec=specs[2], plan=specs[2].plan()), alone, Stop())
    assert_equal(folder, "m2", alone)


def test_a_job_that_is_stopped_goes_on_side_by_side(folder: JobFolder, joint_steps: list[int]) -> None:
    specs = [replace(EXACT, learning_rate=rate) for rate in RATES[:2]]
    whole = beside(folder, "whole")
    assert run(whole, *specs)
    assert joint_steps == [2] * 12

    assert not run(folder, *specs, stop=Stop(left=1 + 2 * 7))  # before the trials, after each step of each
    assert not ends_of(folder)
    folder.events.unlink()
    joint_steps.clear()
    assert run(folder, *specs)

    assert set(joint_steps) == {2}
    assert len(joint_steps) < 12
    for member in ("m0", "m1"):
        mine, reference = weights(folder.of_member(member)), weights(whole.of_member(member))
        assert all(torch.allclose(mine[name], reference[name], atol=1e-5) for name in reference)


def test_a_model_that_cannot_be_computed_for_several_is_trained_a_step_each(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        torch.rand(3)  # random numbers that a step alone must not miss
        raise RuntimeError("vmap: it looks like you are calling .item()")

    monkeypatch.setattr(torch, "vmap", refused)
    specs = [replace(EXACT, learning_rate=rate) for rate in RATES[:2]]
    assert run(folder, *specs)
    monkeypatch.undo()

    message = (
        "from now on each trial computes its steps alone, because a joint step failed: "
        "RuntimeError: vmap: it looks like you are calling .item()"
    )
    assert [event.message for event in events_of(folder, "m1")].count(message) == 1
    alone = beside(folder, "alone")
    assert train(JobDocument(job_name="job", spec=specs[1], plan=specs[1].plan()), alone, Stop())
    assert_equal(folder, "m1", alone, 0.0)


def test_seconds_of_trials_side_by_side_add_up_to_those_of_the_job(folder: JobFolder) -> None:
    assert run(folder, *(replace(EXACT, learning_rate=rate) for rate in RATES))

    seconds = [end.seconds for end in ends_of(folder).values()]
    whole = JobReport.read(folder.report).metrics["train_seconds"]
    assert JobReport.read(folder.of_member("m1").report).facts["side_by_side"] == 3
    assert sum(seconds) <= whole
    assert all(0 < second < 0.7 * whole for second in seconds)
