"""The note of a study's run, in Markdown, which MLflow's UI shows above everything else, and its picture.

MLflow 3.17 shows no picture that is written into a note; it shows one that is an artifact of the run, by its address.
"""

from typing import Any

from paretune.presentation.picture import DOMINATED, FRONT, PICKED, Picture
from paretune.presentation.scale import LOG_FROM
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.objective_text import axis, label
from paretune.studies.results.points import Point

PICTURE_FILE = "front.png"
_MOST_ROWS = 12  # of the front


def study_note(answer: StudyAnswer, run_id: str, *, has_picture: bool) -> str:
    """What the study recommends and why, what it has cost, its front, and where to look on.

    `has_picture`: PICTURE_FILE is an artifact of the run.
    """
    first, *others = answer.opening()
    parts = [f"**{first}**", " ".join(others), " ".join(answer.payoff.sentences())]
    if answer.picks and answer.picks[0].command:
        parts.append(f"`{answer.picks[0].command}`")  # a block of code does not wrap, and widens MLflow's page
    if has_picture:
        # The address of an artifact, from the page that MLflow's own server shows; other servers show the title.
        parts.append(f"![The front of the study](get-artifact?path={PICTURE_FILE}&run_uuid={run_id})")
    parts.append(_front_table(answer))
    parts.append("Everything else is in `pareto.html`, under Artifacts.")
    return "\n\n".join(filter(None, parts))


def _front_table(answer: StudyAnswer) -> str:
    front = answer.front
    if not front.best:
        return ""
    names = list(front.objectives)
    rows = [["trial", *map(axis, names), "configuration"]]
    ordered = sorted(front.best, key=front.cost_of)
    rows += [[str(point.number), *map(point.mean_of, names), point.setting()] for point in ordered[:_MOST_ROWS]]
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def picture(answer: StudyAnswer) -> Picture | None:
    """The first two objectives against each other; None where there is one objective only, or nothing to draw."""
    front = answer.front
    if front.main_pair is None or not front.feasible:
        return None
    x, y = front.main_pair
    ranks = front.pair_ranks((x, y))
    best = sorted((point for point in front.feasible if ranks[point.number] == 0), key=lambda point: point.means[x])
    others = [point for point in front.feasible if ranks[point.number] > 0]
    picked = [pick.point for pick in answer.picks]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.scatter(*_columns(others, x, y), s=24, c=DOMINATED, label="dominated")
        steps = "steps-post" if front.objectives[x] == "minimize" else "steps-pre"
        axes.plot(*_columns(best, x, y), drawstyle=steps, color=FRONT, linewidth=1)
        axes.scatter(*_columns(best, x, y), s=40, c=FRONT, marker="D", label="front", zorder=3)
        ring = {"facecolors": "none", "edgecolors": PICKED, "linewidths": 2}
        axes.scatter(*_columns(picked, x, y), s=110, label="recommended", zorder=4, **ring)
        axes.locator_params(nbins=4)  # longer numbers would touch
        for name, line, scale in ((x, axes.xaxis, axes.set_xscale), (y, axes.yaxis, axes.set_yscale)):
            values = [point.means[name] for point in front.feasible]
            if min(values) > 0 and max(values) > LOG_FROM * min(values):
                scale("log")
                line.set_major_formatter(lambda tick, _: f"{tick:,g}")
        kind = "Simulated: " if front.is_simulated else ""
        axes.set(xlabel=axis(x), ylabel=axis(y), title=f"{kind}{label(y)} over {label(x)}")
        axes.legend(fontsize=7, loc="best")

    return Picture(name="front", title="The front of the study", caption="", draw=draw, size=(4.3, 2.9))


def _columns(points: list[Point], x: str, y: str) -> tuple[list[float], list[float]]:
    return [point.means[x] for point in points], [point.means[y] for point in points]
