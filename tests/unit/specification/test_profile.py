"""Defaults of a user or a team: read as if they were typed, and refused where they would surprise."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.profile import charged, completed, read_profile, with_profile


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's own file; the current folder is another one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".paretune").mkdir(parents=True)
    (tmp_path / "clone").mkdir()
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "home" / ".paretune" / "paretune.toml"


def test_typed_values_win_over_the_file_entry_by_entry(own: Path) -> None:
    own.write_text(
        'region = "eu-west-1"\nmax_cost_usd = 2.5\ntags = {team = "search", cost = "7"}\n'
        'sagemaker = {s3_bucket = "mine", subnets = ["s1", "s2"], security_group_ids = "g"}\nbudget = "team.yaml"\n'
    )

    typed = {
        "instance_type": "ml.g5.xlarge",
        "region": "us-west-2",
        "sagemaker.volume_size_in_gb": "100",
        "tags": '{"project": "p"}',
    }
    spec = JobSpec.read(with_profile(typed, {}))

    assert (spec.region, spec.max_cost_usd) == ("us-west-2", 2.5)
    assert spec.tags == {"team": "search", "cost": "7", "project": "p"}
    assert (spec.sagemaker.s3_bucket, spec.sagemaker.volume_size_in_gb) == ("mine", 100)
    assert spec.budget == str(own.parent / "team.yaml")
    Path("paretune.toml").write_text("no profile: whoever wrote this folder")
    assert read_profile({})["region"] == "eu-west-1"
    with pytest.raises(BadInput, match="PARETUNE_PROFILE must name a file"):
        read_profile({"PARETUNE_PROFILE": "missing.toml"})
    own.unlink()
    own.mkdir()
    with pytest.raises(BadInput, match=r"^\S+paretune.toml is a folder: repair or delete it$"):
        read_profile({})


def test_a_local_job_leaves_out_what_only_instances_use(own: Path) -> None:
    own.write_text('role = "Trainer"\nmax_cost_usd = 2.5\nregion = "eu-west-1"\n')

    assert completed(JobSpec(seed=1), {}).given_text() == {"seed": "1", "max_cost_usd": "2.5"}
    assert charged({"seed": 1}, {}) == {"seed": 1}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"region = ", "is not TOML"),
        (b"learning_rate = 1.0", "may not set learning_rate: it may set"),
        (b"buget = 'x'", "may not set buget: did you mean budget?"),
        (b"entry_script = 'x.py'", "may not set entry_script: it may set"),
        (b"max_cost_usd = 'much'", "max_cost_usd must be a number"),
        (b"tags = {a = 2026-01-01}", "tags.a must be text"),
    ],
)
def test_a_wrong_file_is_a_fault_that_names_it(own: Path, content: bytes, fault: str) -> None:
    own.write_bytes(content)

    with pytest.raises(BadInput) as refused:
        read_profile({})
    assert fault in str(refused.value)
    assert str(own) in str(refused.value)


def test_a_budget_that_is_no_text_is_still_the_path_of_a_file(own: Path) -> None:
    own.write_text("budget = 100\n")
    assert read_profile({}) == {"budget": str(own.parent / "100")}

    own.write_text('budget = ""\n')
    assert read_profile({}) == {}


def test_an_environment_variable_may_be_typed_as_empty(own: Path) -> None:
    spec = JobSpec.read(with_profile({"environment.CUDA_VISIBLE_DEVICES": "", "region": ""}, {}))

    assert spec.given() == {"environment": {"CUDA_VISIBLE_DEVICES": ""}}
