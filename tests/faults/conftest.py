"""Worlds for all faults, and the counts that the table in `docs/reliability.md` is made of.

PARETUNE_FAULTS=long runs the long form, PARETUNE_FAULTS_SEED says which moments and cases are drawn, and with
PARETUNE_FAULTS_WRITE=1 the table is written when all has passed.
"""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.table import PAGE, Counts
from tests.faults.worlds import World, Worlds
from tests.forks.commands import Commands, serving
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # or each MLflow server starts half a dozen processes more

IS_LONG = os.environ.get("PARETUNE_FAULTS") == "long"
SEED = int(os.environ.get("PARETUNE_FAULTS_SEED", "20261121"))
ALL = ("simulated", "local", "sagemaker", "project")
COUNTS = pytest.StashKey[Counts]()


@dataclass(frozen=True)
class Trial:
    """How much is tried, drawn from which numbers, and counted where."""

    draw: random.Random
    is_long: bool
    counts: Counts
    repeat: str

    def count(self, *, short: int, long: int) -> int:
        """How many cases this form takes."""
        return long if self.is_long else short

    def check(self, world: World, fault: str, cases: int = 1) -> None:
        """Fail where the books are wrong; else count the cases."""
        messages = world.faults()
        assert not messages, "\n".join([*messages, f"to repeat it: {self.repeat}"])
        self.counts.add(fault, world.name, cases)


def in_worlds(*names: str, short: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Let a test run in these worlds; the short form, in those of `short` only, where it is given."""
    return pytest.mark.parametrize("name", [name for name in names if IS_LONG or not short or name in short])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = Counts()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist hands its counts to the one that prints
        session.config.workeroutput["faults"] = session.config.stash[COUNTS].to_dict()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[COUNTS].merge(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    counts = config.stash[COUNTS]
    if not counts.cases:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(counts.table())
    if os.environ.get("PARETUNE_FAULTS_WRITE") == "1" and exitstatus == pytest.ExitCode.OK:
        counts.write(PAGE, "long" if IS_LONG else "short", SEED)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    form = "PARETUNE_FAULTS=long " if IS_LONG else ""
    repeat = f"{form}PARETUNE_FAULTS_SEED={SEED} python -m pytest -n 0 -m slow '{request.node.nodeid}'"
    return Trial(random.Random(f"{SEED} {request.node.name}"), IS_LONG, request.config.stash[COUNTS], repeat)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with serving(tmp_path_factory.mktemp("server")) as result:
        yield result


@pytest.fixture
def worlds(commands: Commands, empty_store: Path, tmp_path: Path) -> Worlds:
    missing = namespaces_are_missing()
    return Worlds(commands, empty_store, tmp_path, missing)
