"""What is known of instance types."""

import pytest

from paretune.core.errors import BadInput
from paretune.spec.catalog import instance, instances


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
    for name, known in instances().items():
        assert name == known.instance_type
        assert name.startswith("ml.")
        assert known.vcpus > 0
        assert known.memory_gib > 0
        assert (known.accelerator_count > 0) == (known.accelerator_memory_gib > 0) == (known.accelerator != "none")


def test_the_family_is_the_middle_of_the_name() -> None:
    assert instance("ml.p4d.24xlarge").family == "p4d"
    assert instance("ml.p4d.24xlarge").has_gpu
    assert not instance("ml.m5.large").has_gpu


def test_the_local_disks_of_an_instance_are_known_in_gib() -> None:
    assert instance("ml.g4dn.xlarge").local_storage_gib == 116  # 125e9 / 2**30
    assert instance("ml.p5.48xlarge").local_storage_gib == 28_312
    assert instance("ml.p3.2xlarge").local_storage_gib == instance("ml.m5.large").local_storage_gib == 0
    assert instance("ml.trn1.2xlarge").has_local_storage
