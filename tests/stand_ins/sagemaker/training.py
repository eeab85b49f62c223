"""The life of one training job."""

import contextlib
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stand_ins.sagemaker.containers import ClientFault, hosts_of, lay_out
from tests.stand_ins.sagemaker.forward import Forwarder
from tests.stand_ins.sagemaker.instances import Instances
from tests.stand_ins.sagemaker.jobs import LONGEST_REASON, Job
from tests.stand_ins.sagemaker.logs import LogTail
from tests.stand_ins.sagemaker.settings import Settings
from tests.stand_ins.sagemaker.storage import CheckpointMirror, Store
from tests.stand_ins.sagemaker.warm_pools import WarmPools

INTERNAL = "InternalServerError: We encountered an internal error. Please try again."
CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
TURN_S = 0.1


@dataclass(frozen=True)
class End:
    """Why an attempt ended: `completed`, `failed`, `broken`, `interrupted`, or the secondary status of a stop."""

    kind: str
    failure: str | None = None


class Ended(Exception):
    """The job ends before its containers run."""

    def __init__(self, end: End) -> None:
        super().__init__(end.kind)
        self.end = end


@dataclass
class Workshop:
    """What every job of the service works with.

    Attributes:
        lacking: instance type to the number of jobs that will not get any.
    """

    settings: Settings
    url: str
    store: Store
    logs: Any
    forwarder: Forwarder
    pools: WarmPools
    lacking: dict[str, int]


class Training(threading.Thread):
    """Runs one job from its start to its final status."""

    def __init__(self, job: Job, image: Path, shop: Workshop) -> None:
        super().__init__(name=job.name, daemon=True)
        self.job = job
        self._image = image
        self._shop = shop
        self._folder = shop.settings.root / "jobs" / job.name
        self._attempt = self._folder
        self._instances: Instances | None = None
        self._last_epoch = 0
        self._spent_s = 0.0  # training time of earlier attempts
        self._since: float | None = None  # when this attempt began to count
        self._folder.mkdir(parents=True)

    def run(self) -> None:
        try:
            end = self._live()
        except Ended as early:
            end = early.end
        except ClientFault as fault:
            end = End("failed", str(fault))
        except Exception:
            self._note(traceback.format_exc())
            end = End("broken", INTERNAL)
        if end.kind == "completed" and self.job.take("stop"):  # asked for during the upload
            end = End("Stopped")
        self._count()
        self._shop.pools.end(self.job, healthy=end.kind != "broken")
        if end.kind == "completed":
            self.job.end("Completed", "Completed")
        elif end.kind in ("failed", "broken"):
            self.job.end("Failed", "Failed", end.failure)
        else:
            self.job.end("Stopped", end.kind)

    def abandon(self) -> None:
        """Leave none of its processes; for the end of the service."""
        if self._instances is not None:
            self._instances.end()

    def _live(self) -> End:
        for attempt in itertools.count(1):
            self._start(attempt)
            end = self._train()
            if end.kind != "interrupted":
                return self._upload(end)
            self._count()
            self.job.enter("Interrupted")
        raise AssertionError("endless")

    def _start(self, attempt: int) -> None:
        """Get instances and fill them."""
        settings = self._shop.settings
        if attempt > 1:
            self._pause(settings.start_delay_s)
            self.job.enter("Starting")
        if not self.job.warm or attempt > 1:
            self._pause(settings.start_delay_s)
        self._take_instances()
        self.job.enter("Downloading")
        self._since = time.monotonic()
        self._attempt = self._folder / str(attempt)
        lay_out(self.job, self._image, self._attempt, self._shop.store, settings, self._shop.url)

    def _take_instances(self) -> None:
        if self._shop.lacking.get(self.job.kind, 0) > 0:
            self._shop.lacking[self.job.kind] -= 1
            raise Ended(End("broken", CAPACITY))

    def _pause(self, seconds: float) -> None:
        """Wait, unless the job is stopped meanwhile."""
        until = time.monotonic() + seconds
        while True:
            if self.job.take("stop"):
                self.job.enter("Stopping")
                raise Ended(End("Stopped"))
            if self._has_waited_too_long():
                raise Ended(End("MaxWaitTimeExceeded"))
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def _has_waited_too_long(self) -> bool:
        longest_s = self.job.request["StoppingCondition"].get("MaxWaitTimeInSeconds")
        return self.job.is_spot and longest_s is not None and time.time() - self.job.created > longest_s

    def _train(self) -> End:
        """Run the containers once; results stay in their folders."""
        hosts = hosts_of(self.job)
        checkpoints = self.job.request.get("CheckpointConfig")
        mirror = None
        if checkpoints:
            folders = [self._attempt / host / "ml" / "checkpoints" for host in hosts]
            mirror = CheckpointMirror(self._shop.store, folders, checkpoints["S3Uri"], self._note)
        self._instances = Instances(self._attempt, hosts, self._shop.forwarder)
        tails = [self._tail(host) for host in hosts]
        if mirror:
            mirror.start()
        try:
            watch = _Watch(self.job, self._instances, self._shop.settings, self._time_is_up)
            while not watch.turn():
                for tail in tails:
                    tail.poll()
        finally:
            self._instances.end()
            for tail in tails:
                tail.poll(final=True)
            if mirror:
                mirror.finish()
        return self._judge(watch)

    def _tail(self, host: str) -> LogTail:
        if host == "algo-1":
            self._last_epoch = max(int(time.time()), self._last_epoch + 1)
        stream = f"{self.job.name}/{host}-{self._last_epoch}"
        return LogTail(self._shop.logs, self._attempt / host / "log", stream)

    def _time_is_up(self) -> str | None:
        """The status that a job gets which has run, or waited, for too long."""
        if self._has_waited_too_long():
            return "MaxWaitTimeExceeded"
        running_s = self._spent_s + (time.monotonic() - self._since if self._since is not None else 0)
        return (
            "MaxRuntimeExceeded" if running_s > self.job.request["StoppingCondition"]["MaxRuntimeInSeconds"] else None
        )

    def _judge(self, watch: "_Watch") -> End:
        if watch.reason is not None:
            return End(watch.reason)
        if watch.killed is not None:
            return End("broken", INTERNAL)
        failed = watch.first_failure
        if failed is None:
            return End("completed")
        host, code = failed
        if code is None:
            self._note(f"{host} broke: see machine.log and job.log")
            return End("broken", INTERNAL)
        report = self._attempt / host / "ml" / "output" / "failure"
        text = report.read_text(errors="replace") if report.is_file() else ""
        ending = f", exit code: {code}"
        return End("failed", "AlgorithmError: " + text[: LONGEST_REASON - len("AlgorithmError: " + ending)] + ending)

    def _upload(self, end: End) -> End:
        self.job.enter("Uploading")
        folders = [self._attempt / host / "ml" for host in hosts_of(self.job)]
        compressed = self.job.request["OutputDataConfig"].get("CompressionType") != "NONE"
        output = self.job.output
        try:
            self._shop.store.upload_merged(
                [ml / "output" / "data" for ml in folders], f"{output}/output", compressed=compressed
            )
            if end.kind not in ("failed", "broken"):
                self._shop.store.upload_merged(
                    [ml / "model" for ml in folders], f"{output}/model", compressed=compressed
                )
        except Exception as error:
            return End("failed", f"ClientError: Artifact upload failed: {error}")
        return end

    def _count(self) -> None:
        """Add the attempt that ends now to the training time."""
        if self._since is not None:
            self._spent_s += time.monotonic() - self._since
            self.job.training_s = self._spent_s + self._shop.settings.upload_s
            self._since = None

    def _note(self, text: str) -> None:
        with contextlib.suppress(OSError), (self._folder / "trouble.log").open("a") as file:
            file.write(text.rstrip() + "\n")


