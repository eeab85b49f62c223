"""The view of MLflow's runs table that paretune's question needs: an experiment tag which MLflow's UI reads.

MLflow 3.17 keeps a view that somebody has shared in the experiment tag `mlflow.sharedViewState.KEY` and opens it with
`?viewStateShareKey=KEY`; the views menu of the experiment lists it by its name. The value is a JSON object of a name,
two times and the state as JSON (plain, or compressed behind `deflate;`), read from MLflow's JavaScript on 2026-11-23.
No page of its documentation describes it, so a server of another version may show its own columns and charts instead.
"""

import json
from collections.abc import Iterable, Mapping

from paretune.specification import metrics
from paretune.tracking import schema

TAG_PREFIX = "mlflow.sharedViewState."
ALL_RUNS = "paretune"  # key of the view of all runs of an experiment
_MADE_MS = 1_795_392_000_000
"""When the views below were last changed, 2026-11-23, in milliseconds; a user who changes one sets a later time."""
_RUN_NAME, _CREATED, _DURATION = "attributes.`Run Name`", "runDateAndNestInfo", "duration"
_METRICS = {metrics.F1: 75, metrics.COST_USD: 85, metrics.JOB_SECONDS: 100}
_PARAMS = {"instance_type": 115, "instance_count": 120, "global_batch_size": 130, "learning_rate": 105}
_TAGS = {schema.PARETO_RANK: 150, schema.ORIGIN: 120}
_PICKS = {metrics.PICK_F1: 80, metrics.PICK_COST_USD: 115}
"""Columns of studies and designs, whose cost_usd is the bill of all their jobs."""
# Column of MLflow's table, after those of the metrics, to its width in pixels; wide enough for its heading. The first
# ten columns fit on a screen of 1,500 pixels.
_COLUMNS = {
    **{f"params.`{name}`": width for name, width in _PARAMS.items()},
    **{f"tags.`{name}`": width for name, width in _TAGS.items()},
    f"metrics.`{metrics.THROUGHPUT_SAMPLES}`": 230,
}

_SECTION = {"uuid": "paretune", "display": True, "isReordered": True, "columns": 1, "cardHeight": 480}
_SCATTER = {
    "type": "SCATTER",
    "uuid": "paretune-front",
    "metricSectionId": _SECTION["uuid"],
    "deleted": False,
    "isGenerated": False,
    "runsCountToCompare": 100,
}


def all_runs() -> str:
    """The view of an experiment: newest first, for only so MLflow puts the trials of a study under its run."""
    return _view("paretune", order_by="attributes.start_time", picks=_PICKS)


def trials_of(run_id: str, name: str, objectives: Iterable[tuple[str, str]]) -> str:
    """The view of one study: its trials, the best first in its first objective that says how good a model is.

    `objectives` are pairs of a metric's name and `minimize` or `maximize`; `name` is what the views menu shows.
    """
    pairs = list(objectives)
    first, way = next((pair for pair in pairs if pair[0] not in metrics.OF_THE_CLUSTER), pairs[0])
    more = [column for column, _ in pairs if column not in _METRICS]
    across = next((column for column, _ in pairs if column in metrics.OF_THE_CLUSTER), metrics.COST_USD)
    return _view(
        name,
        order_by=f"metrics.`{first}`",
        is_ascending=way == "minimize",
        search=f"tags.`{schema.PARENT}` = '{run_id}'",
        more=more,
        chart=(across, first),
    )


def is_our_own(text: str) -> bool:
    """Whether a recorded view is one of ours that nobody has changed in the UI; only such a one is replaced."""
    try:
        view = json.loads(text)
        return bool(view["createdAt"] == view["updatedAt"])
    except (ValueError, KeyError, TypeError):
        return False


def _view(
    name: str,
    *,
    order_by: str,
    is_ascending: bool = False,
    search: str = "",
    more: Iterable[str] = (),
    picks: Mapping[str, int] | None = None,
    chart: tuple[str, str] = (metrics.COST_USD, metrics.F1),
) -> str:
    """The value of the tag; `chart` are the metrics across and up of the first picture of the chart tab."""
    measured = {**dict.fromkeys(more, 85), **_METRICS, **(picks or {})}
    columns = {**{f"metrics.`{metric}`": width for metric, width in measured.items()}, **_COLUMNS}
    state = {
        "searchFilter": search,
        "orderByKey": order_by,
        "orderByAsc": is_ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": [_RUN_NAME, _CREATED, *columns, _DURATION],
        "columnWidths": {_RUN_NAME: 215, _CREATED: 105, **columns},
        "viewMaximized": True,
        "compareRunCharts": [{**_SCATTER, "xaxis": _metric(chart[0]), "yaxis": _metric(chart[1])}],
        "compareRunSections": [{**_SECTION, "name": f"{chart[1]} over {chart[0]}"}],
        "runsHiddenMode": "SHOW_ALL",  # else the charts show ten runs
        "isAccordionReordered": True,  # else the UI puts its own charts of every metric first
    }
    view = {"name": name, "createdAt": _MADE_MS, "updatedAt": _MADE_MS, "state": json.dumps(state)}
    return json.dumps(view)


def _metric(name: str) -> dict[str, str]:
    return {"key": name, "type": "METRIC"}
