"""What a study recommends: one configuration, and further ones with other roles, each with reasons, risk and commands.

The recommended configuration is chosen by what all runs together suggest of its quality, not by its luckiest run. If
another one is better in all other objectives and, as far as the runs can tell, as good, that one is recommended. A
configuration that was not trained is recommended only if none was.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from paretune.core.errors import BadInput
from paretune.specification import metrics
from paretune.studies.definition.objectives import costs
from paretune.studies.results.configurations import FEWEST_EQUAL, Configuration
from paretune.studies.results.figures import Figures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import label

RECOMMENDED = "recommended"  # title of the first pick of a study that weighs quality
_WORTH = 0.05
"""Share of the distance from the median quality to the best one that may be given up to halve the dollars. Chosen on
the first half of the drawn studies of benchmarks/search_statements.py."""
_LOSS = 0.15
"""Largest loss of quality for being better in all else, the difference to the best mean plus its standard error, as a
share of the range of quality on the front. Without this limit, noisy runs would make almost anything as good. Chosen on
the first half of the drawn studies of benchmarks/search_statements.py."""
_NEVER = 0.01  # probability of a collapse below which it is not mentioned
_RARE = 0.05  # the same if more than FEWEST_EQUAL runs did not collapse
_RISKY = 0.15  # probability of a collapse above which the learning rate is called too high
_ROOM = 1.25  # time limit of a recommended job, as a multiple of the longest time that it is expected to take
_UPPER = (metrics.JOB_SECONDS, f"{metrics.ESTIMATED_SECONDS}_high")
_SIMULATED_ONLY = ("launcher", "simulation")


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One recommended configuration."""

    roles: Mapping[str, str]  # title, such as recommended, the fastest or the knee, to the reason in a sentence
    point: Configuration
    risk: str = ""  # a sentence about collapses; empty if there is nothing to say
    runs: str = ""  # the number of runs that it is based on and, if known, why there are no more
    command: str = ""  # the command that repeats its job; empty if its parameters are not a valid job
    real_command: str = ""  # for a simulated configuration, the command that really runs its job; else empty

    @property
    def title(self) -> str:
        """All titles, as a heading."""
        title = ", and ".join(self.roles)
        return title[:1].upper() + title[1:]

    @property
    def reason(self) -> str:
        """All reasons."""
        return " ".join(self.roles.values())


