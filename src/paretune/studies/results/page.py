"""How an answer is shown: pareto.html (one file that loads nothing), the note of its run in MLflow, and the chart.

The chart is drawn with plotly on the page and in a notebook, over any two objectives.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from paretune.core.untrusted import code_span, markdown, printable
from paretune.presentation.page import MARKS, PICKED, chart_html, dressed, template
from paretune.studies.results.answer import StudyAnswer, forecast_table, front_table, pareto_csv, trials_table
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import INTERVAL
from paretune.studies.results.recommendation import Pick, failures
from paretune.studies.results.trials import label
from paretune.tracking import Run, Tracking, schema

_MOST_POINTS = 30  # rows of the table of the front
_LOG_FROM = 20  # ratio of the largest to the smallest value above which an axis is logarithmic
_BETTER = {"minimize": "less is better", "maximize": "more is better"}


def record_answer(answer: StudyAnswer, run: Run, tracking: Tracking, *, is_last: bool = True) -> None:
    """Write page, table and note of a study into its run; the last time, the ranks of trials, too."""
    run.log_text(page(answer, tracking.address), "pareto.html")
    run.log_text(pareto_csv(answer.front), "pareto.csv")
    run.set_tags({schema.NOTE: study_note(answer)})
    for trial in answer.front.trials if is_last else ():
        if trial.run_id:
            rank = answer.front.rank(trial)
            tracking.run(trial.run_id).set_tags({schema.PARETO_RANK: "" if rank is None else str(rank)})


def study_note(answer: StudyAnswer) -> str:
    """The note of the study's run in Markdown: its state, what it recommends and with which command."""
    # MLflow's UI folds all but the first lines of a note.
    sentences = answer.opening()
    if answer.picks and answer.front.is_simulated:
        sentences[:2] = sentences[1::-1]
    parts = [f"**{markdown(answer.state())}.** {markdown(sentences[0])}", markdown(" ".join(sentences[1:]))]
    if answer.picks and (command := answer.picks[0].real_command or answer.picks[0].command):
        parts.append(code_span(command))  # a block of code does not wrap, and widens MLflow's page
    parts.append("Everything else is in `pareto.html`, under Artifacts.")
    return "\n\n".join(filter(None, parts))


def page(answer: StudyAnswer, address: Callable[[str], str] = lambda _: "") -> str:
    """The whole HTML document; `address` gives the MLflow address of a run id. It loads itself again while it runs."""
    front = answer.front

    def web_address(run_id: str) -> str:
        """The address if a browser opens it as a page, else an empty text: another scheme could run something."""
        url = address(run_id) if run_id else ""
        return url if url.startswith(("http://", "https://")) else ""

    figure = front_figure(front, answer.picks, web_address)
    about = "Chart of all configurations; the tables below have the same values"
    chart = "" if figure is None else chart_html(figure, about)
    goals = [f"{'less' if way == 'minimize' else 'more'} {label(name)}" for name, way in front.objectives.items()]
    limits = [
        f"{label(name)} {'at least' if end == 'min' else 'at most'} {front.text(name, limit, 0.0)}"
        for name, ends in front.constraints.items()
        for end, limit in ends.items()
    ]
    text = template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        chart=chart,
        goal=f"Wanted: {', '.join(goals)}" + (f"; required: {', '.join(limits)}" if limits else ""),
        failures=failures(front.trials),
        front_table=front_table(front),
        most=_MOST_POINTS,
        forecast=forecast_table(front),
        trials_table=trials_table(front),
        web_address=web_address,
        interval=f"{INTERVAL:.0%}",
        label=label,
    )
    return text.replace("<!-- chart -->", chart, 1)  # the template would search plotly's script for secrets


class _Mark(NamedTuple):
    """One configuration."""

    kind: str  # a key of MARKS
    lines: Sequence[str]  # of its tooltip
    values: Mapping[str, float]
    bars: Mapping[str, tuple[float, float]]  # how far the bars of each value reach down and up
    address: str = ""
    label: str = ""  # of a recommended one


