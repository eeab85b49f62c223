"""The local launcher: the contract, and what only processes of this machine can do."""

import errno
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.launchers.base import Job
from paretune.launchers.job_folder import FolderJob
from paretune.launchers.local import STOP_GRACE_S, LocalJob, LocalLauncher, record_folder
from paretune.launchers.offers import order_of
from paretune.launchers.processes import is_alive, living, process_text
from paretune.specification.container import (
    Command,
    JobFolder,
    JobInputs,
    UserCode,
    write_json,
)
from paretune.specification.ending import COMPLETED, Cause, JobState, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.testing import LauncherContract, Place, RealJobsContract
from tests.support.processes import command, wait_until, working_in
from tests.support.scripted_training import TRAINING

PYTHON, WITHIN_S = sys.executable, 30.0


class ShiftedClock(SystemClock):
    """The system's clock, which tests put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@dataclass
class Workshop:
    """Makes local launchers, and ends what they have started."""

    home: Path
    clock: ShiftedClock = field(default_factory=ShiftedClock)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    started: list[LocalJob] = field(default_factory=list)

    def launcher(self) -> "RememberingLauncher":
        return RememberingLauncher(self)

    def end_all(self) -> None:
        for job in self.started:
            if not job.state().is_terminal:
                job._kill()
                wait_until(lambda job=job: job.state().is_terminal, within_s=WITHIN_S, what=f"{job.name} is gone")
            if job._child is not None:
                job._child.wait(WITHIN_S)  # its end may have been seen before it was reaped


class RememberingLauncher(LocalLauncher):
    """Reports to its workshop what it has started."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop.home, workshop.clock, workshop.environment)
        self._workshop = workshop

    def submit(self, order: Order) -> LocalJob:
        job = super().submit(order)
        self._workshop.started.append(job)
        return job


def test_no_line_of_a_long_log_is_shown_in_part(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "jobs" / "paretune-long-1")
    folder.make()
    process = {
        "run_id": "",
        "started": 0.0,
        "max_seconds": 60.0,
        "oom_kills": 0,
        "process": [1, 0.0],
        "starter": [1, 0.0],
    }
    write_json(record_folder(tmp_path, "paretune-long-1") / "process.json", process)
    lines = [f"line {number} {'x' * 400}" for number in range(1000)]
    folder.log.write_text("\n".join(lines) + "\n")
    job = LocalLauncher(tmp_path, SystemClock(), {}).attach("paretune-long-1")
    assert job is not None

    shown = job.log_tail(1000)

    assert 100 < len(shown) < 1000
    assert shown == lines[-len(shown) :]


