"""The launcher for this machine, which runs jobs as processes: each "instance" of a job is one data-parallel process.

    HOME/jobs/NAME/                 the job's folder (container.JobFolder)
    HOME/jobs/NAME/input/data/code/ a copy of the project, in which its command runs
    HOME/checkpoints/RUN/           checkpoints of a run, from which its next attempt continues
    HOME/launched/NAME/             what this launcher knows of the job:
        process.json                the process that runs the job, and the process that started it
        stop                        time of the first stop request, and the ending that it asks for
        end.json                    the ending and its time; written by the first process that notices the end
        lock                        held while the job is started

The job may write into its own folder only, so nothing there says when it started, that it was stopped or how long it
took. A local job ends when the process that started it ends.
"""

import errno
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from paretune.core.clock import Clock
from paretune.core.errors import BadInput
from paretune.core.file_lock import locked_file
from paretune.core.machine import machine_name, usable_cores
from paretune.core.packages import can_be_imported
from paretune.launchers import LOCAL
from paretune.launchers.base import JobStatus, Launcher, Surroundings, checkpoint_folder
from paretune.launchers.job_folder import FolderJob, fill
from paretune.launchers.processes import CLOCK_STEP_S, living, out_of_memory_kills, start_of
from paretune.presentation.text import duration
from paretune.pricing import ML_M5_LARGE
from paretune.specification.container import (
    JobFolder,
    write_json,
    write_json_once,
)
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, cut_off, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order, job_of
from paretune.specification.price import Price

_READ_LINES = 200  # lines of the log in which the reason of a silent end is searched
_LEAST_FREE = 2**20  # bytes of a disk on which a job cannot write its report
_SIGNALED = 128  # exit codes above this name the signal that ended a process
STOP_GRACE_S = 70.0  # seconds from `stop` until a running job is killed; torchrun kills its processes after 60


def gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """The beginning of a job, as recorded. Times are in seconds since the epoch; a process is an id and its `start_of`.

    `created` is when the system says that the process began. This time moves if somebody sets the system's clock.
    """

    started: float
    max_seconds: float = math.inf
    process: tuple[int, str] | None = None  # of the job; None if unknown
    starter: tuple[int, str] | None = None
    oom_kills: int = 0
    run_id: str = ""
    created: float | None = None

    @classmethod
    def read(cls, record: Path, now: float) -> "_Begun":
        """Read process.json. If it cannot be read, only the time at which the record was made is known."""
        with suppress(TypeError, ValueError, LookupError):
            raw = _read(record / "process.json") or {}
            begun = cls(
                started=float(raw["started"]),
                max_seconds=float(raw["max_seconds"]),
                process=(int(raw["process"][0]), str(raw["process"][1])),
                starter=(int(raw["starter"][0]), str(raw["starter"][1])),
                oom_kills=int(raw["oom_kills"]),
                run_id=str(raw["run_id"]),
                created=float(raw["created"]),
            )
            if math.isfinite(begun.started) and not math.isnan(begun.max_seconds):
                return begun
        return cls(started=min(_written_at(record / "lock", now), now))


