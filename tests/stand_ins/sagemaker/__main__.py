"""`python -m tests.stand_ins.sagemaker SETTINGS`: serve until standard input is closed.

SETTINGS is a file that `Settings.write` wrote. The address goes to standard output when everything is ready. Standard
input is the life line: it closes when the starting process ends, however that comes about.
"""

import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests.stand_ins.sagemaker.forward import Forwarder
from tests.stand_ins.sagemaker.logs import GROUP
from tests.stand_ins.sagemaker.settings import ROLE_NAME, Settings
from tests.stand_ins.sagemaker.storage import Store, client
from tests.stand_ins.sagemaker.training import Workshop
from tests.stand_ins.sagemaker.warm_pools import WarmPools

_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


def _furnish(settings: Settings, environment: dict[str, str], s3: Any, logs: Any) -> None:
    """What an account has before its first job."""
    workspace = {} if settings.region == "us-east-1" else {"LocationConstraint": settings.region}
    options = {"CreateBucketConfiguration": workspace} if workspace else {}
    s3.create_bucket(Bucket=settings.bucket, **options)
    logs.create_log_group(logGroupName=GROUP)
    client("iam", environment).create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=json.dumps(_TRUST))


def main() -> None:
    """Be the service."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    from tests.stand_ins.sagemaker.service import Service

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    settings = Settings.read(Path(sys.argv[1]))
    server = make_server("127.0.0.1", settings.port, lambda *_: [], threaded=True, request_handler=MotoRequestHandler)
    url = f"http://127.0.0.1:{server.port}"
    environment = settings.environment(url)
    os.environ.update(environment)
    s3, logs = client("s3", environment), client("logs", environment)
    shop = Workshop(settings, url, Store(s3), logs, Forwarder(), WarmPools(), {})
    service = Service(shop)
    server.app = service
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    _furnish(settings, environment, s3, logs)
    print(url, flush=True)
    sys.stdin.read()
    service.jobs.abandon()
    os._exit(0)


if __name__ == "__main__":
    main()
