"""The SageMaker launcher keeps the contract of all launchers, on the emulator, or in a real account with one switch.

    export PARETUNE_TEST_ACCOUNT=1 PARETUNE_ROLE=... PARETUNE_BUCKET=...
    pytest -m slow tests/end_to_end/test_sagemaker_contract.py

uses the AWS configuration of this machine and starts about 30 jobs on one ml.m5.large each, one to three minutes long:
30 x 3 min x 0.115 USD per hour = 0.17 USD at most (price of us-east-1, 2026-08-11).
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import paretune
from paretune.core.clock import SystemClock
from paretune.launchers.base import Job
from paretune.launchers.sagemaker.images import choose_image
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import Event, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.testing import LauncherContract, Place
from tests.support.stand_ins.sagemaker.emulator import Emulator

IN_AN_ACCOUNT = os.environ.get("PARETUNE_TEST_ACCOUNT") == "1"
COST = "about 30 jobs on ml.m5.large start in your AWS account now: some 90 minutes, about 0.20 USD"
INSTANCE_TYPE = "ml.m5.large"

# This replaces paretune/training/__main__.py in the job. It keeps the container contract and needs no torch.
TRAINING = """
import random, signal, sys, threading, time
from pathlib import Path
from paretune.specification.ending import Cause
from paretune.specification.container import Event, JobFolder, JobReport
from paretune.specification.order import Order

asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
folder = JobFolder(Path(sys.argv[1]))
order = Order.read(folder.document)
kind = order.training["model"]
step = 0

def send(message="", **metrics):
    with folder.events.open("a") as file:
        line = Event(time=time.time(), step=step, metrics=metrics, message=message).line()
        file.write(line + "\\n")
        print(line, flush=True)

folder.make()
send("started")
if kind == "quick":
    for step in range(1, 6):
        send(**{"train/loss": 1 / step})
    print(*(f"line {number}" for number in range(1, 41)), sep="\\n", flush=True)
    (folder.model / "weights").write_bytes(random.randbytes(1000))
    JobReport(metrics={"f1": 0.75}, facts={"seed": order.training.get("seed", 0)}).write(folder.report)
elif kind == "failing":
    folder.write_failure(Cause.DISK_FULL, "the disk is full: of sand")
    sys.exit(1)
else:
    asked.wait()
    step = 1
    send("stopped")
"""

pytestmark = pytest.mark.slow


@contextmanager
def _emulated_account(folder: Path) -> Iterator[None]:
    """Point the AWS variables of this process at an emulator."""
    with (
        Emulator(folder, grace_s=5.0) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, text in emulator.environment.items():
            patch.setenv(name, text)
        patch.setenv("PARETUNE_ROLE", emulator.role)
        patch.setenv("PARETUNE_BUCKET", emulator.bucket)
        yield


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[None]:
    if not IN_AN_ACCOUNT:
        with _emulated_account(tmp_path_factory.mktemp("emulator")):
            yield
        return
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{COST}")
    yield


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of paretune with TRAINING as its training."""
    folder = tmp_path_factory.mktemp("package") / "paretune"
    shutil.copytree(Path(paretune.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "training" / "__main__.py").write_text(TRAINING)
    return folder


class Remembering(SageMakerLauncher):
    """Keeps the jobs that it has started."""

    started: list[Job]

    def submit(self, order: Order) -> Job:
        job = super().submit(order)
        self.started.append(job)
        return job


def _job(kind: str, **changes: object) -> tuple[JobSpec, JobInputs]:
    """Return a job in an image that lacks nothing, so that nothing is installed."""
    spec = JobSpec(model=kind, instance_type=INSTANCE_TYPE, max_runtime_minutes=10)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    return spec.replace(
        sagemaker={"training_image": choose_image(spec.instance(), spec.strategy, region, is_users=False).uri},
        **changes,
    ), JobInputs()


def _is_no_status(event: Event) -> bool:
    return not event.message[:1].isupper()


def _place(package: Path) -> Iterator[Place]:
    """Yield launchers whose jobs are stopped at the end."""
    started: list[Job] = []

    def launcher() -> Remembering:
        made = Remembering(None, SystemClock(), os.environ, package=package)
        made.started = started
        return made

    yield Place(
        launcher=launcher(),
        another=launcher,
        job=_job,
        let_time_pass=lambda: time.sleep(2 if IN_AN_ACCOUNT else 0.25),
        within_s=1200 if IN_AN_ACCOUNT else 60,
        shortest_runtime_minutes=1 if IN_AN_ACCOUNT else 1 / 60,
        is_from_the_job=_is_no_status,
    )
    for job in started:
        job.stop()


@pytest.mark.essential
class TestSageMakerLauncherKeepsTheContract(LauncherContract):
    @pytest.fixture
    def place(self, account: None, package: Path) -> Iterator[Place]:
        yield from _place(package)
