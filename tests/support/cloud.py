"""Runs the paretune command with an emulated AWS account, for tests of whole jobs."""

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Run

from tests.support.processes import Command, command, paretune, wait_until
from tests.support.stand_ins.sagemaker.emulator import Emulator

REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 400.0


@dataclass
class Cloud:
    """A user with an emulated account, an empty folder and an MLflow store.

    Attributes:
        emulator: the account.
        folder: the user's current folder.
        environment: the variables of the user's shell.
    """

    emulator: Emulator
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = (
            {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
            | self.emulator.environment
            | {"PARETUNE_ROLE": self.emulator.role, "PARETUNE_BUCKET": self.emulator.bucket}
            | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            | self.environment
        )

    def run(self, *words: str, **job: object) -> "Done":
        """Run a paretune command to its end. `job` has the parameters of the command."""
        with self.start(*words, **job) as running:
            code = running.wait(WITHIN_S)
            return Done(code, running.text)

    def start(self, *words: str, **job: object) -> AbstractContextManager[Command]:
        """Start a paretune command, and kill it after the `with` block."""
        return command(paretune(*(words or ("train",)), *spelled(job)), cwd=self.folder, environment=self.environment)

    def start_and_kill(self, *words: str, **job: object) -> None:
        """Start a paretune command, and kill it while its job trains."""
        with self.start(*words, **job) as running:
            self.until_it_trains(running)
            running.process.kill()
            running.process.wait()

    @property
    def client(self) -> MlflowClient:
        """Client of the user's MLflow store."""
        return MlflowClient(self.environment["MLFLOW_TRACKING_URI"])

    def runs(self) -> list[Run]:
        """Return the recorded runs, newest first."""
        return list(self.client.search_runs(["0"], order_by=["attributes.start_time DESC"]))

    def the_run(self) -> Run:
        """Return the only recorded run."""
        (run,) = self.runs()
        return run

    def history(self, run: Run, name: str) -> list[Metric]:
        """Return all points of a metric."""
        return list(self.client.get_metric_history(run.info.run_id, name))

    def described(self, job_name: str | None = None) -> dict[str, Any]:
        """Return SageMaker's description of a job, or of the only job if no name is given."""
        names = self.emulator.jobs() if job_name is None else [job_name]
        assert len(names) == 1, names
        return dict(self.client_of("sagemaker").describe_training_job(TrainingJobName=names[0]))

    def client_of(self, service: str) -> Any:
        """Return a boto3 client of the account."""
        import boto3

        options = {
            "endpoint_url": self.emulator.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
        }
        return boto3.client(service, **options)  # type: ignore[call-overload]  # the stubs want a literal name

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yield the key and content of every object in S3. After an archive, also yield the files in it.

        The key of such a file is the key of the archive, a space and the name of the file.
        """
        s3 = self.client_of("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.emulator.bucket):
            for entry in page.get("Contents", []):
                content = s3.get_object(Bucket=self.emulator.bucket, Key=entry["Key"])["Body"].read()
                yield entry["Key"], content
                if entry["Key"].endswith(".tar.gz"):
                    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                        for member in archive:
                            file = archive.extractfile(member)
                            yield f"{entry['Key']} {member.name}", file.read() if file else b""

    def created(self) -> list[dict[str, Any]]:
        """Return the CreateTrainingJob requests that were accepted."""
        requests = self.emulator.requests("CreateTrainingJob")
        return [request.body for request in requests if request.status == 200 and isinstance(request.body, dict)]

    def until_it_trains(self, running: Command, job_number: int = 0) -> str:
        """Wait until a job has logged a training step, and return the job's name. Fail if the command ends first."""

        def trains() -> bool:
            names = self.emulator.jobs()
            logs = self.emulator.job_folder(names[job_number]).glob("*/algo-1/log") if len(names) > job_number else []
            return running.process.poll() is not None or any('"train/loss"' in log.read_text() for log in logs)

        wait_until(trains, within_s=WITHIN_S, what="the training makes steps")
        assert running.process.poll() is None, running.text
        return self.emulator.jobs()[job_number]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    text: str


def spelled(job: dict[str, Any]) -> list[str]:
    """Return the parameters in `job` as words of a command line."""
    return [
        word
        for name, value in job.items()
        for word in (f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value))
    ]


def job_of_seconds(model: Path, dataset: Path) -> dict[str, object]:
    """Return the parameters of a training run that takes seconds on a CPU instance."""
    return {
        "instance_type": "ml.m5.large",
        "model": model,
        "dataset": dataset,
        "max_seq_length": 32,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-3,
        "precision": "fp32",
    }
