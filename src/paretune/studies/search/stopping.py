"""When a study ends: its front has not grown beyond noise for long, or going on costs more than it can save."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paretune.estimating.noise import are_alike
from paretune.ledger.trial_entry import TrialStatus
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import costs
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point, merge
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trials import Trial

PATIENCE = 25  # trials in a row that add nothing to the front beyond noise, before a study ends
FEWEST_HALVES = 8  # completed trials that each half of a study needs before savings are judged
FEWEST_WITHOUT = 2  # completed trials that all lack an objective, after which a study ends
_TEACHING = {TrialStatus.COMPLETED, TrialStatus.OUT_OF_MEMORY, TrialStatus.STOPPED}


def has_stalled(trials: Sequence[Trial], file: StudyFile) -> str:
    """The reason why the front will hardly grow any more, in words; empty while it may still grow.

    A trial adds to the front unless a trial before it is as good in every objective, or cannot be told apart from it
    there. Failed trials and repeats do not count. The trials come in the order of their ends.
    """
    first = [trial for trial in trials if trial.repeats is None and trial.status in _TEACHING]
    if len(first) <= PATIENCE:
        return ""
    # No ranks of a front here, which compare all points with all others: this is called after each trial.
    numbered = sorted(trials, key=lambda trial: trial.number)
    points, _ = merge(numbered, file.objectives, file.constraints, quality=file.judged_by)
    order = {trial.number: index for index, trial in enumerate(first)}
    feasible = (point for point in points if point.number in order and point.is_feasible(file.objectives))
    ordered = sorted(_Costs.of(point, order[point.number], file.objectives) for point in feasible)
    for index, point in enumerate(ordered):
        is_late = point.position >= len(first) - PATIENCE
        if is_late and not any(_is_matched(point, earlier) for earlier in ordered[:index]):
            return ""
    return f"the last {PATIENCE} trials added nothing to the front that is more than noise"


def costs_too_much(trials: Sequence[Trial], file: StudyFile) -> str:
    """The reason why another job would cost more than it saves over `later_runs`; empty while one may pay off.

    The cost of the second half of the trials is compared with its improvement. Once it has found no better model, and
    has saved fewer dollars over all later runs than it has cost, further trials would save even less, because
    improvements become rarer. The trials come in the order of their ends.
    """
    names = set(file.objectives)
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED and names <= set(trial.values)]
    middle = len(done) // 2
    if not file.later_runs or middle < FEWEST_HALVES:
        return ""
    at = trials.index(done[middle])
    before = StudyFront.of(trials[:at], file.objectives, file.constraints, quality=file.judged_by)
    now = StudyFront.of(trials, file.objectives, file.constraints, quality=file.judged_by)
    old, new = recommend(before), recommend(now)
    if not old or not new:
        return ""
    if now.quality is not None and not new[0].point.is_like(old[0].point, [now.quality]):  # a better model
        return ""
    usd, usd_before = new[0].point.usd_per_run, old[0].point.usd_per_run
    if usd is None or usd_before is None:
        return ""
    saved = file.later_runs * max(0.0, usd_before - usd)
    spent = sum(trial.cost_usd or 0.0 for trial in trials[at:])
    if saved >= spent:
        return ""
    return (
        f"the last {len(trials) - at} trials have cost {spent:.4g} USD and saved {saved:.4g} USD over "
        f"{file.later_runs:,} later runs, and the next ones can be expected to save less"
    )


def lacks_objective(trials: Sequence[Trial], measured: Mapping[int, Mapping[str, float]], file: StudyFile) -> str:
    """The reason why no trial will ever have all objectives, in words; empty while one may.

    A training of the user's own that has completed twice without logging a metric will not log it the next time.
    `measured` has the number of a completed trial to all that it has logged.
    """
    if not file.is_own:
        return ""
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED and trial.number in measured]
    if len(done) < FEWEST_WITHOUT:
        return ""
    absent = [name for name in file.objectives if not any(name in trial.values for trial in done)]
    if not absent:
        return ""
    logged = ", ".join(sorted({name for trial in done for name in measured[trial.number]} - {*file.objectives}))
    return (
        f"{len(done)} jobs have completed and none has logged {' or '.join(absent)}, which is an objective; what they "
        f"have logged beside the others is {logged or 'nothing'}: name one of these in objectives"
    )


class _Costs(NamedTuple):
    """Objectives of a point as costs to be minimised, with errors; `position`: its place among ends of first trials."""

    position: int
    costs: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, point: Point, position: int, objectives: Mapping[str, str]) -> "_Costs":
        """The costs of a point that has all objectives."""
        return cls(position, costs(point.means, objectives), tuple(point.errors[name] for name in objectives))


def _is_matched(point: _Costs, by: _Costs) -> bool:
    """Whether another point is as good in every objective, or cannot be told apart there."""
    compared = zip(point.costs, by.costs, point.errors, by.errors, strict=True)
    return all(rival <= cost or are_alike(cost, rival, *errors) for cost, rival, *errors in compared)
