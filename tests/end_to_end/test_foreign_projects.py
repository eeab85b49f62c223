"""`mlflow run --backend sagemaker` runs projects that know nothing of paretune, on the emulator."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import ExecutionException

from paretune.tracking.schema import unpacked
from tests.processes import use_one_core
from tests.stand_ins.sagemaker.client import Client
from tests.stand_ins.sagemaker.emulator import Emulator, namespaces_are_missing

ROOT = Path(__file__).parents[2]
missing = namespaces_are_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing is not None, reason=str(missing))]

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
    mlflow.log_param("note_as_seen", given.note)
    mlflow.log_param("rate", given.rate)
    mlflow.set_tag("greeting", greeting.WORD)
    mlflow.log_text(greeting.WORD, "texts/word.txt")
    mlflow.log_dict({"data": given.data, "files": sorted(os.listdir("."))}, "seen.json")
    with mlflow.start_run(nested=True, run_name="inner"):
        mlflow.log_metric("inner_loss", 0.25)
print("trained", greeting.WORD)
"""
SHELL = """
name: shell
python_env: python_env.yaml
entry_points:
  main:
    parameters:
      word: {type: string, default: hello}
    command: "set -e; echo word is {word}; cat requirements.txt | head -n 1; ls > $SM_OUTPUT_DATA_DIR/listing"
  fail:
    command: "echo about to fail; python -c 'import sys; sys.exit(\\"no luck today\\")' || exit 3"
  sleep:
    command: "trap 'echo got the signal; exit 0' TERM; echo sleeping; while true; do sleep 0.1; done; echo never"
  hosts:
    command: "python hosts.py"
"""


