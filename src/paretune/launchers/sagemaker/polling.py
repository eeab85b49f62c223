"""One poller for all jobs of a process: a bounded number of AWS calls a minute, however many jobs there are.

Calls are spent where they tell most: one ListTrainingJobs finds all jobs that have changed, each of those is described
once, and what is left reads logs, the job read longest ago first. A burst is allowed, so that a single job is seen
almost live; with a hundred jobs their curves come a little later, never their ends. MLflow's runs may be waited for in
threads of their own, so one thread at a time asks.
"""

import datetime
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from os.path import commonprefix
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, explain, is_missing, is_transient
from paretune.launchers.sagemaker.logs import LogReader

CALLS_PER_MINUTE = 60
"""AWS publishes no limit for these calls; half a dozen a second were seen to be throttled. One a second is polite."""
_BURST = 10.0
_INTERVAL_CALLS = 5.0  # between two lists, or two readings of one log: what 5 calls take, 5 s at 60 a minute
_DESCRIBE_EVERY_S = 300.0  # should a list ever miss a change
_STREAMS_EVERY = 12.0  # intervals without a word: the job may have been restarted, and speak in another stream
_OVERLAP = datetime.timedelta(seconds=60)  # a list may be as old as this
_UNKNOWN_FOR_S = 60.0  # that long a new job may be unknown to AWS itself
DELETED = "Deleted"
"""TrainingJobStatus, as we call it, of a job that AWS no longer knows."""
_TERMINAL = {"Completed", "Failed", "Stopped", "Deleting", DELETED}


class Watched:
    """What the poller knows of one job: its last description and its log."""

    def __init__(self, name: str, log: LogReader, description: Mapping[str, Any] | None, now: float) -> None:
        self.name = name
        self.log = log
        self.description: Mapping[str, Any] = description or {}
        self.changed = description is None
        self.since = now
        self.described_at = now
        self.read_at = float("-inf")
        self.looked_for_streams_at = float("-inf")
        self.is_silent = True
        self.drained = False

    @property
    def has_ended(self) -> bool:
        """Whether SageMaker says that the job has ended."""
        return self.description.get("TrainingJobStatus") in _TERMINAL

    def ended_at(self, clock: Clock) -> float:
        """When the job ended, in seconds since the epoch; now, while it has not."""
        ended = self.description.get("TrainingEndTime") or self.description.get("LastModifiedTime")
        return float(ended.timestamp()) if ended and self.has_ended else clock.now()


