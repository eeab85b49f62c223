"""A table of estimates, as it is read."""

import csv
import io
from typing import Any

import pytest

from paretune.commands.estimate.estimate import COLUMNS, EstimateTable, on_front
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimate, Estimator, TimeEstimate
from paretune.estimating.evidence import Evidence
from paretune.estimating.phases import Seconds
from paretune.pricing import Price
from paretune.specification.job import JobSpec

PRICE = Price(usd_per_hour=3.6, region="us-east-1", as_of="2026-11-20", source="test")


def estimate(price: Price | None = PRICE, **changes: Any) -> Estimate:
    spec = JobSpec(**{"model": "bert-base-uncased", "instance_type": "ml.g5.xlarge", **changes})
    built = well_known(spec.model)
    assert built is not None
    estimated = Estimator(Evidence()).estimate(spec, built, price)
    assert estimated is not None
    return estimated


def table(*estimates: Estimate) -> EstimateTable:
    return EstimateTable(jobs=[(item.spec, item) for item in estimates], region="us-east-1")


def read(*estimates: Estimate) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(*estimates).csv())))


def lines(*estimates: Estimate) -> list[str]:
    return str(table(*estimates)).splitlines()


def test_a_row_says_what_the_estimate_says() -> None:
    item = estimate(instance_count=2, gradient_accumulation_steps=3)
    (row,) = read(item)

    assert tuple(row) == COLUMNS
    assert (row["instance_type"], row["instance_count"], row["on_front"]) == ("ml.g5.xlarge", "2", "true")
    assert (row["per_device_train_batch_size"], row["global_batch_size"]) == ("16", "96")
    assert float(row["seconds"]) == pytest.approx(item.time.seconds, abs=0.1)
    assert float(row["cost_usd"]) == pytest.approx(item.time.seconds * 2 * 0.001)
    assert float(row["cost_usd_high"]) == pytest.approx(item.time.seconds_high * 2 * 0.001)
    assert float(row["seconds_per_step"]) * int(row["steps"]) < float(row["seconds"])
    assert row["basis"] == item.basis


def test_a_row_has_the_seconds_of_each_phase_with_their_interval() -> None:
    item = estimate()
    row, local = read(item, estimate(price=None, instance_type="local"))

    for phase in ("waiting", "starting", "data", "image", "training", "uploading"):
        low, middle, high = (float(row[f"{phase}_{name}"]) for name in ("seconds_low", "seconds", "seconds_high"))
        assert low <= middle <= high
        assert middle == pytest.approx(item.phases[phase].seconds, abs=0.1)
    billed = sum(float(row[f"{phase}_seconds"]) for phase in ("data", "image", "training", "uploading"))
    assert billed == pytest.approx(item.time.seconds, abs=0.5)
    assert local["training_seconds"] == local["seconds"]
    assert {local[f"{phase}_seconds"] for phase in ("waiting", "starting", "data", "image", "uploading")} == {""}


def test_a_language_model_is_priced_by_its_tokens_and_by_days() -> None:
    cluster = {
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 120,
        "strategy": "fsdp",
        "training_arguments.gradient_checkpointing": True,
    }
    rows = {"task": "causal-lm", "dataset": "a/b", "max_seq_length": 2048, "max_train_samples": 1_200_000}
    item = estimate(model="gpt3-175b", tensor_parallel_degree=8, global_batch_size=1200, **cluster, **rows)
    (row,) = read(item)

    assert float(row["tokens"]) == 1_200_000 * 2048
    assert float(row["days"]) == pytest.approx(item.time.seconds / 86_400)
    assert float(row["usd_per_billion_tokens"]) == pytest.approx(float(row["cost_usd"]) / 2.4576, rel=1e-4)
    assert (row["tensor_parallel_degree"], row["cpu_offload"]) == ("8", "false")
    assert "USD per billion tokens" in lines(item)[0]
    assert "USD per billion tokens" not in lines(estimate())[0]
    assert read(estimate())[0]["tokens"] == ""


def test_only_what_fits_and_has_a_price_is_on_the_front() -> None:
    # These have more arithmetic than communication.
    busy: dict[str, Any] = {"per_device_train_batch_size": 32, "max_seq_length": 512, "max_train_samples": 50_000}
    cheap, dear = estimate(**busy), estimate(**busy, instance_type="ml.g5.12xlarge", instance_count=4)
    unpriced = estimate(price=None, instance_type="ml.p4d.24xlarge")
    full = estimate(per_device_train_batch_size=4096, max_train_samples=16)

    assert full.fits == "no"
    assert full.time.seconds < cheap.time.seconds
    assert dear.time.seconds < cheap.time.seconds
    assert on_front([unpriced, cheap, full, None, dear]) == [False, True, False, False, True]
    assert on_front([]) == []


def test_a_training_of_one_s_own_has_seconds_and_dollars_where_one_has_run() -> None:
    spec = JobSpec(entry_script="train.py", instance_type="ml.g5.xlarge")
    time = Seconds(seconds=100.0, seconds_low=50.0, seconds_high=200.0)
    item = TimeEstimate(spec=spec, measured_here=1, time=time, price=PRICE, basis="1 run")
    own = EstimateTable(jobs=[(spec, item), (spec.replace(instance_count=2), None)], region="us-east-1")
    known, unknown = csv.DictReader(io.StringIO(own.csv()))

    assert tuple(known) == COLUMNS
    assert (known["seconds_high"], float(known["cost_usd"]), known["basis"]) == ("200.0", pytest.approx(0.1), "1 run")
    assert (unknown["seconds"], unknown["cost_usd"], unknown["basis"]) == ("", "", "nothing known: run one")
    assert "100 s (50 s to 3 min)" in str(own)
    assert "GiB" not in str(own)