class Place:
    """An emulator, an MLflow store, and a user who types commands."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator = emulator
        self.folder = folder
        self.store = f"sqlite:///{folder / 'mlflow.db'}"
        self.tracking = MlflowClient(self.store)
        self.aws = Client(emulator)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW_", "AWS_"))},
            **emulator.environment,
            "MLFLOW_TRACKING_URI": self.store,
            "MLFLOW_TRACKING_PASSWORD": SECRET,
            "PARETUNE_ROLE": emulator.role,
            "HOME": str(folder),
        }
        self.configuration = {"instance_type": "ml.m5.xlarge", "max_runtime_minutes": 5}

    def words(self, project: Path, *words: str, **configuration: Any) -> list[str]:
        chosen = json.dumps(self.configuration | configuration)
        run = [str(Path(sys.executable).with_name("mlflow")), "run", str(project)]
        return [*run, "--backend", "sagemaker", "--backend-config", chosen, *words]

    def run(self, project: Path, *words: str, **configuration: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words(project, *words, **configuration),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            preexec_fn=use_one_core,
        )

    def latest(self) -> Run:
        return self.tracking.search_runs(["0"], "tags.`mlflow.project.backend` = 'sagemaker'", max_results=1)[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("user")
    with Emulator.start(
        tmp_path_factory.mktemp("emulator"),
        hide=[ROOT / "src"],
        quotas={"ml.m5.4xlarge": 0},
        start_delay_s=0.05,
        grace_s=20.0,
        failure_grace_s=0.3,
    ) as emulator:
        yield Place(emulator, folder)


def wheel(path: Path) -> None:
    """A package of one line: `greeting.WORD`."""
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("greeting.py", "WORD = 'bonjour'\n")
        about = "greeting-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module")
def conda_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("conda-project")
    wheel(project / "wheels" / "greeting-1.0-py3-none-any.whl")
    (project / "train.py").write_text(TRAIN)
    (project / "conda.yaml").write_text(
        "channels: [conda-forge]\ndependencies:\n  - python=3.11\n  - pip\n"
        "  - pip:\n    - numpy==2.4.*\n    - ./wheels/greeting-1.0-py3-none-any.whl\n    - mlflow\n"
    )
    (project / "MLproject").write_text(
        "name: foreign\nconda_env: conda.yaml\nentry_points:\n  main:\n    parameters:\n"
        "      rate: {type: float, default: 0.5}\n      data: path\n      note: {type: string, default: none}\n"
        '    command: "python train.py --rate {rate} --data {data} --note {note}"\n'
    )
    (project / ".gitignore").write_text("ignored/\n*.secret\n")
    (project / "ignored").mkdir()
    (project / "ignored" / "large.bin").write_text(SECRET)
    (project / "my.secret").write_text(SECRET)
    (project / ".env").write_text(f"PASSWORD={SECRET}")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return project


@pytest.fixture(scope="module")
def shell_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("shell-project")
    (project / "MLproject").write_text(SHELL)
    (project / "python_env.yaml").write_text(
        "python: '3.12'\nbuild_dependencies: [pip]\ndependencies: ['-r requirements.txt']\n"
    )
    (project / "requirements.txt").write_text("# of the project\npyyaml\n")
    (project / "hosts.py").write_text(
        "import os, mlflow\nmlflow.log_metric('hosts', int(os.environ['SM_HOST_COUNT']))\n"
        "mlflow.set_tag('host', os.environ['SM_CURRENT_HOST'])\n"
    )
    return project


@pytest.fixture(scope="module")
def conda_run(place: Place, conda_project: Path) -> tuple["subprocess.CompletedProcess[str]", Run]:
    """What the command of the conda project printed, and its run."""
    data = place.folder / "some rows.csv"
    data.write_text("a\nb\nc\n")
    done = place.run(conda_project, "-P", f"data={data}", "-P", f"note={NOTE}", "--run-name", "named by me")
    assert done.returncode == 0, done.stdout + done.stderr
    return done, place.latest()


def test_a_conda_project_runs_there_and_its_run_here_holds_what_it_recorded(
    place: Place, conda_run: tuple["subprocess.CompletedProcess[str]", Run]
) -> None:
    done, run = conda_run
    assert "trained bonjour" in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("+")]  # the SDK's own script
    assert (run.info.status, run.info.run_name) == ("FINISHED", "named by me")
    assert run.data.metrics["loss"] == pytest.approx(1 / 3)
    history = place.tracking.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert run.data.metrics["rows"] == 3
    assert run.data.params["note_as_seen"] == NOTE
    assert run.data.tags["greeting"] == "bonjour"
    seen = json.loads(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/seen.json"))
    assert seen["data"] == "/opt/ml/input/data/data/some rows.csv"
    assert not {"ignored", "my.secret", ".env", ".git"} & set(seen["files"])
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/texts/word.txt") == "bonjour"
    (child,) = place.tracking.search_runs(["0"], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert (child.info.run_name, child.info.status, child.data.metrics) == ("inner", "FINISHED", {"inner_loss": 0.25})


def test_the_run_says_where_it_ran_and_what_it_cost(
    place: Place, conda_run: tuple["subprocess.CompletedProcess[str]", Run]
) -> None:
    run = conda_run[1]
    tags, metrics = run.data.tags, run.data.metrics
    job = place.aws.wait(f"paretune-{run.info.run_id}-1")

    assert tags["mlflow.source.type"] == "PROJECT"
    assert tags["mlflow.project.entryPoint"] == "main"
    assert tags["mlflow.project.backend"] == "sagemaker"
    assert tags["paretune.launcher"] == "sagemaker"
    assert tags["paretune.job_name"] == job["TrainingJobName"]
    assert tags["paretune.job_arn"] == job["TrainingJobArn"]
    assert (tags["paretune.state"], tags["paretune.secondary_status"]) == ("Completed", "Completed")
    assert metrics["billable_seconds"] == job["BillableTimeInSeconds"]
    assert metrics["job_seconds"] >= 1
    price = float(unpacked(tags)["paretune.price_usd_per_hour"])
    assert metrics["cost_usd"] == pytest.approx(price * job["BillableTimeInSeconds"] / 3600)
    assert job["Environment"] == {"PYTHONUNBUFFERED": "1"}
    assert job.get("HyperParameters", {}) == {}


@pytest.mark.usefixtures("conda_run")
def test_nothing_ignored_and_no_secret_has_travelled(place: Place) -> None:
    assert SECRET not in json.dumps([request.body for request in place.emulator.requests()])
    keys = [entry["Key"] for entry in place.aws.s3.list_objects_v2(Bucket=place.emulator.bucket)["Contents"]]
    archives = [key for key in keys if key.endswith("code.tar.gz")]
    assert archives
    for key in keys:
        content = place.aws.get(key) or b""
        assert SECRET.encode() not in content, key
        if key.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(content)) as packed:
                names = packed.getnames()
                assert all(SECRET.encode() not in _bytes(packed, name) for name in names), key
            assert not [name for name in names if "ignored" in name or name.endswith((".secret", ".env"))]


def _bytes(packed: tarfile.TarFile, name: str) -> bytes:
    file = packed.extractfile(name)
    return file.read() if file is not None else b""


def test_a_shell_command_runs_with_the_project_s_own_requirements(place: Place, shell_project: Path) -> None:
    done = place.run(shell_project, "-P", "word=two words")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "word is two words" in done.stdout
    assert "# of the project" in done.stdout
    assert "Requirement already satisfied: pyyaml" in done.stdout
    assert place.latest().data.params["project_parameters.word"] == "two words"


def test_a_command_that_fails_fails_mlflow_run_with_its_reason(place: Place, shell_project: Path) -> None:
    done = place.run(shell_project, "-e", "fail")

    assert done.returncode == 1
    run = place.latest()
    assert run.info.status == "FAILED"
    reason = "the project's command ended with exit code 3: no luck today"
    assert run.data.tags["paretune.failure_reason"] == reason
    assert reason in done.stderr
    assert "    no luck today" in done.stderr
    assert run.data.tags["paretune.state"] == "Failed"


def test_from_python_it_returns_at_once_and_can_be_asked_waited_for_and_cancelled(
    place: Place, shell_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in place.environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(place.folder)
    mlflow.set_tracking_uri(place.store)
    try:
        retained = {"backend": "sagemaker", "backend_config": place.configuration, "synchronous": False}
        sleeping = mlflow.projects.run(str(shell_project), entry_point="sleep", **retained)
        assert sleeping.get_status() == "RUNNING"
        greeted = mlflow.projects.run(str(shell_project), **retained)
        assert greeted.wait() is True
        assert greeted.get_status() == "FINISHED"
        sleeping.cancel()
        assert sleeping.get_status() == "KILLED"
        assert sleeping.wait() is False
        with pytest.raises(ExecutionException, match="failed"):
            mlflow.projects.run(str(shell_project), entry_point="fail", **(retained | {"synchronous": True}))
    finally:
        mlflow.set_tracking_uri(None)  # an address, the former one even, would stand above the next test's environment

    assert place.tracking.get_run(greeted.run_id).info.status == "FINISHED"
    assert place.tracking.get_run(sleeping.run_id).info.status == "KILLED"
    assert len(place.emulator.jobs()) == len(set(place.emulator.jobs()))


def test_on_two_instances_the_first_one_s_records_count(place: Place, shell_project: Path) -> None:
    done = place.run(shell_project, "-e", "hosts", instance_count=2)

    assert done.returncode == 0, done.stdout + done.stderr
    run = place.latest()
    assert run.data.metrics["hosts"] == 2
    assert run.data.tags["host"] == "algo-1"
