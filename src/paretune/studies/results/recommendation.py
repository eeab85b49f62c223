"""The recommendations of a study: which configurations to take, why, and the commands that launch them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paretune.core.errors import BadInput
from paretune.jobs.verdicts import below_baseline
from paretune.presentation.numbers import with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, TIMES, costs
from paretune.studies.definition.quality import KNOWN
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import format_value, label
from paretune.studies.results.points import Point
from paretune.studies.results.trials import Trial, TrialStatus, job_of

_MOST_REASONS = 6
_NEVER = 0.01  # probability of a collapse below which nothing is said of it
_RISKY = 0.15  # probability of a collapse from which on the recommendation warns of it
_SIMULATED_ONLY = {"launcher", "simulation"}


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One recommended configuration."""

    titles: tuple[str, ...]  # its roles: the cheapest within noise of the best F1, the fastest, the knee
    point: Point
    reason: str
    judged_by: tuple[frozenset[str], ...] = ()  # the objectives that decide each role
    runs: str = ""  # how many runs it rests on, and why not on more
    alike: tuple[Point, ...] = ()  # points of its group that cannot be told apart from it
    command: str = ""  # the command that repeats its job; empty if its parameters make no job
    real_command: str = ""  # for a simulated one, the command that launches it for money; else empty

    @property
    def title(self) -> str:
        """All titles, as a heading."""
        title = ", and ".join(self.titles)
        return title[:1].upper() + title[1:]

    @property
    def risk(self) -> str:
        """A sentence with the probability that a further run collapses; empty if that was not estimated."""
        probability = self.point.collapse_probability
        if probability is None or probability < _NEVER:
            return ""
        sentence = f"A further run of it collapses with a probability of about {probability:.0%}"
        return f"{sentence}: its learning rate may be too high." if probability > _RISKY else f"{sentence}."

    def figures(self, front: StudyFront) -> list[tuple[str, str]]:
        """Name and value with its standard error: the study's objectives, and what a run costs."""
        point = self.point
        origin = "" if point.trial.origin == "measured" else f" ({point.trial.origin})"
        texts = {
            name: f"{format_value(name, point.means[name], point.errors[name])}{origin}"
            for name in dict.fromkeys([*front.objectives, metrics.COST_USD])
            if name in point.means
        }
        if self.risk and front.quality in texts:
            count = len(point.trials)
            collapses = f"{point.collapses} of {count} run{'s' if count > 1 else ''} collapsed"
            if point.collapses or front.quality in KNOWN:  # what a script logs may be a loss: 0 collapses say nothing
                texts[front.quality] += f" when it trains, {collapses}" if point.collapses < count else f", {collapses}"
        return [(label(name), text) for name, text in texts.items()]


def recommend(front: StudyFront, unverified: Mapping[int, str] | None = None) -> list[Pick]:
    """The recommended configurations, the most important first; empty if nothing is feasible.

    `unverified` maps the number of a point to the reason why it has no more runs.
    """
    if not front.feasible:
        return []
    roles: dict[int, list[_Reason]] = {}
    for reason in (_cheapest_good(front), _fastest(front), _knee(front)):
        if reason is not None:
            roles.setdefault(reason.point.number, []).append(reason)
    return [_pick(reasons, front, unverified or {}) for reasons in roles.values()]


def headline(front: StudyFront, picks: Sequence[Pick], *, has_reason: bool = True) -> list[str]:
    """The answer in a few sentences, or the reasons why there is none; simulated studies say so first.

    Without `has_reason`, what says why the first configuration is recommended and how risky it is is left out.
    """
    opening = []
    origins = sorted({trial.origin for trial in front.trials})
    if origins == ["simulated"]:
        opening.append("Simulated: nothing of this has run, and no number below was measured.")
    elif front.is_simulated:
        opening.append(f"The study mixes {' and '.join(origins)} trials: compare within one origin only.")
    if not picks:
        return [*opening, *_nothing(front)]
    pick = picks[0]
    values = "; ".join(f"{name} {value}" for name, value in pick.figures(front))
    opening.append(f"Take trial {pick.point.number} ({pick.point.trial.setting()}): {values}.")
    if has_reason:
        opening.append(f"It is {', and '.join(pick.titles)}. {pick.reason} This rests on {pick.runs}.")
        opening += [pick.risk] if pick.risk else []
    opening += [f"{label(name)} is the {take} value over the steps of a run." for name, take in front.takes.items()]
    opening += _below_baseline(pick.point)
    verdicts = dict.fromkeys(verdict for trial in pick.point.trials for verdict in trial.verdicts)
    opening += [f"Of its training: {verdict}." for verdict in verdicts]
    if not front.is_foreign and not any(
        trial.parameters.get("instance_type", "local").startswith("ml.") for trial in front.trials
    ):
        opening.append("Its jobs run on this machine, so its dollars are notional: nobody bills them.")
    return opening


