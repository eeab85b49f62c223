"""A view of MLflow's runs table with F1, dollars and the cluster: an experiment tag that MLflow's UI reads.

MLflow 3.17 keeps shared views in the experiment tag `mlflow.sharedViewState.KEY`, and opens them with
`?viewStateShareKey=KEY`. The value is a JSON object with a name, two timestamps and the state as a JSON string. This
format was read from MLflow's JavaScript on 2026-11-23. MLflow's documentation does not describe it, so another version
may show other columns.
"""

import json
import re

from paretune.core.secrets import markdown
from paretune.specification import metrics
from paretune.tracking import schema

KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
"""The tag that makes MLflow's UI show an experiment's training runs rather than traces."""
TAG_PREFIX = "mlflow.sharedViewState."
ALL_RUNS = "paretune"  # key of the view of all runs of an experiment
_MADE_MS = 1_795_737_600_000  # 2026-11-27
_RUN_NAME, _CREATED = "attributes.`Run Name`", "runDateAndNestInfo"
# Maps columns of MLflow's table to their widths in pixels; all fit on a screen that is 1,500 pixels wide.
_COLUMNS = {
    **{f"metrics.`{name}`": 85 for name in (metrics.F1, metrics.COST_USD)},
    **{f"metrics.`{name}`": 115 for name in (metrics.JOB_SECONDS, metrics.THROUGHPUT_SAMPLES)},
    "params.`instance_type`": 125,
    "params.`instance_count`": 60,
    "params.`global_batch_size`": 75,
    "params.`learning_rate`": 95,
    f"tags.`{schema.ORIGIN}`": 95,
    f"tags.`{schema.PARETO_RANK}`": 70,
}
_BETWEEN_LINKS, _MOST_LINKS = " · ", 5
_SECTION = {"uuid": "paretune", "name": "F1 over dollars", "display": True, "isReordered": True, "columns": 1}
_CHART = {
    "type": "SCATTER",
    "uuid": "paretune-front",
    "metricSectionId": "paretune",
    "runsCountToCompare": 100,
    "deleted": False,
    "isGenerated": False,
    "xaxis": {"key": metrics.COST_USD, "type": "METRIC"},
    "yaxis": {"key": metrics.F1, "type": "METRIC"},
}


def note(experiment: str, before: str | None, study: str, name: str) -> str:
    """Return the description of an experiment: at most six links to its views, with the newest study's view first.

    MLflow's UI shows the description above every page of the experiment. Without the links, users see a table without
    metrics. `before` is the current description. If a user has written it, it is returned unchanged.
    """
    all_runs = _link("All runs with F1 and dollars", experiment, ALL_RUNS)
    links = rf"(?:\[[^\]]*\]\(#[^)]*\){_BETWEEN_LINKS})*{re.escape(all_runs)}"
    if before is not None and not re.fullmatch(links, before):
        return before
    others = (before or "").split(_BETWEEN_LINKS)[:-1]
    newest = [_link(markdown(name), experiment, study)] if study else []
    kept = [link for link in others if link not in newest][: _MOST_LINKS - len(newest)]
    return _BETWEEN_LINKS.join([*newest, *kept, all_runs])


def _link(text: str, experiment: str, key: str) -> str:
    text = text.translate(str.maketrans("[]", "()"))  # square brackets would end the text of the link
    return f"[{text}](#/experiments/{experiment}/runs?viewStateShareKey={key}&workflowType=machine_learning)"


def view(name: str, parent: str = "") -> str:
    """Return the tag's value: a view of an experiment's runs, or of the trials of the study with run id `parent`."""
    state = {
        "searchFilter": f"tags.`{schema.PARENT}` = '{parent}'" if parent else "",
        # If runs are sorted by creation, MLflow hides trials under the run of their study. Runs without a rank come
        # last.
        "orderByKey": f"tags.`{schema.PARETO_RANK}`" if parent else "attributes.start_time",
        "orderByAsc": bool(parent),
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "viewMaximized": True,
        "selectedColumns": list(_COLUMNS),
        "columnOrder": [_RUN_NAME, _CREATED, *_COLUMNS],
        "columnWidths": {_RUN_NAME: 260, _CREATED: 105, **_COLUMNS},
        "compareRunCharts": [_CHART],
        "compareRunSections": [{**_SECTION, "cardHeight": 480}],
        "runsHiddenMode": "SHOW_ALL",  # else the charts show ten runs
        "isAccordionReordered": True,  # else the UI puts its own charts of every metric first
    }
    return json.dumps({"name": name, "createdAt": _MADE_MS, "updatedAt": _MADE_MS, "state": json.dumps(state)})
