"""Studies whose jobs really train: on emulated SageMaker and on this machine, to their end, and interrupted."""

import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.studies.results.trials import Trial
from paretune.studies.trial_status import TrialStatus
from tests.support.cloud import WITHIN_S, Cloud
from tests.support.processes import Command, command, paretune, wait_until, working_in
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.study_tables import records_of
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

RATES, BATCHES = (3e-3,), (8, 16)
STUDY = ("study", "--study", "study.yaml")


def write_study(folder: Path, job: dict[str, object], **terms: object) -> None:
    """Write a grid of two jobs."""
    job = {name: value for name, value in job.items() if name not in ("per_device_train_batch_size", "learning_rate")}
    study = {
        "name": "real",
        "job": {name: str(value) if isinstance(value, Path) else value for name, value in job.items()},
        "search": {"global_batch_size": {"choices": list(BATCHES)}, "learning_rate": {"choices": list(RATES)}},
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "sampler": "grid",
        "budget_usd": 2.0,
        **terms,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def ended_trials(folder: Path) -> list[Trial]:
    """Return the trials of the study, all of which have ended."""
    running, ended, _ = records_of(folder / "study.yaml", f"sqlite:///{folder / '.paretune' / 'studies.db'}")
    assert running == []
    return ended


def check_record(client: MlflowClient, folder: Path, most_completed: int = 1) -> Run:
    """Check that every point completed, no job ran twice, the bill adds up, and there is an answer; return the run."""
    entries = ended_trials(folder)
    completed = Counter(entry.computation for entry in entries if entry.status is TrialStatus.COMPLETED)
    assert set(completed.values()) == {most_completed}
    points = {(entry.point["global_batch_size"], entry.point["learning_rate"]) for entry in entries}
    assert points == {(batch, rate) for batch in BATCHES for rate in RATES}
    (study,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    trials = client.search_runs(["0"], f"tags.mlflow.parentRunId = '{study.info.run_id}'")
    assert {entry.run_id for entry in entries if entry.run_id} <= {run.info.run_id for run in trials}
    paid = sum(run.data.metrics.get("cost_usd", 0.0) for run in trials)
    assert study.data.metrics["cost_usd"] == pytest.approx(paid)
    assert study.data.metrics["cost_usd"] == pytest.approx(sum(entry.cost_usd or 0.0 for entry in entries))
    assert study.info.status == "FINISHED"
    assert {"pareto.html", "pareto.csv"} <= {item.path for item in client.list_artifacts(study.info.run_id)}
    assert "0" in {tags_of(run).get("paretune.pareto_rank") for run in trials}
    return study


def test_a_study_on_sagemaker_that_is_killed_adopts_its_jobs_and_ends_with_a_front_and_sagemaker_s_bill(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    write_study(cloud.folder, tiny_job | {"num_train_epochs": 5, "sagemaker": {"keep_alive_minutes": 5}}, n_parallel=2)
    cloud.start_and_kill(*STUDY)
    before = set(cloud.emulator.jobs())

    done = cloud.run(*STUDY)

    assert done.code == 0, done.text
    assert "it was running when the last command ended; following its job if it still runs" in done.text
    study = check_record(cloud.client, cloud.folder)
    jobs = cloud.emulator.jobs()
    assert before <= set(jobs)
    assert len(cloud.created()) == len(jobs) == len(ended_trials(cloud.folder)) > 2  # the front runs again
    described = [cloud.described(name) for name in jobs]
    pools = [job["WarmPoolStatus"] for job in described]
    assert {pool["Status"] for pool in pools} == {"Reused", "Terminated"}  # none is kept after the study
    seconds = sum(job["BillableTimeInSeconds"] for job in described)
    seconds += sum(pool["ResourceRetainedBillableTimeInSeconds"] for pool in pools)
    assert study.data.metrics["cost_usd"] == pytest.approx(seconds * 0.115 / 3600)
    assert "Take trial" in done.text, done.text
    assert "mlflow run" in done.text or "paretune train" in done.text


@pytest.fixture
def local_study(workplace: Path, tiny_job: dict[str, object]) -> Path:
    """Return a folder with a study whose jobs train for a few seconds on this machine."""
    rest = {name: value for name, value in tiny_job.items() if name != "instance_type"}
    write_study(workplace, rest | {"launcher": "local", "num_train_epochs": 8, "max_runtime_minutes": 5})
    return workplace


def until_it_trains(running: Command, folder: Path) -> None:
    """Wait until a job of the study is training."""
    jobs = folder / ".paretune" / "jobs"
    before = set(jobs.glob("*"))

    def trains() -> bool:
        events = [path / "output" / "data" / "events.jsonl" for path in set(jobs.glob("*")) - before]
        report = any(path.exists() and '"train/loss"' in path.read_text() for path in events)
        return running.process.poll() is not None or report

    wait_until(trains, within_s=90.0, what="a job of the study is training")
    assert running.process.poll() is None, running.text


def test_a_local_study_that_is_ended_twice_leaves_no_process_and_goes_on(local_study: Path) -> None:
    for sent, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        with command(paretune(*STUDY), cwd=local_study) as running:
            until_it_trains(running, local_study)
            running.process.send_signal(sent)
            assert running.wait(90.0) == code, running.text
            wait_until(lambda: not working_in(local_study / ".paretune"), within_s=30.0, what="no process is left")
            if sent is not signal.SIGKILL:
                assert "the same command continues the study" in running.text
                assert "Traceback" not in running.text

    with command(paretune(*STUDY), cwd=local_study) as running:
        assert running.wait(2 * WITHIN_S) == 0, running.text
        assert "Traceback" not in running.text

    check_record(MlflowClient(), local_study)


def test_a_study_whose_job_uploads_for_too_long_says_by_how_much_and_ends_with_4(
    tmp_path: Path, workplace: Path, tiny_job: dict[str, object]
) -> None:
    with Emulator(tmp_path / "account", upload_s=6000.0) as emulator:
        cloud = Cloud(emulator, workplace)
        write_study(cloud.folder, tiny_job, budget_usd=0.19, n_trials=1)

        done = cloud.run(*STUDY)

    assert done.code == 4, done.text
    assert "more than its worst case" in done.text
    assert "more than its budget" in done.text
    (trial,) = cloud.client.search_runs(["0"], "tags.`paretune.trial` = '0'")
    (study,) = cloud.client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    price_usd = float(tags_of(trial)["paretune.price_usd_per_hour"])
    assert trial.data.metrics["cost_usd"] > 6000 * price_usd / 3600
    assert float(tags_of(trial)["paretune.over_bound_usd"]) > 0
    assert "more than its budget" in tags_of(study)["mlflow.note.content"]
