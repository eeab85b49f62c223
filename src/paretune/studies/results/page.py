"""The page of a study (pareto.html, one self-contained file), the note of its MLflow run, and the chart.

The chart is drawn with plotly on the page and in a notebook.
"""

import math
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from paretune.core.secrets import code_span, markdown
from paretune.jobs.card import cluster_in_name, setting_in_name
from paretune.jobs.run_names import result_in_name
from paretune.presentation.page import MARKS, PICKED, as_html, chart_html, dressed, new_nonce, template
from paretune.presentation.text import time_unit
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.spending import Spending
from paretune.studies.results.answer import StudyAnswer, failures
from paretune.studies.results.figures import Figures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.growth import Growth, growth_in_words
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.tables import configurations_table, known_from, pareto_csv, trials_table
from paretune.studies.results.trials import Trial, label
from paretune.tracking import schema
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking

_MOST_POINTS = 30  # rows of the table of the front
_LOG_FROM = 20  # an axis is logarithmic if the ratio of its largest to its smallest value is above this
_OF_THE_PAIR = ("x", "y", "error_x", "error_y", "name", "showlegend", "textposition")
"""Keys of plotly's traces that change if another pair of objectives is chosen."""
_BASELINES = {
    metrics.BASELINE_TFIDF: "TF-IDF + logistic regression",
    metrics.BASELINE_WORDS: "most frequent label of each word",
}
_BETTER = {"minimize": "less is better", "maximize": "more is better"}


def record_answer(answer: StudyAnswer, run: Run, tracking: Tracking, *, is_last: bool = True) -> None:
    """Write the page, the table and the note of a study into its run; if `is_last`, also the rank of each trial."""
    run.log_text(page(answer, tracking.address), "pareto.html")
    run.log_text(pareto_csv(answer.front, answer.levels), "pareto.csv")
    run.set_tags({schema.NOTE: study_note(answer)})
    ranks, positions = {trial.number: answer.front.rank(trial) for trial in answer.front.trials}, positions_of(answer)
    digits = len(str(max((rank for rank in ranks.values() if rank is not None), default=0)))
    for trial in answer.front.trials if is_last else ():
        if trial.run_id:
            rank, trial_run = ranks[trial.number], tracking.run(trial.run_id)
            if rank is None:
                trial_run.delete_tags(schema.PARETO_RANK, schema.POSITION)  # MLflow would sort empty ones first
            else:
                # MLflow sorts tags as text. So a rank gets leading zeros if there are more than ten, except 0 itself.
                padded = f"{rank:0{digits}}" if rank else "0"
                trial_run.set_tags({schema.PARETO_RANK: padded, schema.POSITION: positions[trial.number]})


def positions_of(answer: StudyAnswer) -> dict[int, str]:
    """Return the position of each trial with a rank in the study's table, by the trial's number: `schema.POSITION`.

    The front comes first, the best quality first, and the runs of a configuration stand together.
    """
    front, recommended = answer.front, answer.picks[0].point.number if answer.picks else None
    goals = (
        front.objectives if front.quality is None else {front.quality: front.objectives.get(front.quality, "maximize")}
    )

    def in_table(trial: Trial) -> tuple[Any, ...]:
        point = front.point_of[trial.number]
        return (point.rank, costs(point.means, goals), point.number, trial.number)

    ordered = sorted((trial for trial in front.trials if front.rank(trial) is not None), key=in_table)
    digits, positions = len(str(len(ordered))), dict[int, str]()
    for position, trial in enumerate(ordered, start=1):
        point = front.point_of[trial.number]
        kind = "recommended" if point.number == recommended else "front" if point.rank == 0 else ""
        positions[trial.number] = f"{position:0{digits}} {kind}".strip()
    return positions


