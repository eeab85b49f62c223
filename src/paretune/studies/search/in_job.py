"""`in_job: search`: one job begins, pauses, continues and ends the trainings from which the quality is learnt.

Each quality that the candidates of a split search can have is trained with its cheapest settings, all on the cluster on
which most of them are cheapest. The job's maximum runtime is chosen, and its dollars are reserved for its first trial,
the lead, before it is created; trials that join it reserve nothing. What is trained next is decided by
`curves.next_entries` each time that the job has reported something new. Of several drivers, the lead's directs the job.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from paretune.core.errors import BudgetRefused, LostContact
from paretune.estimating.workload import training_steps
from paretune.launchers.shared_jobs import SharedJob, common_parameters
from paretune.ledger.trial_entry import TrialNote, TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.search.curves import CurveState, Plan, comparable_point, next_entries
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.actions import Action, Actions
from paretune.studies.search.split.learner import Learner
from paretune.studies.search.split.rows import OVERHEAD_S
from paretune.studies.search.trial_job import SEARCH, TrialJob

MOST_TRIALS = 64
"""Trials of one job, as for `trials_per_job`."""
_MOST_OF_TRIALS = 0.5
"""Part of a study's n_trials that the job may train, so that some are left to measure seconds on other clusters."""
_TRAININGS = 0.5
"""Part of all trainings for whose limits the job has time. Halving at each rung needs a third of their steps."""
_MOST_OF_BUDGET = 0.7
"""Part of the dollars left that the job may cost, so that some are left to measure seconds on other clusters."""
_LONGEST_MINUTES = 40_320.0
_AHEAD = 3
"""Entries that the job is given, so that it need not wait for the next decision."""
_RESERVE = 0.05
"""Part of its time that the job keeps to save and upload its models."""
_SLOWER = 1.2
"""Times the expected seconds of an entry that must be left for it."""


