"""What a study takes from the runs of earlier ones."""

import re
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.clock import SystemClock
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices
from paretune.studies.search.study_run import scatter_of_earlier_runs
from paretune.tracking import RunStatus, Tracking, schema
from tests.study_tables import write_study


def record(tracking: Tracking, f1: float, parent: str = "earlier", **spec: Any) -> None:
    """A job that has completed."""
    tags = {schema.PARENT: parent, schema.STATE: "Completed", schema.ORIGIN: "measured"}
    run = tracking.create("job", tags)
    run.log_params(JobSpec(**{"max_train_samples": 900, **spec}).as_text())
    run.log_metrics({"f1": f1})
    run.end(RunStatus.FINISHED)


def test_repeats_in_earlier_runs_of_the_same_model_and_data_tell_their_scatter(workplace: Path) -> None:
    tracking = Tracking({}, SystemClock())
    record(tracking, 0.90, seed=1)
    record(tracking, 0.92, seed=2)
    record(tracking, 0.70, seed=3, learning_rate=1e-3)  # another job
    record(tracking, 0.50, seed=4, parent="own")  # the study's own runs are in its trials
    record(tracking, 0.40, seed=5, max_train_samples=500)  # other data
    study = StudyFile(
        name="one",
        job={"max_train_samples": 900},
        search={"learning_rate": Choices(values=(1e-5, 1e-4))},
        objectives={"cost_usd": "minimize", "f1": "maximize"},
        n_trials=9,
    )

    result = scatter_of_earlier_runs(study, tracking, "own")["f1"]

    assert (result.squares, result.degrees) == (pytest.approx(0.0002), 1)
    searched = StudyFile(
        name="one",
        job={"max_train_samples": 900},
        search={"model": Choices(values=("distilbert-base-uncased", "roberta-base"))},
        objectives={"cost_usd": "minimize", "f1": "maximize"},
        n_trials=9,
    )
    assert scatter_of_earlier_runs(searched, tracking, "own") == {}


@pytest.mark.parametrize(("smallest", "warnings"), [(64, 1), (16, 0)])
def test_a_study_warns_of_what_is_true_of_all_its_points(
    workplace: Path, capsys: pytest.CaptureFixture[str], smallest: int, warnings: int
) -> None:
    job = {"launcher": "simulated", "model": "distilbert-base-uncased", "dataset": "bundled:imdb", "max_seq_length": 64}
    path = write_study(
        workplace,
        job={**job, "instance_type": "ml.g5.xlarge"},
        search={"global_batch_size": {"choices": [smallest, 128]}},
        objectives={"cost_usd": "minimize"},
        n_trials=1,
    )
    assert main(["study", "--study", str(path)]) == 0

    output = capsys.readouterr()
    assert output.err.count("is above reference_batch_size 16") == warnings
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    assert parent.data.tags["paretune.origin"] == "simulated"
    (trial,) = client.search_runs(["0"], "tags.`paretune.trial` = '0'")
    assert parent.data.metrics["pick_cost_usd"] == pytest.approx(trial.data.metrics["cost_usd"])
    assert "pick_f1" not in parent.data.metrics  # no F1 is known of it
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("**Ended: 1 trial, 0.15")
    assert " USD.** Take trial 0 (" in note
    assert parent.data.metrics["trials_done"] == 1
    assert parent.data.metrics["spent_usd"] == pytest.approx(parent.data.metrics["cost_usd"])
    assert "hypervolume" in parent.data.metrics
    assert "Simulated: nothing of this has run, and no number below was measured." in note
    assert note.endswith("`pareto.html`, under Artifacts.")
    assert "front.png" not in note  # one objective makes no picture
    assert f"/runs/{parent.info.run_id}?" in output.out


def test_a_study_whose_trials_have_all_failed_says_how_it_continues(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"
    rows = [f"ml.g5.xlarge,1,16,{rate},60,,Failed" for rate in ("1e-5", "1e-4")]
    (workplace / "failed.csv").write_text("\n".join([header, *rows]))
    job = {"launcher": "simulated", "simulation.runs": "failed.csv", "instance_type": "ml.g5.xlarge"}
    search = {"learning_rate": {"choices": [1e-5, 1e-4]}}
    path = write_study(
        workplace, job=job, search=search, sampler="grid", n_trials=2, objectives={"cost_usd": "minimize"}
    )

    assert main(["study", "--study", str(path)]) == 3

    ending = "failed trials count: mend the cause, and the same command with --n_trials 4 continues"
    assert ending in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_registers_the_model_that_it_recommends_and_no_other(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, n_trials=5)

    assert main(["study", "--study", str(path), "--register", "sentiment-en"]) == 0

    recommended = int(re.findall(r"Take trial (\d+) ", output := capsys.readouterr().out)[0])
    reason = "nothing is registered as sentiment-en: a simulated job has no model"
    assert f"recommended trial {recommended}: {reason}" in output
    request = Tracking({}, SystemClock()).runs("tags.`paretune.registered` LIKE '%'")
    assert [run.tags[schema.TRIAL] for run in request] == [str(recommended)]
    assert "register" not in request[0].params


def test_a_study_checks_the_name_of_its_model_before_the_first_trial(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, n_trials=5)

    assert main(["study", "--study", str(path), "--register", "sentiment_en"]) == 2

    assert "register must be at most 57 letters, digits and hyphens" in capsys.readouterr().err
