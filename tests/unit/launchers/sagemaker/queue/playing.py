"""Training jobs in the account in memory that live as the launcher contract's kinds of jobs say, a second at a time."""

import io
import json
import tarfile
from typing import Any

from paretune.specification.container import Event, JobReport
from tests.unit.launchers.sagemaker.aws import Aws, FakeClock

FAILURE_REASON = "AlgorithmError: disk_full: the disk is full: of sand, exit code: 1"


class Players:
    """Plays every training job of an account.

    Attributes:
        begun: names of those that have got instances.
    """

    def __init__(self, aws: Aws, clock: FakeClock) -> None:
        self._aws = aws
        self._clock = clock
        self._told: dict[str, list[str]] = {}
        self._started: dict[str, float] = {}

    @property
    def begun(self) -> list[str]:
        """Names of the training jobs that have started, the oldest first."""
        return list(self._started)

    def second(self) -> None:
        """A second passes, and each job goes on to its next step."""
        self._clock.sleep(1.0)
        for name, job in list(self._aws.sagemaker.jobs.items()):
            if job["TrainingJobStatus"] in {"InProgress", "Stopping"}:
                self._step(name, job)
        self._aws.queues.refresh()

    def _step(self, name: str, job: dict[str, Any]) -> None:
        document = json.loads(self._aws.s3.objects[self._document_key(job)])
        kind, service = document["spec"]["model"], self._aws.sagemaker
        if name not in self._started and job["TrainingJobStatus"] == "Stopping":  # before it had instances
            service.end(name, "Stopped")
            return
        if name not in self._started:
            self._started[name] = self._clock.time
            service.enter(name, "Downloading")
            service.enter(name, "Training")
            self._tell(name, 0, message="started")
            return
        ran = self._clock.time - self._started[name]
        late = ran > job["StoppingCondition"]["MaxRuntimeInSeconds"]
        if kind == "quick":
            for step in range(1, 6):
                self._tell(name, step, metrics={"train/loss": 1 / step})
            self._print(name, *(f"line {number}" for number in range(1, 41)))
            report = JobReport(metrics={"f1": 0.75}, facts={"job_name": document["job_name"]})
            self._end(name, job, {"report.json": report.to_json()}, primary="Completed")
        elif kind == "failing":
            self._end(name, job, {}, primary="Failed", FailureReason=FAILURE_REASON)
        elif late or job["TrainingJobStatus"] == "Stopping":
            self._tell(name, 1, message="stopped")
            self._end(name, job, {}, primary="Stopped", secondary="MaxRuntimeExceeded" if late else "Stopped")

    def _end(self, name: str, job: dict[str, Any], files: dict[str, str], **how: Any) -> None:
        files = files | {"events.jsonl": "\n".join(self._told[name]) + "\n"}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        folder = job["OutputDataConfig"]["S3OutputPath"].partition("//")[2].partition("/")[2].rstrip("/")
        self._aws.s3.put_object(Key=f"{folder}/{name}/output/output.tar.gz", Body=buffer.getvalue())
        billed = max(1, round(self._clock.time - self._started[name]))
        self._aws.sagemaker.end(name, BillableTimeInSeconds=billed, **how)

    def _tell(self, name: str, step: int, **kind: Any) -> None:
        line = Event(time=self._clock.time, step=step, **kind).line()
        self._told.setdefault(name, []).append(line)
        self._print(name, line)

    def _print(self, name: str, *lines: str) -> None:
        self._aws.logs.say(f"{name}/algo-1-1", *lines)

    def _document_key(self, job: dict[str, Any]) -> str:
        (channel,) = [entry for entry in job["InputDataConfig"] if entry["ChannelName"] == "job"]
        uri = str(channel["DataSource"]["S3DataSource"]["S3Uri"])
        return uri.partition("//")[2].partition("/")[2]