class Poller:
    """Asks AWS about all jobs of this process, in one place.

    Args:
        calls_per_minute: never more than this, averaged over a minute.
    """

    def __init__(self, account: Account, clock: Clock, calls_per_minute: float = CALLS_PER_MINUTE) -> None:
        self._account = account
        self._clock = clock
        self._rate = calls_per_minute / 60
        self._interval = _INTERVAL_CALLS / self._rate
        self._budget = _BURST
        self._refilled = clock.monotonic()
        self._listed_at = float("-inf")
        self._listed_until: datetime.datetime | None = None  # in AWS's time: its clock and ours may differ
        self._jobs: dict[str, Watched] = {}
        self._lock = threading.RLock()

    def watch(self, name: str, description: Mapping[str, Any] | None, *, is_project: bool = False) -> Watched:
        """Begin to ask about a job; `description` is None for one that has just been created."""
        with self._lock:
            if name not in self._jobs:
                log = LogReader(self._account.client("logs"), name, is_project=is_project)
                self._jobs[name] = Watched(name, log, description, self._clock.monotonic())
            return self._jobs[name]

    def look_at_pool(self, name: str, *, now: bool = False) -> None:
        """Describe a job that has ended anew, for its warm pool: once an interval as the rate allows, or `now`.

        Raises:
            LostContact: AWS refuses. Passing trouble is waited out.
        """
        with self._lock:
            job = self._jobs[name]
            self._refill()
            is_time = self._clock.monotonic() - job.described_at >= self._interval and self._budget >= 1
            if not (is_time or now):
                return
            self._budget -= 1
            job.described_at = self._clock.monotonic()
            try:
                job.description = self._account.client("sagemaker").describe_training_job(TrainingJobName=name)
            except AWS_ERRORS as error:
                if is_missing(error):  # how it ended stays known
                    job.description = {**job.description, "WarmPoolStatus": {"Status": DELETED}}
                elif not is_transient(error):
                    raise LostContact(f"{explain(error, f'look at the warm pool of {name}')}") from error

    def look(self) -> None:
        """Spend what the rate allows now; returns at once when that is nothing. Passing trouble is waited out."""
        with self._lock:
            self._refill()
            try:
                self._find_changes()
                for job in self._jobs.values():
                    old = self._clock.monotonic() - job.described_at > _DESCRIBE_EVERY_S
                    if (job.changed or old) and not job.has_ended and not self._spend(partial(self._describe, job)):
                        break
                self._read_logs()
            except AWS_ERRORS as error:
                if not is_transient(error):
                    names = ", ".join(name for name, job in self._jobs.items() if not job.has_ended)
                    raise LostContact(
                        f"{explain(error, 'look at the job')}\n{names} may still be running: sign in again, then "
                        f"`{command_line('sync')}`"
                    ) from error
                self._budget = 0.0  # and come back later

    def drain(self, name: str) -> None:
        """Read the rest of the log of a job that has ended: not bounded by the rate, for it happens once."""
        job = self._jobs[name]
        with self._lock, suppress(*AWS_ERRORS):  # the log helps; the results, which are read next, count
            if job.drained or not job.has_ended:
                return
            job.log.find_streams(all_pages=True)
            for stream in job.log.streams:
                while job.log.read(stream):
                    pass
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
        running = {name: job for name, job in self._jobs.items() if job.description and not job.has_ended}
        if running and now - self._listed_at >= self._interval and self._spend(lambda: self._list(running)):
            self._listed_at = now

    def _list(self, running: Mapping[str, Watched]) -> None:
        """Mark the jobs that have changed since the last list."""
        known = [job.description["LastModifiedTime"] for job in running.values()]
        options: dict[str, Any] = {"LastModifiedTimeAfter": (self._listed_until or min(known)) - _OVERLAP}
        prefix = commonprefix(list(running))[:63]  # noqa: RUF071  # of names; ListTrainingJobs takes 63 characters
        options |= {"MaxResults": 100} | ({"NameContains": prefix} if prefix else {})
        seen = []
        while True:
            page = self._account.client("sagemaker").list_training_jobs(**options)
            for summary in page["TrainingJobSummaries"]:
                seen.append(summary["LastModifiedTime"])
                if summary["TrainingJobName"] in running and _is_news(summary, running):
                    running[summary["TrainingJobName"]].changed = True
            if "NextToken" not in page:
                break
            options["NextToken"] = page["NextToken"]
            self._budget -= 1
        self._listed_until = max([*seen, *([self._listed_until] if self._listed_until else [])], default=None)

    def _describe(self, job: Watched) -> None:
        now = self._clock.monotonic()
        try:
            job.description = self._account.client("sagemaker").describe_training_job(TrainingJobName=job.name)
        except AWS_ERRORS as error:
            if not is_missing(error):
                raise
            if not job.description and now - job.since < _UNKNOWN_FOR_S:
                return
            noticed = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
            gone = {"TrainingJobStatus": DELETED, "SecondaryStatus": DELETED, "LastModifiedTime": noticed}
            job.description = {**job.description, **gone}
        job.described_at = now
        job.changed = False

    def _read_logs(self) -> None:
        talking = [
            job
            for job in self._jobs.values()
            if not job.has_ended
            and not job.log.unreadable
            and job.description.get("SecondaryStatus") not in {None, "Starting", "Pending"}
        ]
        for job in sorted(talking, key=lambda job: job.read_at):
            now = self._clock.monotonic()
            if now - job.read_at < self._interval:
                return
            is_time = now - job.looked_for_streams_at > _STREAMS_EVERY * self._interval
            if not job.log.main_streams or (job.is_silent and is_time):
                if not self._spend(job.log.find_streams):
                    return
                job.looked_for_streams_at = now
            for stream in job.log.unread:
                if not self._spend(partial(self._read, job, stream)):
                    return  # and go on with this job
            job.read_at = now

    def _read(self, job: Watched, stream: str) -> None:
        job.is_silent = not job.log.read(stream)  # the newest stream is read last


def _is_news(summary: Mapping[str, Any], running: Mapping[str, Watched]) -> bool:
    """Whether a job has changed since it was described; two changes may bear the same time."""
    known = running[summary["TrainingJobName"]].description
    if summary["LastModifiedTime"] != known["LastModifiedTime"]:
        return bool(summary["LastModifiedTime"] > known["LastModifiedTime"])
    shown = ("TrainingJobStatus", "SecondaryStatus")
    return any(summary.get(name, known.get(name)) != known.get(name) for name in shown)
