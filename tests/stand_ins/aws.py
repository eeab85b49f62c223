"""AWS in memory: the services that the launcher talks to, each call checked against the API model and noted.

What a service does here is what its documentation says and no more than the launcher uses. Errors are queued with
`Aws.refuse`; time passes on `FakeClock` only.
"""

import datetime
import io
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
from botocore.exceptions import ClientError
from botocore.paginate import Paginator
from botocore.validate import ParamValidator

from paretune.launchers.sagemaker.account import GROUP

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Trainer"
BUCKET = "models"
EPOCH = 1_800_000_000.0
_ACTIONS = {"ListObjectsV2": "ListBucket", "HeadBucket": "ListBucket", "DeleteObjects": "DeleteObject"}
"""Calls of S3 whose action in policies has another name."""


class FakeClock:
    """A clock that only moves when it is told to, or slept on."""

    def __init__(self) -> None:
        self.time = EPOCH

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - EPOCH

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class Call:
    """One request."""

    service: str
    operation: str
    parameters: dict[str, Any]


def error(code: str, message: str = "", status: int = 400, **metadata: Any) -> ClientError:
    """What boto raises for an answer with an error code."""
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status, **metadata}}
    return ClientError(answer, "Operation")


@cache
def _model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


@cache
def _pages(service: str) -> Any:
    return botocore.session.get_session().get_paginator_model(service)


def _operation(method: str) -> str:
    return "".join(part.capitalize() for part in method.split("_"))


class Client:
    """Stands for a boto client."""

    def __init__(self, aws: "Aws", name: str, service: Any) -> None:
        self._aws = aws
        self._name = name
        self._service = service
        # What a client adds to its requests itself is seen with a real one: test_account.
        events = SimpleNamespace(register=lambda *_: None)
        model = _model(name) if name == "sagemaker" else None
        self.meta = SimpleNamespace(region_name=aws.region, events=events, service_model=model)

    def __getattr__(self, method: str) -> Any:
        def call(**parameters: Any) -> Any:
            operation = _operation(method)
            shape = _model(self._name).operation_model(operation).input_shape
            faults = ParamValidator().validate(parameters, shape)
            assert not faults.has_errors(), faults.generate_report()
            return self._answer(operation, parameters, getattr(self._service, method))

        return call

    def upload_file(
        self,
        path: str,
        bucket: str,
        key: str,
        ExtraArgs: Any = None,  # noqa: N803  # boto's names
        Callback: Any = None,  # noqa: N803
    ) -> None:
        parameters = {"Bucket": bucket, "Key": key, **(ExtraArgs or {})}
        body = Path(path).read_bytes()
        if Callback is not None:
            Callback(len(body))
        self._answer("PutObject", parameters, lambda **reference: self._service.put_object(Body=body, **reference))

    def download_file(self, bucket: str, key: str, path: str) -> None:
        result = self._answer("GetObject", {"Bucket": bucket, "Key": key}, self._service.get_object)
        Path(path).write_bytes(result["Body"].read())

    def get_paginator(self, method: str) -> Paginator:
        operation = _operation(method)
        config = _pages(self._name).get_paginator(operation)
        return Paginator(getattr(self, method), config, _model(self._name).operation_model(operation))

    def _answer(self, operation: str, parameters: dict[str, Any], carry_out: Any) -> Any:
        self._aws.calls.append(Call(self._name, operation, parameters))
        self._aws.meet(operation)
        self._aws.iam.authorise(self._name, operation)
        return carry_out(**parameters)


class Aws:
    """An AWS account in one region."""

    def __init__(self, clock: FakeClock, region: str = "us-east-1") -> None:
        self.clock = clock
        self.region = region
        self.calls: list[Call] = []
        self._refusals: dict[str, list[Exception | None]] = {}
        self.sagemaker = SageMaker(self)
        self.logs = Logs()
        self.s3 = S3(self)
        self.iam = Iam()
        self.pricing = Pricing()
        services = {
            "sagemaker": self.sagemaker,
            "logs": self.logs,
            "s3": self.s3,
            "iam": self.iam,
            "sts": Sts(),
            "pricing": self.pricing,
        }
        self._clients = {name: Client(self, name, service) for name, service in services.items()}

    def client(self, name: str) -> Client:
        """The client of a service; of one that is not here, any call is an error."""
        return self._clients.get(name) or Client(self, name, None)

    def refuse(self, operation: str, code: str | Exception, message: str = "", times: int = 1, after: int = 0) -> None:
        """Let calls of an operation fail: the next ones, or those after the next `after`."""
        refusal = code if isinstance(code, Exception) else error(code, message)
        self._refusals.setdefault(operation, []).extend([None] * after + [refusal] * times)

    def meet(self, operation: str) -> None:
        """Raise what this call has to fail with."""
        waiting = self._refusals.get(operation)
        refusal = waiting.pop(0) if waiting else None
        if refusal is not None:
            raise refusal

    def count(self, *operations: str) -> int:
        """How often operations were called; any, if none is named."""
        return len(self.of(*operations))

    def of(self, *operations: str) -> list[Call]:
        """Calls of operations; all, if none is named."""
        return [call for call in self.calls if not operations or call.operation in operations]


