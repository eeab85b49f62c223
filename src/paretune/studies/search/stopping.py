"""When a study ends: its front has not grown beyond noise for long, or going on costs more than it can save."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paretune.estimating.noise import are_alike
from paretune.ledger.trial_entry import TrialStatus
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import costs
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point, each_point
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trials import Trial

PATIENCE = 25
"""Trials in a row that add nothing to the front beyond noise, before a study ends."""
FEWEST_HALVES = 8
"""Completed trials in each half of a study without which nothing is said about what it saves."""
FEWEST_WITHOUT = 2
"""Completed trials that all lack an objective, after which a study ends."""
_TEACHING = {TrialStatus.COMPLETED, TrialStatus.OUT_OF_MEMORY, TrialStatus.STOPPED}


def has_stalled(trials: Sequence[Trial], file: StudyFile) -> str:
    """Why the front will hardly grow any more, in words; empty while it still may.

    A trial adds to the front unless a trial before it is as good in every objective, or cannot be told apart from it
    there. Failed trials count for nothing, repeats neither. The trials come in the order of their ends.
    """
    first = [trial for trial in trials if trial.repeats is None and trial.status in _TEACHING]
    if len(first) <= PATIENCE:
        return ""
    # Without the ranks of a front, which compare all points with all others: this is asked after each trial.
    numbered = sorted(trials, key=lambda trial: trial.number)
    found, _ = each_point(numbered, file.objectives, file.constraints, quality=file.judged_by)
    order = {trial.number: index for index, trial in enumerate(first)}
    feasible = (point for point in found if point.number in order and point.is_feasible(file.objectives))
    shown = sorted(_Shown.of(point, order[point.number], file.objectives) for point in feasible)
    for place, point in enumerate(shown):
        is_late = point.place >= len(first) - PATIENCE
        if is_late and not any(_is_matched(point, by) for by in shown[:place]):
            return ""
    return f"the last {PATIENCE} trials added nothing to the front that is more than noise"


def costs_too_much(trials: Sequence[Trial], file: StudyFile) -> str:
    """Why another job would cost more than it can save over `later_runs`, in words; empty while it may pay.

    The second half of the trials is held against what it has changed: once it has found no better model, and has
    lowered the dollars of the recommended run, over all later runs, by less than it has cost, further trials would
    pay even less, for improvements become rarer. The trials come in the order of their ends.
    """
    wanted = set(file.objectives)
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED and wanted <= set(trial.values)]
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
    usd, former = new[0].point.usd_per_run, old[0].point.usd_per_run
    if usd is None or former is None:
        return ""
    saved = file.later_runs * max(0.0, former - usd)
    spent = sum(trial.cost_usd or 0.0 for trial in trials[at:])
    if saved >= spent:
        return ""
    return (
        f"the last {len(trials) - at} trials have cost {spent:.4g} USD and saved {saved:.4g} USD over "
        f"{file.later_runs:,} later runs, and the next ones can be expected to save less"
    )


def lacks_objective(trials: Sequence[Trial], measured: Mapping[int, Mapping[str, float]], file: StudyFile) -> str:
    """Why no trial will ever have all objectives, in words; empty while one may.

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


class _Shown(NamedTuple):
    """What is compared of a point: objectives as something to minimise, and their standard errors.

    Attributes:
        place: of its first trial among all first ones, in the order of their ends.
    """

    place: int
    costs: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, point: Point, place: int, objectives: Mapping[str, str]) -> "_Shown":
        """Of a point that has all objectives."""
        return cls(place, costs(point.means, objectives), tuple(point.errors[name] for name in objectives))


def _is_matched(point: _Shown, by: _Shown) -> bool:
    """Whether another point is as good in every objective, or cannot be told apart there."""
    compared = zip(point.costs, by.costs, point.errors, by.errors, strict=True)
    return all(other <= one or are_alike(one, other, *errors) for one, other, *errors in compared)
