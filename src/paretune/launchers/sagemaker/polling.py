"""One poller for all jobs of a process: a limited number of AWS calls a minute, however many jobs there are.

Calls are spent where they tell most: one ListTrainingJobs finds all jobs that have changed, each of those is described
once, and the remaining calls read logs, the one read longest ago first. Bursts are allowed, so a single job is seen
almost live. With a hundred jobs their curves come a little later, their ends do not. MLflow's runs may be waited for in
threads of their own, so a lock lets one thread ask at a time.
"""

import datetime
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from os.path import commonprefix
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied, is_missing, is_transient
from paretune.specification.container import Event, read_event

GROUP = "/aws/sagemaker/TrainingJobs"
_TRACE = re.compile(r"\++ ")
_KEPT_LINES = 200
_WAITING_LINES = 10_000  # printed by a command and not shown yet
_EVENT_START = '{"time"'
_AFTER_EVENT = re.compile(r"(?:\s|\x1b\[[0-9;]*m|#015)+$")  # CloudWatch's export writes a carriage return as #015
_FIRST_LINE = "paretune: "  # of a project's job; the SageMaker SDK prints the lines before it
CALLS_PER_MINUTE = 60  # AWS publishes no limit. Six a second have been throttled; one a second is polite
_BURST = 10.0
_INTERVAL_CALLS = 5.0  # between two lists, or two readings of one log: what 5 calls take, 5 s at 60 a minute
_DESCRIBE_EVERY_S = 300.0  # in case a list misses a change
_STREAMS_EVERY = 12.0  # intervals without a line: the job may have restarted, and write to another stream
_OVERLAP = datetime.timedelta(seconds=60)  # a list may be this old
_UNKNOWN_FOR_S = 60.0  # a new job may be unknown to AWS itself this long
DELETED = "Deleted"  # our TrainingJobStatus of a job that AWS no longer knows
_TERMINAL = {"Completed", "Failed", "Stopped", "Deleting", DELETED}


class LogReader:
    """Reads the streams of one job, a page at a time; the caller decides when a call may be made.

    Args:
        is_project: whether the job runs a project's command, whose lines are not events.
    """

    def __init__(self, client: Any, job_name: str, *, is_project: bool = False) -> None:
        self._client = client
        self._job_name = job_name
        self._is_project = is_project
        self._project_streams: set[str] = set()  # in which the project's command has started
        self._tokens: dict[str, str] = {}
        self._tails: dict[str, deque[str]] = {}
        self._last_time: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self.events: list[Event] = []  # the events read so far, in the order of the log
        # lines of a project's command on the first instance that are still to be shown.
        self.printed: deque[str] = deque(maxlen=_WAITING_LINES)
        self.unreadable = ""  # why this identity may not read logs; "" if it may

    def find_streams(self, *, all_pages: bool = False) -> None:
        """Look for new streams: with one call, which lists those of the first instance, or with `all_pages`."""
        options = {"logGroupName": GROUP, "logStreamNamePrefix": f"{self._job_name}/"}
        while True:
            page = self._ask(self._client.describe_log_streams, **options)
            if page is None:  # no job has ever run in this account and region
                return
            for stream in page["logStreams"]:
                self._tails.setdefault(stream["logStreamName"], deque(maxlen=_KEPT_LINES))
            if not all_pages or "nextToken" not in page:
                return
            options["nextToken"] = page["nextToken"]

    @property
    def streams(self) -> list[str]:
        """The streams listed so far, oldest restart first."""
        return sorted(self._tails, key=lambda name: (len(name), name))

    @property
    def main_streams(self) -> list[str]:
        """The streams of the first instance, which has the events."""
        return [name for name in self.streams if self._is_main(name)]

    @property
    def unread(self) -> list[str]:
        """The first instance's newest stream, and its older ones that have not been read to their end."""
        main = self.main_streams
        return [name for name in main if name == main[-1] or name not in self._exhausted]

    def read(self, stream: str) -> bool:
        """Read the new lines of one stream with one call; True if there may be more now."""
        token = self._tokens.get(stream)
        options = {"nextToken": token} if token else {}
        page = self._ask(
            self._client.get_log_events, logGroupName=GROUP, logStreamName=stream, startFromHead=True, **options
        )
        if page is None:  # the stream is gone, or its token has expired: it is read from its start next time
            self._tokens.pop(stream, None)
            self._exhausted.add(stream)
            return False
        self._tokens[stream] = page["nextForwardToken"]
        for entry in page["events"]:
            self._last_time[stream] = entry["timestamp"]
            self._take(stream, entry["message"].rstrip("\n"))
        if page["nextForwardToken"] != token:  # a page may be empty although others follow
            return True
        self._exhausted.add(stream)
        return False

    def _take(self, stream: str, line: str) -> None:
        before, start, rest = line.partition(_EVENT_START)
        may_be_event = not self._is_project and (not before or before.strip())  # we do not indent events
        event = read_event(_AFTER_EVENT.sub("", start + rest)) if may_be_event else None
        if event is not None:
            self.events.append(event)
            line = before
        if event is not None and not before:
            return
        self._tails[stream].append(line)
        if self._is_project and self._is_main(stream):
            if _FIRST_LINE in line:
                self._project_streams.add(stream)
            if stream in self._project_streams:
                self.printed.append(line)

    def _is_main(self, stream: str) -> bool:
        return stream.startswith(f"{self._job_name}/algo-1-")

    def _ask(self, call: Callable[..., dict[str, Any]], **request: Any) -> dict[str, Any] | None:
        try:
            return call(**request)
        except AWS_ERRORS as error:
            if is_denied(error):
                self.unreadable = explain(error, "read the log of a job")
            elif code(error) not in {"ResourceNotFoundException", "InvalidParameterException"}:
                raise
            return None

    def tail(self, lines: int) -> list[str]:
        """The last lines of the instance that went silent first, without empty ones and the shell script's trace."""
        streams = [name for name in self.streams if self._tails[name]]
        if not streams:
            return [self.unreadable] if self.unreadable else []
        latest: dict[str, str] = {}  # host to its newest stream
        for name in streams:
            latest[name.rpartition("-")[0]] = name
        first = min(latest.values(), key=lambda name: self._last_time[name])
        return [line for line in self._tails[first] if line.strip() and not _TRACE.match(line)][-lines:]


