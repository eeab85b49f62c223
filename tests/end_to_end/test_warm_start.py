"""From its second job on, a launcher of this machine forks jobs: same results, and a kill leaves nothing."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def study(workplace: Path, tiny_model: Path, reviews: Path) -> dict[str, object]:
    """Two trials that differ in the learning rate."""
    shared = {"model": str(tiny_model), "dataset": str(reviews), "max_seq_length": 32, "precision": "fp32"}
    study = {
        "name": "warm",
        "job": shared | {"per_device_train_batch_size": 8},
        "search": {"learning_rate": {"choices": [1e-3, 2e-3]}},
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "sampler": "grid",
    }
    (workplace / "warm.yaml").write_text(json.dumps(study))
    return study


def words_of(job: object, **changes: object) -> list[str]:
    assert isinstance(job, dict)
    return [word for name, value in {**job, **changes}.items() for word in (f"--{name}", json.dumps(value).strip('"'))]


def test_a_forked_job_trains_as_a_process_of_its_own_does(workplace: Path, study: dict[str, object]) -> None:
    assert main(["study", "--study", "warm.yaml"]) == 0
    forked = {path.parent.name for path in workplace.glob(".paretune/jobs/*/exit_code")}
    trials = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '_%'")
    by_rate = {trial.data.params["learning_rate"]: trial for trial in trials}
    assert forked
    assert main(["train", *words_of(study["job"], learning_rate=1e-3), "--force"]) == 0
    assert main(["train", *words_of(study["job"], learning_rate=2e-3), "--force"]) == 0
    alone = MlflowClient().search_runs(["0"], "tags.`paretune.kind` != 'study'", max_results=2)

    assert any(trial.data.tags["paretune.job_name"] in forked for trial in by_rate.values())
    for run in alone:
        assert run.data.tags["paretune.job_name"] not in forked
        trial = by_rate[run.data.params["learning_rate"]]
        assert run.data.metrics["eval_loss"] == trial.data.metrics["eval_loss"]
        assert run.data.metrics["f1"] == trial.data.metrics["f1"]
