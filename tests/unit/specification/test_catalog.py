"""What is known about instance types."""

from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest

from paretune.core.errors import BadInput
from paretune.estimating.hardware import accelerator_of
from paretune.specification import catalog
from paretune.specification.catalog import instance, instances


def test_every_row_of_the_catalog_makes_sense() -> None:
    assert len(instances()) > 50
    for kind in instances().values():
        assert min(kind.vcpus, kind.memory_gib) > 0
        assert (kind.accelerator_count > 0) == (kind.accelerator_memory_gib > 0) == (kind.accelerator != "none")


def test_the_local_disks_of_an_instance_are_known_in_gib() -> None:
    assert instance("ml.g4dn.xlarge").local_storage_gib == 116  # 125e9 / 2**30
    assert instance("ml.p3.2xlarge").local_storage_gib == instance("ml.m5.large").local_storage_gib == 0


def test_the_catalog_holds_every_type_of_botocore_but_those_whose_hardware_is_not_known() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    possible = set(model.shape_for("TrainingInstanceType").enum)

    assert set(instances()) <= possible
    assert possible - set(instances()) == {f"ml.p2.{size}xlarge" for size in ("", 8, 16)}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the user's own file of instance types."""
    path = tmp_path / "instances.csv"
    monkeypatch.setattr(catalog, "OWN_TYPES", str(path))
    catalog.rows.cache_clear()
    catalog.instances.cache_clear()
    yield path
    catalog.rows.cache_clear()
    catalog.instances.cache_clear()


HEADER = "instance_type,accelerator,accelerator_count,accelerator_memory_gb,network_gbps,vcpus,memory_gb\n"


def test_a_file_of_the_user_describes_new_types_and_wins_over_the_shipped_ones(own: Path) -> None:
    with pytest.raises(BadInput, match=r"did you mean ml\.p5\.48xlarge.*; describe"):
        instance("ml.p9.48xlarge")
    own.write_text(f"{HEADER}ml.p9.48xlarge,NVIDIA H200,8,141,3200,192,2048\nml.m5.large,none,0,0,10,64,8\n")
    catalog.rows.cache_clear()
    catalog.instances.cache_clear()
    reference = instance("ml.p9.48xlarge")
    chip = accelerator_of(reference)

    assert (reference.accelerator_count, reference.vcpus, reference.local_storage_gib) == (8, 192, 0)
    assert chip is not None
    assert chip.compute_capability == (9, 0)
    assert (instance("ml.m5.large").vcpus, instance("ml.m5.xlarge").vcpus) == (64, 4)


def test_a_wrong_row_of_the_user_is_one_sentence(own: Path) -> None:
    own.write_text(f"{HEADER}ml.p9.48xlarge,NVIDIA H200,eight,141,3200,192,2048\n")

    with pytest.raises(BadInput, match=r"has a row that cannot be read .*eight"):
        instance("ml.p9.48xlarge")
