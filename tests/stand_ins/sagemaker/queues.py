"""AWS Batch queues for SageMaker training: service jobs that wait for capacity, then run as training jobs.

Requests and answers are checked against the API model that botocore ships. How jobs pass through a queue follows the
chapter "Service jobs" of the user guide of AWS Batch (read 2026-11-22); nothing was compared with the service itself. A
model of our own is: the order (priority, then age, and the first that does not fit holds back all behind it), the
capacity of a queue in place of service environments, and the length to which a name is cut.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from tests.stand_ins.sagemaker.settings import ACCOUNT
from tests.stand_ins.sagemaker.validation import Invalid, Refusal, check

Answer = dict[str, Any]
PATHS = {  # of POST requests
    "/v1/submitservicejob": "SubmitServiceJob",
    "/v1/describeservicejob": "DescribeServiceJob",
    "/v1/listservicejobs": "ListServiceJobs",
    "/v1/terminateservicejob": "TerminateServiceJob",
    "/v1/describejobqueues": "DescribeJobQueues",
    "/v1/describeserviceenvironments": "DescribeServiceEnvironments",
}
_ENDED = {"SUCCEEDED", "FAILED"}
_UNDER_WAY = {"SCHEDULED", "STARTING", "RUNNING"}
_STATUS = {"Starting": "SCHEDULED", "Pending": "SCHEDULED", "Downloading": "STARTING"}
_LONGEST_NAME = 63 - 32  # of a training job, less the digits that make it one of a kind


class TrainingService(Protocol):
    """What runs the training jobs; errors are `Refusal`."""

    def create(self, request: Answer) -> Answer:
        """CreateTrainingJob."""

    def describe(self, request: Answer) -> Answer:
        """DescribeTrainingJob."""

    def stop(self, request: Answer) -> Answer:
        """StopTrainingJob."""


class _ServiceJob:
    """One service job."""

    def __init__(self, request: Answer, region: str, now: float) -> None:
        self.request = request
        self.id = str(uuid.uuid4())
        self.arn = f"arn:aws:batch:{region}:{ACCOUNT}:service-job/{self.id}"
        self.payload: Answer = json.loads(request["serviceRequestPayload"])
        self.status = "RUNNABLE"
        self.reason = ""
        self.terminated = False
        self.preemptions = 0
        self.training_arn = ""
        self.created = now
        self.scheduled = self.stopped = 0.0

    @property
    def training(self) -> str:
        """Name of its training job; empty before there is one."""
        return self.training_arn.rpartition("/")[2]

    @property
    def instances(self) -> int:
        """How many it takes of the queue's capacity."""
        return int(self.payload.get("ResourceConfig", {}).get("InstanceCount", 1))

    def end(self, status: str, reason: str, now: float) -> None:
        """Its last status; the reason of whoever has terminated it stays."""
        self.status, self.stopped = status, now
        self.reason = self.reason if self.terminated else reason

    def summary(self) -> Answer:
        """As ListServiceJobs shows it."""
        output: Answer = {
            "jobArn": self.arn,
            "jobId": self.id,
            "jobName": self.request["jobName"],
            "serviceJobType": self.request["serviceJobType"],
            "shareIdentifier": self.request.get("shareIdentifier"),
            "status": self.status,
            "statusReason": self.reason or None,
            "createdAt": int(self.created * 1000),
            "scheduledAt": int(self.scheduled * 1000) or None,
            "stoppedAt": int(self.stopped * 1000) or None,
            "isTerminated": self.terminated,
        }
        if self.training_arn:
            output["latestAttempt"] = {"serviceResourceId": {"name": "TrainingJobArn", "value": self.training_arn}}
        return {name: value for name, value in output.items() if value is not None}

    def described(self, queue_arn: str) -> Answer:
        """As DescribeServiceJob shows it."""
        retained = ("serviceRequestPayload", "retryStrategy", "schedulingPriority", "quotaShareName", "tags")
        more: Answer = {name: self.request[name] for name in retained if name in self.request}
        if self.preemptions:
            more["preemptionSummary"] = {"preemptedAttemptCount": self.preemptions}
        return self.summary() | more | {"jobQueue": queue_arn, "startedAt": int(self.scheduled * 1000)}


