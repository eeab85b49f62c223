"""What is known of instance types."""

import re

import botocore.session
import pytest

from paretune.core.errors import BadInput
from paretune.estimating.hardware import accelerator_of
from paretune.specification.catalog import fact_faults, instance, instances

NEW = "ml.p9.48xlarge"
FACTS = {"gpu": "H200", "gpus": 8, "gpu_memory_gib": 141, "network_gbps": 3200, "vcpus": 192, "memory_gib": 2048}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ml.m5.larg", "ml.m5.large"), ("m5.large", "ml.m5.large"), ("ml.p4d.24xlage", "ml.p4d.24xlarge")],
)
def test_a_mistyped_instance_finds_the_one_that_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean {meant}"):
        instance(typed)


def test_what_is_like_nothing_is_refused_without_a_guess() -> None:
    with pytest.raises(BadInput) as caught:
        instance("banana")

    assert "did you mean" not in str(caught.value)


def test_every_row_of_the_catalogue_makes_sense() -> None:
    assert len(instances()) > 50
    for name, reference in instances().items():
        assert name == reference.instance_type
        assert name.startswith("ml.")
        assert reference.vcpus > 0
        assert reference.memory_gib > 0
        assert (
            (reference.accelerator_count > 0)
            == (reference.accelerator_memory_gib > 0)
            == (reference.accelerator != "none")
        )


def test_the_family_is_the_middle_of_the_name() -> None:
    assert instance("ml.p4d.24xlarge").family == "p4d"
    assert instance("ml.p4d.24xlarge").has_gpu
    assert not instance("ml.m5.large").has_gpu


def test_the_local_disks_of_an_instance_are_known_in_gib() -> None:
    assert instance("ml.g4dn.xlarge").local_storage_gib == 116  # 125e9 / 2**30
    assert instance("ml.p5.48xlarge").local_storage_gib == 28_312
    assert instance("ml.p3.2xlarge").local_storage_gib == instance("ml.m5.large").local_storage_gib == 0
    assert instance("ml.trn1.2xlarge").has_local_storage


def test_the_catalogue_holds_every_type_of_botocore_but_those_whose_hardware_is_not_known() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    possible = set(model.shape_for("TrainingInstanceType").enum)

    assert set(instances()) <= possible
    assert possible - set(instances()) == {f"ml.p2.{size}xlarge" for size in ("", 8, 16)} | {"ml.p6e-gb200.36xlarge"}


def test_facts_describe_a_type_that_is_not_in_the_catalogue_as_if_it_were() -> None:
    reference = instance(NEW, {NEW: FACTS})
    chip = accelerator_of(reference)

    assert (reference.accelerator, reference.accelerator_count, reference.vcpus, reference.memory_gib) == (
        "NVIDIA H200",
        8,
        192,
        2048,
    )
    assert reference.has_gpu
    assert not reference.has_local_storage
    assert chip is not None
    assert chip.compute_capability == (9, 0)
    assert not instance(NEW, {NEW: {"gpus": 0, "network_gbps": 10, "vcpus": 4, "memory_gib": 16}}).has_gpu


def test_facts_come_before_the_catalogue_and_leave_the_rest_as_it_is() -> None:
    reference = instance("ml.m5.large", {"ml.m5.large": {"local_storage_gib": 50}, NEW: FACTS})

    assert (reference.local_storage_gib, reference.vcpus) == (50, 2)
    assert instance("ml.m5.xlarge", {"ml.m5.large": {"vcpus": 64}}).vcpus == 4


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"gpus": 8}, "must map types to their hardware, such as"),
        ({NEW: "H200"}, "must map types to their hardware"),
        ({NEW: {**FACTS, "gpu_count": 8}}, "must be of gpu, gpus, .* got gpu_count for ml.p9"),
        ({NEW: {"gpus": 8, "vcpus": 4}}, "must also have gpu, gpu_memory_gib, network_gbps, memory_gib for ml.p9"),
        ({NEW: {**FACTS, "gpus": -1}}, "gpus of ml.p9.48xlarge must be a number of at least 0, got -1"),
        ({NEW: {**FACTS, "vcpus": 1.5}}, "vcpus of ml.p9.48xlarge must be a number"),
        ({NEW: {**FACTS, "memory_gib": "2 TB"}}, "memory_gib of ml.p9.48xlarge must be a number"),
        ({NEW: {**FACTS, "gpu": 200}}, "gpu of ml.p9.48xlarge must be a name, got 200"),
    ],
)
def test_facts_that_say_nothing_usable_are_refused_with_what_is_wrong(facts: dict[str, object], part: str) -> None:
    (fault,) = fact_faults(facts)

    assert re.search(part, fault)


def test_a_type_that_is_not_known_is_refused_with_the_parameter_that_describes_it() -> None:
    with pytest.raises(BadInput, match=r"did you mean ml.p5.48xlarge.*; instance_facts can describe another one"):
        instance("ml.p9.48xlarge")