def failures(trials: Sequence[Trial]) -> list[str]:
    """Trials that ended without a result: a line for each reason, the most frequent first."""
    words = {TrialStatus.OUT_OF_MEMORY: "out of memory", TrialStatus.FAILED: "failed", TrialStatus.STOPPED: "stopped"}
    reasons = Counter((words[trial.status], trial.reason) for trial in trials if trial.status in words)
    ordered = reasons.most_common()
    lines = [f"{count} {word}" + (f": {reason}" if reason else "") for (word, reason), count in ordered[:_MOST_REASONS]]
    rest = sum(count for _, count in ordered[_MOST_REASONS:])
    return [*lines, f"{rest} for other reasons"] if rest else lines


def command_of(parameters: Mapping[str, str], without: frozenset[str] | set[str] = frozenset()) -> str:
    """The command that launches a job, without names that no job has; empty if the parameters make no job."""
    try:
        return job_of(
            {name: text for name, text in parameters.items() if name.partition(".")[0] not in without}
        ).command()
    except BadInput:
        return ""


def _below_baseline(point: Point) -> list[str]:
    """Sentences that say that the model is worse than TF-IDF, and what to change; empty if it is not, or unknown."""
    if point.trial.plan is None or metrics.F1 not in point.means or point.trial.baseline_f1 is None:
        return []
    values = {metrics.F1: point.means[metrics.F1], metrics.BASELINE_TFIDF: point.trial.baseline_f1}
    sentences = below_baseline(job_of(point.trial.parameters), values, point.errors[metrics.F1])
    return [f"{sentence}." for sentence in sentences]


class _Reason(NamedTuple):
    """The reason why a point is recommended."""

    point: Point
    title: str
    reason: str
    judged_by: frozenset[str]


def _cheapest_good(front: StudyFront) -> _Reason:
    name = front.quality
    cheap = "the cheapest" if metrics.COST_USD in _measured(front) else "the least demanding"
    if name is None:
        reason = "No objective of the study says how good a model is."
        return _Reason(min(front.feasible, key=front.cost_of), cheap, reason, frozenset(front.objectives))
    best, equal = _best(front, name)
    point = _cheapest(front, equal)
    same = f" Every configuration reaches the same {label(name)} within noise: choose by dollars."
    same = same if len(equal) == len(front.points) > 1 else ""
    title, judged_by = f"{cheap} within noise of the best {label(name)}", {name, metrics.COST_USD} & {*front.objectives}
    if point.number == best.number:
        return _Reason(point, title, f"It has the best {label(name)} itself.{same}", frozenset(judged_by))
    reason = (
        f"The best {label(name)}, {format_value(name, best.means[name], best.errors[name])} in trial {best.number}, "
        f"differs by less than 2 standard errors; {len(equal)} configurations lie that close.{same}"
    )
    return _Reason(point, title, reason, frozenset(judged_by))


def _fastest(front: StudyFront) -> _Reason | None:
    name = next((name for names in (front.objectives, _measured(front)) for name in TIMES if name in names), None)
    if name is None:
        return None
    best, equal = _best(front, name)
    point = _cheapest(front, equal)
    reason = f"The fastest is judged by {label(name)}"
    if point.number != best.number:
        reason += f"; trial {best.number} is within noise of it and costs more"
    return _Reason(point, "the fastest", f"{reason}.", frozenset({name}))


