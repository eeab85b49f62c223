"""Runs a command with harmful input in this process, and sees what it does to the machine."""

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from paretune import cli
from tests.conftest import user_s_own

MARK = "hostile-was-here"
"""Name of the file that a text would make if something ran it."""
_LONGEST_S = 30  # seconds after which an input counts as one that hangs the command
_MORE_BYTES = 4 * 2**30  # of address space that an input may add
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
_CALLS = {"socket.connect", "socket.getaddrinfo", "urllib.Request"}


class Gate(BaseException):
    """The call was about to start a process, or to reach a server: it has accepted its input, and goes no further."""


@dataclass
class Seen:
    """Files and folders that a call changed outside of `allowed`, and the processes that it wanted to start."""

    allowed: tuple[str, ...]
    written: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)

    def look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            words = arguments[1] if event == "subprocess.Popen" else arguments[0]
            self.begun.append(os.fsdecode(words) if isinstance(words, bytes) else str(words))
            raise Gate(event)
        if event in _CALLS:
            if threading.current_thread() is threading.main_thread():
                raise Gate(event)
            raise ConnectionRefusedError(event)  # a library's own thread, such as one that reports on its use
        paths: Sequence[Any] = ()
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & _WRITING) if mode is None else bool(set(str(mode)) & set("wax+"))
            paths = [path] if writes else []
        elif event in _CHANGES:
            paths = arguments[: 2 if event in ("os.rename", "os.symlink", "os.link") else 1]
        for path in paths:
            if isinstance(path, (str, bytes, os.PathLike)):
                location = os.path.realpath(os.fsdecode(path))
                self.written += [] if location.startswith((*self.allowed, "/dev/null", "/dev/tty")) else [location]


_watching: list[Seen] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching:
        _watching[-1].look(event, arguments)


sys.addaudithook(_hook)  # stays for the life of the process


@contextlib.contextmanager
def watching(*allowed: Path) -> Iterator[Seen]:
    """What the block does; it may write below `allowed`, and is ended by `Gate` before it starts or calls anything."""
    _watching.append(Seen(tuple(os.path.realpath(path) for path in allowed)))
    try:
        with mock.patch.object(sys, "dont_write_bytecode", True):  # Python's cache of modules is no file of the call
            yield _watching[-1]
    finally:
        _watching.pop()


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """MemoryError or TimeoutError in the block for what needs too much, so that it cannot end this machine."""

    def end(*_: object) -> None:
        raise Gate(f"it hangs: {''.join(traceback.format_stack()[-4:])}")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _MORE_BYTES, hard))
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def give(
    words: Sequence[str], folder: Path, store: str, environment: Mapping[str, str] | None = None
) -> tuple[int | None, list[str]]:
    """Run the command in `folder`, with the MLflow store at this address.

    Returns its exit code, None where it was about to start a process or to call a server; and what must not happen, a
    sentence each.
    """
    custom = user_s_own(folder) | {"MLFLOW_TRACKING_URI": store, "HOME": str(folder)} | dict(environment or {})
    wrong, code, printed = list[str](), None, io.StringIO()
    with (
        mock.patch.dict(os.environ, custom),
        mock.patch.object(tempfile, "tempdir", str(folder)),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        _limits(),
        watching(folder, Path(store.removeprefix("sqlite:///")).parent) as seen,
        mock.patch("paretune.studies.run.drive", side_effect=Gate("study")),
    ):
        try:
            code = cli.main(words)
        except Gate as gate:
            wrong += [str(gate)] if "hangs" in str(gate) else []
        except BaseException:
            wrong.append(f"a traceback: {traceback.format_exc()[-3_000:]}")
    text = printed.getvalue()
    wrong += [f"a traceback is printed: {text[-3_000:]}"] if "Traceback (most recent call last)" in text else []
    wrong += [f"exit code {code}: {text[-1_000:]}"] if code not in (None, 0, 2, 3, 4) else []
    wrong += ["it is refused without a word"] if code == 2 and not text.strip() else []
    wrong += [f"it writes to {path}" for path in seen.written]
    wrong += [f"something ran it: {path}" for path in folder.rglob(f"*{MARK}*") if path.is_file()]
    wrong += [f"it is part of a command: {words[:300]}" for words in seen.begun if MARK in words]
    return code, wrong
