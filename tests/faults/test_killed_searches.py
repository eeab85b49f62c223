"""Studies with one job that searches, whose drivers and jobs are killed at random moments.

PARETUNE_KILLS says how many kills there are (4), PARETUNE_KILL_SEED when, and PARETUNE_KILL_LAUNCHER=local that jobs on
this machine are killed as well, which takes minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_killed_searches_train_no_trial_twice_and_share_the_whole_bill(workplace: Path) -> None:
    launcher = os.environ.get("PARETUNE_KILL_LAUNCHER", "simulated")
    words = [os.environ.get("PARETUNE_KILLS", "4"), os.environ.get("PARETUNE_KILL_SEED", "7"), launcher]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.killed_searches", *words],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600 + 180 * int(words[0]),  # a local kill takes a minute, and three on a loaded machine
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    content = json.loads(killed.stdout.splitlines()[-1])
    assert content["defects"] == []
    assert sum(content["killed"].values()) >= int(words[0])
