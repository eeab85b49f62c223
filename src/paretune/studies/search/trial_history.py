"""The history of a study: all trials that were booked, and what follows from them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paretune.estimating.memory_limits import Footprint, MemoryLimits
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote, TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.front import trials_on_front
from paretune.studies.results.trials import Trial

MOST_TRIES = 4  # of a job after no capacity, a quota or an interruption; then it counts as failed
MOST_FAILURES = 2  # times that a job is run which fails by itself or is cut off; then its point counts as impossible
_UPPER = (metrics.JOB_SECONDS, f"{metrics.ESTIMATED_SECONDS}_high")
_FIRST_PAUSE_S = 300.0  # before a job without capacity is tried again; twice as long each time


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A trial to be tried again, from a time of the launcher's clock in seconds since the epoch."""

    note: TrialNote
    not_before: float


class TrialHistory:
    """The trials that have ended, as the ledger has them; `refresh` reads new ones.

    A job's identity is its `spec_hash`.
    """

    def __init__(self, file: StudyFile, ledger: StudyLedger, origin: str) -> None:
        self._file = file
        self._ledger = ledger
        self._origin = origin
        self._unpaid: dict[str, int] = {}  # identity to its last trial, if that was retryable and has cost nothing
        self._tries = Counter[str]()
        # identity to the times that a job failed by itself: it is not tried again unless the sampler insists.
        self.failures = Counter[str]()
        # identity of a job that need not run again, because its outcome is known, to its trial.
        self.settled: dict[str, int] = {}
        self.impossible: set[str] = set()  # identities of jobs that the launcher refused for what they ask
        self.booking_order = 0  # of the last trial that was read: the number of trials that have ended
        # by number, in the order of booking; trials that were tried again and cost nothing are left out.
        self.trials: dict[int, Trial] = {}
        self.front: list[Trial] = []  # the measured front of the trials, the cheapest first
        self.measured: dict[int, Mapping[str, float]] = {}  # number to metrics, of completed trials
        self.notes: dict[int, TrialNote] = {}  # number to the note of the trial
        self.retries: dict[str, Retry] = {}  # identity to when a retryable job is tried again
        self.memory_limits = MemoryLimits()  # which jobs are known to run out of memory
        # hash of a job without its seed to the most seconds that such a job took, of completed ones.
        self.longest_s: dict[str, float] = {}
        self.counted = 0  # number of ended trials that count towards the study's n_trials

    def refresh(self) -> list[TrialEntry]:
        """Bring everything up to date; returns the entries that were booked since the last call."""
        entries = self._ledger.booked(self.booking_order)
        for entry in entries:
            self._add(entry)
        for entry in self._ledger.with_warm_pools():  # their cost grows after they were booked
            if (trial := self.trials.get(entry.trial)) is not None and trial.cost_usd != entry.booked_usd:
                self.trials[entry.trial] = replace(trial, cost_usd=entry.booked_usd)
        numbers = [*(trial.number for trial in self.front), *(entry.trial for entry in entries)]
        candidates = [self.trials[number] for number in numbers if number in self.trials]
        self.front = trials_on_front(candidates, self._file.objectives, self._file.constraints)
        return entries

    def next_retry(self, now: float) -> str | None:
        """Identity of a retryable job that is due at this time of the launcher's clock, or None."""
        return next((identity for identity, retry in self.retries.items() if retry.not_before <= now), None)

    def is_closed(self, spec: JobSpec) -> bool:
        """Whether the job need not or must not run any more: its outcome is known, it is impossible, or it failed."""
        identity = spec.spec_hash()
        is_known = identity in self.settled or identity in self.failures or identity in self.impossible
        return is_known or self.cannot_fit(spec)

    def cannot_fit(self, spec: JobSpec) -> bool:
        """Whether a job is known to run out of memory: one with no more rows per device did on a device as large."""
        limits = self.memory_limits
        return limits.has_full and limits.why_full(Footprint.of(spec, spec.plan())) is not None

    def is_settled(self, identity: str, end: TrialEnd) -> bool:
        """Whether a job with this end need not run again."""
        if end.retryable:
            return False
        may_pass = end.status is TrialStatus.FAILED or end.is_cut_off
        return not may_pass or end.conclusive or self.failures[identity] + 1 >= MOST_FAILURES

    def _add_footprint(self, spec: JobSpec, end: TrialEnd) -> None:
        """Learn from a job that completed or ran out of memory what fits, and how long such a job takes."""
        if end.status is TrialStatus.OUT_OF_MEMORY:
            self.memory_limits.ran_out(Footprint.of(spec, spec.plan()))
        if metrics.JOB_SECONDS in end.metrics:
            identity = hash_without_seed(spec)
            self.longest_s[identity] = max(self.longest_s.get(identity, 0.0), end.metrics[metrics.JOB_SECONDS])

    def _add_outcome(self, entry: TrialEntry, end: TrialEnd) -> None:
        """Note whether the same job may run again; a trial that cost nothing is replaced by its next try."""
        if self.is_settled(entry.identity, end):
            self.settled[entry.identity] = entry.trial
        elif not end.retryable:
            self.failures[entry.identity] += 1
        self._plan_retry(entry, end)
        self.trials.pop(self._unpaid.pop(entry.identity, -1), None)  # it was tried again
        if end.retryable and not end.cost_usd:
            self._unpaid[entry.identity] = entry.trial

    def values(self, measured: Mapping[str, float], parameters: Mapping[str, str]) -> dict[str, float]:
        """The study's objectives and constraints among a job's metrics; empty for a probe, which trains a few steps."""
        if parameters.get("probe_steps"):
            return {}
        names = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        return {name: measured[name] for name in names if name in measured and math.isfinite(measured[name])}

    def _add(self, entry: TrialEntry) -> None:
        end, note = entry.end, entry.note
        assert end is not None  # it was booked
        self.booking_order = entry.booking_order or self.booking_order
        self.notes[entry.trial] = note
        if end.status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.COMPLETED}:
            self._add_footprint(JobSpec.read(entry.parameters), end)
        if end.status is TrialStatus.COMPLETED:
            self.measured[entry.trial] = end.metrics
        self._add_outcome(entry, end)
        self.counted += note.counts and not end.retryable
        self.trials[entry.trial] = Trial(
            number=entry.trial,
            run_id=entry.run_id,
            point=note.point,
            parameters=entry.parameters,
            given=entry.given,
            status=end.status,
            values=self.values(end.metrics, entry.parameters),
            cost_usd=end.cost_usd,
            spent_usd=entry.spent_usd or 0.0,
            origin=self._origin,
            seed=note.seed,
            repeats=note.repeats,
            reason=end.reason,
            baseline_f1=end.metrics.get(metrics.BASELINE_TFIDF),
            baseline=end.metrics.get(metrics.BASELINE_MAJORITY) if metrics.F1 in self._file.objectives else None,
            upper_s=max((end.metrics[name] for name in _UPPER if name in end.metrics), default=None),
            verdicts=end.verdicts,
        )

    def _plan_retry(self, entry: TrialEntry, end: TrialEnd) -> None:
        self.retries.pop(entry.identity, None)
        if not end.retryable:
            return
        self._tries[entry.identity] += 1
        tries = self._tries[entry.identity]
        if tries > MOST_TRIES:
            self.failures[entry.identity] += 1
        else:
            pause_s = _FIRST_PAUSE_S * 2 ** (tries - 1) if end.transient else 0.0
            self.retries[entry.identity] = Retry(note=entry.note, not_before=end.at + pause_s)


def hash_without_seed(spec: JobSpec) -> str:
    """A hash that is equal for jobs that differ only in their seed."""
    return spec.spec_hash(but=["seed"])
