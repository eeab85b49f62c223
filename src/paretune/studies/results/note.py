"""The note of a study's run, in Markdown, which MLflow's UI shows above everything else, and its picture.

MLflow 3.17 shows a picture in a note only if it is an artifact of the run, by its address.
"""

from paretune.core.untrusted import code_span, markdown
from paretune.presentation.picture import Picture
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import front_chart
from paretune.studies.results.objective_text import label
from paretune.studies.results.tables import front_table

PICTURE_FILE = "front.png"
_MOST_ROWS = 12  # rows of the front


def study_note(answer: StudyAnswer, run_id: str, *, has_picture: bool) -> str:
    """The note: what the study recommends and why, what it cost, its front, and where to find more.

    `has_picture` says that PICTURE_FILE is an artifact of the run.
    """
    first, *others = answer.opening()
    if answer.picks and answer.front.is_simulated:  # MLflow's UI folds all but the first lines of a note
        warning, (first, *others) = first, others
        others.insert(0, warning)
    parts = [f"**{markdown(first)}**", markdown(" ".join(others)), markdown(" ".join(answer.payoff.sentences()))]
    if answer.picks and (command := answer.picks[0].real_command or answer.picks[0].command):
        parts.append(code_span(command))  # a block of code does not wrap, and widens MLflow's page
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
    chart = front_chart(front, answer.picks, lambda _: "")
    kind = "Simulated: " if front.is_simulated else ""
    return chart.picture("front", (x, y), heading=f"{kind}{label(y)} over {label(x)}", is_narrow=True)