def test_lines_are_followed_by_their_place_in_the_log_however_many_or_equal_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder(tmp_path / "jobs" / "paretune-long-1")
    folder.make()
    job = LocalJob.__new__(LocalJob)
    FolderJob.__init__(job, "paretune-long-1", folder.root)
    monkeypatch.setattr(LocalJob, "state", lambda _: JobState.RUNNING)
    folder.log.write_text("first\nnot yet")

    assert job.new_lines() == ["first"]  # the last line may go on
    with folder.log.open("a") as log:
        log.write(" whole\n" + "same\n" * 1500)
    assert job.new_lines() == ["not yet whole", *["same"] * 1500]
    with folder.log.open("a") as log:
        log.writelines(f"line {number} {'x' * 200}\n" for number in range(2001))
    assert len(job.new_lines()) == 2001
    folder.log.write_text("another log\n")
    assert job.new_lines() == ["another log"]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """Yield a workshop of local launchers whose training is TRAINING."""
    program = tmp_path / "training"
    program.write_text(TRAINING.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    made = Workshop(tmp_path / "home")
    yield made
    made.end_all()


def job_of(kind: str, **changes: object) -> tuple[JobSpec, JobInputs]:
    return JobSpec(model=kind, **changes), JobInputs()  # type: ignore[arg-type]


@pytest.fixture
def place(workshop: Workshop) -> Place:
    return Place(launcher=workshop.launcher(), another=workshop.launcher, job=job_of)


class TestLocalLauncherKeepsTheContract(LauncherContract):
    """Runs the contract with the fixture `place`."""


class TestLocalLauncherRunsRealJobs(RealJobsContract):
    @pytest.fixture
    def parameters(self) -> Mapping[str, Any]:
        return {"launcher": "local"}


def _folder(job: Job) -> JobFolder:
    assert isinstance(job, LocalJob)
    return job.folder


def _process(job: Job) -> Any:
    return living(*json.loads((_record(job) / "process.json").read_text())["process"])


def _record(job: Job) -> Path:
    return record_folder(_folder(job).root.parents[1], job.name)


def test_a_job_of_a_launcher_that_died_has_failed_although_its_number_is_in_use_again(
    place: Place, workshop: Workshop
) -> None:
    job = place.submit("quick")
    place.end(job)
    for path in (_record(job) / "end.json", _folder(job).report):
        path.unlink()
    record = _record(job) / "process.json"
    reused = [os.getpid(), psutil.Process().create_time() - 100]
    write_json(record, json.loads(record.read_text()) | {"process": reused, "starter": reused})

    seen = place.attached(job.name)

    assert seen.state() is JobState.FAILED
    assert seen.status().ending == failed(Cause.ERROR, "the process that started it has ended, and the job with it")


@pytest.mark.linux
@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_job_lives_on_when_somebody_sets_the_clock_of_this_machine(
    place: Place, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    job = place.submit("long", max_runtime_minutes=60.0)
    watching, created = process_text(), psutil.Process.create_time
    workshop.clock.ahead = jump_s
    # psutil adds ticks since the boot to the time of the boot, which moves with the clock.
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + jump_s)

    seen = place.attached(job.name)

    assert is_alive(watching) is True
    for each in (job, seen):
        assert each.state() is JobState.RUNNING
        assert 0 <= each.status().seconds < WITHIN_S
    seen.stop()
    assert place.end(job) is JobState.STOPPED
    assert 0 <= place.attached(job.name).status().seconds < 2 * WITHIN_S


@pytest.mark.parametrize(
    ("processes", "setting", "threads"),
    [(12, "", 1), (4, "2,1", "2,1"), (2, "of course", 3)],
)
def test_a_job_shares_the_cores_as_the_user_has_said_and_knows_nothing_of_the_tracking_server(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, processes: int, setting: str, threads: object
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 6)
    workshop.environment |= {"OMP_NUM_THREADS": setting, "MKL_NUM_THREADS": "5", "MLFLOW_TRACKING_URI": "http://u:p@h"}
    place = Place(launcher=workshop.launcher(), another=workshop.launcher, job=job_of)
    job = place.submit("quick", instance_count=processes)
    place.end(job)

    environment = json.loads((_folder(job).root / "environment.json").read_text())

    assert environment["OMP_NUM_THREADS"] == str(threads)
    assert environment["MKL_NUM_THREADS"] == "5"
    assert not [name for name in environment if name.startswith("MLFLOW_")]


def test_a_secret_of_aws_is_refused_where_boto3_cannot_read_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(environment={"HF_TOKEN": "secret:arn:aws:secretsmanager:us-east-1:123456789012:secret:hub"})
    workshop.launcher().place(spec)
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(BadInput, match="boto3 is not installed here: install it, or set the variables in your shell"):
        workshop.launcher().place(spec)


def test_the_attempts_of_a_run_share_its_checkpoints_until_it_completes(workshop: Workshop, place: Place) -> None:
    order = place.order("quick")

    def ended(name: str) -> LocalJob:
        job = workshop.launcher().submit(replace(order, job_name=name))
        wait_until(lambda: job.state().is_terminal, within_s=WITHIN_S, what="the job ends")
        return job

    first, second, other = (ended(f"paretune-{name}") for name in ("abc-1", "abc-2", "def-1"))

    folder = first.folder.checkpoints.resolve()
    assert second.folder.checkpoints.resolve() == folder != other.folder.checkpoints.resolve()
    assert folder.is_dir()
    for job in (second, first):  # two processes may complete the record of one job
        job.clean_up()
        assert not folder.exists()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGSEGV, "killed by SIGSEGV"),
        (signal.SIGKILL, "killed by SIGKILL, usually because the machine ran out of memory: reduce its memory use"),
    ],
)
def test_a_job_whose_process_was_killed_has_failed_by_that_signal(
    place: Place, number: signal.Signals, reason: str
) -> None:
    job = place.submit("long")
    place.first_event(job)

    _process(job).send_signal(number)

    assert place.end(job) is JobState.FAILED
    assert job.status().ending == failed(Cause.ERROR, f"its process was {reason}")


