"""The page of a study (pareto.html, one self-contained file), the note of its MLflow run, and the chart.

The chart is drawn with plotly on the page and in a notebook.
"""

import math
import platform
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from paretune.core.untrusted import code_span, markdown
from paretune.jobs.names import cluster_in_name, result_in_name, setting_in_name
from paretune.presentation.page import MARKS, PICKED, as_html, chart_html, dressed, new_nonce, template
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED
from paretune.studies.results.answer import StudyAnswer, failures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.tables import front_table, pareto_csv, trials_table
from paretune.studies.results.trials import label
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
    for trial in answer.front.trials if is_last else ():
        if trial.run_id:
            rank, trial_run = answer.front.rank(trial), tracking.run(trial.run_id)
            if rank is None:
                trial_run.delete_tags(schema.PARETO_RANK)  # MLflow would sort an empty rank before the front
            else:
                trial_run.set_tags({schema.PARETO_RANK: str(rank)})


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
        setting = f"{cluster_in_name(spec)} {setting_in_name(spec)}".strip()
    simulated = " simulated" if answer.front.is_simulated else ""
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
    goals += [words for name in front.constraints for words in front.bounds(name)]
    text = template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        chart=chart,
        nonce=nonce,
        goal=f"Wanted: {', '.join(goals)}",
        failures=failures(front.trials),
        others=front_table(front, without=[pick.point.number for pick in answer.picks]),
        about=_about(front),
        wide=[label(name) for name in front.objectives if figure is not None and _is_wide(front, name)],
        most=_MOST_POINTS,
        trials_table=trials_table(front),
        web_address=web_address,
        label=label,
    )
    return text.replace("<!-- chart -->", chart, 1)  # the template would search plotly's whole script for secrets


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
        name = f"on the front by {others[0]}" if kind == "elsewhere" and len(others) == 1 else look.name
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
    picked = marks[marks["label"] != ""].sort_values(x)
    figure.add_scatter(
        x=picked[x].tolist(),
        y=picked[y].tolist(),
        mode="markers+text",
        name=PICKED.name,
        marker={"symbol": PICKED.symbol, "color": PICKED.color, "size": PICKED.size, "line": {"width": PICKED.edge}},
        text=picked["label"].map(as_html),
        textposition=_places(picked[x].tolist(), picked[y].tolist(), marks[x].min(), marks[x].max()),
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
        is_log = name != front.quality and 0 < _LOG_FROM * marks[name].min() < marks[name].max()
        title = as_html(f"{front.heading(name)}, {_BETTER[front.objectives[name]]}")
        update(title={"text": title}, type="log" if is_log else "linear")
    return figure


def _places(across: Sequence[float], up: Sequence[float], low: float, high: float) -> list[str]:
    """Return plotly's position for the label of each mark. The marks are in order from left to right.

    A label is above its mark and to the right, away from the axis. It is below the mark if a later mark is near and
    higher, because the line goes up there, or if the previous mark is near and has its label above. At the right end, a
    label is to the left of its mark.
    """
    near, places = (high - low) / 5, list[str]()
    for index, (x, y) in enumerate(zip(across, up, strict=True)):
        following = zip(across[index + 1 :], up[index + 1 :], strict=True)
        goes_up = any(other - x < near and height > y for other, height in following)
        is_after = index > 0 and x - across[index - 1] < near and places[-1].startswith("top")
        side = "left" if x > high - (high - low) / 6 else "right"
        places.append(f"{'bottom' if goes_up or is_after else 'top'} {side}")
    return places


def _marks(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> pd.DataFrame:
    """Return a row for each configuration that has every objective, with the values in the unit that is shown.

    `kind` is a key of MARKS, `text` the tooltip, and `url` the address of the run. `label` is the text next to the mark
    of a recommended configuration, and empty for the others.
    """
    picked, rows = {pick.point.number: pick for pick in picks}, list[dict[str, Any]]()
    for point in (point for point in front.points if front.objectives.keys() <= point.means.keys()):
        kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
        runs, pick = f"{len(point.trials)} run{'s' if len(point.trials) > 1 else ''}", picked.get(point.number)
        lines = [
            f"Trial {point.number}, {runs}: {MARKS[kind].name}",
            *([f"beaten by trial {point.beaten_by}"] if point.beaten_by is not None else []),
            *([pick.title] if pick else []),
            *front.unmet(point),
        ]
        lines += [f"{name}: {text}" for name, text in front.figures(point).items()]
        row: dict[str, Any] = {"number": point.number, "kind": kind, "url": address(point.trial.run_id)}
        row["text"] = as_html("\n".join([*lines, *point.trial.settings()]))
        row["label"] = f"trial {point.number}" if pick else ""
        for name in front.objectives:
            size = front.unit(name)[0]
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
