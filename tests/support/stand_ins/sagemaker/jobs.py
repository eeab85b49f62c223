"""The training jobs of the emulated account, and the operations of the API on them."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import botocore.session

from tests.support.stand_ins.sagemaker.calls import Refusal, invalid
from tests.support.stand_ins.sagemaker.emulator import ACCOUNT, REGION

Answer = dict[str, Any]
MESSAGES = {
    "Starting": "Starting the training job",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Interrupted": "Spot instances were interrupted",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
}
SPOT_SHARE = 0.4  # billable time as a share of training time on spot
LONGEST_REASON = 1024  # characters of FailureReason
# Members of ResourceConfig and of the request that must be equal if a job uses the warm pool of another one.
_SAME = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
_SAME_REQUEST = ("RoleArn", "VpcConfig", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption")


class Job:
    """A training job: its request, and everything that has happened to it.

    Attributes:
        orders: orders from tests and the API that have not been carried out yet: `stop`, `interrupt`, `kill <host>`.
        pool: its WarmPoolStatus; None if it requested no warm pool.
        is_warm: whether it starts on instances of a warm pool.
        kept_since: when its warm pool began to keep instances (epoch seconds); None if it keeps none.
    """

    thread: Any

    def __init__(self, request: Answer) -> None:
        self.request = request
        self.name: str = request["TrainingJobName"]
        self.arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{self.name}"
        self.resources = dict(request["ResourceConfig"])
        if preferences := self.resources.get("InstancePreferences"):  # here only the last one has capacity
            self.resources["SelectedInstanceType"] = preferences[-1]["InstanceType"]
            self.resources["SelectedInstanceCount"] = self.resources["InstanceCount"]
        self.is_spot = bool(request.get("EnableManagedSpotTraining"))
        self.hosts = [f"algo-{number + 1}" for number in range(self.resources["InstanceCount"])]
        self.output = f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        self.status = "InProgress"
        self.failure: str | None = None
        self.created = self.modified = time.time()
        self.started: float | None = None
        self.ended: float | None = None
        self.training_s = 0.0
        self.transitions: list[Answer] = []
        self.orders: list[str] = []
        self.pool: Answer | None = {"Status": "InUse"} if self.period_s else None
        self.is_warm = False
        self.kept_since: float | None = None
        self.enter("Starting")

    @property
    def period_s(self) -> int:
        """For how many seconds its instances are kept."""
        return int(self.resources.get("KeepAlivePeriodInSeconds") or 0)

    @property
    def is_over(self) -> bool:
        """Whether its status is final."""
        return self.ended is not None

    def enter(self, secondary: str) -> None:
        """Begin the next secondary status."""
        now = self.modified = time.time()
        if self.transitions:
            self.transitions[-1]["EndTime"] = now
        self.transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": MESSAGES[secondary]})
        if secondary == "Downloading" and self.started is None:
            self.started = now
        if secondary == "Stopping":
            self.status = "Stopping"

    def end(self, status: str, secondary: str, failure: str | None) -> None:
        """Enter a final status."""
        self.failure = failure and failure[:LONGEST_REASON]
        self.enter(secondary)
        self.transitions[-1]["EndTime"] = self.modified
        self.status, self.ended = status, self.modified

    def take(self, what: str) -> str | None:
        """Remove the oldest order that begins with `what`, and return it. Return None if there is none."""
        result = next((order for order in self.orders if order.startswith(what)), None)
        if result is not None:
            self.orders.remove(result)
        return result

    def warm_key(self) -> list[Any]:
        """Return the values that the next job must share to get this job's instances."""
        return [self.resources.get(name) for name in _SAME] + [self.request.get(name) for name in _SAME_REQUEST]

    def keep(self, is_healthy: bool) -> None:
        """Keep its instances if it requested a warm pool and they are healthy."""
        if self.pool is not None:
            self.pool = {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}
            self.kept_since = time.time() if is_healthy and self.period_s else None
            self.age()

    def age(self) -> None:
        """Bring the status of its warm pool up to date."""
        if self.kept_since is not None:
            kept_s = time.time() - self.kept_since
            is_over = kept_s >= self.period_s
            seconds = min(kept_s, self.period_s or kept_s)
            status = "Terminated" if is_over else "Available"
            self.pool = {"Status": status, "ResourceRetainedBillableTimeInSeconds": int(seconds)}
            self.kept_since = None if is_over else self.kept_since

    def summary(self) -> Answer:
        """Return the job's summary in the form of ListTrainingJobs."""
        output = {
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "CreationTime": self.created,
            "TrainingEndTime": self.ended,
            "LastModifiedTime": self.modified,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.transitions[-1]["Status"],
            "WarmPoolStatus": self.pool,
        }
        return {name: value for name, value in output.items() if value is not None}

    def describe(self) -> Answer:
        """Return the job's description in the form of DescribeTrainingJob."""
        view = {name: value for name, value in self.request.items() if name != "Tags"} | self.summary()
        view["ResourceConfig"] = self.resources
        view["SecondaryStatusTransitions"] = [dict(transition) for transition in self.transitions]
        view["FailureReason"] = self.failure
        view["TrainingStartTime"] = self.started
        if self.started is not None and self.is_over:
            seconds = view["TrainingTimeInSeconds"] = max(1, round(self.training_s))
            view["BillableTimeInSeconds"] = max(1, round(seconds * SPOT_SHARE)) if self.is_spot else seconds
        if self.status in ("Completed", "Stopped") and self.started is not None:
            view["ModelArtifacts"] = {"S3ModelArtifacts": f"{self.output}/model/"}
        return {name: value for name, value in view.items() if value is not None}


