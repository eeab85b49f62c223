"""The command `doctor`: a line for each check, exit code 2 if something is wrong, and never a traceback."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.commands.doctor import checks
from tests.unit.cli.test_json import fields_of


@pytest.fixture(autouse=True)
def nobody(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an AWS account; what PyTorch sees is another test's question."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "PARETUNE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(workplace / "none"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    done = subprocess.CompletedProcess([], 0, stdout="PyTorch sees no GPU\n", stderr="")
    monkeypatch.setattr(checks.subprocess, "run", lambda *_, **__: done)


def test_a_machine_without_an_account_is_in_order_for_local_jobs(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0

    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["ok", name] for name in ("environment", "torch", "mlflow", "aws")
    ]
    assert "local and simulated jobs need nothing of AWS" in lines[3]
    assert "`paretune doctor --paid true` settles by small jobs what else is open, for at most 0.50 USD" in lines[-1]
    assert not (workplace / ".paretune").exists()


def test_all_that_is_wrong_is_told_at_once_with_its_commands(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{taken.getsockname()[1]}")
        code = main(["doctor", "--instance_type", "ml.g5.xlarge", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert code == 2
    assert set(document) == fields_of("`doctor`")
    verdicts = {check["subject"]: check["verdict"] for check in document["checks"]}
    assert [name for name, verdict in verdicts.items() if verdict == "wrong"] == ["mlflow", "credentials"]
    assert [verdicts[name] for name in ("role", "bucket", "quotas")] == ["could not be asked"] * 3
    assert document["wrong"] == 2
    commands = {check["subject"]: check["commands"] for check in document["checks"]}
    assert "aws configure" in commands["credentials"]
    assert commands["torch"] == []


def test_nothing_is_paid_where_something_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--paid", "true"]) == 2

    out = capsys.readouterr().out
    assert "no usable AWS credentials" in out
    assert out.splitlines()[-1] == "paid=true: no job was launched, repair what is wrong first"
