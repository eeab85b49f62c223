"""Extras: which packages belong to them, and which message appears when they are not installed."""

import importlib.metadata
import json
import sys
from pathlib import Path

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

    command = packages.install("sagemaker")
    assert packages.missing("sagemaker") == f"sagemaker-core must be installed to launch jobs on SageMaker: {command}"
    environment["sagemaker-core"] = "2.27.0"
    assert packages.missing("sagemaker") == ""

    environment |= {"boto3": "1.40", "sagemaker-core": "1.0.70", "sagemaker": "2.251.0"}
    reason = packages.missing("sagemaker")
    assert reason.startswith(
        "jobs on SageMaker need version 3 of the SageMaker SDK, and sagemaker 2.251.0 is installed here"
    )
    assert reason.endswith("in a separate environment; everything else works here")


class Installed:
    """A distribution of paretune, as importlib.metadata shows it."""

    def __init__(self, origin: dict[str, object] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return json.dumps(self.origin) if name == "direct_url.json" and self.origin else None


def test_the_command_that_installs_an_extra_suits_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, bin_ = tmp_path / "a clone", tmp_path / "a clone" / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.chdir(clone)
    monkeypatch.setattr(packages, "can_be_imported", lambda _: True)

    def command(extra: str, *, python: str, origin: dict[str, object] | None) -> str:
        monkeypatch.setattr(sys, "executable", python)
        monkeypatch.setattr(packages, "distribution", lambda _: Installed(origin))
        return packages.install(extra)

    editable: dict[str, object] = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    here, elsewhere = str(bin_ / "python"), str(tmp_path / "python")
    assert command("mcp", python=here, origin=None) == "`pip install 'paretune[mcp]'`"
    assert command("mcp", python=elsewhere, origin=None) == f"`{elsewhere} -m pip install 'paretune[mcp]'`"
    in_clone = f"`pip install -c '{clone}/constraints.txt' -e '{clone}[train]'`"
    assert command("train", python=here, origin=editable) == in_clone  # in another environment than the clone's own
    monkeypatch.setattr(sys, "prefix", str(clone / ".venv"))
    assert command("train", python=here, origin=editable) == "`make venv`"
    monkeypatch.chdir(tmp_path)
    assert command("demo", python=here, origin=editable) == f"`make -C '{clone}' venv`"
    monkeypatch.setattr(packages, "can_be_imported", lambda _: False)
    assert command("mcp", python=elsewhere, origin=None) == f"`uv pip install --python {elsewhere} 'paretune[mcp]'`"
