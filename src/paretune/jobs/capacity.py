"""The instance type that a job asks for next, and when, after AWS had no capacity for it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from paretune.jobs.record import JobRecord
from paretune.launchers.base import Job
from paretune.specification.container import JobDocument
from paretune.tracking import schema

CAPACITY_PAUSE_S = 60.0
"""Between two rounds of asking all instance types for capacity."""
_WITH_SHARED_CHECKPOINTS = {"ddp", "smddp", "fsdp"}  # another number of devices can continue from them


class CapacitySearch:
    """One job's search for capacity, over all its attempts.

    After the last instance type of the list the first one follows again, as long as capacity_wait_minutes allows. If
    one job names all types, SageMaker has tried them in turn, and the next job names all of them again. A pause between
    two rounds is recorded in the run's tags, so that a later process continues it.
    """

    def __init__(self, record: JobRecord) -> None:
        self.not_before = 0.0
        """Time before which the next attempt must not begin."""
        self._record = record
        self._refusals = 0
        self._waiting_since: float | None = None
        self._earlier_pause: Mapping[str, Any] = {}

    def resume(self, tags: Mapping[str, str]) -> None:
        """Continue the pause that an earlier process has recorded in the run's tags."""
        self._earlier_pause = json.loads(tags.get(schema.WAITING) or "{}")
        self._waiting_since = self._earlier_pause.get("since")

    def next_attempt(
        self, refused: Job, document: JobDocument, make: Callable[..., JobDocument]
    ) -> tuple[JobDocument, str] | None:
        """The attempt after `refused` and a message about it; None if no time is left.

        `make` makes the document of the next attempt from `document`, the one of `refused`, with changed attributes.
        """
        spec, clock = self._record.spec, self._record.workplace.clock
        names_all = bool(document.plans)
        types = (" or ".join(spec.instance_types()),) if names_all else spec.instance_types()
        tried = types[self._refusals % len(types)]
        self._refusals += 1
        following = types[self._refusals % len(types)]
        if self._waiting_since is None:
            self._waiting_since = clock.now() - refused.seconds()
        if names_all:
            attempt = make()
        else:
            spec = spec.on_instance_type(following)
            shared = self._record.spec.spec_hash() if spec.strategy in _WITH_SHARED_CHECKPOINTS else ""
            attempt = make(spec=spec, plan=spec.plan(), checkpoint_key=shared)
        if attempt.max_seconds <= 0:
            return None
        round_is_over = self._refusals % len(types) == 0
        pause_s = self._pause_before(attempt.job_name, self._waiting_since, round_is_over=round_is_over)
        if pause_s is None:
            return None
        billed_s = refused.billable_seconds()  # more than 0 on spot: it trained until its instances were taken
        message = f"no capacity for {tried}: {f'in {pause_s:g} s ' if pause_s else ''}trying {following}"
        return attempt, message + (f"; {billed_s:.0f} s are billed until then" if billed_s else "")

    def _pause_before(self, name: str, waiting_since: float, *, round_is_over: bool) -> float | None:
        """Seconds to wait before the job of this name; None if the wait would exceed capacity_wait_minutes."""
        launcher, now, pause_s = self._record.workplace.launcher, self._record.workplace.clock.now(), 0.0
        if self._earlier_pause.get("job") == name:  # its process has died or left the job
            pause_s = max(0.0, self._earlier_pause["until"] - now)
        elif round_is_over and launcher.attach(name) is None:  # else the job exists already
            if now + CAPACITY_PAUSE_S - waiting_since > self._record.spec.capacity_wait_minutes * 60:
                return None
            pause_s = CAPACITY_PAUSE_S
            pause = {"job": name, "since": waiting_since, "until": now + pause_s}
            self._record.run.set_tags({schema.WAITING: json.dumps(pause)})
        self.not_before = now + pause_s
        if (virtual_clock := launcher.virtual_clock) is not None:
            virtual_clock.wake_at(self.not_before)
        return pause_s
