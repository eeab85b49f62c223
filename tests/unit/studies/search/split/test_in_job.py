"""Studies that begin with one job that searches, simulated: what is trained, billed and recorded, and adopted."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.ledger.trial_entry import TrialStatus
from paretune.specification import metrics
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.deadline import StudyDeadline
from paretune.studies.search.driver import Driver
from paretune.studies.search.split import search as split
from paretune.studies.search.split.actions import LEARN
from paretune.studies.search.split.unfinished import Unfinished
from paretune.studies.search.trial_job import guessed_f1
from tests.study_rig import Killed, driver_of, kill
from tests.unit.studies.search.test_shared_jobs import jobs_of

STUDY = """
name: searching
job: {launcher: simulated, recorded_runs: table.csv, dataset: someone/reviews, max_train_samples: 6400,
  instance_type: ml.g5.xlarge, num_train_epochs: 8}
search:
  per_device_train_batch_size: {choices: [32, 64]}
  learning_rate: {choices: [1e-5, 3e-5, 1e-4, 3e-4]}
in_job: search
budget_usd: 100
"""
RATES = {"1e-05": 0.80, "3e-05": 0.90, "0.0001": 0.88, "0.0003": 0.60}
USD_PER_SECOND = 1.408 / 3600


def write_curves(path: Path) -> None:
    """Runs whose F1 approaches that of their learning rate from epoch to epoch."""
    names = [f"f1_epoch_{epoch}" for epoch in range(1, 9)]
    head = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,"
    lines = [f"{head}f1,num_steps,status,{','.join(names)}"]
    for batch in (32, 64):
        for rate, f1 in RATES.items():
            curve = [f1 - 0.2 / epoch**2 - (batch == 32) * 0.01 for epoch in range(1, 9)]
            values = ",".join(f"{value:.4f}" for value in curve)
            steps = 8 * 6400 // batch
            row = f"ml.g5.xlarge,1,{batch},{rate},8,{1720 - 2 * batch},{curve[-1]:.4f},{steps},Completed,{values}"
            lines.append(row)
    path.write_text("\n".join(lines) + "\n")


def driver(workplace: Path) -> Driver:
    write_curves(workplace / "table.csv")
    (workplace / "study.yaml").write_text(STUDY)
    return driver_of(workplace, str(workplace / "study.yaml"), {})


def search(driver: Driver) -> str:
    return split.search(driver)


def searching_jobs(workplace: Path, driver: Driver) -> list[float]:
    """Dollars billed for each job."""
    jobs = [driver.workplace.launcher.attach(name) for name in jobs_of(workplace) if ".queue." not in name]
    return [job.billable_seconds() * USD_PER_SECOND for job in jobs if job is not None]


@pytest.mark.slow
def test_jobs_find_the_best_rate_and_their_trials_share_each_bill_within_its_bound(workplace: Path) -> None:
    study = driver(workplace)
    reason = search(study)
    trials = list(study.trials.values())
    best = max((trial for trial in trials if "f1" in trial.values), key=lambda trial: trial.values["f1"])

    assert best.point["learning_rate"] == 3e-5
    stopped = [trial for trial in trials if trial.status is TrialStatus.STOPPED]
    completed = len(trials) - len(stopped)
    assert stopped
    assert all("given up" in trial.reason for trial in stopped)
    assert f"trained {completed} of {len(trials)} trials to their end" in reason
    jobs = searching_jobs(workplace, study)
    assert len(jobs) < completed  # start-ups are shared

    entries = [study.ledger.entry(number) for number in study.trials]
    leads = [entry for entry in entries if entry.note.lead == entry.trial]
    assert [entry for entry in entries if entry.worst_usd] == leads
    assert len(leads) == len(jobs)
    assert study.ledger.balance().spent_usd == pytest.approx(sum(jobs), abs=1e-9)
    for lead in leads:
        members = [entry for entry in entries if entry.note.lead == lead.trial]
        billed = sum(entry.end.cost_usd or 0.0 for entry in members if entry.end)
        assert billed == pytest.approx(min(jobs, key=lambda usd: abs(usd - billed)), abs=1e-9)
        assert billed <= (lead.worst_usd or 0.0)
        assert lead.end is not None
        assert lead.end.status is TrialStatus.COMPLETED
        assert lead.booking_order == max(entry.booking_order or 0 for entry in members)  # its reservation covers all
    for trial in study.trials.values():  # compared as if each had a job of its own
        if trial.status is TrialStatus.COMPLETED:
            seconds = 1720 - 2 * int(str(trial.point["per_device_train_batch_size"]))
            assert trial.values["cost_usd"] == pytest.approx(seconds * USD_PER_SECOND, rel=0.02)


def test_a_job_that_trains_once_costs_what_a_job_of_its_own_costs(workplace: Path) -> None:
    """A study that may begin one trial only: nothing follows in its job."""
    billed = []
    for line in ("in_job: search", "in_job: none"):
        folder = workplace / line[-4:]
        folder.mkdir()
        write_curves(workplace / "table.csv")
        text = STUDY.replace("in_job: search", line).replace("name: searching", f"name: {line[-4:]}")
        (folder / "study.yaml").write_text(f"{text}n_trials: 1\n")
        study = driver_of(workplace, str(folder / "study.yaml"), {})
        search(study)
        (trial,) = study.trials.values()
        assert trial.status is TrialStatus.COMPLETED
        billed.append(trial.cost_usd)

    assert billed[0] == pytest.approx(billed[1], rel=0.03)


@pytest.mark.parametrize("waits", [9, *(pytest.param(waits, marks=pytest.mark.slow) for waits in (1, 4, 14))])
def test_the_next_driver_directs_the_job_of_a_killed_one(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, waits: int
) -> None:
    kill(driver(workplace), search, monkeypatch, after=waits, trials=1)
    again = driver(workplace)
    again.adopt()
    search(again)

    assert len(searching_jobs(workplace, again)) == 1
    assert 3 <= len(again.trials) <= 8
    points = [tuple(trial.point.values()) for trial in again.trials.values()]
    assert len(points) == len(set(points))
    assert again.ledger.balance().spent_usd == pytest.approx(sum(searching_jobs(workplace, again)), abs=1e-9)
    assert again.ledger.balance().committed_usd == 0.0


def test_the_trials_of_a_dead_driver_s_job_are_taken_over_by_one_driver(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the job dies as well, its next attempt is created by the driver of its lead, with the trials of that."""
    dead, one, other = (driver(workplace) for _ in range(3))
    dead._owner, one._owner, other._owner = "dead", "one", "other"
    kill(dead, search, monkeypatch, trials=2)
    dead._heartbeat.stop()
    one.ledger.deregister("dead")
    take_over = one.ledger.take_over

    def followed_by_the_other(*words: object) -> bool:
        is_taken = take_over(*words)  # type: ignore[arg-type]
        if not other.running:
            other.adopt()
        return is_taken

    monkeypatch.setattr(one.ledger, "take_over", followed_by_the_other)
    one.adopt()

    assert len(one.running) >= 2
    assert {entry.owner for entry in one.ledger.running()} == {"one"}


