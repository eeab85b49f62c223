"""What containers print: into CloudWatch line by line, and numbers out of the lines."""

import json
import re
import time
from pathlib import Path
from typing import Any

GROUP = "/aws/sagemaker/TrainingJobs"
LARGEST_EVENT = 262_144  # bytes; longer lines become several events
BATCH = 500
LARGEST_BATCH = 900_000  # bytes, below the 1,048,576 of PutLogEvents with 26 for each event
LARGEST_ANSWER = 1_048_576  # bytes of GetLogEvents


class Metrics:
    """The last value of each metric that was found in the logs of a job."""

    def __init__(self, definitions: list[dict[str, str]], values: dict[str, dict[str, Any]]) -> None:
        self._patterns = [(definition["Name"], re.compile(definition["Regex"])) for definition in definitions]
        self._values = values

    def read(self, line: str) -> None:
        """Look for every metric in a line; what is not a number is passed over."""
        for name, pattern in self._patterns:
            for match in pattern.finditer(line):
                try:
                    value = float(match.group(1))
                except (ValueError, IndexError, TypeError):
                    continue
                self._values[name] = {"MetricName": name, "Value": value, "Timestamp": time.time()}


class LogTail:
    """Brings a growing file into one log stream."""

    def __init__(self, logs: Any, path: Path, stream: str, metrics: Metrics) -> None:
        self._logs = logs
        self._path = path
        self._stream = stream
        self._metrics = metrics
        self._read = 0
        self._rest = b""
        logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)

    def poll(self, *, final: bool = False) -> None:
        """Send the lines that were completed since the last call; with `final` also one that was not."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        self._read += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        if final and self._rest:
            lines.append(self._rest)
            self._rest = b""
        texts = [line.decode(errors="replace") for line in lines if line]
        for text in texts:
            self._metrics.read(text)
        self._send([part for line in lines for part in _parts(line)])

    def _send(self, messages: list[str]) -> None:
        batch: list[dict[str, Any]] = []
        size = 0
        now = int(time.time() * 1000)
        for message in messages:
            length = len(message.encode())
            if batch and (len(batch) == BATCH or size + length > LARGEST_BATCH):
                self._logs.put_log_events(logGroupName=GROUP, logStreamName=self._stream, logEvents=batch)
                batch, size = [], 0
            batch.append({"timestamp": now, "message": message})
            size += length + 26
        if batch:
            self._logs.put_log_events(logGroupName=GROUP, logStreamName=self._stream, logEvents=batch)


def _parts(line: bytes) -> list[str]:
    return [
        line[start : start + LARGEST_EVENT].decode(errors="replace") for start in range(0, len(line), LARGEST_EVENT)
    ]


def cut(request: dict[str, Any], answer: bytes) -> bytes:
    """An answer of GetLogEvents without what goes beyond its largest size; the tokens lead to the rest.

    moto's tokens are `b/<index of the first event>` and `f/<index of the last event>`.
    """
    content = json.loads(answer)
    events = content.get("events", [])
    from_the_end = not request.get("startFromHead") and not str(request.get("nextToken", "")).startswith("f/")
    retained, size = [], 0
    for event in reversed(events) if from_the_end else events:
        size += len(event["message"].encode()) + 26
        if retained and size > LARGEST_ANSWER:
            break
        retained.append(event)
    if len(retained) == len(events):
        return answer
    first = int(content["nextBackwardToken"][2:])
    if from_the_end:
        content["nextBackwardToken"] = f"b/{first + len(events) - len(retained):056d}"
        retained.reverse()
    else:
        content["nextForwardToken"] = f"f/{first + len(retained) - 1:056d}"
    return json.dumps(content | {"events": retained}).encode()
