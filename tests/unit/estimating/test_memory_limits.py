"""What one job's memory says about another's."""

import pytest

from paretune.estimating.memory_limits import Footprint
from paretune.specification.job import JobSpec

SMALL, LARGE = "ml.g4dn.xlarge", "ml.g6e.xlarge"  # 16 and 48 GiB


def held(batch: int, instance_type: str = "ml.g5.xlarge", **terms: object) -> Footprint:
    texts = {"instance_type": instance_type, "per_device_train_batch_size": str(batch)}
    spec = JobSpec.read(texts | {name: str(value) for name, value in terms.items()})
    return Footprint.of(spec, spec.plan())


FULL = [held(128)]  # of the ml.g5.xlarge, 24 GiB: 128 rows do not fit


@pytest.mark.parametrize(
    ("footprint", "fits"),
    [
        (held(32), True),
        (held(8), True),
        (held(32, LARGE), True),
        (held(32, instance_count=4), True),
        (held(128), False),
        (held(256), False),
        (held(128, SMALL), False),
        (held(128, "ml.g5.12xlarge"), False),
    ],
)
def test_what_fits_or_not_decides_for_fewer_or_more_rows_and_larger_or_smaller_devices(
    footprint: Footprint, fits: bool
) -> None:
    assert (footprint.why_full(FULL) is None) is fits


@pytest.mark.parametrize(
    "footprint",
    [
        held(64),
        held(128, LARGE),
        held(32, SMALL),
        held(128, fine_tuning="lora"),
        held(128, max_seq_length=64),
        held(128, precision="fp16"),
        held(128, training_arguments='{"gradient_checkpointing": true}'),
    ],
)
def test_anything_else_is_open(footprint: Footprint) -> None:
    assert footprint.why_full(FULL) is None


def test_sharded_weights_fit_on_more_devices_where_they_did_not_on_fewer() -> None:
    full = [held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=2)]

    assert held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=1).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=4).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="ddp", instance_count=1).why_full(full)