def test_faults_of_a_study_that_cannot_search_in_one_job_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "name: faulty\n"
        "job: {instance_type: ml.p4d.24xlarge, instance_count: 2, strategy: fsdp, keep_alive_minutes: 5}\n"
        "search: {learning_rate: {choices: [1e-5, 1e-4]}}\nsampler: tpe\nonce: true\nin_job: search\nbudget_usd: 9\n"
    )
    with pytest.raises(BadInput) as refused:
        StudyFile.read(str(tmp_path / "study.yaml"), {})

    text = " ".join(refused.value.faults)
    for part in ("needs method split", "goes without once", "strategy=ddp", "goes without keep_alive_minutes"):
        assert part in text


@pytest.mark.parametrize(
    ("finish_by", "part"), [("2020-01-01T08:00Z", "is over: set a later time"), ("2030-01-01T08:00", "without a zone")]
)
def test_a_faulty_deadline_hides_no_other_fault(tmp_path: Path, finish_by: str, part: str) -> None:
    """A script in one job, sharded over two instances, with a time that is over or has no zone."""
    (tmp_path / "train.py").write_text("import sys\n")
    (tmp_path / "study.yaml").write_text(
        f"name: faulty\nentry_script: {tmp_path}/train.py\n"
        f"job: {{instance_type: ml.p4d.24xlarge, instance_count: 2, strategy: fsdp, finish_by: '{finish_by}'}}\n"
        "search: {learning_rate: {choices: [1e-5, 1e-4]}}\nin_job: search\nbudget_usd: 9\n"
    )
    with pytest.raises(BadInput) as refused:
        StudyFile.read(str(tmp_path / "study.yaml"), {})

    deadline, script, sharded = refused.value.faults
    assert part in deadline
    assert "which cannot be paused" in script
    assert "strategy=ddp or device_map, got fsdp" in sharded


