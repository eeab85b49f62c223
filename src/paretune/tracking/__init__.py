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
    from paretune.tracking.recorded_job import RecordedJob as RecordedJob
    from paretune.tracking.recorded_job import RecordedRun as RecordedRun
    from paretune.tracking.run import TROUBLE as TROUBLE
    from paretune.tracking.run import Run as Run
    from paretune.tracking.run import RunStatus as RunStatus
    from paretune.tracking.store import Tracking as Tracking
    from paretune.tracking.store import is_absent_file as is_absent_file
    from paretune.tracking.store import require_answer as require_answer
    from paretune.tracking.store import tracking_uri as tracking_uri

_MODULES = {
    **dict.fromkeys(("RecordedJob", "RecordedRun"), "recorded_job"),
    **dict.fromkeys(("TROUBLE", "Run", "RunStatus"), "run"),
    **dict.fromkeys(("Tracking", "is_absent_file", "require_answer", "tracking_uri"), "store"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
