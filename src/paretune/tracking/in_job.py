"""Run the training and log its events to MLflow from inside the job: `python -m paretune.tracking.in_job /opt/ml`.

Used with a SageMaker managed tracking server, which a job can reach; otherwise the launcher logs the events. This is
the container's first process: it forwards SIGTERM to the training. While MLflow does not answer, the curves have a
gap, which the launcher fills at the end.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import TrackingUnavailable
from paretune.specification.container import EventReader, JobFolder
from paretune.tracking import Run, Tracking

_INTERVAL_S = 2.0


def main(folder: JobFolder, clock: Clock) -> int:
    """Run the training; its exit code. Only the first instance has events to log."""
    command = [sys.executable, "-m", "paretune.training", str(folder.root)]
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())  # without a handler a first process ignores it
    child = subprocess.Popen(command, env={**os.environ, "PARETUNE_STARTER": str(os.getpid())})
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    if stop_requested.is_set():
        child.terminate()
    reader, run = EventReader(folder.events), None
    while True:
        code = child.poll()
        if run is None and folder.events.exists():
            run = _open_run(clock)
        if run is not None:
            run.log_events(list(reader.new()))
        if code is not None:
            return code if code >= 0 else 128 - code
        clock.sleep(_INTERVAL_S)


def _open_run(clock: Clock) -> Run | None:
    """The run that the launcher has created; None when MLflow does not answer."""
    try:
        return Tracking(os.environ, clock).run(os.environ["MLFLOW_RUN_ID"])
    except TrackingUnavailable as error:
        print(f"paretune: {error}; the launcher will fill the run at the end", file=sys.stderr, flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main(JobFolder(Path(sys.argv[1])), SystemClock()))
