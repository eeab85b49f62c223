"""`train --project` runs projects that know nothing about paretune, on the emulator."""

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Run

from tests.support.cloud import REPOSITORY, WITHIN_S, Cloud, Done
from tests.support.processes import command
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

SECRET = "planted-secret-5731"  # noqa: S105
NOTE = """it's "quoted", $HOME `id` & grün; 100%"""
TRAIN = """
import argparse, json, os, sys
from pathlib import Path
import greeting, mlflow

parser = argparse.ArgumentParser()
for name in ("rate", "data", "note"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
with mlflow.start_run():
    for step in range(3):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metric("rows", len(Path(given.data).read_text().splitlines()))
    mlflow.log_params({"note_as_seen": given.note, "rate": given.rate})
    mlflow.set_tag("greeting", greeting.WORD)
    mlflow.log_text(greeting.WORD, "texts/word.txt")
    mlflow.log_dict({"data": given.data, "files": sorted(os.listdir("."))}, "seen.json")
    with mlflow.start_run(nested=True, run_name="inner"):
        mlflow.log_metric("inner_loss", 0.25)
print("trained", greeting.WORD)
"""
CONDA = """name: foreign
conda_env: conda.yaml
entry_points:
  main:
    parameters: {rate: {type: float, default: 0.5}, data: path, note: {type: string, default: none}}
    command: "python train.py --rate {rate} --data {data} --note {note}"
"""
SHELL = """name: shell
python_env: python_env.yaml
entry_points:
  main:
    parameters:
      word: {type: string, default: hello}
    command: "set -e; echo word is {word}; cat requirements.txt | head -n 1; python hosts.py"
"""
HOSTS = """
import os, mlflow
mlflow.log_metric("hosts", int(os.environ["SM_HOST_COUNT"]))
mlflow.set_tag("host", os.environ["SM_CURRENT_HOST"])
"""
READS_A_FILE = """
import argparse, os

parser = argparse.ArgumentParser()
parser.add_argument("--train_file")
given = parser.parse_args()
print(f"rows={len(open(given.train_file).readlines())}", os.listdir(os.environ["SM_CHANNEL_TRAIN"]))
print("accuracy=0.75")
"""
JOB = {"instance_type": "ml.m5.xlarge", "max_runtime_minutes": 5}


def train(cloud: Cloud, project: Path, **more: Any) -> Done:
    cloud.environment["MLFLOW_TRACKING_PASSWORD"] = SECRET
    return cloud.run("train", project=str(project), **{**JOB, **more})


def latest(cloud: Cloud) -> Run:
    return cloud.client.search_runs(["0"], "tags.`paretune.launcher` = 'sagemaker'", max_results=1)[0]


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)