class CallBudget:
    """Limits calls to a rate and allows bursts of ten: a token bucket."""

    def __init__(self, clock: Clock, calls_per_minute: float) -> None:
        self.per_second = calls_per_minute / 60
        self._clock = clock
        self._left = _BURST
        self._refilled = clock.monotonic()

    def spend(self, *, must: bool = False) -> bool:
        """Count a call and return True if the rate allows it now, or if it `must` be made."""
        now = self._clock.monotonic()
        self._left = min(_BURST, self._left + (now - self._refilled) * self.per_second)
        self._refilled = now
        if self._left < 1 and not must:
            return False
        self._left -= 1
        return True

    def exhaust(self) -> None:
        """Allow no call for a while, because AWS is in trouble."""
        self._left = 0.0


class Watched:
    """The last description of one job, and its log."""

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
        end = self.description.get("TrainingEndTime") or self.description.get("LastModifiedTime")
        return float(end.timestamp()) if end and self.has_ended else clock.now()


class Poller:
    """Asks AWS about all jobs of this process.

    Args:
        calls_per_minute: the most calls, averaged over a minute.
    """

    def __init__(self, account: Account, clock: Clock, calls_per_minute: float = CALLS_PER_MINUTE) -> None:
        self._account = account
        self._clock = clock
        self._calls = CallBudget(clock, calls_per_minute)
        self._interval = _INTERVAL_CALLS / self._calls.per_second
        self._listed_at = float("-inf")
        self._listed_until: datetime.datetime | None = None  # in AWS's time: its clock and ours may differ
        self._jobs: dict[str, Watched] = {}
        self._lock = threading.RLock()

    def watch(self, name: str, description: Mapping[str, Any] | None, *, is_project: bool = False) -> Watched:
        """Start to poll a job; `description` is None for one that has just been created."""
        with self._lock:
            if name not in self._jobs:
                log = LogReader(self._account.client("logs"), name, is_project=is_project)
                self._jobs[name] = Watched(name, log, description, self._clock.monotonic())
            return self._jobs[name]

    def look_at_pool(self, name: str, *, now: bool = False) -> None:
        """Describe an ended job again for its warm pool, once an interval or `now`; raises LostContact."""
        with self._lock:
            job = self._jobs[name]
            is_due = self._clock.monotonic() - job.described_at >= self._interval
            if not (now or is_due) or not self._calls.spend(must=now):
                return
            job.described_at = self._clock.monotonic()
            try:
                job.description = self._account.client("sagemaker").describe_training_job(TrainingJobName=name)
            except AWS_ERRORS as error:
                if is_missing(error):  # how it ended stays known
                    job.description = {**job.description, "WarmPoolStatus": {"Status": DELETED}}
                elif not is_transient(error):
                    raise LostContact(f"{explain(error, f'look at the warm pool of {name}')}") from error

    def look(self) -> None:
        """Make the calls that the rate allows now, if any; raises LostContact if AWS refuses, and waits out trouble."""
        with self._lock:
            try:
                self._find_changes()
                for job in self._jobs.values():
                    is_old = self._clock.monotonic() - job.described_at > _DESCRIBE_EVERY_S
                    if (job.changed or is_old) and not job.has_ended:
                        if not self._calls.spend():
                            break
                        self._describe(job)
                self._read_logs()
            except AWS_ERRORS as error:
                if not is_transient(error):
                    names = ", ".join(name for name, job in self._jobs.items() if not job.has_ended)
                    raise LostContact(
                        f"{explain(error, 'look at the job')}\n{names} may still be running: sign in again, then "
                        f"`{command_line('sync')}`"
                    ) from error
                self._calls.exhaust()

    def drain(self, name: str) -> None:
        """Read the rest of an ended job's log. This happens once, so the rate does not limit it."""
        job = self._jobs[name]
        with self._lock, suppress(*AWS_ERRORS):  # the log is useful, but the results are what counts
            if job.drained or not job.has_ended:
                return
            job.log.find_streams(all_pages=True)
            for stream in job.log.streams:
                while job.log.read(stream):
                    pass
            job.drained = True

    def _find_changes(self) -> None:
        now = self._clock.monotonic()
        running = {name: job for name, job in self._jobs.items() if job.description and not job.has_ended}
        if running and now - self._listed_at >= self._interval and self._calls.spend():
            self._list(running)
            self._listed_at = now

    def _list(self, running: Mapping[str, Watched]) -> None:
        """Mark the jobs that have changed since the last list."""
        modified = [job.description["LastModifiedTime"] for job in running.values()]
        options: dict[str, Any] = {"LastModifiedTimeAfter": (self._listed_until or min(modified)) - _OVERLAP}
        prefix = commonprefix(list(running))[:63]  # noqa: RUF071  # of names; ListTrainingJobs takes 63 characters
        options |= {"MaxResults": 100} | ({"NameContains": prefix} if prefix else {})
        times = [self._listed_until] if self._listed_until else []
        pages = self._account.client("sagemaker").get_paginator("list_training_jobs").paginate(**options)
        for number, page in enumerate(pages):
            if number:  # the call of the first page is counted already
                self._calls.spend(must=True)
            for summary in page["TrainingJobSummaries"]:
                times.append(summary["LastModifiedTime"])
                if summary["TrainingJobName"] in running and _is_news(summary, running):
                    running[summary["TrainingJobName"]].changed = True
        self._listed_until = max(times, default=None)

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
            ending = {"TrainingJobStatus": DELETED, "SecondaryStatus": DELETED, "LastModifiedTime": noticed}
            job.description = {**job.description, **ending}
        job.described_at = now
        job.changed = False

    def _read_logs(self) -> None:
        """Read logs, the one read longest ago first, until the calls are spent; the next time goes on from there."""
        writing = [
            job
            for job in self._jobs.values()
            if not job.has_ended
            and not job.log.unreadable
            and job.description.get("SecondaryStatus") not in {None, "Starting", "Pending"}
        ]
        for job in sorted(writing, key=lambda job: job.read_at):
            now = self._clock.monotonic()
            if now - job.read_at < self._interval:
                return
            is_time = now - job.looked_for_streams_at > _STREAMS_EVERY * self._interval
            if not job.log.main_streams or (job.is_silent and is_time):
                if not self._calls.spend():
                    return
                job.log.find_streams()
                job.looked_for_streams_at = now
            for stream in job.log.unread:
                if not self._calls.spend():
                    return
                job.is_silent = not job.log.read(stream)  # the newest stream is read last
            job.read_at = now


def _is_news(summary: Mapping[str, Any], running: Mapping[str, Watched]) -> bool:
    """Whether a job has changed since it was described. Two changes may have the same time."""
    description = running[summary["TrainingJobName"]].description
    if summary["LastModifiedTime"] != description["LastModifiedTime"]:
        return bool(summary["LastModifiedTime"] > description["LastModifiedTime"])
    names = ("TrainingJobStatus", "SecondaryStatus")
    return any(summary.get(name, description.get(name)) != description.get(name) for name in names)
