"""The life of one training job in the emulator."""

import contextlib
import itertools
import os
import signal
import threading
import time
import traceback
from collections.abc import Generator, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from boto3.s3.transfer import TransferConfig

from tests.support.stand_ins.sagemaker.calls import invalid
from tests.support.stand_ins.sagemaker.jobs import LONGEST_REASON, Job
from tests.support.stand_ins.sagemaker.machine import Instances, furnish

GROUP = "/aws/sagemaker/TrainingJobs"
INTERNAL = "InternalServerError: We encountered an internal error. Please try again."
NO_DATA = "ClientError: Data download failed: no S3 objects found under S3 URL {} given in input data source."
TURN_S = 0.1
START_DELAY_S = 0.05  # seconds until instances have started
FAILURE_GRACE_S = 0.3  # seconds for which the other instances continue after one has failed


class Ended(Exception):
    """Ends the job. Its arguments are the job's status, its secondary status, and the reason for a failure or None."""


class Training(threading.Thread):
    """Runs one job from its start to its final status.

    Args:
        job: the job.
        settings: the settings of the emulator.
        s3, logs: boto clients for these services.
    """

    def __init__(self, job: Job, settings: Any, s3: Any, logs: Any) -> None:
        super().__init__(name=job.name, daemon=True)
        self._job = job
        self._image = _image_of(job, settings.images)
        self._settings = settings
        self._s3 = s3
        self._logs = logs
        self._folder: Path = settings.root / "jobs" / job.name
        self._attempt = self._folder
        self._instances: Instances | None = None
        self._spent_s = 0.0  # training time of earlier attempts, downloads included
        self._since: float | None = None  # when the training time of this attempt began; None if it is already added

    def run(self) -> None:
        end: tuple[str, str, str | None] = ("Failed", "Failed", INTERNAL)
        try:
            self._folder.mkdir(parents=True)
            self._live()
        except Ended as ended:
            end = ended.args
        except Exception:
            (self._folder / "trouble.log").write_text(traceback.format_exc())
        self._count()
        self._job.training_s += self._settings.upload_s if self._job.training_s else 0
        self._job.keep(is_healthy=end[2] != INTERNAL)
        self._job.end(*end)

    def abandon(self) -> None:
        """Kill all processes of the job. The service calls this when it ends."""
        if self._instances is not None:
            self._instances.end()

    def _live(self) -> None:
        for attempt in itertools.count(1):
            self._start(attempt)
            reason, failure = self._train()
            if reason != "Interrupted":
                break
            self._count()
            self._job.enter("Interrupted")
        self._job.enter("Uploading")
        self._upload("output", "output/data")
        if failure is not None:
            raise Ended("Failed", "Failed", failure)
        self._upload("model", "model")
        if reason is None and self._job.take("stop"):  # requested during the upload
            reason = "Stopped"
        raise Ended("Completed", "Completed", None) if reason is None else Ended("Stopped", reason, None)

    def _start(self, attempt: int) -> None:
        """Start the instances of an attempt, and download their inputs and checkpoints."""
        job = self._job
        if attempt > 1:
            job.enter("Starting")
        until = time.monotonic() + (START_DELAY_S if attempt > 1 or not job.is_warm else 0)
        while self._may_go_on() and time.monotonic() < until:
            time.sleep(0.02)
        job.enter("Downloading")
        self._since = time.monotonic()
        self._attempt = self._folder / str(attempt)
        for host in job.hosts:
            folder = self._attempt / host
            furnish(folder, job, host, self._image, self._settings.keep, has_secrets=bool(self._settings.secrets))
            for channel in job.request.get("InputDataConfig", []):
                uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
                if not self._download(uri, folder / "ml" / "input" / "data" / channel["ChannelName"]):
                    raise Ended("Failed", "Failed", NO_DATA.format(uri))
            if "CheckpointConfig" in job.request:
                self._download(
                    job.request["CheckpointConfig"]["S3Uri"].rstrip("/") + "/", folder / "ml" / "checkpoints"
                )

    def _may_go_on(self) -> bool:
        """Return True. Raises Ended if the job was stopped or has waited for too long."""
        if self._job.take("stop"):
            self._job.enter("Stopping")
            raise Ended("Stopped", "Stopped", None)
        if self._has_waited_too_long():
            raise Ended("Stopped", "MaxWaitTimeExceeded", None)
        return True

    def _has_waited_too_long(self) -> bool:
        longest_s = self._job.request["StoppingCondition"].get("MaxWaitTimeInSeconds")
        return longest_s is not None and time.time() - self._job.created > longest_s

    def _train(self) -> tuple[str | None, str | None]:
        """Run the containers once.

        Return the reason if they were stopped from outside, or else the FailureReason if one of them failed.
        """
        job = self._job
        checkpoints = dict(self._changed({}))  # the downloaded checkpoints of earlier attempts
        self._instances = instances = Instances(self._attempt, job.hosts, self._settings.secrets)
        tails = [
            _tail(self._logs, f"{job.name}/{host}-{time.time_ns()}", self._attempt / host / "log") for host in job.hosts
        ]
        reason: str | None = None
        killed: str | None = None
        deadline: float | None = None  # when all containers that are still running get SIGKILL
        looked = time.monotonic()
        try:
            while not instances.are_over:
                time.sleep(TURN_S)
                now = time.monotonic()
                if job.transitions[-1]["Status"] == "Downloading" and instances.are_up:
                    job.enter("Training")
                if late := self._why_to_stop(reason):
                    reason = late
                    if late != "Interrupted":
                        job.enter("Stopping")
                    instances.send(signal.SIGTERM)
                    deadline = now + self._settings.grace_s
                elif order := job.take("kill "):
                    killed = order.removeprefix("kill ")
                    instances.send(signal.SIGKILL, killed)
                if deadline is None and any(code != 0 for code in instances.exits.values()):
                    deadline = now + FAILURE_GRACE_S
                if deadline is not None and now > deadline:
                    instances.send(signal.SIGKILL)
                for tail in tails:
                    next(tail)
                if now > looked + 1:
                    self._save_checkpoints(checkpoints)
                    looked = now
            exits = instances.exits
        finally:
            instances.end()
            for tail in tails:
                with contextlib.suppress(StopIteration):
                    tail.send(True)
            self._save_checkpoints(checkpoints)
        if reason is None and killed is not None:
            raise Ended("Failed", "Failed", INTERNAL)
        return reason, None if reason else self._failure(exits)

    def _why_to_stop(self, reason: str | None) -> str | None:
        """Return the secondary status of a stop or interruption that is due now; None if nothing is."""
        if reason in (None, "Interrupted") and self._job.take("stop"):
            return "Stopped"
        if reason is not None:
            return None
        running_s = self._spent_s + time.monotonic() - (self._since or 0)
        if self._has_waited_too_long():
            return "MaxWaitTimeExceeded"
        if running_s > self._job.request["StoppingCondition"]["MaxRuntimeInSeconds"]:
            return "MaxRuntimeExceeded"
        return "Interrupted" if self._job.take("interrupt") else None

    def _failure(self, exits: dict[str, int | None]) -> str | None:
        """Return the FailureReason of the first container that failed, or None if none did."""
        failed = next(((host, code) for host, code in exits.items() if code != 0), None)
        if failed is None:
            return None
        host, code = failed
        if code is None:
            raise RuntimeError(f"{host} broke: see its log and job.log")
        report = self._attempt / host / "ml" / "output" / "failure"
        text = f"AlgorithmError: {report.read_text(errors='replace') if report.is_file() else ''}"
        ending = f", exit code: {code}"
        return text[: LONGEST_REASON - len(ending)] + ending

    def _count(self) -> None:
        """Add the time of the attempt, which ends now, to the job's training time."""
        if self._since is not None:
            self._spent_s += time.monotonic() - self._since
            self._job.training_s = self._spent_s
            self._since = None

    def _download(self, uri: str, folder: Path) -> bool:
        """Download the objects at an address into a folder, and return whether there are any."""
        bucket, prefix = _split(uri)
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
        for key in keys:
            rest = key.removeprefix(prefix)
            is_below = prefix.endswith("/") or rest.startswith("/")
            path = folder / (rest.lstrip("/") if is_below else key.rpartition("/")[2])
            path.parent.mkdir(parents=True, exist_ok=True)
            self._s3.download_file(bucket, key, str(path), Config=TransferConfig(use_threads=False))
        return bool(keys)

    def _put(self, path: Path, uri: str) -> None:
        bucket, key = _split(uri)
        # The file is read at once, because the job may empty it later.
        self._s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())

    def _upload(self, name: str, folder: str) -> None:
        """Upload the files in a folder of all instances, one by one. Of files with the same name, the first is used."""
        files: dict[str, Path] = {}
        for host in self._job.hosts:
            root = self._attempt / host / "ml" / folder
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                files.setdefault(path.relative_to(root).as_posix(), path)
        for below, path in files.items():
            self._put(path, f"{self._job.output}/{name}/{below}")

    def _changed(self, before: dict[Path, int]) -> Iterator[tuple[Path, int]]:
        """Yield the checkpoint files that have changed since `before`, with their modification times."""
        for host in self._job.hosts:
            for folder, _, names in os.walk(self._attempt / host / "ml" / "checkpoints"):  # skips removed folders
                for path in (Path(folder) / name for name in names):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        moment = path.stat().st_mtime_ns
                        if before.get(path) != moment:
                            yield path, moment

    def _save_checkpoints(self, saved: dict[Path, int]) -> None:
        """Copy changed checkpoint files to S3, where nothing is ever deleted."""
        if "CheckpointConfig" not in self._job.request:
            return
        uri = self._job.request["CheckpointConfig"]["S3Uri"].rstrip("/")
        for path, moment in list(self._changed(saved)):
            below = path.relative_to(self._attempt).as_posix().partition("/ml/checkpoints/")[2]
            with contextlib.suppress(FileNotFoundError):
                self._put(path, f"{uri}/{below}")
                saved[path] = moment


def _image_of(job: Job, images: dict[str, Path]) -> Path:
    uri = job.request["AlgorithmSpecification"]["TrainingImage"]
    for pattern, venv in images.items():
        if fnmatchcase(uri, pattern):
            return venv
    raise invalid(f"Cannot find repository in registry: no image is known by the name {uri}")


def _split(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of an S3 address."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _tail(logs: Any, stream: str, path: Path) -> Generator[None, bool | None, None]:
    """Send new lines of a file to a stream of the log, each time the generator is advanced.

    Sending `True` also sends an incomplete last line, and ends the generator.
    """
    logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    with path.open("rb") as file:
        rest, is_last = b"", None
        while not is_last:
            is_last = yield
            *lines, rest = (rest + file.read()).split(b"\n")
            lines += [rest] if is_last and rest else []
            now = int(time.time() * 1000)
            events = [{"timestamp": now, "message": line.decode(errors="replace")} for line in lines if line]
            if events:
                logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)
