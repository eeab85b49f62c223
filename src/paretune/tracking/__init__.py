"""The only door to MLflow.

Public names: `Tracking` (the store: opens runs, finds runs), `Run` and `RunStatus` (one run that is written),
`RecordedRun` (one run as MLflow has it), `RecordedJob` (the job that it records), `TROUBLE` (what MLflow raises),
`tracking_uri`, `require_answer` (that a server answers), `without_password`; and the modules `schema` (names of tags),
`registry` (versions of models, aliases), `figures` (what a run shows beside its numbers), `in_job` (logging inside a
job), `store_check` (whether the store can be used, and what to do where it cannot).
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
