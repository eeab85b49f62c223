"""Events, throughput and stop requests of a running training."""

import math
import time
from datetime import timedelta
from pathlib import Path
from threading import Thread, local
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import TrainerControl, TrainerState

from paretune.specification.container import Event
from paretune.specification.parallelism import BatchPlan
from paretune.training import callback
from paretune.training.callback import EventWriter, MetricsCallback
from paretune.training.rows.tokenised import GlobalBatchSampler


class HandTurned:
    """A clock that a test turns by hand; stands in for the module `time`."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def perf_counter(self) -> float:
        return self.seconds

    def time(self) -> float:
        return 1_700_000_000.0 + self.seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandTurned:
    turned = HandTurned()
    monkeypatch.setattr(callback, "time", turned)
    return turned


PLAN = BatchPlan(per_device_train_batch_size=8, gradient_accumulation_steps=1, devices=1, learning_rate=1e-4)


def read(path: Path) -> list[Event]:
    return [Event.model_validate_json(line) for line in path.read_text().splitlines()]


class Training:
    """A training without a model: 8 rows of 10 tokens a step, a second each, the first ones slower."""

    def __init__(
        self, clock: HandTurned, events: Path, steps: int, stop_after: float = math.inf, **options: bool
    ) -> None:
        lengths = np.full(8 * steps, 10)
        sampler = GlobalBatchSampler(lengths, PLAN, rank=0, seed=1)
        self.done = 0
        self.callback = MetricsCallback(
            EventWriter(events), sampler, lengths, lambda: self.done >= stop_after, **options
        )
        self.control = TrainerControl()
        self._clock = clock
        self._arguments = SimpleNamespace(
            gradient_accumulation_steps=1, device=torch.device("cpu"), output_dir=str(events.parent)
        )
        self._state = TrainerState(max_steps=steps, epoch=0)

    def _call(self, event: str, **values: object) -> None:
        getattr(self.callback, f"on_{event}")(self._arguments, self._state, self.control, **values)

    def begin(self) -> None:
        self._call("train_begin")
        self._call("epoch_begin")

    def step(self, seconds: float) -> None:
        self._clock.pass_(seconds)
        self.done += 1
        self._state.global_step = self.done
        self._call("step_end")

    def log(self, **values: float) -> None:
        self._call("log", logs=values)

    def evaluate(self, seconds: float, **values: float) -> None:
        with self.callback.stopwatch.paused():
            self._clock.pass_(seconds)
        self._call("evaluate", metrics=values)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_throughput_excludes_the_warm_up_and_evaluations(clock: HandTurned, events: Path) -> None:
    training = Training(clock, events, steps=40)  # warm-up: a tenth, 4 steps
    training.begin()
    for _ in range(4):
        training.step(5.0)
    for _ in range(18):
        training.step(0.5)
    training.evaluate(600.0, eval_loss=0.3)
    for _ in range(18):
        training.step(0.5)

    # 36 steps of 8 rows in 18 seconds.
    assert training.callback.throughput() == pytest.approx((16.0, 160.0))
    assert training.callback.stopwatch.seconds() == pytest.approx(4 * 5 + 18)


def test_curves_have_loss_rate_and_the_speed_since_the_last_point(clock: HandTurned, events: Path) -> None:
    training = Training(clock, events, steps=40)
    training.begin()
    training.step(2.0)
    training.log(loss=0.7, learning_rate=1e-4, grad_norm=1.5, epoch=0.1)
    training.step(1.0)
    training.step(1.0)
    training.log(loss=0.6, learning_rate=9e-5, grad_norm=float("nan"), epoch=0.2)

    first, second = read(events)
    assert (first.step, first.total_steps) == (1, 40)
    assert first.metrics["train/samples_per_second"] == pytest.approx(8 / 2)
    assert first.metrics["train/grad_norm"] == 1.5
    assert second.metrics["train/samples_per_second"] == pytest.approx(16 / 2)
    assert (second.metrics["train/loss"], second.metrics["train/learning_rate"]) == (0.6, 9e-5)
    assert "train/grad_norm" not in second.metrics
    assert second.metrics["system/system_memory_usage_percentage"] > 0


def test_a_training_that_is_asked_to_stop_saves_and_stops_after_the_step(clock: HandTurned, events: Path) -> None:
    training = Training(clock, events, steps=40, stop_after=3)
    training.begin()
    training.step(1.0)
    training.step(1.0)
    assert not training.control.should_training_stop
    training.step(1.0)

    assert training.control.should_training_stop
    assert training.control.should_save
    assert training.callback.stopped_at == 3


def test_checkpoints_for_spot_instances_are_written_by_the_clock_and_seldom_if_they_take_long(
    clock: HandTurned, events: Path
) -> None:
    training = Training(clock, events, steps=100, on_spot=True)
    saved = []
    training.begin()
    for _ in range(100):
        training.step(10.0)
        if training.control.should_save:
            saved.append(training.done)
            training.control.should_save = False
            clock.pass_(20.0)  # so the next one comes after 400 s
            (events.parent / f"checkpoint-{training.done}").mkdir()
            training._call("save")

    assert saved == [12, 52, 92]


def test_processes_whose_collectives_return_before_they_are_done_stop_after_the_same_step(
    clock: HandTurned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with NCCL: gradients are averaged in a queue, so that the second process is far ahead of the first."""
    store, own = torch.distributed.HashStore(), local()  # type: ignore[attr-defined]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.distributed,
        "all_reduce",
        lambda tensor, op: own.group.allreduce([tensor], torch.distributed.AllreduceOptions()).wait(),
    )
    stopped: dict[int, list[int | None]] = {0: [], 1: []}

    def train(rank: int) -> None:
        own.group = torch.distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=20))
        for turn in range(20):
            stop_after = 25 + turn if rank == 0 else math.inf
            training = Training(clock, tmp_path / f"{rank}-{turn}", steps=60, stop_after=stop_after)
            training.begin()
            queued = []
            while not training.control.should_training_stop and training.done < 60:
                queued.append(own.group.allreduce([torch.ones(1)]))
                if rank == 0:
                    time.sleep(0.0005)
                training.step(0.1)
            stopped[rank].append(training.callback.stopped_at)
            for work in queued:
                work.wait()

    threads = [Thread(target=train, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert stopped[0] == stopped[1] == [-(-(24 + turn) // 10) * 10 + 1 for turn in range(20)]