class Queues:
    """The queues of one account.

    Attributes:
        hidden_lists: how many of the next ListServiceJobs do not know any job yet.
    """

    def __init__(self, training: TrainingService, now: Callable[[], float] = time.time, region: str = "us-east-1"):
        self._training = training
        self._now = now
        self._region = region
        self._queues: dict[str, Answer] = {}
        self._capacity: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._jobs: dict[str, _ServiceJob] = {}
        self._tokens: dict[str, str] = {}
        self._lock = threading.RLock()
        self.hidden_lists = 0

    @property
    def operations(self) -> dict[str, Callable[[Answer], Answer]]:
        """Operation to what answers it, checked on the way in and on the way out."""
        custom = {
            "SubmitServiceJob": self._submit,
            "DescribeServiceJob": self._describe,
            "ListServiceJobs": self._list,
            "TerminateServiceJob": self._terminate,
            "DescribeJobQueues": self._describe_queues,
            "DescribeServiceEnvironments": self._describe_environments,
        }
        return {name: self._checked(name, carry_out) for name, carry_out in custom.items()}

    def add(self, name: str, capacity: int = 100, taken: int = 0, **fields: Any) -> None:
        """A queue in which jobs of `capacity` instances together run at a time, of which others have taken some.

        Another capacity for a queue that is there.
        """
        with self._lock:
            self._capacity[name], self._taken[name] = capacity, taken
            self._queues[name] = {
                "jobQueueName": name,
                "jobQueueArn": f"arn:aws:batch:{self._region}:{ACCOUNT}:job-queue/{name}",
                "state": "ENABLED",
                "status": "VALID",
                "priority": 1,
                "computeEnvironmentOrder": [],
                "jobQueueType": "SAGEMAKER_TRAINING",
                "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": self._environment(name)}],
                **fields,
            }

    def preempt(self, job_name: str) -> None:
        """Take the instances of a running job away for another one."""
        with self._lock:
            job = next(job for job in self._jobs.values() if job.request["jobName"] == job_name)
            job.preemptions += 1
            self._training.stop({"TrainingJobName": job.training})

    def service_jobs(self) -> list[Answer]:
        """All service jobs as ListServiceJobs shows them, oldest first."""
        with self._lock:
            self.refresh()
            return [job.summary() for job in self._jobs.values()]

    def refresh(self) -> None:
        """See how the training jobs are, and begin those for which there is room."""
        with self._lock:
            for job in self._jobs.values():
                if job.status in _UNDER_WAY:
                    self._follow(job)
            for name in self._queues:
                self._begin(name)

    def _checked(self, operation: str, carry_out: Callable[[Answer], Answer]) -> Callable[[Answer], Answer]:
        def answer(request: Answer) -> Answer:
            try:
                check(operation, request, service="batch")
            except Invalid as fault:
                raise Refusal("ClientException", fault.message) from fault
            with self._lock:
                self.refresh()
                report = carry_out(request)
                self.refresh()
            faults = _validator().validate(report, _model().operation_model(operation).output_shape)
            if faults.has_errors():
                raise AssertionError(faults.generate_report())
            return report

        return answer

    def _submit(self, request: Answer) -> Answer:
        name = self._queue_of(request["jobQueue"])
        queue = self._queues[name]
        if queue["jobQueueType"] != request["serviceJobType"] or queue["state"] != "ENABLED":
            raise Refusal("ClientException", f"Job queue {name} does not accept service jobs.")
        if bool(queue.get("schedulingPolicyArn")) != bool({"shareIdentifier", "quotaShareName"} & set(request)):
            raise Refusal("ClientException", "shareIdentifier must be specified exactly for queues with a policy.")
        token = request.get("clientToken") or str(uuid.uuid4())
        if token in self._tokens:  # "the second request is rejected" (SubmitServiceJob, clientToken)
            raise Refusal("ClientException", f"A service job was submitted with the client token {token} before.")
        job = _ServiceJob(request, self._region, self._now())
        self._tokens[token] = job.id
        self._jobs[job.id] = job
        return {"jobArn": job.arn, "jobName": request["jobName"], "jobId": job.id}

    def _describe(self, request: Answer) -> Answer:
        job = self._job(request)
        return job.described(self._queues[self._queue_of(job.request["jobQueue"])]["jobQueueArn"])

    def _list(self, request: Answer) -> Answer:
        name = self._queue_of(request.get("jobQueue", ""))
        result = [job for job in self._jobs.values() if self._queue_of(job.request["jobQueue"]) == name]
        if self.hidden_lists:
            self.hidden_lists, result = self.hidden_lists - 1, []
        filters = request.get("filters", [])
        if not filters:
            result = [job for job in result if job.status == request.get("jobStatus", "RUNNING")]
        elif len(filters) > 1 or filters[0]["name"] != "JOB_NAME":
            raise Refusal("ClientException", "This emulator knows one filter, JOB_NAME.")
        else:
            expected = [value.lower() for value in filters[0]["values"]]
            result = [job for job in result if any(_matches(job.request["jobName"].lower(), item) for item in expected)]
        start, size = int(request.get("nextToken", "0")), request.get("maxResults", 100)
        more = {"nextToken": str(start + size)} if start + size < len(result) else {}
        return {"jobSummaryList": [job.summary() for job in result[start : start + size]]} | more

    def _terminate(self, request: Answer) -> Answer:
        job = self._job(request)
        if job.status in _ENDED:
            return {}
        job.terminated, job.reason = True, request["reason"]
        if job.status in _UNDER_WAY:
            self._training.stop({"TrainingJobName": job.training})
        else:
            job.end("FAILED", request["reason"], self._now())
        return {}

    def _describe_queues(self, request: Answer) -> Answer:
        value = request.get("jobQueues")
        named = self._queues.values() if value is None else [self._queues.get(_short(name)) for name in value]
        return {"jobQueues": [queue for queue in named if queue is not None]}

    def _environment(self, queue: str) -> str:
        """ARN of the only service environment of a queue, which holds what the queue holds."""
        return f"arn:aws:batch:{self._region}:{ACCOUNT}:service-environment/{queue}"

    def _describe_environments(self, request: Answer) -> Answer:
        names = [_short(name) for name in request.get("serviceEnvironments", self._queues)]
        output = [
            {
                "serviceEnvironmentName": name,
                "serviceEnvironmentArn": self._environment(name),
                "serviceEnvironmentType": "SAGEMAKER_TRAINING",
                "capacityLimits": [{"maxCapacity": self._capacity[name], "capacityUnit": "NUM_INSTANCES"}],
            }
            for name in names
            if name in self._queues
        ]
        return {"serviceEnvironments": output}

    def _queue_of(self, name: str) -> str:
        if _short(name) not in self._queues:
            raise Refusal("ClientException", f"JobQueue {name} does not exist.")
        return _short(name)

    def _job(self, request: Answer) -> _ServiceJob:
        value = self._jobs.get(_short(request["jobId"]))
        if value is None:
            raise Refusal("ClientException", f"Service job {request['jobId']} does not exist.")
        return value

    def _follow(self, job: _ServiceJob) -> None:
        """Map the state of its training job to that of the service job."""
        description = self._training.describe({"TrainingJobName": job.training})
        status, reason = description["TrainingJobStatus"], description.get("FailureReason", "")
        if status == "Failed" and reason.startswith("CapacityError") and not job.terminated:
            job.status = "RUNNABLE"  # and again, under another name, as often as it takes
        elif status in {"Completed", "Failed", "Stopped"}:
            finished = "SUCCEEDED" if status == "Completed" else "FAILED"
            job.end(
                finished, f"Received status from SageMaker: {reason or description['SecondaryStatus']}", self._now()
            )
        else:
            job.status = _STATUS.get(description["SecondaryStatus"], "RUNNING")

    def _begin(self, queue: str) -> None:
        """Start the jobs for which there is room: by priority, then by age."""
        custom = [job for job in self._jobs.values() if self._queue_of(job.request["jobQueue"]) == queue]
        free = self._capacity[queue] - self._taken[queue]
        free -= sum(job.instances for job in custom if job.status in _UNDER_WAY)
        waiting = [job for job in custom if job.status == "RUNNABLE"]
        waiting.sort(key=lambda job: (-job.request.get("schedulingPriority", 0), job.created))
        for job in waiting:
            if job.instances > free:
                return
            free -= job.instances
            self._start(job)

    def _start(self, job: _ServiceJob) -> None:
        name = f"AWSBatch{job.payload.get('TrainingJobName', '')}"[:_LONGEST_NAME] + uuid.uuid4().hex
        tags = [{"Key": key, "Value": value} for key, value in job.request.get("tags", {}).items()]
        try:
            answer = self._training.create({**job.payload, "TrainingJobName": name, "Tags": tags})
        except Refusal as refusal:
            if refusal.code != "ResourceLimitExceeded":  # for which it waits
                job.end("FAILED", f"Received status from SageMaker: {refusal.message}", self._now())
            return
        job.training_arn, job.status = answer["TrainingJobArn"], "SCHEDULED"
        job.scheduled = job.scheduled or self._now()


def _short(name: str) -> str:
    """The name in an ARN, or the name itself."""
    return name.rpartition("/")[2]


def _matches(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


@cache
def _model() -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model("batch")


@cache
def _validator() -> Any:
    from botocore.validate import ParamValidator

    return ParamValidator()
