"""Runs a command with harmful input in this process, and watches what it does to the machine."""

import contextlib
import io
import os
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
from tests.support.stores import user_s_own

MARK = "hostile-was-here"
"""Name of the file that hostile texts would create if something ran them."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
_CALLS = {"socket.connect", "socket.getaddrinfo", "urllib.Request"}


class Gate(BaseException):
    """Ends a call that is about to start a process or contact a server. By then, the call has accepted its input."""


@dataclass
class Seen:
    """Records which files and folders outside of `allowed` a call changes, and which processes it tries to start."""

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
            raise ConnectionRefusedError(event)  # a library's own thread, such as one for telemetry
        is_written = event in _CHANGES or (event == "open" and (arguments[2] or 0) & _WRITING)
        if is_written and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            self.written += [] if path.startswith((*self.allowed, "/dev/null", "/dev/tty")) else [path]


_watching: list[Seen] = []
# Python cannot remove an audit hook, so it is added once and does nothing outside of `watching`.
sys.addaudithook(lambda event, arguments: _watching[-1].look(event, arguments) if _watching else None)


@contextlib.contextmanager
def watching(*allowed: Path) -> Iterator[Seen]:
    """Watch the block, which may write only under `allowed`.

    Raises Gate in the block before it starts a process or contacts a server.
    """
    _watching.append(Seen(tuple(os.path.realpath(path) for path in allowed)))
    try:
        with mock.patch.object(sys, "dont_write_bytecode", True):  # otherwise, Python's .pyc files would count
            yield _watching[-1]
    finally:
        _watching.pop()


def give(
    words: Sequence[str], folder: Path, store: str, environment: Mapping[str, str] | None = None
) -> tuple[int | None, list[str]]:
    """Run the command in `folder`, with the MLflow store at the address `store`.

    Return its exit code, and a sentence for each forbidden thing that happened. The exit code is None if the command
    was about to start a process or contact a server.
    """
    custom = user_s_own(folder) | {"MLFLOW_TRACKING_URI": store, "HOME": str(folder)} | dict(environment or {})
    wrong, code, printed = list[str](), None, io.StringIO()
    with (
        mock.patch.dict(os.environ, custom),
        mock.patch.object(tempfile, "tempdir", str(folder)),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        watching(folder, Path(store.removeprefix("sqlite:///")).parent) as seen,
        mock.patch("paretune.studies.run.StudyRun.work", side_effect=Gate("study")),
    ):
        try:
            code = cli.main(words)
        except Gate:
            pass
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