def front_figure(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> Any:
    """The plotly figure of all configurations over the main pair of objectives; None if there is nothing to draw.

    Its menu shows other pairs. Predicted points are in the legend and hidden. `address` gives the URL of a run id.
    """
    import plotly.graph_objects as go

    marks = _marks(front, picks, address)
    if not marks or front.main_pair is None:
        return None
    figure, groups = go.Figure(), list[list[_Mark]]()
    for kind, look in {**MARKS, "picked": PICKED}.items():
        is_picked = kind == "picked"
        group = [mark for mark in marks if (mark.label if is_picked else mark.kind == kind)]
        if not group:
            continue
        groups.append(group)
        bars = {"type": "data", "symmetric": False, "color": look.colour, "thickness": 0 if is_picked else 1}
        figure.add_scatter(
            error_x={**bars, "width": 0},
            error_y={**bars, "width": 0},
            mode="markers+text" if is_picked else "markers",
            name=look.name if is_picked else f"{look.name} ({len(group)})",
            marker={"symbol": look.symbol, "color": look.colour, "size": look.size, "line": {"width": look.edge}},
            text=[as_html(mark.label) for mark in group] if is_picked else None,
            cliponaxis=False if is_picked else None,
            hoverinfo="skip" if is_picked else None,
            hovertemplate=None if is_picked else "%{hovertext}<extra></extra>",
            hovertext=[as_html("\n".join(mark.lines)) for mark in group],
            customdata=[mark.address for mark in group],
            visible="legendonly" if kind == "predicted" else True,
        )
    line = {"color": MARKS["front"].colour, "width": 1.5}
    figure.add_scatter(mode="lines", line=line, hoverinfo="skip", showlegend=False)
    pairs = list(dict.fromkeys([front.main_pair, *front.pairs]))
    views = [_view(front, groups, pair) for pair in pairs]
    figure.plotly_update(*views[0])
    if len(pairs) > 1:
        labels = [as_html(" and ".join(map(label, pair))) for pair in pairs]
        shown = [{"label": text, "method": "update", "args": view} for text, view in zip(labels, views, strict=True)]
        place = {"direction": "up", "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 52}}
        figure.update_layout(updatemenus=[{**place, "bgcolor": "rgba(0,0,0,0)", "borderwidth": 1, "buttons": shown}])
    return figure


def _view(front: StudyFront, groups: Sequence[Sequence[_Mark]], pair: tuple[str, str]) -> list[dict[str, Any]]:
    """Data and axes of the figure over two objectives, as plotly's `update` takes them."""
    # Between two neighbours the line has the worse of their values.
    shape = "hv" if front.objectives[pair[0]] == "minimize" else "vh"
    data, layout = dict[str, Any]({"line.shape": shape}), dict[str, Any]()
    best = sorted(front.best_in_pair(pair), key=lambda point: [point.means[name] for name in pair])
    for axis, name in zip("xy", pair, strict=True):
        size, measured = front.unit(name)[0], list[float]()
        columns: list[list[list[float]]] = [[], [], []]  # values of each group, and how far their bars reach
        for group in groups:
            rows = [(mark.values[name], *mark.bars[name]) for mark in group]
            for place, column in enumerate(columns):
                column.append([row[place] / size for row in rows])
            measured += [mark.values[name] for mark in group if mark.kind != "predicted"]
        values, down, up = columns
        data |= {axis: [*values, [point.means[name] / size for point in best]]}
        data |= {f"error_{axis}.arrayminus": [*down, []], f"error_{axis}.array": [*up, []]}
        is_log = name != front.quality and 0 < _LOG_FROM * min(measured, default=0.0) < max(measured, default=0.0)
        layout |= {
            f"{axis}axis.title.text": as_html(f"{front.heading(name)}, {_BETTER[front.objectives[name]]}"),
            f"{axis}axis.type": "log" if is_log else "linear",
            f"{axis}axis.autorange": True,
        }
    across = [mark.values[pair[0]] for group in groups for mark in group]
    middle = (min(across) + max(across)) / 2  # labels stand where there is more room
    sides = [["middle left" if mark.values[pair[0]] > middle else "middle right" for mark in group] for group in groups]
    return [data | {"textposition": [*sides, "middle right"]}, layout]


def _marks(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> list[_Mark]:
    """A mark for each configuration with every objective, and for each predicted one."""
    picked, marks = {pick.point.number: pick for pick in picks}, list[_Mark]()
    for point in front.measured:
        kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
        runs, pick = f"{len(point.trials)} run{'s' if len(point.trials) > 1 else ''}", picked.get(point.number)
        lines = [f"Trial {point.number}, {runs}: {MARKS[kind].name}", *([pick.title] if pick else []), *point.unmet]
        lines += [f"{name}: {text}" for name, text in front.figures(point).items()]
        lines += point.trial.settings()
        bars = {name: (error, error) for name, error in point.errors.items()}
        text = ", ".join(filter(None, [f"trial {point.number}", point.trial.cluster])) if pick else ""
        marks.append(_Mark(kind, lines, point.means, bars, address(point.trial.run_id), text))
    for trial in front.forecast:
        ends = {name: trial.intervals.get(name, (value, value)) for name, value in trial.values.items()}
        bars = {name: (value - ends[name][0], ends[name][1] - value) for name, value in trial.values.items()}
        lines = ["Predicted, not run", *(f"{name}: {text}" for name, text in front.predicted(trial).items())]
        marks.append(_Mark("predicted", [*lines, *trial.settings()], trial.values, bars))
    return marks


def live_chart() -> Callable[[StudyAnswer], None] | None:
    """What shows the chart of an answer below the running cell, in place of the one before; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # it runs in a terminal
        return None
    from IPython.display import display

    handle: Any = None

    def show(answer: StudyAnswer) -> None:
        nonlocal handle
        if (figure := front_figure(answer.front, answer.picks, lambda _: "")) is None:
            return
        title = {"text": as_html(answer.state()), "font": {"size": 14}}
        dressed(figure).update_layout(title=title, margin={"t": 80})
        bundle = {"text/plain": answer.state()} | figure._repr_mimebundle_()
        if handle is None:
            handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]  # IPython has no types
        else:
            handle.update(bundle, raw=True)

    return show


def as_html(text: str) -> str:
    """The text for plotly, which reads a few HTML tags."""
    return escape(printable(text), quote=False).replace("\n", "<br>")
