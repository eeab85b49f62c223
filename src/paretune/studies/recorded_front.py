"""`front`, the Pareto front of a recorded study or of any runs, and `log_study`, which records Optuna studies."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pandas

from paretune.core import pareto
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, refuse
from paretune.core.result import Result, Row, as_json, read_rows
from paretune.presentation.text import aligned
from paretune.specification.declaration import spell
from paretune.studies.definition.objectives import DIRECTIONS, default_objectives, judged_by, recorded_goals
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import record_answer
from paretune.studies.results.result import StudyResult
from paretune.studies.results.trials import FOREIGN, Trial
from paretune.studies.trial_status import TrialStatus
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking

if TYPE_CHECKING:
    import optuna

_MEAN = "_mean"  # end of the columns of pareto.csv that have the mean of a configuration
_ADDRESS = re.compile(rf"^(metrics\.|params\.|tags\.{re.escape(schema.PREFIX)})")  # prefix of MLflow's column names


@dataclass(frozen=True, kw_only=True)
class Front(Result):
    """The Pareto front: the runs that no other run beats, and all runs that they were chosen from."""

    name: str  # name of the study; empty if the runs are not those of one study
    objectives: Mapping[str, str]
    best: Sequence[Row]  # rows on the front, the best in the first objective first
    runs: Sequence[Row]
    remarks: Sequence[str] = ()

    @property
    def title(self) -> str:
        """How many of the runs are on the front, and the objectives."""
        goals = ", ".join(f"{direction} {name}" for name, direction in self.objectives.items())
        of = f" of study {self.name}" if self.name else ""
        return f"front{of}: {len(self.best)} of {len(self.runs)} runs ({goals})"

    def rows(self) -> list[Row]:
        """Return the rows on the front; `runs` has all rows."""
        return [dict(row) for row in self.best]

    def to_dict(self) -> dict[str, object]:
        """Return the study's name, the objectives, the rows on the front and the remarks."""
        described = {"study": self.name or None, "objectives": dict(self.objectives)}
        return {**described, "rows": as_json(self.rows()), "remarks": list(self.remarks)}

    def notes(self) -> list[str]:
        """Return the remarks."""
        return list(self.remarks)

    def __str__(self) -> str:
        """Return title, table and remarks as text."""
        table = self.to_frame().map(lambda value: f"{value:.6g}" if isinstance(value, float) else spell(value))
        return "\n".join([self.title, *([aligned(table)] if self.best else []), *self.remarks])


def front(
    # name of a study, or at least the first four characters of its run id; a result of `run_study` or `estimate`;
    # several results of `launch`; a data frame, such as that of `mlflow.search_runs`; or rows as mappings
    runs: "str | Result | pandas.DataFrame | Iterable[Mapping[str, object] | Result]",
    # maps columns to "minimize" or "maximize"; by default the study's objectives, with the quality metric that a
    # constraint names, or without a study, less cost_usd and more f1
    objectives: Mapping[str, str] | None = None,
) -> Front:
    """Return the Pareto front of a recorded study or of any runs.

    Raises:
        BadInput: no study has that name or id, several ids begin with it, the study has no ended trial, a direction is
            invalid, or no row has a number for an objective.
        TrackingUnavailable: the MLflow store does not answer.

    Examples:
        >>> import paretune
        >>> runs = [{"f1": 0.9, "cost_usd": 2.5}, {"f1": 0.8, "cost_usd": 3.5}, {"f1": 0.7, "cost_usd": 1.5}]
        >>> print(paretune.front(runs))
        front: 2 of 3 runs (minimize cost_usd, maximize f1)
         f1  cost_usd
        0.7       1.5
        0.9       2.5
    """
    if isinstance(runs, str):
        name, rows, usual = _recorded_study(runs)
    elif isinstance(runs, StudyResult):
        name, rows, usual = runs.answer.name, runs.rows(), dict(runs.answer.front.objectives)
    else:
        name, rows, usual = "", _rows_of(runs), default_objectives({})
    if name:
        rows = _configurations([row for row in rows if row["status"] == TrialStatus.COMPLETED.value])  # without probes
    goals = dict(objectives or usual)
    table = pandas.DataFrame(rows, columns=list(goals)).apply(pandas.to_numeric, errors="coerce").astype(float)
    table = table[np.isfinite(table)]
    faults = [
        f"objectives: {g} must be minimize or maximize, got {w!r}" for g, w in goals.items() if w not in DIRECTIONS
    ]
    unknown = [goal for goal in goals if rows and table[goal].isna().all()]
    columns = ", ".join(rows[0]) if rows else ""
    refuse(faults + [f"objectives: no run has a number for {each}; the columns are {columns}" for each in unknown])
    table = table.dropna()
    best = [number for number, row in enumerate(rows) if number in table.index and row.get("pareto_rank") == 0]
    if not name or goals != usual:  # otherwise the study has ranked them, by means over repeats and with constraints
        is_best = pareto.front(table.to_numpy().tolist(), [way == "maximize" for way in goals.values()])
        best = list(compress(table.index, is_best))
    first, way = next(iter(goals.items()))
    best.sort(key=lambda number: table[first][number], reverse=way == "maximize")
    remarks = list[str]()
    known = [origin for row in rows if isinstance(origin := row.get("origin"), str) and origin]
    if (origins := sorted({*known})) not in ([], ["measured"]):
        these = "all of them" if len(known) == len(rows) else f"{len(known)} of {len(rows)} runs"
        of = f"{these} are {{}}" if len(origins) == 1 else "the table mixes {} runs: compare within one origin only"
        remarks.append(of.format(" and ".join(origins)))
    if (lacking := len(rows) - len(table)) and not name:
        remarks.append(f"{lacking} of {len(rows)} runs have no {' or no '.join(goals)}, and are left out")
    return Front(name=name, objectives=goals, best=[rows[each] for each in best], runs=rows, remarks=remarks)


