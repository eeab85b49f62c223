"""The door to MLflow. Others: `projects`, `commands.mlflow_run`, the checks of `doctor` and the models of `predict`.

store         Tracking, tracking_uri, require_answer   opens and finds runs; whether a server answers
run           Run, RunStatus, TROUBLE                  one run that is written; the errors that MLflow raises
recorded_job  RecordedRun, RecordedJob                 one run as MLflow has it, and the job that it records
history       History, Runs                            runs for readers; opens the store only if it can hold any
schema        names of the tags of runs
figures       figures and tables of the validation rows, for a run's artifacts
models        the model of a job as a LoggedModel of MLflow, where the server's version has a place for it
registry      versions of registered models, and their aliases
in_job        logging inside a job
ui_view       the view of the table of runs in MLflow's UI

Names are imported when they are first used: MLflow takes two seconds of CPU to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paretune.tracking.history import History, Runs
    from paretune.tracking.recorded_job import RecordedJob, RecordedRun
    from paretune.tracking.run import TROUBLE, Run, RunStatus
    from paretune.tracking.store import Tracking, is_absent_file, require_answer, tracking_uri

__all__ = [
    "TROUBLE",
    "History",
    "RecordedJob",
    "RecordedRun",
    "Run",
    "RunStatus",
    "Runs",
    "Tracking",
    "is_absent_file",
    "require_answer",
    "tracking_uri",
]
_MODULES = {
    "history": ("History", "Runs"),
    "recorded_job": ("RecordedJob", "RecordedRun"),
    "run": ("TROUBLE", "Run", "RunStatus"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "store")
    return getattr(import_module(f"{__name__}.{module}"), name)
