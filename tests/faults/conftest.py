"""Worlds for all faults, and a last line with the number of faults that were tried.

PARETUNE_FAULTS_SEED determines which moments and cases are drawn.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults.worlds import Trial

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # else each MLflow server starts six more processes

SEED = int(os.environ.get("PARETUNE_FAULTS_SEED", "20261121"))
_COUNTED = ("kills", "faults", "jobs", "runs")


@pytest.fixture
def trial(
    request: pytest.FixtureRequest,
    empty_store: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[Trial]:
    print(f"to repeat it: PARETUNE_FAULTS_SEED={SEED}")
    trial = Trial(random.Random(f"{SEED} {request.node.name}"), empty_store, tmp_path)
    yield trial
    for name in _COUNTED:
        record_property(name, trial.made[name])
    print(f"faults: {', '.join(trial.faults) or 'none'}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many kills, faults, jobs and runs there were, and how many tests failed."""
    made = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                made.update({name: count for name, count in report.user_properties if name in _COUNTED})
    if any(made.values()):
        failed = sum(len(terminalreporter.stats.get(name, [])) for name in ("failed", "error"))
        terminalreporter.write_line(f"{', '.join(f'{made[name]} {name}' for name in _COUNTED)}; {failed} tests failed")
