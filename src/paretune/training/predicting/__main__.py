"""Predicts the rows of a file in a separate process, so that the launching process does not import torch.

Reads a JSON object (`Request`), writes events with the number of rows done, and a JSON object with the metrics or with
all faults.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.specification.container import Event, write_json
from paretune.training.rows import hub
from paretune.training.stop_signal import StopSignal

_EVENT_INTERVAL_S = 10.0


def main(arguments: list[str]) -> int:
    """Exit code 0, or 2 with `faults` in the answer; `arguments` are the files of request, answer and events."""
    request, answer, events = (Path(argument) for argument in arguments)
    StopSignal().watch_parent()
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")  # or `datasets` reports every local file it reads
    logging.disable(logging.WARNING)
    try:
        fields = json.loads(request.read_text(encoding="utf-8"))
        hub.go_offline_if_unreachable()
        # Imported here because the Hugging Face libraries read HF_HUB_OFFLINE when they are imported.
        from paretune.training.predicting.predict import Request, predict

        write_json(answer, predict(Request(**fields), ProgressEvents(events)))
    except BadInput as error:
        write_json(answer, {"faults": error.faults})
        return 2
    return 0


class ProgressEvents:
    """Appends an event with the number of rows done, at most every ten seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = time.monotonic() + _EVENT_INTERVAL_S

    def __call__(self, done: int, total: int) -> None:
        """Write the event if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVENT_INTERVAL_S
        event = Event(time=time.time(), step=done, message=f"{done:,} of {total:,} rows predicted")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(event.line() + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
