"""The warm pool of a training job: instances that SageMaker keeps after it, billed until they are given back."""

from paretune.core.clock import Clock
from paretune.core.errors import LostContact
from paretune.launchers.base import WarmPool, WarmPoolStatus
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, explain
from paretune.launchers.sagemaker.polling import DELETED, Poller, Watched

_KEPT = {"InUse", "Available"}
"""WarmPoolStatus of instances that are billed (API reference, read 2026-11-21)."""


class SageMakerWarmPool(WarmPool):
    """The warm pool of one training job, as WarmPoolStatus and ResourceRetainedBillableTimeInSeconds describe it."""

    def __init__(self, job: Watched, account: Account, poller: Poller, clock: Clock) -> None:
        self._job = job
        self._account = account
        self._poller = poller
        self._clock = clock
        self._keep_alive_s = 0.0  # as requested; AWS says 0 once the instances are given back

    def status(self) -> WarmPoolStatus | None:
        """The status, asked again while the instances are kept.

        The pool of a job that AWS has deleted counts as kept for the whole time that was requested.
        """
        status = self._last_status()
        if status is not None and status.is_kept:
            self._poller.look_at_pool(self._job.name)
            status = self._last_status()
        return status

    def release(self) -> None:
        """Set the keep-alive period to 0 with UpdateTrainingJob, if the instances are kept."""
        status, name = self._last_status(), self._job.name
        if status is None or not status.is_kept:
            return
        try:
            self._account.client("sagemaker").update_training_job(
                TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        except AWS_ERRORS as error:
            self._poller.look_at_pool(name, now=True)  # it may have been reused, or have expired, this moment
            status = self._last_status()
            if status is None or not status.is_kept:
                return
            raise LostContact(
                f"{explain(error, f'give back the warm pool of {name}')}\nits instances are billed for up to "
                f"{status.most_seconds / 60:g} minutes after it: `aws sagemaker update-training-job "
                f"--training-job-name {name} --resource-config KeepAlivePeriodInSeconds=0 --region "
                f"{self._account.region}`"
            ) from error
        self._poller.look_at_pool(name, now=True)

    def _last_status(self) -> WarmPoolStatus | None:
        """The status as AWS last described it; None without a keep-alive period, or if the job never started."""
        description = self._job.description
        requested_s = float(description.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds") or 0.0)
        self._keep_alive_s = max(self._keep_alive_s, requested_s)
        if not self._keep_alive_s or not description.get("TrainingStartTime"):
            return None
        pool = description.get("WarmPoolStatus", {})
        status = str(pool.get("Status", "Available"))
        seconds, is_kept = float(pool.get("ResourceRetainedBillableTimeInSeconds", 0.0)), status in _KEPT
        if status == DELETED:
            seconds = self._keep_alive_s
            is_kept = self._clock.now() < self._job.ended_at(self._clock) + self._keep_alive_s
        return WarmPoolStatus(
            status=status,
            is_kept=is_kept,
            seconds=seconds,
            most_seconds=self._keep_alive_s,
            reused_by=str(pool.get("ReusedByJob", "")),
        )
