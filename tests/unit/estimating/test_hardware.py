"""What devices can do at best."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.estimating import hardware
from paretune.estimating.hardware import local_gpu, resolved_precision
from paretune.specification import catalog


def test_every_gpu_of_the_catalogue_has_a_data_sheet() -> None:
    for instance in catalog.instances().values():
        if not instance.has_gpu:
            continue
        accelerator = hardware.accelerator_of(instance)
        assert accelerator is not None, instance
        assert 0.75 <= accelerator.usable_gib / instance.accelerator_memory_gib <= 1.01
        assert 1e12 < accelerator.fp32_flops < accelerator.half_flops < 1e16  # a slip of a power of ten is outside
        assert 1e11 < accelerator.memory_bytes_per_s < 1e14
        assert accelerator.link_bytes_per_s < accelerator.memory_bytes_per_s


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder in which NVIDIA's driver describes GPUs."""

    def make(*models: str) -> Path:
        for workspace, model in enumerate(models):
            (tmp_path / f"0000:0{workspace}:00.0").mkdir()
            (tmp_path / f"0000:0{workspace}:00.0" / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 0\n")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("model", "half_flops", "usable_gib"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12, 80),
        ("NVIDIA L40S", 362e12, 45776 / 1024),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 500e12, 96),
    ],
)
def test_a_gpu_of_this_machine_is_known_by_the_name_that_its_driver_gives(
    driver: Callable[..., Path], model: str, half_flops: float, usable_gib: float
) -> None:
    result = local_gpu(driver(model, "Tesla K80"))

    assert result is not None
    assert (result.half_flops, result.usable_gib) == (half_flops, usable_gib)


def test_a_gpu_that_is_hidden_or_absent_is_none(driver: Callable[..., Path], tmp_path: Path) -> None:
    assert local_gpu(tmp_path / "nowhere") is None
    folder = driver("Tesla T4")
    assert local_gpu(folder, "") is local_gpu(folder, "-1") is None
    assert local_gpu(folder, "0") is not None


def test_a_gpu_that_is_not_listed_is_a_gpu_with_the_memory_that_its_driver_tells(driver: Callable[..., Path]) -> None:
    folder = driver("NVIDIA GeForce RTX 4090")
    found, silent = local_gpu(folder, memory_gib=lambda: 23.6), local_gpu(folder, memory_gib=lambda: None)

    assert found is not None
    assert silent is not None
    assert (found.name, found.is_listed, found.usable_gib) == ("NVIDIA GeForce RTX 4090", False, 23.6)
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
