"""Requests to stop one trial of a shared job, from its file, its time limit, or S3."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from paretune.core.errors import first_line
from paretune.specification.container import STOP_REQUESTS, JobFolder
from paretune.training.stop_signal import StopRequest

FILE_INTERVAL_S = 0.25
"""Seconds between two checks for the file of a stop request, each of which takes a millisecond on some file systems."""
S3_INTERVAL_S = 10.0
"""Seconds between two requests to S3, which cost 0.005 dollars per thousand."""
_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds from an arbitrary start."""


class StopReason(Enum):
    """Why a trial stops before its end. If the processes of a job have several reasons, the first one here counts."""

    WHOLE_JOB = "all"
    TIME_LIMIT = "too long"
    REQUESTED = "asked"


class TrialStop:
    """The stop request of one trial: the job's, the file `request`, or `max_seconds` on `clock`.

    `reason` is the reason that came first; None while the trial goes on.
    """

    def __init__(self, job: StopRequest, request: Path, *, clock: Clock, max_seconds: float) -> None:
        self.reason: StopReason | None = None
        self._job = job
        self._request = request
        self._clock = clock
        self._until = clock() + max_seconds
        self._next_check = 0.0

    @property
    def stop_requested(self) -> bool:
        """Whether the trial must stop."""
        if self.reason is None:
            self.reason = self._check()
        return self.reason is not None

    def _check(self) -> StopReason | None:
        if self._job.stop_requested:
            return StopReason.WHOLE_JOB
        if self._clock() > self._until:
            return StopReason.TIME_LIMIT
        now = time.monotonic()
        if now < self._next_check:
            return None
        self._next_check = now + FILE_INTERVAL_S
        return StopReason.REQUESTED if self._request.exists() else None


def relay_stop_requests(folder: JobFolder, keys: Iterable[str]) -> None:
    """From now on write the stop request file of each trial in `keys` that has an object below STOP_REQUESTS in S3.

    AWS can tell a running job nothing but to end, so requests for single trials come through S3. Without the variable
    STOP_REQUESTS nothing is done. It goes on in a thread that ends with the process, or if S3 refuses.
    """
    address = os.environ.get(STOP_REQUESTS, "")
    if address.startswith("s3://"):
        threading.Thread(target=_relay, args=(address, folder, set(keys)), daemon=True, name="stop requests").start()


def _relay(address: str, folder: JobFolder, keys: set[str]) -> None:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    try:
        import boto3

        s3 = boto3.client("s3")
        while keys:
            objects = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
            requested = {entry["Key"].removeprefix(prefix) for entry in objects} & keys
            for key in requested:
                request = folder.of_member(key).stop_request
                request.parent.mkdir(parents=True, exist_ok=True)
                request.touch()
            keys -= requested
            time.sleep(S3_INTERVAL_S)
    except Exception as error:  # no permission, no network, no boto3: trials go on to their ends
        _log.warning("no trial of this job can be stopped by itself: %s", first_line(error))
