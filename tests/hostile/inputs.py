"""Runs a command with what a user can give it, and sees what must not happen."""

import contextlib
import io
import os
import resource
import signal
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from unittest import mock

from paretune import cli
from tests.conftest import user_s_own
from tests.hostile.values import MARK, make_odd
from tests.hostile.watch import Gate, watching

REPOSITORY = Path(__file__).parents[2]
LONGEST_S = 30.0
"""Seconds after which an input counts as one that hangs the command."""
MOST_GIB = 4
"""Of address space, which libraries take more of than they use: what an input may add."""


@dataclass(frozen=True, kw_only=True)
class HostileInput:
    """One command with what it is given.

    Attributes:
        words: its command line.
        files: path below the user's folder to content.
        odd: path below the user's folder to the one of ODD_PATHS that it is.
        environment: variables of the user's shell.
    """

    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of it.

    Attributes:
        code: exit code; None where the command was about to start a process or to call a server.
        wrong: what must not happen, a sentence each.
    """

    code: int | None
    wrong: tuple[str, ...]


class Hangs(BaseException):
    """The command did not end within LONGEST_S."""


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    """MemoryError in the block for what needs MOST_GIB more than there is, so that it cannot end this machine."""
    statm = Path("/proc/self/statm")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_GIB * 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _alarm(_: int, frame: FrameType | None) -> None:
    raise Hangs("".join(traceback.format_stack(frame)[-3:]))


def store_in(folder: Path) -> str:
    """Address of a new MLflow store in a folder of its own, where the artifacts of all its experiments lie too."""
    from mlflow import MlflowClient

    address = f"sqlite:///{folder / 'mlflow.db'}"
    with contextlib.chdir(folder):  # MLflow keeps artifacts below the folder in which a store is first used
        MlflowClient(address).search_experiments()
    return address


def give(hostile: HostileInput, folder: Path, store: str) -> Outcome:
    """Run the command in this process, in an empty `folder`, with the MLflow store at the address `store`."""
    for name, content in hostile.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, odd in hostile.odd.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make_odd(odd, folder / name)
    custom = user_s_own(folder) | {"MLFLOW_TRACKING_URI": store, "HOME": str(folder)} | hostile.environment
    wrong: list[str] = []
    code: int | None = None
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, custom),
        mock.patch.object(tempfile, "tempdir", str(folder)),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        _little_memory(),
        watching(folder, Path(store.removeprefix("sqlite:///")).parent, REPOSITORY / ".hypothesis") as seen,
        mock.patch("paretune.studies.run.drive", side_effect=Gate("study")),
    ):
        signal.signal(signal.SIGALRM, _alarm)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            code = cli.main(hostile.words)
        except Gate:
            code = None
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 1
        except Hangs as location:
            wrong.append(f"it hangs: {location}")
        except BaseException:
            wrong.append(f"a traceback: {traceback.format_exc()[-3_000:]}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if "Traceback (most recent call last)" in printed.getvalue():
        wrong.append(f"a traceback is printed: {printed.getvalue()[-3_000:]}")
    if code not in (None, 0, 2, 3, 4):
        wrong.append(f"exit code {code}: {printed.getvalue()[-1_000:]}")
    if code == 2 and not printed.getvalue().strip():
        wrong.append("it is refused without a word")
    wrong += [f"it writes to {path}" for path in seen.written]
    wrong += [f"something ran it: {path}" for path in folder.rglob(f"*{MARK}*") if path.is_file()]
    wrong += [f"it is part of a command: {words[:300]}" for words in seen.begun if MARK in words]
    return Outcome(code=code, wrong=tuple(wrong))