class Jobs:
    """All training jobs of the account. `train` returns the thread that runs a job."""

    def __init__(self, train: Callable[[Job], threading.Thread], shown_after_s: float = 0.0) -> None:
        self.jobs: dict[str, Job] = {}
        self._shown_after_s = shown_after_s
        self._train = train
        self._lock = threading.Lock()

    def create(self, request: Answer) -> Answer:
        """Create a job, as CreateTrainingJob does."""
        check("CreateTrainingJob", request)
        job = Job(request)
        job.thread = self._train(job)
        with self._lock:
            if job.name in self.jobs:
                raise Refusal(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with this"
                    f" name already exists ({job.arn})",
                )
            self._take_warm_instances(job)
            self.jobs[job.name] = job
        job.thread.start()
        return {"TrainingJobArn": job.arn}

    def _take_warm_instances(self, job: Job) -> None:
        for previous in self.jobs.values():
            previous.age()
            is_kept = previous.kept_since is not None and not job.is_spot
            if is_kept and previous.pool is not None and previous.warm_key() == job.warm_key():
                previous.pool |= {"Status": "Reused", "ReusedByJob": job.name}
                previous.kept_since = None
                job.is_warm = True
                return

    def describe(self, request: Answer) -> Answer:
        """Describe a job, as DescribeTrainingJob does."""
        job = self._find(request)
        job.age()
        return job.describe()

    def select(self, request: Answer) -> Answer:
        """List the jobs whose names contain a string, newest first, as ListTrainingJobs does."""
        shown = [job for job in list(self.jobs.values())[::-1] if self._is_shown(job)]
        jobs = [job for job in shown if request["NameContains"].lower() in job.name.lower()]
        for job in jobs:
            job.age()
        return {"TrainingJobSummaries": [job.summary() for job in jobs[: request.get("MaxResults", 10)]]}

    def stop(self, request: Answer) -> Answer:
        """Stop a job, as StopTrainingJob does. Its status becomes Stopping at once."""
        job = self._find(request)
        if job.is_over:
            raise invalid(
                f"The request was rejected because the training job is in status {job.status}. (Only a training job in"
                " status InProgress can be stopped.)"
            )
        if job.status == "InProgress":
            job.orders.append("stop")
            job.status, job.modified = "Stopping", time.time()
        return {}

    def update(self, request: Answer) -> Answer:
        """Change how long a warm pool is kept, as UpdateTrainingJob does."""
        check("UpdateTrainingJob", request)
        job = self._find(request)
        job.age()
        if job.pool is None or job.pool["Status"] not in ("InUse", "Available"):
            raise invalid("The request was rejected because the training job has no warm pool that can be updated.")
        job.resources |= request["ResourceConfig"]
        job.modified = time.time()
        job.age()
        return {"TrainingJobArn": job.arn}

    def order(self, name: str, what: str) -> None:
        """Add an order for the thread of a job, such as `interrupt`."""
        self.jobs[name].orders.append(what)

    def _find(self, request: Answer) -> Job:
        job = self.jobs.get(request["TrainingJobName"])
        if job is None or not self._is_shown(job):
            raise invalid("Requested resource not found.")
        return job

    def _is_shown(self, job: Job) -> bool:
        return time.time() - job.created >= self._shown_after_s


