"""A profiled training run, from its document to the files it leaves."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from paretune.specification.container import JobFolder
from paretune.training import profile
from paretune.training.meter import EventWriter, Stopwatch
from paretune.training.profile import shares_of
from tests.support import trainings

pytestmark = pytest.mark.slow  # they train

SPEC = trainings.SPEC.replace(num_train_epochs=2.0, training_arguments={"logging_steps": 1, "eval_steps": 3})


def test_a_profiled_training_leaves_its_trace_its_figures_and_a_page(folder: JobFolder) -> None:
    trainings.report_of(SPEC.replace(profile_steps=3), folder)
    document = json.loads((folder.profile / "profile.json").read_text())
    with gzip.open(folder.profile / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]

    assert {path.name for path in folder.profile.iterdir()} == {"trace.json.gz", "profile.json", "profile.md"}
    assert (document["steps"], document["first_step"]) == (3, 2)  # the first step warms up
    shares = document["shares_percent"]
    assert sum(shares.values()) == pytest.approx(100, abs=0.3)
    assert min(shares["compute"], shares["optimizer"], shares["idle"]) > 0
    assert shares["communication"] == 0
    assert document["step_ms"] > 0
    names = [event["name"] for event in events if event.get("ph") == "X"]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert sum(name.startswith("Optimizer.step#") for name in names) == 3
    assert any(name == "paretune: batch" for name in names)
    assert re.fullmatch(r".*compute [\d.]+ %.* of [\d.,]+ ms per step.*", document["summary"])
    page = (folder.profile / "profile.md").read_text()
    assert document["summary"] in page
    assert "aten::addmm" in page


def test_writing_the_profile_does_not_count_as_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch, counted = Stopwatch(), list[bool]()
    monkeypatch.setattr(profile, "write_json", lambda *_: counted.append(stopwatch.is_running))
    profiled = profile.Profile(2, 1, tmp_path / "profile", stopwatch, EventWriter(None))

    stopwatch.start()
    profiled.after(1, total=5)
    with torch.profiler.record_function("ProfilerStep#0"):
        torch.ones(8).sum()
    profiled.after(2, total=5)

    assert counted == [False]
    assert stopwatch.is_running, "the steps after the profile count"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_parts_of_a_step_are_distinguished(on_gpu: bool) -> None:
    def row(key: str, self_us: float, total_us: float, kernels_us: float = 0.0, *, kernel: bool = False) -> Any:
        return SimpleNamespace(
            key=key,
            device_type=DeviceType.CUDA if kernel else DeviceType.CPU,
            self_cpu_time_total=self_us,
            cpu_time_total=total_us,
            self_device_time_total=kernels_us if kernel else 0.0,
            device_time_total=kernels_us,
        )

    rows = [
        row("ProfilerStep*", 100, 1100),
        row("paretune: evaluation or checkpoint", 0, 100, 50),
        row("paretune: batch", 50, 50),
        row("Optimizer.step#AdamW.step", 10, 200, 300),
        row("aten::mm", 600, 600, 450),
        row("c10d::allreduce_", 40, 40),
    ]
    if on_gpu:
        rows += [row("gemm", 0, 0, 500, kernel=True), row("multi_tensor_apply", 0, 0, 300, kernel=True)]
        rows += [row("ncclDevKernel_AllReduce", 0, 0, 100, kernel=True)]
    parts = {"compute": 61.0, "optimizer": 20.0, "communication": 4.0, "data": 5.0, "idle": 10.0}
    on_the_gpu = {"compute": 45.0, "optimizer": 30.0, "communication": 10.0, "data": 5.0, "idle": 10.0}

    assert shares_of(rows) == (1000.0, on_the_gpu if on_gpu else parts)
