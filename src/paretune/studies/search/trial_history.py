"""The history of a study: all trials that any driver has booked, and what follows from them."""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from paretune.estimating.memory_limits import Footprint, MemoryLimits
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote, TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.front import trials_on_front
from paretune.studies.results.trials import Trial
from paretune.studies.search.early_stopping import Curve

MOST_TRIES = 4
"""Times that a job is tried again after no capacity, a quota or an interruption; then it counts as failed."""
MOST_FAILURES = 2
"""Times that a job is run which fails by itself; then its point counts as impossible."""
MOST_CURVES = 500
"""Curves that are kept to judge those of jobs under way, which takes longer the more there are."""
_FIRST_PAUSE_S = 300.0  # before a job without capacity is tried again; twice as long each time
_Value = TypeVar("_Value")


class _Record(Mapping[str, _Value]):
    """A mapping that shares its names with all others of the same names: it takes a third of what a dict takes.

    For what is kept of each of thousands of trials.
    """

    __slots__ = ("_places", "_values")
    _known: ClassVar[dict[tuple[str, ...], dict[str, int]]] = {}

    def __init__(self, values: Mapping[str, _Value]) -> None:
        names = tuple(values)
        self._places = self._known.setdefault(names, {name: place for place, name in enumerate(names)})
        self._values = tuple(values.values())

    def __getitem__(self, name: str) -> _Value:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, kw_only=True)
class Due:
    """A trial to be tried again, from a time of the launcher's clock: seconds since the epoch."""

    note: TrialNote
    not_before: float