@pytest.fixture
def conda_project(tmp_path: Path) -> Path:
    """Return a project with a package of one line, `greeting.WORD`, and files that do not travel."""
    project = tmp_path / "conda-project"
    requirements = ["  - numpy==2.4.*", "  - ./wheels/greeting-1.0-py3-none-any.whl", "  - mlflow"]
    packages = "\n".join(["channels: [conda-forge]", "dependencies:", "- python=3.11", "- pip:", *requirements])
    write(
        project, **{"train.py": TRAIN, "conda.yaml": packages, "MLproject": CONDA, ".gitignore": "ignored/\n*.secret\n"}
    )
    write(project, **dict.fromkeys(("ignored/large.bin", "my.secret", ".env"), SECRET))
    (project / "wheels").mkdir()
    with zipfile.ZipFile(project / "wheels" / "greeting-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("greeting.py", "WORD = 'bonjour'\n")
        about = "greeting-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return project


@pytest.fixture(scope="module")
def shell_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("shell-project")
    environment = "python: '3.12'\nbuild_dependencies: [pip]\ndependencies: ['-r requirements.txt']\n"
    requirements = {"requirements.txt": "# of the project\npyyaml\n", "python_env.yaml": environment}
    write(project, MLproject=SHELL, **{"hosts.py": HOSTS}, **requirements)
    return project


def test_a_conda_project_runs_there_and_its_run_here_holds_what_it_recorded_and_cost(
    shared_cloud: Cloud, conda_project: Path
) -> None:
    data = shared_cloud.folder / "some rows.csv"
    data.write_text("a\nb\nc\n")

    done = train(shared_cloud, conda_project, training_arguments={"data": str(data), "note": NOTE})

    assert done.code == 0, done.text
    run, client = latest(shared_cloud), shared_cloud.client
    tags, metrics = tags_of(run), run.data.metrics
    assert (run.info.status, tags["greeting"]) == ("FINISHED", "bonjour")
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert (metrics["rows"], run.data.params["note_as_seen"]) == (3, NOTE)
    seen = json.loads(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/seen.json"))
    assert seen["data"] == "/opt/ml/input/data/data/some rows.csv"
    assert not {"ignored", "my.secret", ".env", ".git"} & set(seen["files"])
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/texts/word.txt") == "bonjour"
    (child,) = client.search_runs(["0"], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert (child.info.run_name, child.info.status, child.data.metrics) == ("inner", "FINISHED", {"inner_loss": 0.25})

    job = shared_cloud.described(tags_of(run)["paretune.job_name"])
    assert (tags["paretune.job_name"], tags["paretune.job_arn"]) == (job["TrainingJobName"], job["TrainingJobArn"])
    assert (tags["paretune.state"], tags["paretune.secondary_status"]) == ("Completed", "Completed")
    assert metrics["billable_seconds"] == job["BillableTimeInSeconds"]
    price = float(tags["paretune.price_usd_per_hour"])
    assert metrics["cost_usd"] == pytest.approx(price * job["BillableTimeInSeconds"] / 3600)
    assert job["Environment"] == {"PYTHONUNBUFFERED": "1", "PARETUNE_RUN": run.info.run_id}

    assert SECRET not in json.dumps([request.body for request in shared_cloud.emulator.requests()])
    objects = dict(shared_cloud.objects())
    assert [name for name in objects if "code.tar.gz" in name and name.endswith("train.py")]
    for name, content in objects.items():
        assert SECRET.encode() not in content, name
        assert not name.endswith((".secret", ".env"))


def test_on_two_instances_a_shell_command_has_its_requirements_and_the_first_one_s_records_count(
    shared_cloud: Cloud, shell_project: Path
) -> None:
    done = train(shared_cloud, shell_project, training_arguments={"word": "two words"}, instance_count=2)

    assert done.code == 0, done.text
    run = latest(shared_cloud)
    log = shared_cloud.run("logs", run.info.run_id).text
    for text in ("word is two words", "# of the project", "Requirement already satisfied: pyyaml"):
        assert text in log
    assert run.data.params["training_arguments.word"] == "two words"
    assert (run.data.metrics["hosts"], tags_of(run)["host"]) == (2, "algo-1")


def test_a_script_reads_its_data_in_s3_as_a_channel_and_they_do_not_pass_through_here(
    shared_cloud: Cloud, tmp_path: Path
) -> None:
    script = tmp_path / "mine" / "train.py"
    write(script.parent, **{"train.py": READS_A_FILE})
    rows = {"Key": "mine/rows.csv", "Body": b"a\nb\nc\n"}
    shared_cloud.client_of("s3").put_object(Bucket=shared_cloud.emulator.bucket, **rows)
    address = f"s3://{shared_cloud.emulator.bucket}/mine/rows.csv"
    shared_cloud.emulator.clear_requests()

    done = shared_cloud.run(
        "train", entry_script=script, dataset=address, **{**JOB, "sagemaker.input_mode": "FastFile"}
    )

    assert done.code == 0, done.text
    run = latest(shared_cloud)
    assert run.data.metrics["accuracy"] == 0.75
    assert "rows=3 ['rows.csv']" in shared_cloud.run("logs", run.info.run_id).text
    assert not [request for request in shared_cloud.emulator.requests("GetObject") if "mine/rows.csv" in request.path]


def test_mlflow_run_with_the_backend_sagemaker_runs_a_project_of_others_there(shared_cloud: Cloud) -> None:
    project = REPOSITORY / "tests" / "foreign" / "sklearn_elasticnet"
    (shared_cloud.folder / "job.json").write_text(json.dumps(JOB))
    words = ["mlflow", "run", str(project), "--backend", "sagemaker", "--backend-config", "job.json"]

    with command(
        [*words, "-P", "alpha=0.25"], cwd=shared_cloud.folder, environment=shared_cloud.environment
    ) as running:
        assert running.wait(WITHIN_S) == 0, running.text

    run = latest(shared_cloud)
    assert (run.info.status, run.data.params["training_arguments.alpha"]) == ("FINISHED", "0.25")
    assert run.data.metrics.keys() >= {"r2", "mae", "cost_usd", "billable_seconds"}
    assert tags_of(run)["mlflow.project.backend"] == "sagemaker"
