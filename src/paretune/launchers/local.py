"""The launcher for this machine, which runs jobs as processes: each "instance" of a job is one data-parallel process.

    HOME/jobs/NAME/                 the job's folder (container.JobFolder), which also contains:
    HOME/jobs/NAME/process.json     the process that runs the job, and the process that started it
    HOME/jobs/NAME/stop             time of the first stop request, and the ending that it asks for
    HOME/jobs/NAME/end.json         the ending and its time; written once, by the first process that notices the end
    HOME/jobs/NAME/input/data/code/ a copy of the project, in which its command runs
    HOME/checkpoints/RUN/           checkpoints of a run, from which its next attempt continues

A local job ends when the process that started it ends.
"""

import errno
import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from paretune.core.clock import Clock
from paretune.core.errors import BadInput
from paretune.core.file_lock import locked_file
from paretune.core.machine import machine_name, usable_cores
from paretune.core.packages import can_be_imported
from paretune.launchers import LOCAL
from paretune.launchers.base import JobSetup, JobStatus, Launcher, Surroundings, checkpoint_folder
from paretune.launchers.job_folder import FolderJob, fill
from paretune.launchers.processes import living, out_of_memory_kills
from paretune.pricing import ML_M5_LARGE
from paretune.specification.container import (
    JobDocument,
    JobFolder,
    JobInputs,
    write_json,
    write_json_once,
)
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, cut_off, failed
from paretune.specification.job import JobSpec
from paretune.specification.price import Price

_READ_LINES = 200  # lines of the log in which the reason of a silent end is searched
_SIGNALED = 128  # exit codes above this name the signal that ended a process
STOP_GRACE_S = 70.0  # seconds from `stop` until a running job is killed; torchrun kills its processes after 60


def gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