class TrialHistory:
    """What the ledger says about the trials that have ended; `refresh` reads what is new.

    Attributes:
        booking_order: of the last trial that was read: the number of trials that have ended.
        trials: number to trial, in the order of booking; trials that were tried again and cost nothing are left out.
        front: of the trials, as they were measured, the cheapest first.
        notes: number to what was written down of the trial before it began.
        measured: number to metrics, of completed trials.
        curves: of F1, of the MOST_CURVES trials that have completed last.
        settled: identity of a job that need not run again to its trial: its outcome is known.
        failures: identity to times that a job failed by itself: it is not tried again, unless the sampler insists.
        due: job's identity to when it is tried again.
        longest_s: hash of a job without its seed to the longest seconds that such a job took, of completed ones.
        memory_limits: which jobs are known to run out of memory.
        begun: trials that count towards the study's n_trials and have ended.
    """

    def __init__(self, file: StudyFile, ledger: StudyLedger, origin: str) -> None:
        self._file = file
        self._ledger = ledger
        self._origin = origin
        self._idle: dict[str, int] = {}  # identity to its last trial, where that was retryable and has cost nothing
        self._tries = Counter[str]()
        self.failures = Counter[str]()
        self.settled: dict[str, int] = {}
        self.booking_order = 0
        self.trials: dict[int, Trial] = {}
        self.front: list[Trial] = []
        self.measured: dict[int, Mapping[str, float]] = {}
        self.curves = deque[Curve](maxlen=MOST_CURVES)
        self.notes: dict[int, TrialNote] = {}
        self.due: dict[str, Due] = {}
        self.memory_limits = MemoryLimits()
        self.longest_s: dict[str, float] = {}
        self.begun = 0

    def refresh(self) -> list[TrialEntry]:
        """Entries booked since the last call, by any driver; everything here is brought up to date with them."""
        found = self._ledger.booked(self.booking_order)
        for entry in found:
            self._take(entry)
        for entry in self._ledger.with_warm_pools():  # their cost grows after they were booked
            if (trial := self.trials.get(entry.trial)) is not None and trial.cost_usd != entry.booked_usd:
                self.trials[entry.trial] = replace(trial, cost_usd=entry.booked_usd)
        numbers = [*(trial.number for trial in self.front), *(entry.trial for entry in found)]
        candidates = [self.trials[number] for number in numbers if number in self.trials]
        self.front = trials_on_front(candidates, self._file.objectives, self._file.constraints)
        return found

    def cannot_fit(self, spec: JobSpec) -> bool:
        """Whether a job is known to run out of memory, from one that did with no more rows on as large a device."""
        limits = self.memory_limits
        return limits.has_full and limits.why_full(Footprint.of(spec, spec.plan())) is not None

    def is_settled(self, identity: str, ended: TrialEnd) -> bool:
        """Whether a job with this end need not run again."""
        if ended.retryable:
            return False
        return (
            ended.status is not TrialStatus.FAILED or ended.conclusive or self.failures[identity] + 1 >= MOST_FAILURES
        )

    def values(self, found: Mapping[str, float], parameters: Mapping[str, str]) -> dict[str, float]:
        """What of a job's metrics the study is about; nothing of a probe, which trains only a few steps."""
        if parameters.get("probe_steps"):
            return {}
        names = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        return {name: found[name] for name in names if name in found and math.isfinite(found[name])}

    def _take(self, entry: TrialEntry) -> None:
        ended, note = entry.ended, entry.note
        assert ended is not None  # it was booked
        self.booking_order = entry.booking_order or self.booking_order
        self.notes[entry.trial] = note
        if ended.status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.COMPLETED}:
            spec = JobSpec.from_text(entry.parameters)
            tell = self.memory_limits.fitted if ended.status is TrialStatus.COMPLETED else self.memory_limits.ran_out
            tell(Footprint.of(spec, spec.plan()))
            if metrics.JOB_SECONDS in ended.metrics:
                identity = but_for_its_seed(spec)
                self.longest_s[identity] = max(self.longest_s.get(identity, 0.0), ended.metrics[metrics.JOB_SECONDS])
        if ended.status is TrialStatus.COMPLETED:
            self.measured[entry.trial] = _Record(ended.metrics)
            self.curves.append(ended.curve)
        if self.is_settled(entry.identity, ended):
            self.settled[entry.identity] = entry.trial
        elif not ended.retryable:
            self.failures[entry.identity] += 1
        self._plan_retry(entry, ended)
        self.trials.pop(self._idle.pop(entry.identity, -1), None)  # it was tried again
        if ended.retryable and not ended.cost_usd:
            self._idle[entry.identity] = entry.trial
        self.begun += note.counts and not ended.retryable
        self.trials[entry.trial] = self._trial(entry, ended)

    def _trial(self, entry: TrialEntry, ended: TrialEnd) -> Trial:
        return Trial(
            number=entry.trial,
            run_id=entry.run_id,
            point=entry.note.point,
            parameters=_Record(entry.parameters),
            status=ended.status,
            values=self.values(ended.metrics, entry.parameters),
            cost_usd=ended.cost_usd,
            spent_usd=entry.spent_usd or 0.0,
            origin=self._origin,
            seed=entry.note.seed,
            repeats=entry.note.repeats,
            reason=ended.reason,
            baseline_f1=ended.metrics.get(metrics.BASELINE_TFIDF),
            verdicts=ended.verdicts,
        )

    def _plan_retry(self, entry: TrialEntry, ended: TrialEnd) -> None:
        self.due.pop(entry.identity, None)
        if not ended.retryable:
            return
        self._tries[entry.identity] += 1
        tries = self._tries[entry.identity]
        if tries > MOST_TRIES:
            self.failures[entry.identity] += 1
        else:
            pause = _FIRST_PAUSE_S * 2 ** (tries - 1) if ended.transient else 0.0
            alone = {"trials_per_job": 1} if ended.alone else {}
            note = replace(entry.note, changes={**entry.note.changes, **alone})
            self.due[entry.identity] = Due(note=note, not_before=ended.at + pause)


def but_for_its_seed(spec: JobSpec) -> str:
    """Equal for jobs that differ in their seed alone."""
    return replace(spec, seed=0).spec_hash()
