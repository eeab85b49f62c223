"""Any study of Optuna in MLflow: its trials as runs, and paretune's page of its front."""

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.specification.parameters import spell
from paretune.studies.results.answer import StudyAnswer, StudyResult
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import record_answer
from paretune.studies.results.trials import FOREIGN, Trial, TrialStatus
from paretune.tracking import RecordedRun, RunStatus, Tracking, schema

if TYPE_CHECKING:
    import optuna

_ENDED = {"COMPLETE": TrialStatus.COMPLETED, "FAIL": TrialStatus.FAILED, "PRUNED": TrialStatus.STOPPED}


def log_study(study: "optuna.Study", name: str = "", *, repeats: Mapping[int, int] | None = None) -> StudyResult:
    """Record a study of Optuna in MLflow: a run with the page of its front, and under it a run for each trial.

    Call it again after further trials: runs of trials that are recorded already stay as they are. Values that are not
    finite are left out.

    Args:
        study: with any sampler and storage; `study.set_metric_names` names its objectives.
        name: of the study in MLflow; by default Optuna's own.
        repeats: number of a trial that repeats an earlier one with another seed, to the number of that one.

    Raises:
        BadInput: no trial of the study has ended, or its name has a quotation mark, which MLflow cannot search for.
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
    metrics = study.metric_names or [f"value_{number}" for number in range(len(directions))]
    objectives = dict(zip(metrics, directions, strict=True))
    if "'" in name:
        raise BadInput([f"name must have no quotation mark, got {name}: give another one (name=...)"])
    ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in _ENDED]
    if not ended:
        raise BadInput([f"study {name} has no trial that has ended: record it when one has"])
    tracking = Tracking(dict(os.environ), SystemClock())
    condition = f"tags.`{schema.KIND}` = 'study' and tags.`{schema.STUDY_MARK}` = 'optuna {name}'"
    known = tracking.runs(condition, newest=1)
    tags = {schema.KIND: "study", schema.STUDY: name, schema.STUDY_MARK: f"optuna {name}"}
    run_id = known[0].run_id if known else tracking.create(f"study {name}", tags).run_id
    recorded = {run.tags.get(schema.TRIAL): run for run in tracking.runs(f"tags.`{schema.PARENT}` = '{run_id}'")}
    trials = []
    for trial in ended:
        told, state = zip(metrics, trial.values or (), strict=False), _ENDED[trial.state.name]
        params = trial.params.items()
        read = Trial(
            number=trial.number,
            point={key: value if isinstance(value, str | int | float) else spell(value) for key, value in params},
            given=FOREIGN,
            status=state,
            values={metric: value for metric, value in told if math.isfinite(value)},
            repeats=(repeats or {}).get(trial.number),
            reason="" if state is TrialStatus.COMPLETED else trial.state.name.lower(),
        )
        trials.append(replace(read, run_id=_run_of(read, recorded.get(str(trial.number)), run_id, tracking)))
    answer = StudyAnswer(name=name, front=StudyFront.of(trials, objectives, {}))
    run = tracking.run(run_id)
    run.reopen()
    record_answer(answer, run, tracking)
    run.log_params({"objectives": spell(objectives)})
    run.end(RunStatus.FINISHED)
    shown = tracking.open_command(run_id)
    return StudyResult(answer=answer, run_id=run_id, ending=f"{len(trials)} trials of Optuna", open_command=shown)


def _run_of(trial: Trial, begun: RecordedRun | None, study_id: str, tracking: Tracking) -> str:
    """The run of a trial, which is written unless it has been."""
    if begun is not None and begun.ended_at:  # else a call was killed between the two
        return begun.run_id
    own = {schema.PARENT: study_id, schema.TRIAL: str(trial.number)}
    run = tracking.create(f"trial {trial.number}", own) if begun is None else tracking.run(begun.run_id)
    run.log_params({key: spell(value) for key, value in trial.point.items()})
    run.log_metrics(dict(trial.values))
    run.end(RunStatus.FINISHED if trial.status is TrialStatus.COMPLETED else RunStatus.FAILED)
    return run.run_id
