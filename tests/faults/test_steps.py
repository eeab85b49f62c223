"""A study whose driver is killed at every step of a trial that runs out of memory, while `sync` runs too."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stores import user_s_own

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]


def test_a_driver_that_is_killed_at_any_step_pays_one_job_a_point_whatever_sync_does_meanwhile(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    custom = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "MLFLOW_", "PARETUNE_"))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.paused_drivers"],
        cwd=tmp_path,
        env=custom | user_s_own(tmp_path) | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    record_property("kills", len(steps))
    assert len(steps) >= 30
    assert [step for step in steps if step["faults"]] == []