class SageMaker:
    """Training jobs that do what a test says."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.jobs: dict[str, dict[str, Any]] = {}

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        name, role = request["TrainingJobName"], request["RoleArn"]
        if role.rpartition("/")[2] not in self._aws.iam.roles:
            raise error("ValidationException", f"Could not assume role {role}. Please ensure that the role exists")
        if name in self.jobs:
            raise error("ResourceInUse", "Training job names must be unique within an AWS account and region")
        self.begin(name, request)
        return {"TrainingJobArn": self.jobs[name]["TrainingJobArn"]}

    def describe_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        if TrainingJobName not in self.jobs:
            raise error("ValidationException", "Requested resource not found.")
        job = self.jobs[TrainingJobName]
        return job | {"SecondaryStatusTransitions": list(job["SecondaryStatusTransitions"])}

    def list_training_jobs(self, **request: Any) -> dict[str, Any]:
        jobs = [job for name, job in self.jobs.items() if request.get("NameContains", "") in name]
        output = ("TrainingJobName", "CreationTime", "LastModifiedTime", "TrainingJobStatus", "SecondaryStatus")
        return {"TrainingJobSummaries": [{name: job[name] for name in output} for job in jobs]}

    def stop_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        job = self.jobs.get(TrainingJobName)
        if job is None or job["TrainingJobStatus"] not in {"InProgress", "Stopping"}:
            raise error("ValidationException", "The request was rejected because the training job is in status Stopped")
        self.enter(TrainingJobName, "Stopping", "Stopping")
        return {}

    def update_training_job(self, TrainingJobName: str, ResourceConfig: dict[str, int]) -> dict[str, Any]:  # noqa: N803
        job = self.jobs[TrainingJobName]
        if job.get("WarmPoolStatus", {}).get("Status") not in {"InUse", "Available"}:
            raise error("ValidationException", "the training job has no warm pool that can be updated")
        job["ResourceConfig"] = {**job["ResourceConfig"], **ResourceConfig}
        job["WarmPoolStatus"] = {**job["WarmPoolStatus"], "Status": "Terminated"}
        return {"TrainingJobArn": job["TrainingJobArn"]}

    def begin(self, name: str, request: dict[str, Any] | None = None) -> None:
        """A job that has just been created."""
        now = self._now()
        self.jobs[name] = {
            **(request or {}),
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:aws:sagemaker:{self._aws.region}:{ACCOUNT}:training-job/{name}",
            "CreationTime": now,
            "LastModifiedTime": now,
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Starting",
            "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": now, "StatusMessage": "Starting"}],
        }

    def enter(self, name: str, secondary: str, primary: str = "InProgress", **more: Any) -> None:
        """A job goes on to its next status."""
        job, now = self.jobs[name], self._now()
        job |= {"TrainingJobStatus": primary, "SecondaryStatus": secondary, "LastModifiedTime": now, **more}
        job["SecondaryStatusTransitions"] = [
            *job["SecondaryStatusTransitions"],
            {"Status": secondary, "StartTime": now, "StatusMessage": secondary},
        ]
        if secondary == "Training":
            job.setdefault("TrainingStartTime", now)

    def end(self, name: str, primary: str = "Completed", secondary: str = "", **more: Any) -> None:
        """A job ends; a value of None is left out of what AWS tells at once."""
        told = {"TrainingEndTime": self._now(), **more}
        if (started := self.jobs[name].get("TrainingStartTime")) is not None and "BillableTimeInSeconds" not in told:
            told["BillableTimeInSeconds"] = int((self._now() - started).total_seconds())
        self.enter(
            name, secondary or primary, primary, **{key: value for key, value in told.items() if value is not None}
        )

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._aws.clock.time, datetime.UTC)


@dataclass
class Logs:
    """Streams of lines, with a time stamp a second after the other."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    page_size: int = 10_000

    def say(self, stream: str, *lines: str) -> None:
        """Lines of one stream."""
        for line in lines:
            number = len(self.lines)
            entry = {"eventId": f"{number:05d}", "timestamp": int(EPOCH + number) * 1000, "logStreamName": stream}
            self.lines.append({**entry, "message": line})

    def filter_log_events(self, **request: Any) -> dict[str, Any]:
        assert request["logGroupName"] == GROUP
        result = [
            entry
            for entry in self.lines
            if entry["logStreamName"].startswith(request["logStreamNamePrefix"])
            and entry["timestamp"] >= request["startTime"]
        ]
        return _page("events", result, request, self.page_size, "nextToken")


