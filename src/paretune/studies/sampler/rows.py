"""What a study knows of its jobs, read from the trials of Optuna alone."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from paretune.studies.sampler.candidates import ACCUMULATION, PROBE, Job, Space

OUTCOME, SECONDS, STARTUP_S, STEP_S = "outcome", "seconds", "startup_seconds", "step_seconds"
ROWS, BASELINE = "train_rows", "baseline"
"""User attributes of a trial: how it ended if it failed, seconds billed, those around the training, those of an
optimiser step, rows of the whole data set that an epoch passes, and what one answer for all rows would reach."""
RAN, RUNNING = "ran", "running"
OUT_OF_MEMORY, CUT_OFF, FAILED, AGAIN = "out_of_memory", "cut_off", "failed", "again"
"""Outcomes. `again`: its end says nothing of its point, such as missing capacity."""


@dataclass(frozen=True)
class Row:
    """One job and its outcome."""

    job: Job
    outcome: str
    seconds: float
    startup_s: float | None
    step_s: float | None
    values: tuple[float, ...] | None  # of all objectives, if it was trained to the end
    baseline: float | None = None  # quality of one answer for all rows

    @property
    def is_training(self) -> bool:
        """Whether it shows or will show quality."""
        return not self.job.is_probe and self.outcome in (RAN, RUNNING)


def rows_of(study: optuna.Study, space: Space) -> list[Row]:
    """The trials whose points are known; the one that is just being asked for has none yet."""
    rows = []
    trials = study.get_trials(deepcopy=False)
    counted = [trial.user_attrs[ROWS] for trial in trials if ROWS in trial.user_attrs]
    space.rows = space.rows or (statistics.median(counted) if counted else None)
    for trial in trials:
        job = _job_of(trial, space)
        outcome = _outcome_of(trial)
        if job is None or outcome == AGAIN or trial.state == TrialState.WAITING:
            continue
        told: Mapping[str, Any] = trial.user_attrs
        usual_s = trial.duration.total_seconds() if trial.duration is not None else 0.0
        values = tuple(trial.values) if trial.state == TrialState.COMPLETE and not job.is_probe else None
        seconds = told.get(SECONDS, usual_s)
        rows.append(Row(job, outcome, seconds, told.get(STARTUP_S), told.get(STEP_S), values, told.get(BASELINE)))
    return rows


def _job_of(trial: FrozenTrial, space: Space) -> Job | None:
    params = trial.params
    if not space.searched.keys() <= params.keys():
        return None
    point = {name: params[name] for name in space.searched}
    return space.job(
        point, params.get(ACCUMULATION, 1) if ACCUMULATION in space.own else 1, is_probe=params.get(PROBE, 0) > 0
    )


def _outcome_of(trial: FrozenTrial) -> str:
    if not trial.state.is_finished():
        return RUNNING
    is_fine = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    return str(trial.user_attrs.get(OUTCOME, RAN if is_fine else FAILED))
