"""One job's estimate, its basis, and which of several estimates are on the front."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli import main
from paretune.core.errors import BadInput
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture, architecture_of, well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence, read
from paretune.estimating.forecast import estimate_user_code
from paretune.estimating.hardware import unlisted_gpu
from paretune.estimating.remedy import with_remedy
from paretune.pricing import ML_M5_LARGE
from paretune.specification.job import JobSpec
from paretune.specification.metrics import FACTS
from paretune.specification.price import Price
from paretune.tracking.recorded_run import RecordedRun
from tests.support.tags import tags_of

PRICE = Price(usd_per_hour=3.6, region="us-east-1", as_of="2026-11-20", source="test")
MODEL = "bert-base-uncased"
A10G: dict[str, Any] = {"model": MODEL, "instance_type": "ml.g5.xlarge", "max_train_samples": 50_000}


def built() -> Architecture:
    result = well_known(MODEL)
    assert result is not None
    return result


def estimate(evidence: Evidence | None = None, price: Price | None = PRICE, **changes: Any) -> Estimate:
    estimated = Estimator(evidence or Evidence()).estimate(JobSpec(**{**A10G, **changes}), built(), price)
    assert estimated is not None
    return estimated


def evidence_of(*runs: dict[str, Any], origin: str = "measured") -> Evidence:
    return read(
        RecordedRun(
            f"run {workspace}",
            params=JobSpec(**{**A10G, **changes}).as_text(),
            tags={"paretune.origin": origin, "paretune.state": "Completed"},
            metrics={"billable_seconds": 2000.0},
        )
        for workspace, changes in enumerate(runs)
    )


def test_dollars_are_seconds_times_instances_times_price_and_absent_without_one() -> None:
    estimated, unpriced = estimate(instance_count=2), estimate(price=None)

    assert estimated.cost_usd == pytest.approx(estimated.time.seconds * 2 * 0.001)  # 3.6 USD an hour
    assert unpriced.cost_usd is None
    assert {name for name in unpriced.as_metrics() if "usd" in name} == set()
    assert " billed, without the wait for instances (" in unpriced.sentence()
    assert "billed" not in estimate(instance_type="local").sentence()


@pytest.mark.parametrize(
    ("evidence", "basis"),
    [
        (Evidence(), "data sheets: nothing similar was measured"),
        (evidence_of({}, {}), "2 runs of this model on this cluster"),
        (evidence_of({}, {}, origin="published"), "2 published runs of this model on this cluster"),
        (evidence_of({}, origin="simulated"), "1 simulated run of this model on this cluster"),
        (
            evidence_of({"instance_count": 2}, {"instance_count": 4}),
            "2 runs of this model on other clusters and 2 runs on this accelerator: not measured here",
        ),
        (evidence_of({"instance_type": "ml.p4d.24xlarge"}), "1 run of this model on other clusters: not measured here"),
    ],
)
def test_the_basis_says_what_the_prediction_stands_on(evidence: Evidence, basis: str) -> None:
    assert estimate(evidence).basis == basis


@pytest.mark.parametrize(
    ("origin", "changes", "is_warned"),
    [
        ("measured", {"instance_count": 1}, True),
        ("measured", {"instance_count": 4}, False),
        ("measured", {"instance_count": 4, "instance_type": "ml.p4d.24xlarge"}, True),  # by EFA
        ("published", {"instance_count": 4}, True),
    ],
)
def test_a_row_of_several_machines_says_first_that_no_own_job_has_measured_their_network(
    origin: str, changes: dict[str, Any], is_warned: bool
) -> None:
    basis = estimate(evidence_of(changes, origin=origin), instance_count=2).basis

    warning = "no job of yours has used several machines without EFA, and without it a job may take several times as "
    assert basis.startswith(f"{warning}long; ") is is_warned


@pytest.mark.parametrize(("gib", "fits"), [(23.6, "yes"), (math.nan, "unsure"), (1.0, "no")])
def test_a_gpu_that_no_list_has_is_named_and_its_time_is_open(
    gib: float, fits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "local_gpu", lambda: unlisted_gpu("NVIDIA GeForce RTX 4090", gib))
    estimated = estimate(instance_type="local", per_device_train_batch_size=16)

    assert estimated.basis.startswith("no data sheet for NVIDIA GeForce RTX 4090, so its speed is a guess; ")
    assert estimated.time.seconds_high / estimated.time.seconds_low > 4  # twice as long or half
    assert estimated.fits == fits


def test_a_job_that_ran_out_of_memory_rules_out_its_like() -> None:
    content = read(
        [
            RecordedRun(
                "full",
                params=JobSpec(**A10G, per_device_train_batch_size=8).as_text(),
                tags={"paretune.state": "Failed", "paretune.cause": "out_of_memory"},
            )
        ]
    )
    same, smaller, larger = (
        estimate(content, per_device_train_batch_size=8),
        estimate(content, per_device_train_batch_size=4),
        estimate(content, per_device_train_batch_size=8, instance_type="ml.p4d.24xlarge"),
    )

    assert (same.fits, smaller.fits, larger.fits) == ("no", "yes", "yes")
    assert same.did_not_fit is not None
    assert same.did_not_fit.run_id == "full"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must have a config.json that can be read"),
        ("[]", "must have a config.json that can be read"),
        (json.dumps({"model_type": "resnet"}), "must have hidden size, number of layers and vocabulary size"),
        (
            json.dumps({"model_type": "vit", "hidden_size": 768, "image_size": 224}),
            "for images: .* only models for text",
        ),
        (
            json.dumps(
                {"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "vocab_size": 51865, "num_mel_bins": 80}
            ),
            "for speech or sound: .* only models for text",
        ),
        (
            json.dumps(
                {
                    "model_type": "clip",
                    "projection_dim": 512,
                    "vision_config": {},
                    "text_config": {"hidden_size": 512, "num_hidden_layers": 12, "vocab_size": 49408},
                }
            ),
            "for images: .* only models for text",
        ),
    ],
    ids=itertools.count(),
)
def test_a_folder_without_the_needed_configuration_is_refused(
    content: str | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)

    with pytest.raises(BadInput, match=message):
        architecture_of(str(tmp_path), "classification", {})


def test_the_largest_batch_that_fits_is_the_last_power_of_two_that_is_said_to() -> None:
    answers = [estimate(per_device_train_batch_size=2**power, max_seq_length=512).fits for power in range(10)]
    assert (answers[0], answers[-1]) == ("yes", "no")
    assert sorted(answers, key=["yes", "unsure", "no"].index) == answers  # a larger batch never fits better
    estimator = Estimator(Evidence())
    largest = estimator.largest_batch(estimate().spec, built())

    assert estimate(per_device_train_batch_size=largest).fits == "yes"
    assert estimate(per_device_train_batch_size=2 * largest).fits != "yes"
    assert estimator.largest_batch(estimate(max_train_samples=5).spec, built()) == 4  # not more rows than an epoch has


LLAMA = Architecture(
    parameters=8_030_000_000,
    matrices=7_500_000_000,
    layers=32,
    hidden_size=4096,
    vocabulary=128_256,
    adapted_widths=2_620_000,
    kind="llama",
    stored="bf16",
)


def fitting(**changes: Any) -> Estimate | None:
    """Return what fits instead of a job with a model of 8 billion parameters."""
    lines: dict[str, Any] = {"task": "causal-lm", "dataset": "a/b", "max_seq_length": 2048, "max_train_samples": 10_000}
    spec = JobSpec(**{**lines, "per_device_train_batch_size": 2, "instance_type": "ml.g5.xlarge", **changes})
    estimator = Estimator(Evidence())
    item = estimator.estimate(spec, LLAMA, None)
    assert item is not None
    assert item.fits != "yes"
    return with_remedy(item, estimator, LLAMA).remedy


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"fine_tuning": "lora"}, {"training_arguments.gradient_checkpointing": True}),
        ({"fine_tuning": "qlora"}, {"training_arguments.gradient_checkpointing": True}),
        (
            {"fine_tuning": "qlora", "per_device_train_batch_size": 32, "instance_type": "ml.p4d.24xlarge"},
            {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 32},
        ),
    ],
)
def test_a_job_that_does_not_fit_gets_the_first_change_that_does(
    changes: dict[str, Any], remedy: dict[str, Any]
) -> None:
    found = fitting(**changes)

    assert found is not None
    assert found.changes == remedy
    assert found.fits == "yes"
    rows = {"per_device_train_batch_size": 2, **changes}["per_device_train_batch_size"]
    assert found.plan.per_device_train_batch_size * found.plan.gradient_accumulation_steps == rows


def job(rows: int = 1000, **changes: object) -> JobSpec:
    """Return a job of a project whose seconds grow with `rows`."""
    arguments = {"training_arguments": {"rows": rows, "alpha": 0.1}} | changes
    return JobSpec(project="mine", **arguments)  # type: ignore[arg-type]  # names of its fields


def test_only_equal_jobs_count_whatever_their_seed() -> None:
    elsewhere = job(instance_type="ml.m5.large")
    others = [job(entry_point="other.py"), elsewhere, JobSpec(project="another", training_arguments={"rows": 1000})]
    runs = [(job(1000, seed=7), 14.0), (job(4000), 44.0)]

    assert estimate_user_code(job(), ML_M5_LARGE, [(spec, 10.0) for spec in others]) is None
    prediction = estimate_user_code(job(), ML_M5_LARGE, runs)
    assert prediction is not None
    assert (prediction.measured_here, prediction.time.seconds) == (1, pytest.approx(14))


TABLE = """instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status
ml.g5.xlarge,1,16,5e-5,1000,0.9,Completed
ml.g5.xlarge,1,32,5e-5,700,0.89,Completed
ml.g5.xlarge,1,64,5e-5,,,OutOfMemory
ml.g5.xlarge,4,16,5e-5,400,0.88,Completed
"""


@pytest.fixture
def client(workplace: Path) -> MlflowClient:
    """Return a client of a store, next to a table in which batch 64 does not fit."""
    (workplace / "table.csv").write_text(TABLE)
    return MlflowClient()


def train(client: MlflowClient, batch: int, seed: int) -> Run:
    """Return the run of a simulated job."""
    words = ["--launcher", "simulated", "--simulation.runs", "table.csv", "--instance_type", "ml.g5.xlarge"]
    assert main(["train", *words, "--per_device_train_batch_size", str(batch), "--seed", str(seed)]) == 0
    return client.search_runs(["0"], order_by=["attributes.start_time DESC"])[0]


def test_a_batch_that_ran_out_of_memory_before_is_warned_of(
    client: MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train(client, 64, seed=1)
    capsys.readouterr()
    train(client, 64, seed=7)

    warning = capsys.readouterr().err
    assert f"ran out of memory before on a device with as much memory (run {first.info.run_id})" in warning
    assert "--per_device_train_batch_size 32 --gradient_accumulation_steps 2" in warning


def test_every_job_records_its_own_estimate_which_gets_better_with_evidence(client: MlflowClient) -> None:
    off = []
    for seed in (1, 2):
        run = train(client, 32, seed)
        result, tags = run.data, tags_of(run)
        estimated = {name: float(text) for name, text in tags.items() if re.search(r"estimated_\w+$", name)}
        low, middle, high = (estimated[f"paretune.estimated_seconds{end}"] for end in ("_low", "", "_high"))
        assert low < middle < high
        assert estimated["paretune.estimated_cost_usd"] == pytest.approx(
            middle * 1.408 / 3600, rel=1e-3
        )  # recorded to 4 digits
        assert estimated["paretune.estimated_memory_gib"] > 0
        assert [*result.metrics][:2] == ["f1", "cost_usd"]
        assert not FACTS & result.metrics.keys()
        basis = tags["paretune.estimate_basis"]
        off.append((abs(middle / result.metrics["billable_seconds"] - 1), high / low, basis))

    assert off[1][0] < 0.1 < off[0][0]
    assert off[1][1] < off[0][1]
    assert "1 simulated run of this model on this cluster" in off[1][2]


def test_a_training_in_bf16_alone_takes_half_the_state_and_says_what_it_loses() -> None:
    masters, alone = (estimate(precision=precision) for precision in ("bf16", "bf16-true"))

    assert masters.memory is not None
    assert alone.memory is not None
    assert alone.memory.gib < masters.memory.gib - 0.4  # 8 of 16 bytes of 66 million weights
    assert alone.basis.endswith("; bf16-true loses updates below 1/512 of a weight")
