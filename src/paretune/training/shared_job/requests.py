"""Messages to a running shared job: files in its folder, which on SageMaker come from objects in S3.

AWS can tell a running job nothing but to end. So requests to stop single trials, and the queues of a job that searches,
are objects below the prefix in STOP_REQUESTS, which a thread of the job looks for.
"""

import logging
import os
import threading
import time
from typing import Any

from paretune.core.errors import first_line
from paretune.specification.container import QUEUE_FILE, STOP_REQUESTS, JobFolder

S3_INTERVAL_S = 10.0  # seconds between two requests to S3, which cost 0.005 dollars per thousand
_log = logging.getLogger(__name__)


def relay_requests(folder: JobFolder, keys: set[str], *, searches: bool) -> None:
    """From now on write the files of the objects in S3; without the variable STOP_REQUESTS nothing is done.

    It goes on in a thread that ends with the process. If the job does not search, the thread also ends when all trials
    in `keys` were asked to stop, and if S3 refuses. A requested key is removed from `keys`; others may be added.
    """
    address = os.environ.get(STOP_REQUESTS, "")
    if address.startswith("s3://"):
        relay = _Relay(address, folder, keys)
        threading.Thread(target=relay.run, args=(searches,), daemon=True, name="stop requests").start()


class _Relay:
    def __init__(self, address: str, folder: JobFolder, keys: set[str]) -> None:
        self._bucket, _, self._prefix = address.removeprefix("s3://").partition("/")
        self._folder = folder
        self._keys = keys
        self._queue_version = ""  # the ETag of the object

    def run(self, searches: bool) -> None:
        s3: Any = None
        while self._keys or searches:
            try:
                if s3 is None:
                    import boto3

                    s3 = boto3.client("s3")
                self._look(s3)
            except Exception as error:  # no permission, no network, no boto3: trials go on to their ends
                _log.warning("no trial of this job can be stopped by itself: %s", first_line(error))
                if not searches:
                    return
            time.sleep(S3_INTERVAL_S)

    def _look(self, s3: Any) -> None:
        objects = s3.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix).get("Contents", ())
        versions = {entry["Key"].removeprefix(self._prefix): entry.get("ETag", "") for entry in objects}
        requested = versions.keys() & self._keys
        for key in requested:
            request = self._folder.of_member(key).stop_request
            request.parent.mkdir(parents=True, exist_ok=True)
            request.touch()
        self._keys -= requested
        version = versions.get(QUEUE_FILE, "")
        if version != self._queue_version:
            body = s3.get_object(Bucket=self._bucket, Key=f"{self._prefix}{QUEUE_FILE}")["Body"].read()
            draft = self._folder.queue.with_suffix(".new")
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(body)
            draft.replace(self._folder.queue)
            self._queue_version = version
