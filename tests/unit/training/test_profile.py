"""A profiled training, from its document to the files it leaves."""

import gzip
import json
import os
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import torch
from transformers import Trainer

from paretune.specification.container import EventReader, JobDocument, JobFolder
from paretune.training import loop
from paretune.training.callback import Progress
from paretune.training.loop import _open, _trainer, train
from paretune.training.profiling import callback as profiling_callback
from paretune.training.profiling.trace import PARTS
from paretune.training.rows.tokenised import TokenRows
from paretune.training.stop_signal import StopSignal
from paretune.training.strategies import strategy_of
from tests.unit.training import conftest, test_loop

pytestmark = pytest.mark.slow  # they train

SPEC = replace(conftest.SPEC, num_train_epochs=2.0, training_arguments={"logging_steps": 1, "eval_steps": 3})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers, from 0, of the steps whose rows count for throughput."""
    steps: list[int] = []
    count = Progress.count_step

    def step(progress: Progress, done: int) -> None:
        steps.append(done)
        count(progress, done)

    monkeypatch.setattr(Progress, "count_step", step)
    return steps


def test_a_profiled_training_leaves_its_trace_its_figures_and_a_page(folder: JobFolder) -> None:
    test_loop.report_of(replace(SPEC, profile_steps=3), folder)
    document = json.loads((folder.profile / "profile.json").read_text())
    with gzip.open(folder.profile / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]

    assert {path.name for path in folder.profile.iterdir()} == {"trace.json.gz", "profile.json", "profile.md"}
    assert (document["steps"], document["first_step"], document["memory"]["step"]) == (3, 3, 2)  # the first warms up
    shares = document["shares_percent"]
    assert list(shares) == list(PARTS)
    assert sum(Decimal(str(share)) for share in shares.values()) == 100
    assert min(shares["compute"], shares["optimiser"], shares["idle"]) > 0
    assert shares["communication"] == 0
    names = [event["name"] for event in events if event.get("ph") == "X"]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert sum(name.startswith("Optimizer.step#") for name in names) == 3
    assert any(name.startswith("enumerate(DataLoader)#") for name in names)
    assert "aten::addmm" in names
    assert re.fullmatch(r".*compute [\d.]+ %.* of [\d.,]+ ms per step.*", document["summary"])
    assert len(document["operators"]) == 10


def test_the_memory_of_a_profile_is_that_of_the_model_its_gradients_and_its_optimiser(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    learn = Trainer.train

    def learning(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        sizes.append(sum(item.numel() * item.element_size() for item in trainer.model.parameters()))
        return learn(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train", learning)
    arguments = {**SPEC.training_arguments, "max_steps": 40}  # four steps warm up, of which the last is looked at
    test_loop.report_of(replace(SPEC, profile_steps=1, training_arguments=arguments), folder)
    memory = json.loads((folder.profile / "profile.json").read_text())["memory"]
    held = {name: gib * 2**30 for name, gib in memory["holders_gib"].items()}

    assert memory["step"] == 4
    assert held["parameters"] == pytest.approx(sizes[0], rel=0.01)
    assert held["optimiser state"] == pytest.approx(2 * sizes[0], rel=0.02)  # two moments of AdamW, and step counts
    assert 0 <= held["gradients"] <= sizes[0] * 1.01
    assert held["activations"] > 0
    assert sum(held.values()) == pytest.approx(memory["peak_gib"] * 2**30)


def test_profiled_steps_count_neither_for_throughput_nor_for_the_time_of_the_training(
    folder: JobFolder, counted: list[int]
) -> None:
    report = test_loop.report_of(replace(SPEC, profile_steps=3), folder)

    assert counted == [0, 5, 6, 7, 8, 9, 10, 11]  # not the second, of which the memory is followed, nor three
    assert report.metrics["throughput_samples_per_second"] > 0
    assert report.facts["steps"] == 12


def test_a_profile_of_all_steps_after_the_warm_up_leaves_no_throughput(folder: JobFolder, counted: list[int]) -> None:
    report = test_loop.report_of(replace(SPEC, profile_steps=11), folder)

    assert counted == []
    assert "throughput_samples_per_second" not in report.metrics
    document = json.loads((folder.profile / "profile.json").read_text())
    assert (document["steps"], document["memory"]["step"]) == (11, 1)


def test_a_training_without_a_profile_has_nothing_of_it(
    folder: JobFolder, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks: list[str] = []
    learn = Trainer.train

    def learning(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        callbacks.extend(type(callback).__name__ for callback in trainer.callback_handler.callbacks)
        return learn(trainer, *args, **kwargs)

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a profiler was made")

    monkeypatch.setattr(Trainer, "train", learning)
    for owner, name in (
        (torch.profiler, "profile"),
        (profiling_callback, "profile"),
        (loop, "ProfileCallback"),
    ):
        monkeypatch.setattr(owner, name, never)
    test_loop.report_of(SPEC, folder)

    assert "MetricsCallback" in callbacks
    assert not [name for name in callbacks if "Profile" in name]
    assert counted == list(range(12))
    assert not folder.profile.exists()


def test_a_training_that_is_stopped_writes_its_checkpoint_and_no_profile(folder: JobFolder) -> None:
    spec = replace(SPEC, profile_steps=9)
    stop = StopSignal()
    first = profiling_callback.ProfileCallback.on_step_end

    def stopping(callback: Any, args: Any, state: Any, control: Any, **kw: Any) -> None:
        if state.global_step == 3:
            stop.stop_requested = True
        first(callback, args, state, control, **kw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling_callback.ProfileCallback, "on_step_end", stopping)
        assert not train(JobDocument(job_name="job", spec=spec, plan=spec.plan()), folder, stop)

    assert not folder.profile.exists()
    assert not torch.autograd.profiler._is_profiler_enabled


def test_batches_that_other_processes_make_are_the_same_batches(folder: JobFolder) -> None:
    made: dict[int, list[torch.Tensor]] = {}
    pids: dict[int, set[int]] = {}
    batch_of = TokenRows.__getitems__

    def telling(rows: TokenRows, index: Any) -> dict[str, torch.Tensor]:
        return {**batch_of(rows, index), "pid": torch.tensor([os.getpid()])}

    for workers in (0, 2):
        arguments = {"dataloader_num_workers": workers, **({"dataloader_prefetch_factor": 3} if workers else {})}
        spec = replace(conftest.SPEC, training_arguments=arguments)
        document = JobDocument(job_name="job", spec=spec, plan=spec.plan())
        inputs, model = _open(spec, folder, strategy_of(spec))
        trainer = _trainer(document, inputs, model, folder.checkpoints, StopSignal())
        loader = trainer.get_train_dataloader()
        assert (loader.num_workers, loader.prefetch_factor) == (workers, 3 if workers else None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TokenRows, "__getitems__", telling)
            batches = list(loader)
        made[workers] = [batch["input_ids"] for batch in batches]
        pids[workers] = {int(batch["pid"]) for batch in batches}

    assert len(made[0]) == 6
    assert all(map(torch.equal, made[0], made[2]))
    assert pids[0] == {os.getpid()}
    assert len(pids[2]) == 2
    assert os.getpid() not in pids[2]


@pytest.mark.parametrize("full_from", [1, 2])
def test_a_disk_that_is_full_of_traces_costs_the_profile_and_not_the_training(
    full_from: int, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    export, written = torch.profiler.profile.export_chrome_trace, list[str]()

    def exporting(profiler: Any, path: str) -> None:
        written.append(path)
        if len(written) == full_from:
            raise OSError(28, "No space left on device")
        export(profiler, path)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", exporting)
    report = test_loop.report_of(replace(SPEC, profile_steps=3), folder)
    text = [event.message for event in EventReader(folder.events).new()]

    assert report.facts["steps"] == 12
    assert report.metrics["throughput_samples_per_second"] > 0
    assert len(written) == 2
    if full_from == 1:
        assert json.loads((folder.profile / "profile.json").read_text())["memory"] is None
        assert "the memory of step 2 could not be measured: [Errno 28] No space left on device" in text
    else:
        assert not folder.profile.exists()
        assert "there is no profile: [Errno 28] No space left on device" in text
