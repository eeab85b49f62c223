"""What is said of a job before it is paid for."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimate
from paretune.estimating.memory import MemoryPrediction
from paretune.estimating.timing import Prediction
from paretune.jobs.advice import ForeseenJob, disk_bytes, limit_refusal, warnings_of
from paretune.pricing.prices import Price
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.specification.job import JobSpec

PRICE = Price(usd_per_hour=1.0, region="us-east-1", as_of="", source="a list", confidence="notional")
CLUSTER = {"launcher": "simulated", "instance_type": "ml.g5.xlarge"}


def foreseen(
    *,
    seconds: Callable[[JobSpec], float] = lambda spec: 900.0,
    low: float = 1.0,
    high: float = 1e6,
    gib: float = 1.0,
    **arguments: Any,
) -> ForeseenJob:
    """A job whose estimate is `seconds` and `gib` of 10 GiB, in proportion to its per-device batch.

    What `ForeseenJob` has wins over parameters of a job.
    """
    custom = {name: arguments.pop(name) for name in ("rows", "disk_bytes", "has_worked", "price") if name in arguments}
    spec = JobSpec(**{"learning_rate_scaling": "sqrt", "training_arguments.warmup_ratio": 0.06, **arguments})

    def estimate_of(job_spec: JobSpec, plan: BatchPlan) -> Estimate:
        needed = gib * plan.per_device_train_batch_size / spec.plan().per_device_train_batch_size
        time = Prediction(
            seconds=seconds(job_spec),
            seconds_low=low,
            seconds_high=high,
            startup_seconds=300.0,
            step_seconds=1.0,
            steps=10,
        )
        return Estimate(
            spec=job_spec,
            plan=plan,
            measured_here=0,
            time=time,
            memory=MemoryPrediction(gib=needed, gib_low=needed, gib_high=needed),
            usable_gib=10.0,
            price=PRICE,
            basis="a guess",
        )

    reference = {"rows": 5000.0, "disk_bytes": None, "has_worked": True, "price": PRICE} | custom
    return ForeseenJob(spec=spec, plan=spec.plan(), region="us-east-1", estimate_of=estimate_of, **reference)


def test_nothing_is_said_of_the_default_job() -> None:
    job = foreseen(learning_rate_scaling="none", instance_type="local")

    assert warnings_of([job]) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": 17}, False),  # 5e-5 is within a tenth of 5e-5 x sqrt(17 / 16)
        ({"global_batch_size": 64}, True),
        ({"global_batch_size": 64, "learning_rate_scaling": "linear"}, False),
        ({"global_batch_size": 64, "reference_batch_size": 64}, False),
        ({"global_batch_size": 64, "learning_rate": 1e-4}, False),  # scaled by hand
        ({"global_batch_size": 256, "learning_rate": 1e-4}, True),
        ({"global_batch_size": 64, "fine_tuning": "lora"}, True),
        ({"global_batch_size": 64, "probe_steps": 40}, False),  # of which no F1 is asked
        ({}, False),
    ],
)
def test_a_large_batch_asks_for_a_larger_rate(changes: dict[str, Any], message: bool) -> None:
    warnings = warnings_of([foreseen(**{"learning_rate_scaling": "none"} | changes)])

    assert [("--learning_rate_scaling sqrt" in text, "reference_batch_size" in text) for text in warnings] == [
        (True, True)
    ] * message


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, False), ({"learning_rate": 5e-5}, True), ({"learning_rate": 2e-4}, False)],
)
@pytest.mark.parametrize("kind", ["lora", "qlora"])
def test_adapters_with_a_rate_of_full_fine_tuning_are_told_theirs(
    kind: str, changes: dict[str, Any], message: bool
) -> None:
    warnings = warnings_of([foreseen(fine_tuning=kind, **changes)])

    named = f"fine_tuning={kind} needs about ten times that"
    assert [named in text and "--learning_rate 0.0005" in text for text in warnings] == [True] * message
    assert warnings_of([foreseen(fine_tuning="full", **changes)]) == []


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({"per_device_train_batch_size": 64, "training_arguments.warmup_ratio": 0.0}, True),  # sqrt(4) = 2
        ({"per_device_train_batch_size": 32, "training_arguments.warmup_ratio": 0.0}, False),
        ({"per_device_train_batch_size": 64, "training_arguments.warmup_ratio": 0.1}, False),
        (
            {
                "per_device_train_batch_size": 64,
                "training_arguments.warmup_ratio": 0.0,
                "training_arguments": {"warmup_steps": 20},
            },
            False,
        ),
    ],
)
def test_a_scaled_rate_asks_for_a_warm_up(changes: dict[str, Any], warns: bool) -> None:
    warnings = warnings_of([foreseen(**changes)])

    assert any("--training_arguments.warmup_ratio 0.06" in text for text in warnings) is warns


def test_a_job_that_its_limit_may_end_is_warned_about() -> None:
    job = foreseen(seconds=lambda _: 56_640.0, max_runtime_minutes=900)
    (text,) = warnings_of([job])

    assert text.startswith(
        "estimated 15 h 44 m (80 % interval 1.0 s to 277 h 47 m), and max_runtime_minutes 900 ends it"
    )
    assert text.endswith("it is paid and leaves no model; --max_runtime_minutes 16667")
    assert not limit_refusal(job)
    assert warnings_of([foreseen(seconds=lambda _: 53_000.0, max_runtime_minutes=900)]) == []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"force": True}, False),
        ({"probe_steps": 40}, False),
        ({"simulation.runs": "runs.csv", **CLUSTER}, False),
    ],
)
def test_a_job_that_its_limit_will_end_is_refused_unless_it_is_typed(changes: dict[str, Any], refused: bool) -> None:
    job = foreseen(seconds=lambda _: 7_626.0, low=6_601.0, high=9_000.0, max_runtime_minutes=110.0, **changes)

    text = limit_refusal(job)

    assert bool(text) is refused
    if refused:
        assert text.startswith(
            "max_runtime_minutes must be at least 111 for this job, got 110: it is estimated to take "
        )
        assert "2 h 7 m (80 % interval 1 h 50 m to 2 h 30 m)" in text
        assert text.endswith(
            "--max_runtime_minutes 150, fewer rows or epochs, or --force true to launch it all the same"
        )
        assert warnings_of([job]) == [f"refused when it is launched: {text}"]
    assert not limit_refusal(foreseen(seconds=lambda _: 7_626.0, low=6_599.0, max_runtime_minutes=110.0))


@pytest.mark.parametrize(("rows", "message"), [(7.0, True), (8.0, False), (None, False)])
def test_devices_without_a_row_of_their_own_are_named(rows: float | None, message: bool) -> None:
    job = foreseen(launcher="simulated", instance_type="ml.g5.48xlarge", rows=rows, seconds=perfect)

    assert ["8 devices share 7 rows in a batch" in text for text in warnings_of([job])] == [True] * message


def data_of(tmp_path: Path, train: list[int], validation: list[int]) -> PreparedDataset:
    """Prepared rows with so many of each class, which are called a, b and so on."""
    tmp_path.mkdir()
    for split, counts in (("train", train), ("validation", validation)):
        labels = [number for number, count in enumerate(counts) for _ in range(count)]
        table = pa.table({"label": pa.array(labels, pa.int64())})
        with pa.OSFile(str(tmp_path / f"{split}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return PreparedDataset(key="k", folder=tmp_path, labels=tuple("abc"[: len(train)]), facts={})


def test_a_class_of_one_percent_is_named_with_what_f1_over_so_few_rows_means(tmp_path: Path) -> None:
    def sentences(*counts: list[int]) -> list[str]:
        data = data_of(tmp_path / str(counts), *counts)
        return warnings_of([replace(foreseen(), dataset=data)])

    (text,) = sentences([891, 9], [99, 1])
    assert text.startswith("class 'b' has 9 of 900 training rows (1.0%) and 1 of 100 validation rows: F1 is the mean")
    assert "over 2 classes, and one of them moves it by up to 0.5;" in text
    (text,) = sentences([10, 1000, 1000], [3, 90, 90])
    assert "over 3 classes, and one of them moves it by up to 0.067;" in text
    (text,) = sentences([990, 10], [100, 0])
    assert "and none is in it;" in text
    assert sentences([940, 60], [94, 6]) == []


def perfect(spec: JobSpec) -> float:
    """Seconds of a training that scales perfectly."""
    return 8000.0 / (spec.processes * spec.instance_count)


@pytest.mark.parametrize(("has_worked", "message"), [(False, True), (True, False), (None, False)])
def test_several_instances_before_one_has_worked(has_worked: bool | None, message: bool) -> None:
    job = foreseen(**CLUSTER, instance_count=4, has_worked=has_worked, seconds=perfect)

    assert ["4 times as much; first --instance_count 1" in text for text in warnings_of([job])] == [True] * message


def test_efficiency_is_the_speed_up_over_one_device_for_each_device() -> None:
    def seconds(spec: JobSpec) -> float:
        return 900.0 if spec.processes * spec.instance_count == 1 else 800.0

    (text,) = warnings_of([foreseen(launcher="simulated", instance_type="ml.g5.12xlarge", seconds=seconds)])

    assert text.startswith("estimated efficiency 28% (below 50%): 4 devices take 800 s, one would take 900 s")  # 9 / 32
    assert text.endswith("--instance_type ml.g5.xlarge")
    (text,) = warnings_of([foreseen(**CLUSTER, instance_count=4, seconds=seconds)])
    assert text.endswith("--instance_count 1")


def test_a_cluster_that_is_half_as_fast_as_it_could_be_is_efficient_enough() -> None:
    def seconds(spec: JobSpec) -> float:
        return 800.0 if spec.processes * spec.instance_count == 1 else 400.0

    assert warnings_of([foreseen(**CLUSTER, instance_count=4, seconds=seconds)]) == []


def test_a_model_that_fits_no_single_device_is_not_compared_with_one() -> None:
    job: dict[str, Any] = {**CLUSTER, "instance_count": 4, "strategy": "fsdp", "seconds": lambda spec: 900.0}

    assert "estimated efficiency" in warnings_of([foreseen(**job)])[0]
    assert not [text for text in warnings_of([foreseen(**job, gib=10.1)]) if "efficiency" in text]


def test_the_same_training_is_compared_and_sharding_is_left_out() -> None:
    request: list[JobSpec] = []

    def seconds(spec: JobSpec) -> float:
        request.append(spec)
        return perfect(spec)

    cluster = {"launcher": "simulated", "instance_type": "ml.p4d.24xlarge", "instance_count": 2}
    warnings_of([foreseen(**cluster, strategy="smp", tensor_parallel_degree=4, global_batch_size=64, seconds=seconds)])

    alone = request[-1]
    assert (alone.data_parallel_devices, alone.plan().global_batch_size, alone.strategy) == (1, 64, "ddp")


def test_on_one_device_no_degree_and_no_memory_saver_is_left() -> None:
    sharded: dict[str, Any] = {
        "strategy": "fsdp",
        "pipeline_parallel_degree": 4,
        "micro_batches": 2,
        "hybrid_shard_degree": 2,
        "training_arguments.gradient_checkpointing": True,
        "activation_offloading": True,
        "cpu_offload": True,
    }
    spec = JobSpec(instance_type="ml.p4d.24xlarge", launcher="simulated", global_batch_size=64, **sharded)

    alone = spec.on_one_device(spec.plan())

    defaults = JobSpec()
    assert all(getattr(alone, name.partition(".")[0]) == getattr(defaults, name.partition(".")[0]) for name in sharded)
    assert alone.data_parallel_devices == 1


@pytest.mark.parametrize(
    ("changes", "mended"),
    [
        ({"gib": 9.0}, None),
        ({"gib": 9.1}, "--per_device_train_batch_size 8 --gradient_accumulation_steps 2"),
        ({"gib": 40.0}, "--per_device_train_batch_size 2 --gradient_accumulation_steps 8"),
        ({"gib": 20.0, "per_device_train_batch_size": 1}, "--fine_tuning lora"),
        ({"gib": 20.0, "per_device_train_batch_size": 1, "fine_tuning": "lora"}, "--max_seq_length 64"),
    ],
)
def test_memory_above_nine_tenths_is_said_with_what_trains_the_same_in_less(
    changes: dict[str, Any], mended: str | None
) -> None:
    warnings = warnings_of([foreseen(**changes)])

    assert [text.rpartition("; ")[2] for text in warnings] == ([] if mended is None else [mended])


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (1, "volume_size_in_gb 15, or leave it out"),
        (14, "volume_size_in_gb 14 is below 15 GiB"),  # 4.2 GiB, rounded up, and 10 to spare
        (15, None),
        (None, None),
    ],
)
def test_a_volume_below_what_lies_on_it_is_named(volume: int | None, message: str | None) -> None:
    job = foreseen(
        launcher="simulated",
        instance_type="ml.p3.2xlarge",
        sagemaker={"volume_size_in_gb": volume},
        disk_bytes=4.2 * 2**30,
    )

    warnings = warnings_of([job])

    assert len(warnings) == (message is not None)
    assert message is None or message in warnings[0]


def test_a_volume_of_an_instance_with_disks_of_its_own_changes_nothing() -> None:
    (text,) = warnings_of([foreseen(**CLUSTER, sagemaker={"volume_size_in_gb": 1}, disk_bytes=2**30)])

    assert "sagemaker.volume_size_in_gb 1 changes nothing: ml.g5.xlarge has disks of its own" in text


def test_without_prepared_inputs_the_number_of_weights_tells_the_disk() -> None:
    built = Architecture(parameters=10**9, matrices=10**9, layers=24, hidden_size=1024, vocabulary=30_000)
    full = disk_bytes(JobSpec(), JobInputs(), built)

    assert full == 4e9 * (1 + 2 + 3)  # read, written twice, and one checkpoint of weights and two moments
    assert disk_bytes(JobSpec(), JobInputs(), None) is None


def test_a_price_that_is_unknown_or_uncertain_is_said_once_for_each_type() -> None:
    unsure = Price(
        usd_per_hour=1.0,
        region="us-east-1",
        as_of="",
        source="uncertain: a blog",
        instance_type="ml.g6.xlarge",
        confidence="uncertain",
    )
    jobs = [foreseen(**CLUSTER, price=None, seed=seed) for seed in (1, 2)]
    jobs.append(foreseen(launcher="simulated", instance_type="ml.g6.xlarge", price=unsure))

    unknown, uncertain = [text for text in warnings_of(jobs) if "price of" in text]

    assert "ml.g5.xlarge in us-east-1 is not known" in unknown
    assert "ml.g6.xlarge in us-east-1" in uncertain
    assert "uncertain" in uncertain


def test_of_many_jobs_the_first_one_is_described_and_the_others_are_counted() -> None:
    jobs = [foreseen(learning_rate_scaling="none", global_batch_size=size) for size in (16, 64, 128)]

    (text,) = warnings_of(jobs)

    assert text.startswith("2 of 3 jobs, the first on 1 x local: global batch size 64 is above")


def test_a_search_is_told_only_what_is_true_of_all_its_points() -> None:
    jobs = [foreseen(learning_rate_scaling="none", global_batch_size=size) for size in (16, 64)]

    assert warnings_of(jobs, only_common=True) == []
    assert len(warnings_of(jobs[1:], only_common=True)) == 1


def run(*words: str) -> int:
    return main([words[0], *CLUSTER_WORDS, *words[1:]])


CLUSTER_WORDS = ("--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000")
PROVED = "has completed on an instance yet"


def test_several_instances_are_warned_of_until_such_a_job_has_completed(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--instance_count", "2") == 0
    assert PROVED in capsys.readouterr().err
    assert run("train", "--instance_count", "4") == 0
    assert PROVED not in capsys.readouterr().err
    assert run("train", "--instance_count", "4", "--fine_tuning", "head") == 0
    assert PROVED in capsys.readouterr().err


def test_a_simulated_run_does_not_show_that_a_real_job_works(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train") == 0
    real = ("--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000", "--region", "us-east-1")
    assert main(["estimate", *real, "--instance_count", "2"]) == 0

    assert PROVED in capsys.readouterr().out


def test_a_run_keeps_its_warnings_and_they_are_said_once(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--global_batch_size", "128") == 0

    output = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    (recorded,) = MlflowClient(f"sqlite:///{workplace / 'mlflow.db'}").search_runs(["0"])
    assert len(output) == 1
    assert recorded.data.tags["paretune.warnings"] == output[0].removeprefix("warning: ")


def test_a_dry_run_says_the_phases_of_the_job(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--dry_run", "true", "--json") == 0
    phases = json.loads(capsys.readouterr().out)["phases"]

    assert list(phases) == ["waiting", "starting", "data", "image", "training", "uploading"]
    assert all(phase["seconds_low"] <= phase["seconds"] <= phase["seconds_high"] for phase in phases.values())


def test_estimate_and_dry_run_say_them_as_well(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "--global_batch_size", "128", "--json") == 0
    (estimated,) = json.loads(capsys.readouterr().out)["warnings"]
    assert run("train", "--global_batch_size", "128", "--dry_run", "true", "--json") == 0
    (output,) = json.loads(capsys.readouterr().out)["warnings"]

    assert estimated == output
    assert "global batch size 128 is above reference_batch_size 16" in output
