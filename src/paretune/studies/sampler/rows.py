"""What a study knows of its jobs, read from the trials of Optuna alone."""

import statistics
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState

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
    baseline: float | None  # quality of one answer for all rows

    @property
    def is_training(self) -> bool:
        """Whether it shows or will show quality."""
        return not self.job.is_probe and self.outcome in (RAN, RUNNING)


def rows_of(study: optuna.Study, space: Space) -> list[Row]:
    """The trials whose points are known; the one that is just being asked for has none yet."""
    trials, rows = study.get_trials(deepcopy=False), []
    counted = [trial.user_attrs[ROWS] for trial in trials if ROWS in trial.user_attrs]
    space.rows = space.rows or (statistics.median(counted) if counted else None)
    for trial in trials:
        params, told = trial.params, trial.user_attrs
        is_fine = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        outcome = told.get(OUTCOME, RAN if is_fine else FAILED) if trial.state.is_finished() else RUNNING
        if outcome == AGAIN or trial.state == TrialState.WAITING or not space.searched.keys() <= params.keys():
            continue
        point = {name: params[name] for name in space.searched}
        times = params.get(ACCUMULATION, 1) if ACCUMULATION in space.own else 1
        if (job := space.job(point, times, is_probe=params.get(PROBE, 0) > 0)) is not None:
            values = tuple(trial.values) if trial.state == TrialState.COMPLETE and not job.is_probe else None
            seconds = told.get(SECONDS, trial.duration.total_seconds() if trial.duration is not None else 0.0)
            rows.append(Row(job, outcome, seconds, told.get(STARTUP_S), told.get(STEP_S), values, told.get(BASELINE)))
    return rows
