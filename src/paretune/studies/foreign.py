"""Any study of Optuna in MLflow: its trials as runs, and paretune's page of its front."""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.specification.parameters import spell
from paretune.studies.results.answer import StudyAnswer, StudyResult
from paretune.studies.results.figures import picture
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import PICTURE_FILE, page, study_note
from paretune.studies.results.trials import FOREIGN, Trial, TrialStatus
from paretune.tracking import RunStatus, Tracking, schema

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
        params = {
            key: value if isinstance(value, str | int | float) else spell(value) for key, value in trial.params.items()
        }
        told = zip(metrics, trial.values or (), strict=False)
        values = {metric: value for metric, value in told if math.isfinite(value)}
        state = _ENDED[trial.state.name]
        begun = recorded.get(str(trial.number))
        if begun is None or not begun.ended_at:  # a call was killed between the two
            own = {schema.PARENT: run_id, schema.TRIAL: str(trial.number)}
            run = tracking.create(f"trial {trial.number}", own) if begun is None else tracking.run(begun.run_id)
            run.log_params({key: spell(value) for key, value in params.items()})
            run.log_metrics(values)
            run.end(RunStatus.FINISHED if state is TrialStatus.COMPLETED else RunStatus.FAILED)
        trials.append(
            Trial(
                number=trial.number,
                run_id=run.run_id if begun is None else begun.run_id,
                point=params,
                given=FOREIGN,
                status=state,
                values=values,
                repeats=(repeats or {}).get(trial.number),
                reason="" if state is TrialStatus.COMPLETED else trial.state.name.lower(),
            )
        )
    answer = StudyAnswer(name=name, front=StudyFront.of(trials, objectives, {}))
    run = tracking.run(run_id)
    run.reopen()
    run.log_text(page(answer, tracking.address), "pareto.html")
    run.log_text(answer.csv(), "pareto.csv")
    drawn = picture(answer.front, answer.picks)
    if drawn is not None:
        run.log_figure(drawn, PICTURE_FILE)
    run.set_tags({schema.NOTE: study_note(answer, run_id, has_picture=drawn is not None)})
    run.log_params({"objectives": spell(objectives)})
    for row_id, rank in answer.ranks().items():
        tracking.run(row_id).set_tags({schema.PARETO_RANK: rank})
    run.end(RunStatus.FINISHED)
    open_command = tracking.open_command(run_id)
    return StudyResult(
        answer=answer, run_id=run_id, ending=f"{len(trials)} trials of Optuna", open_command=open_command
    )
