"""What a study recommends: configurations on its front, each with its roles, reasons, risk and commands."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paretune.core.errors import BadInput
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import OBJECTIVES, costs
from paretune.studies.results.front import FEWEST_EQUAL, INTERVAL, Configuration, StudyFront
from paretune.studies.results.trials import label

_NEVER = 0.01  # probability of a collapse below which it is not mentioned
_RARE = 0.05  # the same if more than FEWEST_EQUAL runs did not collapse
_RISKY = 0.15  # probability of a collapse above which the learning rate is called too high
_ROOM = 1.25  # time limit of a recommended job, as a multiple of the longest time that it is expected to take
_UPPER = (metrics.JOB_SECONDS, f"{metrics.ESTIMATED_SECONDS}_high")
_SIMULATED_ONLY = ("launcher", "simulation")


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One recommended configuration."""

    titles: tuple[str, ...]  # its roles: the cheapest within noise of the best F1, the fastest, the knee
    point: Configuration
    reason: str
    risk: str = ""  # a sentence about collapses; empty if there is nothing to say
    runs: str = ""  # the number of runs that it is based on and, if known, why there are no more
    command: str = ""  # the command that repeats its job; empty if its parameters are not a valid job
    real_command: str = ""  # for a simulated configuration, the command that really runs its job; else empty

    @property
    def title(self) -> str:
        """All titles, as a heading."""
        title = ", and ".join(self.titles)
        return title[:1].upper() + title[1:]


def recommend(front: StudyFront, unverified: Mapping[int, str] | None = None) -> list[Pick]:
    """Return the recommended configurations of the front, the most important first; empty if none is feasible.

    Each has one or more of three roles: the cheapest within noise of the best quality, the fastest, and the knee of the
    front. `unverified` maps the number of a configuration to the reason why it has no more runs.
    """
    roles: dict[int, list[_Role]] = {}
    for role in (_cheapest_good(front), _fastest(front), _knee(front)) if front.feasible else ():
        if role is not None:
            roles.setdefault(role[0].number, []).append(role)
    picks = []
    for number, of_point in roles.items():
        points, titles, reasons = zip(*of_point, strict=True)
        point, why_no_more = points[0], (unverified or {}).get(number)
        count = len(point.trials)
        picks.append(
            Pick(
                titles=titles,
                point=point,
                reason=" ".join(reasons),
                risk=_risk(front, point),
                runs=f"{count} run{'s' if count > 1 else ''}" + (f" ({why_no_more})" if why_no_more else ""),
                command="" if front.is_foreign else launch_command(point),
                real_command=launch_command(point, _SIMULATED_ONLY) if point.trial.origin == "simulated" else "",
            )
        )
    return picks


def launch_command(point: Configuration, without: Collection[str] = ()) -> str:
    """Return the command that launches a configuration's job; empty if its parameters are not a valid job.

    The command leaves out the parameters in `without`. If any time of the configuration's jobs was measured or
    estimated, the time limit is a quarter longer than the longest such time.
    """
    left_out = {"dry_run", "force", *without}
    given = {name: text for name, text in point.trial.given.items() if name.partition(".")[0] not in left_out}
    if "learning_rate" in point.trial.spec.force:
        given["force"] = "learning_rate"
    upper_s = max((trial.measured[n] for trial in point.trials for n in _UPPER if n in trial.measured), default=None)
    if upper_s is not None:
        given["max_runtime_minutes"] = str(math.ceil(_ROOM * upper_s / 60))
    try:
        return re.sub(r"(_minutes \d+)\.0\b", r"\1", JobSpec.read(given).command())
    except BadInput:
        return ""


_Role = tuple[Configuration, str, str]  # a configuration, its role, and why it has this role


def _cheapest_good(front: StudyFront) -> _Role:
    name = front.quality
    cheap = "the cheapest" if metrics.COST_USD in _measured(front) else "the least demanding"
    if name is None:
        return min(front.best, key=front.cost_of), cheap, "No objective of the study measures how good a model is."
    if front.is_floor:
        point, bounds = _cheapest(front, front.best), " and ".join(front.bounds(name))
        return point, f"{cheap} with {bounds}", f"Its {label(name)} is {front.stated(point, name)}."
    best, equal = best_in(front, name)
    point = _cheapest(front, equal)
    reason = f"It has the best {label(name)} itself."
    if point.number != best.number:
        loss = abs(best.means[name] - point.means[name])
        loss += front.noises[name].at_most(math.hypot(best.errors[name], point.errors[name]))
        reason = (
            f"It is at most {loss / front.unit(name)[0]:.2g} worse ({INTERVAL:.0%}) than the best {label(name)} on the "
            f"front, {front.stated(best, name)} in trial {best.number}."
        )
    return point, f"{cheap} within noise of the best {label(name)}", reason


