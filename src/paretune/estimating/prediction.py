"""What is predicted of a job before it runs, and the two functions that predict it."""

from collections.abc import Callable
from dataclasses import dataclass

from paretune.spec.container import JobDocument


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What an estimate says of one job.

    Attributes:
        seconds: billed seconds per instance, start-up included.
        startup_seconds: those before the first step.
        steps: optimiser steps in all.
        memory_gib: highest memory of one device; None where it is not known.
        basis: where the figures come from, in words.
    """

    seconds: float
    startup_seconds: float
    step_seconds: float
    steps: int
    memory_gib: float | None
    basis: str
    fits: bool = True


Predict = Callable[[JobDocument], Predicted | None]
"""The estimate of a job; None where it cannot be estimated."""
RecallF1 = Callable[[JobDocument], tuple[float, str] | None]
"""F1 of runs like this job, and which runs they are; None where there are none."""
