"""`in_job: search`: the trainings from which a split search learns quality take turns in one job.

Each training that the search chooses becomes the lead of a job that may go on with others of the same cluster. The
job's maximum runtime is chosen, and its dollars are reserved for the lead, before it is created; trials that join it
reserve nothing. After each rung the search chooses as it chooses jobs, by the expected gain of the front for the
dollars; in the job a training costs what is left of it. What a paused training would reach is forecast from its curve.
The job ends when another one is worth more, although the next training needs a start-up again. Of several drivers, the
lead's directs the job.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paretune.core.errors import BudgetRefused, LostContact
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.workload import training_steps
from paretune.launchers.shared_jobs import SharedJob, common_parameters
from paretune.ledger.trial_entry import TrialNote, TrialStatus
from paretune.specification.job import JobSpec
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.actions import LEARN, Action, Actions
from paretune.studies.search.split.learner import Learner
from paretune.studies.search.split.rows import OVERHEAD_S
from paretune.studies.search.trial_history import Retry
from paretune.studies.search.trial_job import SEARCH, TrialJob

MOST_TRIALS = 64
"""Trials of one job, as for `trials_per_job`."""
RUNGS = (0.25, 0.5, 1.0)
"""Shares of a training after which its trial pauses."""
_MOST_OF_TRIALS = 0.5
"""Part of a study's n_trials that a job may train, so that some are left to measure seconds on other clusters."""
_TRAININGS = 0.5
"""Part of all trainings for whose limits the job has time."""
_MOST_OF_BUDGET = 0.7
"""Part of the dollars left that the job may cost, so that some are left to measure seconds on other clusters."""
_LONGEST_MINUTES = 40_320.0
_RESERVE = 0.05
"""Part of its time that the job keeps to save and upload its models."""
_SLOWER = 1.2
"""Times the expected seconds of a training that must be left for it."""


@dataclass(frozen=True, kw_only=True)
class _Training:
    """A training that the job could go on with or begin.

    Attributes:
        key: run id of its trial; the identity of its job if it has not begun.
        action: its dollars are those of what is left of it in this job.
        steps, total_steps: optimiser steps, done and in all.
        seconds: of the job for what is left of it.
    """

    key: str
    action: Action
    steps: int
    total_steps: int
    seconds: float

    @property
    def rungs(self) -> list[int]:
        """The optimiser steps at which it pauses next, the last one included."""
        ends = (min(self.total_steps, math.ceil(share * self.total_steps)) for share in RUNGS)
        return [end for end in ends if end > self.steps]


