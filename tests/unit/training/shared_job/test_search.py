"""A job that searches: trials pause, continue and are given up, and each is what it would have been without a pause."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Trainer

from paretune.specification.container import Event, EventReader, JobDocument, JobFolder, TrialQueue, write_json
from paretune.specification.job import JobSpec
from paretune.training.loop import train
from paretune.training.shared_job import job
from paretune.training.shared_job.job import train_trials
from paretune.training.shared_job.trials import Trial
from tests.unit.training.conftest import SPEC
from tests.unit.training.shared_job.test_trials import (
    LORA,
    Stop,
    beside,
    curves,
    document_of,
    ends_of,
    events_of,
    quality,
    weights,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

EVERY = {"logging_steps": 1, "warmup_steps": 2, "weight_decay": 0.01}
FULL = replace(SPEC, num_train_epochs=2.0, training_arguments=EVERY)
ADAPTERS = replace(LORA, num_train_epochs=2.0, training_arguments=EVERY)
ACCUMULATED = replace(FULL, seed=5, per_device_train_batch_size=2, gradient_accumulation_steps=2)
END = 10**6


def searching(*specs: JobSpec, order: tuple[tuple[str, int], ...], **queue: Any) -> JobDocument:
    return replace(document_of(*specs), queue=TrialQueue(order=order, **queue))


def alone(folder: JobFolder, spec: JobSpec, name: str) -> JobFolder:
    other = beside(folder, name)
    assert train(JobDocument(job_name="job", spec=spec, plan=spec.plan()), other, Stop())
    return other


def losses(folder: JobFolder, member: str = "") -> list[tuple[int, float]]:
    return [(step, value) for step, name, value in curves(folder, member) if name == "train/loss"]


def pauses(folder: JobFolder) -> list[tuple[str, int]]:
    return [(event.member, event.step) for event in EventReader(folder.events).new() if event.paused is not None]


def assert_same(folder: JobFolder, member: str, reference: JobFolder) -> None:
    """The same losses, final weights and quality, to the last bit."""
    assert losses(folder, member) == losses(reference)
    assert len(losses(reference)) >= 6
    mine, others = weights(folder.of_member(member)), weights(reference)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)
    assert quality(folder.of_member(member)) == quality(reference)


def test_trials_that_pause_in_memory_and_on_disk_are_what_they_are_alone(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = (FULL, ADAPTERS, ACCUMULATED)
    order = (("m0", 2), ("m1", 3), ("m2", 4), ("m1", 6), ("m0", 5), ("m2", END), ("m1", END), ("m0", END))
    document = searching(*specs, order=order, is_complete=True)
    on_disk = beside(folder, "on-disk")
    assert train_trials(document, folder, Stop())
    monkeypatch.setattr(job, "free_bytes", lambda total, used: 0.0)
    assert train_trials(document, on_disk, Stop())

    for place in (folder, on_disk):
        assert pauses(place) == [*order[:5]]
        resumed = [event.message for event in events_of(place, "m0") if "continuing from" in event.message]
        assert bool(resumed) == (place == on_disk)
        evaluated = {step for step, name, _ in curves(place, "m0") if name == "eval/f1"}
        assert {2, 5, 12} <= evaluated
    for number, spec in enumerate(specs):
        reference = alone(folder, spec, f"alone-{number}")
        assert_same(folder, f"m{number}", reference)
        assert_same(on_disk, f"m{number}", reference)


def test_trials_are_given_up_and_join_between_two_rungs(folder: JobFolder) -> None:
    joined = JobDocument(job_name="job.m2", spec=replace(FULL, seed=9), plan=FULL.plan())
    newer = TrialQueue(
        version=2, order=(("m2", 3), ("m1", END)), given_up=frozenset({"m0"}), is_complete=False, members=(joined,)
    )
    last = replace(newer, version=3, order=(("m2", END),), is_complete=True)
    train_to = Trial.train_to

    def directing(trial: Trial, *arguments: Any) -> None:
        train_to(trial, *arguments)
        member = trial.document.member
        if member == "m1":
            write_json(folder.queue, (newer if trial.step < 4 and trial.end is None else last).as_json())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trial, "train_to", directing)
        specs = (FULL, ADAPTERS)
        assert train_trials(searching(*specs, order=(("m0", 2), ("m1", 2), ("m0", END))), folder, Stop())

    ends = ends_of(folder)
    assert list(ends) == ["m0", "m1", "m2"]
    assert ends["m0"].report is ends["m0"].failure is None
    assert ends["m0"].seconds > 0
    assert pauses(folder) == [("m0", 2), ("m1", 2), ("m2", 3)]
    assert not list(folder.of_member("m0").checkpoints.glob("checkpoint-*"))
    assert_same(folder, "m2", alone(folder, joined.spec, "alone"))
    seconds = [event.paused for event in events_of(folder, "m1") if event.paused is not None]
    assert ends["m1"].seconds > seconds[0] > 0


def test_a_job_whose_driver_is_dead_ends_by_itself_best_first(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "WAIT_S", 0.0)
    specs = [replace(FULL, learning_rate=rate) for rate in (1e-9, 3e-3)]
    assert train_trials(searching(*specs, order=(("m0", 3), ("m1", 3))), folder, Stop())

    ends = ends_of(folder)
    assert all(end.report is not None for end in ends.values())
    scores = {event.member: event.metrics["eval/f1"] for event in all_events(folder) if "eval/f1" in event.metrics}
    assert set(scores) == {"m0", "m1"}
    assert sorted(pauses(folder)[:2]) == [("m0", 3), ("m1", 3)]
    assert pauses(folder)[2][1] == 6


def all_events(folder: JobFolder) -> list[Event]:
    return list(EventReader(folder.events).new())


def test_a_stopped_job_continues_each_trial_where_it_was(folder: JobFolder) -> None:
    specs = (FULL, ADAPTERS)
    order = (("m0", 4), ("m1", 4), ("m0", END), ("m1", END))
    document = searching(*specs, order=order, is_complete=True)
    asked = Stop(left=17)
    assert not train_trials(document, folder, asked)
    assert not ends_of(folder)
    steps = {
        member: max(int(path.name[11:]) for path in folder.of_member(member).checkpoints.glob("checkpoint-*"))
        for member in ("m0", "m1")
    }
    assert steps["m1"] == 4
    assert 4 <= steps["m0"] < 12

    assert train_trials(document, folder, Stop())
    for number, spec in enumerate(specs):
        assert_same(folder, f"m{number}", alone(folder, spec, f"alone-{number}"))


class Killed(BaseException):
    """The process ends between two steps."""


def test_a_killed_job_loses_at_most_the_rung_that_it_was_training(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = (("m0", 3), ("m1", 4), ("m0", 9), ("m1", END), ("m0", END))
    document = searching(FULL, replace(FULL, seed=4), order=order, is_complete=True)
    step = Trainer.training_step

    def killing(trainer: Trainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if trainer.args.seed == FULL.seed and trainer.state.global_step == 7:
            raise Killed
        loss: torch.Tensor = step(trainer, *args, **kwargs)
        return loss

    monkeypatch.setattr(Trainer, "training_step", killing)
    with pytest.raises(Killed):
        train_trials(document, folder, Stop())
    monkeypatch.setattr(Trainer, "training_step", step)
    before = len(all_events(folder))
    assert train_trials(document, folder, Stop())

    messages = [(event.member, event.message) for event in all_events(folder)[before:] if event.message]
    assert ("m0", "continuing from checkpoint-6") in messages  # the end of its first epoch, within the rung
    assert ("m1", "continuing from checkpoint-4") in messages
    reference = alone(folder, FULL, "alone")
    mine, others = weights(folder.of_member("m0")), weights(reference)
    assert all(torch.equal(mine[name], others[name]) for name in others)


def test_two_processes_pause_together(folder: JobFolder) -> None:
    two = replace(FULL, instance_count=2, per_device_train_batch_size=2)
    order = (("m0", 2), ("m1", 3), ("m0", 5), ("m2", END), ("m0", END), ("m1", END))
    document = searching(two, replace(two, seed=4), two, order=order, is_complete=True)
    write_json(folder.document, document.as_json())
    command = [sys.executable, "-m", "paretune.training", str(folder.root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    print(done.stdout[-3000:], done.stderr[-3000:])

    assert done.returncode == 0
    assert pauses(folder) == [("m0", 2), ("m1", 3), ("m0", 5)]
    assert losses(folder, "m0") == losses(folder, "m2") != losses(folder, "m1")
    mine, others = (weights(folder.of_member(member)) for member in ("m0", "m2"))
    assert all(torch.equal(mine[name], others[name]) for name in others)
