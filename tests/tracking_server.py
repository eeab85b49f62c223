"""Real MLflow tracking servers on the loopback interface, of this environment's MLflow or of another's."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psutil

from tests.processes import Command, command, wait_until

_WITHIN_S = 120.0


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def tracking_server(folder: Path, port: int, python: str = sys.executable) -> Iterator[Command]:
    """The MLflow server of `python` before the store in `folder`, whose artifacts it hands out itself.

    It is killed, with its workers, at the end of the block; the store stays.
    """
    words = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--serve-artifacts"]
    words += ["--artifacts-destination", str(folder / "artifacts")]
    # Without another environment's settings, and without the half dozen processes that newer servers start beside.
    custom = {name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHON"))}
    custom |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    with command(words, home=folder / "nothing", cwd=folder, environment=custom, log=folder / "server.log") as server:
        wait_until(
            lambda: _answers(port) or server.process.poll() is not None, within_s=_WITHIN_S, what="the server answers"
        )
        assert server.process.poll() is None, server.text
        try:
            yield server
        finally:
            for process in [*psutil.Process(server.process.pid).children(recursive=True), server.process]:
                process.send_signal(signal.SIGKILL)
            wait_until(lambda: not _answers(port), within_s=_WITHIN_S, what="the server is gone")


def _answers(port: int) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
