"""Worlds for all faults. PARETUNE_FAULTS_SEED says which moments and cases are drawn."""

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.worlds import World, Worlds

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # or each MLflow server starts half a dozen processes more

SEED = int(os.environ.get("PARETUNE_FAULTS_SEED", "20261121"))


@dataclass(frozen=True)
class Trial:
    """Numbers to draw moments and cases from, and how to draw them again."""

    draw: random.Random
    repeat: str

    def check(self, world: World) -> None:
        """Fail where the books are wrong."""
        messages = world.faults()
        assert not messages, "\n".join([*messages, f"to repeat it: {self.repeat}"])


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    repeat = f"PARETUNE_FAULTS_SEED={SEED} python -m pytest -n 0 -m slow '{request.node.nodeid}'"
    return Trial(random.Random(f"{SEED} {request.node.name}"), repeat)


@pytest.fixture
def worlds(empty_store: Path, tmp_path: Path) -> Worlds:
    return Worlds(empty_store, tmp_path)
