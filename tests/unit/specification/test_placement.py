"""The rules of a placement: what contradicts itself is said before anything is asked of AWS."""

import json
from typing import Any

import pytest
from paretune.specification.placement import placement_faults, unsupported

from paretune.core.errors import BadInput
from paretune.core.tags import MOST_TAGS
from paretune.specification.job import JobSpec
from paretune.specification.parameters import split_list
from paretune.specification.rules import SMDDP_INSTANCE_TYPES, looks_secret

P4D = "ml.p4d.24xlarge"


def faults(**changes: object) -> list[str]:
    return placement_faults(JobSpec(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"instance_count": 4},
        {"instance_type": "ml.g5.xlarge", "spot": True, "max_wait_minutes": 60.0},
        {"instance_type": "ml.g5.xlarge", "keep_alive_minutes": 360.0},
        {"instance_type": "ml.g5.xlarge", "sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1"},
        {"instance_type": "ml.g5.xlarge", "launcher": "sagemaker", "tags": {"team": "search"}},
        {"instance_type": P4D, "strategy": "smp", "tensor_parallel_degree": 4},
    ],
)
def test_what_goes_together_has_no_faults(changes: dict[str, object]) -> None:
    assert faults(**changes) == []


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"instance_type": "m5.large"},
            "must be local or one of SageMaker's (ml.*), got 'm5.large': did you mean ml.m5.large?",
        ),
        ({"instance_type": "ml.g5.xlrage"}, "did you mean ml.g5.xlarge"),
        ({"instance_type": "ml.trn1.32xlarge"}, "has AWS Trainium chips, which paretune cannot use"),
        ({"strategy": "smddp"}, "strategy smddp needs GPU instances of SageMaker"),
        ({"spot": True}, "spot is for SageMaker"),
        ({"processes_per_instance": 2}, "processes_per_instance is for SageMaker"),
        ({"fallback_instance_types": "ml.g5.xlarge"}, "fallback_instance_types is for SageMaker: set instance_type"),
        ({"launcher": "sagemaker"}, "launcher sagemaker needs an instance_type such as ml.g5.xlarge, got 'local'"),
        ({"instance_type": "ml.g5.xlarge", "max_wait_minutes": 90.0}, "max_wait_minutes is for spot jobs"),
        (
            {"instance_type": "ml.g5.xlarge", "spot": True, "max_wait_minutes": 30.0},
            "max_wait_minutes must be at least max_runtime_minutes (60), got 30",
        ),
        (
            {"instance_type": "ml.g5.xlarge", "sagemaker.subnets": "subnet-1"},
            "subnets and security_group_ids go together",
        ),
        (
            {"instance_type": "ml.g5.xlarge", "sagemaker.security_group_ids": "sg-1", "sagemaker.subnets": ","},
            "go together",
        ),
        ({"instance_type": "ml.g5.xlarge", "spot": True, "keep_alive_minutes": 5.0}, "exclude each other"),
        ({"instance_type": "ml.g5.xlarge", "tags": {"a": 1}}, "tags must map names to texts"),
        ({"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.g6.xlarge,ml.nope.1"}, "'ml.nope.1'"),
        (
            {"instance_type": P4D, "tensor_parallel_degree": 2},
            "tensor_parallel_degree goes with strategy=fsdp or smp, got",
        ),
        (
            {"instance_type": P4D, "strategy": "smp", "tensor_parallel_degree": 3},
            "tensor_parallel_degree must divide the 8 devices, got 3: use 1, 2, 4, 8",
        ),
    ],
)
def test_what_contradicts_itself_is_one_fault(changes: dict[str, object], part: str) -> None:
    message = [fault for fault in faults(**changes) if part in fault]

    assert len(message) == 1


