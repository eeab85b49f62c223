"""Trainings as other projects publish them, each studied by the lines that the guide shows, unchanged."""

import os
import re
from pathlib import Path

import mlflow
import pytest
import yaml
from mlflow import MlflowClient

import paretune
from paretune.ledger.trial_entry import TrialStatus
from tests.foreign.published import FILES, local_files, missing_files, prepare

VARIABLE = "PARETUNE_FOREIGN"
SCRIPTS = Path(os.environ.get(VARIABLE, "/absent"))
PAGE = Path(__file__).parents[2] / "docs" / "own-training.md"
ABSENT = pytest.mark.skipif(
    bool(missing_files(SCRIPTS)),
    reason=f"{VARIABLE} is no folder with the scripts: `.ci/full foreign` says how to get them",
)


def studies_of_the_guide() -> dict[str, str]:
    """Name to text of the guide's studies of published scripts."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {
        str(file["name"]): block
        for block in blocks
        if (file := yaml.safe_load(block)).get("entry_script") in local_files()
    }


STUDIES = studies_of_the_guide()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and their data."""
    folder = tmp_path_factory.mktemp("published")
    prepare(SCRIPTS, folder)
    return folder


def test_the_guide_studies_four_published_scripts_in_ten_lines_each() -> None:
    assert len(STUDIES) == 4
    assert all(len(block.splitlines()) <= 10 for block in STUDIES.values())
    text = PAGE.read_text()
    assert all(source.split()[1][:8] in text for source in FILES if "evaluate" not in source)


@ABSENT
@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_published_script_is_studied_as_it_is(name: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PARETUNE_HOME", str(workspace / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace / 'mlflow.db'}")
    monkeypatch.setenv("HF_HOME", str(workspace / "huggingface"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (workspace / "study.yaml").write_text(STUDIES[name])
    (metric,) = set(yaml.safe_load(STUDIES[name])["objectives"]) - {"cost_usd"}

    result = paretune.run_study("study.yaml", quiet=True, n_trials=2)

    trials = [trial for trial in result.answer.front.trials if trial.repeats is None]
    assert [trial.status for trial in trials] == [TrialStatus.COMPLETED] * 2, [trial.reason for trial in trials]
    assert all(trial.values.keys() == {"cost_usd", metric} for trial in trials)
    assert trials[0].point != trials[1].point
    assert all((workspace / path).read_bytes() == (SCRIPTS / path).read_bytes() for path in local_files())
    client = MlflowClient(mlflow.get_tracking_uri())
    for trial in result.answer.front.trials:
        run = client.get_run(trial.run_id)
        print(name, trial.values, f"{run.data.metrics['job_seconds']:.0f} s", run.data.tags["paretune.metrics_from"])
