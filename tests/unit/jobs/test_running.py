"""The jobs that run now: what they cost, what they print, and how people other than their launchers end them."""

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.reconcile import reconciled
from paretune.commands.reconcile.bill import read_bill
from paretune.core.errors import BadInput, Interrupted, LostContact, ParetuneError
from paretune.core.interruption import Interruption
from paretune.jobs.attempts import Attempts
from paretune.jobs.follow import Sync, find_run, followed, lines_of, running_jobs, stop
from paretune.jobs.launch import begin_job
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.launchers.processes import process_text
from paretune.specification.container import Event
from paretune.specification.ending import JobState
from paretune.specification.order import Order
from tests.support.bills import later, line, write
from tests.support.scripted_jobs import CAPACITY, DONE, ENDLESS, FIRST_EVENT, LARGE, MEMORY, SMALL, End
from tests.support.tags import tags_of
from tests.support.users import User


class Desk(User):
    """A store, an account, and a second user next to the one who launches."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.launcher.endings = []
        self.tracking = self.place().tracking

    def where(self, *_: str | None) -> Workplace:
        return self.place()

    def launch(self, *endings: End, **changes: Any) -> Attempts:
        self.launcher.endings += endings
        return begin_job(self.spec(**changes), self.place())


@pytest.fixture
def desk(workplace: Path) -> Desk:
    return Desk(workplace)


def test_jobs_that_run_are_listed_with_dollars_so_far_and_at_worst(desk: Desk) -> None:
    job = desk.launch(ENDLESS, max_runtime_minutes=60.0, tags={"user": "ana"})
    ended = desk.launch(DONE, instance_count=2)
    while ended.poll() is None:
        pass

    spot = desk.launch(ENDLESS, spot=True)

    seen, of_spot = sorted(
        running_jobs(desk.tracking, desk.where), key=lambda row: row["run_id"] == spot.record.run.run_id
    )

    assert (seen["run_id"], seen["job"]) == (job.record.run.run_id, job.order.job_name)
    assert seen["cost_usd"] == pytest.approx(0.01)
    assert seen["worst_usd"] == job.record.plan.limits.worst_usd
    assert (seen["owner"], seen["where"]) == ("ana", f"1 x {SMALL}")
    assert of_spot["cost_usd"] is None  # not known before its end


def test_a_job_shows_how_far_it_has_come_and_which_dollars_are_left(desk: Desk) -> None:
    job, spot, silent = (
        desk.launch(ENDLESS, spot=spot, instance_count=count) for spot, count in ((False, 1), (True, 1), (False, 2))
    )
    steps = [
        Event(time=desk.clock.now() - 400 + 4 * step, step=step, metrics={"train/loss": 0.5}, total_steps=900)
        for step in range(10, 101, 10)
    ]
    desk.launcher.attach = lambda name: replace(  # type: ignore[method-assign]
        desk.launcher.jobs[name], new_events=steps if name != silent.order.job_name else [FIRST_EVENT]
    )

    rows = {row["job"]: row["progress"] for row in running_jobs(desk.tracking, desk.where)}

    upload_s = 30.3  # the median of public jobs on one GPU
    progress = rows[job.order.job_name]
    assert progress["evidence"] == "step 100 of 900"
    assert (progress["share"], progress["left_s"]) == (pytest.approx(1 / 9), pytest.approx(800 * 4 + upload_s))
    assert progress["left_usd"] == pytest.approx(progress["left_s"] / 3600)
    assert progress["text"] == "11 %, about 54 m and 0.897 USD left"
    assert rows[spot.order.job_name]["text"] == "11 %, about 54 m left"  # its price is not known before its end
    assert rows[silent.order.job_name] is None


def test_a_job_that_cannot_be_looked_at_is_listed_all_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.launch(ENDLESS)
    here = {"account": "111111111111", "region": "us-east-1"}
    monkeypatch.setattr(desk.launcher, "location_tags", lambda: here)
    run = desk.client.search_runs(["0"])[0]
    desk.client.set_tag(run.info.run_id, "paretune.region", "eu-west-1")

    (seen,) = running_jobs(desk.tracking, desk.where)

    assert "in the region eu-west-1, but this command uses us-east-1" in seen["remark"]


def test_somebody_else_stops_a_job_and_its_launcher_records_the_same_end(desk: Desk) -> None:
    job = desk.launch(ENDLESS)
    run_id, name = job.record.run.run_id, job.order.job_name
    real = desk.launcher.jobs[name]
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    end = stop(find_run(desk.tracking, run_id[:6]), desk.where)

    assert real.stopped
    assert end.state is JobState.STOPPED
    run = desk.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("KILLED", "Stopped")
    assert "paretune stop" in tags_of(run)["paretune.failure_reason"]
    assert run.data.metrics["cost_usd"] == pytest.approx(0.01)
    job.current = real
    seen = job.poll()
    assert seen is not None
    assert seen.state is JobState.STOPPED
    run = desk.client.get_run(run_id)
    assert run.data.metrics["cost_usd"] == pytest.approx(0.01)
    assert "paretune stop" in tags_of(run)["paretune.failure_reason"]
    assert "paretune stop" in tags_of(run)["mlflow.note.content"]
    assert running_jobs(desk.tracking, desk.where) == []


def test_a_stopped_job_costs_what_the_instance_type_costs_that_aws_has_chosen(desk: Desk) -> None:
    job = desk.launch(ENDLESS, fallback_instance_types=LARGE)
    desk.launcher.jobs[job.order.job_name].chosen = LARGE
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    end = stop(find_run(desk.tracking, job.record.run.run_id), desk.where)

    assert end.metrics["cost_usd"] == pytest.approx(0.02)
    assert end.offer.instance_type == LARGE


def test_a_run_that_names_the_job_of_another_run_has_none(desk: Desk) -> None:
    name, other = desk.launch(ENDLESS).order.job_name, desk.launch(ENDLESS, instance_count=2).record.run.run_id
    desk.client.set_tag(other, "paretune.job_name", name)

    with pytest.raises(BadInput, match="does not exist"):  # `stop` searches in the same way
        lines_of(find_run(desk.tracking, other), desk.where, 5)


def test_stopping_a_retried_job_stops_its_running_attempt_and_records_all_attempts(desk: Desk) -> None:
    desk.launcher.reads_inputs = False
    job = desk.launch(MEMORY, ENDLESS, entry_script=None, per_device_train_batch_size=16)
    while len(desk.launcher.created) < 2:
        job.poll()
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    end = stop(find_run(desk.tracking, job.record.run.run_id), desk.where)

    assert desk.launcher.jobs[desk.launcher.created[1]].stopped
    assert end.metrics["cost_usd"] == pytest.approx(0.02)


def test_stopping_a_trial_stops_the_smaller_batch_that_its_study_has_started(desk: Desk) -> None:
    desk.launcher.reads_inputs = False
    job = desk.launch(MEMORY, ENDLESS, entry_script=None, per_device_train_batch_size=16)
    while len(desk.launcher.created) < 2:
        job.poll()
    run_id = job.record.run.run_id
    desk.client.set_tag(run_id, "paretune.retries", "capacity, internal")  # as for a trial: only its study retries more
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    end = stop(find_run(desk.tracking, run_id), desk.where)

    assert desk.launcher.jobs[desk.launcher.created[1]].stopped
    assert end.metrics["cost_usd"] == pytest.approx(0.02)


@pytest.mark.parametrize("watched_by", ["", "another-machine 1 1", process_text(os.getppid())])
@pytest.mark.parametrize("is_named", [False, True])
def test_stop_creates_no_attempt_whoever_watches_the_job_and_its_watcher_creates_none_after_that(
    desk: Desk, is_named: bool, watched_by: str
) -> None:
    job = desk.launch(CAPACITY, ENDLESS, fallback_instance_types=LARGE)
    name, run_id = job.order.job_name, job.record.run.run_id
    desk.client.set_tag(run_id, "paretune.watched_by", watched_by)
    if is_named:
        job.record.name_attempt(f"{name[:-1]}2")
    desk.launcher.jobs[name].runs = 0
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    end = stop(find_run(desk.tracking, run_id), desk.where)

    assert desk.launcher.created == [name]
    assert (end.state, end.metrics["cost_usd"]) == (JobState.FAILED, pytest.approx(0.01))
    run = desk.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("FAILED", "Failed")
    assert "paretune.used_instance_type" not in tags_of(run)
    job.current = desk.launcher.jobs[name]
    seen = job.poll()  # as its watcher does
    assert desk.launcher.created == [name]
    assert seen is not None
    assert (seen.state, seen.metrics["cost_usd"]) == (JobState.FAILED, pytest.approx(0.01))
    assert running_jobs(desk.tracking, desk.where) == []


def test_an_attempt_that_was_being_created_when_its_job_was_stopped_is_stopped_by_its_watcher(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, submit = desk.launch(CAPACITY, ENDLESS, fallback_instance_types=LARGE), desk.launcher.submit
    run_id = job.record.run.run_id
    desk.client.set_tag(run_id, "paretune.watched_by", process_text(os.getppid()))
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]

    def stopped_meanwhile(order: Order) -> Job:
        stop(find_run(desk.tracking, run_id), desk.where)
        return submit(order)

    monkeypatch.setattr(desk.launcher, "submit", stopped_meanwhile)
    while (end := job.poll()) is None:
        pass

    assert (end.state, end.metrics["cost_usd"]) == (JobState.STOPPED, pytest.approx(0.01 + 0.02))
    assert tags_of(desk.client.get_run(run_id))["paretune.state"] == "Stopped"


def test_stop_creates_no_job_in_place_of_one_that_is_not_shown_any_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, shown = desk.launch(ENDLESS).record.run.run_id, [*desk.launcher.jobs.values()]
    monkeypatch.setattr(desk.launcher, "attach", lambda _: shown.pop() if shown else None)

    with pytest.raises(LostContact, match="is not visible"):
        stop(find_run(desk.tracking, run_id), desk.where)

    assert len(desk.launcher.created) == 1
    assert desk.client.get_run(run_id).info.status == "RUNNING"


@pytest.mark.parametrize(
    ("printed", "asked", "shown"),
    [
        ([["one"], ["two", "two"], ["two", "three"]], 50, ["one", "two", "two", "two", "three"]),
        ([["one", "two", "three"], ["four"]], 2, ["two", "three", "four"]),
        ([[], ["one", "two", "three"]], 2, ["one", "two", "three"]),
    ],
    ids=["equal lines", "none before the first ones", "all of a job that starts"],
)
def test_the_log_of_a_job_is_shown_and_followed_to_its_end(
    desk: Desk, printed: list[list[str]], asked: int, shown: list[str]
) -> None:
    job = desk.launch(DONE)
    run, began = find_run(desk.tracking, job.order.job_name), desk.clock.monotonic()
    scripted = desk.launcher.jobs[job.order.job_name]
    scripted.runs = len(printed) - 1
    desk.launcher.attach = lambda _: scripted  # type: ignore[method-assign, assignment]
    reads = iter(printed)
    scripted.new_lines = lambda: next(reads)  # type: ignore[method-assign]

    assert list(followed(run, desk.where, Interruption(), asked)) == shown
    assert desk.clock.monotonic() - began >= 2.0  # between two reads; AWS allows five per second
    scripted.log_tail = lambda lines=15: ["last line"][:lines]  # type: ignore[method-assign]
    assert lines_of(run, desk.where, 50) == (["last line"], "somewhere")


def test_a_local_job_of_another_machine_is_called_so(desk: Desk) -> None:
    job = desk.launch(ENDLESS)
    desk.client.set_tag(job.record.run.run_id, "paretune.machine", "gpu-box x86_64 8")
    desk.launcher.jobs.clear()
    desk.launcher.location_tags = lambda: {"machine": "laptop arm64 10"}  # type: ignore[method-assign]
    run = find_run(desk.tracking, job.record.run.run_id)

    for command in (lambda: stop(run, desk.where), lambda: lines_of(run, desk.where, 5)):
        with pytest.raises(BadInput, match=r"its job was started on another machine \(gpu-box\)"):
            command()


def test_an_interrupted_reader_leaves_the_job_alone(desk: Desk) -> None:
    job, interruption = desk.launch(ENDLESS), Interruption()
    lines = followed(find_run(desk.tracking, job.record.run.run_id), desk.where, interruption, 50)
    assert next(lines) == "last line"
    interruption.reason = "interrupted by SIGINT"

    with pytest.raises(Interrupted):
        list(lines)

    assert not desk.launcher.jobs[job.order.job_name].stopped


DEAD = f"{socket.gethostname()} 4194304 1"  # no process has this id


def test_a_job_is_found_by_its_name_though_a_launcher_that_died_before_it_had_one_gave_the_same_name(
    desk: Desk, tmp_path: Path
) -> None:
    # The second of two launchers of one command is killed during its upload, while the first one's job runs.
    winner = desk.launch(ENDLESS)
    name, run_id = winner.order.job_name, winner.record.run.run_id
    desk.launcher.attach = lambda wanted: desk.launcher.jobs.get(wanted)  # type: ignore[method-assign]
    loser = desk.is_killed(before_creation=True, watched_by=DEAD)
    desk.client.set_tag(loser, "paretune.job_name", name)

    assert find_run(desk.tracking, name, desk.where).run_id == run_id

    synced = Sync(workplace_at=desk.where, tracking=desk.tracking, interruption=Interruption())
    synced.interruption.reason = "interrupted by SIGINT"
    with pytest.raises(Interrupted):
        synced.run()
    assert tags_of(desk.client.get_run(loser))["paretune.job_name"] == ""
    end = stop(find_run(desk.tracking, name, desk.where), desk.where)
    assert (end.run_id, end.state) == (run_id, JobState.STOPPED)
    ended = find_run(desk.tracking, name)
    table = reconciled(read_bill(write([line(name, 0.0055), later()], tmp_path / "bill.csv")), [ended])
    assert list(table["run_id"]) == [run_id]


def test_a_bill_is_of_the_run_that_has_the_job_and_of_no_other_that_names_it(desk: Desk, tmp_path: Path) -> None:
    winner = desk.launch(DONE)
    name = winner.order.job_name
    while winner.poll() is None:
        pass
    loser = desk.is_killed(before_creation=True, watched_by=DEAD)
    desk.client.set_tag(loser, "paretune.job_name", name)  # `sync` has not closed it yet

    runs = desk.tracking.runs("tags.`paretune.job_name` != ''")
    table = reconciled(read_bill(write([line(name, 0.0055), later()], tmp_path / "bill.csv")), runs)

    billed = table[table["billed_usd"].notna()]
    assert list(billed["run_id"]) == [winner.record.run.run_id]


def test_an_unknown_ambiguous_or_ended_run_is_explained_in_a_sentence(desk: Desk) -> None:
    job = desk.launch(DONE)
    with pytest.raises(BadInput, match="no job here has the run id or the name paretune-x-1: `paretune status`"):
        find_run(desk.tracking, "paretune-x-1")
    with pytest.raises(BadInput, match="no job here has the run id or the name '; drop"):
        find_run(desk.tracking, "'; drop")
    for number in range(20):
        desk.client.create_run("0", tags={"paretune.state": "Completed", "paretune.job_name": f"paretune-{number}-1"})
    with pytest.raises(BadInput, match="at least 6 characters"):
        find_run(desk.tracking, job.record.run.run_id[:5])
    assert find_run(desk.tracking, job.record.run.run_id[:6]).run_id == job.record.run.run_id
    while job.poll() is None:
        pass

    with pytest.raises(ParetuneError, match="has ended: Completed"):
        stop(find_run(desk.tracking, job.record.run.run_id), desk.where)