def test_a_table_without_curves_is_refused_before_the_first_dollar(workplace: Path) -> None:
    """A simulated job that searches needs evaluations before the ends of its trials."""
    write_curves(workplace / "table.csv")
    lines = [line.split(",")[:9] for line in (workplace / "table.csv").read_text().splitlines()]
    (workplace / "table.csv").write_text("".join(",".join(cells) + "\n" for cells in lines))
    (workplace / "study.yaml").write_text(STUDY)
    with pytest.raises(BadInput, match=r"in_job=search compares trials .*table\.csv has none: .*f1_epoch_1"):
        StudyFile.read(str(workplace / "study.yaml"), {})


@pytest.mark.slow
def test_a_job_trains_half_of_a_study_s_trials_at_most(workplace: Path) -> None:
    """The other half is left to measure seconds on other clusters."""
    write_curves(workplace / "table.csv")
    (workplace / "study.yaml").write_text(f"{STUDY}n_trials: 6\n")
    study = driver_of(workplace, str(workplace / "study.yaml"), {})
    search(study)

    assert len(study.trials) <= 6
    assert max(Counter(study.history.notes[number].lead for number in study.trials).values()) == 3


@pytest.mark.slow
def test_the_job_is_done_by_the_deadline_of_its_study(workplace: Path) -> None:
    write_curves(workplace / "table.csv")
    (workplace / "study.yaml").write_text(STUDY.replace("instance_type", "max_runtime_minutes: 40, instance_type"))
    study = driver_of(workplace, str(workplace / "study.yaml"), {})
    until = study.workplace.clock.now() + 5400.0
    study.admission.deadline = StudyDeadline(until, 0.95, study.workplace)
    study.admission.deadline.seconds(study.file.spec_at({"per_device_train_batch_size": 32, "learning_rate": 1e-5}))
    search(study)

    assert any(trial.status is TrialStatus.COMPLETED for trial in study.trials.values())
    assert study.workplace.clock.now() <= until


