"""A whole job recorded on SageMaker's managed MLflow, through AWS's own plug-in; its calls end at a loopback server."""

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.support.cloud import REPOSITORY, Cloud
from tests.support.processes import free_port, tracking_server

pytestmark = pytest.mark.slow

ARN = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/mine"
BUCKET = "mlflow-artifacts-of-ada"
ACTIONS = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket", "CreateMultipartUpload": "PutObject"}
ACTIONS |= {"UploadPart": "PutObject", "CompleteMultipartUpload": "PutObject"}


@contextmanager
def endpoint(server: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve as the endpoint of SageMaker's MLflow, and pass requests on to `server`. Yields its address and the calls.

    Each call is a path and the header with its signature.
    """
    calls: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            calls.append((self.path, self.headers.get("Authorization", "")))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = self.headers.get("Content-Type") or "application/json"
            request = urllib.request.Request(  # noqa: S310
                f"{server}{self.path}", body or None, {"Content-Type": kind}, method=self.command
            )
            try:
                with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                    status, text = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_port}", calls
    finally:
        served.shutdown()
        served.server_close()
        thread.join()


def test_a_job_is_recorded_on_managed_mlflow_with_the_permissions_of_the_pages(
    cloud: Cloud, workplace: Path, tiny_job: dict[str, object]
) -> None:
    cloud.client_of("s3").create_bucket(Bucket=BUCKET)
    port = free_port()
    with tracking_server(workplace, port) as _, endpoint(f"http://127.0.0.1:{port}") as (address, calls):
        store = MlflowClient(f"http://127.0.0.1:{port}")
        experiment = store.create_experiment("managed", artifact_location=f"s3://{BUCKET}/managed")
        cloud.environment |= {
            "MLFLOW_TRACKING_URI": ARN,
            "MLFLOW_EXPERIMENT_NAME": "managed",
            "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": address,
        }

        done = cloud.run(**tiny_job | {"instance_type": "local"})

        assert done.code == 0, done.text
        (run,) = store.search_runs([experiment])
        assert run.info.status == "FINISHED"
        assert {"f1", "cost_usd"} <= run.data.metrics.keys()
        assert "aws sagemaker create-presigned-mlflow-tracking-server-url" in done.text

    assert len(calls) > 5
    signed = re.compile(r"AWS4-HMAC-SHA256 Credential=\w+/\d+/us-east-1/sagemaker-mlflow/aws4_request, .+")
    assert [path for path, signature in calls if not signed.match(signature)] == []
    named = {ACTIONS.get(item.operation, item.operation) for item in cloud.emulator.requests() if BUCKET in item.path}
    page = (REPOSITORY / "docs" / "sagemaker.md").read_text()
    blocks = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (policy,) = [json.loads(block) for block in blocks if "MLFLOW-BUCKET" in block]
    allowed = {action.removeprefix("s3:") for statement in policy["Statement"] for action in statement["Action"]}
    assert "PutObject" in named
    assert named - {"CreateBucket"} <= allowed  # this test has created the bucket


def test_without_keys_a_command_for_managed_mlflow_says_to_sign_in(cloud: Cloud, workplace: Path) -> None:
    cloud.environment = {name: text for name, text in cloud.environment.items() if not name.startswith("AWS_")}
    nothing = str(workplace / "nothing")
    cloud.environment |= {
        "MLFLOW_TRACKING_URI": ARN,
        "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": "http://127.0.0.1:9",
        "HOME": nothing,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": nothing,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
    }

    done = cloud.run("report")

    assert done.code == 2, done.text
    assert "sign in, for example with `aws sso login` or AWS_PROFILE" in done.text
