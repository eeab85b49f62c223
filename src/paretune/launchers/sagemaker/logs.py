"""Reads a job's log in CloudWatch; each line is read once.

Every instance has a stream, and a new one after each restart: `JOB/algo-1-1763627000`. Events are lines of JSON that
the first process of our training writes on the first instance; all other lines are log. Programs that print without a
newline (bash, progress bars) may stand before an event on its line, and torchrun and mpirun put a prefix there. What
a project's command prints on the first instance is kept to be shown.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Any

from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.specification.container import Event, read_event

GROUP = "/aws/sagemaker/TrainingJobs"
_TRACE = re.compile(r"\++ ")
_KEPT_LINES = 200
_WAITING_LINES = 10_000  # printed by a command and not shown yet
_EVENT_START = '{"time"'
_AFTER_EVENT = re.compile(r"(?:\s|\x1b\[[0-9;]*m|#015)+$")  # CloudWatch's export writes a carriage return as #015
_FIRST_LINE = "paretune: "  # of a project's job; the SageMaker SDK prints the lines before it


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
        """The last lines of the instance that went silent first, where a failure began.

        Empty lines and the trace of the SDK's shell script (`set -x`) are left out.
        """
        streams = [name for name in self.streams if self._tails[name]]
        if not streams:
            return [self.unreadable] if self.unreadable else []
        latest: dict[str, str] = {}  # host to its newest stream
        for name in streams:
            latest[name.rpartition("-")[0]] = name
        first = min(latest.values(), key=lambda name: self._last_time[name])
        return [line for line in self._tails[first] if line.strip() and not _TRACE.match(line)][-lines:]
