"""What paretune prints works when it is pasted into the shell where it was printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from tests.support.study_tables import TWO_TRIALS
from tests.support.tags import tags_of

ROOT = Path(__file__).parents[2]
PARAMETERS = {"instance_type": "ml.g5.xlarge", "launcher": "simulated", "max_train_samples": "2000"}
pytestmark = pytest.mark.slow


def paste(line: str, folder: Path) -> str:
    """Paste a command line into a shell in `folder`, check that it succeeds, and return what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout + done.stderr


def printed(pattern: str, text: str) -> str:
    """Return the command that follows `pattern` in a line."""
    match = re.search(rf"{pattern}(.+)$", text, re.MULTILINE)
    assert match, text
    return match[1]


def statuses() -> set[str]:
    """Return the statuses of the store's runs."""
    return {run.info.status for run in MlflowClient().search_runs(["0"])}


def test_a_line_of_mlflow_run_is_repeated_by_the_one_it_prints_and_records(workplace: Path) -> None:
    elsewhere = workplace / "another folder"
    elsewhere.mkdir()
    arguments = " ".join(f"-P {name}={text}" for name, text in PARAMETERS.items())
    typed = f"mlflow run {ROOT} --env-manager local -P dry_run=true {arguments}"

    to_launch = printed("to launch it: ", paste(typed, elsewhere))
    paste(to_launch, elsewhere)

    (run, *_) = MlflowClient().search_runs(["0"])
    words = shlex.split(to_launch)
    assert words[:2] == ["paretune", "train"]
    assert dict(zip(words[2::2], words[3::2], strict=True)) == {f"--{name}": text for name, text in PARAMETERS.items()}
    assert tags_of(run)["paretune.command"] == to_launch
    assert statuses() == {"FINISHED"}  # none is left running


def test_what_a_study_recommends_is_launched_by_the_line_it_prints(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "study.yaml").write_text(TWO_TRIALS)

    assert main(["study", "--study", "study.yaml"]) == 0
    again = printed("again in the simulation: ", capsys.readouterr().out)
    words = shlex.split(again)
    assert main([*words[words.index("train") :], "--dry_run"]) == 0

    assert {"--instance_type", "--launcher", "--per_device_train_batch_size"} < set(words)
    assert statuses() == {"FINISHED"}
