"""Whether a job may write to the tracking server itself."""

from pathlib import Path

import pytest

from paretune.commands.mlflow_run.configuration import can_log_directly
from paretune.launchers.sagemaker.request import tracking_environment

SERVER = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/mine"
ADDRESSES = {"mlflow.example.org": ["93.184.215.14"], "inner.example.org": ["93.184.215.14", "10.0.0.5"]}


def addresses(host: str) -> list[str]:
    return ADDRESSES.get(host, [])


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("USERNAME", "PASSWORD", "TOKEN", "AUTH", "AWS_SIGV4", "CLIENT_CERT_PATH", "INSECURE_TLS"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)


@pytest.mark.parametrize(
    "uri",
    [SERVER, "arn:aws-us-gov:sagemaker:x:1:mlflow-app/a", "https://mlflow.example.org", "http://93.184.215.14:5000"],
)
def test_managed_and_public_servers_are_written_to_by_the_job(uri: str) -> None:
    assert can_log_directly(uri, addresses)


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///mlflow.db",
        "file:///tmp/mlruns",
        "mlruns",
        "databricks",
        "postgresql://user:secret@db/mlflow",
        "http://127.0.0.1:5000",
        "http://[::1]:5000",
        "http://localhost:5000",
        "http://192.168.1.7",
        "http://169.254.169.254",
        "https://inner.example.org",
        "https://unknown.example.org",
        "https://me:secret@mlflow.example.org",
        "https://token@mlflow.example.org",
    ],
)
def test_files_private_places_and_secrets_stay_here(uri: str) -> None:
    assert not can_log_directly(uri, addresses)


@pytest.mark.parametrize("name", ["USERNAME", "PASSWORD", "TOKEN", "AUTH", "CLIENT_CERT_PATH"])
def test_a_server_that_wants_a_secret_is_not_written_to_by_the_job(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "secret")

    assert not can_log_directly("https://mlflow.example.org", addresses)
    assert can_log_directly(SERVER, addresses)  # the role of the job signs


def test_a_password_in_mlflow_s_file_counts(tmp_path: Path) -> None:
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text("[mlflow]\nmlflow_tracking_password = secret\n")

    assert not can_log_directly("https://mlflow.example.org", addresses)


def test_the_job_is_told_the_run_and_nothing_of_this_environment() -> None:
    here = {"SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": "https://e", "MLFLOW_TRACKING_TOKEN": "secret"}

    assert tracking_environment(SERVER, "r1", here) == {
        "MLFLOW_TRACKING_URI": SERVER,
        "MLFLOW_RUN_ID": "r1",
        "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": "https://e",
    }
