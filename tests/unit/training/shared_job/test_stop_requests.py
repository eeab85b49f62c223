"""Requests to stop single trials, from an S3 that is played here into the folder of a job."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paretune.specification.container import STOP_REQUESTS, JobFolder
from paretune.training.shared_job import trials
from tests.processes import wait_until


class Bucket:
    """S3 with objects that come over time; with none left to show it refuses."""

    def __init__(self, *output: list[str]) -> None:
        self.shown = list(output)
        self.asked: list[dict[str, str]] = []

    def list_objects_v2(self, **parameters: str) -> dict[str, Any]:
        self.asked.append(parameters)
        if not self.shown:
            raise PermissionError("AccessDenied")
        return {"Contents": [{"Key": key} for key in self.shown.pop(0)]}


def relayed(monkeypatch: pytest.MonkeyPatch, folder: JobFolder, bucket: Bucket) -> None:
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda service: bucket))
    monkeypatch.setattr(trials, "S3_INTERVAL_S", 0.001)
    monkeypatch.setenv(STOP_REQUESTS, "s3://mine/jobs/job/stop/")
    trials.relay_stop_requests(folder, ["a", "b"])
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


def test_nothing_is_looked_for_where_no_place_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(STOP_REQUESTS, raising=False)
    trials.relay_stop_requests(JobFolder(tmp_path), ["a"])

    assert "stop requests" not in {item.name for item in threading.enumerate()}
