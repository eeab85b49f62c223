"""Sees what a call does to the machine: files it writes, processes it starts, servers it calls."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate"}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
_CALLS = {"socket.connect", "socket.getaddrinfo", "urllib.Request"}
_NOWHERE = ("/dev/null", "/dev/tty")


class Gate(BaseException):
    """The call was about to start a process, or to reach a server: it has accepted its input, and goes no further."""


@dataclass
class Seen:
    """What a call did.

    Attributes:
        written: files and folders it made, changed or removed, outside of the folders it may write to.
        begun: processes it wanted to start, each as its words.
    """

    written: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)


class _Watch:
    """Python's audit hook stays for the life of a process, so there is one; see `sys.addaudithook`."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.allowed: tuple[str, ...] = ()
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event in _STARTS:
            words = arguments[1] if event == "subprocess.Popen" else arguments[0]
            self.seen.begun.append(os.fsdecode(words) if isinstance(words, bytes) else str(words))
            raise Gate(event)
        if event in _CALLS:
            if threading.current_thread() is threading.main_thread():
                raise Gate(event)
            raise ConnectionRefusedError(event)  # a library's own thread, such as one that reports on its use
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & _WRITING) if mode is None else bool(set(str(mode)) & set("wax+"))
            if writes and isinstance(path, (str, bytes, os.PathLike)):
                self._note(os.fsdecode(path))
        elif event in _CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.symlink", "os.link") else 1]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self._note(os.fsdecode(path))

    def _note(self, path: str) -> None:
        assert self.seen is not None
        location = os.path.realpath(path)
        if not location.startswith((*self.allowed, *_NOWHERE)):
            self.seen.written.append(location)


_watch: list[_Watch] = []


@contextmanager
def watching(*allowed: Path) -> Iterator[Seen]:
    """What the block does; it may write below `allowed`, and is ended by `Gate` before it starts or calls anything."""
    if not _watch:
        _watch.append(_Watch())
    seen, watch = Seen(), _watch[0]
    watch.allowed, watch.seen = tuple(os.path.realpath(path) for path in allowed), seen
    try:
        with mock.patch.object(sys, "dont_write_bytecode", True):  # Python's cache of modules is no file of the call
            yield seen
    finally:
        watch.seen = None
