"""The best that devices can do."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.estimating import hardware
from paretune.estimating.hardware import local_gpu, resolved_precision
from paretune.specification import catalog
from paretune.specification.job import JobSpec

# NVIDIA, "CUDA GPU compute capability" (read 2026-11-30), without those of laptops and embedded devices
COMPUTE_CAPABILITIES = {(3, 7), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)}


def test_every_gpu_of_the_catalog_has_a_data_sheet() -> None:
    for instance in catalog.instances().values():
        if not instance.has_gpu:
            continue
        accelerator = hardware.accelerator_of(instance)
        assert accelerator is not None, instance
        assert accelerator.is_listed, instance
        assert 0.75 <= accelerator.usable_gib / instance.accelerator_memory_gib <= 1.01
        assert 1e12 < accelerator.fp32_flops < accelerator.half_flops < 1e16  # catches a mistake by a factor of 1000
        assert 1e11 < accelerator.memory_bytes_per_s < 1e14
        assert accelerator.link_bytes_per_s < accelerator.memory_bytes_per_s
        assert accelerator.compute_capability in COMPUTE_CAPABILITIES


def test_a_card_with_more_memory_than_its_data_sheet_has_it() -> None:
    h100 = replace(catalog.instances()["ml.p5.48xlarge"], accelerator_memory_gib=96)
    a10g = hardware.accelerator_of(catalog.instances()["ml.g5.xlarge"])
    larger = hardware.accelerator_of(h100)

    assert larger is not None
    assert a10g is not None
    assert larger.usable_gib == 96
    assert a10g.usable_gib == 22888 / 1024  # error correction takes a sixteenth


Gpu = Callable[[str], hardware.Accelerator | None]


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """Return a function that reads the GPU of a machine whose NVIDIA driver gives this answer."""

    def make(answer: str) -> hardware.Accelerator | None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{answer}'\necho 'Tesla K80, 11441'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        local_gpu.cache_clear()
        return local_gpu()

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    local_gpu.cache_clear()
    yield make
    local_gpu.cache_clear()


@pytest.mark.parametrize(
    ("answer", "half_flops", "memory_bytes_per_s", "usable_gib"),
    [
        ("A10G, 23028", 70e12, 600e9, 22888 / 1024),
        ("NVIDIA A100-SXM4-40GB, 40960", 312e12, 1555e9, 40),
        ("NVIDIA A100-SXM4-80GB, 81920", 312e12, 2039e9, 80),
        ("NVIDIA L40S, 46068", 362e12, 864e9, 45776 / 1024),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887", 500e12, 1597e9, 96),
    ],
)
def test_a_gpu_of_this_machine_is_known_by_the_name_that_its_driver_gives(
    gpu: Gpu, answer: str, half_flops: float, memory_bytes_per_s: float, usable_gib: float
) -> None:
    result = gpu(answer)

    assert result is not None
    actual = (result.half_flops, result.memory_bytes_per_s, result.usable_gib)
    assert actual == (half_flops, memory_bytes_per_s, usable_gib)


def test_a_gpu_that_is_hidden_or_absent_is_none(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_gpu() is None  # no driver
    for visible, is_there in (("", False), ("-1", False), ("0", True)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert (gpu("Tesla T4, 15360") is not None) is is_there


def test_the_first_visible_gpu_counts_on_a_machine_with_different_ones(
    tmp_path: Path, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu("Tesla T4, 15360")
    script = '#!/bin/sh\ncase "$*" in *--id=1*) echo "NVIDIA A10G, 23028";; *) echo "Tesla T4, 15360";; esac\n'
    (tmp_path / "nvidia-smi").write_text(script)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    local_gpu.cache_clear()

    found = local_gpu()

    assert found is not None
    assert found.name == "NVIDIA A10G"


def test_a_gpu_that_is_not_listed_is_a_gpu_with_the_memory_that_its_driver_reports(gpu: Gpu) -> None:
    found, silent = gpu("NVIDIA GeForce RTX 4090, 24564"), gpu("NVIDIA GB10, [N/A]")

    assert found is not None
    assert silent is not None
    assert (found.name, found.is_listed, round(found.usable_gib)) == ("NVIDIA GeForce RTX 4090", False, 24)
    assert math.isnan(silent.usable_gib)


def test_auto_is_the_fastest_format_of_a_gpu_and_stays_open_on_a_processor() -> None:
    a10g = hardware.accelerator_of(catalog.instance("ml.g5.xlarge"))
    t4 = hardware.accelerator_of(catalog.instance("ml.g4dn.xlarge"))
    v100 = hardware.accelerator_of(catalog.instance("ml.p3.2xlarge"))

    assert resolved_precision("auto", a10g) == "bf16"
    assert resolved_precision("auto", t4) == resolved_precision("auto", v100) == "fp16"
    assert resolved_precision("auto", hardware.named("Tesla K80")) == "fp32"
    assert resolved_precision("auto", None) == "auto"
    assert resolved_precision("fp16", a10g) == "fp16"


@pytest.mark.parametrize(
    ("changes", "instances", "devices"),
    [
        ({"instance_count": 4}, 1, 4),  # on this machine, each instance is a process
        ({"instance_type": "ml.p4d.24xlarge", "instance_count": 2}, 2, 8),
        ({"instance_type": "ml.g5.xlarge", "instance_count": 3}, 3, 1),
    ],
)
def test_a_cluster_has_its_instances_and_a_machine_its_processes(
    changes: dict[str, Any], instances: int, devices: int
) -> None:
    share = hardware.DeviceShare(JobSpec(**changes))

    assert (share.instances, share.devices) == (instances, devices)
