"""What is told of this machine."""

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from paretune.commands.doctor import local_checks
from paretune.commands.doctor.command import DoctorRequest
from paretune.core import packages
from paretune.core.checks import Verdict
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


def test_a_package_of_another_version_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ["mlflow<2", "torch>=2.6", "gone>=1", 'demo-data==1; extra == "demo"', 'tool>=3; extra == "test"']
    custom = importlib.metadata.version
    there = {"mlflow": "3.17.2", "torch": "2.13.0+cpu", "paretune": custom("paretune")}

    def version(name: str) -> str:
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    for module in (local_checks, packages):
        monkeypatch.setattr(module, "requires", lambda _: request)
        monkeypatch.setattr(module, "version", version)

    wrong, demo = local_checks.environment_findings()

    assert wrong.verdict is Verdict.FAILED
    assert "mlflow is 3.17.2, gone is absent" in wrong.text
    assert wrong.commands == ["pip install 'mlflow<2' 'gone>=1'"]
    assert demo.verdict is Verdict.PASSED  # who names a model and a data set does not need them
    assert "`pip install demo-data==1`" in demo.text


def test_a_torch_that_cannot_be_imported_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcuda is missing')\n")

    result = local_checks.torch_finding({**os.environ, "PYTHONPATH": str(tmp_path)})

    assert result.verdict is Verdict.FAILED
    assert "libcuda is missing" in result.text
    assert result.commands[0].startswith("pip install --force-reinstall torch==")


def test_a_machine_that_only_launches_is_told_what_training_here_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "peft", None)

    result = local_checks.torch_finding(dict(os.environ))

    assert result.verdict is Verdict.PASSED
    assert (
        "peft, torch must be installed to train on this machine: `python -m pip install 'paretune[train]'`"
        in result.text
    )


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("region = ", "is no TOML"),
        ('regoin = "us-east-1"\nseed = 1\n', "may not set seed: it may set"),
        ('region = "us-esat-1"\n', "region must be an AWS region that has SageMaker, got 'us-esat-1'"),
    ],
)
def test_a_broken_profile_is_a_finding_and_not_a_refusal(tmp_path: Path, text: str, report: str) -> None:
    path = tmp_path / "paretune.toml"
    path.write_text(text)
    environment = {"PARETUNE_PROFILE": str(path)}

    request = DoctorRequest.from_text({}, environment)
    result = local_checks.profile_findings(environment, request.profile_faults)

    assert {finding.verdict for finding in result} == {Verdict.FAILED}
    assert report in result[-1].text
    assert str(path) in result[-1].text


def test_a_home_that_cannot_be_a_folder_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert local_checks.home_finding({"PARETUNE_HOME": str(tmp_path / "new" / "home")}).verdict is Verdict.PASSED
    result = local_checks.home_finding({"PARETUNE_HOME": str(tmp_path / "file")})
    assert (result.verdict, result.commands) == (Verdict.FAILED, ["export PARETUNE_HOME=$HOME/.paretune"])
    assert not (tmp_path / "new").exists()
