"""The door to MLflow. Others: `projects`, `commands.mlflow_run`, the checks of `doctor` and the models of `predict`.

store         Tracking, tracking_uri, require_answer   opens and finds runs; whether a server answers
run           Run, RunStatus, TROUBLE                  one run that is written; the errors that MLflow raises
recorded_job  RecordedRun, RecordedJob                 one run as MLflow has it, and the job that it records
schema        names of the tags of runs
figures       figures and tables of the validation rows, for a run's artifacts
models        the model of a job as a LoggedModel of MLflow
server        the server's version, and what an older one has no place for
registry      versions of registered models, and their aliases
in_job        logging inside a job
ui_view       the view of the table of runs in MLflow's UI
"""

from paretune.tracking.recorded_job import RecordedJob, RecordedRun
from paretune.tracking.run import TROUBLE, Run, RunStatus, without_password
from paretune.tracking.store import Tracking, require_answer, tracking_uri

__all__ = [
    "TROUBLE",
    "RecordedJob",
    "RecordedRun",
    "Run",
    "RunStatus",
    "Tracking",
    "require_answer",
    "tracking_uri",
    "without_password",
]
