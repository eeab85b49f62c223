"""The part of the SageMaker emulator that a test uses."""

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import pytest

ACCOUNT = "123456789012"
ROLE_NAME = "SageMakerRole"
REGION = "us-east-1"
_PROBE = """
ip addr add 10.77.0.1/32 dev lo && ip link set lo up && mkdir -p "$1/lower" "$1/upper" "$1/work" &&
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work,userxattr" "$1/lower"
"""
_HINT = (
    "the SageMaker emulator needs Linux user namespaces, iproute2 and overlay mounts; allow them with"
    " `sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`,"
    " `apt-get install iproute2 util-linux`, and in Docker `--privileged`. The probe printed: "
)


@cache
def namespaces_are_missing() -> str | None:
    """Return why instances cannot run on this machine and what to do about it, or None if they can."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-Urmnupf", "--kill-child", "bash", "-c", _PROBE, "probe"]
        try:
            probe = subprocess.run([*words, folder], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return _HINT + str(error)
    return None if probe.returncode == 0 else _HINT + probe.stderr.strip().replace("\n", "; ")


class Emulator:
    """Runs SageMaker, S3, CloudWatch Logs, IAM and STS in another process while a `with` block runs.

    It also has the public methods of `service.Service`. It skips the test if instances cannot run on this machine.

    Args:
        root: folder for logs and for the files of the jobs.
        images: virtual environments that replace images, by patterns of image URIs; the first match is used.
        keep: folders under /tmp that an image needs in addition to its own; jobs do not see the rest of /tmp.
        upload_s: seconds that are billed for Uploading in addition to its real duration, for tests of long uploads.
        grace_s: seconds between SIGTERM and SIGKILL for a job that is stopped or interrupted.
        shown_after_s: seconds during which DescribeTrainingJob, ListTrainingJobs and StopTrainingJob do not know a new
            job.

    Attributes:
        url: the emulator's address.
        environment: variables that make AWS clients use the emulator.
    """

    account = ACCOUNT
    role = f"arn:aws:iam::{ACCOUNT}:role/{ROLE_NAME}"
    bucket = f"sagemaker-{REGION}-{ACCOUNT}"

    def __init__(
        self,
        root: Path,
        *,
        images: Mapping[str, Path] | None = None,
        keep: Sequence[Path] = (),
        upload_s: float = 0.0,
        grace_s: float = 120.0,
        shown_after_s: float = 0.0,
    ) -> None:
        self.root = root.resolve()
        self.images = images or {"*": Path(sys.prefix)}
        self.keep = keep
        self.upload_s = upload_s
        self.grace_s = grace_s
        self.shown_after_s = shown_after_s

    def __enter__(self) -> "Emulator":
        if missing := namespaces_are_missing():
            pytest.skip(missing)
        self.root.mkdir(parents=True, exist_ok=True)
        self._manager: Any = _Manager(ctx=multiprocessing.get_context("spawn"))
        self._manager.start(_leave_no_trace, [self.root / "emulator.log"])
        settings = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        self._service = self._manager.Service(settings)  # type: ignore[attr-defined]  # registered below
        self.url: str = self._service.address()
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._service.abandon()
        self._manager.shutdown()
        for log in self.root.glob("jobs/*/trouble.log"):  # pytest shows the output of a failed test
            print(f"the stand-in failed, shown as an internal error of AWS:\n{log.read_text()}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._service, name)

    def job_folder(self, name: str) -> Path:
        """Return the folder of a job. `<attempt>/<host>/ml` is /opt/ml, and `<attempt>/<host>/log` is its output."""
        return self.root / "jobs" / name


class _Manager(BaseManager):
    """Starts the process of the service."""


def _service(settings: dict[str, Any]) -> Any:
    # Imported here, because only the service's process needs this module and moto.
    return importlib.import_module("tests.support.stand_ins.sagemaker.service").Service(settings)


_Manager.register("Service", _service)


def _leave_no_trace(log: Path) -> None:
    """End this process together with the one that started it, and send its output to a file."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    warnings.simplefilter("ignore")
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
