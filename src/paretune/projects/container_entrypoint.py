"""The program that runs a project's command inside a job: `python3 inside.py ML`.

This file is called inside.py in a job, and ML is a folder, /opt/ml on SageMaker. The program starts in the folder where
the code was unpacked, installs the dependencies that the document lists, provides an MLflow store for the command's
records, and runs the command as `mlflow run` does on a laptop. It remains the command's parent, so that it can pass
signals on to the command and all its descendants, and can record why the command failed. Next to inside.py are
watchdog.py and script_metrics. All three need only the standard library of Python 3.8 or newer.

    ML/input/data/job/job.json     the document: command, requirements, folder, renamed, metric_definitions, settings;
                                   on SageMaker also deadline_s
    ML/output/data/paretune/       mlflow.db and mlruns, if the command uses MLflow; the curves of other loggers
    ML/output/data/report.json     the metrics, and where each comes from
    ML/output/failure              why the job failed: kind, colon, one sentence

Metrics come from what the command prints and logs (see script_metrics). If several of its MLflow runs have a metric,
the last value in the first run counts. If the first run lacks the metric, the last value in the newest run that has it
counts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paretune.core.script_metrics import PrintedNumbers

GRACE_S = 110.0  # seconds from SIGTERM until a command that still runs is killed
REQUIREMENTS = ".paretune-requirements.txt"
_INSTALLER = "input/data/code/container_start.py"
_LONGEST_READ = 2**16  # at most this many bytes of a printed line are read at a time


def main(ml: Path) -> int:
    """Run the job and return the exit code of the command, or of the installation if the command was not started."""
    document = json.loads((ml / "input" / "data" / "job" / "job.json").read_text(encoding="utf-8"))
    project = Path.cwd() / "project"
    supervisor = Supervisor()
    watchdog = importlib.import_module("watchdog")  # next to this file in the job
    late = partial(supervisor.end, ml, 128 + signal.SIGTERM)
    if starter := os.environ.pop("PARETUNE_STARTER", ""):  # process id of the parent: a launcher or with_secrets.py
        watchdog.end_with(int(starter), GRACE_S, late)
    if is_first():
        watchdog.watch(None, partial(supervisor.end, ml, 1))
    if document.get("deadline_s") is not None:  # a job on a user's machine has no deadline here
        watchdog.stop_at(document["deadline_s"], GRACE_S, partial(write_error, ml), late)
    if document["requirements"]:
        code = install(document["requirements"], project / document["folder"], ml, supervisor)
        if code or supervisor.was_stopped:
            return code
    script_metrics = importlib.import_module("script_metrics")  # next to this file in the job
    # Only the records of the first instance are kept.
    data = ml / "output" / "data" if is_first() else Path(tempfile.mkdtemp())
    environment = dict(os.environ, **script_metrics.logging_environment(data, os.environ))
    if not (project / "mlruns").exists():
        (project / "mlruns").symlink_to(data / script_metrics.STORE / "mlruns")  # where MLflow before 3.11 puts files
    say("starting the project's command")
    began = time.time()
    printed = script_metrics.PrintedNumbers(document["metric_definitions"], document["settings"])
    code = supervisor.run(["bash", "-c", document["command"]], printed, cwd=str(project), env=environment)
    if code and not supervisor.was_stopped:
        write_error(ml, f"the project's command ended with exit code {code}")
    if not code and is_first() and not supervisor.was_stopped:
        sources = script_metrics.logged(data, (project, ml / "model"), began, settings=document["settings"])
        results = printed.results(sources, document["renamed"])
        script_metrics.write_curves(results.curves, data / script_metrics.STORE)
        report = {
            "metrics": results.metrics,
            "not_finite": results.not_finite,
            "facts": {"metrics_from": results.sources, "names_left_out": results.left_out},
        }
        (data / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return code


class Supervisor:
    """Runs one process after another, and passes SIGTERM on to the running process and all its descendants."""

    def __init__(self) -> None:
        self.was_stopped = False
        self._is_ending = False  # whether `end` is ending this process from another thread
        self._group: int | None = None
        signal.signal(signal.SIGTERM, self._pass_on)

    def run(self, words: list[str], printed: PrintedNumbers | None = None, **options: Any) -> int:
        """Run a process and return its exit code, or 128 + the number of the signal that ended it.

        If SIGTERM has arrived, wait until the whole process group has ended. If `printed` is given, it reads each line
        of the output, which is also printed.
        """
        if printed is not None:
            options.update(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        process = subprocess.Popen(words, start_new_session=True, **options)
        reader = threading.Thread(target=_pass_lines, args=(process.stdout, printed), daemon=True)
        reader.start()
        self._group = process.pid
        if self.was_stopped:
            self._pass_on()
        code = process.wait()
        while self._is_ending:  # `end` exits from its thread, with its own code
            time.sleep(1)
        while self.was_stopped and self._has_members(process.pid):
            time.sleep(0.05)
        self._group = None
        reader.join(5.0)  # a process in the background may keep the pipe open for longer
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the running process and all its descendants."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, number)

    def end(self, ml: Path, code: int, sentence: str = "") -> None:
        """Kill the command and exit with `code`. A `sentence` is recorded as the reason, unless a reason exists."""
        if sentence:
            write_error(ml, sentence)
        self._is_ending = True
        self.send(signal.SIGKILL)
        os._exit(code)

    def _pass_on(self, *_: Any) -> None:
        self.was_stopped = True
        self.send(signal.SIGTERM)

    def _has_members(self, group: int) -> bool:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # reap an orphan: orphans become children of the container's first process
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True


def _pass_lines(stream: IO[bytes] | None, printed: PrintedNumbers) -> None:
    for line in iter(partial(stream.readline, _LONGEST_READ), b"") if stream else ():
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        printed.read(line.decode(errors="replace"))


def install(requirements: list[str], folder: Path, ml: Path, supervisor: Supervisor) -> int:
    """Install the requirements with container_start.py, and return its exit code.

    Relative paths in the requirements are relative to `folder`.
    """
    say("installing the project's dependencies")
    path = folder / REQUIREMENTS
    path.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    try:
        words = [sys.executable, str(ml / _INSTALLER), "--install", path.name, str(ml)]
        return supervisor.run(words, cwd=str(folder))
    finally:
        path.unlink()


def is_first() -> bool:
    """Return whether this is the first instance of the cluster (container_start.py numbers them), or a local job."""
    return os.environ.get("SM_CURRENT_HOST_RANK", "0") == "0"


def write_error(ml: Path, sentence: str) -> None:
    """Write why the job failed, as a failure of kind `error`, unless a reason has been written already."""
    path = ml / "output" / "failure"
    if not path.exists():
        path.write_text(f"error: {sentence}")


def say(sentence: str) -> None:
    """Print one line of the log; the launcher shows the log starting with the first of these lines."""
    print(f"paretune: {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
