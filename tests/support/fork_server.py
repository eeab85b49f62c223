"""Starts the programs of paretune as forks of a process that has already imported what they import.

Importing MLflow takes 1.5 s of CPU, and importing torch and transformers 6 s. Without the fixture `quick_starts`, each
command and each job that a test starts in a process of its own pays for that again. The fixture replaces
`subprocess.Popen`, in the process of the tests only: the programs in SERVERS are forked from a server, which starts
when a test first needs it, and which all workers of pytest-xdist share. All other programs, and those whose output goes
to a pipe, start as usual.

A forked program has the words, folder, environment, output and session that it would have had, and its command line in
`/proc`. Unlike a started one, it is no child of the tests' process, its modules were imported with the environment of
the server, and it has one thread. Tests of the start itself, or of what is imported, have the mark `starts_processes`.
`PARETUNE_PLAIN_PROCESSES=1` turns the fixture off for all tests; `.ci/full` sets it for `newest` and `slow`.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from paretune.core.file_lock import locked_file
from tests.support.without_linux import IS_LINUX, VARIABLE

PLAIN = os.environ.get("PARETUNE_PLAIN_PROCESSES") == "1" or not IS_LINUX or VARIABLE in os.environ
_TRAINING = ("torch", "transformers", "datasets", "accelerate", "peft", "sklearn.metrics", "paretune.training.job")
SERVERS: Mapping[str, tuple[str, ...]] = {
    "paretune.training.prepare": _TRAINING,
    "paretune.training": _TRAINING,
    "paretune": (
        *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "alembic.context", "optuna"),
        *("paretune.tracking.store", "paretune.studies.search.driver", "paretune.commands.command"),
    ),
}
"""Modules that are forked, as in `python -m MODULE`, and what their server imports before."""
_READ_AT_IMPORT = {"PYTHONPATH": os.environ.get("PYTHONPATH"), "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": None}
"""Environment variables that imports read, with the values of the servers. With others, a program starts as usual."""
_ROOM = 8192  # bytes for the words of a forked program


class Forked:
    """A program that a server has forked, with the interface of `subprocess.Popen` that paretune and its tests use."""

    stdin = stdout = stderr = None

    def __init__(self, words: Sequence[str], connection: socket.socket) -> None:
        self.args, self._connection = list(words), connection
        self.pid, self.returncode = int.from_bytes(_read(connection, 4), "big"), None

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, minus the signal if one has ended the program. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                answer = self._connection.recv(4)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            except ConnectionResetError:
                answer = b""
            self._connection.close()
            # Without an answer, the server has been killed.
            code = int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL
            self.returncode: int | None = code
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the program to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the program."""
        self.send_signal(signal.SIGKILL)