class InJobSearch:
    """One driver's part in the jobs that search; `is_closed` says whether a job of its own cannot begin now."""

    def __init__(self, driver: Driver, learner: Learner, is_closed: Callable[[Action], bool]) -> None:
        self._driver = driver
        self._learner = learner
        self._is_closed = is_closed
        self._actions: dict[tuple[str, ...], list[Action]] = {}  # by what the trials of a job share
        self._seen: tuple[object, ...] = ()

    def begin(self, action: Action) -> bool:
        """Begin a job that searches with a training; False if only a job of its own is possible."""
        if action.kind != LEARN or action.repeats is not None or self._is_running():
            return False
        spec = _spec_of(action)
        others = self._open_trainings(spec)
        count = min(1 + len(others), most_trials(self._driver.file.n_trials))
        limits = [_limit_minutes(item) for item in (action, *(training.action for training in others))]
        minutes = self._minutes(spec, count, limits)
        if minutes is None or self._training("", action, 0, None) is None:
            return False
        note = TrialNote(kind=SEARCH, changes={"trials_per_job": max(2, count), "max_runtime_minutes": minutes})
        return bool(self._start(action, note))

    def follow(self) -> None:
        """Direct the job that searches until it has ended; returns at once if there is none.

        After a job without capacity it waits until another one may be tried, and leaves the choice of that to the
        search.
        """
        driver, clock = self._driver, self._driver.workplace.clock
        while self._is_running() or any(retry.not_before > clock.now() for retry in self._retries().values()):
            driver.poll()
            self._direct()
            driver.wait()
        for identity in self._retries():
            del driver.history.retries[identity]

    def summary(self) -> str:
        """How many trials the jobs that search have trained, in words; empty if there was no such job."""
        notes = self._driver.history.notes
        trials = [trial for number, trial in self._driver.trials.items() if notes[number].kind == SEARCH]
        jobs = len({notes[trial.number].lead for trial in trials})
        completed = sum(trial.status is TrialStatus.COMPLETED for trial in trials)
        done = f"trained {completed} of {len(trials)} trials to their end; "
        return f"{jobs} {'job has' if jobs == 1 else 'jobs have'} {done}" if jobs else ""

    def _is_running(self) -> bool:
        return any(entry.note.kind == SEARCH for entry in self._driver.ledger.running())

    def _retries(self) -> dict[str, Retry]:
        """Trials of jobs that search for which there was no capacity, by their identity."""
        return {key: retry for key, retry in self._driver.history.retries.items() if retry.note.kind == SEARCH}

    def _direct(self) -> None:
        """Tell the job what to train next if this driver directs it and something is new."""
        driver = self._driver
        members = [job for job in driver.running if job.searches]
        if not members:  # of another driver
            return
        shared = driver.shared_jobs.searching
        lead = next((job for job in members if job.number == members[0].note.lead), None)
        if shared is None or shared.queue is None or shared.queue.is_complete or lead is None:
            return
        trials = [job for job in members if job.trial and job.trial.shared is shared]
        seen = shared.name, shared.is_forming, *((job.number, job.steps, _has_ended(job)) for job in trials)
        if seen == self._seen or not trials or not driver.owns(lead.number):
            return
        chosen, order, keys = self._chosen(trials, lead, shared), [], set(map(_key, trials))
        for training in chosen:
            key = training.key if training.key in keys else self._start(training.action, lead.note)
            order += [(key, step) for step in training.rungs if key]
        if shared.is_forming and not chosen:  # after a kill nothing is left to be trained
            for job in members:
                job.ask_to_stop()
            return
        for job in members:
            if not chosen and not _has_ended(job):
                job.stopped_because = "given up in the job that searched: the rest of it would not add enough"
        with suppress(LostContact):  # sent again with the next news
            shared.direct(order, is_complete=not chosen)
            self._seen = seen if len(members) == sum(job.searches for job in driver.running) else ()

    def _chosen(self, trials: Sequence[TrialJob], lead: TrialJob, shared: SharedJob) -> list[_Training]:
        """The next trainings, the best first; none if the search in the job is over.

        The second one is for the time until the driver has seen the end of the first. It is not begun earlier.
        """
        elapsed_s = lead.spent_seconds + (0.0 if shared.job is None else shared.job.billable_seconds())
        left_s = (1 - _RESERVE) * lead.spec.max_runtime_minutes * 60 - elapsed_s
        left_usd = self._driver.admission.left_usd(lead.spec)
        knowledge = self._learner.learn(left_usd=left_usd)
        if not _has_ended(lead) and (rest := self._training_of(lead)) is not None:
            return [rest]  # it goes on to its end, as in a job of its own
        open_ = [self._training_of(job) for job in trials if not _has_ended(job)]
        if len(trials) < lead.spec.trials_per_job:
            open_ += self._open_trainings(lead.spec)
        fitting = [training for training in open_ if training and _SLOWER * training.seconds <= left_s]
        if shared.is_forming:
            return fitting[:1]
        if not knowledge.predictions.has_quality:
            return [] if any(map(_has_report, trials)) else fitting[:1]
        spent_usd = self._driver.ledger.balance().spent_usd
        spent_usd += elapsed_s * self._learner.space.usd_per_second_of(lead.spec)
        start_usd = self._learner.overhead_s(lead.spec) * self._learner.space.usd_per_second_of(lead.spec)
        chosen: list[_Training] = []
        while fitting and len(chosen) < 2:
            actions = Actions(knowledge, self._is_closed, self._driver.file.value_of_front_usd, spent_usd)
            gains = [actions.gain_of_training(_spec_of(training.action)) for training in fitting]
            priced = [replace(item.action, gain=gain) for item, gain in zip(fitting, gains, strict=True)]
            ranked, elsewhere = actions.ranked(action for action in priced if action.gain), actions.best()
            if not ranked:
                break
            if elsewhere is not None and elsewhere.gain / (elsewhere.cost_usd + start_usd) > ranked[0].value:
                break
            index = next(index for index, action in enumerate(priced) if action is ranked[0])
            chosen.append(fitting.pop(index))
            if len(chosen[0].rungs) > 1:
                fitting = [training for training in fitting if training.steps]
            knowledge = self._learner.learn([_spec_of(ranked[0])], left_usd=left_usd)
        return chosen

    def _start(self, action: Action, lead: TrialNote) -> str:
        """Start a trial beside the lead, or as the lead if it has no number; returns its key, or an empty text."""
        driver = self._driver
        names = "trials_per_job", "max_runtime_minutes"
        changes = {**action.changes, **{name: lead.changes[name] for name in names}}
        suggestion = driver.study.ask_for(action.point)
        number = suggestion.number if lead.lead is None else lead.lead
        note = TrialNote(kind=SEARCH, changes=changes, lead=number, expected_usd=action.cost_usd)
        if not driver.start(suggestion, note):
            return ""
        return next((_key(job) for job in driver.running if job.number == suggestion.number), "")

    def _minutes(self, spec: JobSpec, count: int, limits: Sequence[float]) -> float | None:
        """The maximum runtime of the job: time for a part of all trainings that fits budget and deadline.

        None if the limit of its first training, the first one of `limits`, does not fit.
        """
        admission = self._driver.admission
        most_usd = _MOST_OF_BUDGET * admission.left_usd(spec)
        least = limits[0]
        minutes = min(_LONGEST_MINUTES, max(least, _TRAININGS * sum(limits)))
        if admission.deadline is not None:
            left_s = admission.deadline.until - self._driver.workplace.clock.now() - OVERHEAD_S
            minutes = min(minutes, left_s / 60)
        while minutes >= least:
            job = spec.replace(trials_per_job=max(2, count), max_runtime_minutes=round(minutes, 1))
            with suppress(BudgetRefused):
                usd = admission.worst_case.reserved_usd(job)
                if usd is None and not admission.has_budget:
                    return job.max_runtime_minutes
                if usd is not None and usd <= most_usd:
                    return job.max_runtime_minutes
            minutes = max(least, 0.8 * minutes) if minutes > least else 0.0
        return None

    def _open_trainings(self, lead: JobSpec) -> list[_Training]:
        """The trainings that have not begun and that the job of a lead can train, the most usual settings first."""
        driver, space = self._driver, self._learner.space
        if driver.admission.has_enough(len(driver.trials) + len(driver.running)):
            return []
        cluster = common_parameters(lead.replace(trials_per_job=space.candidates[0].spec.trials_per_job))
        if cluster not in self._actions:  # a search visits few clusters, and making jobs takes long
            knowledge = self._learner.learn(left_usd=driver.admission.left_usd(lead))
            actions = Actions(knowledge, lambda _: False, None, 0.0)  # what runs or is settled is left out below
            self._actions[cluster] = actions.trainings(lambda spec: common_parameters(spec) == cluster)
        open_ = [action for action in self._actions[cluster] if driver.is_open(_spec_of(action))]
        rest = [self._training(_spec_of(action).spec_hash(), action, 0, None) for action in open_]
        return [training for training in rest if training is not None]

    def _training_of(self, job: TrialJob) -> _Training | None:
        """The rest of a trial of the job; its dollars are set by `_training`."""
        limit = job.spec.max_runtime_minutes
        action = Action(kind=LEARN, spec=job.spec, limit_minutes=limit, point=job.note.point, changes={}, cost_usd=0.0)
        return self._training(_key(job), action, *(job.steps or (0, None)))

    def _training(self, key: str, action: Action, steps: int, total_steps: int | None) -> _Training | None:
        """The rest of a training; None if nobody knows how many rows it trains on."""
        spec = _spec_of(action)
        rows = self._learner.rows_of_an_epoch(spec)
        if not rows:
            return None
        expected_steps = training_steps(spec, spec.plan(), rows)
        total = total_steps or expected_steps
        seconds = self._learner.seconds_per_step(spec) * expected_steps * (1 - steps / total)
        usd = seconds * self._learner.space.usd_per_second_of(spec)
        if not steps:  # one that runs out of memory does so soon
            usd *= self._driver.history.memory_limits.chance(Footprint.of(spec, spec.plan()))
        action = replace(action, cost_usd=usd)
        return _Training(key=key, action=action, steps=steps, total_steps=total, seconds=seconds)


def most_trials(n_trials: int | None) -> int:
    """The most trials that the job of a study trains; `n_trials` are those of the whole study, None for any number."""
    return MOST_TRIALS if n_trials is None else min(MOST_TRIALS, max(1, round(_MOST_OF_TRIALS * n_trials)))


def _key(job: TrialJob) -> str:
    return job.record.run.run_id


def _has_ended(job: TrialJob) -> bool:
    return job.trial is not None and job.trial.end is not None


def _has_report(job: TrialJob) -> bool:
    end = None if job.trial is None else job.trial.end
    return end is not None and end.report is not None


def _spec_of(action: Action) -> JobSpec:
    return action.spec.replace(**action.changes)


def _limit_minutes(action: Action) -> float:
    return action.limit_minutes or _spec_of(action).max_runtime_minutes