class S3:
    """Buckets of one region."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.buckets = {BUCKET: aws.region}
        self.objects: dict[str, bytes] = {}
        self.written: dict[str, datetime.datetime] = {}  # of objects that are older than now
        self.locked: set[str] = set()  # keys that S3 does not delete

    def put_object(self, **request: Any) -> dict[str, Any]:
        self.objects[request["Key"]] = request["Body"]
        return {}

    def get_object(self, **request: Any) -> dict[str, Any]:
        key = request["Key"]
        if request["Bucket"] not in self.buckets:
            raise error("NoSuchBucket", "The specified bucket does not exist", 404)
        if key not in self.objects:
            raise error("NoSuchKey", "The specified key does not exist.", 404)
        return {"Body": io.BytesIO(self.objects[key])}

    def delete_objects(self, **request: Any) -> dict[str, Any]:
        refused = [entry for entry in request["Delete"]["Objects"] if entry["Key"] in self.locked]
        for entry in request["Delete"]["Objects"]:
            if entry not in refused:
                self.objects.pop(entry["Key"], None)
        return {"Errors": [{**entry, "Message": "Access Denied"} for entry in refused]}

    def get_bucket_versioning(self, **_: Any) -> dict[str, Any]:
        return {}

    def delete_object(self, **request: Any) -> dict[str, Any]:
        self.objects.pop(request["Key"], None)
        return {}

    def head_bucket(self, **request: Any) -> dict[str, Any]:
        if request["Bucket"] not in self.buckets:
            raise error("404", "Not Found", 404)
        return {"BucketRegion": self.buckets[request["Bucket"]]}

    def create_bucket(self, **request: Any) -> dict[str, Any]:
        value = request.get("CreateBucketConfiguration", {}).get("LocationConstraint", "us-east-1")
        self.buckets[request["Bucket"]] = value
        return {}

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        keys = sorted(key for key in self.objects if key.startswith(request["Prefix"]))
        page = _page("Contents", keys, request, 1000, "ContinuationToken")
        written = datetime.datetime.fromtimestamp(self._aws.clock.time, datetime.UTC)
        page["Contents"] = [
            {"Key": key, "Size": len(self.objects[key]), "LastModified": self.written.get(key, written)}
            for key in page["Contents"]
        ]
        token = page.pop("ContinuationToken", None)
        return page | {"IsTruncated": token is not None, **({"NextContinuationToken": token} if token else {})}


class Sts:
    """Who asks."""

    arn = f"arn:aws:iam::{ACCOUNT}:user/ada"

    def get_caller_identity(self) -> dict[str, Any]:
        return {"Account": ACCOUNT, "Arn": Sts.arn, "UserId": "1"}


class Iam:
    """Roles that exist, all with one policy of trust, and statements that deny single actions; the rest is allowed."""

    def __init__(self) -> None:
        actual = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        self.trust: dict[str, Any] = {"Version": "2012-10-17", "Statement": [actual]}
        self.roles = {ROLE.rpartition("/")[2]: ROLE}
        self._denied: set[str] = set()

    def add_role(self, name: str, path: str = "/service-role/") -> str:
        """A role, whose ARN is returned."""
        self.roles[name] = f"arn:aws:iam::{ACCOUNT}:role{path}{name}"
        return self.roles[name]

    def deny(self, action: str) -> None:
        """Deny an action to the one who asks."""
        self._denied.add(action)

    def authorise(self, service: str, operation: str) -> None:
        """Raise if the one who asks may not make this call."""
        action = _ACTIONS.get(operation, operation)
        needed = [f"{service}:{action}", *(["iam:PassRole"] if operation == "CreateTrainingJob" else [])]
        for name in needed:
            if name in self._denied:
                kind = "AccessDenied" if service == "s3" else "AccessDeniedException"
                raise error(kind, f"User: {Sts.arn} is not authorized to perform: {name}", 403)

    def get_role(self, **request: Any) -> dict[str, Any]:
        if request["RoleName"] not in self.roles:
            raise error("NoSuchEntity", f"The role with name {request['RoleName']} cannot be found.", 404)
        return {"Role": {"Arn": self.roles[request["RoleName"]], "AssumeRolePolicyDocument": self.trust}}


class Pricing:
    """Products of the price list, as JSON texts; a filter compares one attribute."""

    def __init__(self) -> None:
        self.products: list[dict[str, Any]] = []

    def get_products(self, **request: Any) -> dict[str, Any]:
        expected = {item["Field"]: item["Value"] for item in request["Filters"]}
        result = [
            json.dumps(product)
            for product in self.products
            if expected.items() <= product["product"]["attributes"].items()
        ]
        return {"FormatVersion": "aws_v1"} | _page("PriceList", result, request, 100, "NextToken")


def _page(name: str, items: list[Any], request: dict[str, Any], size: int, token: str) -> dict[str, Any]:
    """The part of a list that a request asks for, and the token that leads to the next one."""
    start = int(request.get(token, "0"))
    return {name: items[start : start + size]} | ({token: str(start + size)} if start + size < len(items) else {})
