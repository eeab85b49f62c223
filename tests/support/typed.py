"""Runs commands as a user types them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in an empty folder, and returns its exit code, output and error output."""

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        return code, *capsys.readouterr()

    return command
