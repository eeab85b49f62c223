"""The note of a study's run, in Markdown, which MLflow's UI shows above everything else, and its picture.

MLflow 3.17 shows a picture in a note only if it is an artifact of the run, by its address.
"""

from typing import Any

from paretune.presentation.picture import DOMINATED, FRONT, PICKED, Picture, scale_axis
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.objective_text import axis, label
from paretune.studies.results.points import Point
from paretune.studies.results.tables import front_table

PICTURE_FILE = "front.png"
_MOST_ROWS = 12  # rows of the front


def study_note(answer: StudyAnswer, run_id: str, *, has_picture: bool) -> str:
    """The note: what the study recommends and why, what it cost, its front, and where to find more.

    `has_picture` says that PICTURE_FILE is an artifact of the run.
    """
    first, *others = answer.opening()
    parts = [f"**{first}**", " ".join(others), " ".join(answer.payoff.sentences())]
    if answer.picks and answer.picks[0].command:
        parts.append(f"`{answer.picks[0].command}`")  # a block of code does not wrap, and widens MLflow's page
    if has_picture:
        # The address of an artifact, from the page that MLflow's own server shows; other servers show the title.
        parts.append(f"![The front of the study](get-artifact?path={PICTURE_FILE}&run_uuid={run_id})")
    if answer.front.best:
        parts.append(front_table(answer.front, _MOST_ROWS).markdown())
    parts.append("Everything else is in `pareto.html`, under Artifacts.")
    return "\n\n".join(filter(None, parts))


def picture(answer: StudyAnswer) -> Picture | None:
    """The main pair of objectives against each other, or None if there is one objective only or nothing to draw."""
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
        for name, matplotlib_axis in ((x, axes.xaxis), (y, axes.yaxis)):
            scale_axis(matplotlib_axis, [point.means[name] for point in front.feasible], most_ticks=4)
        kind = "Simulated: " if front.is_simulated else ""
        axes.set(xlabel=axis(x), ylabel=axis(y), title=f"{kind}{label(y)} over {label(x)}")
        axes.legend(fontsize=7, loc="best")

    return Picture(name="front", title="The front of the study", caption="", draw=draw, size=(4.3, 2.9))


def _columns(points: list[Point], x: str, y: str) -> tuple[list[float], list[float]]:
    return [point.means[x] for point in points], [point.means[y] for point in points]