def recommend(front: StudyFront, unverified: Mapping[int, str] | None = None) -> list[Pick]:
    """Return the recommended configuration, then those with other roles; empty if there is none.

    The roles: the recommended one, the one with the best mean quality, the fastest, and the knee of the front. If no
    training has completed, only the recommended one is returned, from what is expected. `unverified` maps the number of
    a configuration to the reason why it has no more runs.
    """
    if not front.feasible:
        return [_expected(front)] if front.may_expect and front.expected_best else []
    roles: dict[int, dict[str, str]] = {}
    taken = pick(front)
    others = (_best(front, taken), _fastest(front), _knee(front)) if len(front.feasible) > 1 else ()
    for role in (_recommended(front, taken), *others):
        if role is not None:
            roles.setdefault(role[0].number, {})[role[1]] = role[2]
    picks = []
    for number, of_point in roles.items():
        point, why_no_more = front.point_of[number], (unverified or {}).get(number)
        count = len(point.trials)
        picks.append(
            Pick(
                roles=of_point,
                point=point,
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
        return re.sub(r"(_minutes \d+)\.0\b", r"\1", replace(point.trial, given=given).spec.command())
    except BadInput:
        return ""


_Role = tuple[Configuration, str, str]  # a configuration, its role, and why it has this role


def pick(front: StudyFront) -> Configuration:
    """Return the recommended configuration. The front must not be empty, or something must be expected.

    - If quality is an objective beside dollars, or seconds where nobody bills: the configuration of the front with the
      largest quality, less `_WORTH` of the distance from the median to the best quality for each doubling of its
      dollars or seconds. Qualities are those that all runs together suggest (`StudyFront.believed_of`).
    - If quality is an objective and these are not: the one with the best quality.
    - If quality only has to reach a bound, or is not measured: the cheapest.

    If another one on the front is better in all other objectives, cannot be told apart in quality, and loses at most
    `_LOSS`, it is the best in quality of those.
    """
    name = front.quality
    points, known = front.best or front.expected_best, front.feasible or front.expected_best
    if name is None or front.is_floor:
        return min(points, key=front.cost_of)
    sign = 1.0 if front.objectives[name] == "maximize" else -1.0
    believed = {point.number: sign * front.believed_of(point) for point in known}
    paid = front.spending.metric
    if paid not in front.objectives:
        return max(points, key=lambda point: believed[point.number])
    spread = max(believed.values()) - median(believed.values())

    def worth(point: Configuration) -> float:
        doublings = math.log2(max(point.means[paid], 1e-12))
        return believed[point.number] - _WORTH * spread * doublings

    taken = max(points, key=lambda point: (worth(point), -point.means[paid]))
    return taken if taken.is_expected else _as_good(front, taken) or taken


def _as_good(front: StudyFront, taken: Configuration) -> Configuration | None:
    """Return the best in quality of those that are as good as far as the runs can tell, and better in all else."""
    name, others = front.quality, [each for each in front.objectives if each != front.quality]
    if name is None or not others:
        return None
    trained = [point.means[name] for point in front.best if point.trained]
    most = _LOSS * (max(trained) - min(trained)) if trained else 0.0
    best = front.best_in_quality() or taken
    lost = {point.number: abs(best.means[name] - point.means[name]) for point in front.best}
    able = [
        point
        for point in front.alike(taken)
        if point.rank == 0
        and lost[point.number] + math.hypot(point.errors[name], best.errors.get(name, 0.0)) <= most
        and all(front.is_better(point, taken, each) for each in others)
    ]
    return min(able, key=lambda each: (lost[each.number], front.cost_of(each)), default=None)


def _expected(front: StudyFront) -> Pick:
    """Return the recommendation of a study in which nothing was trained."""
    point = pick(front)
    probes = len(front.points)
    source = f"{probes} probe{'s' * (probes > 1)} and an estimate" if probes else "an estimate"
    weighs = front.quality is not None and not front.is_floor
    reason = f"Nothing was trained: hours and dollars come from {source}, and the settings are the usual ones"
    if front.quality is not None:
        reason += f", because {label(front.quality)} is known only after a training"
    return Pick(
        roles={RECOMMENDED if weighs else "the cheapest": f"{reason}."},
        point=point,
        runs=source,
        command=launch_command(point),
        real_command=launch_command(point, _SIMULATED_ONLY) if point.trial.spec.is_simulated else "",
    )


def _recommended(front: StudyFront, point: Configuration) -> _Role:
    name, best, figures = front.quality, front.best_in_quality(), Figures(front)
    paid = front.spending
    cheap = "the shortest" if paid.is_time else "the cheapest"
    cheap = cheap if paid.metric in _measured(front) else "the least demanding"
    cheap += _that_was_trained(front, paid.metric, point, point)
    if name is None or best is None:
        return point, cheap, "No objective of the study measures how good a model is."
    if front.is_floor:
        bounds = " and ".join(figures.bounds(name))
        return point, f"{cheap} with {bounds}", f"Its {label(name)} is {figures.stated(point, name)}."
    if point.means[name] == best.means[name]:
        if len(front.feasible) == 1:
            return point, RECOMMENDED, "Nothing else was trained to the end."
        within = " and meets the constraints" * any(o.rank is None and not o.trial.is_probe for o in front.points)
        return point, RECOMMENDED, f"Nothing else that was trained{within} has a better mean {label(name)}."
    lost, goal = figures.digits(name, abs(best.means[name] - point.means[name])), {name: front.objectives[name]}
    gains = ", and it is " + " and ".join(gain) if (gain := _gains(front, point, best)) else ""
    if best in front.alike(point):
        reason = f"The runs cannot tell its {label(name)} from that of trial {best.number}, whose mean is {lost} better"
    elif costs({name: front.believed_of(point)}, goal) <= costs({name: front.believed_of(best)}, goal):
        reason = (
            f"The mean {label(name)} of trial {best.number} is {lost} better, but all runs together suggest that this "
            "is luck"
        )
    else:
        reason = f"It gives up {label(name)} {lost} compared with trial {best.number}, which has the best mean"
    return point, RECOMMENDED, f"{reason}{gains}."


def _best(front: StudyFront, taken: Configuration) -> _Role | None:
    """Return the configuration with the best mean quality if it is not the recommended one, with what it costs more."""
    name, best = front.quality, front.best_in_quality()
    if name is None or best is None or front.is_floor or best.number == taken.number:
        return None
    gains = _gains(front, taken, best)
    than = f"Compared with it, the recommended one is {' and '.join(gains)}." if gains else ""
    return best, f"the best mean {label(name)}", than or f"It has the best mean {label(name)} of all that was trained."


def _gains(front: StudyFront, point: Configuration, other: Configuration) -> list[str]:
    """Return in words in which objectives but quality a configuration is better than another one."""
    figures, gains = Figures(front), list[str]()
    for name, direction in front.objectives.items():
        own, others = (costs(each.means, {name: direction}) for each in (point, other))
        if name != front.quality and own < others:
            gains.append(figures.gain(name, point.means[name], other.means[name]))
    return gains


def _that_was_trained(front: StudyFront, name: str, point: Configuration, least: Configuration | None) -> str:
    """Return a restriction for a superlative if a configuration that was not trained is expected to beat it.

    `point` has the least of the metric `name` among those that were trained. Only configurations count that are
    expected to be as good as `least`; all count if it is None.
    """
    for other in front.expected:
        is_as_good = True
        if (quality := front.quality) is not None and least is not None and quality in other.means:
            goal = {quality: front.objectives[quality]}
            is_as_good = costs(other.means, goal) <= costs(least.means, goal)
        if is_as_good and other.means.get(name, math.inf) < point.means.get(name, -math.inf):
            return " that was trained"
    return ""


def _fastest(front: StudyFront) -> _Role | None:
    """Return the fastest configuration of the front; if quality is an objective, of those with at least median quality.

    Without that bound, it would be a useless model that happened to be trained in the least time. The title says so if
    one that was not trained is expected to be faster.
    """
    name = next(
        (name for names in (front.objectives, _measured(front)) for name in metrics.TIMES if name in names), None
    )
    if name is None:
        return None
    points, quality, bound, worst = front.best, front.quality, "", None
    if quality is not None and not front.is_floor:
        goal = {quality: front.objectives[quality]}
        middle = median(costs(point.means, goal)[0] for point in front.feasible)
        points = [point for point in front.best if costs(point.means, goal)[0] <= middle]
        is_bound = min(point.means[name] for point in front.best) < min(point.means[name] for point in points)
        bound = f" of at least median {label(quality)}" * is_bound
        worst = max(points, key=lambda point: costs(point.means, goal))
    fastest = min(points, key=lambda point: (point.means[name], front.cost_of(point)))
    trained = _that_was_trained(front, name, fastest, worst if bound else None)
    place = "" if name in front.objectives else " on the front"
    return fastest, f"the fastest{place}{trained}{bound}", f"The fastest is judged by {label(name)}."


def _knee(front: StudyFront) -> _Role | None:
    """Return the knee of the front in the main pair of objectives, or None if there is no knee.

    With both objectives scaled to 0 to 1, the knee is the configuration that is farthest below the straight line from
    one end of the front to the other.
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
    reason = f"Beyond it, improving {label(pair[0])} or {label(pair[1])} a little makes the other much worse."
    return best[int(depths.argmax())], "the knee", reason


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
    name = label(front.quality or "")
    meaning = f"({name} far below what the other runs suggest)"
    if point.collapses:
        again = f"the next run collapses with a probability of about {probability:.0%}"
        above = f"none trained, so the {name} above is that of collapsed runs"
        if point.trained:
            above = f"the {name} above is the mean of runs that trained"
        return f"{point.collapses} of its {count} run{'s' * (count > 1)} collapsed {meaning}, and {again}; {above}."
    if not probability:
        return ""
    is_own = point.trial.spec.runs_user_code  # the user's own code may have no learning rate
    advice = ": its learning rate may be too high" if probability > _RISKY and not is_own else ""
    return f"Another run of it collapses {meaning} with a probability of about {probability:.0%}{advice}."


def _measured(front: StudyFront) -> list[str]:
    return [name for name in front.feasible[0].means if all(name in point.means for point in front.feasible)]
