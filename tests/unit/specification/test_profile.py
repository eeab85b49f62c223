"""Defaults of a team or a machine: read as they would be typed, and refused where they would surprise."""

import json
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.specification.profile import ALLOWED, charged, read_profile, remarks, with_profile


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "paretune.toml"


def test_without_a_file_there_are_no_defaults(profile: Path) -> None:
    assert read_profile({}) == {}


def test_values_become_what_would_be_typed(profile: Path) -> None:
    profile.write_text(
        """
        region = "eu-west-1"
        role = "Trainer"
        spot = true
        volume_gib = 100
        keep_alive_minutes = 7.5
        subnets = ["subnet-1", "subnet-2"]
        security_group_ids = "sg-1"
        tags = {team = "search", "cost:centre" = "42"}
        """
    )

    texts = read_profile({})
    spec = JobSpec.from_text({**texts, "instance_type": "ml.g5.xlarge", "keep_alive_minutes": "0"})

    assert texts["spot"] == "true"
    assert texts["subnets"] == "subnet-1,subnet-2"
    assert (spec.region, spec.volume_gib, spec.spot) == ("eu-west-1", 100, True)
    assert spec.tags == {"team": "search", "cost:centre": "42"}


def test_the_file_that_is_named_counts_and_not_that_of_the_folder(profile: Path, tmp_path: Path) -> None:
    profile.write_text('region = "eu-west-1"')
    other = tmp_path / "other.toml"
    other.write_text('region = "us-west-2"')

    assert read_profile({"PARETUNE_PROFILE": str(other)}) == {"region": "us-west-2"}
    assert read_profile({"PARETUNE_PROFILE": ""}) == {"region": "eu-west-1"}


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_named_file_that_is_none_is_a_fault(profile: Path, name: str) -> None:
    with pytest.raises(BadInput, match="PARETUNE_PROFILE must name a file"):
        read_profile({"PARETUNE_PROFILE": name})


