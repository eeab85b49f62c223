"""A dry run for a reader: what would run, where, for how much, and what leaves the machine."""

from pathlib import Path

import pytest

from paretune.estimating.architecture import well_known
from paretune.jobs.preview import ForeseenJob, _summary
from paretune.launchers.storage import host_bytes
from paretune.pricing import Price
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.specification.job import JobSpec

REQUEST = {
    "InputDataConfig": [{"ChannelName": name} for name in ("dataset", "model", "code")],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/results"},
}
PRICE = Price(region="us-east-1", usd_per_hour=1.408, as_of="2026-08", source="AWS price list")
CLOUD = JobSpec(instance_type="ml.g5.xlarge", instance_count=2, num_train_epochs=3.0)


def job(spec: JobSpec, price: Price | None = None) -> ForeseenJob:
    return ForeseenJob(spec=spec, region="us-east-1", disk_bytes=100e9, price=price, estimate=None)


def test_a_job_on_sagemaker_is_shown_with_what_it_uploads_and_may_cost(tmp_path: Path) -> None:
    facts = {"train_rows": 900.0, "validation_rows": 100.0, "train_tokens": 20_000.0}
    inputs = JobInputs(dataset=PreparedDataset(key="k", folder=tmp_path, labels=("a", "b"), facts=facts))
    parts = {"request": REQUEST, "worst_case_usd": 2.9, "budgets": ["budget team: 10 of 20 USD left"]}

    lines = _summary(job(CLOUD, PRICE), CLOUD.plan(), inputs, parts)

    assert lines["where"] == "SageMaker, 2 x ml.g5.xlarge, results in s3://bucket/results"
    assert lines["worst case"] == "2.90 USD; the job is ended after 1 h"
    assert lines["disk"].startswith("100 GB at most")
    assert lines["disk"].endswith("a volume of 104 GiB")
    assert lines["budgets"] == "budget team: 10 of 20 USD left"
    assert lines["leaves this machine"].endswith("dataset, model, code")


@pytest.mark.parametrize(
    ("model", "settings", "loading", "saving"),
    [  # GB of weights in fp32, and 0.7 GB for each of 8 processes; 7B has 6.74 billion weights, 40B has 41.3 billion
        ("Llama-2-7b-hf", {"strategy": "ddp"}, 8 * 26.95, 26.95),
        ("Llama-2-7b-hf", {"strategy": "fsdp"}, 26.95, 5),
        ("falcon-40b", {"strategy": "fsdp"}, 165.2, 5),
        ("falcon-40b", {"strategy": "fsdp", "cpu_offload": True}, 2 * 165.2, 4 * 165.2 + 5),
        ("falcon-40b", {"strategy": "fsdp", "fine_tuning": "lora"}, 83, 5),  # frozen weights in half precision
    ],
)
def test_main_memory_is_known_before_a_large_model_is_loaded_and_saved(
    model: str, settings: dict[str, object], loading: float, saving: float
) -> None:
    built = well_known(model)
    assert built is not None
    spec = JobSpec.read({"task": "causal-lm", "instance_type": "ml.p4d.24xlarge", **settings})

    found = [size / 1e9 - 8 * 0.698 for size in host_bytes(spec, built)]

    assert found == pytest.approx([loading, saving], rel=0.03)