def _fastest(front: StudyFront) -> _Role | None:
    name = next(
        (name for names in (front.objectives, _measured(front)) for name in metrics.TIMES if name in names), None
    )
    if name is None:
        return None
    title = "the fastest" if name in front.objectives else "the fastest on the front"
    return _cheapest(front, best_in(front, name)[1]), title, f"The fastest is judged by {label(name)}."


def _knee(front: StudyFront) -> _Role | None:
    """Return the knee of the front in the main pair of objectives, or None if there is no knee.

    With both objectives scaled to 0 to 1, the knee is the configuration that is farthest below the straight line from
    one end of the front to the other. If others are within noise of it, the cheapest of them all is returned.
    """
    if (pair := front.main_pair) is None:
        return None
    best = front.best_in_pair(pair)
    minimized = np.array([costs(point.means, {name: front.objectives[name] for name in pair}) for point in best])
    low, span = minimized.min(axis=0), np.ptp(minimized, axis=0)
    if len(best) < 3 or not span.all():
        return None
    depths = 1 - ((minimized - low) / span).sum(axis=1)  # below the chord from (0, 1) to (1, 0)
    if depths.max() <= 1e-9:
        return None  # the front bends the other way, so no configuration is a good compromise
    knee = best[int(depths.argmax())]
    equal = [point for point in front.best if point.is_like(knee, front.objectives)]
    reason = f"Beyond it, improving {label(pair[0])} or {label(pair[1])} a little makes the other much worse."
    return min(equal, key=front.cost_of), "the knee", reason


def collapse_risk(front: StudyFront, point: Configuration) -> float:
    """Return the probability that another run collapses; 0 if it is too small to mention.

    It is also 0 if there are several runs, none of them collapsed, and all have exactly the same quality.
    """
    probability, count = point.collapse_probability or 0.0, len(point.trials)
    are_equal = count > 1 and len({trial.values.get(front.quality or "") for trial in point.trials}) == 1
    is_rare = probability < (_RARE if point.trained > FEWEST_EQUAL else _NEVER)
    return 0.0 if not point.collapses and (is_rare or are_equal) else probability


def _risk(front: StudyFront, point: Configuration) -> str:
    """Describe the risk of a collapse; return an empty string if none is expected."""
    probability, count = collapse_risk(front, point), len(point.trials)
    if point.collapses:
        again = f"the next run collapses with a probability of about {probability:.0%}"
        name = label(front.quality or "")
        above = f"none trained, so the {name} above is that of collapsed runs"
        if point.trained:
            above = f"the {name} above is the mean of runs that trained"
        return f"{point.collapses} of its {count} run{'s' * (count > 1)} collapsed, and {again}; {above}."
    if not probability:
        return ""
    is_own = point.trial.spec.runs_user_code  # the user's own code may have no learning rate
    advice = ": its learning rate may be too high" if probability > _RISKY and not is_own else ""
    return f"Another run of it collapses with a probability of about {probability:.0%}{advice}."


def _measured(front: StudyFront) -> list[str]:
    return [name for name in front.feasible[0].means if all(name in point.means for point in front.feasible)]


def _cheapest(front: StudyFront, points: Sequence[Configuration]) -> Configuration:
    """Return the cheapest configuration; if several cost the same within noise, the one of them with the best model."""
    cheapest, name = min(points, key=front.cost_of), front.quality
    priced = [point for point in points if metrics.COST_USD in point.means]
    if name is None or cheapest not in priced:
        return cheapest
    goal = {name: front.objectives[name]}
    as_cheap = [point for point in priced if point.is_like(cheapest, [metrics.COST_USD])]
    return min(as_cheap, key=lambda point: (*costs(point.means, goal), front.cost_of(point)))


def best_in(front: StudyFront, name: str) -> tuple[Configuration, list[Configuration]]:
    """Return the best configuration of the front in one objective, and all of the front within noise of it.

    A configuration that is not on the front may have a better mean, but only within noise, and it is worse beyond noise
    in another objective.
    """
    goal = {name: front.objectives.get(name) or OBJECTIVES[name].direction}
    best = min(front.best, key=lambda point: (costs(point.means, goal), front.cost_of(point)))
    return best, [point for point in front.best if point.is_like(best, [name])]
