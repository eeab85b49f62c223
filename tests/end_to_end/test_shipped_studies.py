"""Every file in `studies` runs to its end at its smallest scale: simulated, and `smoke.yaml` also for real.

Designs that compare settings of the training: tests/unit/commands/design/test_of_settings.py.
"""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.result import read_rows
from tests.end_to_end.cloud import REPOSITORY
from tests.unit.commands.design.test_of_settings import OF_SETTINGS

FILES = sorted((REPOSITORY / "studies").glob("*.yaml"))
DESIGNS = [path for path in FILES if "\nfactors:" in path.read_text()]
STUDIES = [path for path in FILES if path not in DESIGNS]
pytestmark = pytest.mark.slow


@pytest.fixture
def studies(workplace: Path) -> Path:
    (workplace / "studies").symlink_to(REPOSITORY / "studies")
    return workplace


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", [path for path in DESIGNS if path.name not in OF_SETTINGS], ids=name_of)
def test_a_design_runs_every_row(path: Path, studies: Path) -> None:
    assert main(["design", "--design", str(path), "--launcher", "simulated", "--n_parallel", "4"]) == 0

    client = MlflowClient()
    (run,) = client.search_runs(["0"], "tags.`paretune.kind` = 'design'")
    rows = read_rows(Path(client.download_artifacts(run.info.run_id, "design.csv")).read_text())
    assert {row["status"] for row in rows} == {"Completed"}
    assert {row["origin"] for row in rows} == {"simulated"}
    if "recorded_runs" in path.read_text():
        assert all(float(str(row["f1"])) > 0.8 for row in rows)


@pytest.mark.parametrize("path", STUDIES, ids=name_of)
def test_a_study_runs_two_trials(path: Path, studies: Path) -> None:
    assert main(["study", "--study", str(path), "--launcher", "simulated", "--n_trials", "2"]) == 0

    trials = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert len(trials) >= 2
    assert {run.data.tags["paretune.origin"] for run in trials} == {"simulated"}


def test_the_smoke_study_trains(studies: Path, tiny_model: Path, reviews: Path) -> None:
    words = ["study", "--study", "studies/smoke.yaml", "--n_trials", "1", "--max_train_samples", "64"]
    assert main([*words, "--max_eval_samples", "16", "--model", str(tiny_model), "--dataset", str(reviews)]) == 0

    trials = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert {run.data.tags["paretune.origin"] for run in trials} == {"measured"}
    assert all(run.data.metrics["f1"] > 0 for run in trials)
