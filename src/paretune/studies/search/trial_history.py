"""What a driver remembers of its study: all trials that any driver has booked, and what follows from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.estimating.memory_limits import Footprint, MemoryLimits
from paretune.spec.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Value
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.early_stopping import Curve
from paretune.studies.search.ledger import Entry, Ledger

MOST_TRIES = 4
"""Times that a point is asked for again after no capacity, a quota or an interruption; then it counts as failed."""
MOST_FAILURES = 2
"""Times that a job is run which fails by itself; then its point counts as impossible."""
_FIRST_PAUSE_S = 300.0  # before a point without capacity is asked for again; twice as long each time


@dataclass(frozen=True, kw_only=True)
class Due:
    """A point to be asked for again.

    Attributes:
        point: searched parameter to value.
        note: what `Driver.start` was told of it besides.
        not_before: seconds since the epoch, of the launcher's clock.
    """

    point: Mapping[str, Value]
    note: Mapping[str, Any]
    not_before: float


class TrialHistory:
    """The study as its ledger tells it.

    Args:
        file: the study.
        ledger: its books.
        origin: of its figures: measured or simulated.
    """

    def __init__(self, file: StudyFile, ledger: Ledger, origin: str) -> None:
        self._file = file
        self._ledger = ledger
        self._origin = origin
        self.place = 0
        """Trials that were booked; grows whenever anything has ended."""
        self._idle: dict[str, int] = {}  # the last trial of a job that met trouble and has cost nothing
        self._failures: dict[str, int] = {}
        self._tries: dict[str, int] = {}
        self._settled: dict[str, Entry] = {}
        self.trials: dict[int, Trial] = {}
        self.measured: dict[int, Mapping[str, float]] = {}
        self.curves: dict[int, Curve] = {}
        self.kinds: dict[int, str] = {}
        self.predicted: dict[int, Mapping[str, float]] = {}
        self.due: dict[str, Due] = {}
        self.memory_limits = MemoryLimits()
        self.begun = 0

    def refresh(self, now: float = 0.0) -> list[Entry]:
        """Take up what was booked since the last time, by any driver, and give it.

        Args:
            now: of the launcher's clock; points that met trouble are due again some time after it.
        """
        found = self._ledger.booked(self.place)
        for entry in found:
            self._take(entry, now)
        return found

    def settled(self, identity: str) -> Entry | None:
        """The entry of a job that need not run again, because its outcome is known."""
        return self._settled.get(identity)

    def cannot_fit(self, spec: JobSpec) -> bool:
        """Whether a job is known to run out of memory, from one that did with no more rows on as large a device."""
        limits = self.memory_limits
        return limits.has_full and limits.why_full(Footprint.of(spec, spec.plan())) is not None

    def has_failed(self, identity: str) -> bool:
        """Whether a job has failed by itself: it is not tried again, unless the sampler insists."""
        return identity in self._failures

    def is_settled(self, identity: str, ended: Mapping[str, Any]) -> bool:
        """Whether a job with this end need not run again."""
        status = TrialStatus(ended["status"])
        if ended["again"]:
            return False
        return status is not TrialStatus.FAILED or self._failures.get(identity, 0) + 1 >= MOST_FAILURES

    def values(self, found: Mapping[str, float], parameters: Mapping[str, str]) -> dict[str, float]:
        """What of a job's metrics the study is about; nothing of a probe, which trains only a few steps."""
        if parameters.get("probe_steps"):
            return {}
        names = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        return {name: found[name] for name in names if name in found and math.isfinite(found[name])}

    def _take(self, entry: Entry, now: float) -> None:
        assert entry.ended is not None  # it was booked
        self.place = entry.place or self.place
        status, ended = TrialStatus(entry.ended["status"]), entry.ended
        self.kinds[entry.trial] = entry.note["kind"]
        self.predicted[entry.trial] = entry.note["predicted"]
        if status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.COMPLETED}:
            spec = JobSpec.from_text(entry.parameters)
            footprint = Footprint.of(spec, spec.plan())
            tell = self.memory_limits.fitted if status is TrialStatus.COMPLETED else self.memory_limits.ran_out
            tell(footprint)
        if status is TrialStatus.COMPLETED:
            self.measured[entry.trial] = ended["metrics"]
            self.curves[entry.trial] = [(share, value) for share, value in ended["curve"]]
        if self.is_settled(entry.identity, ended):
            self._settled[entry.identity] = entry
        elif not ended["again"]:
            self._failures[entry.identity] = self._failures.get(entry.identity, 0) + 1
        self._plan_again(entry, now)
        self.trials.pop(self._idle.pop(entry.identity, -1), None)  # trouble that was overcome is no failed trial
        if ended["again"] and not entry.booked_usd:
            self._idle[entry.identity] = entry.trial
        self.begun += entry.note["repeats"] is None and not ended["again"]
        self.trials[entry.trial] = Trial(
            number=entry.trial,
            run_id=entry.run_id,
            point=entry.note["point"],
            parameters=entry.parameters,
            status=status,
            values=self.values(ended["metrics"], entry.parameters),
            cost_usd=entry.booked_usd,
            spent_usd=entry.spent_usd or 0.0,
            origin=self._origin,
            seed=entry.note["seed"],
            repeats=entry.note["repeats"],
            reason=ended["reason"],
        )

    def _plan_again(self, entry: Entry, now: float) -> None:
        assert entry.ended is not None  # it was booked
        self.due.pop(entry.identity, None)
        if not entry.ended["again"]:
            return
        tries = self._tries[entry.identity] = self._tries.get(entry.identity, 0) + 1
        if tries > MOST_TRIES:
            self._failures[entry.identity] = self._failures.get(entry.identity, 0) + 1
        else:
            pause = _FIRST_PAUSE_S * 2 ** (tries - 1) if now and entry.ended["later"] else 0.0
            self.due[entry.identity] = Due(point=entry.note["point"], note=entry.note, not_before=now + pause)
