"""Worlds for all faults. PARETUNE_FAULTS_SEED says which moments and cases are drawn."""

import os
import random
from pathlib import Path

import pytest

from tests.support.faults.worlds import Trial

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # or each MLflow server starts half a dozen processes more

SEED = int(os.environ.get("PARETUNE_FAULTS_SEED", "20261121"))


@pytest.fixture
def trial(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> Trial:
    print(f"to repeat it: PARETUNE_FAULTS_SEED={SEED}")
    return Trial(random.Random(f"{SEED} {request.node.name}"), empty_store, tmp_path)
