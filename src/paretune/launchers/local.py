"""Jobs as processes on this machine: an instance is one data-parallel process.

    HOME/jobs/NAME/                 the job's folder (container.JobFolder), and beside it
    HOME/jobs/NAME/process.json     process that runs it and the one that started it
    HOME/jobs/NAME/stop             somebody has asked it to stop
    HOME/jobs/NAME/end.json         terminal state; written once, by whoever sees the end first
    HOME/checkpoints/HASH/          checkpoints of a specification, so that the same command continues

A local job never outlives the process that started it.
"""

import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.estimating.hardware import machine_name
from paretune.launchers.base import Job, JobState, Launcher
from paretune.launchers.processes import Process, cores, out_of_memory_kills
from paretune.pricing.prices import Price, local_price
from paretune.spec.container import (
    Event,
    EventReader,
    FailureKind,
    JobDocument,
    JobFolder,
    JobInputs,
    JobReport,
    PreparedDataset,
    write_json,
)
from paretune.spec.job import JobSpec

STOP_GRACE_S = 70.0
"""Seconds a job may take to checkpoint after `stop`; then it is killed. A training process gives itself 60."""
_STARTER_GRACE_S = 2.0
"""Seconds the process that started a job may take to record its end; then whoever looks at the job does."""


class LocalJob(Job):
    """A job on this machine, seen from the process that started it or from another one.

    Args:
        name: the job's name.
        root: the job's folder.
        clock: for time stamps and limits.
        child: the process, when this object started it.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        clock: Clock,
        child: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        self.name = name
        self.folder = JobFolder(root)
        self._clock = clock
        self._child = child
        self._reader = EventReader(self.folder.events)
        self._end = root / "end.json"
        self._stop = root / "stop"
        raw = json.loads((root / "process.json").read_text())
        self._started = float(raw["started"])
        self._max_seconds = float(raw["max_seconds"])
        self._oom_kills = raw["oom_kills"]
        self._process = Process(*raw["process"])
        self._starter = Process(*raw["starter"])
        self._gone_since: float | None = None

    def state(self) -> JobState:
        """The state now; also enforces the maximum runtime and the patience after `stop`."""
        if self._end.exists():
            self._reap()
            return JobState(json.loads(self._end.read_text())["state"])
        ended, code = self._has_ended()
        if ended:
            return self._record_end(code)
        if not self._stop.exists() and self.seconds() > self._max_seconds:
            self._ask_to_stop(f"MaxRuntimeExceeded: it ran longer than {self._max_seconds / 60:g} minutes")
        if not self._stop.exists():
            return JobState.RUNNING
        if self._clock.now() - json.loads(self._stop.read_text())["time"] > STOP_GRACE_S:
            self._process.kill_all()
        return JobState.STOPPING

    def events(self) -> list[Event]:
        """New complete lines of the events file."""
        return list(self._reader.new())

    def stop(self) -> None:
        """SIGTERM to the job's process; it writes a checkpoint at the end of the step."""
        if not self.state().is_terminal:
            self._ask_to_stop("")

    def report(self) -> JobReport | None:
        """The report the job wrote."""
        return JobReport.read(self.folder.report) if self.state() is JobState.COMPLETED else None

    def failure(self) -> tuple[FailureKind, str] | None:
        """Why it failed, or why it was stopped if the user did not ask for it."""
        if not self.state().is_terminal:
            return None
        raw = json.loads(self._end.read_text())
        return (FailureKind(raw["kind"]), raw["reason"]) if raw["reason"] else None

    def seconds(self) -> float:
        """Seconds from start to end, or to now."""
        end = json.loads(self._end.read_text())["time"] if self._end.exists() else self._clock.now()
        return float(end - self._started)

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines of the log that are no events."""
        try:
            with self.folder.log.open("rb") as file:
                file.seek(max(0, self.folder.log.stat().st_size - 65_536))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip() and not line.startswith('{"time"')][-lines:]

    def log_location(self) -> str:
        """Path of the log file."""
        return str(self.folder.log)

    def model_location(self) -> str:
        """Folder of the trained model."""
        return str(self.folder.model)

    def _has_ended(self) -> tuple[bool, int | None]:
        if self._child is not None:
            code = self._child.poll()
            return code is not None, code
        if self._process.is_living():
            return False, None
        # Seen from elsewhere: the starter, which knows the exit code, comes first; but it may have ended or forgotten.
        if self._gone_since is None:
            self._gone_since = self._clock.now()
        patience = self._starter.is_living() and self._clock.now() - self._gone_since < _STARTER_GRACE_S
        return not patience, None

    def _record_end(self, code: int | None) -> JobState:
        kind, reason = FailureKind.ERROR, ""
        stop = json.loads(self._stop.read_text()) if self._stop.exists() else None
        if self.folder.report.exists() and code in (0, None):
            state = JobState.COMPLETED
        elif stop is not None or self.folder.stopped.exists():
            state, reason = JobState.STOPPED, stop["reason"] if stop else "stopped from outside, with a checkpoint"
        else:
            state = JobState.FAILED
            kind, reason = self.folder.read_failure() or self._unexplained(code)
        end = {"state": state.value, "time": self._clock.now(), "kind": kind.value, "reason": reason}
        draft = self._end.with_name(f".end.{os.getpid()}")
        draft.write_text(json.dumps(end))
        try:
            os.link(draft, self._end)  # fails if it is there: the first verdict stands
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return JobState(json.loads(self._end.read_text())["state"])

    def _reap(self) -> None:
        if self._child is not None:
            self._child.poll()

    def _unexplained(self, code: int | None) -> tuple[FailureKind, str]:
        before, now = self._oom_kills, out_of_memory_kills()
        if before is not None and now is not None and now > before:
            return FailureKind.OUT_OF_MEMORY, "the system ended it because the machine's memory was used up"
        if code is None and not self._starter.is_living():
            return FailureKind.ERROR, "the process that started it has ended, and the job with it"
        if code is None:
            return FailureKind.ERROR, "its process has ended and left no report"
        if code < 0:
            return FailureKind.ERROR, f"its process was killed by {signal.Signals(-code).name}"
        return FailureKind.ERROR, f"its process ended with exit code {code} and left no report"

    def _ask_to_stop(self, reason: str) -> None:
        if self._stop.exists():  # asked again, torchrun would leave its workers, and the patience would begin again
            return
        write_json(self._stop, {"time": self._clock.now(), "reason": reason})
        self._process.terminate()


class LocalLauncher(Launcher):
    """Starts jobs on this machine.

    Args:
        home: folder for jobs and checkpoints.
        clock: for time stamps and limits.
        environment: environment of the jobs; MLflow's variables are left out, for a job does not need the tracking
            server.
    """

    name = "local"
    outlives = False
    grace_s = STOP_GRACE_S

    def __init__(self, home: Path, clock: Clock, environment: Mapping[str, str]) -> None:
        self._home = home.resolve()
        self._clock = clock
        self._environment = {name: value for name, value in environment.items() if not name.startswith("MLFLOW_")}

    def submit(self, document: JobDocument, inputs: JobInputs) -> LocalJob:
        """Start the job's processes, or adopt the job that has this name."""
        known = self.attach(document.job_name)
        if known is not None:
            return known
        folder = JobFolder(self._home / "jobs" / document.job_name)
        folder.make()
        write_json(folder.document, document.as_json())
        if inputs.dataset is not None:
            _link(folder.dataset, inputs.dataset.folder.resolve())
        if inputs.model is not None:
            _link(folder.model_source, inputs.model.resolve())
        lock = self._claim_checkpoints(folder, document, inputs.dataset)
        try:
            child = self._start(folder, document, [] if lock is None else [lock])
        finally:
            if lock is not None:
                os.close(lock)  # the job holds it now, as long as it lives
        started: dict[str, Any] = {
            "started": self._clock.now(),
            "max_seconds": document.max_seconds,
            "oom_kills": out_of_memory_kills(),
            "process": [child.pid, Process.of(child.pid).created],
            "starter": [os.getpid(), Process.of(os.getpid()).created],
        }
        write_json(folder.root / "process.json", started)
        return LocalJob(document.job_name, folder.root, self._clock, child)

    def attach(self, job_name: str) -> LocalJob | None:
        """The job of that name, running or ended."""
        root = self._home / "jobs" / job_name
        return LocalJob(job_name, root, self._clock) if (root / "process.json").exists() else None

    def location_tags(self) -> Mapping[str, str]:
        """Which machine this is."""
        return {"machine": machine_name()}

    def price(self, spec: JobSpec) -> Price:
        """The notional price of a local instance."""
        return local_price(spec.local_price_usd_per_hour)

    def _start(self, folder: JobFolder, document: JobDocument, locks: list[int]) -> "subprocess.Popen[bytes]":
        with folder.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "paretune.training", str(folder.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._job_environment(document.plan.devices),
                start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only
                pass_fds=locks,
            )

    def _claim_checkpoints(
        self, folder: JobFolder, document: JobDocument, dataset: PreparedDataset | None
    ) -> int | None:
        """Link the checkpoints of this specification into the job, unless a job that runs now is using them.

        The number of the open, locked file that says so; None when another job has it.
        """
        name = f"{document.spec.spec_hash()}-{dataset.key[:12] if dataset else 'script'}"
        shared = self._home / "checkpoints" / name
        shared.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._home / "checkpoints" / f"{name}.lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            folder.checkpoints.mkdir(exist_ok=True)
            return None
        _link(folder.checkpoints, shared)
        return lock

    def _job_environment(self, processes: int) -> dict[str, str]:
        environment = dict(self._environment)
        # Torch processes that together have more threads than there are cores spin on each other's locks.
        environment["OMP_NUM_THREADS"] = str(max(1, cores() // processes))
        environment["TOKENIZERS_PARALLELISM"] = "false"
        environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        environment["PYTHONUNBUFFERED"] = "1"
        environment["PYTHONSAFEPATH"] = "1"  # or a datasets.py in the user's folder would stand for the library
        environment["PARETUNE_STARTER"] = str(os.getpid())
        if platform.system() == "Linux":  # gloo otherwise resolves the host name, which not every machine can
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return environment


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
