"""A `paretune` command as a process of its own, which goes on when the server ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Running(Protocol):
    """A command that was started."""

    def outcome(self) -> Mapping[str, Any] | None:
        """Return None while it runs, then its document of `--json`, or `{"error": ...}`."""

    def stop(self) -> None:
        """Ask it to stop its job, as Ctrl-C does; its outcome has the result."""

    def last_lines(self) -> list[str]:
        """Return the last lines of its progress."""


class CommandProcess:
    """`paretune NAME --key value ... --json`, with standard output and error in two files of a folder."""

    def __init__(self, name: str, parameters: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._document, self._log = folder / "document.json", folder / "log.txt"
        words = [word for key, text in parameters.items() for word in (f"--{key}", text)]
        with self._document.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "paretune", name, *words, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,  # Ctrl-C of the server is not its own; its job is paid for and goes on
                env=os.environ,
            )

    def outcome(self) -> Mapping[str, Any] | None:
        """Return the outcome as `Running.outcome` does; a process without a document has failed."""
        code = self._process.poll()
        if code is None:
            return None
        try:
            document = json.loads(self._document.read_text())
        except (OSError, ValueError):
            document = None
        if isinstance(document, dict):
            return document
        return {"error": {"message": "\n".join(self.last_lines()) or "no answer", "exit_code": code}}

    def stop(self) -> None:
        """Send SIGINT if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def last_lines(self) -> list[str]:
        """Return the last lines of standard error."""
        return self._log.read_text(errors="replace").splitlines()[-10:] if self._log.exists() else []
