"""Seven trainings that know nothing of paretune, each in a study of cost and its own metric by ten lines of YAML."""

import shutil
from pathlib import Path

import mlflow
import pytest
import yaml
from mlflow import MlflowClient

import paretune
from paretune.studies.results.trials import TrialStatus

HERE = Path(__file__).parent
STUDIES = sorted(path.parent.name for path in HERE.glob("*/study.yaml"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of them lie and are recorded: an MLflow store is made once, which takes seconds."""
    folder = tmp_path_factory.mktemp("home")
    for name in STUDIES:
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(autouse=True)
def a_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who types in the folder of the projects."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("PARETUNE_HOME", str(home / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def contents(project: str) -> dict[str, bytes]:
    """Every file of a project that is no cache of Python's."""
    files = (path for path in Path(project).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def test_there_are_seven_and_no_study_has_more_than_ten_lines() -> None:
    assert len(STUDIES) == 7
    assert all(len((HERE / name / "study.yaml").read_text().splitlines()) <= 10 for name in STUDIES)
    for name in STUDIES:
        texts = {path: text for path, text in contents(str(HERE / name)).items() if Path(path).name != "study.yaml"}
        assert not [path for path, text in texts.items() if b"paretune" in text]


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_foreign_training_is_searched_by_its_own_metric(name: str) -> None:
    before = contents(name)
    request = yaml.safe_load(before[f"{name}/study.yaml"])
    (metric,) = set(request["objectives"]) - {"cost_usd"}

    result = paretune.run_study(f"{name}/study.yaml", quiet=True)

    trials = [trial for trial in result.answer.front.trials if trial.repeats is None]
    assert [trial.status for trial in trials] == [TrialStatus.COMPLETED] * 2, [trial.reason for trial in trials]
    assert all(trial.values.keys() == {"cost_usd", metric} for trial in trials)
    assert all(0 < trial.values["cost_usd"] < 0.05 for trial in trials)
    assert trials[0].point != trials[1].point
    run = MlflowClient(mlflow.get_tracking_uri()).get_run(trials[0].run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["billable_seconds"] * 0.115 / 3600 == pytest.approx(run.data.metrics["cost_usd"])
    assert contents(name) == before
