"""`paretune estimate --like`: what a training that has run would have cost elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError
from mlflow import MlflowClient

from paretune.commands.estimate.like import of_description
from paretune.core.errors import BadInput
from paretune.core.machine import processor_name
from paretune.estimating import hardware
from paretune.specification.job import JobSpec
from tests.support.recorded_jobs import put_run
from tests.support.stand_ins.aws import Aws
from tests.support.typed import Run

Answer = Callable[..., dict[str, Any]]
BERT = {"model": "bert-base-uncased", "dataset": "my/data", "max_train_samples": 100_000, "max_seq_length": 256}
DESCRIBED: dict[str, Any] = {
    "TrainingJobStatus": "Completed",
    "BillableTimeInSeconds": 3000,
    "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1},
    "HyperParameters": {
        "model_name_or_path": '"bert-base-uncased"',  # as the SageMaker SDK writes a string
        "train_batch_size": "8",
        "epochs": "3",
        "max_length": "256",
        "fp16": "true",
    },
}


@pytest.fixture
def answer(no_settings: None, typed: Run) -> Answer:
    """Return a function that runs `paretune estimate --like ...`, and returns its JSON."""

    def ask(like: str, **texts: object) -> dict[str, Any]:
        words = [f"--{name}={text}" for name, text in {"like": like, "region": "us-east-1", **texts}.items()]
        code, out, err = typed("estimate", "--json", *words)
        assert code == 0, err
        return dict(json.loads(out))

    return ask


def recorded(client: MlflowClient, seconds: float, **changes: Any) -> str:
    tags = {"origin": "measured", "state": "Completed"}
    return put_run(client, JobSpec(**{**BERT, **changes}).as_text(), tags, {"billable_seconds": seconds})


def test_a_run_of_the_store_is_shown_as_it_ran_and_on_what_was_asked_for(client: MlflowClient, answer: Answer) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", per_device_train_batch_size=2)
    made = answer(run_id[:8], instance_type="ml.g5.xlarge", instance_count="1,2")

    first, *others = made["rows"]
    assert (first["seconds"], first["seconds_high"], first["basis"]) == (3000, 3000, "measured")
    assert [(row["instance_type"], row["instance_count"]) for row in others] == [("ml.g5.xlarge", n) for n in (1, 2)]
    parts = ("compute", "memory", "launches", "exchange", "evaluation", "start", "upload")
    assert sum(others[0][f"seconds_{part}"] for part in parts) == pytest.approx(others[0]["seconds"], abs=1)
    assert others[1]["seconds_exchange"] > others[0]["seconds_exchange"] == 0
    assert {row["global_batch_size"] for row in made["rows"]} == {16}  # as many rows in a step: 8 GPUs with 2
    assert made["remarks"][0].startswith("it took 50 m on 1 x ml.p4d.24xlarge and cost 21.04")
    assert made["remarks"][1].startswith("on 1 x ml.g5.xlarge it would have cost ")
    assert " less and taken " in made["remarks"][1]


def test_without_clusters_it_is_shown_on_every_gpu_type_with_a_price(client: MlflowClient, answer: Answer) -> None:
    made = answer(recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", per_device_train_batch_size=2))

    types = [row["instance_type"] for row in made["rows"]]
    assert types[0] == "ml.p4d.24xlarge"
    assert {"ml.g5.xlarge", "ml.g4dn.xlarge", "ml.p5.48xlarge"} <= set(types)
    assert not {"ml.m5.large", "ml.g5.2xlarge"} & set(types)  # no GPU; the GPU of an ml.g5.xlarge for more dollars
    assert all(row["cost_usd"] is not None and row["fits"] != "no" for row in made["rows"])


def test_what_would_have_cost_less_by_a_doubtful_price_says_so(
    client: MlflowClient, answer: Answer, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "ml.g5.xlarge,us-east-1,0.5,2020,an old note"
    (workplace / "own.csv").write_text(f"instance_type,region,price_usd_per_hour,as_of,source\n{row}\n")
    monkeypatch.setenv("PARETUNE_PRICES", "own.csv")
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge")
    (sentence,) = [text for text in answer(run_id, instance_type="ml.g5.xlarge")["remarks"] if "less and taken" in text]

    assert sentence.endswith("in 80 % of such jobs, at a price of 2020)")


def test_a_training_job_that_something_else_has_launched_is_described_by_sagemaker(answer: Answer, aws: Aws) -> None:
    aws.foreign["their-job"] = {**DESCRIBED, "SecondaryStatusTransitions": []}
    first, other = answer("their-job", instance_type="ml.g5.2xlarge")["rows"]

    assert first["seconds"] == 3000
    assert (first["model"], first["precision"], first["max_seq_length"]) == ("bert-base-uncased", "fp16", 256)
    assert (other["instance_type"], other["global_batch_size"]) == ("ml.g5.2xlarge", 64)
    assert 8 * first["seconds"] < other["seconds"] < 50 * first["seconds"]  # 1 GPU, not 8, and a sixth as fast


def test_what_no_record_has_must_be_typed(answer: Answer, aws: Aws, typed: Run) -> None:
    aws.foreign["silent"] = {**DESCRIBED, "SecondaryStatusTransitions": [], "HyperParameters": {}}

    code, _, err = typed("estimate", "--like=silent", "--region=us-east-1")

    assert code == 2
    assert "training job silent does not show its model and max_seq_length: add" in err
    assert answer("silent", instance_type="ml.g5.2xlarge", model="bert-base-uncased", max_seq_length="256")["rows"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"TrainingJobStatus": "Failed"}, "must name a training job that has completed, training job x is Failed"),
        ({"BillableTimeInSeconds": None}, "must name a training job with measured seconds"),
        ({"ResourceConfig": {"InstanceGroups": []}}, "instance groups of several types"),
    ],
)
def test_a_job_without_seconds_or_cluster_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        of_description("x", {**DESCRIBED, **changes})


def test_the_seconds_of_a_spot_job_are_those_that_it_took(answer: Answer) -> None:
    spot = {**DESCRIBED, "EnableManagedSpotTraining": True, "TrainingTimeInSeconds": 9000}

    assert of_description("x", spot).seconds == 9000


def test_a_number_of_rows_that_is_typed_is_not_guessed_from_the_seconds(answer: Answer, aws: Aws) -> None:
    aws.foreign["their-job"] = {**DESCRIBED, "SecondaryStatusTransitions": []}

    seconds = [
        answer("their-job", instance_type="ml.g5.2xlarge", max_train_samples=str(rows))["rows"][1]["seconds"]
        for rows in (99_999, 100_000, 100_001)
    ]

    assert seconds == pytest.approx([seconds[0]] * 3, rel=0.001)


def test_another_strategy_on_the_same_cluster_is_estimated(client: MlflowClient, answer: Answer) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", instance_count=2)

    rows = answer(run_id, strategy="ddp,fsdp")["rows"]

    assert [(row["instance_count"], row["strategy"]) for row in rows] == [(2, "ddp"), (2, "fsdp")]


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_train_epochs", "1"), ("max_seq_length", "128"), ("per_device_train_batch_size", "4"), ("probe_steps", "20")],
)
def test_the_seconds_of_a_recorded_run_are_not_those_of_another_training(
    name: str, value: str, client: MlflowClient, no_settings: None, typed: Run
) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", num_train_epochs=3)

    code, out, err = typed("estimate", f"--like={run_id}", "--region=us-east-1", f"--{name}={value}")

    assert (code, out) == (2, "")
    assert f"{name} must be that of run {run_id[:8]}" in err


def test_what_a_recorded_run_has_recorded_may_be_typed_too(client: MlflowClient, answer: Answer) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", num_train_epochs=3)

    made = answer(run_id, num_train_epochs=3, max_seq_length=256, per_device_train_batch_size=16, precision="bf16")

    assert made["rows"][0]["seconds"] == 3000  # on this GPU, the precision `auto` is bf16


def test_a_bad_division_of_the_model_is_refused(client: MlflowClient, no_settings: None, typed: Run) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", num_train_epochs=3)

    for value, fault in (("abc", "must be a whole number"), ("2", "needs strategy=fsdp or smp, got strategy=ddp")):
        code, _, err = typed("estimate", f"--like={run_id}", "--region=us-east-1", f"--tensor_parallel_degree={value}")
        assert code == 2
        assert fault in err


def test_how_other_clusters_divide_the_model_may_be_typed(client: MlflowClient, answer: Answer) -> None:
    run_id = recorded(client, 3000.0, instance_type="ml.p4d.24xlarge", num_train_epochs=3)

    ran, other = answer(run_id, instance_type="ml.g5.12xlarge", strategy="fsdp", tensor_parallel_degree=2)["rows"]

    assert (ran["seconds"], ran["strategy"], ran["tensor_parallel_degree"]) == (3000, "ddp", None)
    assert (other["strategy"], other["tensor_parallel_degree"]) == ("fsdp", 2)


@pytest.mark.parametrize("where", ["tag", "profile"])
def test_dollars_are_those_of_the_region_of_the_run_or_else_of_the_profile(
    client: MlflowClient, no_settings: None, typed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (profile := tmp_path / "profile.toml").write_text('region = "eu-west-1"\n' if where == "profile" else "")
    monkeypatch.setenv("PARETUNE_PROFILE", str(profile))
    tags = {"origin": "measured", "state": "Completed", **({"region": "eu-west-1"} if where == "tag" else {})}
    ran_on = "ml.g5.xlarge" if where == "tag" else "local"
    run_id = put_run(client, JobSpec(**BERT, instance_type=ran_on).as_text(), tags, {"billable_seconds": 3000.0})

    code, out, err = typed("estimate", "--json", f"--like={run_id}", "--instance_type=ml.g5.2xlarge")

    assert code == 0, err
    assert json.loads(out)["region"] == "eu-west-1"


def test_the_discount_of_a_spot_job_is_not_known(answer: Answer, aws: Aws) -> None:
    spot = {**DESCRIBED, "EnableManagedSpotTraining": True, "TrainingTimeInSeconds": 3000, "BillableTimeInSeconds": 900}
    aws.foreign["spot-job"] = {**spot, "SecondaryStatusTransitions": []}

    remarks = answer("spot-job", instance_type="ml.g5.2xlarge")["remarks"]

    assert remarks[0] == "it took 50 m on 1 x ml.p4d.24xlarge and would have cost 21.04 USD on demand"


@pytest.mark.parametrize(
    ("changes", "measured", "remark"),
    [
        (
            {"entry_script": "train.py"},
            {},
            "it took 50 m on 1 x ml.p4d.24xlarge and would have cost 21.04 USD on demand",
        ),
        ({}, {"throughput_samples_per_second": 200.0}, "it took 50 m on 1 x ml.p4d.24xlarge and would have cost 21.04"),
        ({}, {"throughput_samples_per_second": 200.0, "resumed": 1.0}, "it would take about "),
    ],
)
def test_the_discounted_seconds_and_dollars_of_a_spot_run_are_not_those_that_it_took(
    changes: dict[str, Any], measured: dict[str, float], remark: str, client: MlflowClient, answer: Answer
) -> None:
    params = JobSpec(**BERT, instance_type="ml.p4d.24xlarge", spot=True, **changes).as_text()
    tags = {"origin": "measured", "state": "Completed", "training_seconds": "3000"}
    run_id = put_run(client, params, tags, {"billable_seconds": 900.0, "cost_usd": 6.31, **measured})
    typed = {"model": "bert-base-uncased", "max_seq_length": 256} if changes else {}
    said = answer(run_id, instance_type="ml.g5.2xlarge", **typed)["remarks"][0]

    assert said.startswith(remark)
    assert said.endswith(" USD on demand")
    assert "6.31" not in said


def test_a_run_on_the_gpu_of_this_machine_is_shown_on_types_with_gpus(client: MlflowClient, answer: Answer) -> None:
    tags = {"origin": "measured", "state": "Completed", "used_device": "NVIDIA A10G"}
    run_id = put_run(client, JobSpec(**BERT).as_text(), tags, {"billable_seconds": 3000.0})

    types = [row["instance_type"] for row in answer(run_id)["rows"]][1:]

    assert "ml.g5.xlarge" in types
    assert "ml.m5.large" not in types


@pytest.mark.parametrize("device", [processor_name(), "another name of the processor"])
def test_a_run_on_the_processor_of_this_machine_is_shown_on_types_without_gpus(
    device: str, client: MlflowClient, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = hardware.named("NVIDIA A10G") if device == processor_name() else None  # of this machine
    monkeypatch.setattr(hardware, "local_gpu", lambda: gpu)
    tags = {"origin": "measured", "state": "Completed", "used_device": device}
    run_id = put_run(client, JobSpec(**BERT).as_text(), tags, {"billable_seconds": 3000.0})

    types = [row["instance_type"] for row in answer(run_id)["rows"]][1:]

    assert "ml.c5.xlarge" in types
    assert "ml.g5.xlarge" not in types


def test_a_local_run_of_another_machine_is_refused(client: MlflowClient, no_settings: None, typed: Run) -> None:
    tags = {"origin": "measured", "state": "Completed", "machine": "another-host"}
    run_id = put_run(client, JobSpec(**BERT).as_text(), tags, {"billable_seconds": 3000.0})

    code, _, err = typed("estimate", f"--like={run_id}", "--region=us-east-1")

    assert code == 2
    assert f"like must name a job of this machine or of SageMaker, {run_id[:8]} ran on another machine" in err


def test_a_local_run_is_shown_with_more_processes_on_this_machine(client: MlflowClient, answer: Answer) -> None:
    rows = answer(recorded(client, 3000.0), instance_count="1,2")["rows"]

    assert [(row["instance_type"], row["instance_count"]) for row in rows] == [("local", 1), ("local", 2)]


def test_a_published_run_is_called_so_and_counted_once(client: MlflowClient, answer: Answer) -> None:
    params = JobSpec(**BERT, instance_type="ml.p4d.24xlarge").as_text()
    run_id = put_run(client, params, {"origin": "published", "state": "Completed"}, {"billable_seconds": 3000.0})

    first, other = answer(run_id, instance_type="ml.g5.xlarge")["rows"]

    assert first["basis"] == "published"
    assert other["basis"].startswith("1 published run of this model")


def test_a_job_that_no_account_may_be_asked_for_or_that_nobody_knows_is_refused(
    typed: Run, workplace: Path, aws: Aws
) -> None:
    words = ("estimate", "--like=their-job", "--region=us-east-1")
    code, _, err = typed(*words)
    assert (code, "us-east-1 has no SageMaker training job their-job" in err) == (2, True)

    aws.refuse("DescribeTrainingJob", NoCredentialsError())
    code, _, err = typed(*words)
    assert (code, "training job their-job could not be looked up on SageMaker" in err) == (2, True)


def test_without_a_region_a_name_that_nobody_knows_is_said_to_be_no_run_here(
    client: MlflowClient, no_settings: None, typed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "absent")

    code, _, err = typed("estimate", "--like=1a2b3c4e")

    assert code == 2
    assert "no job here has the run id or the name 1a2b3c4e" in err
    assert "no AWS region is set" in err


OF_THE_TRAINER = {
    "AlgorithmSpecification": {
        "TrainingImage": "1.dkr.ecr.eu-west-1.amazonaws.com/huggingface-pytorch-training:1.7-transformers4.6-gpu-py36"
    },
    "HyperParameters": {
        "model_name": '"distilbert-base-uncased"',
        "train_batch_size": "32",
        "max_length": "256",
        "sagemaker_program": '"train.py"',
        "save_steps": "200",
        "output_dir": '"/opt/ml/checkpoints"',
    },
    "ResourceConfig": {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 1},
}


@pytest.mark.parametrize(
    ("started", "strategy"), [({}, "dp"), ({"sagemaker_torch_distributed_enabled": "true"}, "ddp")]
)
def test_the_program_of_a_described_job_is_read_from_its_image_and_hyperparameters(
    answer: Answer, aws: Aws, started: dict[str, str], strategy: str
) -> None:
    hyperparameters = {**OF_THE_TRAINER["HyperParameters"], **started}
    aws.foreign["theirs"] = {**DESCRIBED, **OF_THE_TRAINER, "HyperParameters": hyperparameters}

    first, other = answer("theirs", instance_type="ml.g5.xlarge")["rows"]

    assert (first["program"], first["strategy"]) == ("trainer-4.6", strategy)
    assert other["program"] == "trainer-4.6"
    assert first["basis"] == "measured"


def test_a_job_in_another_image_names_no_program(answer: Answer, aws: Aws) -> None:
    aws.foreign["plain"] = {**DESCRIBED, "AlgorithmSpecification": {"TrainingImage": "1.dkr.ecr/pytorch-training:2.6"}}

    assert answer("plain", instance_type="ml.g5.xlarge")["rows"][0]["program"] == "paretune"
