"""The picture of dollars against F1: a point per run that completed, and the front of each kind of runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paretune.commands.report.observations import Kind, Observation, grouped, observations
from paretune.commands.report.scaling_figures import scale_axis
from paretune.commands.report.totals import keys_of, origin_of
from paretune.core.pareto import front
from paretune.presentation.picture import DOMINATED, Picture, style, tip
from paretune.tracking import RecordedJob

_MOST_COLOURS = 7
_MOST_FRONTS = 4
_MOST_TIPS = 300  # runs: every tooltip is an element of the page
_MOST_SHAPES = 1500  # runs: more of them are drawn as one image, also in an SVG
_LOG_FROM = 8  # largest over smallest dollars from which their axis is logarithmic
_REST = "others"


def dollars_against_f1(
    jobs: Sequence[RecordedJob], studies: Mapping[str, str], by: str = "instance_type"
) -> Picture | None:
    """Draw dollars and F1 of all runs that have both; None if there are none.

    Each key of `by`, one of TOTAL_KEYS, has a colour, the rarer ones share one; each origin has a marker. Runs that may
    be compared have a front, drawn for the kinds with the most runs.
    """
    runs = [run for run in observations(jobs) if run.job.bill.cost_usd and run.job.f1 is not None]
    if not runs:
        return None
    colours = _colours(runs, studies, by)
    origins = sorted({origin_of(run.job) for run in runs})
    kinds = Counter(run.kind for run in runs).most_common()
    fronts = [(kind, _front(runs, kind)) for kind, _ in kinds[:_MOST_FRONTS]]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        _draw_points(axes, colours, origins)
        for index, (kind, best) in enumerate(fronts):
            line = style(index)["linestyle"]
            label = "front" if len(kinds) == 1 else f"front of {kind}"
            axes.plot(*zip(*best, strict=True), color="black", lw=1.2, ls=line, drawstyle="steps-post", label=label)
            axes.plot(*zip(*best, strict=True), ls="", marker="o", ms=9, mfc="none", mec="black", mew=1.1)
        axes.set(xlabel="cost of a run (USD)", ylabel="F1 (macro, validation)")
        costs = [run.job.bill.cost_usd or 0.0 for run in runs]
        scale_axis(axes.xaxis, costs, log_from=_LOG_FROM, most_ticks=9)
        axes.grid(alpha=0.25)
        figure.legend(loc="outside lower center", ncols=2 if len(kinds) > 1 else 3, fontsize=9)

    return Picture(
        name="dollars-and-f1",
        title=f"Dollars against F1 ({' and '.join(origins)})",
        caption=_caption(len(runs), origins, kinds, by),
        draw=draw,
        size=(8.6, 5.0 + 0.12 * (len(colours) + len(fronts) + len(origins))),
    )


def _caption(count: int, origins: Sequence[str], kinds: Sequence[tuple[Kind, int]], by: str) -> str:
    sentences = [f"A point per completed run ({count:,}), coloured by {by.replace('_', ' ')}."]
    if len(origins) > 1:
        sentences.append("The marker tells the origin: compare within one only.")
    sentences.append("Circled and joined in black is the front: no run of its kind is as cheap and as good.")
    if len(kinds) > 1:
        remark = f"the {_MOST_FRONTS} with the most runs have theirs drawn" if len(kinds) > _MOST_FRONTS else ""
        sentences.append(f"Origin, model and data set make {len(kinds)} kinds{': ' if remark else ''}{remark}.")
    return " ".join(sentences)


def _colours(runs: Sequence[Observation], studies: Mapping[str, str], by: str) -> dict[str, list[Observation]]:
    """Return the runs by their key, most runs first; rarer keys together."""
    keys = grouped(runs, lambda run: ", ".join(keys_of(run.job, by, studies)))
    ordered = sorted(((str(key), group) for key, group in keys.items()), key=lambda item: (-len(item[1]), item[0]))
    series = dict(ordered[:_MOST_COLOURS])
    if rest := [run for _, group in ordered[_MOST_COLOURS:] for run in group]:
        series[f"{len(ordered) - _MOST_COLOURS} {_REST}"] = rest
    return series


def _front(runs: Sequence[Observation], kind: Kind) -> list[tuple[float, float]]:
    """Return dollars and F1 of the runs on the front of a kind, the cheapest first."""
    points = [(run.job.bill.cost_usd or 0.0, run.job.f1 or 0.0) for run in runs if run.kind == kind]
    marks = front(points, (False, True))
    return sorted({point for point, is_best in zip(points, marks, strict=True) if is_best})


def _draw_points(axes: Any, colours: Mapping[str, Sequence[Observation]], origins: Sequence[str]) -> None:
    """Draw the runs and a legend of colours and markers; the rarer a colour, the later it is drawn."""
    count = sum(map(len, colours.values()))
    size, alpha = (6.5, 0.8) if count <= _MOST_TIPS else (3.5, 0.45)
    markers = {origin: style(index)["marker"] for index, origin in enumerate(origins)}
    for row, (key, group) in enumerate(colours.items()):
        colour = DOMINATED if key.endswith(_REST) else style(row)["color"]
        look = {"linestyle": "", "color": colour, "ms": size, "alpha": alpha, "mew": 0}
        for origin, same_origin in grouped(group, lambda run: origin_of(run.job)).items():
            points = [(run.job.bill.cost_usd, run.job.f1) for run in same_origin]
            marker = markers[str(origin)]
            if count > _MOST_TIPS:
                axes.plot(*zip(*points, strict=True), marker=marker, rasterized=count > _MOST_SHAPES, **look)
                continue
            for run, (x, y) in zip(same_origin, points, strict=True):
                (point,) = axes.plot(x, y, marker=marker, **look)
                tip(point, f"{run.describe()}, {run.job.origin}")
        axes.plot([], [], ls="", marker="o", color=colour, ms=6.5, mew=0, label=f"{key} ({len(group):,})")
    for origin, marker in markers.items() if len(markers) > 1 else ():
        axes.plot([], [], ls="", marker=marker, mfc="none", mec="black", ms=6.5, label=origin)