def study_name(answer: StudyAnswer) -> str:
    """Return a name for the study's run: `study demo: g5.xlarge b16 lr1e-4, F1 .812, 0.27 USD`.

    The name includes the recommendation, because MLflow shows a run's note only below its child runs, tags and data
    sets.
    """
    title = f"study {answer.name}"
    if not answer.picks:
        return title
    point = answer.picks[0].point
    spec, setting = point.trial.spec, point.trial.setting()
    if not spec.runs_user_code:
        setting = f"{cluster_in_name(spec.instance_type, spec.instance_count)} {setting_in_name(spec.plan())}".strip()
    simulated = " simulated" if answer.front.is_simulated else ""
    simulated += " estimated" * point.is_expected
    usd = {} if point.trial.cost_usd is None else {metrics.COST_USD: point.trial.cost_usd}
    result = result_in_name({**point.trial.measured, **usd, **point.means}, answer.front.quality or metrics.F1)
    return ", ".join(filter(None, [f"{title}: {setting}{simulated}", result]))


def study_note(answer: StudyAnswer) -> str:
    """Return the note of the study's run in Markdown: its state, its recommendation and the command for it."""
    # MLflow's UI hides all but the first lines of a note.
    sentences = answer.opening()
    if answer.picks and answer.front.is_simulated:
        sentences[:2] = sentences[1::-1]
    parts = [f"**{markdown(answer.state())}.** {markdown(sentences[0])}", markdown(" ".join(sentences[1:]))]
    if answer.picks and (command := answer.picks[0].real_command or answer.picks[0].command):
        parts.append(code_span(command))  # a block of code would not wrap, and would widen MLflow's page
    parts.append("Everything else is in `pareto.html`, under Artifacts.")
    return "\n\n".join(filter(None, parts))


def page(answer: StudyAnswer, address: Callable[[str], str] = lambda _: "") -> str:
    """Return the study's page as HTML. `address` maps a run id to its URL. The page reloads while the study runs."""
    front = answer.front

    def web_address(run_id: str) -> str:
        """Return the URL of a run if its scheme is http or https; empty for others, because they could run code."""
        url = address(run_id) if run_id else ""
        return url if url.startswith(("http://", "https://")) else ""

    figure = front_figure(front, answer.picks, web_address)
    about = "Chart of all configurations; the tables below have the same values"
    nonce = new_nonce()
    chart = "" if figure is None else chart_html(figure, about, nonce)
    floor = front.quality if front.is_floor else None
    goals = [f"{way} {label(name)}" for name, way in front.objectives.items() if name != floor]
    goals += [words for name in front.constraints for words in answer.figures.bounds(name)]
    text = template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        chart=chart,
        nonce=nonce,
        goal=f"Wanted: {', '.join(goals)}",
        failures=failures(front.trials),
        configurations=configurations_table(front),
        growth=growth_in_words(answer.growth, front.spending),
        about=_about(front),
        wide=[label(name) for name in front.objectives if figure is not None and _is_wide(front, name)],
        most=_MOST_POINTS,
        trials_table=trials_table(front),
        web_address=web_address,
        label=label,
    )
    text = text.replace("<!-- chart -->", chart, 1)  # the template would search plotly's whole script for secrets
    grown = growth_figure(answer.growth, front.spending)
    about = f"Chart of the front's growth by the {front.spending.noun} spent; the list has the same values"
    growth = "" if grown is None else chart_html(grown, about, nonce, "growth", with_script=not chart)
    return text.replace("<!-- growth -->", growth, 1)


def _about(front: StudyFront) -> str:
    """Return one line with the model, data, machines and last day of a study.

    The day is today at the latest, because simulated jobs may end in the future.
    """
    if front.is_foreign or not front.trials:
        return ""
    spec = front.trials[0].spec
    what = Path(spec.entry_script or spec.project or spec.model).name.removeprefix(BUNDLED)
    what += "" if spec.runs_user_code else f" on {spec.dataset.removeprefix(BUNDLED)}"
    types = sorted({trial.spec.instance_type for trial in front.trials})
    machines = ", ".join(platform.node() or "this machine" if name == "local" else name for name in types)
    ended = min(datetime.now(UTC), datetime.fromtimestamp(max(trial.ended_at for trial in front.trials), UTC))
    return f"{what}; {machines}; {ended:%Y-%m-%d}"


