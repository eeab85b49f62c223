"""Every file in `studies` runs at its smallest scale: simulated if it has recorded runs, else as a dry run.

`smoke.yaml` also runs for real.
"""

import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.studies.definition.file import StudyFile
from tests.support.cloud import REPOSITORY
from tests.support.tags import tags_of

STUDIES = sorted((REPOSITORY / "studies").glob("*.yaml"))
pytestmark = pytest.mark.slow


@pytest.fixture
def studies(workplace: Path) -> Path:
    (workplace / "studies").symlink_to(REPOSITORY / "studies")
    return workplace


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_runs_two_trials(path: Path, studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem.startswith(("polarity", "demo", "compiler")):  # on old instance types, at their old prices
        prices = "compiler" if path.stem.startswith("compiler") else "polarity"
        monkeypatch.setenv("PARETUNE_PRICES", f"studies/{prices}_prices.csv")
    words = ["study", "--study", str(path), "--launcher", "simulated", "--n_trials", "2"]
    file = StudyFile.read(str(path), {})
    if file.job.simulation.runs is None:  # its F1, or its number of rows, is unknown
        rows = [] if "max_train_samples" in path.read_text() else ["--max_train_samples", "1000"]
        is_unknown = file.judged_by is not None and file.design is None  # which a search finds out
        assert main([*words, *rows, "--dry_run"]) == (2 if is_unknown else 0)
        return
    assert main(words) == 0

    trials = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert len(trials) >= 2
    assert {tags_of(run)["paretune.origin"] for run in trials} == {"simulated"}


def test_a_design_about_clusters_ends_with_time_and_dollars_of_each_although_no_quality_is_known(
    studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "data_parallel_one_line", "--launcher", "simulated"]) == 0

    front = re.findall(r"^ +\d+ +1 +([\d.]+) +([\d.]+)  instances (\d)", capsys.readouterr().out, re.MULTILINE)
    usd, minutes, instances = ([float(row[column]) for row in front] for column in range(3))
    assert instances == [1, 2, 4, 8]
    assert usd == sorted(usd)
    assert minutes == sorted(minutes, reverse=True)


def test_the_smoke_study_trains(studies: Path, tiny_model: Path, reviews: Path) -> None:
    words = ["study", "--study", "studies/smoke.yaml", "--n_trials", "1", "--max_train_samples", "64"]
    assert main([*words, "--max_eval_samples", "16", "--model", str(tiny_model), "--dataset", str(reviews)]) == 0

    trials = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert {tags_of(run)["paretune.origin"] for run in trials} == {"measured"}
    assert all(run.data.metrics["f1"] > 0 for run in trials)