class LocalJob(FolderJob):
    """A job on this machine. `child` is the job's process, or None if another process started it."""

    def __init__(self, name: str, root: Path, clock: Clock, child: "subprocess.Popen[bytes] | None" = None) -> None:
        super().__init__(name, root)
        self._clock, self._child = clock, child
        self._end, self._stop = root / "end.json", root / "stop"
        raw = _read(root / "process.json")
        self._started, self._max_seconds = float(raw["started"]), float(raw["max_seconds"])
        self._process, self._starter = raw["process"], raw["starter"]  # id and start of each
        self._oom_kills, self._run_id = raw["oom_kills"], raw["run_id"]

    @property
    def run_id(self) -> str:
        return str(self._run_id)

    def state(self) -> JobState:
        """Return the state.

        This also asks the job to stop after its maximum runtime, and kills it STOP_GRACE_S after a stop request.
        """
        if self._end.exists():
            if self._child is not None:
                self._child.poll()  # otherwise it stays a zombie
            return self._ending().state
        code = None if self._child is None else self._child.poll()
        if code is not None or (self._child is None and living(*self._process) is None):
            return self._record_end(code)
        if not self._stop.exists() and self._clock.now() - self._started > self._max_seconds:
            self._ask_to_stop(cut_off(f"it ran longer than {self._max_seconds / 60:g} minutes"))
        if not self._stop.exists():
            return JobState.RUNNING
        if self._clock.now() - _read(self._stop)["time"] > STOP_GRACE_S:
            self._kill()
        return JobState.STOPPING

    def stop(self) -> None:
        """Send SIGTERM to the job's process. paretune's training then writes a checkpoint after its current step."""
        if not self.state().is_terminal:
            self._ask_to_stop(STOPPED)

    def status(self) -> JobStatus:
        if not self.state().is_terminal:
            seconds = self._clock.now() - self._started
            return JobStatus(seconds=seconds, billable_seconds=seconds)
        ending, ended_at = self._ending().explained(self.log_tail(_READ_LINES)), float(_read(self._end)["time"])
        has_model = ending.has_completed and any(self.folder.model.glob("*"))
        return JobStatus(
            ending=ending,
            seconds=ended_at - self._started,
            billable_seconds=ended_at - self._started,
            ended_at=ended_at,
            report=self.report() if ending.has_completed else None,
            partial=None if ending.has_completed else self.partial_report(),
            model=str(self.folder.model) if has_model else "",
        )

    def _ending(self) -> Ending:
        return Ending.from_json(_read(self._end))

    def _record_end(self, code: int | None) -> JobState:
        if self.report() is not None and code in (0, None):
            ending = COMPLETED
        elif self._stop.exists():
            ending = Ending.from_json({"state": JobState.STOPPED.value, **_read(self._stop)})
        elif self.folder.stopped.exists():
            ending = Ending(JobState.STOPPED, Cause.ERROR, "stopped from outside, with a checkpoint")
        else:
            ending = self.folder.read_failure() or failed(*self._unexplained(code))
        write_json_once(self._end, {**ending.as_json(), "time": self._ended_at()})
        return self._ending().state

    def _ended_at(self) -> float:
        """Return the current time if this process started the job; otherwise, the time of the log's last write."""
        now, log = self._clock.now(), self.folder.log
        return now if self._child is not None or not log.exists() else min(now, log.stat().st_mtime)

    def _unexplained(self, code: int | None) -> tuple[Cause, str]:
        if out_of_memory_kills() > self._oom_kills:
            return Cause.OUT_OF_MEMORY, "the system killed it because the machine ran out of memory"
        if code is None and living(*self._starter) is None:
            return Cause.ERROR, "the process that started it has ended, and the job with it"
        if code in (0, None):
            return Cause.ERROR, "its process has ended and left no report that can be read"
        if code == errno.ENOSPC:
            return Cause.DISK_FULL, f"the disk that holds {self.folder.root} is full"
        if code > _SIGNALED:  # the program that runs a user's own training passes on how that ended
            code = _SIGNALED - code
        if code < 0:
            why = ", usually because the machine ran out of memory: reduce its memory use" * (code == -signal.SIGKILL)
            return Cause.ERROR, f"its process was killed by {signal.Signals(-code).name}{why}"
        return Cause.ERROR, f"its process ended with exit code {code} and left no report"

    def _ask_to_stop(self, ending: Ending) -> None:
        # A second SIGTERM would end torchrun without its workers, and a new stop file would restart the grace period.
        if not self._stop.exists():
            write_json(self._stop, {"time": self._clock.now(), **ending.as_json()})
            if process := living(*self._process):
                process.terminate()

    def _kill(self) -> None:
        if process := living(*self._process):
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

    def check(self, spec: JobSpec) -> JobSetup:
        """Return the job's setup. Raises BadInput if it reads secrets from AWS and boto3 is not installed."""
        if spec.reads_secrets and not can_be_imported("boto3"):
            variables = "or set the variables in your shell, because a job on this machine gets them, too"
            raise BadInput(
                [f"environment has a secret of AWS, and boto3 is not installed here: install it, {variables}"]
            )
        return JobSetup(spec=spec)

    def submit(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> LocalJob:
        folder = JobFolder(self._home / "jobs" / document.job_name)
        folder.make()
        with locked_file(folder.root / "lock"):  # so that only one process starts the job
            if (existing := self.attach(document.job_name)) is not None:
                return existing
            child = self._start(folder, document, inputs)
            started = {  # all that a later process needs to adopt the job
                "started": self._clock.now(),
                "max_seconds": document.max_seconds,
                "run_id": document.run_id,
                "oom_kills": out_of_memory_kills(),
                "process": [child.pid, psutil.Process(child.pid).create_time()],
                "starter": [os.getpid(), psutil.Process().create_time()],
            }
            write_json(folder.root / "process.json", started)
        return LocalJob(document.job_name, folder.root, self._clock, child)

    def attach(self, job_name: str) -> LocalJob | None:
        root = self._home / "jobs" / job_name
        return LocalJob(job_name, root, self._clock) if (root / "process.json").exists() else None

    def location_tags(self) -> Mapping[str, str]:
        return {"machine": machine_name()}

    def price(self, spec: JobSpec) -> Price:
        return ML_M5_LARGE

    def _start(self, folder: JobFolder, document: JobDocument, inputs: JobInputs) -> "subprocess.Popen[bytes]":
        cores, threads = usable_cores(), self._environment.get("OMP_NUM_THREADS", "")
        command = fill(
            folder,
            document,
            inputs,
            checkpoints=self._home / "checkpoints" / checkpoint_folder(document),
            gpus=gpus(),
            cores=cores,
            path=self._environment.get("PATH", os.defpath),
        )
        share = max(1, cores // document.plan.devices)
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


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values
