"""The page of a study, pareto.html: one file that loads nothing and is complete without its scripts."""

from collections.abc import Callable
from typing import Any

from paretune.core.untrusted import code_span, markdown
from paretune.presentation.numbers import usd
from paretune.presentation.page import template
from paretune.presentation.picture import Picture
from paretune.presentation.table import Cell
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import MOST_PAIRS, front_chart
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, format_value, label
from paretune.studies.results.recommendation import failures
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.tables import forecast_table, front_table, trials_table
from paretune.studies.results.trials import TrialStatus, counted

PICTURE_FILE = "front.png"
_MOST_ROWS = 12  # rows of the front
_MOST_POINTS = 30  # rows of the table of the front


def study_note(answer: StudyAnswer, run_id: str, *, has_picture: bool) -> str:
    """The note: what the study recommends and why, cost and front; `has_picture`: PICTURE_FILE is recorded."""
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


def page(answer: StudyAnswer, address: Callable[[str], str] = lambda _: "") -> str:
    """The whole HTML document; `address` gives the MLflow address of a run id."""
    front, total = answer.front, answer.budget_usd
    completed = sum(trial.status is TrialStatus.COMPLETED for trial in front.trials)
    parts = front.spent_usd, answer.committed_usd
    budget = [("spent", usd(parts[0])), ("committed to running jobs, at worst", usd(parts[1]))]
    bar = []
    if total is not None:
        budget += [("left", usd(total - parts[0] - parts[1])), ("budget", usd(total))]
        bar = [100 * min(part / total, 1.0) if total > 0 else 0.0 for part in parts]
    is_all_simulated = all(trial.origin == "simulated" for trial in front.trials)
    opening = answer.opening(has_reason=False)

    def web_address(run_id: str) -> str:
        """The address if a browser opens it as a page, else an empty text: another scheme could run something."""
        url = address(run_id) if run_id else ""
        return url if url.startswith(("http://", "https://")) else ""

    return template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        is_all_simulated=is_all_simulated,
        counted=f"{counted(front.trials)}, {completed} completed; configurations on the front: {len(front.best)}.",
        wanted=_goal(front),
        opening=opening[1:] if front.is_simulated and is_all_simulated else opening,  # the banner has the first one
        budget=budget,
        bar=bar,
        noise=_noise(front),
        failures=failures(front.trials),
        trials_table=trials_table(front, lambda run_id: Cell(run_id, address=web_address(run_id))),
        interval=f"{INTERVAL:.0%}",
        label=label,
        **_chart(answer, web_address),
        **(_figures(front) if front.feasible else {}),
    )


def _goal(front: StudyFront) -> str:
    goals = [f"{'less' if way == 'minimize' else 'more'} {axis(name)}" for name, way in front.objectives.items()]
    words = {"min": "at least", "max": "at most"}
    limits = [
        f"{axis(name)} {words[end]} {limit:g}"
        for name, ends in front.constraints.items()
        for end, limit in ends.items()
    ]
    return f"Wanted: {', '.join(goals)}" + (f"; required: {', '.join(limits)}" if limits else "")


def _chart(answer: StudyAnswer, address: Callable[[str], str]) -> dict[str, Any]:
    """The chart at the top, None if no point can be drawn, and the pictures of the other pairs of objectives."""
    front = answer.front
    if not front.points or not all(any(name in point.means for point in front.points) for name in front.objectives):
        return {"chart": None}
    chart = front_chart(front, answer.picks, address)
    others = [pair for pair in front.pairs[:MOST_PAIRS] if set(pair) != set(chart.first)]
    return {
        "chart": chart,
        "pairs": [
            (f"{label(y)} against {label(x)}", chart.picture(f"pair{number}", (x, y)).svg(), chart.break_note((x, y)))
            for number, (x, y) in enumerate(others)
        ],
    }


def _figures(front: StudyFront) -> dict[str, Any]:
    """The parts of the page that need a feasible point."""
    return {
        "front_table": front_table(front, _MOST_POINTS, has_settings=True),
        "forecast": forecast_table(front, _MOST_POINTS, has_settings=True),
    }


def _noise(front: StudyFront) -> list[str]:
    """Standard deviation of one run: a line for each objective that was measured."""
    if not front.points:
        return []
    typical = front.points[len(front.points) // 2]
    return [
        f"{axis(name)}: {format_value(name, noise.of_one_run(typical.means[name]))}"
        + (f" ({noise.deviation:.1%})" if noise.is_relative else "")
        + f", {noise.basis}."
        for name in front.objectives
        if (noise := front.noises[name]) and name in typical.means
    ]
