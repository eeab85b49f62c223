"""The chart of a study: with plotly on its page, where a reader chooses the axes, and with matplotlib as a PNG."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from paretune.core.untrusted import printable
from paretune.presentation.chart import MARKS, PICKED
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.trials import Trial, short_name

_LOG_FROM = 20  # ratio of the largest to the smallest value above which an axis is logarithmic
_Spread = tuple[float | None, float, float]  # a value, and how far its bar reaches down and up


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """One configuration: its kind, a key of MARKS, the lines of its tooltip, and its spreads by axis."""

    kind: str
    lines: Sequence[str]
    spreads: Mapping[str, _Spread]
    address: str = ""
    label: str = ""  # of a recommended one


def front_figure(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> Any:
    """The plotly figure of all configurations over the main pair of objectives; None if there is nothing to draw.

    Its `layout.meta` holds what `chart.js` needs to show other axes: objectives, other metrics and numeric parameters.
    Predicted points are in the legend and hidden. `address` gives the URL of a run id.
    """
    import plotly.graph_objects as go

    axes = _axes(front)
    marks = _marks(front, picks, axes, address)
    if not marks or front.main_pair is None:
        return None
    x, y = front.main_pair
    traces = [(kind, [mark for mark in marks if mark.kind == kind]) for kind in MARKS]
    traces = [(kind, group) for kind, group in traces if group] + [("picked", [mark for mark in marks if mark.label])]
    figure = go.Figure()
    for kind, group in traces:
        is_picked = kind == "picked"
        look = PICKED if is_picked else MARKS[kind]
        data = {name: _arrays(group, name) for name in (x, y)}
        figure.add_scatter(
            x=data[x][0],
            y=data[y][0],
            error_x=None if is_picked else _bars(data[x], look.colour),
            error_y=None if is_picked else _bars(data[y], look.colour),
            mode="markers+text" if is_picked else "markers",
            name=look.name if is_picked else f"{look.name} ({len(group)})",
            marker={"symbol": look.symbol, "color": look.colour, "size": look.size, "line": {"width": look.edge}},
            text=[_shown(mark.label) for mark in group] if is_picked else None,
            textposition="top center",
            cliponaxis=False if is_picked else None,
            hoverinfo="skip" if is_picked else None,
            hovertemplate=None if is_picked else "%{hovertext}<extra></extra>",
            hovertext=[_shown("\n".join(mark.lines)) for mark in group],
            customdata=[mark.address for mark in group],
            visible="legendonly" if kind == "predicted" else True,
        )
    lines = {"\n".join(pair): _transposed(_stairs(front, pair)) for pair in front.pairs}
    line, style = lines.get(f"{x}\n{y}", [[], []]), {"color": MARKS["front"].colour, "width": 1.5}
    figure.add_scatter(x=line[0], y=line[1], mode="lines", line=style, hoverinfo="skip", showlegend=False)
    described = {
        name: {
            "heading": _shown(heading),
            "log": _is_log(front, name, marks),
            "traces": [_arrays(group, name) for _, group in traces],
        }
        for name, heading in axes.items()
    }
    figure.update_layout(meta={"first": [x, y], "axes": described, "lines": lines})
    for update, name in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        update(title={"text": described[name]["heading"]}, type="log" if described[name]["log"] else "linear")
    return figure


def picture(front: StudyFront, picks: Sequence[Pick]) -> Any:
    """The main pair of objectives as a matplotlib figure; None with one objective, or with nothing to draw."""
    from matplotlib.figure import Figure

    if front.main_pair is None or not front.feasible:
        return None
    x, y = front.main_pair
    axes = _axes(front)
    marks = _marks(front, picks, axes, lambda _: "")
    figure = Figure(figsize=(5.4, 4.6), layout="constrained", dpi=144)
    plot: Any = figure.add_subplot(xlabel=printable(axes[x]), ylabel=printable(axes[y]))
    plot.set_title("Simulated" if front.is_simulated else "", fontsize=11)
    plot.plot(*_transposed(_stairs(front, (x, y))), color=MARKS["front"].colour, alpha=0.6)
    for kind, look in MARKS.items():
        group = [mark for mark in marks if mark.kind == kind]
        if group and kind != "predicted":
            across, up = _arrays(group, x), _arrays(group, y)
            style = {"fmt": look.sign, "color": look.colour, "elinewidth": 1, "ms": 6}
            plot.errorbar(across[0], up[0], xerr=across[1:], yerr=up[1:], label=f"{look.name} ({len(group)})", **style)
    for mark in filter(lambda mark: mark.label, marks):
        at = mark.spreads[x][0], mark.spreads[y][0]
        plot.plot(*at, "o", ms=15, mfc="none", mec=PICKED.colour, mew=2)
        plot.annotate(printable(mark.label), at, (0, 11), textcoords="offset points", ha="center", parse_math=False)
    if _is_log(front, x, marks):
        plot.set_xscale("log")
    plot.margins(0.15)
    plot.spines[["top", "right"]].set_visible(False)
    plot.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def _axes(front: StudyFront) -> dict[str, str]:
    """Name and heading of the axes: objectives, other metrics, parameters that are numbers and vary."""
    measured = {name for point in front.measured for name in point.means}
    names = dict.fromkeys([*front.objectives, metrics.COST_USD, *sorted(measured)])
    better = {"minimize": ", less is better", "maximize": ", more is better"}
    axes = {
        name: f"{front.heading(name)}{better.get(front.objectives.get(name, ''), '')}"
        for name in names
        if name in measured
    }
    for name in front.shown:
        values = {point.trial.value(name) for point in front.measured}
        if name not in axes and len(values) > 1 and all(map(_is_number, values)):
            axes[name] = short_name(name)
    return axes


def _marks(
    front: StudyFront, picks: Sequence[Pick], axes: Mapping[str, str], address: Callable[[str], str]
) -> list[_Mark]:
    """A mark for each configuration with every objective, and for each predicted one."""
    picked = {pick.point.number: pick for pick in picks}
    marks = [_measured(front, point, axes, picked.get(point.number), address) for point in front.measured]
    for trial in front.forecast:
        intervals = {name: trial.intervals.get(name, (value, value)) for name, value in trial.values.items()}
        bars = {name: (value - intervals[name][0], intervals[name][1] - value) for name, value in trial.values.items()}
        lines = ["Predicted, not run", *(f"{name}: {text}" for name, text in front.predicted(trial).items())]
        spreads = _spreads(front, axes, trial, trial.values, bars)
        marks.append(_Mark(kind="predicted", lines=[*lines, *trial.setting().split(", ")], spreads=spreads))
    return marks


def _measured(
    front: StudyFront, point: Point, axes: Mapping[str, str], pick: Pick | None, address: Callable[[str], str]
) -> _Mark:
    kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
    runs = f"{len(point.trials)} run{'s' if len(point.trials) > 1 else ''}"
    lines = [f"Trial {point.number}, {runs}: {MARKS[kind].name}", *([] if pick is None else [pick.title]), *point.unmet]
    lines += [f"{name}: {text}" for name, text in front.figures(point).items()]
    lines += [f"{short_name(name)}: {text}" for name in front.shown if (text := point.trial.shown(name))]
    bars = {name: (error, error) for name, error in point.errors.items()}
    return _Mark(
        kind=kind,
        lines=lines,
        spreads=_spreads(front, axes, point.trial, point.means, bars),
        address=address(point.trial.run_id),
        label="" if pick is None else ", ".join(filter(None, [f"trial {point.number}", point.trial.cluster])),
    )


def _spreads(
    front: StudyFront,
    axes: Mapping[str, str],
    trial: Trial,
    values: Mapping[str, float],
    bars: Mapping[str, tuple[float, float]],
) -> dict[str, _Spread]:
    """Values and bars in the units that the page states, and the parameters of the trial, for all that are axes."""
    spreads: dict[str, _Spread] = {}
    for name in axes:
        if _is_number(setting := trial.value(name)):
            spreads[name] = float(setting), 0.0, 0.0  # type: ignore[arg-type]
        elif name in values:
            size, (down, up) = front.unit(name)[0], bars[name]
            spreads[name] = values[name] / size, down / size, up / size
    return spreads


def _arrays(marks: Sequence[_Mark], name: str) -> list[list[float | None]]:
    """Values of marks on an axis, None where there is none, and how far their bars reach down and up."""
    spreads = [mark.spreads.get(name, (None, 0.0, 0.0)) for mark in marks]
    return [list(column) for column in zip(*spreads, strict=True)] or [[], [], []]


def _bars(arrays: Sequence[Sequence[float | None]], colour: str) -> dict[str, Any]:
    look = {"color": colour, "thickness": 1, "width": 0}
    return {"type": "data", "symmetric": False, "array": arrays[2], "arrayminus": arrays[1], **look}


def _is_log(front: StudyFront, name: str, marks: Sequence[_Mark]) -> bool:
    """Whether an axis is logarithmic at first."""
    shown = [mark.spreads[name][0] or 0.0 for mark in marks if name in mark.spreads and mark.kind != "predicted"]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    return name != front.quality and 0 < _LOG_FROM * low < high


def _stairs(front: StudyFront, pair: tuple[str, str]) -> list[tuple[float, float]]:
    """Corners of the front of two objectives; between two neighbours it takes the worse of their values."""
    x, y = pair
    ranks, units = front.pair_ranks(pair), [front.unit(name)[0] for name in pair]
    best = sorted(
        (point.means[x] / units[0], point.means[y] / units[1]) for point in front.feasible if ranks[point.number] == 0
    )
    corners = best[:1]
    for before, after in itertools.pairwise(best):
        corner = (after[0], before[1]) if front.objectives[x] == "minimize" else (before[0], after[1])
        corners += [corner, after]
    return corners


def _transposed(corners: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [[corner[0] for corner in corners], [corner[1] for corner in corners]]


def _shown(text: str) -> str:
    """The text for plotly, which reads a few HTML tags."""
    return escape(printable(text), quote=False).replace("\n", "<br>")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
