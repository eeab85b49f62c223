"""Curves, throughput, stops and checkpoints of a training run in progress."""

import math
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread, local
from types import SimpleNamespace

import pytest
import torch

from paretune.specification.container import Event, JobFolder
from paretune.training import checkpoints, loop, meter
from paretune.training.meter import Meter
from paretune.training.optimizer import Update
from tests.support.trainings import SPEC, report_of


class HandTurned:
    """A clock that a test sets; it replaces the module `time`."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def perf_counter(self) -> float:
        return self.seconds

    def time(self) -> float:
        return 1_700_000_000.0 + self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandTurned:
    turned = HandTurned()
    for module in (meter, loop):
        monkeypatch.setattr(module, "time", turned)
    return turned


UPDATE = Update(norm=torch.tensor(1.0), is_skipped=torch.tensor(0.0), is_lost=torch.tensor(0.0))


class Training:
    """A training run without a model, with 8 rows of 10 tokens per step."""

    def __init__(self, clock: HandTurned, steps: int) -> None:
        self.meter = Meter(0, steps, torch.device("cpu"))
        self.done, self._clock = 0, clock

    def step(self, seconds: float, loss: float = 0.7, *, stops: bool = False) -> bool | None:
        """Return whether all agreed to stop, or None if they did not ask each other."""
        self._clock.seconds += seconds
        self.done += 1
        self.meter.count(self.done, [torch.tensor(loss / 2)] * 2, UPDATE, 8, 80)
        if self.done < self.meter.next_exchange:
            return None
        return self.meter.exchange(self.done, torch.tensor(1.0), stops=stops, saves=False)[0]


def test_throughput_excludes_the_warm_up_and_evaluations(clock: HandTurned) -> None:
    training = Training(clock, steps=40)  # warm-up: a tenth, 4 steps
    for seconds in [5.0] * 4 + [0.5] * 18:
        training.step(seconds)
    with training.meter.stopwatch.paused():
        clock.seconds += 600.0
    for _ in range(18):
        training.step(0.5)

    # 36 steps of 8 rows in 18 seconds.
    assert training.meter.throughput() == pytest.approx((16.0, 160.0))
    assert training.meter.stopwatch.seconds() == pytest.approx(4 * 5 + 18)


def test_curves_have_the_mean_loss_and_the_speed_since_the_last_point(clock: HandTurned) -> None:
    training = Training(clock, steps=40)
    training.step(2.0)
    first = training.meter.curves()
    for loss in (0.6, 0.4):
        training.step(5.0, loss)
    second = training.meter.curves()

    assert first["train/samples_per_second"] == pytest.approx(8 / 2)
    assert second["train/samples_per_second"] == pytest.approx(16 / 10)
    assert second["train/loss"] == pytest.approx(0.5)


def test_the_load_is_measured_at_most_every_ten_seconds(clock: HandTurned) -> None:
    """On a GPU this takes as long as a step, and a short training run writes a point after each of its steps."""
    training, measured = Training(clock, steps=40), []
    for _ in range(8):
        training.step(4.0)
        measured.append("system/system_memory_usage_percentage" in training.meter.curves())

    assert measured == [True, False, False, True, False, False, True, False]


def test_the_idle_share_of_the_gpus_is_that_of_the_measurements_after_the_warm_up(
    clock: HandTurned, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(total_memory=1e9)
    used = iter([90, 90] + [50, 70] * 40)  # percent; two measurements before the end of the warm-up, of two GPUs each
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: card)
    monkeypatch.setattr(torch.cuda, "device_memory_used", lambda number: 5e8)
    monkeypatch.setattr(torch.cuda, "utilization", lambda number: next(used))
    training = Training(clock, steps=40)  # warm-up: a tenth, 4 steps

    shares = []
    for _ in range(12):
        training.step(12.0)
        training.meter.curves()
        shares.append(training.meter.gpu_idle_share())

    assert shares[:7] == [None] * 7
    assert shares[-1] == pytest.approx(0.4)


def test_only_the_first_process_measures_the_load_because_only_it_records_the_curves(
    clock: HandTurned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    training = Training(clock, steps=40)
    training.step(4.0)

    assert set(training.meter.curves()) == {"train/loss", "train/samples_per_second"}


@pytest.mark.slow
def test_checkpoints_for_spot_instances_are_written_by_the_clock_and_seldom_if_they_take_long(
    clock: HandTurned, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, step = [], loop.Loop._step

    def slow_step(self: loop.Loop, number: int) -> Update:
        clock.seconds += 10.0
        return step(self, number)

    def slow_write(path: Path, *_: object, keep: int | None) -> None:
        clock.seconds += 20.0  # so the next one comes after 400 s
        written.append(path.name)
        path.mkdir(parents=True)

    monkeypatch.setattr(loop.Loop, "_step", slow_step)
    monkeypatch.setattr(checkpoints, "write", slow_write)
    arguments = {"save_strategy": "no", "max_steps": 100}
    report_of(SPEC.replace(spot=True, instance_type="ml.m5.large", training_arguments=arguments), folder)

    assert written == ["checkpoint-12", "checkpoint-52", "checkpoint-92"]


def test_processes_whose_collectives_return_before_they_are_done_stop_after_the_same_step(
    clock: HandTurned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with NCCL, gradients are averaged in a queue, so that the second process is far ahead of the first."""
    store, own = torch.distributed.HashStore(), local()  # type: ignore[attr-defined]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: own.group.allreduce([tensor]).wait())
    stopped: dict[int, list[int | None]] = {0: [], 1: []}

    def steps(training: Training, stop_after: float) -> Iterator[int]:
        while training.done < 60:
            if training.step(0.1, stops=training.done + 1 >= stop_after):
                return
            yield training.done

    def train(rank: int) -> None:
        own.group = torch.distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=20))
        for turn in range(20):
            training, queued = Training(clock, steps=60), []
            for _ in steps(training, 25 + turn if rank == 0 else math.inf):
                queued.append(own.group.allreduce([torch.ones(1)]))
                if rank == 0:
                    time.sleep(0.0005)
            stopped[rank].append(training.done)
            for work in queued:
                work.wait()

    threads = [Thread(target=train, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert stopped[0] == stopped[1] == [-(-(24 + turn) // 10) * 10 + 1 for turn in range(20)]


def test_numbers_that_are_not_finite_are_left_out_of_events(tmp_path: Path) -> None:
    meter.EventWriter(tmp_path / "events.jsonl").write(3, {"train/loss": 0.5, "train/grad_norm": math.nan})

    assert Event.model_validate_json((tmp_path / "events.jsonl").read_text()).metrics == {"train/loss": 0.5}