class LocalJob(FolderJob):
    """A job on this machine. `child` is the job's process, or None if another process started it."""

    def __init__(self, name: str, home: Path, clock: Clock, child: "subprocess.Popen[bytes] | None" = None) -> None:
        super().__init__(name, home / "jobs" / name)
        self._clock, self._child = clock, child
        self._record = record_folder(home, name)
        self._end, self._stop = self._record / "end.json", self._record / "stop"
        self._begun = _Begun.read(self._record, clock.now())
        self._jump_s = 0.0  # by how much the system's clock was set forward since the job began
        self._recorded: tuple[Ending, float] | None = None  # how and when it ended, once that is known

    @property
    def run_id(self) -> str:
        return self._begun.run_id or job_of(self.name)

    def state(self) -> JobState:
        """Return the state.

        This also asks the job to stop after its maximum runtime, and kills it STOP_GRACE_S after a stop request.
        """
        if self._living() is None:
            return self._ended()[0].state
        now, request = self._now(), self._stop_request()
        if request is None and now - self._begun.started > self._begun.max_seconds:
            self._ask_to_stop(cut_off(f"it ran longer than {duration(self._begun.max_seconds)}"))
            request = self._stop_request()
        if request is None:
            return JobState.RUNNING
        if now - request[1] > STOP_GRACE_S:
            self._kill()
        return JobState.STOPPING

    def stop(self) -> None:
        """Send SIGTERM to the job's process. paretune's training then writes a checkpoint after its current step."""
        if not self.state().is_terminal:
            self._ask_to_stop(STOPPED)

    def status(self) -> JobStatus:
        if not self.state().is_terminal:
            seconds = self._bounded(self._now()) - self._begun.started
            return JobStatus(seconds=seconds, billable_seconds=seconds)
        ending, ended_at = self._ended()
        ending, seconds = ending.explained(self.log_tail(_READ_LINES)), ended_at - self._begun.started
        has_model = ending.has_completed and any(self.folder.model.glob("*"))
        return JobStatus(
            ending=ending,
            seconds=seconds,
            billable_seconds=seconds,
            ended_at=ended_at,
            report=self.report() if ending.has_completed else None,
            partial=None if ending.has_completed else self.partial_report(),
            model=str(self.folder.model) if has_model else "",
        )

    def _ended(self) -> tuple[Ending, float]:
        """Return how the job ended and when, and record it unless another process has."""
        if self._recorded is None and (recorded := _read_ending(self._end)) is not None:
            self._recorded = recorded[0], self._bounded(recorded[1])
        if self._recorded is None:
            self._recorded = ending, ended_at = self._how_it_ended(), self._ended_at()
            with suppress(OSError):  # such as a full disk; another process then sees the end for itself
                if self._end.exists():  # it cannot be read
                    self._end.unlink()
                write_json_once(self._end, {**ending.as_json(), "time": ended_at})
                self._recorded = _read_ending(self._end) or self._recorded  # another process may have been first
        return self._recorded

    def _how_it_ended(self) -> Ending:
        code = None if self._child is None else self._child.returncode  # None if another process started it
        if self.report() is not None and code in (0, None):
            return COMPLETED
        if (request := self._stop_request()) is not None:
            return request[0]
        if self.folder.stopped.exists():
            return Ending(JobState.STOPPED, Cause.ERROR, "stopped from outside, with a checkpoint")
        return self._failure() or failed(*self._unexplained(code))

    def _failure(self) -> Ending | None:
        """Return the failure that the job has written, or None. That it met its limit is only known here."""
        ending = self.folder.read_failure()
        is_limit = ending is not None and ending.cause is Cause.TIME_LIMIT
        return failed(Cause.ERROR, ending.sentence) if ending is not None and is_limit else ending

    def _ended_at(self) -> float:
        """Return the current time if this process started the job; otherwise, the time of the log's last write."""
        now = self._now()
        return self._bounded(now if self._child is not None else _written_at(self.folder.log, now))

    def _bounded(self, time: float) -> float:
        """Return the time, not before the job's start, not later than now, and not after its limit."""
        started, latest = self._begun.started, self._begun.started + self._begun.max_seconds + STOP_GRACE_S
        return max(started, min(time, self._now(), latest))

    def _stop_request(self) -> tuple[Ending, float] | None:
        """Return the ending that the first stop request asks for, and its time; None without a request."""
        if not self._stop.exists():
            return None
        now = self._now()
        ending, time = _read_ending(self._stop) or (STOPPED, _written_at(self._stop, now))
        return ending, min(time, now)

    def _unexplained(self, code: int | None) -> tuple[Cause, str]:
        if self._child is None and self._begun.process is None:
            path = self._record / "process.json"
            return Cause.ERROR, f"{path} cannot be read, so its process is unknown and counts as ended"
        if out_of_memory_kills() > self._begun.oom_kills:
            return Cause.OUT_OF_MEMORY, "the system killed it because the machine ran out of memory"
        if code is None and self._begun.starter is not None and living(*self._begun.starter) is None:
            return Cause.ERROR, "the process that started it has ended, and the job with it"
        if code == errno.ENOSPC or self._is_disk_full():
            return Cause.DISK_FULL, f"the disk that holds {self.folder.root} is full"
        if code in (0, None):
            return Cause.ERROR, "its process has ended and left no report that can be read"
        if code > _SIGNALED:  # the program that runs a user's own training passes on how that ended
            code = _SIGNALED - code
        if code < 0:
            why = ", usually because the machine ran out of memory: reduce its memory use" * (code == -signal.SIGKILL)
            return Cause.ERROR, f"its process was killed by {signal.Signals(-code).name}{why}"
        return Cause.ERROR, f"its process ended with exit code {code} and left no report"

    def _is_disk_full(self) -> bool:
        """Return whether there is no room for a report in the job's folder."""
        with suppress(OSError):
            return shutil.disk_usage(self.folder.root).free < _LEAST_FREE
        return False

    def _living(self) -> psutil.Process | None:
        """Return the job's process, or None if it has ended.

        Another process may see and record the end a moment before this one can read the exit code of its child.
        """
        child, process = self._child, None
        if child is not None and (child.poll() is not None or not self._end.exists()):
            process = psutil.Process(child.pid) if child.returncode is None else None
        elif self._begun.process is not None:
            process = living(*self._begun.process)
        if process is not None and self._begun.created is not None:
            with suppress(psutil.NoSuchProcess):
                jump_s = process.create_time() - self._begun.created
                self._jump_s = jump_s if abs(jump_s) > CLOCK_STEP_S else 0.0
        return process

    def _now(self) -> float:
        """Return the time of the clock as it was set when the job began, as far as this was seen while it ran."""
        return self._clock.now() - self._jump_s

    def _ask_to_stop(self, ending: Ending) -> None:
        # A second SIGTERM would end torchrun without its workers, and a new stop file would restart the grace period.
        if not self._stop.exists():
            write_json(self._stop, {"time": self._now(), **ending.as_json()})
            if process := self._living():
                process.terminate()

    def _kill(self) -> None:
        if process := self._living():
            for member in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()


