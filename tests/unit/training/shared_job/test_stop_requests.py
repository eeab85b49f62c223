"""Requests to stop single trials, from an S3 that is played here into the folder of a job."""

import io
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paretune.specification.container import STOP_REQUESTS, JobFolder, TrialQueue
from paretune.training.shared_job import requests
from tests.processes import wait_until


class Bucket:
    """S3 with objects that come over time; with none left to show it refuses."""

    def __init__(self, *output: list[str]) -> None:
        self.shown = list(output)
        self.asked: list[dict[str, str]] = []
        self.read: list[str] = []

    def list_objects_v2(self, **parameters: str) -> dict[str, Any]:
        self.asked.append(parameters)
        if not self.shown:
            raise PermissionError("AccessDenied")
        keys = self.shown.pop(0)
        return {"Contents": [{"Key": key.partition("=")[0], "ETag": key.partition("=")[2]} for key in keys]}

    def get_object(self, **parameters: str) -> dict[str, Any]:
        self.read.append(parameters["Key"])
        queue = TrialQueue(version=len(self.read) + 1)
        return {"Body": io.BytesIO(json.dumps(queue.as_json()).encode())}


def relayed(monkeypatch: pytest.MonkeyPatch, folder: JobFolder, bucket: Bucket) -> None:
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda service: bucket))
    monkeypatch.setattr(requests, "S3_INTERVAL_S", 0.001)
    monkeypatch.setenv(STOP_REQUESTS, "s3://mine/jobs/job/stop/")
    requests.relay_requests(folder, {"a", "b"}, searches=False)
    wait_until(
        lambda: "stop requests" not in {item.name for item in threading.enumerate()}, within_s=10, what="its end"
    )


def test_a_trial_is_asked_to_stop_when_its_object_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, bucket = JobFolder(tmp_path), Bucket([], ["jobs/job/stop/b"], ["jobs/job/stop/b", "jobs/job/stop/odd"])
    relayed(monkeypatch, folder, bucket)

    assert folder.of_member("b").stop_request.exists()
    assert not folder.of_member("a").stop_request.exists()
    assert not (tmp_path / "input" / "members" / "odd").exists()
    assert bucket.asked[0] == {"Bucket": "mine", "Prefix": "jobs/job/stop/"}


def test_it_ends_when_all_are_asked_and_when_s3_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = Bucket(["jobs/job/stop/a", "jobs/job/stop/b"], [])
    relayed(monkeypatch, JobFolder(tmp_path), every)
    assert len(every.asked) == 1
    assert not caplog.records

    relayed(monkeypatch, JobFolder(tmp_path / "other"), Bucket())
    assert "no trial of this job can be stopped by itself: AccessDenied" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_that_searches_reads_each_queue_once_although_s3_refuses_in_between(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix, folder = "jobs/job/stop/", JobFolder(tmp_path)
    bucket = Bucket([], [f"{prefix}queue.json=1"], [f"{prefix}queue.json=1"], [f"{prefix}queue.json=2", f"{prefix}b"])
    listed = bucket.list_objects_v2

    def refusing(**parameters: str) -> dict[str, Any]:
        if len(bucket.asked) == 1:
            bucket.asked.append(parameters)
            raise ConnectionError("reset")
        if not bucket.shown:
            sys.exit()  # ends the thread
        return listed(**parameters)

    monkeypatch.setattr(bucket, "list_objects_v2", refusing)
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda service: bucket))
    monkeypatch.setattr(requests, "S3_INTERVAL_S", 0.001)
    monkeypatch.setenv(STOP_REQUESTS, f"s3://mine/{prefix}")
    keys = {"a"}
    requests.relay_requests(folder, keys, searches=True)
    keys.add("b")  # joins later
    wait_until(
        lambda: "stop requests" not in {item.name for item in threading.enumerate()}, within_s=10, what="its end"
    )

    assert bucket.read == [f"{prefix}queue.json"] * 2
    queue = folder.read_queue()
    assert queue is not None
    assert queue.version == 3
    assert folder.of_member("b").stop_request.exists()


def test_nothing_is_looked_for_where_no_place_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(STOP_REQUESTS, raising=False)
    requests.relay_requests(JobFolder(tmp_path), {"a"}, searches=False)

    assert "stop requests" not in {item.name for item in threading.enumerate()}
