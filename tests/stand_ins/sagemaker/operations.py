"""The training-job operations of the SageMaker API."""

import threading
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.stand_ins.sagemaker.account import Account, page
from tests.stand_ins.sagemaker.containers import CHECKPOINTS
from tests.stand_ins.sagemaker.jobs import Job
from tests.stand_ins.sagemaker.training import Training, Workshop
from tests.stand_ins.sagemaker.validation import Invalid, Refusal, check

Answer = dict[str, Any]


class TrainingJobs:
    """All training jobs of the account."""

    def __init__(self, shop: Workshop, account: Account) -> None:
        self._shop = shop
        self._account = account
        self._jobs: dict[str, Job] = {}
        self._threads: list[Training] = []
        self._lock = threading.RLock()

    @property
    def operations(self) -> dict[str, Callable[[Answer], Answer]]:
        """Operation to what answers it."""
        return {
            "CreateTrainingJob": self.create,
            "DescribeTrainingJob": self.describe,
            "ListTrainingJobs": self.select,
            "StopTrainingJob": self.stop,
            "UpdateTrainingJob": self.update,
        }

    def create(self, request: Answer) -> Answer:
        """CreateTrainingJob."""
        check("CreateTrainingJob", request)
        check_rules(request)
        self._account.require("iam:PassRole", request["RoleArn"])
        image = self._image(request["AlgorithmSpecification"]["TrainingImage"])
        job = Job(request, self._shop.settings.region)
        with self._lock:
            if job.name in self._jobs:
                raise Refusal(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with this"
                    f" name already exists ({job.arn})",
                )
            self._account.admit(job, self._jobs.values(), self._shop.pools)
            self._jobs[job.name] = job
            self._shop.pools.begin(job)
            thread = Training(job, image, self._shop)
            self._threads.append(thread)
        thread.start()
        return {"TrainingJobArn": job.arn}

    def describe(self, request: Answer) -> Answer:
        """DescribeTrainingJob."""
        self._shop.pools.refresh()
        return self.find(request).describe()

    def select(self, request: Answer) -> Answer:
        """ListTrainingJobs."""
        check("ListTrainingJobs", request)
        self._shop.pools.refresh()
        with self._lock:
            result = [job for job in self._jobs.values() if self._is_shown(job) and _fits(job, request)]
        result.sort(key=lambda job: job.created, reverse=True)
        jobs, more = page(result, request, usual=10, most=100)
        return {"TrainingJobSummaries": [job.summary() for job in jobs]} | more

    def stop(self, request: Answer) -> Answer:
        """StopTrainingJob."""
        job = self.find(request)
        if job.is_over:
            raise Invalid(
                f"The request was rejected because the training job is in status {job.status}. (Only a training job in"
                " status InProgress can be stopped.)"
            )
        job.stop()
        return {}

    def update(self, request: Answer) -> Answer:
        """UpdateTrainingJob: how long a warm pool is kept."""
        check("UpdateTrainingJob", request)
        job = self.find(request)
        self._shop.pools.refresh()
        if "ResourceConfig" in request:
            if job.pool is None or job.pool["Status"] not in ("InUse", "Available"):
                raise Invalid("The request was rejected because the training job has no warm pool that can be updated.")
            self._shop.pools.update(job, request["ResourceConfig"]["KeepAlivePeriodInSeconds"])
        return {"TrainingJobArn": job.arn}

    def find(self, request: Answer) -> Job:
        """The job that a request names."""
        name = request["TrainingJobName"]
        with self._lock:
            if name in self._jobs and self._is_shown(self._jobs[name]):
                return self._jobs[name]
        raise Invalid("Requested resource not found.")

    def _is_shown(self, job: Job) -> bool:
        return time.time() - job.created >= self._shop.settings.shown_after_s

    def names(self) -> list[str]:
        """Names of all jobs, oldest first."""
        with self._lock:
            return list(self._jobs)

    def described(self, name: str) -> Answer:
        """A job, shown or not."""
        with self._lock:
            return self._jobs[name].describe()

    def abandon(self) -> None:
        """Leave no process of any job."""
        for thread in self._threads:
            thread.abandon()

    def _image(self, uri: str) -> Path:
        for pattern, venv in self._shop.settings.images.items():
            if fnmatchcase(uri, pattern):
                return venv
        repository = uri.partition("/")[2].partition(":")[0]
        raise Invalid(f"Cannot find repository in registry: {repository} (no image is known by the name {uri})")


def _fits(job: Job, request: Answer) -> bool:
    return request.get("NameContains", "").lower() in job.name.lower() and request.get("StatusEquals") in (
        None,
        job.status,
    )


def check_rules(request: Answer) -> None:
    """What the API model does not say."""
    _check_algorithm(request.get("AlgorithmSpecification", {}))
    _check_resources(request.get("ResourceConfig", {}))
    _check_time(request)
    channels = request.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    if len(names) != len(set(names)):
        raise Invalid("Channel names must be unique.")
    for channel in channels:
        source = channel["DataSource"].get("S3DataSource", {})
        if source.get("S3DataType") != "S3Prefix":
            raise Invalid(f"Channel {channel['ChannelName']}: this emulator knows no data source but S3Prefix.")
    local = request.get("CheckpointConfig", {}).get("LocalPath", CHECKPOINTS)
    if not local.startswith("/opt/ml/"):
        raise Invalid(f"CheckpointConfig.LocalPath: this emulator needs a folder below /opt/ml, got {local}.")


def _check_algorithm(algorithm: Answer) -> None:
    if bool(algorithm.get("TrainingImage")) == bool(algorithm.get("AlgorithmName")):
        raise Invalid("You must provide exactly one of TrainingImage and AlgorithmName.")
    if algorithm.get("AlgorithmName"):
        raise Invalid(f"Algorithm {algorithm['AlgorithmName']} does not exist.")
    if algorithm["TrainingInputMode"] == "Pipe":
        raise Invalid("This emulator knows no input mode Pipe.")


def _check_resources(resources: Answer) -> None:
    if not resources.get("InstanceType") or resources.get("InstanceCount", 0) < 1:
        raise Invalid("ResourceConfig: this emulator needs InstanceType with an InstanceCount of 1 or more.")


def _check_time(request: Answer) -> None:
    condition = request.get("StoppingCondition", {})
    runtime, wait = condition.get("MaxRuntimeInSeconds"), condition.get("MaxWaitTimeInSeconds")
    if runtime is None:
        raise Invalid("StoppingCondition.MaxRuntimeInSeconds must be given.")
    if not request.get("EnableManagedSpotTraining"):
        if wait is not None:
            raise Invalid("MaxWaitTimeInSeconds can only be given with EnableManagedSpotTraining.")
        return
    if wait is None or wait < runtime:
        raise Invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if request["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        raise Invalid("KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining.")
