"""The door to MLflow. Others: `projects`, `commands.mlflow_run` and the checks of `doctor`.

store         Tracking, tracking_uri, require_answer   opens and finds runs; whether a server answers
run           Run, RunStatus, TROUBLE                  one run that is written; the errors that MLflow raises
recorded_job  RecordedRun, RecordedJob                 one run as MLflow has it, and the job that it records
schema        names of the tags of runs
figures       figures and tables of the validation rows, for a run's artifacts
models        the model of a job as a LoggedModel of MLflow, and versions of registered models

Names are imported when they are first used: MLflow takes two seconds of CPU to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paretune.tracking.recorded_job import RecordedJob, RecordedRun
    from paretune.tracking.run import TROUBLE, Run, RunStatus
    from paretune.tracking.store import Tracking, is_absent_file, require_answer, tracking_uri

__all__ = ["TROUBLE", "RecordedJob", "RecordedRun", "Run", "RunStatus", "Tracking"]
__all__ += ["is_absent_file", "require_answer", "tracking_uri"]


def __getattr__(name: str) -> object:
    for module in ("recorded_job", "run", "store") if name in __all__ else ():
        if hasattr(loaded := import_module(f"{__name__}.{module}"), name):
            return getattr(loaded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