def test_a_job_that_the_kernel_killed_for_memory_ran_out_of_memory(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.launchers.local.out_of_memory_kills", itertools.count().__next__)
    job = place.submit("long")
    place.first_event(job)

    _process(job).kill()

    assert place.end(job) is JobState.FAILED
    ending = job.status().ending
    assert ending is not None
    assert ending.cause is Cause.OUT_OF_MEMORY


@pytest.mark.parametrize("has_empty_file", [False, True])  # as a full disk leaves it
def test_a_job_that_ends_without_a_word_has_failed_with_its_exit_code(place: Place, has_empty_file: bool) -> None:
    job = place.submit("silent")
    if has_empty_file:
        job.folder.failure.touch()

    assert place.end(job) is JobState.FAILED
    assert job.status().ending == failed(Cause.ERROR, "its process ended with exit code 7 and left no report")


def test_a_job_that_does_not_stop_is_killed_when_patience_ends_however_often_it_was_asked(
    place: Place, workshop: Workshop
) -> None:
    job = place.submit("deaf")
    place.first_event(job)
    job.stop()
    workshop.clock.ahead = STOP_GRACE_S - 10
    assert job.state() is JobState.STOPPING
    job.stop()

    workshop.clock.ahead = STOP_GRACE_S + 1

    assert place.end(job) is JobState.STOPPED
    assert _process(job) is None


@pytest.mark.parametrize("later_s", [-1e7, 1e7, float("nan")])
def test_no_recorded_time_is_later_than_now_or_earlier_than_the_start(place: Place, later_s: float) -> None:
    job = place.submit("quick")
    place.end(job)
    end = _record(job) / "end.json"
    write_json(end, json.loads(end.read_text()) | {"time": job.status().ended_at + later_s})

    assert 0 <= place.attached(job.name).status().seconds < WITHIN_S


def test_a_job_took_no_longer_than_its_limit_and_the_time_to_stop(place: Place, workshop: Workshop) -> None:
    job = place.submit("long", max_runtime_minutes=1.0)
    place.first_event(job)
    workshop.clock.ahead = 1e7  # as if the machine had slept

    place.end(job)

    assert job.status().seconds == 60 + STOP_GRACE_S


def test_the_end_is_known_although_the_disk_is_full(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = place.submit("quick")
    monkeypatch.setattr("paretune.launchers.local.write_json_once", raise_disk_full)

    assert place.end(job) is JobState.COMPLETED

    status = job.status()
    assert (status.ending, job.status()) == (COMPLETED, status)


def raise_disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LAUNCHING = """
import sys, time
from pathlib import Path
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.launchers.local import LocalLauncher
from paretune.launchers.offers import order_of
from paretune.specification.job import JobSpec

home, sys.executable = Path(sys.argv[1]), sys.argv[2]
order = order_of(JobSpec(model="long"), job_name="paretune-test-1")
LocalLauncher(home, SystemClock(), {"PYTHONPATH": sys.argv[3]}).submit(order)
time.sleep(60)
"""


def test_a_job_ends_when_its_launcher_is_killed(workshop: Workshop, tmp_path: Path) -> None:
    words = [PYTHON, "-c", LAUNCHING, str(workshop.home), sys.executable, os.pathsep.join(sys.path)]
    folder = JobFolder(workshop.home / "jobs" / "paretune-test-1")
    with command(words, home=workshop.home, cwd=tmp_path, log=tmp_path / "log") as launching:
        wait_until(
            lambda: launching.process.poll() is not None or folder.events.exists(), within_s=60, what="the job runs"
        )
        assert launching.process.poll() is None, launching.text

        launching.process.kill()
        launching.process.wait()

        wait_until(lambda: not working_in(workshop.home), within_s=20, what="no process of the job is left")
    seen = workshop.launcher().attach("paretune-test-1")
    assert seen is not None
    assert seen.state().is_terminal


def test_a_project_runs_in_a_copy_of_its_files_with_links_to_the_large_ones(
    tmp_path: Path,
) -> None:
    sources = {"runner.py": RUNNER, "a.txt": "small", "large.bin": "x" * (2**20 + 1), "rows.csv": "1"}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    payload = UserCode(
        files={"runner.py": tmp_path / "runner.py"}
        | {f"project/{name}": tmp_path / name for name in ("a.txt", "large.bin")},
        command=Command(words=("train",)),
        linked={"project/data/rows.csv": tmp_path / "rows.csv"},
    )
    spec = JobSpec(project="mine")
    environment = {"PATH": os.environ["PATH"], "MLFLOW_TRACKING_URI": "elsewhere", "HOME": str(tmp_path)}
    launcher = LocalLauncher(tmp_path / "home", SystemClock(), environment)

    job = launcher.submit(order_of(spec, job_name="paretune-abc-1", inputs=JobInputs(code=payload)))
    wait_until(lambda: job.state().is_terminal, within_s=WITHIN_S, what="the command ends")

    code = job.folder.root / "input" / "data" / "code"
    content = json.loads((job.folder.model / "said.json").read_text())
    assert job.state() is JobState.COMPLETED
    assert content["document"]["command"]["words"] == ["train"]
    assert Path(content["python"]).parent == Path(sys.executable).parent
    assert not content["mlflow"]
    assert not (code / "project" / "a.txt").is_symlink()
    assert (code / "project" / "large.bin").is_symlink()
    assert (code / "project" / "data" / "rows.csv").read_text() == "1"
    assert job.fetch_output("paretune", Path()) == job.folder.report.parent / "paretune"
    assert job.status().model == str(job.folder.model)


RUNNER = """
import json, os, shutil, sys
from pathlib import Path
from typing import Any
ml = Path(sys.argv[1])
said = {"document": json.loads((ml / "input/data/job/job.json").read_text()), "folder": os.getcwd()}
said |= {"python": shutil.which("python"), "mlflow": [name for name in os.environ if name.startswith("MLFLOW")]}
Path(os.environ["SM_MODEL_DIR"], "said.json").write_text(json.dumps(said))
report = {"metrics": {}, "facts": {}, "labels": [], "confusion_matrix": []}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "report.json").write_text(json.dumps(report))
"""


def test_a_process_is_known_by_host_id_and_start() -> None:
    host = socket.gethostname()

    assert is_alive(process_text()) is True
    assert is_alive(f"{host} 4194304 {psutil.Process().create_time():.0f}") is False  # no process has this id
    assert is_alive(f"{host} {os.getpid()} 1") is False  # another process had this id
    assert is_alive(f"elsewhere {os.getpid()} {psutil.Process().create_time():.0f}") is None
    assert is_alive("") is None
