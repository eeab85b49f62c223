"""Trials that share a job, one after the other: each as if it had the process for itself, each with its own end."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer

from paretune.specification.container import (
    Event,
    EventReader,
    FailureKind,
    JobDocument,
    JobFolder,
    JobReport,
    MemberEnd,
)
from paretune.specification.job import JobSpec
from paretune.training.loop import train
from paretune.training.shared_job.job import train_trials
from tests.unit.training.conftest import SPEC

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@dataclass
class Stop:
    """What asks a job to stop, after it has been asked so many times itself: about once after each step."""

    left: float = math.inf

    @property
    def stop_requested(self) -> bool:
        self.left -= 1
        return self.left < 0


def document_of(*specs: JobSpec, name: str = "job") -> JobDocument:
    """A shared job with members m0, m1, ..."""
    documents = [
        JobDocument(job_name=f"{name}.m{number}", spec=spec, plan=spec.plan()) for number, spec in enumerate(specs)
    ]
    return replace(documents[0], job_name=name, members=tuple(documents))


def beside(folder: JobFolder, name: str) -> JobFolder:
    """A folder for another job with the same data and model."""
    other = JobFolder(folder.root.parent / name)
    other.make()
    for custom, its in ((other.dataset, folder.dataset), (other.model_source, folder.model_source)):
        custom.symlink_to(its.resolve())
    return other


def run(folder: JobFolder, *specs: JobSpec, stop: Stop | None = None, name: str = "job") -> bool:
    return train_trials(document_of(*specs, name=name), folder, stop or Stop())


def events_of(folder: JobFolder, member: str) -> list[Event]:
    return [event for event in EventReader(folder.events).new() if event.member == member]


def ends_of(folder: JobFolder) -> dict[str, MemberEnd]:
    """Member to how it ended, each told once."""
    finished = [event for event in EventReader(folder.events).new() if event.ended]
    ends = {event.member: end for event in finished if (end := MemberEnd.read(event.ended)) is not None}
    assert len(ends) == len(finished)
    return ends


def curves(folder: JobFolder, member: str = "") -> list[tuple[int, str, float]]:
    """(Step, name, value) of all that is measured, but what depends on time and on the machine."""
    events = [(event.step, name, value) for event in events_of(folder, member) for name, value in event.metrics.items()]
    return [item for item in events if not item[1].startswith("system/") and not item[1].endswith("per_second")]


def weights(folder: JobFolder) -> dict[str, torch.Tensor]:
    (path,) = folder.model.glob("*.safetensors")
    tensors: dict[str, torch.Tensor] = load_file(path)
    return tensors


def quality(folder: JobFolder) -> dict[str, Any]:
    report = JobReport.read(folder.report)
    names = ("f1", "eval_loss", "accuracy", "test_f1", "test_loss", "total_parameters", "trainable_parameters")
    return {name: report.metrics[name] for name in names} | {"confusion": report.confusion_matrix}


FULL = replace(SPEC, num_train_epochs=2.0)
LORA = replace(SPEC, fine_tuning="lora", lora_dropout=0.1, seed=7, learning_rate=2e-3)


@pytest.mark.parametrize(
    ("first", "second"),
    [(FULL, LORA), (LORA, replace(FULL, seed=3, per_device_train_batch_size=8))],
    ids=["lora after full", "full after lora"],
)
def test_a_trial_after_another_is_what_it_would_have_been_alone(
    folder: JobFolder, first: JobSpec, second: JobSpec
) -> None:
    alone = beside(folder, "alone")
    assert train(JobDocument(job_name="job", spec=second, plan=second.plan()), alone, Stop())

    assert run(folder, first, second)

    custom = folder.of_member("m1")
    assert curves(folder, "m1") == curves(alone)
    assert len([name for _, name, _ in curves(alone) if name == "train/loss"]) >= 3
    assert quality(custom) == quality(alone)
    mine, reference = weights(custom), weights(alone)
    assert mine.keys() == reference.keys()
    assert all(torch.equal(mine[name], reference[name]) for name in mine)
    assert not torch.equal(*(next(iter(weights(folder.of_member(key)).values())).flatten()[:8] for key in ("m0", "m1")))


def test_each_trial_begins_and_ends_and_the_job_has_a_report(folder: JobFolder) -> None:
    assert run(folder, SPEC, replace(SPEC, seed=1))

    ends = ends_of(folder)
    assert list(ends) == ["m0", "m1"]
    for number, (member, end) in enumerate(ends.items(), start=1):
        custom = folder.of_member(member)
        assert end.report == JobReport.read(custom.report)
        assert end.failure is None
        assert end.report is not None
        assert end.seconds > end.report.metrics["train_seconds"] > 0
        events = events_of(folder, member)
        assert events[0].message == f"trial {number} of 2 begins"
        assert events[-1].ended
        assert (custom.model / "tokenizer.json").is_file()
    whole = JobReport.read(folder.report)
    assert whole.facts == {"trials": 2, "trials_failed": 0, "trials_stopped": 0}
    assert whole.metrics["train_seconds"] >= sum(end.seconds for end in ends.values())


def test_a_trial_that_fails_ends_alone(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer.training_step

    def broken(trainer: Trainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if trainer.args.seed == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        loss: torch.Tensor = step(trainer, *args, **kwargs)
        return loss * (math.nan if trainer.args.seed == 1 else 1.0)

    monkeypatch.setattr(Trainer, "training_step", broken)
    seeds = [replace(SPEC, num_train_epochs=2.0, seed=seed) for seed in (1, 2, 3)]
    assert run(folder, *seeds)

    ends = ends_of(folder)
    kinds = {member: end.failure and end.failure[0] for member, end in ends.items()}
    assert kinds == {"m0": FailureKind.DIVERGED, "m1": FailureKind.OUT_OF_MEMORY, "m2": None}
    assert ends["m0"].report is ends["m1"].report is None
    assert not folder.of_member("m0").report.exists()
    assert folder.of_member("m2").report.exists()
    assert JobReport.read(folder.report).facts["trials_failed"] == 2
    assert not folder.failure.exists()


def test_a_trial_that_is_to_stop_leaves_a_checkpoint_and_the_others_go_on(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.training_step

    def asking(trainer: Trainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if trainer.args.seed == 1 and trainer.state.global_step == 2:
            for member in ("m0", "m1"):
                folder.of_member(member).stop_request.parent.mkdir(parents=True)
                folder.of_member(member).stop_request.touch()
        loss: torch.Tensor = step(trainer, *args, **kwargs)
        return loss

    monkeypatch.setattr(Trainer, "training_step", asking)
    monkeypatch.setattr("paretune.training.shared_job.trials.FILE_INTERVAL_S", 0.0)
    assert run(folder, *(replace(SPEC, seed=seed) for seed in (1, 2, 3)))

    ends = ends_of(folder)
    assert [end.report is not None for end in ends.values()] == [False, False, True]
    assert [end.failure for end in ends.values()] == [None] * 3
    assert ends["m0"].seconds > 0 == ends["m1"].seconds
    assert (folder.of_member("m0").checkpoints / "checkpoint-3" / "complete.json").exists()
    assert not any("begins" in event.message for event in events_of(folder, "m1"))
    assert folder.of_member("m0").stopped.exists()
    assert not folder.stopped.exists()


def test_a_trial_ends_when_its_own_time_is_over(folder: JobFolder) -> None:
    short = replace(SPEC, max_runtime_minutes=1)
    document = document_of(short, SPEC)
    spent = replace(document.members[0], spent_seconds=59.99)
    document = replace(document, members=(spent, document.members[1]))
    assert train_trials(document, folder, Stop())

    ends = ends_of(folder)
    assert ends["m0"].failure is not None
    assert ends["m0"].failure[0] is FailureKind.ERROR
    assert ends["m0"].failure[1].startswith("MaxRuntimeExceeded: it ran longer than 0.0001")
    assert ends["m1"].report is not None


def test_a_job_that_is_stopped_goes_on_with_the_trials_that_have_not_ended(folder: JobFolder) -> None:
    specs = [replace(SPEC, seed=seed, num_train_epochs=2.0) for seed in (1, 2, 3)]
    whole = beside(folder, "whole")
    assert run(whole, *specs)

    assert not run(folder, *specs, stop=Stop(left=12 + 2 + 9))  # before trials, after each step
    first = ends_of(folder)
    assert list(first) == ["m0"]
    assert not folder.report.exists()

    folder.events.rename(folder.events.with_name("before.jsonl"))
    folder.of_member("m0").report.unlink()
    assert run(folder, *specs)

    ends = ends_of(folder)
    assert ends["m0"] == first["m0"]
    assert folder.of_member("m0").report.exists()
    assert not curves(folder, "m0")
    assert [event.message for event in events_of(folder, "m1")][1].startswith("continuing from checkpoint-")
    assert curves(folder, "m1")[0][0] > 6
    for member in ("m1", "m2"):
        mine, reference = weights(folder.of_member(member)), weights(whole.of_member(member))
        assert all(torch.allclose(mine[name], reference[name], atol=1e-6) for name in reference)
    assert quality(folder.of_member("m2")) == quality(whole.of_member("m2"))


def test_another_job_with_the_same_checkpoints_trains_its_trials_anew(folder: JobFolder) -> None:
    assert run(folder, SPEC, replace(SPEC, seed=1))
    folder.events.unlink()
    assert run(folder, SPEC, replace(SPEC, seed=1), name="another")

    assert curves(folder, "m0")
    assert list(ends_of(folder)) == ["m0", "m1"]
