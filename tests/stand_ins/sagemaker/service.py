"""The HTTP service: training jobs, quotas and prices of our own, everything else from moto."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tests.stand_ins.sagemaker.account import Account
from tests.stand_ins.sagemaker.calls import Call, Notebook
from tests.stand_ins.sagemaker.containers import hosts_of
from tests.stand_ins.sagemaker.disturbances import Disturbances
from tests.stand_ins.sagemaker.operations import TrainingJobs
from tests.stand_ins.sagemaker.storage import QUIET
from tests.stand_ins.sagemaker.training import Workshop
from tests.stand_ins.sagemaker.validation import Refusal

StartResponse = Callable[..., Any]
CONTROL = "/_emulator/"
_JSON = "application/x-amz-json-1.1"


class Service:
    """A WSGI application."""

    def __init__(self, shop: Workshop) -> None:
        settings = shop.settings
        self._shop = shop
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._account = Account(settings)
        self.jobs = TrainingJobs(shop, self._account)
        self._notebook = Notebook()
        self._disturbances = Disturbances()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if QUIET in environ.get("HTTP_USER_AGENT", ""):
            return self._moto(environ, start_response)
        if environ.get("PATH_INFO", "").startswith(CONTROL):
            return self._steer(environ, start_response)
        call = Call(environ)
        self._notebook.note(call)
        try:
            self._disturbances.meet(call.operation)
            answer = self._own(call)
        except Refusal as refusal:
            call.drain()
            return _send(call, start_response, *call.refuse(refusal))
        if answer is not None:
            return _send(call, start_response, 200, *answer)
        return self._pass_on(call, start_response)

    def _own(self, call: Call) -> tuple[str, bytes] | None:
        """Content type and body of what is answered here."""
        if call.service == "sagemaker" and call.operation in self.jobs.operations:
            return _JSON, json.dumps(self.jobs.operations[call.operation](call.request)).encode()
        answers = {
            ("service-quotas", "ListServiceQuotas"): self._account.list_quotas,
            ("pricing", "GetProducts"): self._account.products,
        }
        if (call.service, call.operation) in answers:
            return _JSON, json.dumps(answers[call.service, call.operation](call.request)).encode()
        return None

    def _pass_on(self, call: Call, start_response: StartResponse) -> Iterable[bytes]:
        """Let moto answer."""

        def noting(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            call.status = int(status.split()[0])
            return start_response(status, headers, *rest)

        return self._moto(call.environ, noting)

    def _steer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """What a test asks beyond AWS: POST /_emulator/NAME with the arguments as JSON."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        arguments = json.loads(environ["wsgi.input"].read(length) or b"{}")
        name = environ["PATH_INFO"].removeprefix(CONTROL)
        try:
            answer = self._controls()[name](**arguments)
            status = "200 OK"
        except Refusal as refusal:
            answer, status = {"error": refusal.message}, "400 Bad Request"
        content = json.dumps(answer).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [content]

    def _controls(self) -> dict[str, Callable[..., Any]]:
        return {
            "requests": self._notebook.shown,
            "clear_requests": self._notebook.clear,
            "inject": self._disturbances.inject,
            "clear_injections": self._disturbances.clear,
            "lack_capacity": self._lack_capacity,
            "interrupt": self._interrupt,
            "kill_instance": self._kill_instance,
            "deny": self._account.deny,
            "set_quota": self._account.set_quota,
            "pass_time": self._shop.pools.pass_time,
            "jobs": self.jobs.names,
            "described": self.jobs.described,
        }

    def _lack_capacity(self, instance_type: str, times: int) -> None:
        self._shop.lacking[instance_type] = times

    def _interrupt(self, job_name: str) -> None:
        job = self.jobs.find({"TrainingJobName": job_name})
        if not job.is_spot or job.is_over:
            raise Refusal("NotPossible", f"{job_name} has no spot instances")
        job.order("interrupt")

    def _kill_instance(self, job_name: str, host: str) -> None:
        job = self.jobs.find({"TrainingJobName": job_name})
        if job.is_over or host not in hosts_of(job):
            raise Refusal("NotPossible", f"{job_name} has no instance {host}")
        job.order(f"kill {host}")


def _send(call: Call, start_response: StartResponse, status: int, kind: str, content: bytes) -> Iterable[bytes]:
    call.status = status
    reason = "OK" if status == 200 else "Error"
    headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("x-amzn-RequestId", "1")]
    start_response(f"{status} {reason}", headers)
    return [content]