def growth_figure(grown: Sequence[Growth], spending: Spending) -> Any:
    """Return the plotly figure of the front's growth by dollars or hours, or None if there is nothing to compare.

    The line is dashed where the jobs have not run.
    """
    import plotly.graph_objects as go

    spent = [each for each in grown if not each.is_expected]
    if len(spent) < 2:
        return None
    figure, color = go.Figure(), MARKS["front"].color
    size, unit = time_unit(grown[-1].spent) if spending.is_time else (1.0, "USD")
    for name, part, dash in (("spent", spent, "solid"), ("expected", [*spent[-1:], *grown[len(spent) :]], "dash")):
        if len(part) > 1:
            x, y = [each.spent / size for each in part], [100 * each.share for each in part]
            line = {"color": color, "width": 1.5, "dash": dash, "shape": "hv"}
            figure.add_scatter(
                x=x, y=y, mode="lines", name=name, line=line, hovertemplate=f"%{{x:.4g}} {unit}: %{{y:.0f}} %"
            )
    figure.update_xaxes(title={"text": f"job time ({unit})" if spending.is_time else "dollars"})
    figure.update_yaxes(title={"text": "share of the front's hypervolume (%)"}, rangemode="tozero")
    figure.update_layout(height=300)
    return figure


def _is_wide(front: StudyFront, name: str) -> bool:
    """Return whether error bars of an objective would hide the marks.

    They would if its largest error exceeds half the range of its means.
    """
    values = [point.means[name] for point in front.points if name in point.means]
    errors = [point.errors[name] for point in front.points if name in point.errors]
    return len(values) > 1 and max(errors, default=0.0) > (max(values) - min(values)) / 2


