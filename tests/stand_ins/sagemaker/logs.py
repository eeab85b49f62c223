"""What containers print, into CloudWatch line by line."""

import time
from pathlib import Path
from typing import Any

GROUP = "/aws/sagemaker/TrainingJobs"
LARGEST_EVENT = 262_144  # bytes; longer lines become several events
BATCH = 500
LARGEST_BATCH = 900_000  # bytes, below the 1,048,576 of PutLogEvents with 26 for each event


class LogTail:
    """Brings a growing file into one log stream."""

    def __init__(self, logs: Any, path: Path, stream: str) -> None:
        self._logs = logs
        self._path = path
        self._stream = stream
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