class _Watch:
    """Looks at running containers and carries out what is asked for.

    Attributes:
        reason: why they were ended from outside: `interrupted`, or the secondary status of a stop.
        killed: the host whose hardware failed on request.
    """

    def __init__(
        self, job: Job, instances: Instances, settings: Settings, time_is_up: Callable[[], str | None]
    ) -> None:
        self.reason: str | None = None
        self.killed: str | None = None
        self._job = job
        self._instances = instances
        self._settings = settings
        self._time_is_up = time_is_up
        self._is_training = False
        self._deadline: float | None = None  # of SIGKILL to all that still run

    @property
    def first_failure(self) -> tuple[str, int | None] | None:
        """The host that failed before the others, and its exit code."""
        return next(((host, code) for host, code in self._instances.exits.items() if code != 0), None)

    def turn(self) -> bool:
        """One look; True when every container has ended."""
        self._instances.poll(TURN_S)
        if not self._is_training and self._instances.are_up:
            self._is_training = True
            self._job.enter("Training")
        if self._instances.are_over:
            return True
        if self._job.take("stop") and self.reason in (None, "interrupted"):
            self._stop("Stopped")
        elif self.reason is None and (late := self._time_is_up()):
            self._stop(late)
        elif self.reason is None and self._job.take("interrupt"):
            self.reason = "interrupted"
            self._terminate(self._settings.interrupt_grace_s)
        elif order := self._job.take("kill "):
            self.killed = order.removeprefix("kill ")
            self._instances.send("KILL", self.killed)
        if self.first_failure and self._deadline is None:
            self._deadline = time.monotonic() + self._settings.failure_grace_s
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._instances.send("KILL")
        return False

    def _stop(self, secondary: str) -> None:
        self.reason = secondary
        self._job.enter("Stopping")
        self._terminate(self._settings.grace_s)

    def _terminate(self, grace_s: float) -> None:
        self._instances.send("TERM")
        self._deadline = time.monotonic() + grace_s