def front_figure(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> Any:
    """Return the plotly figure of all configurations over the main pair of objectives, or None if it would be empty.

    A menu switches to other pairs. The line joins the configurations of the front that no other one beats in the two
    objectives that are shown. The rest of the front has open marks. `address` maps a run id to its URL.
    """
    marks = _marks(front, picks, address)
    if marks.empty or front.main_pair is None:
        return None
    ordered = sorted(front.objectives, key=lambda name: name not in metrics.OF_THE_CLUSTER)  # quality comes last
    others = [pair for pair in combinations(ordered, 2) if {*pair} != {*front.main_pair}]
    charts = {pair: _chart(front, marks, pair) for pair in (front.main_pair, *others)}
    buttons = []
    for pair, chart in charts.items():
        traces, axes = chart.to_plotly_json()["data"], (chart.layout.xaxis, chart.layout.yaxis)
        data = {key: [trace.get(key) for trace in traces] for key in _OF_THE_PAIR}
        layout: dict[str, Any] = {}
        for name, axis in zip(("xaxis", "yaxis"), axes, strict=True):
            layout |= {f"{name}.title.text": axis.title.text, f"{name}.type": axis.type, f"{name}.autorange": True}
        data["line.shape"] = [trace.get("line", {}).get("shape") for trace in traces]
        buttons.append({"label": as_html(" and ".join(map(label, pair))), "method": "update", "args": [data, layout]})
    figure = charts[front.main_pair]
    if len(buttons) > 1:
        corner = {"direction": "up", "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 52}}
        figure.update_layout(updatemenus=[{**corner, "bgcolor": "rgba(0,0,0,0)", "borderwidth": 1, "buttons": buttons}])
    return figure


def _chart(front: StudyFront, marks: pd.DataFrame, pair: tuple[str, str]) -> Any:
    import plotly.graph_objects as go

    figure, (x, y) = go.Figure(), pair
    best = [point.number for point in front.best_in_pair(pair)]
    others = [label(name) for name in front.objectives if name not in pair]
    for kind, look in MARKS.items():
        is_of_front = kind in ("front", "elsewhere")
        # The traces of both kinds have all configurations of the front, so that another pair of objectives only changes
        # which of them are drawn.
        group = marks[marks["kind"] == ("front" if is_of_front else kind)]
        if group.empty or (kind == "elsewhere" and not others):
            continue
        is_drawn = group["number"].isin(best) == (kind == "front") if is_of_front else group["number"].notna()
        group = group.assign(**{name: group[name].where(is_drawn) for name in pair})
        name = f"on the front because of {others[0]}" if kind == "elsewhere" and len(others) == 1 else look.name
        bars = {"color": look.color, "thickness": 1, "width": 0}
        figure.add_scatter(
            x=group[x].tolist(),
            y=group[y].tolist(),
            error_x={**bars, "array": group[f"{x} error"].tolist(), "visible": not _is_wide(front, x)},
            error_y={**bars, "array": group[f"{y} error"].tolist(), "visible": not _is_wide(front, y)},
            mode="markers",
            name=f"{name} ({is_drawn.sum()})",
            showlegend=bool(is_drawn.any()),
            marker={"symbol": look.symbol, "color": look.color, "size": look.size},
            hovertemplate="%{hovertext}<extra></extra>",
            hovertext=group["text"],
            customdata=group["url"],
        )
    log = [name for name in pair if name != front.quality and 0 < _LOG_FROM * marks[name].min() < marks[name].max()]
    picked = marks[marks["label"] != ""].sort_values(x)
    figure.add_scatter(
        x=picked[x].tolist(),
        y=picked[y].tolist(),
        mode="markers+text",
        name=PICKED.name,
        marker={"symbol": PICKED.symbol, "color": PICKED.color, "size": PICKED.size, "line": {"width": PICKED.edge}},
        text=picked["label"].map(as_html),
        textposition=_places(marks, picked, pair, log),
        cliponaxis=False,
        hoverinfo="skip",
    )
    joined = marks[marks["number"].isin(best)].sort_values([x, y], ascending=[True, front.objectives[x] != "minimize"])
    # Between two neighbors, the line is at the worse of their values.
    line = {"color": MARKS["front"].color, "width": 1.5, "shape": "hv" if front.objectives[x] == "minimize" else "vh"}
    figure.add_scatter(
        x=joined[x].tolist(), y=joined[y].tolist(), mode="lines", line=line, hoverinfo="skip", showlegend=False
    )
    baseline = {name: value for trial in front.trials for name, value in trial.measured.items() if name in _BASELINES}
    if front.quality == metrics.F1 and baseline:
        name, value = next(iter(baseline.items()))
        ends = [marks[x].min(), marks[x].max()] if y == metrics.F1 else []
        dashes = {"color": "#8C8C8C", "width": 1.5, "dash": "dash"}
        figure.add_scatter(x=ends, y=[value] * len(ends), mode="lines", line=dashes, name=_BASELINES[name])
    for name, update in ((x, figure.update_xaxes), (y, figure.update_yaxes)):
        title = as_html(f"{Figures(front).heading(name)}, {_BETTER[front.objectives[name]]}")
        update(title={"text": title}, type="log" if name in log else "linear")
    return figure


_NARROW_PX = (280.0, 300.0)  # width and height of the chart's area on a screen that is 400 pixels wide
_LETTER_PX, _LINE_PX, _RING_PX, _MARGIN_PX = 7.0, 15.0, 13.0, 12.0
_PLACES = tuple(f"{up} {side}" for side in ("right", "left", "center") for up in ("top", "bottom"))


class _Box(NamedTuple):
    """A rectangle in pixels; `low` and `high` count from the lower end of the chart."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: "_Box") -> bool:
        return self.left < other.right and other.left < self.right and self.low < other.high and other.low < self.high


def _places(marks: pd.DataFrame, picked: pd.DataFrame, axes: Sequence[str], log: Collection[str]) -> list[str]:
    """Return plotly's position for the label of each recommended mark, which are in order from left to right.

    A label avoids the rings and labels of the other recommended marks and the ends of the chart, on a screen that is
    400 pixels wide; on wider ones there is more room. Apart from that, it is above its mark and to the right, away from
    the axis; or below its mark if a later mark is near and higher, because the line goes up there.
    """
    spots = list(
        zip(
            *(
                _pixels(marks[name], picked[name], name in log, most)
                for name, most in zip(axes, _NARROW_PX, strict=True)
            ),
            strict=True,
        )
    )
    places, boxes = list[str](), list[_Box]()
    for index, (x, y) in enumerate(spots):
        rings = [
            _Box(u - _RING_PX, v - _RING_PX, u + _RING_PX, v + _RING_PX) for u, v in spots[:index] + spots[index + 1 :]
        ]
        goes_up = any(u - x < _NARROW_PX[0] / 5 and v > y for u, v in spots[index + 1 :])
        width = _LETTER_PX * len(picked["label"].iloc[index])
        ranked = list[tuple[int, int, str, _Box]]()
        for number, place in enumerate(_PLACES):
            box = _label_box(place, x, y, width)
            taken = sum(box.meets(other) for other in (*rings, *boxes))
            is_out = box.left < -_MARGIN_PX or box.right > _NARROW_PX[0] + _MARGIN_PX
            crosses_line = goes_up and not place.startswith("bottom")
            ranked.append((8 * taken + 4 * is_out + 2 * crosses_line, number, place, box))
        _, _, best, box = min(ranked)
        places.append(best)
        boxes.append(box)
    return places


def _pixels(all_values: pd.Series, values: pd.Series, is_log: bool, most_px: float) -> list[float]:
    """Return where values are on an axis that plotly scales to all of them, in pixels from its lower end."""
    scale: Callable[[float], float] = math.log if is_log else float
    low, high = scale(all_values.min()), scale(all_values.max())
    pad = (high - low) / 16 or 1.0  # plotly leaves about this much room at both ends
    return [most_px * (scale(value) - low + pad) / (high - low + 2 * pad) for value in values]


def _label_box(place: str, x: float, y: float, width: float) -> _Box:
    """Return the rectangle of a label at a position of plotly's, next to a ring around (x, y)."""
    up, side = place.split()
    left = {"right": x + _RING_PX, "left": x - _RING_PX - width, "center": x - width / 2}[side]
    low = y + _RING_PX if up == "top" else y - _RING_PX - _LINE_PX
    return _Box(left, low, left + width, low + _LINE_PX)


def _marks(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> pd.DataFrame:
    """Return a row for each configuration that has every objective, with the values in the unit that is shown.

    `kind` is a key of MARKS, `text` the tooltip, and `url` the address of the run. `label` is the text next to the mark
    of a recommended configuration, and empty for the others.
    """
    picked, rows, figures = {pick.point.number: pick for pick in picks}, list[dict[str, Any]](), Figures(front)
    for point in [*front.points, *front.expected_best]:
        if not front.objectives.keys() <= point.means.keys():
            continue
        kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
        pick, head = picked.get(point.number), f"Trial {point.number}, "
        if point.is_expected:
            kind, head = "expected", ""
        lines = [
            f"{head}{known_from(point)}: {MARKS[kind].name}",
            *([f"beaten by trial {point.beaten_by}"] if point.beaten_by is not None else []),
            *([pick.title] if pick else []),
            *figures.unmet(point),
        ]
        lines += [f"{name}: {text}" for name, text in figures.of(point).items()]
        row: dict[str, Any] = {"number": point.number, "kind": kind, "url": address(point.trial.run_id)}
        row["text"] = as_html("\n".join([*lines, *point.trial.settings()]))
        row["label"] = ("" if point.is_expected else f"trial {point.number}") if pick else ""
        for name in front.objectives:
            size = figures.unit(name)[0]
            row |= {name: point.means[name] / size, f"{name} error": point.errors.get(name, math.nan) / size}
        rows.append(row)
    return pd.DataFrame(rows)


def live_chart() -> Callable[[StudyAnswer], None] | None:
    """Return a function that redraws an answer's chart below the running cell, or None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # IPython runs in a terminal
        return None
    from IPython.display import display

    handle: Any = None

    def show(answer: StudyAnswer) -> None:
        nonlocal handle
        if (figure := front_figure(answer.front, answer.picks, lambda _: "")) is None:
            return
        title = {"text": as_html(answer.state()), "font": {"size": 14}}
        dressed(figure).update_layout(title=title, margin={"t": 80})
        # A notebook that is exported as a page shows the HTML; a running one shows plotly's own MIME type.
        html = {"text/html": chart_html(figure, "Chart of all configurations")}
        bundle = {"text/plain": answer.state()} | html | figure._repr_mimebundle_()
        if handle is None:
            handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]  # IPython has no types
        else:
            handle.update(bundle, raw=True)

    return show
