"""The only door to MLflow: the store (`Tracking`) and one recorded run in it (`Run`)."""

from paretune.tracking.run import Run, RunStatus, without_password
from paretune.tracking.store import RecordedRun, Tracking, tracking_uri

__all__ = ["RecordedRun", "Run", "RunStatus", "Tracking", "tracking_uri", "without_password"]