def _folder() -> Path:
    """Return the folder of the servers that all workers of a test run share, which only this user can enter."""
    path = Path(tempfile.gettempdir()) / f"forks-{os.getuid()}-{_owner()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _owner() -> int:
    """Return the id of the process that ends last: that of the tests, or the one that started the workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _connected(modules: Sequence[str]) -> socket.socket:
    """Return a connection to the server that has imported `modules`, which is started if there is none yet."""
    address = _folder() / modules[0]
    with locked_file(address.with_suffix(".lock")):
        if not address.exists():
            listening, ready = os.pipe()
            given = {name: text for name, text in _READ_AT_IMPORT.items() if text is not None}
            server = _Popen(
                [sys.executable, "-m", __name__, address, str(ready), str(_owner()), ",".join(modules), " " * _ROOM],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
                env={**os.environ, **given, "HF_HOME": str(address.parent), "OMP_NUM_THREADS": "1"},
                pass_fds=[ready],
                start_new_session=True,  # Ctrl-C ends the tests first
            )
            server.returncode = 0  # it ends when its owner does: nobody waits for it
            os.close(ready)
            with os.fdopen(listening) as pipe:
                assert pipe.read() == "ready", "the fork server did not start"
    connection = socket.socket(socket.AF_UNIX)
    _connect(connection, os.fspath(address))
    return connection


def _fork(words: Sequence[Any], module: str, options: Mapping[str, Any]) -> Forked:
    """Fork `python -m module` with these words. `options` are those of `subprocess.Popen`."""
    environment = os.environ if options.get("env") is None else options["env"]
    texts = [os.fspath(word) for word in words]
    request = {
        "module": module,
        "words": texts,
        "folder": os.fspath(options.get("cwd") or Path.cwd()),
        "environment": {str(name): os.fspath(text) for name, text in environment.items()},
        "parent": os.getpid(),
        "own_session": bool(options.get("start_new_session")),
        "core": min(os.sched_getaffinity(0)) if options.get("preexec_fn") else None,
    }
    text, files = json.dumps(request).encode(), array.array("i", [options["stdout"].fileno()])
    connection = _connected(SERVERS[module])
    connection.sendmsg([len(text).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())])
    connection.sendall(text)
    return Forked(texts, connection)


_Popen, _connect = subprocess.Popen, socket.socket.connect  # tests replace the latter to refuse connections


class _QuickPopen(subprocess.Popen):  # type: ignore[type-arg]  # it stands for Popen, which is subscripted in quotes only
    """`subprocess.Popen`, except that programs in SERVERS are forked."""

    def __new__(cls, args: Any, *others: Any, **options: Any) -> Any:
        module = None if others else _module_of(args, options)
        if module is None:
            return super().__new__(cls)
        return _fork(args, module, options)


def _module_of(words: Any, options: Mapping[str, Any]) -> str | None:
    """Return the module that a program runs, if it can be forked."""
    if not isinstance(words, list | tuple) or len(words) < 3 or [*words[:2]] != [sys.executable, "-m"]:
        return None
    environment = os.environ if options.get("env") is None else options["env"]
    if any(environment.get(name) != text for name, text in _READ_AT_IMPORT.items()):
        return None
    is_plain = options.get("stdin") == subprocess.DEVNULL and options.get("stderr") == subprocess.STDOUT
    is_plain = is_plain and hasattr(options.get("stdout"), "fileno") and not options.get("pass_fds")
    return str(words[2]) if is_plain and words[2] in SERVERS else None


started = subprocess.Popen if PLAIN else _QuickPopen
"""Starts a program as the fixture does, for fixtures of a module, which run before it."""


@pytest.fixture(autouse=True)
def quick_starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the programs that the test starts, unless it has the mark `starts_processes`."""
    if not PLAIN and request.node.get_closest_marker("starts_processes") is None:
        monkeypatch.setattr(subprocess, "Popen", _QuickPopen)


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise EOFError("the other process has closed the connection")
        found += more
    return found


def _serve(address: str, ready: int, owner: int, modules: Sequence[str]) -> None:
    """Import the modules, then fork a program for each connection, and send its exit code when it ends.

    Returns when the process `owner` has ended.
    """
    for name in modules:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            __import__(name)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    woken, wake = socket.socketpair()
    for each in (woken, wake, listener):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    _count(time.process_time())
    os.write(ready, b"ready")
    os.close(ready)
    while psutil.pid_exists(owner):
        for key, _ in selector.select(timeout=2.0):
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(True)
                length, files, _, _ = socket.recv_fds(connection, 4, 1)
                request = json.loads(_read(connection, int.from_bytes(length, "big")))
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (selector, listener, woken, wake, *running.values()):
                        each.close()
                    _become(request, files[0], connection)
                os.close(files[0])
                running[child] = connection
            else:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                _report_ended(running)


def _report_ended(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.wait4(-1, os.WNOHANG))[0]:
            child, status, used = found
            connection = running.pop(child)
            _count(used.ru_utime + used.ru_stime)
            with contextlib.suppress(OSError), connection:
                connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _count(cpu_s: float) -> None:
    """Add CPU seconds to the file that `.ci/run` reads: no shell has waited for these processes, so none knows them."""
    if path := os.environ.get("PARETUNE_FORKED"):
        with Path(path).open("a") as file:
            file.write(f"{cpu_s:.2f}\n")


def _become(request: Mapping[str, Any], output: int, connection: socket.socket) -> None:
    """Become the requested program, send the id of this process, run the program, and end."""
    code = 1
    try:
        if request["own_session"]:
            os.setsid()
        if request["core"] is not None:
            os.sched_setaffinity(0, [request["core"]])
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        parent = int(request["parent"])
        os.getppid = lambda: parent if Path(f"/proc/{parent}").exists() else 1
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _show_words(request["words"])
        sys.argv = [request["module"], *request["words"][3:]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with connection:
            connection.sendall(os.getpid().to_bytes(4, "big"))
        program = find_spec(request["module"])
        if program is None or program.submodule_search_locations is None:
            sys.modules.pop(request["module"], None)  # runpy warns of a program that has been imported
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _show_words(words: Sequence[str]) -> None:
    """Replace the command line of this process, which other processes read in /proc."""
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    first, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, numbers 48 and 49 of proc(5)
    text = b"\0".join(os.fsencode(word) for word in words)[: end - first - 1] + b"\0"
    ctypes.memset(first, 0, end - first)
    ctypes.memmove(first, text, len(text))


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(","))
    shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
