"""The log of one training job in CloudWatch, read with one cursor."""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.specification.container import Event, read_event

GROUP = "/aws/sagemaker/TrainingJobs"
_KEPT_LINES = 200
_WAITING_LINES = 10_000  # printed by a command and not shown yet
_OVERLAP_MS = 60_000  # lines of an instance may arrive as late as this
_LAST_MS = 600_000  # how far back the logs of further instances are read when the job has ended
_EVENT_START = '{"time"'
_AFTER_EVENT = re.compile(r"(?:\s|\x1b\[[0-9;]*m|#015)+$")  # CloudWatch's export writes a carriage return as #015
_TRACE = re.compile(r"\++ ")


class JobLog:
    """The lines and events of one job.

    Args:
        is_project: whether the job runs a project's command, whose lines are not events.
    """

    def __init__(self, client: Any, job_name: str, *, is_project: bool = False) -> None:
        self._client = client
        self._job_name = job_name
        self._is_project = is_project
        self._since_ms = 0  # of the first instance
        self._seen: dict[str, int] = {}  # id to time of lines that may come again
        self._tails: dict[str, deque[str]] = {}
        self._last_ms: dict[str, int] = {}
        self._is_drained = False
        self.events: list[Event] = []  # the events read and not taken yet, in the order of the log
        self.printed: deque[str] = deque(maxlen=_WAITING_LINES)  # a command's lines that are still to be shown
        self.unreadable = ""  # why this identity may not read logs; "" if it may

    def read(self) -> None:
        """Read what is new on the first instance, which has the events. Raises boto's errors, but a denied access."""
        for entry in self._entries(f"{self._job_name}/algo-1-", self._since_ms):
            if entry["eventId"] not in self._seen:
                self._seen[entry["eventId"]] = entry["timestamp"]
                self._take(entry, is_main=True)
        newest = max(self._seen.values(), default=0)
        self._since_ms = max(0, newest - _OVERLAP_MS)
        self._seen = {name: time for name, time in self._seen.items() if time >= self._since_ms}

    def drain(self, ended_at: float) -> None:
        """Read the rest of an ended job's log, and the last lines of its other instances. Raises boto's errors."""
        if self._is_drained:
            return
        self.read()
        for entry in self._entries(f"{self._job_name}/", max(0, int(ended_at * 1000) - _LAST_MS)):
            if not entry["logStreamName"].startswith(f"{self._job_name}/algo-1-"):
                self._take(entry, is_main=False)
        self._is_drained = True

    def tail(self, lines: int) -> list[str]:
        """The last lines of the instance that went silent first, without empty ones and a shell script's trace."""
        streams = sorted((name for name, tail in self._tails.items() if tail), key=lambda name: (len(name), name))
        if not streams:
            return [self.unreadable] if self.unreadable else []
        latest = {name.rpartition("-")[0]: name for name in streams}  # host to its newest stream
        first = min(latest.values(), key=lambda name: self._last_ms[name])
        return [line for line in self._tails[first] if line.strip() and not _TRACE.match(line)][-lines:]

    def _entries(self, prefix: str, since_ms: int) -> Iterator[dict[str, Any]]:
        if self.unreadable:
            return
        pages = self._client.get_paginator("filter_log_events")
        try:
            for page in pages.paginate(logGroupName=GROUP, logStreamNamePrefix=prefix, startTime=since_ms):
                yield from (entry for entry in page["events"] if entry["logStreamName"].startswith(prefix))
        except AWS_ERRORS as error:
            if is_denied(error):
                self.unreadable = explain(error, "read the log of a job")
            elif code(error) != "ResourceNotFoundException":  # no job has ever run in this account and region
                raise

    def _take(self, entry: dict[str, Any], *, is_main: bool) -> None:
        stream, line = entry["logStreamName"], entry["message"].rstrip("\n")
        self._last_ms[stream] = entry["timestamp"]
        before, start, rest = line.partition(_EVENT_START)
        may_be_event = is_main and not self._is_project and (not before or before.strip())  # we do not indent events
        event = read_event(_AFTER_EVENT.sub("", start + rest)) if may_be_event else None
        if event is not None:
            self.events.append(event)
            line = before
        if line or event is None:
            self._tails.setdefault(stream, deque(maxlen=_KEPT_LINES)).append(line)
        if self._is_project and is_main:
            self.printed.append(line)
