"""What a test holds of the SageMaker emulator."""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.stand_ins.sagemaker.settings import ACCOUNT, Settings

_REPOSITORY = Path(__file__).parents[3]
_PROBE = """
mount -t tmpfs none /run && ip link add cluster type bridge && ip netns add probe &&
mkdir -p "$1/lower" "$1/upper" "$1/work" &&
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work,userxattr" "$1/lower"
"""
_HINT = (
    "the SageMaker emulator needs Linux user namespaces, iproute2 and overlay mounts; allow them with"
    " `sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`,"
    " `apt-get install iproute2 util-linux`, and in Docker `--privileged`. What was tried said: "
)


@cache
def namespaces_are_missing() -> str | None:
    """Why instances cannot run on this machine and what to do about it, or None if they can."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-Urmnupf", "--mount-proc", "--kill-child"]
        try:
            probe = subprocess.run(
                [*words, "bash", "-c", _PROBE, "probe", folder], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return _HINT + str(error)
    return None if probe.returncode == 0 else _HINT + probe.stderr.strip().replace("\n", "; ")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that came in.

    Attributes:
        body: of JSON requests the JSON, of form requests (iam, sts) single values by name, of S3 an empty string.
        path: of S3 requests `/bucket/key`.
        headers: user agent, content type and a few more.
    """

    time: float
    service: str
    operation: str
    method: str
    path: str
    body: dict[str, Any] | str
    headers: dict[str, str]
    status: int


class Emulator:
    """A SageMaker with S3, CloudWatch Logs, IAM, STS, quotas and prices, in a process of its own.

    Attributes:
        url: where it serves.
        environment: what sends AWS clients there.
    """

    def __init__(self, settings: Settings, process: "subprocess.Popen[str]", url: str) -> None:
        self._settings = settings
        self._process = process
        self.url = url
        self.environment = settings.environment(url)
        self.account = ACCOUNT
        self.role = settings.role
        self.bucket = settings.bucket
        self.root = settings.root

    @classmethod
    def start(
        cls,
        root: Path,
        images: Mapping[str, Path] | None = None,
        *,
        forward: Sequence[int] = (),
        hide: Sequence[Path] = (),
        keep: Sequence[Path] = (),
        prices: Sequence[dict[str, Any]] = (),
        **others: Any,
    ) -> "Emulator":
        """Start one, with `root` as its folder; see `Settings` for what can be set."""
        root.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            root=root.resolve(),
            images={pattern: Path(venv) for pattern, venv in (images or {"*": Path(sys.prefix)}).items()},
            forward=tuple(forward),
            hide=tuple(hide),
            keep=tuple(keep),
            prices=tuple(prices),
            **others,
        )
        settings.write(root / "settings.json")
        with (root / "emulator.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", __package__, str(root / "settings.json")],
                cwd=_REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None  # it is a pipe
        url = process.stdout.readline().strip()
        if not url:
            process.wait()
            raise RuntimeError(f"the emulator did not start:\n{(root / 'emulator.log').read_text()}")
        return cls(settings, process, url)

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self._process.pid

    def stop(self) -> None:
        """End it with all its jobs."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def requests(self, operation: str | None = None) -> list[Request]:
        """What came in, oldest first; the emulator's own calls are left out."""
        return [Request(**output) for output in self._ask("requests", operation=operation)]

    def clear_requests(self) -> None:
        """Forget what came in."""
        self._ask("clear_requests")

    def inject(
        self, operation: str, error: str, message: str = "Rate exceeded", times: int = 1, status: int = 400
    ) -> None:
        """Let the next calls of an operation fail, of whatever service: `PutObject` as well as `CreateTrainingJob`."""
        self._ask("inject", operation=operation, error=error, message=message, times=times, status=status)

    def clear_injections(self) -> None:
        """Forget errors that no call has met yet."""
        self._ask("clear_injections")

    def lack_capacity(self, instance_type: str, times: int = 1) -> None:
        """The next jobs on this type fail with a CapacityError; 0 ends that."""
        self._ask("lack_capacity", instance_type=instance_type, times=times)

    def interrupt(self, job_name: str) -> None:
        """Take the spot instances of a job away once it trains, and give it new ones."""
        self._ask("interrupt", job_name=job_name)

    def kill_instance(self, job_name: str, host: str) -> None:
        """Kill the container of one host once the job trains, as broken hardware would."""
        self._ask("kill_instance", job_name=job_name, host=host)

    def deny(self, action: str) -> None:
        """Take a permission away: without iam:PassRole no job is created."""
        self._ask("deny", action=action)

    def set_quota(self, name: str, value: float) -> None:
        """Change a quota; `name` is an instance type (training on demand) or the whole name of the quota."""
        self._ask("set_quota", name=name, value=value)

    def pass_time(self, seconds: float) -> None:
        """Let warm pools grow older."""
        self._ask("pass_time", seconds=seconds)

    def jobs(self) -> list[str]:
        """Names of all jobs, oldest first."""
        return list(self._ask("jobs"))

    def described(self, name: str) -> dict[str, Any]:
        """The truth about a job, which DescribeTrainingJob may show late; times in seconds since the epoch."""
        return dict(self._ask("described", name=name))

    def job_folder(self, name: str) -> Path:
        """The files of a job: `<attempt>/<host>/ml` is /opt/ml, `<attempt>/<host>/log` what it printed."""
        return self.root / "jobs" / name

    def _ask(self, what: str, **arguments: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/_emulator/{what}", data=json.dumps(arguments).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None
