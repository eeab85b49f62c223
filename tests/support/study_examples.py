"""Trials of made-up studies, for tests of the studies' answers."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import Constraints, Objective
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.configurations import Configuration
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import EXPECTED, Trial
from paretune.studies.trial_status import ESTIMATED, TrialStatus

COST_AND_F1 = {"cost_usd": "minimize", "f1": "maximize"}


def trial_of(number: int, cost: float, f1: float, **fields: Any) -> Trial:
    """Return a completed trial with this cost in dollars and this F1. Only repeats share a batch size."""
    first = number if fields.get("repeats") is None else fields["repeats"]
    point = fields.pop("point", {"learning_rate": 1e-5 * (first + 1), "instance_type": "ml.g5.xlarge"})
    standard = {
        "run_id": f"run{number}",
        "point": point,
        "given": {
            "per_device_train_batch_size": str(first + 1),
            **{name: str(value) for name, value in point.items() if name in JobSpec.model_fields},
        },
        "status": TrialStatus.COMPLETED,
        "values": {"cost_usd": cost, "f1": f1, **fields.pop("more", {})},
        "cost_usd": cost,
    }
    return Trial(number=number, **{**standard, **fields})


def answer(
    trials: Sequence[Trial],
    objectives: Mapping[str, str],
    constraints: Constraints,
    *,
    expected: Sequence[Configuration] = (),
    quality: Objective | None = None,
    **more: Any,
) -> StudyAnswer:
    """Return the answer of a study with these trials. `more` has further attributes of the answer."""
    front = StudyFront.of(trials, objectives, constraints, expected=expected, quality=quality)
    return StudyAnswer(front=front, **more)


def expected(number: int, cost: float, f1: float | None, evidence: str = ESTIMATED, **more: float) -> Configuration:
    """Return a configuration that was not trained, with what is expected of it; without F1, it is unknown."""
    values = {"cost_usd": cost, **({} if f1 is None else {"f1": f1}), **more}
    ends = {"f1": (-0.01, 0.02), "cost_usd": (-0.1, 0.1)}
    intervals = {
        name: (values[name] + low, values[name] + high) for name, (low, high) in ends.items() if name in values
    }
    given = {"values": values, "cost_usd": None, "origin": EXPECTED, "run_id": "", "intervals": intervals}
    trial = trial_of(number, cost, 0.0, **given)
    return Configuration(trial=trial, trials=(), means=values, errors={}, evidence=evidence, believed=f1 or 0.0)


def failed(number: int, status: TrialStatus, reason: str, cost: float = 0.1) -> Trial:
    """Return a trial without a result."""
    return trial_of(number, cost, 0.0, values={}, cost_usd=cost, status=status, reason=reason)


def many_trials(count: int, seed: int = 0, origin: str = "measured") -> list[Trial]:
    """Return trials over four parameters that trade off F1, seconds and dollars."""
    source = random.Random(seed)
    trials = []
    for number in range(count):
        kind, speed, price = source.choice([("ml.g4dn.xlarge", 0.5, 0.74), ("ml.g5.xlarge", 1.0, 1.41)])
        instances, batch = source.choice([1, 2, 4]), source.choice([8, 16, 32])
        rate = 10 ** source.uniform(-5, -3.5)
        seconds = 6000 / (speed * instances**0.8) * source.gauss(1, 0.01)
        f1 = 0.93 - 0.02 * abs(math.log10(rate) + 4.5) - 0.002 * instances + source.gauss(0, 0.002)
        cost = seconds * instances * price / 3600
        point: dict[str, str | int | float] = {
            "instance_type": kind,
            "instance_count": instances,
            "per_device_train_batch_size": batch,
            "learning_rate": rate,
        }
        lost = {"values": {}, "status": TrialStatus.OUT_OF_MEMORY, "reason": "batch does not fit 16 GiB"}
        fields = lost if source.random() < 0.15 else {"more": {"train_seconds": seconds}}
        run_id = f"{source.getrandbits(128):032x}"
        trials.append(trial_of(number, cost, f1, run_id=run_id, point=point, origin=origin, **fields))
    return trials


def mnist_trials() -> list[Trial]:
    """Return the seven runs of a study of PyTorch's MNIST example, 2026-11-29: six configurations, one of them twice.

    Two equal runs had accuracies of 0.54 and 0.3333.
    """
    runs = [(0.30, 0.1833), (0.46, 0.0833), (0.73, 0.4233), (0.86, 0.54), (0.71, 0.3567), (0.68, 0.24), (0.86, 0.3333)]
    settings = [(0.1, 256), (0.01, 128), (0.05, 64), (0.1, 32), (0.03, 16), (0.08, 8)]
    trials = []
    for number, (usd, accuracy) in enumerate(runs):
        first = 3 if number == 6 else number
        rate, batch = settings[first]
        trials.append(
            trial_of(
                number,
                usd / 1000,
                0.0,
                point={"learning_rate": rate, "per_device_train_batch_size": batch},
                repeats=3 if number == 6 else None,
                values={"cost_usd": usd / 1000, "Test_Accuracy": accuracy},
            )
        )
    return trials


LADDER = [  # each trial is more expensive than the one before
    trial_of(0, 1.0, 0.70, more={"train_seconds": 4000.0}),
    trial_of(1, 2.0, 0.90, more={"train_seconds": 2000.0}),  # the knee
    trial_of(2, 6.0, 0.930, more={"train_seconds": 1000.0}),  # within 0.014 of the best
    trial_of(3, 9.0, 0.935, more={"train_seconds": 3000.0}),
    trial_of(4, 20.0, 0.80, more={"train_seconds": 500.0}),
]


def twins(f1: float = 0.898, cost: float = 3.0, noise: float = 0.001) -> list[Trial]:
    """Return two runs of each of four configurations. Trial 6 is nearly as good as trial 4, cheaper and faster."""
    settings = [(1.0, 0.70, 900.0), (2.0, 0.80, 1000.0), (4.0, 0.900, 4000.0), (cost, f1, 2000.0)]
    return [
        trial_of(2 * index + again, usd, value + (noise, -noise)[again], more={"job_seconds": seconds}, **repeats)
        for index, (usd, value, seconds) in enumerate(settings)
        for again, repeats in enumerate(({}, {"repeats": 2 * index}))
    ]


def words(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None) -> str:
    """Return the opening sentences of the answer of a study with these trials."""
    front = StudyFront.of(trials, objectives, constraints or {})
    return " ".join(StudyAnswer(name="s", front=front).opening())
