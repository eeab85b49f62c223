"""What devices can do at best."""

import pytest

from paretune import catalog, hardware
from paretune.hardware import multiplies_bf16, processor, processor_flags, resolved_precision, this_processor


@pytest.mark.parametrize("name", sorted(name for name, known in catalog.instances().items() if known.has_gpu))
def test_every_gpu_of_the_catalogue_has_a_data_sheet(name: str) -> None:
    instance = catalog.instance(name)
    found = hardware.accelerator_of(instance)

    assert found is not None
    assert 0.75 * instance.accelerator_memory_gib <= found.usable_gib <= 1.01 * instance.accelerator_memory_gib
    assert 1e12 < found.fp32_flops < found.half_flops < 1e16  # a slip of a power of ten is outside
    assert 1e11 < found.memory_bytes_per_s < 1e14
    assert found.link_bytes_per_s < found.memory_bytes_per_s


def test_the_same_chip_with_more_memory_differs_in_memory_alone() -> None:
    small = hardware.accelerator_of(catalog.instance("ml.p4d.24xlarge"))
    large = hardware.accelerator_of(catalog.instance("ml.p4de.24xlarge"))

    assert small is not None
    assert large is not None
    assert (small.usable_gib, large.usable_gib) == (40.0, 80.0)
    assert small.half_flops == large.half_flops


def test_instances_without_gpus_have_no_accelerator() -> None:
    assert hardware.accelerator_of(catalog.instance("ml.m5.large")) is None


def test_processors_add_up() -> None:
    one, eight = processor(1, 4.0), processor(8, 4.0)

    assert one.fp32_flops == 96e9  # 3 GHz x 32
    assert eight.fp32_flops == 8 * one.fp32_flops
    assert eight.memory_bytes_per_s == 8 * one.memory_bytes_per_s
    assert eight.usable_gib == 4.0


def test_this_machine_has_a_processor_and_memory() -> None:
    found = this_processor()

    assert found.fp32_flops >= 96e9
    assert 0.1 < found.usable_gib < 100_000


@pytest.mark.parametrize(
    ("flags", "answer"),
    [({"avx512_bf16"}, True), ({"amx_bf16", "sse"}, True), ({"bf16"}, True), ({"avx2", "avx512f"}, False)],
)
def test_a_processor_multiplies_bf16_only_by_instructions_for_it(flags: set[str], answer: bool) -> None:
    assert multiplies_bf16(flags) is answer


def test_flags_are_single_words() -> None:
    assert not [flag for flag in processor_flags() if " " in flag or ":" in flag]


def test_auto_is_bf16_where_the_gpu_has_it_and_stays_open_on_a_processor() -> None:
    a10g = hardware.accelerator_of(catalog.instance("ml.g5.xlarge"))
    t4 = hardware.accelerator_of(catalog.instance("ml.g4dn.xlarge"))
    v100 = hardware.accelerator_of(catalog.instance("ml.p3.2xlarge"))

    assert resolved_precision("auto", a10g) == "bf16"
    assert resolved_precision("auto", t4) == resolved_precision("auto", v100) == "fp32"
    assert resolved_precision("auto", None) == "auto"
    assert resolved_precision("fp16", a10g) == "fp16"
