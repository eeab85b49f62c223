"""Studies whose trials share jobs, simulated: what they cost, what they record, how they go on after a kill."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.core.errors import Interrupted
from paretune.ledger.trial_entry import TrialStatus
from paretune.studies.search.deadline import StudyDeadline
from paretune.studies.search.driver import Driver
from paretune.studies.search.joint import search
from tests.study_rig import driver_of, kill
from tests.unit.studies.search.split.test_search import smooth, write_table

STUDY = """
name: shared
job: {launcher: simulated, recorded_runs: table.csv, dataset: someone/reviews, max_train_samples: 60000,
  instance_type: ml.g5.xlarge, max_runtime_minutes: 300, trials_per_job: TRIALS}
search:
  per_device_train_batch_size: {choices: [32, 64]}
  learning_rate: {choices: [1e-5, 3e-5, 1e-4, 3e-4]}
sampler: grid
budget_usd: 500
"""


def driver(workplace: Path, trials: int, name: str = "study.yaml") -> Driver:
    write_table(workplace / "table.csv", smooth)
    (workplace / name).write_text(STUDY.replace("TRIALS", str(trials)).replace("shared", f"shared{trials}"))
    return driver_of(workplace, str(workplace / name), {})


def runs_of(trials: int) -> list[Run]:
    client = MlflowClient()
    return client.search_runs(["0"], f"tags.`paretune.trial` LIKE '%' and params.trials_per_job = '{trials}'")


def jobs_of(workplace: Path) -> list[str]:
    paths = (workplace / ".paretune/simulated/jobs").glob("*.json")
    return sorted(path.stem for path in paths if not path.name.endswith(".stop.json"))


def test_a_study_pays_one_start_up_for_several_trials(workplace: Path) -> None:
    alone, shared = driver(workplace, 1), driver(workplace, 4)
    for item in (alone, shared):
        assert search(item) == "every point was tried"
    jobs = jobs_of(workplace)

    assert len(jobs) == 8 + 2
    assert len(shared.trials) == 8
    assert {t.values["f1"] for t in alone.trials.values()} == {t.values["f1"] for t in shared.trials.values()}
    startup_usd = 120 / 3600 * 1.408  # Simulation.startup_seconds, on ml.g5.xlarge
    saved = alone.ledger.balance().spent_usd - shared.ledger.balance().spent_usd
    assert saved == pytest.approx(6 * startup_usd, rel=1e-6)


@pytest.mark.slow
def test_points_are_compared_as_if_each_had_a_job_of_its_own(workplace: Path) -> None:
    """Whatever trials they met: five fill a job, and three another one."""
    alone, shared = driver(workplace, 1), driver(workplace, 5)
    for entry in (alone, shared):
        search(entry)
    values = [
        {str(trial.point): trial.values["cost_usd"] for trial in item.trials.values()} for item in (alone, shared)
    ]

    assert values[1] == pytest.approx(values[0])
    assert sum(trial.cost_usd or 0.0 for trial in shared.trials.values()) < 0.95 * sum(values[1].values())


def test_the_dollars_of_the_trials_are_those_of_the_jobs(workplace: Path) -> None:
    shared = driver(workplace, 4)
    search(shared)
    runs = runs_of(4)
    launcher = shared.workplace.launcher
    names = {run.data.tags["paretune.shared_job"] for run in runs}
    jobs = [job for name in names if (job := launcher.attach(name)) is not None]
    billed = sum(job.billable_seconds() for job in jobs) * 1.408 / 3600

    assert len(runs) == 8
    assert len(jobs) == 2
    assert sum(run.data.metrics["cost_usd"] for run in runs) == pytest.approx(billed)
    assert shared.ledger.balance().spent_usd == pytest.approx(billed)
    assert {run.data.tags["paretune.state"] for run in runs} == {"Completed"}
    assert {run.data.tags["paretune.trials_in_job"] for run in runs} == {"4"}


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_a_driver_that_was_killed_leaves_no_job_to_be_started_twice(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, waits: int
) -> None:
    kill(driver(workplace, 4), search, monkeypatch, after=waits)
    before = jobs_of(workplace)
    again = driver(workplace, 4)
    again.adopt()
    assert search(again) == "every point was tried"

    assert len(again.trials) == 8
    assert {trial.status.value for trial in again.trials.values()} == {"Completed"}
    assert set(before) <= set(jobs_of(workplace))
    assert len(jobs_of(workplace)) == 2
    whole = [job for name in jobs_of(workplace) if (job := again.workplace.launcher.attach(name)) is not None]
    billed = sum(job.billable_seconds() for job in whole) * 1.408 / 3600
    assert again.ledger.balance().spent_usd == pytest.approx(billed)


@pytest.mark.slow
def test_a_driver_killed_before_its_first_job_was_created_starts_each_trial_once(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(driver(workplace, 4), search, monkeypatch, at="poll")
    assert jobs_of(workplace) == []
    again = driver(workplace, 4)
    again.adopt()
    search(again)

    assert len(jobs_of(workplace)) == 2
    assert len(again.trials) == 8


def test_trials_begin_only_if_their_shared_job_is_done_by_the_deadline(workplace: Path) -> None:
    """There is time for two, and the third one would end with the job of all of them."""
    shared = driver(workplace, 4)
    points = [{"per_device_train_batch_size": 32, "learning_rate": rate} for rate in (1e-5, 3e-5, 1e-4)]
    deadline = shared.admission.deadline = StudyDeadline(shared.workplace.clock.now(), 0.95, shared.workplace)
    deadline.until += 2.5 * deadline.seconds(shared.file.spec_at(points[0]))

    assert [shared.start(shared.study.ask_for(point)) for point in points] == [True, True, False]
    shared.poll()  # creates their job, and a fourth trial would wait for it
    assert not shared.start(shared.study.ask_for(points[2]))


def test_a_trial_that_overruns_the_deadline_is_stopped(workplace: Path) -> None:
    alone = driver(workplace, 1)
    alone.start(alone.study.ask_for({"per_device_train_batch_size": 32, "learning_rate": 1e-5}))
    until = alone.workplace.clock.now() + 300.0
    alone.admission.deadline = StudyDeadline(until, 0.95, alone.workplace)
    while alone.running:
        alone.poll()
        alone.wait()
    (trial,) = alone.trials.values()

    assert (trial.status, trial.reason) == (TrialStatus.STOPPED, "the time of finish_by was over")
    assert alone.workplace.clock.now() <= until + 30.0


@pytest.mark.slow
def test_no_more_shared_jobs_run_at_a_time_than_were_asked_for(workplace: Path) -> None:
    shared, most = driver(workplace, 2), 0
    poll = shared.poll

    def counted() -> None:
        nonlocal most
        poll()
        launcher = shared.workplace.launcher
        states = [launcher.attach(name) for name in jobs_of(workplace)]
        most = max(most, sum(job is not None and not job.state().is_terminal for job in states))

    shared.poll = counted  # type: ignore[method-assign]
    search(shared)
    assert most == 1
    assert len(jobs_of(workplace)) == 4


def test_an_interrupted_study_books_what_its_shared_job_has_cost(workplace: Path) -> None:
    shared = driver(workplace, 4)
    for rate in (1e-5, 3e-5):
        shared.start(shared.study.ask_for({"per_device_train_batch_size": 32, "learning_rate": rate}))
    shared.poll()
    shared.workplace.clock.sleep(300.0)
    shared.stop(Interrupted("Ctrl-C"))
    (name,) = jobs_of(workplace)
    job = shared.workplace.launcher.attach(name)

    assert job is not None
    assert job.state().is_terminal
    assert shared.ledger.balance().spent_usd == pytest.approx(job.billable_seconds() * 1.408 / 3600)
    assert shared.ledger.balance().committed_usd == 0.0
    assert not shared.ledger.running()
