"""The command `doctor`: a line for each check, exit code 2 if something is wrong, and no change by checking."""

import json
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from paretune.cli import main
from paretune.commands import doctor
from paretune.commands.doctor import store_findings
from paretune.core.checks import Verdict
from tests.support.pages import fields_of


@pytest.fixture
def nobody(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a user without an AWS account; another test covers what PyTorch detects."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "PARETUNE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(workplace / "none"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    done = subprocess.CompletedProcess([], 0, stdout="PyTorch sees no GPU\n", stderr="")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: done)


@pytest.mark.usefixtures("nobody")
def test_a_machine_without_an_account_is_in_order_for_local_jobs(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0

    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["ok", name] for name in ("environment", "torch", "mlflow", "aws")
    ]
    assert "local and simulated jobs do not need AWS" in lines[3]
    assert "`paretune doctor --paid true` runs a small job in your account, for at most 0.500 USD" in lines[-1]
    assert not (workplace / ".paretune").exists()


@pytest.mark.usefixtures("nobody")
def test_a_launcher_that_nobody_has_installed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--launcher", "sagemakr"]) == 2
    assert "got 'sagemakr': did you mean sagemaker?" in capsys.readouterr().err


@pytest.mark.usefixtures("nobody")
def test_a_limit_on_dollars_in_the_profile_does_not_mean_that_the_user_has_an_account(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "mine.toml").write_text("max_cost_usd = 2.0\n")
    monkeypatch.setenv("PARETUNE_PROFILE", "mine.toml")

    assert main(["doctor"]) == 0
    assert "local and simulated jobs do not need AWS" in capsys.readouterr().out


@pytest.mark.usefixtures("nobody")
def test_all_that_is_wrong_is_reported_at_once_with_its_commands(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, but nothing listens on it
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ada:secret@127.0.0.1:{taken.getsockname()[1]}")
        code = main(["doctor", "--instance_type", "ml.g5.xlarge", "--json"])

    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "secret" not in out + err
    assert code == 2
    assert set(document) == fields_of("`doctor`")
    verdicts = {check["subject"]: check["verdict"] for check in document["checks"]}
    assert [name for name, verdict in verdicts.items() if verdict == "wrong"] == ["mlflow", "credentials"]
    assert [verdicts[name] for name in ("role", "bucket", "permissions")] == ["not checked"] * 3
    assert document["wrong"] == 2
    commands = {check["subject"]: check["commands"] for check in document["checks"]}
    assert "aws configure" in commands["credentials"]
    assert "mlflow server --port 5000" in commands["mlflow"]
    assert commands["torch"] == []


def test_tables_of_another_version_are_wrong(workplace: Path, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'acf3f17fdcc7'")

    (result,) = store_findings({})

    assert result.verdict is Verdict.FAILED
    assert "acf3f17fdcc7" in result.text
    assert result.commands == [f"mlflow db upgrade sqlite:///{database}"]


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("operation", "named"),
    [
        ("create_logged_model", "CreateLoggedModel"),
        ("log_batch", "metrics"),
        ("create_run", "CreateRun"),
        (None, ""),
    ],
)
def test_what_mlflow_refuses_of_a_job_s_record_is_named_and_the_run_that_shows_it_is_deleted(
    operation: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MlflowException("you may not", PERMISSION_DENIED)

    if operation is not None:
        monkeypatch.setattr(SqlAlchemyStore, operation, refuse)
    findings = list(store_findings({}))

    wrong = [finding.text for finding in findings if finding.verdict is Verdict.FAILED]
    assert bool(wrong) is bool(operation)
    assert all("you may not" in text for text in wrong)
    assert named in "".join(wrong)
    client = MlflowClient()
    assert client.search_runs(["0"]) == []
    assert client.search_logged_models(["0"]) == []
