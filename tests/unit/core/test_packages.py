"""Extras: which packages belong to them, and which message appears when they are not installed."""

import importlib.metadata

import pytest

from paretune.core import packages

REQUIRED = (
    "mlflow>=3.1",
    'torch>=2.6; extra == "train"',
    'boto3>=1.41; extra == "sagemaker"',
    'sagemaker-core>=2.0; extra == "sagemaker"',
    'paretune[train]; extra == "demo"',
    'reviews==0.2; extra == "demo"',
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a dict from package to installed version, which tests fill."""
    versions: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(packages, "requires", lambda _: REQUIRED)
    monkeypatch.setattr(packages, "version", version)
    return versions


def test_a_job_gets_the_versions_installed_here_and_else_paretune_s_ranges(environment: dict[str, str]) -> None:
    environment["mlflow"] = "3.17.2"

    assert packages.pinned(("mlflow", "torch", "psutil")) == ("mlflow==3.17.2", "torch>=2.6", "psutil")


def test_without_sagemaker_s_packages_the_extra_is_named_and_version_2_of_the_sdk_is_refused_in_one_sentence(
    environment: dict[str, str],
) -> None:
    environment["boto3"] = "1.44.5"

    assert packages.missing("sagemaker").startswith(
        "sagemaker-core must be installed to launch jobs on SageMaker: `pip"
    )
    environment["sagemaker-core"] = "2.27.0"
    assert packages.missing("sagemaker") == ""

    environment |= {"boto3": "1.40", "sagemaker-core": "1.0.70", "sagemaker": "2.251.0"}
    reason = packages.missing("sagemaker")
    assert reason.startswith(
        "jobs on SageMaker need version 3 of the SageMaker SDK, and sagemaker 2.251.0 is installed here"
    )
    assert reason.endswith("in a separate environment; everything else works here")
