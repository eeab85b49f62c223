"""A client of the emulator for tests that need no more than boto3."""

import io
import tarfile
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.processes import wait_until
from tests.stand_ins.sagemaker.emulator import Emulator

GROUP = "/aws/sagemaker/TrainingJobs"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"


class Client:
    """Jobs, data and logs of one emulator, through boto3.

    A job runs the shell script that it is given; in it, `$code` is the folder of the script.
    """

    def __init__(self, emulator: Emulator) -> None:
        options = {
            "endpoint_url": emulator.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
            "config": Config(retries={"total_max_attempts": 1}),
        }
        self.emulator = emulator
        self.sagemaker = boto3.client("sagemaker", **options)
        self.s3 = boto3.client("s3", **options)
        self.logs = boto3.client("logs", **options)

    def request(self, name: str, **changes: Any) -> dict[str, Any]:
        """A job named `name` on one ml.m5.large."""
        base = f"s3://{self.emulator.bucket}"
        usual = {
            "TrainingJobName": name,
            "RoleArn": self.emulator.role,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/bash", "-c", "code=/opt/ml/input/data/code; . $code/run.sh"],
            },
            "InputDataConfig": [self._code(name)],
            "OutputDataConfig": {"S3OutputPath": f"{base}/{name}/results"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }
        return usual | changes

    def _code(self, name: str) -> dict[str, Any]:
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{self.emulator.bucket}/{name}/code/"}
        return {"ChannelName": "code", "DataSource": {"S3DataSource": source}}

    def start(self, name: str, script: str, *, instances: int = 1, **changes: Any) -> None:
        """Create a job that runs `script`."""
        self.put(f"{name}/code/run.sh", script)
        request = self.request(name, **changes)
        request["ResourceConfig"] |= {"InstanceCount": instances}
        self.sagemaker.create_training_job(**request)

    def put(self, key: str, content: str | bytes) -> None:
        """An object in the bucket."""
        body = content.encode() if isinstance(content, str) else content
        self.s3.put_object(Bucket=self.emulator.bucket, Key=key, Body=body)

    def get(self, key: str) -> bytes | None:
        """What an object holds, or None."""
        try:
            content: bytes = self.s3.get_object(Bucket=self.emulator.bucket, Key=key)["Body"].read()
        except ClientError:
            return None
        return content

    def wait(self, name: str) -> dict[str, Any]:
        """Describe it once it is over."""

        def look() -> dict[str, Any] | None:
            job: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            return job if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped") else None

        return wait_until(look, within_s=30, what=f"{name} is over") or {}

    def lines(self, name: str) -> list[str]:
        """What the first host has logged so far, over all its streams."""
        streams = self.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/algo-1-")
        return [
            event["message"]
            for stream in streams["logStreams"]
            for event in self.logs.get_log_events(
                logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
            )["events"]
        ]

    def says(self, name: str, text: str) -> None:
        """Wait until a job has printed a line."""
        wait_until(lambda: text in self.lines(name), within_s=20, what=f"{name} printed {text}")

    def archive(self, name: str, what: str) -> dict[str, str]:
        """Name to content of the files in an archive of results; empty where there is none."""
        content = self.get(f"{name}/results/{name}/output/{what}.tar.gz")
        if content is None:
            return {}
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {entry.name: (tar.extractfile(entry) or io.BytesIO()).read().decode() for entry in tar}


def refusal(call: Callable[..., Any], **arguments: Any) -> str:
    """Error code and message of a call that is refused."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return f"{error['Code']}: {error['Message']}"