@pytest.mark.parametrize("content", [b"region = ", b"region 1", b"a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_a_fault_that_names_it(profile: Path, content: bytes) -> None:
    profile.write_bytes(content)

    with pytest.raises(BadInput, match=r"paretune\.toml is no TOML"):
        read_profile({})


def test_all_that_a_profile_may_not_set_is_said_at_once(profile: Path) -> None:
    profile.write_text('instance_type = "ml.m5.large"\nlearning_rate = 1\ncolour = "blue"\nregion = "x"')

    with pytest.raises(BadInput) as caught:
        read_profile({})

    assert len(caught.value.faults) == 3
    assert all("it may set" in fault for fault in caught.value.faults)


@pytest.mark.parametrize("name", ["instance_type", "instance_count", "strategy", "launcher", "processes_per_instance"])
def test_what_belongs_to_one_job_is_not_allowed(name: str) -> None:
    assert name not in ALLOWED


def test_everything_that_is_allowed_is_a_parameter_of_a_cluster() -> None:
    assert set(JobSpec.__dataclass_fields__) >= ALLOWED
    assert {"region", "role", "bucket", "subnets", "kms_key", "tags"} <= ALLOWED


VALUES = {
    "max_cost_usd": 2.5,
    "local_price_usd_per_hour": 0.5,
    "max_runtime_minutes": 12.0,
    "max_silence_minutes": 3.0,
    "training_arguments.gradient_checkpointing": True,
    "hybrid_shard_degree": 1,
    "tensor_parallel_degree": 1,
    "pipeline_parallel_degree": 1,
    "micro_batches": 1,
    "activation_offloading": True,
    "cpu_offload": True,
    "simulation.runs": "runs.csv",
    "simulation": {"seed": 7},
    "tags": {"seed": 7},
    "user": "ana",
}
"""A value other than the default of each parameter that may mean something on this machine."""


def _toml(value: object) -> str:
    return "{seed = 7}" if isinstance(value, dict) else f'"{value}"' if isinstance(value, str) else spell(value)


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_every_key_holds_for_a_local_job_or_the_job_says_that_it_does_not(profile: Path, name: str) -> None:
    value = VALUES.get(name, "1")
    profile.write_text(f"{name} = {_toml(value)}")

    texts = with_profile({"seed": "1"}, {})

    remarks_ = remarks(JobSpec(), {})
    if name in VALUES:
        assert texts == {"seed": "1", name: spell(value)}
        assert remarks_ == []
    else:
        assert texts == {"seed": "1"}
        assert remarks_ == [f"paretune.toml: {name} without effect on a job on this machine"]


def test_a_local_job_costs_what_the_profile_says_and_typing_wins(profile: Path) -> None:
    profile.write_text("local_price_usd_per_hour = 0.5\nmax_cost_usd = 2.5\nmax_runtime_minutes = 12")

    spec = JobSpec.from_text(with_profile({"max_cost_usd": "7"}, {}))

    assert (spec.local_price_usd_per_hour, spec.max_cost_usd, spec.max_runtime_minutes) == (0.5, 7.0, 12.0)


def test_the_price_of_this_machine_is_none_of_a_sagemaker_job(profile: Path) -> None:
    profile.write_text('local_price_usd_per_hour = 0.5\nrole = "Trainer"')
    typed = {"instance_type": "ml.g5.xlarge"}

    assert with_profile(typed, {}) == typed | {"role": "Trainer"}
    assert remarks(JobSpec.from_text(typed), {}) == [
        "paretune.toml: local_price_usd_per_hour without effect on a job on SageMaker's instances"
    ]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"tags": '{"project": "triage"}'}, {"team": "search", "cost": "7", "project": "triage"}),
        ({"tags": '{"team": "other"}'}, {"team": "other", "cost": "7"}),
        ({"tags": "{}"}, {"team": "search", "cost": "7"}),
        ({"tags": ""}, {"team": "search", "cost": "7"}),
        ({}, {"team": "search", "cost": "7"}),
    ],
)
def test_typed_tags_are_added_to_those_of_the_team(
    profile: Path, typed: dict[str, str], expected: dict[str, str]
) -> None:
    profile.write_text('tags = {team = "search", cost = "7"}')

    assert JobSpec.from_text(with_profile(typed, {})).tags == expected
    of_a_study = {name: json.loads(text) for name, text in typed.items() if text}
    assert JobSpec.from_text(charged(of_a_study, {})).tags == expected


@pytest.mark.parametrize("text", ["no JSON", "[1]", "[" * 100_000])
def test_tags_that_are_none_are_refused_as_without_a_profile(profile: Path, text: str) -> None:
    profile.write_text('tags = {team = "search"}')

    assert with_profile({"tags": text}, {})["tags"] == text


@pytest.mark.parametrize(
    "value",
    ["{a = 2026-01-01}", "{a = [10:00:00]}", "0x" + "f" * 5_000, "[0x" + "f" * 5_000 + "]"],
    ids=["a date", "a time", "a number", "a list"],
)
def test_a_date_in_a_table_and_a_number_without_end_are_faults_that_name_the_parameter(
    profile: Path, value: str
) -> None:
    profile.write_text(f"tags = {value}\nspot = true\n")

    with pytest.raises(BadInput, match=r"paretune\.toml: tags must be a text, .*: write it in quotes"):
        read_profile({})


@pytest.mark.parametrize(
    "target", ["/proc/self/mem", "/dev/zero", "paretune.toml", "nowhere", "~nobody-of-that-name/x"]
)
def test_a_profile_that_is_no_file_to_read_is_one_fault(profile: Path, target: str) -> None:
    profile.symlink_to(target)

    with pytest.raises(BadInput) as caught:
        read_profile({"PARETUNE_PROFILE": str(profile)})

    assert len(caught.value.faults) == 1


def test_a_budget_in_the_home_of_nobody_is_a_path_like_any_other(profile: Path) -> None:
    profile.write_text('budget = "~nobody-of-that-name/b"')

    assert read_profile({}) == {"budget": "~nobody-of-that-name/b"}
