"""The points of a recurring training as candidates of its policy: their jobs, expected dollars and worst cases."""

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
from paretune.studies.results.f1_model import Key, quality_key
from paretune.studies.search.split.candidates import step_of
from paretune.studies.search.split.own_training import key_over
from paretune.studies.search.trial_history import hash_without_seed
from paretune.studies.search.worst_case import WorstCase

_HOUR_S = 3600.0
_OF_EACH_NIGHT = ("seed", "dataset", "validation_file", "test_file", "max_train_samples")
"""Parameters by which a job may differ from that of another night and still tell what its point is worth."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """The default, number 0, and all other points; what each may cost.

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
        """Those of a file, with estimates from what MLflow holds; maximum runtimes also from the nights that were."""
        points, specs, expected = _that_fit(file, workplace)
        draft = file.draft
        candidates = [
            Candidate(quality=quality, cost=cost, log_usd=math.log(usd))
            for (quality, cost), usd in zip(_keys(file, specs), expected, strict=True)
        ]
        policy = Policy(candidates, 0, file.judged_by, file.floor, is_own=draft.is_own)
        longest_s = _longest_s(points, specs, nights)
        has_budget = file.max_cost_usd is not None
        worst = WorstCase(workplace, longest_s, has_budget=has_budget, by_estimates=False)  # a night has no second one
        return cls(file=file, workplace=workplace, points=points, specs=specs, policy=policy, worst=worst)

    @cached_property
    def identities(self) -> list[str]:
        """A hash of each job but for its seed and its data, which may differ from night to night."""
        without = {*_OF_EACH_NIGHT, *self.file.of_the_night}
        return [spec.spec_hash(but=without) for spec in self.specs]

    def number_of(self, job: NightJob) -> int | None:
        """The number of the point that a job was of; None where it is none of the file any more."""
        if job.identity:
            return self.identities.index(job.identity) if job.identity in self.identities else None
        wanted = spelled(job.point)
        return next((at for at, one in enumerate(self.points) if spelled(one) == wanted), None)

    def worst_usd(self, at: int, part: str) -> float | None:
        """Dollars of a point's job at its maximum runtime; None where it may not run at all under its own limit."""
        try:
            return self.worst.usd(self.limited(at, part))
        except BudgetRefused:
            return None

    def limited(self, at: int, part: str) -> JobSpec:
        """The job of a point as this part of a night.

        Under `max_cost_usd` a try may take twice what an equal job took; a retraining has the maximum runtime of the
        file, so that a night that has become slow is not lost.
        """
        return self.worst.limited(self.specs[at]) if part == TRY else self.specs[at]


def _longest_s(
    points: Sequence[Mapping[str, Value]], specs: Sequence[JobSpec], nights: Sequence[Night]
) -> dict[str, float]:
    """Hash of a job but for its seed to the longest seconds that it has taken in any night.

    Only where one has ended with a value; then others count, too, so that the limit doubles each time it was too low.
    """
    jobs = [job for night in nights for job in night.jobs if job.seconds is not None]
    ended_well = {spelled(job.point) for job in jobs if job.value is not None}
    took: dict[str, float] = {}
    for job in jobs:
        if (point := spelled(job.point)) in ended_well:
            took[point] = max(took.get(point, 0.0), job.seconds or 0.0)
    known = ((spec, took.get(spelled(point))) for point, spec in zip(points, specs, strict=True))
    return {hash_without_seed(spec): seconds for spec, seconds in known if seconds}


def spelled(point: Mapping[str, Value]) -> str:
    """A point as text, equal for equal points."""
    return json.dumps({name: float(value) if _is_number(value) else value for name, value in point.items()})


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keys(file: RecurFile, specs: Sequence[JobSpec]) -> list[tuple[Key, Key]]:
    """What quality and dollars of each job depend on."""
    draft = file.draft
    if draft.is_own:
        names = list(file.changes_quality or file.search)
        quality, cost = key_over(names, file.search), key_over([*file.search], file.search)
        return [(quality(spec, spec.plan()), cost(spec, spec.plan())) for spec in specs]
    found = []
    for spec in specs:
        plan = spec.plan()
        kinds, numbers = step_of(spec, plan)
        found.append((quality_key(spec, plan), (kinds, (*numbers, math.log2(spec.num_train_epochs)))))
    return found


def _that_fit(file: RecurFile, workplace: Workplace) -> tuple[list[dict[str, Value]], list[JobSpec], list[float]]:
    """Points, their jobs and expected dollars, less those that memory is surely too small for; the default stays."""
    points = file.points()
    specs = [file.spec_at(point) for point in points]
    hourly = _usd_per_hour(specs, workplace)
    estimates = [_estimate(spec, workplace) for spec in specs]
    kept = [at for at, one in enumerate(estimates) if at == 0 or not isinstance(one, Estimate) or one.fits != "no"]
    seconds = [one.time.seconds for at in kept if (one := estimates[at]) is not None]
    if len(seconds) < len(kept):  # an hour for each epoch, then
        seconds = [_HOUR_S * (1.0 if specs[at].runs_own_training else specs[at].num_train_epochs) for at in kept]
    usd = [hourly[at] * each / _HOUR_S for at, each in zip(kept, seconds, strict=True)]
    return [points[at] for at in kept], [specs[at] for at in kept], usd


def _estimate(spec: JobSpec, workplace: Workplace) -> TimeEstimate | None:
    inputs, price = known_inputs(spec, workplace), workplace.launcher.price(spec)
    return workplace.forecast.time_of(spec, spec.plan(), inputs, price)


def _usd_per_hour(specs: Sequence[JobSpec], workplace: Workplace) -> list[float]:
    """Dollars of an hour on each job's cluster; BadInput where a price is not known."""
    hourly = [cost_usd(workplace.launcher.price(spec), spec, _HOUR_S) for spec in specs]
    unknown = [spec.instance_type for spec, usd in zip(specs, hourly, strict=True) if usd is None]
    text = "the price of {} is not known, and nights are chosen by dollars: take it out"
    refuse([text.format(name) for name in dict.fromkeys(unknown)])
    return [usd for usd in hourly if usd is not None]
