"""A project's training job, and its log while it grows."""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from paretune.core.clock import Clock
from paretune.launchers.base import JobState
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.jobs import SageMakerJob
from paretune.launchers.sagemaker.logs import LogReader
from paretune.launchers.sagemaker.polling import Poller
from paretune.launchers.sagemaker.staging import Staging
from paretune.spec.container import FailureKind, JobReport

_FIRST_LINE = "paretune: "  # of inside.py; what comes before it is the SageMaker SDK preparing the container
_WAITING_LINES = 10_000

_pollers: dict[tuple[str, ...], Poller] = {}
LOCK = threading.RLock()
"""Held while a poller works: MLflow's runs may be waited for in threads of their own."""


def shared_poller(account: Account, environment: Mapping[str, str], clock: Clock) -> Poller:
    """The poller of this process for one identity and region: however many runs, so many calls a minute."""
    names = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL")
    key = (account.region, *(environment.get(name, "") for name in names))
    with LOCK:
        return _pollers.setdefault(key, Poller(account, clock))


class ProjectJob(SageMakerJob):
    """A training job that runs a project's command. It has no report of paretune's; what it prints is kept for showing.

    The arguments are those of `SageMakerJob`.
    """

    def __init__(
        self,
        name: str,
        account: Account,
        staging: Staging,
        poller: Poller,
        clock: Clock,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        with LOCK:
            super().__init__(name, account, staging, poller, clock, description)
            self._listener = _Listener(account.client("logs"), f"{name}/algo-1-")
            self._watched.log = LogReader(self._listener, name)

    def state(self) -> JobState:
        """The state as SageMaker last said, asked again if the rate of calls allows."""
        with LOCK:
            return super().state()

    def new_lines(self) -> list[str]:
        """What the first instance has printed since the last call, from where the project's own part begins."""
        with LOCK:
            if self._watched.has_ended:
                self._poller.drain(self.name)
            return self._listener.take()

    def status(self) -> str:
        """SageMaker's word for the state, such as InProgress."""
        return str(self._watched.description.get("TrainingJobStatus", "InProgress"))

    def report(self) -> JobReport | None:
        """None: the command is not paretune's."""
        return None

    def failure(self) -> tuple[FailureKind, str] | None:
        """SageMaker's reason, with the last line of the log where the reason is only an exit code."""
        found = super().failure()
        if found is None or "ended with exit code" not in found[1]:
            return found
        last = self.log_tail(1)
        return found[0], f"{found[1]}: {last[0].strip()}" if last else found[1]

    def log_tail(self, lines: int = 15) -> list[str]:
        """Last lines of the instance that failed first."""
        with LOCK:
            return super().log_tail(lines)

    def results_key(self) -> str:
        """S3 key of the archive with /opt/ml/output/data."""
        return f"{PREFIX}/jobs/{self.name}/output/output.tar.gz"

    def _fetch(self) -> Mapping[str, bytes]:
        """In place of paretune's own results, on which `SageMakerJob` would wait: a Completed job is complete."""
        return {"report.json": b"{}"} if self.status() == "Completed" else {}


class _Listener:
    """A CloudWatch client that keeps what it reads of the streams that begin with `prefix`."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._lines: deque[str] = deque(maxlen=_WAITING_LINES)
        self._begun: set[str] = set()

    def describe_log_streams(self, **options: Any) -> Any:
        return self._client.describe_log_streams(**options)

    def get_log_events(self, **options: Any) -> Any:
        page = self._client.get_log_events(**options)
        stream = options["logStreamName"]
        if stream.startswith(self._prefix):
            for entry in page["events"]:
                line = entry["message"].rstrip("\n")
                if line.startswith(_FIRST_LINE):
                    self._begun.add(stream)
                if stream in self._begun:
                    self._lines.append(line)
        return page

    def take(self) -> list[str]:
        lines = list(self._lines)
        self._lines.clear()
        return lines
