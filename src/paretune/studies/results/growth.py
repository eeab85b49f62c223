"""How the front of a study has grown with the dollars or hours that it spent, and how it may grow with more."""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from paretune.core import pareto
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.spending import Spending
from paretune.studies.results.front import StudyFront, hypervolume

_TOLD = (0.5, 0.8, 0.9, 0.95, 0.99)  # shares of the front that the words name


class Growth(NamedTuple):
    """The front after some dollars or hours.

    Attributes:
        spent: dollars or seconds spent by then, see `StudyFront.spending`.
        share: hypervolume of the front, as a share of that of all that is known at the end, which includes what is
            expected.
        is_expected: whether the jobs have not run.
    """

    spent: float
    share: float
    is_expected: bool = False


def growth_of(front: StudyFront) -> list[Growth]:
    """Return the front's growth, trial by trial; empty unless two configurations are known that can be compared.

    Trials count with the means of their configurations, and in the order of their ends. Then follow the expected
    configurations that nothing known is expected to beat, the cheapest first. Volumes are those up to a reference point
    that lies a tenth of the front's range beyond its worst values.
    """
    goals, points = front.objectives, [*front.best, *(p for p in front.expected_best if front.has_trained)]
    points = [point for point in points if goals.keys() <= point.means.keys()]
    if len(points) < 2 or front.is_foreign:
        return []
    columns = list(zip(*(costs(point.means, goals) for point in points), strict=True))
    reference = [max(c) + 0.1 * (max(c) - min(c) or abs(max(c)) or 1.0) for c in columns]
    whole = hypervolume([costs(point.means, goals) for point in points], reference)
    found, spent, share, grown = list[tuple[float, ...]](), 0.0, 0.0, list[Growth]()

    def add(paid: float, values: tuple[float, ...] | None, *, is_expected: bool = False) -> None:
        nonlocal spent, share
        spent += paid
        if values is not None and values not in found:
            found[:] = compress([*found, values], pareto.front([*found, values], [False] * len(values)))
            share = hypervolume(found, reference) / whole
        grown.append(Growth(spent, share, is_expected))

    for trial in sorted(front.trials, key=lambda trial: (trial.ended_at, trial.number)):
        point = front.point_of.get(trial.number)
        has_rank = point is not None and point.rank is not None
        add(front.paid(trial), costs(point.means, goals) if has_rank and point is not None else None)
    for point in points:
        if point.is_expected:
            add(front.spending.of_job(point.means), costs(point.means, goals), is_expected=True)
    return grown


def growth_in_words(grown: Sequence[Growth], spending: Spending) -> list[str]:
    """Return after how many dollars or hours the front first had some shares of all that is known at the end."""
    firsts = [next((each for each in grown if each.share >= share), None) for share in _TOLD]
    last = [each for each in grown if not each.is_expected][-1:]
    in_order = sorted({each for each in [*firsts, *last] if each is not None}, reverse=True)
    by_share = {f"{each.share:.0%}": each for each in in_order}  # of equal shares, the first
    lines = [
        f"{spending.text(each.spent)}{' (expected)' * each.is_expected}: {share}" for share, each in by_share.items()
    ]
    return [f"{line} of the front's hypervolume" for line in reversed(lines)]
