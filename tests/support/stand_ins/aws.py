"""An AWS account in this process, for unit tests: moto's S3 and IAM, and training jobs that do what a test decides.

Clients are boto's own, so that each request is checked against the API model. The rules of training jobs are those of
`stand_ins.sagemaker`, but no job runs. Calls are recorded. A test can make calls fail with `Aws.refuse` and `Aws.deny`;
boto does not retry these calls. Time passes only on a `FakeClock`.
"""

import datetime
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.parsers import create_parser
from moto import mock_aws
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends

from paretune.launchers.sagemaker.account import GROUP
from tests.support.fake_clock import EPOCH, FakeClock
from tests.support.stand_ins.sagemaker.calls import Refusal
from tests.support.stand_ins.sagemaker.emulator import ACCOUNT
from tests.support.stand_ins.sagemaker.jobs import Job, Jobs

ROLE = f"arn:aws:iam::{ACCOUNT}:role/Trainer"
BUCKET = "models"
_TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
_ACTIONS = {
    "DeleteObjects": "DeleteObject",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListObjectsV2": "ListBucket",
}
"""Operations of S3 whose actions have other names in policies."""
_CONNECT = boto3.Session.client
_SESSION = boto3.Session("testing", "testing")  # all clients share it, because each session reads AWS's endpoints again


@dataclass(frozen=True)
class Call:
    """One request."""

    operation: str
    parameters: dict[str, Any]


def error(code: str, message: str = "", status: int = 400, **metadata: Any) -> ClientError:
    """Return the error that boto raises for an answer with this error code."""
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status, **metadata}}
    return ClientError(answer, "Operation")