@cache
def _input_of(operation: str) -> Any:
    return botocore.session.get_session().get_service_model("sagemaker").operation_model(operation).input_shape


def check(operation: str, request: Answer) -> None:
    """Raise Refusal if a request breaks a rule. Boto's client has already checked types and required members."""
    faults = [*_faults(_input_of(operation), request, ""), *_broken_rules(request)]
    if faults:
        raise invalid(f"{len(faults)} validation errors detected: {'; '.join(faults)}")


def _faults(shape: Any, value: Any, place: str) -> Iterator[str]:
    """Yield a message for each value that violates a length, a bound, a choice or a pattern."""
    rules: list[str] = []
    if shape.type_name == "structure":
        for name, member in value.items():
            yield from _faults(shape.members[name], member, f"{place}.{name[0].lower()}{name[1:]}")
    else:
        size = value if isinstance(value, int) else len(value)
        least, most = shape.metadata.get("min", size), shape.metadata.get("max", size)
        rules += [] if least <= size <= most else [f"have a value or length from {least} to {most}"]
    if shape.type_name == "list":
        for number, item in enumerate(value, start=1):
            yield from _faults(shape.member, item, f"{place}.{number}.member")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _faults(shape.value, item, f"{place}.{key}.member")
    elif shape.type_name == "string":
        pattern = shape.metadata.get("pattern", "")
        if shape.enum and value not in shape.enum:
            rules.append(f"satisfy enum value set: [{', '.join(shape.enum)}]")
        if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
            rules.append(f"satisfy regular expression pattern: {pattern}")
    for rule in rules:
        shown = value if isinstance(value, str) else json.dumps(value)
        yield f"Value '{shown}' at '{place.lstrip('.')}' failed to satisfy constraint: Member must {rule}"


def _broken_rules(request: Answer) -> Iterator[str]:
    """Yield a message for each violated rule that is not in the API model."""
    names = [channel["ChannelName"] for channel in request.get("InputDataConfig", [])]
    if len(names) != len(set(names)):
        yield "Channel names must be unique."
    condition = request.get("StoppingCondition", {})
    wait, runtime = condition.get("MaxWaitTimeInSeconds"), condition.get("MaxRuntimeInSeconds", 0)
    is_spot = request.get("EnableManagedSpotTraining", False)
    if wait is not None and not is_spot:
        yield "MaxWaitTimeInSeconds can only be given with EnableManagedSpotTraining."
    if is_spot and (wait is None or wait < runtime):
        yield "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
    if "ResourceConfig" in request and "TrainingJobName" in request and "RoleArn" in request:
        resources = request["ResourceConfig"]
        if ("InstanceType" in resources) == ("InstancePreferences" in resources):
            yield "Exactly one of InstanceType and InstancePreferences must be given."
        if is_spot and "InstancePreferences" in resources:
            yield "InstancePreferences is not supported with EnableManagedSpotTraining."
    if is_spot and request["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        yield "KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining."
