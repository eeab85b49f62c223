"""The HTTP service of the emulator: training jobs of its own, and everything else from moto."""

import json
import logging
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.support.stand_ins.sagemaker.calls import Refusal, Request, content_of, invalid
from tests.support.stand_ins.sagemaker.emulator import REGION, ROLE_NAME, Emulator
from tests.support.stand_ins.sagemaker.jobs import Jobs
from tests.support.stand_ins.sagemaker.training import GROUP, Training

# Marks the user agent of the service's own calls, which are not recorded and cannot be made to fail.
_QUIET = "stand-in"
_TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}


class Service:
    """Serves an account with a bucket, a role and a log group. Its public methods let tests query and control it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler)
        self._address = f"http://127.0.0.1:{server.port}"
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        settings["secrets"] = ""  # the socket by which jobs reach Secrets Manager; "" until there is a secret
        self._settings = SimpleNamespace(**settings)
        s3, logs, iam = (self._client(name) for name in ("s3", "logs", "iam"))
        s3.create_bucket(Bucket=Emulator.bucket)
        logs.create_log_group(logGroupName=GROUP)
        policy = json.dumps({"Version": "2012-10-17", "Statement": [_TRUST]})
        iam.create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=policy)
        self._jobs = Jobs(lambda job: Training(job, self._settings, s3, logs), self._settings.shown_after_s)
        self._own: dict[tuple[str, str], Callable[[dict[str, Any]], dict[str, Any]]] = {
            ("sagemaker", "CreateTrainingJob"): self._create,
            ("sagemaker", "DescribeTrainingJob"): self._jobs.describe,
            ("sagemaker", "ListTrainingJobs"): self._jobs.select,
            ("sagemaker", "StopTrainingJob"): self._jobs.stop,
            ("sagemaker", "UpdateTrainingJob"): self._jobs.update,
        }
        self._iam, self._denied = iam, set[str]()
        self._requests: list[Request] = []
        self._injected: dict[str, list[Refusal]] = defaultdict(list)

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self._address,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106
            config=Config(user_agent_extra=_QUIET),
        )

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if _QUIET in environ.get("HTTP_USER_AGENT", ""):
            return self._moto(environ, start_response)  # type: ignore[no-any-return]
        request = Request.read(environ)
        self._requests.append(request)
        try:
            if waiting := self._injected[request.operation]:
                raise waiting.pop(0)
            self._authorize(f"{request.service}:{request.operation}")
            own = self._own.get((request.service, request.operation))
            if own is None:
                return self._moto(environ, _noting(request, start_response))  # type: ignore[no-any-return]
            status, kind = 200, "application/x-amz-json-1.1"
            content = json.dumps(own(request.body)).encode()
        except Refusal as refusal:
            content_of(environ)  # the answer can be sent only after the body was read
            *words, status = refusal.args
            kind, content = request.error(*words)
        headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("x-amzn-RequestId", "1")]
        _noting(request, start_response)(f"{status} OK", headers)
        return [content]

    def _authorize(self, action: str) -> None:
        if action in self._denied:
            code = "AccessDenied" if action.startswith("s3:") else "AccessDeniedException"
            raise Refusal(code, f"User: {Emulator.account} is not authorized to perform: {action}", 403)

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Create a job, as CreateTrainingJob does. The role must exist."""
        self._authorize("iam:PassRole")
        role = request["RoleArn"]
        if role not in {each["Arn"] for each in self._iam.list_roles()["Roles"]}:
            raise invalid(f"Could not assume role {role}. Please ensure that the role exists")
        return self._jobs.create(request)

    def deny(self, *actions: str) -> None:
        """Deny everybody these actions, such as `iam:PassRole` or `s3:PutObject`, from now on."""
        self._denied |= {*actions}

    def address(self) -> str:
        """Return the address of the service."""
        return self._address

    def requests(self, operation: str | None = None) -> list[Request]:
        """Return the requests, oldest first, without the service's own calls."""
        return [request for request in self._requests if operation in (None, request.operation)]

    def clear_requests(self) -> None:
        """Forget all requests so far."""
        self._requests.clear()

    def inject(self, operation: str, error: str, message: str, times: int = 1, status: int = 400) -> None:
        """Make the next `times` calls of an operation fail, such as `PutObject` or `CreateTrainingJob`."""
        self._injected[operation] += [Refusal(error, message, status)] * times

    def clear_injections(self) -> None:
        """Remove the injected errors that no call has received yet."""
        self._injected.clear()

    def interrupt(self, job_name: str) -> None:
        """Take the job's spot instances away once it trains, and give it new ones."""
        self._jobs.order(job_name, "interrupt")

    def kill_instance(self, job_name: str, host: str) -> None:
        """Kill the container of one host once the job trains, as broken hardware would."""
        self._jobs.order(job_name, f"kill {host}")

    def jobs(self) -> list[str]:
        """Return the names of all jobs, oldest first."""
        return list(self._jobs.jobs)

    def described(self, name: str) -> dict[str, Any]:
        """Return a job's description even if it is not shown yet, with times in seconds since the epoch."""
        return self._jobs.jobs[name].describe()

    def secret(self, name: str, text: str) -> str:
        """Put a secret into Secrets Manager, and return its ARN. Jobs that start later can read it."""
        if not self._settings.secrets:
            self._settings.secrets = f"{tempfile.mkdtemp()}/aws"  # a short path: a socket's has at most 107 characters
            server = make_server(f"unix://{self._settings.secrets}", 0, self._answer, threaded=True)
            threading.Thread(target=server.serve_forever, name="secrets", daemon=True).start()
        answer = self._client("secretsmanager").create_secret(Name=name, SecretString=text)
        return str(answer["ARN"])

    def abandon(self) -> None:
        """End all processes of all jobs."""
        for job in self._jobs.jobs.values():
            job.thread.abandon()


def _noting(request: Request, start_response: Callable[..., Any]) -> Callable[..., Any]:
    def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        request.status = int(status.split()[0])
        return start_response(status, headers, *rest)

    return start
