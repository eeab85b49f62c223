"""Brings requests to stop single trials from S3 into a job on SageMaker: AWS tells a running job nothing but to end."""

import logging
import os
import threading
import time
from collections.abc import Iterable

from paretune.core.errors import first_line
from paretune.specification.container import STOP_REQUESTS, JobFolder

LOOK_EVERY_S = 10.0
"""Seconds between two looks: a request of S3 each, 0.005 dollars for a thousand."""
_log = logging.getLogger(__name__)


def relay_stop_requests(folder: JobFolder, keys: Iterable[str]) -> None:
    """From now on write the stop request of each trial in `keys` that has an object at the address STOP_REQUESTS.

    Without that variable nothing is done. It goes on in a thread that ends with the process, or where S3 refuses.
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
            found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
            asked = {entry["Key"].removeprefix(prefix) for entry in found} & keys
            for key in asked:
                request = folder.of_member(key).stop_request
                request.parent.mkdir(parents=True, exist_ok=True)
                request.touch()
            keys -= asked
            time.sleep(LOOK_EVERY_S)
    except Exception as error:  # no permission, no network, no boto3: trials go on to their ends
        _log.warning("no trial of this job can be stopped by itself: %s", first_line(error))