class Aws:
    """An AWS account with one bucket and one role.

    Attributes:
        training: the training jobs.
        overrides: by job name, members that DescribeTrainingJob returns instead of the real ones; None removes a
            member.
        foreign: descriptions of jobs that paretune did not create, by name.
        objects: the contents of all objects in S3, by key.
        log: entries of CloudWatch's log, which are returned in pages of `page_size`.
        products: the price list.
        quotas: values of SageMaker's quotas, by name.
        plans: answers of DescribeTrainingPlan, by name.
        conditions: condition keys that policies use and whose values IAM's simulation lacks.
        arn: the ARN of the caller.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.training = Jobs(lambda job: threading.Thread())
        self.overrides: dict[str, dict[str, Any]] = defaultdict(dict)
        self.foreign: dict[str, dict[str, Any]] = {}
        self.log: list[dict[str, Any]] = []
        self.page_size = 10_000
        self.products: list[dict[str, Any]] = []
        self.quotas: dict[str, float] = {}
        self.plans: dict[str, dict[str, Any]] = {}
        self.conditions: list[str] = []
        self.arn = f"arn:aws:iam::{ACCOUNT}:user/ada"
        self.s3, self.iam = s3_backends[ACCOUNT]["aws"], iam_backends[ACCOUNT]["aws"]
        self._allowed: set[str] | None = None
        self._denied: set[str] = set()
        self._refusals: dict[str, list[Exception]] = defaultdict(list)
        self._own = {
            "CreateTrainingJob": self.training.create,
            "DescribeTrainingJob": self._describe,
            "ListTrainingJobs": self.training.select,
            "StopTrainingJob": self.training.stop,
            "UpdateTrainingJob": self.training.update,
            "FilterLogEvents": self._filter_log,
            "GetProducts": self._get_products,
            "SimulatePrincipalPolicy": self._simulate,
            "ListServiceQuotas": self._list_quotas,
            "DescribeTrainingPlan": lambda request: self.plans[request["TrainingPlanName"]],
            "GetCallerIdentity": lambda _: {"Account": ACCOUNT, "Arn": self.arn, "UserId": "1"},
        }
        self.add_bucket(BUCKET)
        self.add_role("Trainer", "/")

    def add_bucket(self, name: str) -> None:
        """Add an empty bucket."""
        self.s3.create_bucket(name, "us-east-1")

    def put(self, key: str, body: bytes, days: float = 0.0) -> None:
        """Put an object into BUCKET, as if it had been written `days` days ago."""
        moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
        self.s3.put_object(BUCKET, key, body).last_modified = moment.replace(tzinfo=None)

    @property
    def objects(self) -> dict[str, bytes]:
        buckets = self.s3.buckets.values()
        return {key: entry.value for bucket in buckets for key, entry in bucket.keys.items()}

    def add_role(self, name: str, path: str = "/service-role/") -> str:
        """Add a role that SageMaker may assume, and return its ARN."""
        role = self.iam.create_role(name, json.dumps({"Statement": [_TRUST]}), path, None, "", {}, "3600")
        return str(role.arn)

    def trust(self, *statements: dict[str, Any]) -> None:
        """Replace the statements that define who may assume the role Trainer."""
        self.iam.get_role("Trainer").assume_role_policy_document = json.dumps({"Statement": statements})

    def enter(self, name: str, secondary: str) -> None:
        """Move a job to its next secondary status."""
        job = self.training.jobs[name]
        job.enter(secondary)
        job.started = self.clock.now() if secondary == "Training" and job.started is None else job.started

    def end(self, name: str, status: str = "Completed", secondary: str = "", reason: str = "", **more: Any) -> None:
        """End a job. `more` are members of its description."""
        job = self.training.jobs[name]
        job.training_s = 0.0 if job.started is None else self.clock.now() - job.started
        job.keep(is_healthy=True)
        job.end(status, secondary or status, reason or None)
        self.overrides[name] |= more

    def show(self, name: str) -> None:
        """Add a job with this name, as if it had just been created."""
        request = {"TrainingJobName": name, "ResourceConfig": {"InstanceCount": 1}}
        self.training.jobs[name] = Job({**request, "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/x"}})

    def say(self, stream: str, *lines: str) -> None:
        """Add lines to one stream of the log, one second apart."""
        for line in lines:
            number = len(self.log)
            entry = {"eventId": f"{number:05d}", "timestamp": int(EPOCH + number) * 1000, "logStreamName": stream}
            self.log.append({**entry, "message": line})

    def refuse(self, operation: str, code: str | Exception, message: str = "", times: int = 1) -> None:
        """Make the next calls of an operation fail."""
        self._refusals[operation] += [code if isinstance(code, Exception) else error(code, message)] * times

    def deny(self, action: str) -> None:
        """Deny an action to the caller."""
        self._denied.add(action)

    def allow_only(self, actions: set[str]) -> None:
        """Deny all other actions to the caller, except GetCallerIdentity, which AWS denies to nobody."""
        self._allowed = actions | {"sts:GetCallerIdentity"}

    def count(self, *operations: str) -> int:
        """Return how often these operations were called; without names, return the number of all calls."""
        return len(self.of(*operations))

    def of(self, *operations: str) -> list[Call]:
        """Return the calls of these operations; without names, return all calls."""
        return [call for call in self.calls if not operations or call.operation in operations]

    def note(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        """Record a call, and raise the error with which it must fail, if any."""
        context["parameters"] = dict(params)
        self.calls.append(Call(model.name, dict(params)))
        self.meet(model.name)
        action = f"{model.service_model.service_name}:{_ACTIONS.get(model.name, model.name)}"
        if action in self._denied or (self._allowed is not None and action not in self._allowed):
            kind = "AccessDenied" if action.startswith("s3:") else "AccessDeniedException"
            raise error(kind, f"User: {self.arn} is not authorized to perform: {action}", 403)

    def meet(self, operation: str) -> None:
        """Raise the next error that `refuse` ordered for this operation, if any."""
        if waiting := self._refusals[operation]:
            raise waiting.pop(0)

    def answer(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[Any, Any] | None:
        """Return the response to a call that moto does not answer; None for other calls."""
        if model.name not in self._own:
            return None
        try:
            body = json.dumps(self._own[model.name](context["parameters"]), default=datetime.datetime.timestamp)
        except Refusal as refusal:
            raise error(*refusal.args) from refusal
        response = {"status_code": 200, "headers": {}, "body": body.encode()}
        return SimpleNamespace(status_code=200), create_parser("json").parse(response, model.output_shape)

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TrainingJobName"]
        whole = self.foreign.get(name) or self.training.describe(request) | self.overrides[name]
        return {member: value for member, value in whole.items() if value is not None}

    def _filter_log(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["logGroupName"] == GROUP
        prefix, since = request["logStreamNamePrefix"], request["startTime"]
        lines = [one for one in self.log if one["logStreamName"].startswith(prefix) and one["timestamp"] >= since]
        start, size = int(request.get("nextToken", "0")), self.page_size
        more = {"nextToken": str(start + size)} if start + size < len(lines) else {}
        return {"events": lines[start : start + size], **more}

    def _simulate(self, request: dict[str, Any]) -> dict[str, Any]:
        (action,), (resource,) = request["ActionNames"], request["ResourceArns"]
        decision = "implicitDeny" if action in self._denied else "allowed"
        result = {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision}
        return {"EvaluationResults": [{**result, "MissingContextValues": self.conditions}]}

    def _list_quotas(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["ServiceCode"] == "sagemaker"
        return {
            "Quotas": [
                {"QuotaName": name, "QuotaCode": f"L-{number}", "Value": value}
                for number, (name, value) in enumerate(self.quotas.items())
            ]
        }

    def _get_products(self, request: dict[str, Any]) -> dict[str, Any]:
        expected = {item["Field"]: item["Value"] for item in request["Filters"]}
        listed = [one for one in self.products if expected.items() <= one["product"]["attributes"].items()]
        return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product) for product in listed]}


@cache
def _client(service: str, region: str) -> Any:
    """Return a client that all accounts of a process share, because creating one takes a third of a second."""
    client = _CONNECT(_SESSION, service, region_name=region)
    client.meta.events.register("provide-client-params", lambda **call: _ACCOUNTS[-1].note(**call))
    client.meta.events.register("before-call", lambda **call: _ACCOUNTS[-1].answer(**call))
    # The parameters that an `Account` adds to its clients' requests are tested with another client, in test_account.
    client.meta.events.register = lambda *_: None
    if service == "s3":  # replace transfers, which would use threads and several parts

        def upload(path: str, bucket: str, key: str, ExtraArgs: Any = None, Callback: Any = None) -> None:  # noqa: N803
            body = Path(path).read_bytes()
            if Callback is not None:
                Callback(len(body))
            client.put_object(Bucket=bucket, Key=key, Body=body, **(ExtraArgs or {}))

        def download(bucket: str, key: str, path: str, Callback: Any = None) -> None:  # noqa: N803
            Path(path).write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())

        client.upload_file, client.download_file = upload, download
    return client


_ACCOUNTS: list[Aws] = []


@contextmanager
def account(clock: FakeClock) -> Iterator[Aws]:
    """Yield an account that every boto session uses."""
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.stand_ins.sagemaker.jobs.time", SimpleNamespace(time=clock.now))
        patch.setattr(
            boto3.Session,
            "client",
            lambda session, service, region_name=None, **_: _client(service, region_name or session.region_name),
        )
        patch.setattr(boto3.Session, "resource", lambda *_, **__: None)  # the SDK creates one, but does not use it
        _ACCOUNTS.append(Aws(clock))
        yield _ACCOUNTS[-1]
        _ACCOUNTS.pop()
