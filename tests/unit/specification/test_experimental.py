"""What has never run on real GPUs or on AWS says so wherever users meet it."""

import re
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.specification.declaration import experimental_names
from paretune.specification.job import JobSpec
from paretune.specification.launchers import known

SAGEMAKER = "launcher=sagemaker"
ROOT = Path(__file__).parents[3]


def test_the_page_to_which_readme_links_lists_what_is_experimental() -> None:
    assert "[experimental](docs/reference/job-parameters.md)" in (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "reference" / "job-parameters.md").read_text()
    sentence = page.partition("as experimental: ")[2].partition(".\n")[0]

    launchers = {f"launcher={name}" for name, traits in known().items() if traits.is_experimental}
    assert set(re.findall(r"`([^`]+)`", sentence)) == launchers | set(experimental_names(JobSpec))


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, ()),
        ({"instance_type": "ml.p4d.24xlarge", "launcher": "simulated"}, ()),
        ({"instance_type": "ml.p4d.24xlarge"}, (SAGEMAKER,)),
        ({"instance_type": "ml.p4d.24xlarge", "strategy": "smddp"}, (SAGEMAKER, "strategy=smddp")),
        (
            {"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.g4dn.xlarge"},
            (SAGEMAKER, "fallback_instance_types"),
        ),
        (
            {"instance_type": "ml.g5.xlarge", "sagemaker": {"keep_alive_minutes": 5}},
            (SAGEMAKER, "sagemaker.keep_alive_minutes"),
        ),
    ],
)
def test_a_job_knows_what_of_it_is_experimental(given: dict[str, object], used: tuple[str, ...]) -> None:
    assert JobSpec(**given).experimental() == used


def test_help_marks_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help", "all"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "(experimental: smp, smddp, fsdp, deepspeed, deepspeed_zero3, device_map)" in shown
    assert "split each layer's matrices (experimental)" in shown
    assert "SageMaker training instances (experimental)" in shown
    assert re.search(r"--sagemaker.keep_alive_minutes NUMBER [^-]*the pool is billed \(experimental\)", shown)


def test_the_first_line_of_a_dry_run_and_of_a_result_says_it() -> None:
    from paretune.jobs.card import opening_card
    from paretune.jobs.preview import JobPreview

    spec = JobSpec(instance_type="ml.p4d.24xlarge", strategy="smddp")

    text = str(JobPreview(card=opening_card(spec), document={})).strip()

    assert "experimental" in text.splitlines()[0]
    assert "launcher=sagemaker, strategy=smddp" in text.splitlines()[0]
