"""Secrets stay where they are: tests plant them wherever users keep them, and search everything that a job leaves."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.processes import free_port, tracking_server
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.stand_ins.sagemaker.training import GROUP

pytestmark = pytest.mark.slow

# Each is unlike anything else, so that it is found wherever it appears.
PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "planted-aws-secret-4711",
    "AWS_SESSION_TOKEN": "planted-session-4712",
    "HF_TOKEN": "hf_planted4713planted4713planted",
    "HUGGING_FACE_HUB_TOKEN": "hf_planted4714planted4714planted",
    "MLFLOW_TRACKING_TOKEN": "planted-mlflow-token-4715",
    "MLFLOW_TRACKING_PASSWORD": "planted-mlflow-password-4716",
    "WANDB_API_KEY": "planted-wandb-4717",
    "GITHUB_TOKEN": "ghp_planted4718planted4718planted4718",
    "DATABASE_URL": "postgres://ada:planted-database-4719@db",
    "MY_OWN": "planted-own-4720",
}
IN_THE_ADDRESS = "planted-address-4721"
IN_FILES = {".env": "planted-dotenv-4722", "id_rsa": "planted-key-4723", "ignored.txt": "planted-ignored-4724"}
IN_SECRETS_MANAGER = "planted-manager-4725"
SECRETS = (*PLANTED.values(), IN_THE_ADDRESS, *IN_FILES.values(), IN_SECRETS_MANAGER)

SCRIPT = """
import os, sys
print("the script sees", sorted(os.environ))
print(dict(os.environ))
sys.exit("it fails on purpose: " + str(dict(os.environ)))
"""


NEEDS_A_TOKEN = f"""
import os
token = os.environ["HF_TOKEN"]
print("the token is", token, flush=True)
print("f1:", float(len(token) == {len(IN_SECRETS_MANAGER)}))
if "fail" in os.environ:
    raise ValueError(f"no access with {{token}}")
"""


@pytest.fixture
def cloud(tmp_path: Path, workplace: Path) -> Iterator[Cloud]:
    """Return a user with secrets in the environment and a password in the address of the MLflow server."""
    (tmp_path / "server").mkdir()
    port = free_port()
    with Emulator(tmp_path / "account") as emulator, tracking_server(tmp_path / "server", port):
        yield Cloud(
            emulator, workplace, PLANTED | {"MLFLOW_TRACKING_URI": f"http://ada:{IN_THE_ADDRESS}@127.0.0.1:{port}"}
        )


def _log_lines(cloud: Cloud, job_name: str) -> str:
    logs = cloud.client_of("logs")
    streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job_name}/")["logStreams"]
    pages = [
        logs.get_log_events(logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True)
        for stream in streams
    ]
    return "\n".join(event["message"] for page in pages for event in page["events"])


def _traces(cloud: Cloud, printed: str, server: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each place to search, with its content."""
    yield "terminal", printed.encode()
    for request in cloud.emulator.requests():
        yield f"request {request.operation} {request.path}", json.dumps(vars(request), default=str).encode()
    for name in cloud.emulator.jobs():
        yield "DescribeTrainingJob", json.dumps(cloud.described(name), default=str).encode()
        yield "CloudWatch", _log_lines(cloud, name).encode()
    for name, content in cloud.objects():
        yield f"s3 {name}", content
    for folder in (cloud.emulator.root, server, cloud.folder):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.parent != cloud.folder / "script":
                yield f"file {path.relative_to(folder)}", path.read_bytes()


def _leaks(cloud: Cloud, printed: str, server: Path) -> tuple[list[str], set[str]]:
    """Return where secrets are, and the kinds of places that were searched."""
    result, looked = [], set()
    for workspace, content in _traces(cloud, printed, server):
        looked.add(workspace.split()[0])
        result += [f"{secret} in {workspace}" for secret in SECRETS if secret.encode() in content]
    return result, looked


EVERYWHERE = {"terminal", "request", "DescribeTrainingJob", "CloudWatch", "s3", "file"}


def test_no_secret_of_the_launching_environment_is_found_after_a_job_or_a_refusal(
    cloud: Cloud, tiny_job: dict[str, object], tmp_path: Path
) -> None:
    done = cloud.run(**tiny_job, tags={"team": "search"})
    shown = cloud.run(**tiny_job, dry_run="true")
    assert (done.code, shown.code) == (0, 0), done.text + shown.text
    cloud.emulator.inject("CreateTrainingJob", "AccessDeniedException", "not authorized", times=9)
    refused = cloud.run(**tiny_job)
    address = cloud.environment["MLFLOW_TRACKING_URI"]
    cloud.environment["MLFLOW_TRACKING_URI"] = address.replace(address.rpartition(":")[2], "9")
    unreachable = cloud.run(**tiny_job)
    secret_tag = cloud.run(**tiny_job, tags={"token": PLANTED["HF_TOKEN"]})
    assert [each.code for each in (refused, unreachable, secret_tag)] == [2, 2, 2], refused.text + unreachable.text

    printed = "".join(each.text for each in (done, shown, refused, unreachable, secret_tag))
    leaks, looked = _leaks(cloud, printed, tmp_path / "server")

    assert looked == EVERYWHERE
    assert leaks == []


def test_no_secret_of_environment_or_folder_is_found_after_a_script_that_shows_all_it_has_and_fails(
    cloud: Cloud, tmp_path: Path
) -> None:
    folder = cloud.folder / "script"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / ".gitignore").write_text("ignored.txt\n")
    for name, secret in IN_FILES.items():
        (folder / name).write_text(secret)
    subprocess.run(["git", "init", str(folder)], check=True, capture_output=True)

    done = cloud.run(entry_script=str(folder / "train.py"), instance_type="ml.m5.large")
    assert done.code == 3, done.text
    assert "it fails on purpose" in done.text

    leaks, looked = _leaks(cloud, done.text, tmp_path / "server")

    assert looked == EVERYWHERE
    assert leaks == []


@pytest.mark.parametrize("instance_type", ["ml.m5.large", "local"])
def test_a_secret_of_secrets_manager_reaches_the_training_and_no_other_place(
    cloud: Cloud, tmp_path: Path, instance_type: str
) -> None:
    (cloud.folder / "script").mkdir()
    script = cloud.folder / "script" / "train.py"
    script.write_text(NEEDS_A_TOKEN)
    secret = f"secret:{cloud.emulator.secret('hub', IN_SECRETS_MANAGER)}"
    job = {"entry_script": str(script), "instance_type": instance_type}

    done = cloud.run(**job, environment={"HF_TOKEN": secret})
    failed = cloud.run(**job, environment={"HF_TOKEN": secret, "fail": "yes"})

    assert (done.code, failed.code) == (0, 3), done.text + failed.text
    assert "ValueError: no access with ..." in failed.text
    _, first = cloud.runs()
    assert first.data.metrics["f1"] == 1.0
    assert json.loads(first.data.params["environment"]) == {"HF_TOKEN": secret}
    assert _leaks(cloud, done.text + failed.text, tmp_path / "server")[0] == []
