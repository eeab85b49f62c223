"""Instances that stay after a job, for the next one like it."""

import threading
import time
from collections.abc import Iterable
from typing import Any

from tests.stand_ins.sagemaker.jobs import Job

_SAME = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
_SAME_REQUEST = ("RoleArn", "VpcConfig", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption")


class WarmPools:
    """The warm pool of each job that asked for one.

    A pool is kept after a job that ended, was stopped, or failed by a fault of its own (the user's guide of managed
    warm pools). Its clock can be moved.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Job, float]] = {}
        self._offset_s = 0.0
        self._lock = threading.RLock()

    def pass_time(self, seconds: float) -> None:
        """Let pools grow older."""
        with self._lock:
            self._offset_s += seconds
            self.refresh()

    def begin(self, job: Job) -> None:
        """A job starts: it takes a pool that fits, and may keep one later."""
        with self._lock:
            self.refresh()
            for previous, since in list(self._kept.values()):
                if _key(previous) == _key(job) and not job.is_spot:
                    self._close(previous, since, "Reused", job.name)
                    job.warm = True
                    break
            if _period(job):
                job.pool = {"Status": "InUse"}

    def fits(self, job: Job) -> bool:
        """Whether a pool is there for it."""
        self.refresh()
        with self._lock:
            return any(_key(previous) == _key(job) for previous, _ in self._kept.values())

    def end(self, job: Job, *, healthy: bool) -> None:
        """A job is about to end; `healthy` is False where its instances cannot be used again."""
        with self._lock:
            if job.pool is None:
                return
            if healthy and _period(job):
                self._kept[job.name] = (job, self._now())
                self._show(job, self._now(), "Available")
            else:
                job.pool = {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}

    def update(self, job: Job, period_s: int) -> None:
        """Change how long the pool of a job is kept; 0 ends it."""
        with self._lock:
            job.resources["KeepAlivePeriodInSeconds"] = period_s
            job.modified = time.time()
            self.refresh()

    def refresh(self) -> None:
        """Bring the status of every pool up to date."""
        with self._lock:
            for job, since in list(self._kept.values()):
                if self._now() - since >= _period(job):
                    self._close(job, since, "Terminated")
                else:
                    self._show(job, since, "Available")

    def held(self, jobs: Iterable[Job], kind: str) -> int:
        """Instances of a type in pools that jobs have or keep."""
        self.refresh()
        using = [job for job in jobs if job.pool is not None and job.pool["Status"] in ("InUse", "Available")]
        return sum(job.count for job in using if job.kind == kind)

    def _now(self) -> float:
        return time.time() + self._offset_s

    def _close(self, job: Job, since: float, status: str, reused_by: str | None = None) -> None:
        del self._kept[job.name]
        self._show(job, since, status)
        if reused_by is not None and job.pool is not None:
            job.pool["ReusedByJob"] = reused_by

    def _show(self, job: Job, since: float, status: str) -> None:
        retained_s = min(self._now() - since, _period(job)) if _period(job) else self._now() - since
        job.pool = {"Status": status, "ResourceRetainedBillableTimeInSeconds": int(retained_s)}


def _period(job: Job) -> int:
    return int(job.resources.get("KeepAlivePeriodInSeconds") or 0)


def _key(job: Job) -> list[Any]:
    return [job.resources.get(name) for name in _SAME] + [job.request.get(name) for name in _SAME_REQUEST]