class LocalLauncher(Launcher):
    """Starts jobs on this machine, in folders under `home`.

    Jobs get the variables of `environment` except MLFLOW_*, which they do not use, and the size of a terminal, which
    they do not have.
    """

    traits = LOCAL
    jobs_outlive_submitter = False
    jobs_may_appear_late = False
    stop_s = STOP_GRACE_S

    def __init__(self, home: Path, clock: Clock, environment: Mapping[str, str]) -> None:
        self._home, self._clock = home.resolve(), clock
        self._environment = {
            name: value
            for name, value in environment.items()
            if not name.startswith("MLFLOW_") and name not in ("COLUMNS", "LINES")
        }

    @classmethod
    def open(cls, surroundings: Surroundings) -> "LocalLauncher":
        return cls(surroundings.home, surroundings.clock, surroundings.environment)

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        """Return nothing. Raises BadInput if the job reads secrets from AWS and boto3 is not installed."""
        if spec.reads_secrets and not can_be_imported("boto3"):
            variables = "or set the variables in your shell, because a job on this machine gets them, too"
            raise BadInput(
                [f"environment has a secret of AWS, and boto3 is not installed here: install it, {variables}"]
            )
        return {}

    def submit(self, order: Order) -> LocalJob:
        name = order.job_name
        folder, record = JobFolder(self._home / "jobs" / name), record_folder(self._home, name)
        folder.make()
        record.mkdir(parents=True, exist_ok=True)
        with locked_file(record / "lock"):  # so that only one process starts the job
            if (existing := self.attach(name)) is not None:
                return existing
            child = self._start(folder, order)
            process = psutil.Process(child.pid)
            started = {  # all that a later process needs to adopt the job
                "started": self._clock.now(),
                "max_seconds": order.max_seconds,
                "run_id": order.run_id,
                "request": order.request,
                "oom_kills": out_of_memory_kills(),
                "process": [child.pid, start_of(process)],
                "created": process.create_time(),
                "starter": [os.getpid(), start_of(psutil.Process())],
            }
            write_json(record / "process.json", started)
        return LocalJob(name, self._home, self._clock, child)

    def attach(self, job_name: str) -> LocalJob | None:
        is_known = (record_folder(self._home, job_name) / "process.json").exists()
        return LocalJob(job_name, self._home, self._clock) if is_known else None

    def request_of(self, job_name: str) -> str:
        return str((_read(record_folder(self._home, job_name) / "process.json") or {}).get("request", ""))

    def location_tags(self) -> Mapping[str, str]:
        return {"machine": machine_name()}

    def price(self, spec: JobSpec) -> Price:
        return ML_M5_LARGE

    def _start(self, folder: JobFolder, order: Order) -> "subprocess.Popen[bytes]":
        cores, threads = usable_cores(), self._environment.get("OMP_NUM_THREADS", "")
        command = fill(
            folder,
            order,
            checkpoints=self._home / "checkpoints" / checkpoint_folder(order),
            gpus=gpus(),
            cores=cores,
            path=self._environment.get("PATH", os.defpath),
        )
        share = max(1, cores // order.batch.devices)
        environment = {
            # Without it gloo resolves the host name, which can fail.
            **({"GLOO_SOCKET_IFNAME": "lo"} if platform.system() == "Linux" else {}),
            **self._environment,
            # With more threads than cores, torch's processes busy-wait for each other. A user's own value takes
            # precedence; it may have a number for each level of nesting. MKL_NUM_THREADS, which torch prefers, is kept.
            "OMP_NUM_THREADS": threads if re.fullmatch(r"\d+(,\d+)*", threads) else str(share),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONUNBUFFERED": "1",
            "PARETUNE_STARTER": str(os.getpid()),
            **command.variables,
        }
        with folder.log.open("ab") as log:
            return subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only
            )


def record_folder(home: Path, name: str) -> Path:
    """Return the folder of what the local launcher knows of a job."""
    return home / "launched" / name


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is no such file or it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(path.read_text()) if path.is_file() else None
        return values if isinstance(values, dict) else None
    return None


def _read_ending(path: Path) -> tuple[Ending, float] | None:
    """Return the ending in a file and its `time`, or None if there is no such file or it cannot be read."""
    raw = _read(path)
    with suppress(TypeError, ValueError, LookupError):
        if raw is not None and math.isfinite(time := float(raw["time"])):
            return Ending.from_json(raw), time
    return None


def _written_at(path: Path, otherwise: float) -> float:
    """Return when a file was last written, in seconds since the epoch; `otherwise` if it does not exist."""
    with suppress(OSError):
        return path.stat().st_mtime
    return otherwise
