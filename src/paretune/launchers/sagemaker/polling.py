"""One poller for all jobs of a process: a bounded number of AWS calls a minute, however many jobs there are.

Calls are spent where they tell most: one ListTrainingJobs finds all jobs that have changed, each of those is described
once, and what is left reads logs, the job read longest ago first. A burst is allowed, so that a single job is seen
almost live; with a hundred jobs their curves come a little later, never their ends.
"""

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from paretune.clock import Clock
from paretune.errors import LostSight
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.logs import LogReader
from paretune.launchers.sagemaker.trouble import AWS_ERRORS, explain, is_passing

CALLS_PER_MINUTE = 60
"""AWS publishes no limit for these calls; half a dozen a second were seen to be throttled. One a second is polite."""
_BURST = 10.0
_LIST_EVERY_S = 5.0
_DESCRIBE_EVERY_S = 300.0  # should a list ever miss a change
_OVERLAP_S = 60.0  # AWS's clock and ours may differ by so much
_TERMINAL = {"Completed", "Failed", "Stopped"}


class Watched:
    """What the poller knows of one job: its last description and its log."""

    def __init__(self, name: str, log: LogReader, description: Mapping[str, Any] | None) -> None:
        self.name = name
        self.log = log
        self.description: Mapping[str, Any] = description or {}
        self.changed = description is None
        self.described_at = float("inf")
        self.read_at = float("-inf")
        self.looked_for_streams_at = float("-inf")
        self.drained = False

    @property
    def has_ended(self) -> bool:
        """Whether SageMaker says that the job has ended."""
        return self.description.get("TrainingJobStatus") in _TERMINAL


class Poller:
    """Asks AWS about all jobs of this process, in one place.

    Args:
        account: the AWS account.
        clock: for the rate.
        calls_per_minute: never more than this, averaged over a minute.
    """

    def __init__(self, account: Account, clock: Clock, calls_per_minute: float = CALLS_PER_MINUTE) -> None:
        self._account = account
        self._clock = clock
        self._rate = calls_per_minute / 60
        self._interval = min(_LIST_EVERY_S, _BURST / self._rate)
        self._budget = _BURST
        self._refilled = clock.monotonic()
        self._listed_at = float("-inf")
        self._jobs: dict[str, Watched] = {}

    def watch(self, name: str, description: Mapping[str, Any] | None) -> Watched:
        """Begin to ask about a job; None for one that has just been created."""
        if name not in self._jobs:
            self._jobs[name] = Watched(name, LogReader(self._account.client("logs"), name), description)
        return self._jobs[name]

    def look(self) -> None:
        """Spend what the rate allows now; returns at once when that is nothing. Passing trouble is waited out."""
        self._refill()
        try:
            self._find_changes()
            for job in self._jobs.values():
                old = self._clock.monotonic() - job.described_at > _DESCRIBE_EVERY_S
                if (job.changed or old) and not job.has_ended and not self._spend(partial(self._describe, job)):
                    break
            self._read_logs()
        except AWS_ERRORS as error:
            if not is_passing(error):
                names = ", ".join(name for name, job in self._jobs.items() if not job.has_ended)
                raise LostSight(
                    f"{explain(error, 'look at the job')}\n{names} may still be running: sign in again, then "
                    "`mlflow run . -e sync`"
                ) from error
            self._budget = 0.0  # and come back later

    def drain(self, name: str) -> None:
        """Read the rest of an ended job's log: not bounded by the rate, for it happens once."""
        job = self._jobs[name]
        if job.drained:
            return
        try:
            job.log.find_streams()
            for stream in job.log.streams:
                while job.log.read(stream):
                    pass
        except AWS_ERRORS as error:
            if not is_passing(error):
                raise
        job.drained = True

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._budget = min(_BURST, self._budget + (now - self._refilled) * self._rate)
        self._refilled = now

    def _spend(self, call: Callable[[], object]) -> bool:
        """Make one call, if the budget has one left."""
        if self._budget < 1:
            return False
        self._budget -= 1
        call()
        return True

    def _find_changes(self) -> None:
        now = self._clock.monotonic()
        running = {name for name, job in self._jobs.items() if not job.has_ended}
        if running and now - self._listed_at >= self._interval and self._spend(lambda: self._list(running)):
            self._listed_at = now

    def _list(self, running: set[str]) -> None:
        since = self._clock.now() - _OVERLAP_S - 2 * self._interval
        options: dict[str, Any] = {
            "NameContains": _common_prefix(running),
            "LastModifiedTimeAfter": datetime.datetime.fromtimestamp(since, datetime.UTC),
            "MaxResults": 100,
        }
        while True:
            page = self._account.client("sagemaker").list_training_jobs(**options)
            for summary in page["TrainingJobSummaries"]:
                job = self._jobs.get(summary["TrainingJobName"])
                known = job.description.get("LastModifiedTime") if job is not None else None
                if job is not None and (known is None or summary["LastModifiedTime"] > known):
                    job.changed = True
            if "NextToken" not in page:
                return
            options["NextToken"] = page["NextToken"]
            self._budget -= 1

    def _describe(self, job: Watched) -> None:
        job.description = self._account.client("sagemaker").describe_training_job(TrainingJobName=job.name)
        job.described_at = self._clock.monotonic()
        job.changed = False

    def _read(self, job: Watched, stream: str) -> bool:
        self._budget -= 1
        return job.log.read(stream)

    def _read_logs(self) -> None:
        talking = [
            job
            for job in self._jobs.values()
            if not job.has_ended and job.description.get("SecondaryStatus") not in {None, "Starting", "Pending"}
        ]
        for job in sorted(talking, key=lambda job: job.read_at):
            now = self._clock.monotonic()
            if now - job.read_at < self._interval:
                return
            if not job.log.main_streams or now - job.looked_for_streams_at > 12 * self._interval:
                if not self._spend(job.log.find_streams):
                    return
                job.looked_for_streams_at = now
            for stream in job.log.unread:
                while self._budget >= 1 and self._read(job, stream):
                    pass
            job.read_at = now


def _common_prefix(names: set[str]) -> str:
    """What all names begin with, as far as ListTrainingJobs takes it."""
    first, last = min(names), max(names)
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same][:63]
