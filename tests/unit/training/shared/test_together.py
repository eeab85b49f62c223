"""LoRA trials side by side on one frozen base: the losses, weights and metrics of jobs alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from paretune.spec.container import JobDocument, JobFolder
from paretune.training.loop import train
from paretune.training.shared import together
from tests.unit.training.shared.test_members import (
    LORA,
    Stop,
    beside,
    curves,
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
    joint = together.JointSteps._joint

    def counting(self: Any, steps: Any) -> Any:
        found = joint(self, steps)
        sizes.append(len(steps))
        return found

    monkeypatch.setattr(together.JointSteps, "_joint", counting)
    return sizes


def assert_equal(folder: JobFolder, member: str, alone: JobFolder, tolerance: float = 1e-5) -> None:
    """The same curves, quality and weights, but for rounding."""
    mine, theirs = curves(folder, member), curves(alone)
    assert [item[:2] for item in mine] == [item[:2] for item in theirs]
    assert [item[2] for item in mine] == pytest.approx([item[2] for item in theirs], abs=tolerance, rel=tolerance)
    own = folder.of_member(member)
    found, expected = quality(own), quality(alone)
    assert found.pop("confusion") == expected.pop("confusion")
    assert found == pytest.approx(expected, abs=tolerance)
    tensors, others = weights(own), weights(alone)
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
