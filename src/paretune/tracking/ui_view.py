"""Views of MLflow's runs table, of all runs or of a study's trials: experiment tags that MLflow's UI reads.

MLflow 3.17 keeps shared views in the experiment tag `mlflow.sharedViewState.KEY`, and opens them with
`?viewStateShareKey=KEY`. The value is a JSON object with a name, two timestamps and the state as a JSON string. This
format was read from MLflow's JavaScript on 2026-11-23. MLflow's documentation does not describe it, so another version
may show other columns.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.core.secrets import markdown
from paretune.specification import metrics
from paretune.tracking import schema

KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
"""The tag that makes MLflow's UI show an experiment's training runs rather than traces."""
TAG_PREFIX = "mlflow.sharedViewState."
ALL_RUNS = "paretune"  # key of the view of all runs of an experiment
_MADE_MS = 1_795_737_600_000  # 2026-11-27
_RUN_NAME, _CREATED = "attributes.`Run Name`", "runDateAndNestInfo"
_POSITION = f"tags.`{schema.POSITION}`"
# Maps columns of the table of all runs to their widths in pixels; all fit on a screen that is 1,500 pixels wide.
_OF_ALL_RUNS = {
    **{f"metrics.`{name}`": 85 for name in (metrics.F1, metrics.COST_USD)},
    **{f"metrics.`{name}`": 115 for name in (metrics.JOB_SECONDS, metrics.THROUGHPUT_SAMPLES)},
    "params.`instance_type`": 125,
    "params.`instance_count`": 60,
    "params.`global_batch_size`": 75,
    "params.`learning_rate`": 95,
    f"tags.`{schema.ORIGIN}`": 95,
}
_OF_A_LETTER, _NARROWEST, _WIDEST = 7, 85, 170  # pixels of a letter in the head of a column, and of columns
_LONGEST_TAG = 5_000  # characters of an experiment's tag; MLflow's limit
_BETWEEN_LINKS, _MOST_LINKS = " · ", 5


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """Describes the view of a study: a table of its trials, the front first, and charts over dollars or time.

    The first columns are the most important metric, dollars, throughput and what was searched. On a screen of 1,400
    pixels, they are visible beside MLflow's panel.

    Attributes:
        run_id: id of the study's run, which is the parent of its trials.
        name: name of the view.
        metrics: objectives and constrained metrics, the most important first. The first one is the chart's.
        settings: searched parameters, as the runs of the trials record them.
        paid: dollars or, in a study that nobody bills, the seconds of a job: the charts' horizontal axis.
    """

    run_id: str
    name: str
    metrics: Sequence[str]
    settings: Sequence[str]
    paid: str

    def value(self) -> str:
        """Return the tag's value. Searched parameters that would make it too long are left out."""
        first = list(dict.fromkeys([*self.metrics[:1], self.paid, metrics.THROUGHPUT_SAMPLES]))
        others = [
            name for name in dict.fromkeys([*self.metrics, metrics.JOB_SECONDS, metrics.COST_USD]) if name not in first
        ]
        charts = [_chart(name, self.paid) for name in self.metrics if name != self.paid]
        for count in range(len(self.settings), -1, -1):
            names = [*_columns("metrics", first), *_columns("params", self.settings[:count])]
            names += [*_columns("tags", [schema.POSITION]), *_columns("metrics", others)]
            names += _columns("tags", [schema.ORIGIN])
            text = _view(
                self.name,
                {name: _width(name) for name in names},
                charts or [_chart(metrics.F1, self.paid)],
                searchFilter=f"tags.`{schema.PARENT}` = '{self.run_id}'",
                # If runs are sorted by creation, MLflow hides trials under the run of their study. Runs without a
                # position come last. Positions are padded, because MLflow sorts tags as text.
                orderByKey=_POSITION,
                orderByAsc=True,
            )
            if len(text) <= _LONGEST_TAG:
                break
        return text


def _columns(kind: str, names: Sequence[str]) -> list[str]:
    return [f"{kind}.`{name}`" for name in names]


def _width(column: str) -> int:
    title = column.partition(".")[2].strip("`")
    return min(_WIDEST, max(_NARROWEST, _OF_A_LETTER * len(title) + 16))


def _chart(metric: str, paid: str = metrics.COST_USD) -> dict[str, Any]:
    return {
        "type": "SCATTER",
        "uuid": f"paretune-{metric}",
        "metricSectionId": "paretune",
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
        "xaxis": {"key": paid, "type": "METRIC"},
        "yaxis": {"key": metric, "type": "METRIC"},
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


def all_runs() -> str:
    """Return the value of the tag for the view of all runs of an experiment."""
    charts = [_chart(metrics.F1)]
    return _view(ALL_RUNS, _OF_ALL_RUNS, charts, searchFilter="", orderByKey="attributes.start_time", orderByAsc=False)


def _view(name: str, columns: Mapping[str, int], charts: Sequence[Mapping[str, Any]], **order: object) -> str:
    """Return a tag's value: a view with these columns of these widths, charts, and filter and order of the runs."""
    title = " and ".join(_title(chart["yaxis"]["key"]) for chart in charts)
    over = "dollars" if charts[0]["xaxis"]["key"] == metrics.COST_USD else "job time"
    section = {"uuid": "paretune", "name": f"{title} over {over}", "display": True, "isReordered": True}
    state = {
        **order,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "viewMaximized": True,
        "selectedColumns": list(columns),
        "columnOrder": [_RUN_NAME, _CREATED, *columns],
        "columnWidths": {_RUN_NAME: 260, _CREATED: 105, **columns},
        "compareRunCharts": list(charts),
        "compareRunSections": [{**section, "columns": min(2, len(charts)), "cardHeight": 480}],
        "runsHiddenMode": "SHOW_ALL",  # else the charts show ten runs
        "isAccordionReordered": True,  # else the UI puts its own charts of every metric first
    }
    return json.dumps({"name": name, "createdAt": _MADE_MS, "updatedAt": _MADE_MS, "state": json.dumps(state)})


def _title(metric: str) -> str:
    return "F1" if metric == metrics.F1 else metric