class InJobSearch:
    """One driver's part in the job that searches."""

    def __init__(self, driver: Driver, learner: Learner) -> None:
        self._driver = driver
        self._learner = learner
        self._actions: dict[str, Action] = {}  # by the identity of their jobs
        self._guessed_f1 = 0.0  # of the data that all trials share; 0 until a trial has told it
        self._has_looked = False
        self._seen: tuple[object, ...] = ()
        self._reason = ""

    def search(self) -> str:
        """Search until nothing is worth training any more; returns how it ended, in words."""
        driver = self._driver
        while not self._is_over():
            driver.workplace.interruption.check()
            driver.poll()
            self._direct()
            if not self._reason:
                driver.wait()
        if self._reason:
            return self._reason
        trials = [trial for number, trial in driver.trials.items() if driver.history.notes[number].kind == SEARCH]
        completed = sum(trial.status is TrialStatus.COMPLETED for trial in trials)
        return f"one job has trained {completed} of {len(trials)} trials to their end"

    def _is_over(self) -> bool:
        history = self._driver.history
        is_running = any(entry.note.kind == SEARCH for entry in self._driver.ledger.running())
        if is_running or any(retry.note.kind == SEARCH for retry in history.retries.values()):
            return False
        return bool(self._reason) or any(note.kind == SEARCH for note in history.notes.values())

    def _direct(self) -> None:
        """Begin the job, or tell it what to train next if this driver directs it and something is new."""
        driver = self._driver
        members = [job for job in driver.running if job.searches]
        if not members:
            if not self._is_over() and not any(entry.note.kind == SEARCH for entry in driver.ledger.running()):
                self._begin()
            return
        lead, shared = members[0].note.lead, driver.shared_jobs.searching
        leads = [job for job in members if job.number == lead]
        if shared is None or shared.queue is None or shared.queue.is_complete or not leads:
            return
        self._guessed_f1 = max(self._guessed_f1, *(job.guessed_f1 for job in members))
        trials = {self._key(job): self._state(job) for job in members if job.trial and job.trial.shared is shared}
        seen = (shared.name, shared.is_forming, *trials.values())
        if seen == self._seen or not trials or not driver.owns(leads[0].number):
            return
        speed = self._speed(members)
        candidates = self._candidates(leads[0].spec, speed) if len(members) < leads[0].spec.trials_per_job else {}
        plan = next_entries([*self._earlier(trials), *trials.values()], list(candidates.values()), [], ahead=_AHEAD)
        plan = self._within_time(plan, {**trials, **candidates}, shared, leads[0])
        keys = {key: self._start(self._actions[key], leads[0].note) for key in plan.begun}
        order = [(keys.get(key, key), steps) for key, steps in plan.entries]
        if shared.is_forming and plan.is_done:  # after a kill nothing is left to be trained
            for job in members:
                job.ask_to_stop()
            return
        for job in members:
            if plan.is_done and not trials[self._key(job)].is_done:
                job.stopped_because = "given up in the job that searched, whose other trials are better"
        with suppress(LostContact):  # sent again with the next news
            shared.direct([(key, steps) for key, steps in order if key], plan.given_up, is_complete=plan.is_done)
            self._seen = seen if not plan.begun else ()

    def _begin(self) -> None:
        """Begin the job with the most promising trials, or with those that a job without capacity has left."""
        driver, now = self._driver, self._driver.workplace.clock.now()
        retries = {key: retry for key, retry in driver.history.retries.items() if retry.note.kind == SEARCH}
        if any(retry.not_before > now for retry in retries.values()):
            return
        candidates = self._candidates(None, 1.0)
        specs = [_spec_of(self._actions[key]) for key in candidates]
        specs += [driver.file.spec_at(retry.note.point) for retry in retries.values()]
        count = min(len(specs), self._most_trials)
        limits = [action.limit_minutes or action.spec.max_runtime_minutes for action in self._actions.values()]
        minutes = self._minutes(specs[0], count, limits) if specs else None
        if minutes is None:
            driver.history.retries = {k: r for k, r in driver.history.retries.items() if k not in retries}
            self._reason = (
                "no job that searches fits the budget or the time left"
                if specs
                else "nothing can be trained in one job"
            )
            return
        changes = {"trials_per_job": max(2, count), "max_runtime_minutes": minutes}
        note = TrialNote(kind=SEARCH, changes=changes)
        for retry in retries.values():
            del driver.history.retries[next(key for key, item in retries.items() if item is retry)]
            suggestion = driver.study.ask_for(retry.note.point)
            lead = suggestion.number if note.lead is None else note.lead
            again = replace(retry.note, changes={**retry.note.changes, **changes}, lead=lead)
            if driver.start(suggestion, again) and note.lead is None:
                note = replace(note, lead=suggestion.number)
        for key in next_entries([], list(candidates.values()), [], ahead=_AHEAD).begun if not retries else ():
            if self._start(self._actions[key], note) and note.lead is None:
                note = replace(note, lead=max(job.number for job in driver.running))
        if note.lead is None and not any(item.kind == SEARCH for item in driver.history.notes.values()):
            self._reason = "no trial of a job that searches could begin"

    def _start(self, action: Action, lead: TrialNote) -> str:
        """Start a trial beside the lead, or as the lead if it has no number; returns its key, or an empty text."""
        driver = self._driver
        names = "trials_per_job", "max_runtime_minutes"
        changes = {**action.changes, **{name: lead.changes[name] for name in names}}
        suggestion = driver.study.ask_for(action.point)
        number = suggestion.number if lead.lead is None else lead.lead
        note = TrialNote(kind=SEARCH, changes=changes, lead=number, expected_usd=action.cost_usd)
        self._actions.pop(_spec_of(action).spec_hash(), None)
        if not driver.start(suggestion, note):
            return ""
        return next((self._key(job) for job in driver.running if job.number == suggestion.number), "")

    def _minutes(self, spec: JobSpec, count: int, limits: Sequence[float]) -> float | None:
        """The maximum runtime of the job: time for a part of all trainings that fits budget and deadline.

        None if too little fits.
        """
        admission = self._driver.admission
        most_usd = _MOST_OF_BUDGET * admission.left_usd(spec)
        least = max(limits, default=spec.max_runtime_minutes)
        minutes = min(_LONGEST_MINUTES, max(least, _TRAININGS * sum(limits)))
        if admission.deadline is not None:
            left_s = admission.deadline.until - self._driver.workplace.clock.now() - OVERHEAD_S
            minutes = min(minutes, left_s / 60)
        while minutes >= least / 2:
            job = spec.replace(trials_per_job=max(2, count), max_runtime_minutes=round(minutes, 1))
            with suppress(BudgetRefused):
                usd = admission.worst_case.reserved_usd(job)
                if usd is None and not admission.has_budget:
                    return job.max_runtime_minutes
                if usd is not None and usd <= most_usd:
                    return job.max_runtime_minutes
            minutes *= 0.8
        return None

    def _candidates(self, lead: JobSpec | None, speed: float) -> dict[str, CurveState]:
        """The trials that have not begun, by the identity of its job, the most usual settings first."""
        driver = self._driver
        if not self._has_looked:
            self._has_looked = True
            actions = Actions(self._learner.learn(left_usd=driver.admission.left_usd(lead)), _is_open, None, 0.0)
            cheapest = actions.trainings()
            common = Counter(common_parameters(action.spec) for action in cheapest).most_common(1)
            cluster = common[0][0] if common else ()
            if lead is not None:
                cluster = common_parameters(lead.replace(trials_per_job=cheapest[0].spec.trials_per_job))
            trainings = actions.trainings(lambda spec: common_parameters(spec) == cluster)
            self._actions = {_spec_of(action).spec_hash(): action for action in trainings}
        is_open = {key: action for key, action in self._actions.items() if driver.is_open(_spec_of(action))}
        count = sum(note.kind == SEARCH for note in driver.history.notes.values()) + len(driver.running)
        if count >= self._most_trials:
            return {}
        states = {key: self._curve(key, _spec_of(action), action.cost_usd, speed) for key, action in is_open.items()}
        return {key: state for key, state in states.items() if state is not None}

    @property
    def _most_trials(self) -> int:
        of_study = self._driver.file.n_trials
        return MOST_TRIALS if of_study is None else min(MOST_TRIALS, max(1, round(_MOST_OF_TRIALS * of_study)))

    def _state(self, job: TrialJob) -> CurveState:
        state = self._curve(self._key(job), job.spec, job.note.expected_usd, 1.0)
        assert state is not None  # it was a candidate
        steps, total = job.steps or (0, state.total_steps)
        end = None if job.trial is None else job.trial.end
        is_done = end is not None and end.report is not None
        if job.seconds_per_step:
            state = self._priced(state, job.spec, job.seconds_per_step, total)
        return replace(
            state,
            total_steps=total,
            steps=total if is_done else min(steps, total - 1),
            curve=self._comparable(job.curve),
            is_given_up=end is not None and not is_done,
        )

    def _comparable(self, curve: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        """A curve of which larger values are better; F1 below guessing, before anything is learnt, is guessing."""
        quality = self._learner.space.quality
        least = self._guessed_f1 if quality.metric == metrics.F1 else -math.inf
        return tuple((share, max(least, quality.sign * value)) for share, value in curve)

    def _curve(self, key: str, spec: JobSpec, expected_usd: float, speed: float) -> CurveState | None:
        """The curve of a trial before its first event; None if nobody knows how many rows it trains on."""
        rows = self._learner.rows_of_an_epoch(spec)
        if not rows:
            return None
        steps = training_steps(spec, spec.plan(), rows)
        seconds = expected_usd / self._learner.space.usd_per_second_of(spec)
        training_s = speed * (seconds - min(OVERHEAD_S, seconds / 2))
        point = comparable_point(spec.plan().global_batch_size, spec.learning_rate or 1.0)
        state = CurveState(key=key, usd_per_step=0.0, total_steps=steps, own_job_usd=0.0, point=point)
        return self._priced(state, spec, training_s / steps, steps)

    def _priced(self, state: CurveState, spec: JobSpec, step_s: float, steps: int) -> CurveState:
        per_second = self._learner.space.usd_per_second_of(spec)
        return replace(state, usd_per_step=step_s * per_second, own_job_usd=(OVERHEAD_S + steps * step_s) * per_second)

    def _speed(self, members: Iterable[TrialJob]) -> float:
        """Measured over expected seconds of a step: the median of the trials."""
        ratios = []
        for job in members:
            state = self._curve("", job.spec, job.note.expected_usd, 1.0)
            if job.seconds_per_step and state is not None and state.usd_per_step:
                usd_per_step = job.seconds_per_step * self._learner.space.usd_per_second_of(job.spec)
                ratios.append(usd_per_step / state.usd_per_step)
        return statistics.median(ratios) if ratios else 1.0

    def _within_time(self, plan: Plan, states: dict[str, CurveState], shared: SharedJob, lead: TrialJob) -> Plan:
        """The entries for which the job has time left; the search is done if it has none for the first of them."""
        elapsed_s = lead.spent_seconds + (0.0 if shared.job is None else shared.job.billable_seconds())
        left_s = (1 - _RESERVE) * lead.spec.max_runtime_minutes * 60 - elapsed_s
        per_second, entries = self._learner.space.usd_per_second_of(lead.spec), []
        for key, steps in plan.entries:
            left_s -= _SLOWER * max(0, steps - states[key].steps) * states[key].usd_per_step / per_second
            if left_s < 0:
                break
            entries.append((key, steps))
        if plan.is_done or entries:
            begun = tuple(key for key in plan.begun if key in dict(entries))
            return replace(plan, entries=tuple(entries), begun=begun)
        unfinished = {key for key, state in states.items() if state.steps and not state.is_done}
        return Plan(given_up=frozenset(unfinished), is_done=True)

    def _earlier(self, trials: Iterable[str]) -> list[CurveState]:
        """The curves of trials that have ended in an earlier attempt of the job, or in an earlier job."""
        states, history = [], self._driver.history
        for number, note in history.notes.items():
            trial = self._driver.trials.get(number)
            if note.kind != SEARCH or trial is None or trial.run_id in trials:
                continue
            end = self._driver.ledger.entry(number).end
            state = self._curve(trial.run_id, JobSpec.from_text(trial.parameters), note.expected_usd, 1.0)
            if end is None or state is None or end.retryable:
                continue
            is_done = end.status is TrialStatus.COMPLETED
            share = 1.0 if is_done else max((share for share, _ in end.curve), default=0.0)
            steps = min(state.total_steps, round(share * state.total_steps))
            states.append(replace(state, steps=steps, curve=self._comparable(end.curve), is_given_up=not is_done))
        return states

    @staticmethod
    def _key(job: TrialJob) -> str:
        return job.record.run.run_id


def _spec_of(action: Action) -> JobSpec:
    return action.spec.replace(**action.changes)


def _is_open(_: Action) -> bool:
    """Nothing is closed: what runs or is settled is left out later."""
    return False
