"""What is told of this machine."""

import importlib.metadata
import os
import sys

import pytest

from paretune.commands.doctor import checks
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

    for module in (checks, packages):
        monkeypatch.setattr(module, "requires", lambda _: request)
        monkeypatch.setattr(module, "version", version)

    wrong, *_ = checks.environment_findings()

    assert wrong.verdict is Verdict.FAILED
    assert "mlflow is 3.17.2, gone is absent" in wrong.text
    assert wrong.commands == ["pip install 'mlflow<2' 'gone>=1'"]


@pytest.mark.parametrize(("is_needed", "verdict"), [(True, Verdict.FAILED), (False, Verdict.PASSED)])
def test_absent_packages_of_sagemaker_are_wrong_where_jobs_there_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, is_needed: bool, verdict: Verdict
) -> None:
    monkeypatch.setattr(checks, "sagemaker_is_missing", lambda: "boto3 must be installed")

    *_, finding = checks.environment_findings(needs_sagemaker=is_needed)

    assert (finding.verdict, finding.text) == (verdict, "without jobs on SageMaker: boto3 must be installed")


def test_a_machine_that_only_launches_is_told_what_training_here_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "peft", None)

    result = next(checks.torch_findings(dict(os.environ)))

    assert result.verdict is Verdict.PASSED
    assert (
        "peft, torch must be installed to train on this machine: `python -m pip install 'paretune[train]'`"
        in result.text
    )