def test_all_faults_come_at_once() -> None:
    messages = faults(
        instance_type="ml.g5.xlarge",
        spot=True,
        keep_alive_minutes=5.0,
        max_wait_minutes=1.0,
        sagemaker={"subnets": "subnet-1"},
        tensor_parallel_degree=2,
        tags={"a": 1},
    )

    assert len(messages) == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hf", "hf_" + "a1B2" * 8),
        ("note", "AKIA" + "A" * 16),
        ("x", "ghp_" + "a" * 36),
        ("db", "postgres://ada:lovelace@db"),
        ("MLFLOW_TRACKING_PASSWORD", "correct-horse-battery"),
        ("api-key", "0123456789abcdef"),
    ],
)
def test_a_tag_that_looks_like_a_secret_is_refused_without_showing_it(name: str, value: str) -> None:
    assert looks_secret(name, value)
    with pytest.raises(BadInput) as caught:
        JobSpec(instance_type="ml.g5.xlarge", tags={name: value})

    assert name in str(caught.value)
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", "token-classification"),
        ("max_tokens", "512"),
        ("token", "none"),
        ("secret", "no secret in here, just words"),
        ("url", "https://example.org/a:b"),
        ("commit", "0123456789abcdef0123456789abcdef01234567"),
    ],
)
def test_an_innocent_tag_is_taken(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_there_is_room_for_paretune_s_own_tags() -> None:
    assert faults(instance_type="ml.g5.xlarge", tags={f"t{number}": "x" for number in range(MOST_TAGS)}) == []
    (fault,) = faults(instance_type="ml.g5.xlarge", tags={f"t{number}": "x" for number in range(MOST_TAGS + 1)})
    assert fault == "tags must be at most 45, got 46"


@pytest.mark.parametrize(
    ("changes", "processes", "devices"),
    [
        ({"instance_count": 3}, 1, 3),
        ({"instance_type": "ml.m5.large", "instance_count": 2}, 1, 2),
        ({"instance_type": "ml.m5.large", "processes_per_instance": 2, "instance_count": 2}, 2, 4),
        ({"instance_type": "ml.g5.12xlarge", "instance_count": 2}, 4, 8),
        ({"instance_type": P4D, "strategy": "smp", "tensor_parallel_degree": 4}, 8, 2),
    ],
)
def test_devices_are_those_that_train_on_rows_of_their_own(
    changes: dict[str, object], processes: int, devices: int
) -> None:
    cluster = JobSpec(**changes)  # type: ignore[arg-type]

    assert (cluster.processes, cluster.data_parallel_devices) == (processes, devices)


@pytest.mark.parametrize(
    ("text", "parts"), [(None, ()), ("", ()), (" , ", ()), ("a", ("a",)), (" a ,b,, c", ("a", "b", "c"))]
)
def test_a_list_is_read_with_spaces_and_empty_places(text: str | None, parts: tuple[str, ...]) -> None:
    assert split_list(text) == parts


@pytest.mark.parametrize(
    ("launcher", "instance_type", "there"),
    [
        ("auto", "local", False),
        ("auto", "ml.m5.large", True),
        ("local", "local", False),
        ("local", "ml.m5.large", False),
        ("sagemaker", "ml.m5.large", True),
    ],
)
def test_where_a_job_runs_follows_from_launcher_and_instance_type(
    launcher: str, instance_type: str, there: bool
) -> None:
    assert JobSpec(launcher=launcher, instance_type=instance_type).on_sagemaker is there


@pytest.mark.parametrize(
    ("strategy", "instance_type", "message"),
    [
        (
            "smddp",
            "ml.g5.xlarge",
            "strategy smddp needs ml.p4d.24xlarge or ml.p4de.24xlarge, got ml.g5.xlarge: use ddp",
        ),
        ("smp", "ml.g5.12xlarge", "strategy smp needs an instance of p4d, p4de, p5, p5e, p5en, got ml.g5.12xlarge"),
        ("deepspeed", "ml.m5.large", "strategy deepspeed needs GPUs, and ml.m5.large has none: use fsdp or ddp"),
    ],
)
def test_a_strategy_that_an_instance_lacks_is_refused_with_what_to_do(
    strategy: str, instance_type: str, message: str
) -> None:
    (fault,) = unsupported(JobSpec(strategy=strategy, instance_type=instance_type))

    assert fault.startswith(message)


@pytest.mark.parametrize(
    ("strategy", "instance_type"),
    [
        *(("smddp", name) for name in SMDDP_INSTANCE_TYPES),
        ("smp", "ml.p5.48xlarge"),
        ("deepspeed", "ml.g4dn.xlarge"),
        ("ddp", "ml.m5.large"),
        ("fsdp", "ml.m5.large"),
    ],
)
def test_a_strategy_on_what_it_runs_on_is_no_fault(strategy: str, instance_type: str) -> None:
    assert unsupported(JobSpec(strategy=strategy, instance_type=instance_type)) == []


@pytest.mark.parametrize(("processes", "faults"), [(None, 0), (4, 0), (5, 1)])
def test_a_gpu_has_one_process_at_most(processes: int | None, faults: int) -> None:
    result = unsupported(JobSpec(instance_type="ml.g5.12xlarge", processes_per_instance=processes))

    assert len(result) == faults


def test_types_to_fall_back_on_are_checked_as_well() -> None:
    cluster: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.g5.xlarge"}
    (fault,) = unsupported(JobSpec(strategy="smddp", **cluster))

    assert "got ml.g5.xlarge" in fault


def test_a_volume_larger_than_an_instance_s_own_disks_is_refused_with_their_size() -> None:
    with pytest.raises(BadInput, match=r"at most 232 for ml.g5.xlarge, .* got 300: leave it out"):
        JobSpec(
            instance_type="ml.m5.large", fallback_instance_types="ml.g5.xlarge", sagemaker={"volume_size_in_gb": 300}
        )

    assert JobSpec(instance_type="ml.m5.large", sagemaker={"volume_size_in_gb": 300}).volume_gib == 300


FACTS = {"gpu": "H200", "gpus": 8, "gpu_memory_gib": 141, "network_gbps": 3200, "vcpus": 192, "memory_gib": 2048}


def test_a_described_type_is_taken_with_its_devices_and_the_description_travels_with_the_job() -> None:
    text = json.dumps({"ml.p9.48xlarge": FACTS})
    job = JobSpec.from_text({"instance_type": "ml.p9.48xlarge", "instance_facts": text, "instance_count": "2"})

    assert (job.processes, job.data_parallel_devices) == (8, 16)
    assert JobSpec.from_text(job.as_text()) == job
    assert job.on_instance_type("ml.g5.12xlarge").processes == 4


def test_a_description_that_is_not_given_changes_no_hash_of_a_specification() -> None:
    assert (
        JobSpec(instance_type="ml.g5.xlarge").spec_hash()
        == JobSpec(instance_type="ml.g5.xlarge", instance_facts={}).spec_hash()
    )


def test_a_description_with_faults_is_refused_once() -> None:
    with pytest.raises(BadInput) as caught:
        JobSpec(instance_type="ml.p9.48xlarge", instance_facts={"ml.p9.48xlarge": {"gpus": 8}})

    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    ("index", "part"),
    [
        ("https://ada:secret@packages.example.com/simple", "must hold no user and password"),
        ("packages.example.com", "must be an address"),
        ("arn:aws:s3:::bucket", "must be an address"),
    ],
)
def test_an_index_of_packages_is_an_address_or_a_repository_and_holds_no_secret(index: str, part: str) -> None:
    (fault,) = faults(instance_type="ml.m5.large", sagemaker={"package_index": index})

    assert part in fault
    assert "secret@" not in fault
