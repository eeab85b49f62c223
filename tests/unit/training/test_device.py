"""What is known about a device on any machine."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paretune.core.machine import usable_cores
from paretune.specification.catalog import instance
from paretune.training import device


def test_auto_on_a_gpu_without_bf16_is_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "has_bf16", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))

    assert device.choose_precision("auto") == "fp16"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 0))
    assert device.choose_precision("auto") == "fp32"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, which fp16 needs")
def test_fp16_and_too_many_processes_are_refused_together_on_a_processor() -> None:
    places = usable_cores()

    faults = device.device_faults("fp16", [], places + 1)

    assert faults == [
        "precision fp16 needs a GPU: use auto, bf16 or fp32",
        f"instance_count must be at most {places} on this machine (one CPU core per process), got {places + 1}",
    ]


@pytest.mark.parametrize("precision", ["bf16", "bf16-true"])
def test_bf16_is_refused_on_a_device_that_would_emulate_it(monkeypatch: pytest.MonkeyPatch, precision: Any) -> None:
    monkeypatch.setattr(device, "has_bf16", lambda: False)

    (fault,) = device.device_faults(precision, [], 1)

    assert fault.startswith(f"precision {precision} needs a device that supports it, and ")


def test_a_gpu_instance_without_a_visible_gpu_is_refused_with_the_versions_that_decide_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")

    (fault,) = device.machine_faults(instance("ml.g5.12xlarge"))

    assert f"ml.g5.12xlarge has 4 x NVIDIA A10G, but PyTorch {torch.__version__}, built for CUDA 12.8, sees" in fault
    monkeypatch.setenv("PARETUNE_ALLOW_NO_GPU", "0")
    assert device.machine_faults(instance("ml.g5.12xlarge")) == [fault]
    assert device.machine_faults(instance("ml.m5.large")) == []
    assert device.machine_faults(None) == []


@pytest.mark.parametrize("has_nvml", [True, False])
def test_measuring_the_load_takes_no_memory_of_gpus_that_this_process_does_not_use(
    monkeypatch: pytest.MonkeyPatch, has_nvml: bool
) -> None:
    def refuse(_: int) -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    with_context = {0}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: with_context.add(number) or (5e9, 20e9))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=20e9))
    monkeypatch.setattr(torch.cuda, "device_memory_used", (lambda _: 15_000_000_000) if has_nvml else refuse)
    monkeypatch.setattr(torch.cuda, "utilization", (lambda _: 80) if has_nvml else refuse)

    load = {name: value for name, value in device.load().items() if "gpu" in name}

    assert with_context == {0}
    assert load["system/gpu_0_memory_usage_megabytes"] == 15_000
    assert load["system/gpu_0_memory_usage_percentage"] == 75
    assert load.get("system/gpu_1_memory_usage_percentage") == (75 if has_nvml else None)
    assert load.get("system/gpu_1_utilization_percentage") == (80 if has_nvml else None)


@pytest.mark.parametrize(
    ("instance_type", "precision", "fault"),
    [
        ("ml.g4dn.xlarge", "bf16", "ml.g4dn.xlarge has NVIDIA T4"),
        ("ml.m5.large", "fp16", "precision fp16 needs a GPU, but ml.m5.large has none"),
        ("ml.g5.xlarge", "bf16", None),
    ],
)
def test_a_sagemaker_job_is_checked_against_its_instances_and_not_this_machine(
    instance_type: str, precision: Any, fault: str | None
) -> None:
    result = device.device_faults(precision, [instance(instance_type)], 64)

    assert len(result) == (0 if fault is None else 1)
    assert fault is None or fault in result[0]