def _rows_of(runs: "Result | pandas.DataFrame | Iterable[Mapping[str, object] | Result]") -> list[Row]:
    """Return the rows of a result, data frame, or list of results and mappings, without MLflow's column prefixes."""
    if isinstance(runs, Result):
        return runs.rows()
    items = runs.to_dict("records") if isinstance(runs, pandas.DataFrame) else runs
    rows = [row for item in items for row in (item.rows() if isinstance(item, Result) else [dict(item)])]
    return [{_ADDRESS.sub("", str(name)): value for name, value in row.items()} for row in rows]


def _configurations(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each configuration of a study, with the means of its runs as the values of its metrics.

    So a metric of a configuration has the same value here as on the study's page.
    """
    firsts = dict[object, Row]()
    for row in rows:
        firsts.setdefault(row["trial"] if row.get("repeats") is None else row["repeats"], row)
    return [{**row, **_means(row)} for row in firsts.values()]


def _means(row: Row) -> Row:
    means = {name.removesuffix(_MEAN): value for name, value in row.items() if name.endswith(_MEAN)}
    return {name: value for name, value in means.items() if name in row and value is not None}


def _recorded_study(name: str) -> tuple[str, list[Row], dict[str, str]]:
    """Return name, rows of pareto.csv, and the objectives by which they are ranked, of a recorded study.

    This is the newest study called `name`, or else the one whose run id begins with `name` (at least four characters).
    """
    tracking = Tracking(dict(os.environ), SystemClock())
    studies = tracking.runs(f"tags.`{schema.KIND}` = 'study'")
    named = [run for run in studies if run.tags.get(schema.STUDY) == name][:1]
    matches = named or [run for run in studies if len(name) >= 4 and run.run_id.startswith(name)]
    if len(matches) > 1:
        raise BadInput([f"study: several run ids begin with {name!r}: give more characters of the id"])
    if not matches:
        names = ", ".join(dict.fromkeys(run.tags.get(schema.STUDY, "") for run in studies))
        raise BadInput([f"study: no study is called {name!r}; recorded studies: {names or 'none'}"])
    (run,) = matches
    text = tracking.artifact_text(run.run_id, "pareto.csv")
    if text is None:
        raise BadInput([f"study {name}: its run {run.run_id} has no pareto.csv, because no trial has ended yet"])
    return run.tags.get(schema.STUDY, name), read_rows(text), recorded_goals(run.params)


_MARK = "paretune:study"  # user attribute of an Optuna study; its MLflow run has the same mark
_ENDED = {"COMPLETE": TrialStatus.COMPLETED, "FAIL": TrialStatus.FAILED, "PRUNED": TrialStatus.STOPPED}


def log_study(study: "optuna.Study", name: str = "") -> StudyResult:
    """Record an Optuna study in MLflow: a run with the page of its front, and nested in it a run for each ended trial.

    Call this function again after further trials: it adds them, and keeps the runs of trials that are already recorded.
    Trials that violate a constraint of the study (`constraints_func`, `Trial.set_constraint`) are recorded but not
    recommended. Values that are not finite are left out. Name the objectives with `study.set_metric_names`. If the
    names change, the study is recorded again in a new run.

    Args:
        study: an Optuna study with any sampler and storage.
        name: name of the study in MLflow; by default its name in Optuna.

    Raises:
        BadInput: no trial of the study has ended, or the name has an apostrophe, which MLflow cannot search for.
        TrackingUnavailable: the MLflow server does not answer.

    Examples:
        >>> import optuna, paretune
        >>> toy = optuna.create_study(directions=["minimize", "maximize"])
        >>> toy.set_metric_names(["cost", "recall"])
        >>> toy.optimize(lambda trial: (x := trial.suggest_float("x", 0, 1), x**0.5), n_trials=3)
        >>> len(paretune.log_study(toy, "toy").to_frame())
        3
    """
    name = name or study.study_name
    directions = [direction.name.lower() for direction in study.directions]
    names = study.metric_names or [f"value_{number}" for number in range(len(directions))]
    objectives = dict(zip(names, directions, strict=True))
    goals = spell(objectives)
    if "'" in name:
        raise BadInput([f"name must not contain an apostrophe ('), got {name}: choose another one (name=...)"])
    ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in _ENDED]
    if not ended:
        raise BadInput([f"no trial of study {name} has ended yet: record the study after its first trial"])
    tracking = Tracking(dict(os.environ), SystemClock())
    mark = study.user_attrs.get(_MARK) or f"optuna {uuid4().hex}"  # two studies may have the same name
    study.set_user_attr(_MARK, mark)
    tags = {schema.KIND: "study", schema.STUDY: name, schema.STUDY_MARK: mark}
    # If the objectives have changed, the study needs a new run, because MLflow cannot delete metrics from a run.
    earlier = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark}'")
    earlier = [each for each in earlier if each.params.get("objectives", goals) == goals]
    run = tracking.run(earlier[0].run_id) if earlier else tracking.create(f"study {name}", tags)
    run.log_params({"objectives": goals})  # before pareto.csv, which `front` reads with them
    recorded = {each.tags.get(schema.TRIAL): each for each in tracking.runs(f"tags.`{schema.PARENT}` = '{run.run_id}'")}
    bounds = {f"constraint {key}": {"max": 0.0} for each in ended for key in each.constraints}
    trials = []
    for each in ended:
        values = zip(objectives, each.values or (), strict=False)
        amounts = {f"constraint {key}": amount for key, amount in each.constraints.items()}
        trial = Trial(
            number=each.number,
            point={key: v if isinstance(v, str | int | float) else spell(v) for key, v in each.params.items()},
            given=FOREIGN,
            status=_ENDED[each.state.name],
            values={metric: value for metric, value in (*values, *amounts.items()) if math.isfinite(value)},
            reason="" if each.state.name == "COMPLETE" else each.state.name.lower(),
        )
        trial = replace(trial, run_id=_run_of(trial, recorded.get(str(each.number)), run.run_id, tracking))
        # As in Optuna, a constraint that a trial has not set counts as met, and an infinite one as violated.
        is_met = {key: 0.0 for key in bounds if amounts.get(key) != math.inf}
        trials.append(replace(trial, values={**is_met, **trial.values}))
    quality = judged_by(dict(sorted(objectives.items(), key=lambda item: item[1])))  # maximized objectives first
    answer = StudyAnswer(name=name, front=StudyFront.of(trials, objectives, bounds, quality=quality))
    run.reopen()
    record_answer(answer, run, tracking)
    run.end("FINISHED")
    ending, command = f"{len(trials)} Optuna trials", tracking.open_command(run.run_id)
    return StudyResult(answer=answer, run_id=run.run_id, ending=ending, open_command=command)


def _run_of(trial: Trial, begun: RecordedRun | None, study_id: str, tracking: Tracking) -> str:
    """Write the run of a trial, unless an earlier call has completed it, and return the run's id."""
    if begun is not None and begun.ended_at:  # a run without an end was left by a killed call
        return begun.run_id
    tags = {schema.PARENT: study_id, schema.TRIAL: str(trial.number)}
    run = tracking.create(f"trial {trial.number}", tags) if begun is None else tracking.run(begun.run_id)
    run.log_params({key: spell(value) for key, value in trial.point.items()})
    run.log_metrics(dict(trial.values))
    run.end("FINISHED" if trial.status is TrialStatus.COMPLETED else "FAILED")
    return run.run_id
