"""The page of a study, pareto.html: one file that loads nothing; and the note of its run in MLflow."""

from collections.abc import Callable

from paretune.core.untrusted import code_span, markdown
from paretune.presentation.chart import chart_html
from paretune.presentation.page import template
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import front_figure, picture
from paretune.studies.results.front import StudyFront
from paretune.studies.results.recommendation import failures
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.tables import forecast_table, front_table, trials_table
from paretune.studies.results.trials import label
from paretune.tracking import Run, Tracking, schema

PICTURE_FILE = "front.png"
_MOST_POINTS = 30  # rows of the table of the front


def record_answer(answer: StudyAnswer, run: Run, tracking: Tracking, *, is_last: bool = True) -> None:
    """Write page, table and note of a study into its run; the last time, the picture and the ranks of trials, too."""
    run.log_text(page(answer, tracking.address), "pareto.html")
    run.log_text(answer.csv(), "pareto.csv")
    drawn = picture(answer.front, answer.picks) if is_last else None
    if drawn is not None:
        run.log_figure(drawn, PICTURE_FILE)
    run.set_tags({schema.NOTE: study_note(answer, run.run_id, has_picture=drawn is not None)})
    for trial in answer.front.trials if is_last else ():
        if trial.run_id:
            rank = answer.front.rank(trial)
            tracking.run(trial.run_id).set_tags({schema.PARETO_RANK: "" if rank is None else str(rank)})


def study_note(answer: StudyAnswer, run_id: str, *, has_picture: bool) -> str:
    """The note: state, what the study recommends, what the search cost; `has_picture`: PICTURE_FILE is recorded."""
    # MLflow's UI folds all but the first lines of a note.
    sentences = answer.opening()
    if answer.picks and answer.front.is_simulated:
        sentences[:2] = sentences[1::-1]
    parts = [f"**{markdown(answer.state())}.** {markdown(sentences[0])}", markdown(" ".join(sentences[1:]))]
    if not answer.front.is_foreign:
        parts.append(markdown(" ".join(answer.payoff)))
    if answer.picks and (command := answer.picks[0].real_command or answer.picks[0].command):
        parts.append(code_span(command))  # a block of code does not wrap, and widens MLflow's page
    if has_picture:
        # The address of an artifact, from the page that MLflow's own server shows; other servers show the title.
        parts.append(f"![The front of the study](get-artifact?path={PICTURE_FILE}&run_uuid={run_id})")
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
    text = template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        chart=chart,
        goal=_goal(front),
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


def _goal(front: StudyFront) -> str:
    goals = [f"{'less' if way == 'minimize' else 'more'} {label(name)}" for name, way in front.objectives.items()]
    limits = [
        f"{label(name)} {'at least' if end == 'min' else 'at most'} {front.text(name, limit, 0.0)}"
        for name, ends in front.constraints.items()
        for end, limit in ends.items()
    ]
    return f"Wanted: {', '.join(goals)}" + (f"; required: {', '.join(limits)}" if limits else "")
