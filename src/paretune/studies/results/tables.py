"""The tables of a study: pareto.csv, and frames of texts: the front, the predicted points, all trials."""

import pandas as pd

from paretune.core.result import csv_text
from paretune.specification import metrics
from paretune.specification.parameters import spell
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import value_of
from paretune.studies.results.recommendation import NEVER
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus, short_name

_COLUMNS = {"trial", "rank", "runs", "status", "run id", "remark"}  # which no parameter may replace


def pareto_csv(front: StudyFront) -> str:
    """The text of pareto.csv: a row per trial, by number, then per predicted point; empty cells for unknown values.

    A trial has its own values, not means. `_low` and `_high` of an objective bound the interval that holds, with
    probability `run_noise.INTERVAL`, what its configuration reaches in the mean over seeds when it trains.
    """
    ends = {name: [name, f"{name}_low", f"{name}_high"] for name in front.objectives}
    dollars = ends.pop(metrics.COST_USD, [metrics.COST_USD])
    names = ["trial", "run_id", *front.shown, *(column for columns in ends.values() for column in columns)]
    names += ["status", "origin", "pareto_rank", *dollars, "spent_usd", "collapse_probability"]
    return csv_text(names, [_row(front, trial) for trial in (*front.trials, *front.forecast)])


def _row(front: StudyFront, trial: Trial) -> dict[str, object]:
    point, is_predicted = front.point_of(trial), trial.origin == PREDICTED
    # The price of a trial that did not complete is what it was billed, not what it is compared by.
    is_compared = trial.status is TrialStatus.COMPLETED or trial.cost_usd is None
    row: dict[str, object] = {
        "trial": None if is_predicted else trial.number,
        "run_id": trial.run_id,
        **{name: spell(trial.value(name)) for name in front.shown},
        **{name: value_of(trial, name) for name in front.objectives},
        "status": "Predicted" if is_predicted else trial.shown_status,
        "origin": trial.origin,
        "pareto_rank": front.rank(trial),
        metrics.COST_USD: value_of(trial, metrics.COST_USD) if is_compared else trial.cost_usd,
        "spent_usd": None if is_predicted else trial.spent_usd,
        "collapse_probability": trial.collapse_probability if point is None else point.collapse_probability,
    }
    for name in front.objectives:
        low, high = trial.intervals.get(name, (None, None))
        if point is not None and name in point.errors:
            margin = front.noises[name].margin(point.errors[name])
            low, high = point.means[name] - margin, point.means[name] + margin
        row |= {f"{name}_low": low, f"{name}_high": high}
    return row


def front_table(front: StudyFront) -> pd.DataFrame:
    """The front, cheapest first, with standard errors; the last column names the point that one cannot be told from."""
    rows = []
    for point in sorted(front.best, key=front.cost_of):
        names = dict.fromkeys([*front.objectives, metrics.COST_USD])
        probability = point.collapse_probability
        rows.append(
            {"trial": str(point.number), "runs": str(len(point.trials))}
            | {front.heading(n): front.number(n, point.means[n], point.errors[n]) for n in names if n in point.means}
            | _settings(front, point.trial)
            | {"collapse probability": "" if (probability or 0) < NEVER else f"{probability:.0%}"}
            | {"like trial": "" if front.alike(point)[0] is point else str(front.alike(point)[0].number)}
        )
    return _frame(rows)


def forecast_table(front: StudyFront) -> pd.DataFrame:
    """The points that were predicted and not run, cheapest first, with their intervals."""
    rows = [front.predicted(trial) | _settings(front, trial) for trial in front.forecast]
    return _frame(rows).drop_duplicates(ignore_index=True)


def trials_table(front: StudyFront) -> pd.DataFrame:
    """All trials with their own values, by number."""
    names = [*(name for name in front.objectives if name != metrics.COST_USD), metrics.COST_USD]
    rows = []
    for trial in front.trials:
        values = {name: value_of(trial, name) for name in names}
        rank = front.rank(trial)
        rows.append(
            {"trial": str(trial.number), "rank": "" if rank is None else str(rank)}
            | {front.heading(n): "" if value is None else front.number(n, value) for n, value in values.items()}
            | _settings(front, trial)
            | {"status": trial.shown_status, "run id": trial.run_id, "remark": _remark(trial)}
        )
    return _frame(rows)


def _settings(front: StudyFront, trial: Trial) -> dict[str, str]:
    shorts = {name: short_name(name) for name in front.shown}
    return {name if short in _COLUMNS else short: trial.shown(name) for name, short in shorts.items()}


def _frame(rows: list[dict[str, str]]) -> pd.DataFrame:
    """The rows without columns that say nothing: empty in all of them, or no gradient is accumulated."""
    frame = pd.DataFrame(rows, dtype=object).fillna("")
    usual = {"accumulation": "1"}
    return frame.loc[:, [not (frame[name] == usual.get(name, "")).all() for name in frame]]


def _remark(trial: Trial) -> str:
    seed = "" if trial.spec.project else f" with seed {trial.spec.seed}"  # a project may have none
    repeat = f"repeats trial {trial.repeats}{seed}" if trial.repeats is not None else ""
    return "; ".join(filter(None, (repeat, trial.reason)))
