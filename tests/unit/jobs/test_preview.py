"""What is shown about a job before it is paid for, and its dry run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.estimating.estimator import Estimate
from paretune.estimating.memory import MemoryPrediction
from paretune.estimating.timing import Prediction
from paretune.jobs.preview import batch_in_words, preview, texts_of
from paretune.jobs.warnings import ForeseenJob, data_warnings, limit_refusal, warnings_of
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from paretune.user_code.inputs import code_inputs
from tests.support.scripted_jobs import ScriptedLauncher
from tests.support.workplaces import make_workplace, planned

PRICE = Price(usd_per_hour=1.0, region="us-east-1", as_of="", source="a list", confidence="notional")
CLUSTER = {"launcher": "simulated", "instance_type": "ml.g5.xlarge"}


def foreseen(
    *,
    seconds: float = 900.0,
    low: float = 1.0,
    high: float = 1e6,
    gib: float = 1.0,
    **arguments: Any,
) -> ForeseenJob:
    """Return a job with an estimate of `seconds`, and of `gib` out of 10 GiB.

    Attributes of `ForeseenJob` take precedence over parameters of a job.
    """
    custom = {name: arguments.pop(name) for name in ("disk_bytes", "price") if name in arguments}
    fitting = arguments.pop("fitting", None)
    spec = JobSpec(**{"learning_rate_scaling": "sqrt", **arguments})
    estimate = Estimate(
        spec=spec,
        plan=spec.plan(),
        measured_here=0,
        time=Prediction(
            seconds=seconds,
            seconds_low=low,
            seconds_high=high,
            startup_seconds=300.0,
            step_seconds=1.0,
            steps=10,
        ),
        memory=MemoryPrediction(gib=gib, gib_low=gib, gib_high=gib, usable_gib=10.0),
        price=PRICE,
        basis="a guess",
    )
    if fitting is not None:
        estimate = replace(estimate, find_remedy=lambda: replace(estimate, changes=fitting))
    reference = {"disk_bytes": None, "price": PRICE} | custom
    return ForeseenJob(spec=spec, region="us-east-1", estimate=estimate, **reference)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "--global_batch_size 2, or more epochs"),
        ({"instance_count": 4}, "--global_batch_size 4, or more epochs"),  # a multiple of the devices
        ({"per_device_train_batch_size": 64}, "many steps: use more epochs"),
        ({"instance_count": 64}, "many steps: use more epochs"),  # 64 devices cannot have fewer than 64 rows
    ],
)
def test_a_batch_above_the_rows_is_answered_with_one_that_is_possible(changes: dict[str, Any], remedy: str) -> None:
    data = PreparedDataset(key="k", folder=Path("rows"), labels=(), facts={"train_rows": 50.0}, digests={})

    (warning,) = data_warnings(JobSpec(global_batch_size=64, **changes), JobInputs(dataset=data))

    assert warning.endswith(remedy)


def test_a_batch_above_the_rows_is_no_reason_for_a_warning_if_max_steps_sets_the_number_of_steps() -> None:
    data = PreparedDataset(key="k", folder=Path("rows"), labels=(), facts={"train_rows": 50.0}, digests={})

    assert not data_warnings(
        JobSpec(global_batch_size=64, training_arguments={"max_steps": 500}), JobInputs(dataset=data)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": 17}, False),  # 5e-5 is within a tenth of 5e-5 x sqrt(17 / 16)
        ({"global_batch_size": 64}, True),
        ({"global_batch_size": 64, "learning_rate": 1e-4}, False),  # scaled by hand
        ({"global_batch_size": 64, "probe_steps": 40}, False),  # which needs no F1
        ({}, False),
    ],
)
def test_a_large_batch_asks_for_a_larger_rate(changes: dict[str, Any], message: bool) -> None:
    warnings = warnings_of([foreseen(**{"learning_rate_scaling": "none"} | changes)])

    assert ["--learning_rate_scaling sqrt" in text for text in warnings] == [True] * message


PLAIN = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n"
TRAINER = "import transformers\ntransformers.HfArgumentParser([transformers.TrainingArguments])\n"
OWN_FIELDS = "from transformers import HfArgumentParser\n@dataclass\nclass Model:\n    size: int = 1\n"
GIVEN = {"learning_rate": 5e-5, "per_device_train_batch_size": 16}


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("", {}, False),  # a project
        (PLAIN, {}, False),
        (PLAIN, {"learning_rate": 5e-5}, False),  # the script chooses its batch
        (PLAIN, {"per_device_train_batch_size": 16}, False),  # and here, its learning rate
        (PLAIN, GIVEN, True),
        (TRAINER, {}, True),  # such a script always gets both
        (f"{OWN_FIELDS}\nHfArgumentParser(Model)\n", {}, False),  # unless it declares neither
        (f"{OWN_FIELDS}    learning_rate: float = 1e-3\nHfArgumentParser(Model)\n", {}, False),
    ],
)
def test_a_program_that_chooses_its_batch_or_rate_is_not_asked_for_a_larger_rate(
    tmp_path: Path, script: str, changes: dict[str, Any], message: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    program: dict[str, Any] = {"entry_script": str(path)} if script else {"project": str(tmp_path)}

    job = foreseen(learning_rate_scaling="none", instance_type="ml.g5.12xlarge", **program, **changes)  # four devices
    job = replace(job, command=code_inputs(job.spec.code_request, Path(), prepare=False).command if script else None)

    assert any("is not scaled" in text for text in warnings_of([job])) == message


def test_a_job_that_its_limit_may_end_is_warned_about() -> None:
    job = foreseen(seconds=56_640.0, max_runtime_minutes=900, **CLUSTER)
    (text,) = warnings_of([job])

    assert text.startswith(
        "estimated 15 h 44 m (80 % interval 1.0 s to 11 d 14 h), and max_runtime_minutes 900 ends it"
    )
    assert text.endswith("it is billed and leaves no model; --max_runtime_minutes 16667")
    assert not limit_refusal(job)
    assert warnings_of([foreseen(seconds=53_000.0, max_runtime_minutes=900)]) == []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        (CLUSTER, True),
        ({}, False),  # local jobs are free, and other programs may have slowed the measured ones
        ({"force": "limit", **CLUSTER}, False),
        ({"probe_steps": 40, **CLUSTER}, False),
        ({"simulation.runs": "runs.csv", **CLUSTER}, False),
    ],
)
def test_a_job_that_its_limit_will_end_is_refused_if_it_is_paid_unless_it_is_typed(
    changes: dict[str, Any], refused: bool
) -> None:
    job = foreseen(seconds=7_626.0, low=6_601.0, high=9_000.0, max_runtime_minutes=110.0, **changes)

    text = limit_refusal(job)

    assert bool(text) is refused
    if refused:
        assert text.startswith(
            "max_runtime_minutes must be at least 111 for this job, got 110: it is estimated to take "
        )
        assert "2 h 7 m (80 % interval 1 h 50 m to 2 h 30 m)" in text
        assert text.endswith(
            "--max_runtime_minutes 150, fewer rows, epochs or steps, or --force limit to launch it anyway"
        )
        assert warnings_of([job]) == [f"refused when it is launched: {text}"]
    assert not limit_refusal(foreseen(seconds=7_626.0, low=6_599.0, max_runtime_minutes=110.0, **CLUSTER))


@pytest.mark.parametrize(
    ("instance_type", "given_gib", "disk", "remedy"),
    [
        ("ml.m5.large", 100, "sagemaker.volume_size_in_gb 100", "--sagemaker.volume_size_in_gb 310, or leave it out"),
        ("ml.g5.xlarge", 100, "the disk of ml.g5.xlarge with 232 GiB", "use an instance_type with larger disks"),
        ("ml.g5.xlarge", 400, "the disk of ml.g5.xlarge with 232 GiB", "use an instance_type with larger disks"),
        ("ml.m5.large", 400, "", ""),
        ("ml.g5.12xlarge", 100, "", ""),
    ],
)
def test_a_disk_that_may_be_full_is_said_with_how_to_get_a_larger_one(
    instance_type: str, given_gib: int, disk: str, remedy: str
) -> None:
    given = {"sagemaker.volume_size_in_gb": given_gib, "disk_bytes": 300 * 2**30, "max_runtime_minutes": 900}

    warnings = warnings_of([foreseen(**{**CLUSTER, "instance_type": instance_type}, **given)])

    texts = [text for text in warnings if "a full disk" in text]
    assert [(text.partition(" is below 310 GiB, ")[0], text.rpartition("; ")[2]) for text in texts] == (
        [(disk, remedy)] if disk else []
    )


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"gib": 10.0}, None),
        ({"gib": 10.1}, "nothing that paretune knows fits: use a smaller model, or a shorter max_seq_length"),
        (
            {"gib": 20.0, "fitting": {"fine_tuning": "lora", "per_device_train_batch_size": 8}},
            "--fine_tuning lora --per_device_train_batch_size 8 fits (15 m, 0.250 USD)",
        ),
    ],
)
def test_memory_above_that_of_the_device_is_said_with_what_fits_and_its_time(
    changes: dict[str, Any], remedy: str | None
) -> None:
    warnings = warnings_of([foreseen(**changes)])

    assert [text.rpartition("; ")[2] for text in warnings] == ([] if remedy is None else [remedy])


def test_a_price_that_is_unknown_or_uncertain_is_said_once_for_each_type() -> None:
    unsure = replace(PRICE, source="uncertain: a blog", instance_type="ml.g6.xlarge", confidence="uncertain")
    jobs = [foreseen(**CLUSTER, price=None, seed=seed) for seed in (1, 2)]
    jobs.append(foreseen(launcher="simulated", instance_type="ml.g6.xlarge", price=unsure))

    unknown, uncertain = [text for text in warnings_of(jobs) if "price of" in text]

    assert "ml.g5.xlarge in us-east-1 is not known" in unknown
    assert "ml.g6.xlarge in us-east-1" in uncertain
    assert "uncertain" in uncertain


def test_a_search_shows_only_messages_that_are_true_of_all_its_points() -> None:
    jobs = [foreseen(learning_rate_scaling="none", global_batch_size=size) for size in (16, 64)]

    assert warnings_of(jobs, only_common=True) == []
    assert len(warnings_of(jobs[1:], only_common=True)) == 1


def test_a_job_on_sagemaker_is_shown_with_what_it_uploads_and_may_cost(tmp_path: Path) -> None:
    facts = {"train_rows": 900.0, "validation_rows": 100.0, "train_tokens": 20_000.0}
    inputs = JobInputs(dataset=PreparedDataset(key="k", folder=tmp_path, labels=("a", "b"), facts=facts, digests={}))
    channels = [
        {"ChannelName": name, "InputMode": "File", "DataSource": {"S3DataSource": {"S3Uri": f"s3://bucket/{name}"}}}
        for name in ("dataset", "model", "code")
    ]
    request = {"InputDataConfig": channels, "OutputDataConfig": {"S3OutputPath": "s3://bucket/results"}}
    spec = JobSpec(instance_type="ml.g5.xlarge", instance_count=2, num_train_epochs=3.0)
    job = ForeseenJob(
        spec=spec, region="us-east-1", disk_bytes=100e9, price=replace(PRICE, confidence="confirmed"), estimate=None
    )

    class Asking(ScriptedLauncher):
        def preview(self, *_: object) -> dict[str, Any]:
            return request

    workplace = make_workplace(launcher=Asking([]), home=tmp_path)
    plan = planned(spec, workplace, inputs)
    plan = replace(plan, card=replace(plan.card, texts=texts_of(job, inputs, 2.9)))
    lines = preview(plan, workplace).summary()

    assert lines["where"] == "SageMaker, 2 x ml.g5.xlarge, results in s3://bucket/results"
    assert lines["worst case"] == "2.90 USD; the job is stopped after 1 h"
    assert lines["leaves this machine"].endswith("dataset, model, code")


def test_a_job_on_this_machine_is_shown_to_send_nothing_away(tmp_path: Path) -> None:
    workplace, spec = make_workplace(home=tmp_path), JobSpec()
    job = ForeseenJob(spec=spec, region="us-east-1", disk_bytes=None, price=None, estimate=None)
    plan = planned(spec, workplace)
    plan = replace(plan, card=replace(plan.card, texts=texts_of(job, JobInputs(), None)))

    lines = preview(plan, workplace).summary()

    assert lines["leaves this machine"] == "nothing"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, "global batch size 8 = 4 x 1 x 2, "),
        (
            {"global_batch_size": 7, "per_device_train_batch_size": 4},
            "global batch size 7 in 2 parts of at most 4 rows,",
        ),
        (
            {"global_batch_size": 14, "per_device_train_batch_size": 4, "instance_count": 2},
            "global batch size 14 in 2 parts of at most 4 rows on each of 2 devices, ",
        ),
    ],
)
def test_a_batch_is_shown_as_an_equation_only_if_it_is_one(changes: dict[str, Any], words: str) -> None:
    assert batch_in_words(JobSpec(**changes).plan()).startswith(words)
