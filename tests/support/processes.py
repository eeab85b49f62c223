"""Real processes for tests, including MLflow servers, with deadlines. None of them outlives its `with` block."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import ProxyHandler, build_opener

import psutil

Found = TypeVar("Found")
_SERVES_WITHIN_S = 120.0


def wait_until(poll: Callable[[], Found], *, within_s: float, what: str) -> Found:
    """Call `poll` until its result is true, and return the result. Fail with `what` if it takes too long.

    The pauses between calls are five times as long as the calls.
    """
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        answer = poll()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(max(0.02, 5 * (time.monotonic() - began)))


def working_in(folder: Path) -> list[psutil.Process]:
    """Return the live processes whose command lines contain the path of `folder`."""
    result = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in words):
                result.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return result


class Command:
    """A command in a process, whose output goes to a file."""

    def __init__(self, process: Any, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        """The text that the command has printed so far."""
        return self._log.read_text(errors="replace")

    def wait(self, within_s: float) -> int:
        """Wait for the end of the command, and return its exit code. Fail if it does not end in time."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {within_s:g} s; it printed:\n{self.text}") from None


@contextmanager
def command(
    words: list[str],
    *,
    cwd: Path,
    home: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    log: Path | None = None,
    **options: Any,
) -> Iterator[Command]:
    """Start a command. After the block, kill it and all processes of jobs in `home` (by default `cwd`/.paretune).

    The output of the command goes to `log`, by default a new file in `cwd`.
    """
    log = log or cwd / f"printed-{len(list(cwd.glob('printed-*')))}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )
    try:
        yield Command(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for left in working_in(home or cwd / ".paretune"):
            left.kill()


def use_one_core() -> None:
    """Restrict this process to one core, so that libraries use one thread. Pass this function as `preexec_fn`.

    On a busy machine, several threads would wait for each other.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})


def paretune(*words: str) -> list[str]:
    """Return the words of a paretune command, run by this Python."""
    return [sys.executable, "-m", "paretune", *words]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def tracking_server(folder: Path, port: int, python: str = sys.executable) -> Iterator[Command]:
    """Run an MLflow server with this `python` for the store in `folder`; the server also serves the artifacts.

    The server and its workers are killed at the end of the block, but the store stays.
    """
    words = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--serve-artifacts"]
    words += ["--artifacts-destination", str(folder / "artifacts")]
    # Remove settings of this environment, and do not start the additional processes of newer servers.
    custom = {name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHON"))}
    custom |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    with command(words, home=folder / "nothing", cwd=folder, environment=custom, log=folder / "server.log") as server:
        wait_until(
            lambda: _answers(port) or server.process.poll() is not None,
            within_s=_SERVES_WITHIN_S,
            what="the server answers",
        )
        assert server.process.poll() is None, server.text
        try:
            yield server
        finally:
            for process in [*psutil.Process(server.process.pid).children(recursive=True), server.process]:
                process.send_signal(signal.SIGKILL)
            wait_until(lambda: not _answers(port), within_s=_SERVES_WITHIN_S, what="the server is gone")


def _answers(port: int) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
