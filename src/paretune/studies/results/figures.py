"""The figures of a study's page: the interactive chart, and matplotlib figures as SVG elements."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from paretune.presentation.chart import Axis, Chart, Mark, Spread
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, between, format_value, label
from paretune.studies.results.points import Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.trials import Trial, short_name

MOST_PAIRS = 10  # pairs of objectives that are drawn with a line along their front: all pairs of 5 objectives
_SPENT = "spent_usd"


def front_chart(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> Chart:
    """Every point over any two of: objectives, other metrics, numeric parameters, dollars spent so far.

    Points that lack an objective are left out, such as jobs that were cut off to measure seconds. The recommended
    points are ringed over the objectives that they are judged by; `address` gives the URL of a run id, or nothing.
    """
    axes = _axes(front)
    judged_by = {pick.point.number: pick.judged_by for pick in picks}
    marks = [
        replace(
            _mark(front, point, axes, judged_by.get(point.number, ())),
            address=address(point.trial.run_id),
        )
        for point in front.measured
    ]
    marks += [_predicted(trial, axes) for trial in front.forecast]
    return Chart(
        axes=list(axes.values()),
        marks=marks,
        lines={
            **{pair: _stairs(front, pair) for pair in front.pairs[:MOST_PAIRS]},
            **{(_SPENT, name): _best_so_far(front, name) for name in front.objectives},
        },
        first=front.main_pair or (_SPENT, next(iter(front.objectives))),
        about="a mark per configuration; the same values stand in the tables below",
    )


def _axes(front: StudyFront) -> dict[str, Axis]:
    """The axes: objectives, other metrics, parameters that are numbers and vary, dollars spent."""
    measured = {name for point in front.measured for name in point.means}
    names = dict.fromkeys([*front.objectives, metrics.COST_USD, *sorted(measured)])
    axes = {name: _axis(front, name) for name in names if name in measured}
    for name in front.shown:
        values = {point.trial.value(name) for point in front.measured}
        if name not in axes and len(values) > 1 and all(map(_is_number, values)):
            axes[name] = Axis(name=name, heading=short_name(name), short=short_name(name))
    return {
        **axes,
        _SPENT: Axis(name=_SPENT, heading="spent by the study (USD)", short="spent by the study", may_be_log=False),
    }


def _axis(front: StudyFront, name: str) -> Axis:
    way = {"minimize": ", less is better", "maximize": ", more is better"}.get(front.objectives.get(name, ""), "")
    return Axis(name=name, heading=f"{axis(name)}{way}", short=label(name), may_be_log=name != front.quality)


def _mark(front: StudyFront, point: Point, axes: Mapping[str, Axis], judged_by: Sequence[frozenset[str]]) -> Mark:
    """The mark of a point, with its standard errors as bars; `judged_by` as of its recommendation, or empty."""
    kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
    state = {"front": "on the front", "dominated": "dominated"}.get(kind, "no rank")
    spreads = {
        name: Spread(value, value - point.errors[name], value + point.errors[name])
        for name, value in point.means.items()
        if name in axes
    }
    spreads |= _settings(point.trial, axes)
    spreads[_SPENT] = Spread(*[point.found_at_usd] * 3)
    runs = f"{len(point.trials)} run{'s' if len(point.trials) > 1 else ''}"
    recommended = ", recommended" if judged_by else ""
    tooltip = [f"Trial {point.number}, {runs}: {state}{recommended}", *point.unmet]
    names = [name for name in dict.fromkeys([*front.objectives, metrics.COST_USD]) if name in point.means]
    tooltip += [f"{label(name)}: {format_value(name, point.means[name], point.errors[name])}" for name in names]
    tooltip += [f"{short_name(name)}: {text}" for name in front.shown if (text := point.trial.shown(name))]
    return Mark(
        kind=kind,
        spreads=spreads,
        tooltip=[*tooltip, f"run {point.trial.run_id}"],
        label=", ".join(filter(None, [f"trial {point.number}", point.trial.cluster])) if judged_by else "",
        label_over=[*judged_by, *({_SPENT, *names} - {metrics.COST_USD} for names in judged_by)],
    )


def _predicted(trial: Trial, axes: Mapping[str, Axis]) -> Mark:
    """The mark of a predicted point, with the intervals of its objectives as bars."""
    spreads = {
        name: Spread(value, *trial.intervals.get(name, (value, value)))
        for name, value in trial.values.items()
        if name in axes
    }
    spreads |= _settings(trial, axes)
    values = [f"{label(name)}: {between(trial, name)}" for name in trial.values]
    tooltip = ["Predicted, not run", *values, *trial.setting().split(", ")]
    return Mark(kind="predicted", spreads=spreads, tooltip=tooltip)


def _settings(trial: Trial, axes: Mapping[str, Axis]) -> dict[str, Spread]:
    """The parameters of a trial that are axes."""
    values = {name: trial.value(name) for name in axes}
    return {name: Spread(*[float(value)] * 3) for name, value in values.items() if _is_number(value)}


def _stairs(front: StudyFront, pair: tuple[str, str]) -> list[tuple[float, float]]:
    """Corners of the front of two objectives; between two neighbours it takes the worse of their values."""
    x, y = pair
    ranks = front.pair_ranks(pair)
    best = sorted((point.means[x], point.means[y]) for point in front.feasible if ranks[point.number] == 0)
    corners = best[:1]
    for before, after in itertools.pairwise(best):
        corner = (after[0], before[1]) if front.objectives[x] == "minimize" else (before[0], after[1])
        corners += [corner, after]
    return corners


def _best_so_far(front: StudyFront, name: str) -> list[tuple[float, float]]:
    """Corners of the best value of an objective over the dollars that the study had spent."""
    points = sorted(front.feasible, key=lambda point: (point.found_at_usd, point.number))
    values = [point.means[name] for point in points]
    so_far = (np.maximum if front.objectives[name] == "maximize" else np.minimum).accumulate(values)
    corners: list[tuple[float, float]] = []
    for point, value in zip(points, map(float, so_far), strict=True):
        corners += [(point.found_at_usd, corners[-1][1]), (point.found_at_usd, value)] if corners else []
        corners = corners or [(point.found_at_usd, value)]
    return corners


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
