"""Inside a job: `python -m paretune.tracking.in_job /opt/ml` runs the training and logs it to MLflow as it runs.

Used when the tracking server is a SageMaker managed one, which a job may reach; everywhere else the launcher writes.
This process is the job's first: SIGTERM reaches it and is passed on. The training itself knows nothing of MLflow, and
an MLflow that does not answer costs a gap in the curves, which the launcher fills at the end.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import TrackingUnavailable
from paretune.spec.container import EventReader, JobFolder
from paretune.tracking import Run, Tracking

_INTERVAL_S = 2.0


def main(folder: JobFolder, clock: Clock) -> int:
    """The training's exit code. Only the first instance has events; the others just train."""
    command = [sys.executable, "-m", "paretune.training", str(folder.root)]
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())  # a first process without a handler does not hear it at all
    child = subprocess.Popen(command, env={**os.environ, "PARETUNE_STARTER": str(os.getpid())})
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    if asked.is_set():
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
    """The run that the launcher has opened; None when MLflow does not answer."""
    try:
        return Tracking(os.environ, clock).run(os.environ["MLFLOW_RUN_ID"])
    except TrackingUnavailable as error:
        print(f"paretune: {error}; the launcher will fill the run at the end", file=sys.stderr, flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main(JobFolder(Path(sys.argv[1])), SystemClock()))
