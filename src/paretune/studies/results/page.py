"""The page of a study, pareto.html: one file that loads nothing and is complete without its scripts."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.core.untrusted import code_span, markdown
from paretune.ledger.trial_entry import TrialStatus
from paretune.presentation.numbers import usd
from paretune.presentation.page import template
from paretune.presentation.picture import Picture
from paretune.presentation.table import Cell
from paretune.studies.definition.objectives import OF_THE_CLUSTER
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import MOST_PAIRS, front_chart, heat_map, hypervolume_curve, parallel
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, format_value, label
from paretune.studies.results.recommendation import failures
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.tables import forecast_table, front_table, trials_table
from paretune.studies.results.trials import WITHOUT_SECONDS, counted

FEWEST = 8  # completed configurations that the importance needs at least
_MOST = 300  # configurations for a forest; more change the shares by less than the folds do
_FOLDS = 4
_TREES = 40
_SHUFFLES = 5
PICTURE_FILE = "front.png"
_MOST_ROWS = 12  # rows of the front
_MOST_POINTS = 30  # rows of the table of the front
_MOST_CELLS = 9  # rows or columns of the heat map; more values share cells
_TELLING = 0.3  # share of the variance that a forest must explain for its shares to be worth reading


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The loss of an objective's prediction when one parameter is shuffled."""

    shares: Mapping[str, float]
    """Growth of the squared error as a share of the objective's variance; above 1 if one parameter decides."""
    explained: float  # R2 on unseen configurations; if it is near 0 or below, the shares mean nothing


def importance(points: Sequence[Mapping[str, Any]], values: Sequence[float], seed: int = 0) -> Importance | None:
    """Importance of each parameter for one objective; None with fewer than 8 points, or if nothing varies.

    The objective is replaced by its ranks, so that a few dear points do not dominate. Trees are grown on three quarters
    of the points, and parameters shuffled in the other quarter (Breiman, Machine Learning 45, 2001). All points must
    have the same parameters.
    """
    names = [name for name in (points[0] if points else {}) if len({str(point.get(name)) for point in points}) > 1]
    if len(points) < FEWEST or not names or len(set(values)) < 2:
        return None
    from scipy.stats import rankdata

    random = np.random.default_rng(seed)
    chosen = random.permutation(len(points))[:_MOST]
    features = np.column_stack([_codes([points[index].get(name) for index in chosen]) for name in names])
    target = rankdata(np.asarray(values, dtype=float)[chosen])
    if target.var() == 0:
        return None
    plain, shuffled = _errors(features, target, random)
    variance = float(target.var())
    shares = {name: max(0.0, float(shuffled[column] - plain) / variance) for column, name in enumerate(names)}
    return Importance(shares=shares, explained=1 - plain / variance)


def _errors(features: Any, target: Any, random: Any) -> tuple[float, Any]:
    """Mean squared errors on unseen points: without shuffling, and with each parameter shuffled."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import KFold

    columns = features.shape[1]
    plain, shuffled = 0.0, np.zeros(columns)
    for train, test in KFold(_FOLDS).split(features):  # the rows are permuted already
        forest = RandomForestRegressor(_TREES, max_features=max(1, columns // 2), min_samples_leaf=2, random_state=0)
        forest.fit(features[train], target[train])
        copies = np.repeat(features[test][None], 1 + columns * _SHUFFLES, axis=0)
        for copy in range(columns * _SHUFFLES):
            column = copy // _SHUFFLES
            copies[1 + copy, :, column] = random.permutation(copies[1 + copy, :, column])
        # One call for all copies: scikit-learn's permutation_importance makes one for each and takes 3 times as long.
        predicted = forest.predict(copies.reshape(-1, columns)).reshape(len(copies), len(test))
        squares = ((predicted - target[test]) ** 2).sum(axis=1)
        plain += float(squares[0])
        shuffled += squares[1:].reshape(columns, _SHUFFLES).mean(axis=1)
    return plain / len(target), shuffled / len(target)


def _codes(values: Sequence[Any]) -> Any:
    """Numbers unchanged (trees use only their order), other values by their index in alphabetical order."""
    try:
        return np.asarray([float(value) for value in values])
    except (TypeError, ValueError):
        return np.unique([str(value) for value in values], return_inverse=True)[1].astype(float)


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
        telling=_TELLING,
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
    values = {name: {str(point.trial.point.get(name)) for point in front.feasible} for name in front.searched}
    varied = [name for name, different in values.items() if len(different) > 1]
    return {
        "front_table": front_table(front, _MOST_POINTS, has_settings=True),
        "forecast": forecast_table(front, _MOST_POINTS, has_settings=True),
        "hypervolume": hypervolume_curve(front),
        "parallel": parallel(front, varied) if varied else "",
        "importance": _importance(front),
        "heat": _heat(front),
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


def _importance(front: StudyFront) -> dict[str, Any]:
    done = front.measured
    if len(done) < FEWEST:
        return {"too_few": f"Too few completed configurations to say: {len(done)}, and {FEWEST} are needed."}
    shares = []
    for name in front.objectives:
        left_out = WITHOUT_SECONDS if name in OF_THE_CLUSTER else ()
        points = [{key: text for key, text in point.trial.point.items() if key not in left_out} for point in done]
        shares.append((label(name), importance(points, [point.means[name] for point in done])))
    return {"too_few": "", "shares": shares}


def _heat(front: StudyFront) -> str:
    """A heat map of the quality objective; empty if neither batch size nor learning rate varied."""
    name = front.quality
    if name is None:
        return ""
    measured = [
        (plan.global_batch_size, plan.learning_rate, point.means[name])
        for point in front.points
        if name in point.means and (plan := point.trial.plan) is not None
    ]
    batches, rates, qualities = np.array(measured).reshape(-1, 3).T
    if len(set(batches)) < 2 and len(set(rates)) < 2:
        return ""
    (row_edges, rows), (column_edges, columns) = _bins(batches), _bins(rates)
    sums, *edges = np.histogram2d(batches, rates, bins=[row_edges, column_edges], weights=qualities)
    counts = np.histogram2d(batches, rates, bins=edges)[0].astype(int)
    cells = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return heat_map(rows, columns, cells, counts, name)


def _bins(values: Any) -> tuple[Any, list[str]]:
    """The edges of the cells that hold `values`, and their labels; too many values share cells of equal ratio."""
    different = np.unique(values)
    if len(different) <= _MOST_CELLS:
        middles = (different[1:] + different[:-1]) / 2
        return np.array([-np.inf, *middles, np.inf]), [f"{value:.4g}" for value in different]
    edges = np.geomspace(different[0], different[-1], _MOST_CELLS + 1)
    return edges, [f"{start:.2g} to\n{end:.2g}" for start, end in itertools.pairwise(edges)]
