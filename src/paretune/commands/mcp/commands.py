"""A `paretune` command as a process of its own, which goes on when the server ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from paretune.launchers.processes import is_alive, process_text

_DOCUMENT, _LOG, _PROCESS = "document.json", "log.txt", "process.txt"


class Running(Protocol):
    """A command that was started."""

    def outcome(self) -> Mapping[str, Any] | None:
        """None while it runs, then its document of `--json`, or `{"error": ...}`."""

    def stop(self) -> None:
        """Ask it to stop its job, as Ctrl-C does; its outcome has the result."""

    def last_lines(self) -> list[str]:
        """The last lines of its progress."""


@dataclass(frozen=True)
class CommandProcess:
    """`paretune NAME --key=value ... --json`, whose output and process id are in files of a folder.

    Everything is read from the folder, so that a server that was started again finds the commands of the last one.
    """

    folder: Path

    def start(self, name: str, parameters: Mapping[str, str]) -> None:
        """Start the command; it is not a child that ends with this process."""
        self.folder.mkdir(parents=True)
        words = [f"--{key}={text}" for key, text in parameters.items()]  # a value such as --help stays a value
        with (self.folder / _DOCUMENT).open("wb") as output, (self.folder / _LOG).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "paretune", name, *words, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,  # Ctrl-C of the server is not its own; its job is paid for and goes on
                env=os.environ,
            )
        (self.folder / _PROCESS).write_text(process_text(process.pid))
        threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie

    def outcome(self) -> Mapping[str, Any] | None:
        """The outcome as `Running.outcome` has it; a process that ended without a document has failed.

        A process that nobody can look at from here, such as one of another machine, counts as running.
        """
        has_ended = is_alive(self._text(_PROCESS)) is False  # before the document is read, which is written last
        try:
            document = json.loads(self._text(_DOCUMENT))
        except ValueError:
            document = None
        if isinstance(document, dict):
            return document
        return {"error": {"message": "\n".join(self.last_lines()) or "no answer"}} if has_ended else None

    def stop(self) -> None:
        """Send SIGINT if it still runs."""
        process = self._text(_PROCESS)
        if is_alive(process):
            os.kill(int(process.split()[1]), signal.SIGINT)

    def last_lines(self) -> list[str]:
        """The last lines of standard error."""
        return self._text(_LOG).splitlines()[-10:]

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""