def _knee(front: StudyFront) -> _Reason | None:
    """The point where the front of two objectives bends most: farthest from the line between its scaled ends."""
    pair = sorted(front.objectives, key=lambda name: (name != metrics.COST_USD, name != front.quality))[:2]
    if len(pair) < 2:
        return None
    ranks = front.pair_ranks(pair)
    best = [point for point in front.feasible if ranks[point.number] == 0]
    minimised = np.array([costs(point.means, {name: front.objectives[name] for name in pair}) for point in best])
    low, high = minimised.min(axis=0), minimised.max(axis=0)
    if len(best) < 3 or (low == high).any():
        return None
    x, y = ((minimised - low) / (high - low)).T
    depths = (1 - x - y) / 2**0.5  # below the chord from (0, 1) to (1, 0)
    if depths.max() <= 1e-9:
        return None  # the front bends the other way: no point is a good trade
    reason = (
        f"On the front of {label(pair[0])} and {label(pair[1])} it lies farthest from the line between both ends: "
        "past it a little more of one costs much of the other."
    )
    knee = best[int(depths.argmax())]
    leader = next((group.recommended for group in front.groups if knee in group.others), knee)
    if leader.number != knee.number:
        reason += f" Trial {knee.number}, which does, is equal to it within noise and costs more."
    return _Reason(leader, "the knee", reason, frozenset(pair))


def _pick(reasons: Sequence[_Reason], front: StudyFront, unverified: Mapping[int, str]) -> Pick:
    points, titles, sentences, judged_by = zip(*reasons, strict=True)
    trial, count = points[0].trial, len(points[0].trials)
    why_no_more = f" ({unverified[trial.number]})" if trial.number in unverified else ""
    return Pick(
        titles=titles,
        judged_by=judged_by,
        point=points[0],
        reason=" ".join(sentences),
        runs=f"{count} run{'s' if count > 1 else ''}{why_no_more}",
        alike=next((group.others for group in front.groups if group.recommended.number == points[0].number), ()),
        command="" if front.is_foreign else command_of(trial.given or trial.parameters),
        real_command=command_of(trial.given or trial.parameters, _SIMULATED_ONLY)
        if trial.origin == "simulated"
        else "",
    )


def _nothing(front: StudyFront) -> list[str]:
    if not front.trials:
        return ["No trial has been tried yet, so there is no front."]
    reasons = failures(front.trials)
    if not front.points:
        text = f"No trial of {len(front.trials)} has completed, so there is no front and nothing to recommend."
        return [text, *(f"{line}." if not line.endswith((".", "!", "?")) else line for line in reasons)]
    count = len(front.points)
    first = f"{count} configuration{'s have' if count > 1 else ' has'} completed, but none can be recommended:"
    unmet = Counter(sentence.partition(" is ")[0] for point in front.points for sentence in point.unmet)
    lines = []
    for name, limits in front.constraints.items():
        reached = [point.means[name] for point in front.points if name in point.means]
        for bound, closest in (("min", max), ("max", min)):
            if bound in limits and reached and unmet[label(name)]:
                limit = f"{'at least' if bound == 'min' else 'at most'} {limits[bound]:g}"
                lines.append(f"{label(name)} must be {limit}; the closest reached {with_error(closest(reached))}.")
    absent = [name for name in front.objectives if not any(name in point.means for point in front.points)]
    lines += [f"{label(name)} was not measured in any of them." for name in absent]
    return [first, *lines]


def _measured(front: StudyFront) -> list[str]:
    return [name for name in front.feasible[0].means if all(name in point.means for point in front.feasible)]


def _cheapest(front: StudyFront, points: Sequence[Point]) -> Point:
    """The cheapest point; among points with equal dollars within noise, the one with the best model."""
    cheapest, name = min(points, key=front.cost_of), front.quality
    priced = [point for point in points if metrics.COST_USD in point.means]
    if name is None or cheapest not in priced:
        return cheapest
    goal = {name: front.objectives[name]}
    as_cheap = [point for point in priced if point.is_like(cheapest, [metrics.COST_USD])]
    return min(as_cheap, key=lambda point: (*costs(point.expected, goal), front.cost_of(point)))


def _best(front: StudyFront, name: str) -> tuple[Point, list[Point]]:
    """The best point in one objective, and all points within noise of it."""
    goal = {name: front.objectives.get(name) or OBJECTIVES[name].direction}
    best = min(front.feasible, key=lambda point: (costs(point.expected, goal), front.cost_of(point)))
    return best, [point for point in front.feasible if point.is_like(best, [name])]
