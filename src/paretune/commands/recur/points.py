"""The points of a recurring training: their jobs, expected dollars, worst cases, and the policy that chooses."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.history import TRY, Night, NightJob
from paretune.commands.recur.policy import Candidate, Policy
from paretune.core.errors import BudgetRefused, refuse
from paretune.estimating.estimator import Estimate
from paretune.estimating.time_estimate import TimeEstimate
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.pricing.budget import cost_usd
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.results.quality_model import Key, quality_key
from paretune.studies.search.split.candidates import key_over, step_of
from paretune.studies.search.trial_history import hash_without_seed
from paretune.studies.search.worst_case import WorstCase

_HOUR_S = 3600.0
_DIFFERS_BY_NIGHT = ("seed", "dataset", "validation_file", "test_file", "max_train_samples")
"""Parameters that may differ from night to night without making a job another point."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """The default point, number 0, and all other points; what each may cost.

    Raises:
        BadInput: the price of an instance type is not known.
    """

    file: RecurFile
    workplace: Workplace
    points: Sequence[Mapping[str, Value]]
    specs: Sequence[JobSpec]
    policy: Policy
    worst: WorstCase

    @classmethod
    def of(cls, file: RecurFile, workplace: Workplace, nights: Sequence[Night]) -> "Points":
        """The points of a file, with estimates from the history in MLflow, and maximum runtimes from earlier nights."""
        points, specs, expected = _fitting(file, workplace)
        draft = file.draft
        candidates = [
            Candidate(quality=quality, cost=cost, log_usd=math.log(usd))
            for (quality, cost), usd in zip(_keys(file, specs), expected, strict=True)
        ]
        policy = Policy(candidates, 0, file.judged_by, file.floor, is_own=draft.is_own)
        longest_s = _longest_s(points, specs, nights)
        has_budget = file.max_cost_usd is not None
        worst = WorstCase(workplace, longest_s, has_budget=has_budget, by_estimates=False)  # a night has no second try
        return cls(file=file, workplace=workplace, points=points, specs=specs, policy=policy, worst=worst)

    @cached_property
    def identities(self) -> list[str]:
        """A hash of each job without seed and data, which may differ from night to night."""
        without = {*_DIFFERS_BY_NIGHT, *self.file.of_the_night}
        return [spec.spec_hash(but=without) for spec in self.specs]

    def number_of(self, job: NightJob) -> int | None:
        """The number of a job's point, or None if the file no longer has it."""
        if job.identity:
            return self.identities.index(job.identity) if job.identity in self.identities else None
        text = spelled(job.point)
        return next((number for number, point in enumerate(self.points) if spelled(point) == text), None)

    def worst_usd(self, number: int, part: str) -> float | None:
        """Dollars of a point's job at its maximum runtime; None if its own max_cost_usd forbids it."""
        try:
            return self.worst.usd(self.limited(number, part))
        except BudgetRefused:
            return None

    def limited(self, number: int, part: str) -> JobSpec:
        """The job of a point in this part of a night.

        Under `max_cost_usd` a try may take twice as long as an equal job did. A retraining has the maximum runtime of
        the file, so that a slow night is not lost.
        """
        return self.worst.limited(self.specs[number]) if part == TRY else self.specs[number]


def _longest_s(
    points: Sequence[Mapping[str, Value]], specs: Sequence[JobSpec], nights: Sequence[Night]
) -> dict[str, float]:
    """Hash of a job without its seed to the longest seconds that it took in any night.

    Only for points with a measured value. Their failed jobs count too, so that a limit that was too low doubles.
    """
    jobs = [job for night in nights for job in night.jobs if job.seconds is not None]
    measured = {spelled(job.point) for job in jobs if job.value is not None}
    longest: dict[str, float] = {}
    for job in jobs:
        if (point := spelled(job.point)) in measured:
            longest[point] = max(longest.get(point, 0.0), job.seconds or 0.0)
    pairs = ((spec, longest.get(spelled(point))) for point, spec in zip(points, specs, strict=True))
    return {hash_without_seed(spec): seconds for spec, seconds in pairs if seconds}


def spelled(point: Mapping[str, Value]) -> str:
    """A point as text; equal points have equal texts."""

    def plain(value: Value) -> Value:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    return json.dumps({name: plain(value) for name, value in point.items()})


def _keys(file: RecurFile, specs: Sequence[JobSpec]) -> list[tuple[Key, Key]]:
    """The keys that quality and dollars of each job depend on."""
    draft = file.draft
    if draft.is_own:
        names = list(file.changes_quality or file.search)
        quality, cost = key_over(names, file.search), key_over([*file.search], file.search)
        return [(quality(spec, spec.plan()), cost(spec, spec.plan())) for spec in specs]
    keys = []
    for spec in specs:
        plan = spec.plan()
        kinds, numbers = step_of(spec, plan)
        keys.append((quality_key(spec, plan), (kinds, (*numbers, math.log2(spec.num_train_epochs)))))
    return keys


def _fitting(file: RecurFile, workplace: Workplace) -> tuple[list[dict[str, Value]], list[JobSpec], list[float]]:
    """Points, their jobs and expected dollars, without points that surely lack memory; the default stays."""
    points = file.points()
    specs = [file.spec_at(point) for point in points]
    hourly = _usd_per_hour(specs, workplace)
    estimates = [_estimate(spec, workplace) for spec in specs]
    numbers = [
        number
        for number, estimate in enumerate(estimates)
        if number == 0 or not isinstance(estimate, Estimate) or estimate.fits != "no"
    ]
    points, specs = [points[number] for number in numbers], [specs[number] for number in numbers]
    times = [estimate.time.seconds for number in numbers if (estimate := estimates[number]) is not None]
    if len(times) < len(numbers):  # without all estimates, an hour for each epoch
        times = [_HOUR_S * (1.0 if spec.runs_own_training else spec.num_train_epochs) for spec in specs]
    return points, specs, [hourly[number] * time_s / _HOUR_S for number, time_s in zip(numbers, times, strict=True)]


def _estimate(spec: JobSpec, workplace: Workplace) -> TimeEstimate | None:
    inputs, price = known_inputs(spec, workplace), workplace.launcher.price(spec)
    return workplace.forecast.time_of(spec, spec.plan(), inputs, price)


def _usd_per_hour(specs: Sequence[JobSpec], workplace: Workplace) -> list[float]:
    """Dollars of an hour on each job's cluster. BadInput if a price is not known."""
    hourly = [cost_usd(workplace.launcher.price(spec), spec, _HOUR_S) for spec in specs]
    unknown = [spec.instance_type for spec, usd in zip(specs, hourly, strict=True) if usd is None]
    text = "the price of {} is not known, and nights are chosen by dollars: take it out"
    refuse([text.format(name) for name in dict.fromkeys(unknown)])
    return [usd for usd in hourly if usd is not None]