@pytest.mark.slow
def test_a_paused_training_is_forecast_once_another_has_ended(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quality counts with the uncertainty of the forecast; one that has ended counts with the job's start-up."""
    write_curves(workplace / "table.csv")
    slow = STUDY.replace("instance_type", "simulation: {startup_seconds: 400}, instance_type")
    (workplace / "study.yaml").write_text(slow)
    study = driver_of(workplace, str(workplace / "study.yaml"), {})
    forecasts = []
    billed: list[tuple[str, float]] = []
    wait = study.wait

    def looked_at() -> None:
        wait()
        quality = study.file.judged_by
        assert quality is not None
        finished = Unfinished(study).just_finished().values()
        forecasts.append((list(Unfinished(study).forecasts(quality)), len(finished)))
        batch = "per_device_train_batch_size"
        billed.extend((job.parameters[batch], measured[metrics.BILLABLE_SECONDS]) for job, measured in finished)

    monkeypatch.setattr(study, "wait", looked_at)
    search(study)

    before = itertools.takewhile(lambda item: not item[1], forecasts)
    assert not any(open_ for open_, _ in before)
    means = [mean for open_, _ in forecasts for _, mean, _ in open_]
    assert means
    assert all(0.4 < mean < 1.0 for mean in means)
    assert [seconds for _, seconds in billed] == pytest.approx([1720 - 2 * int(size) for size, _ in billed], rel=0.03)


@pytest.mark.parametrize(
    ("labels", "majority", "f1"), [((), 0.4, 0.0), (("a", "b", "c", "d"), 0.1, 0.25), (("a", "b"), 0.6, 0.6)]
)
def test_guessing_is_any_class_or_the_most_frequent_one(labels: tuple[str, ...], majority: float, f1: float) -> None:
    facts = {metrics.BASELINE_MAJORITY: majority}
    dataset = PreparedDataset(key="k", folder=Path(), labels=labels, facts=facts)
    assert guessed_f1(JobInputs(dataset=dataset)) == f1


def test_f1_below_guessing_counts_as_guessing(workplace: Path) -> None:
    """Such a training has not begun to learn, and says nothing of its end."""
    study = driver(workplace)
    unfinished, curve = Unfinished(study), [(0.125, 0.2), (0.25, 0.7)]
    quality = study.file.judged_by
    assert quality is not None
    assert unfinished._comparable(quality, curve) == tuple(curve)  # nothing is known of the data
    unfinished._guessed_f1 = 0.5
    assert unfinished._comparable(quality, curve) == ((0.125, 0.5), (0.25, 0.7))


def test_a_script_in_one_job_has_one_fault(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\n")
    path = tmp_path / "study.yaml"
    path.write_text(
        f"name: own\nentry_script: {tmp_path}/train.py\nin_job: search\nbudget_usd: 9\n"
        "search: {learning_rate: {choices: [1e-5, 1e-4]}}\nobjectives: {cost_usd: minimize, f1: maximize}\n"
    )
    with pytest.raises(BadInput) as error:
        StudyFile.read(str(path), {})

    (fault,) = error.value.faults
    assert "in_job=search goes with paretune's own training" in fault


@pytest.mark.slow
def test_the_second_job_of_a_killed_driver_is_directed_by_the_next_one(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_curves(workplace / "table.csv")
    (workplace / "study.yaml").write_text(f"{STUDY}n_trials: 6\n")
    dead, again = (driver_of(workplace, str(workplace / "study.yaml"), {}) for _ in range(2))
    dead._owner, again._owner = "dead", "again"
    monkeypatch.setattr(dead, "wait", lambda: _wait_for_a_second_job(dead))
    with pytest.raises(Killed):
        search(dead)
    dead._heartbeat.stop()
    again.ledger.deregister("dead")
    again.adopt()
    leads = {job.note.lead for job in again.running}
    search(again)

    assert len(leads) == 1
    assert leads < {note.lead for note in again.history.notes.values()}
    points = [tuple(trial.point.values()) for trial in again.trials.values()]
    assert len(points) == len(set(points))
    assert again.ledger.balance().spent_usd == pytest.approx(sum(searching_jobs(workplace, again)), abs=1e-9)
    assert again.ledger.balance().committed_usd == 0.0


def _wait_for_a_second_job(driver: Driver) -> None:
    """Raise Killed once a trial of the second job that searches has begun, else wait as usual."""
    if driver.history.notes and any(job.trial and job.trial.shared.started for job in driver.running):
        raise Killed
    Driver.wait(driver)


@pytest.mark.slow
def test_after_a_job_without_capacity_the_search_chooses_anew_and_pays_nothing(workplace: Path) -> None:
    write_curves(workplace / "table.csv")
    text = STUDY.replace("instance_type", "simulation: {capacity_error_rate: 0.5}, instance_type")
    (workplace / "study.yaml").write_text(text)
    study = driver_of(workplace, str(workplace / "study.yaml"), {})
    began = study.workplace.clock.now()
    search(study)

    ends = [entry.end for entry in study.ledger.booked(0) if entry.end is not None]
    refused = [end for end in ends if end.transient]
    assert refused
    assert not any(end.cost_usd for end in refused)
    assert any(end.status is TrialStatus.COMPLETED and end.at - began > 300.0 for end in ends)
    assert study.ledger.balance().spent_usd == pytest.approx(sum(searching_jobs(workplace, study)), abs=1e-9)
    assert study.ledger.balance().committed_usd == 0.0


def test_a_budget_for_one_training_begins_a_job_of_its_own(workplace: Path) -> None:
    """A job that searches may reserve 70 % of the dollars left."""
    write_curves(workplace / "table.csv")
    text = STUDY.replace("budget_usd: 100", "budget_usd: 1.2")
    (workplace / "study.yaml").write_text(text.replace("instance_type", "max_runtime_minutes: 40, instance_type"))
    study = driver_of(workplace, str(workplace / "study.yaml"), {})
    search(study)

    kinds = {study.history.notes[trial.number].kind for trial in study.trials.values()}
    assert kinds == {LEARN}
    assert study.ledger.balance().spent_usd <= 1.2
