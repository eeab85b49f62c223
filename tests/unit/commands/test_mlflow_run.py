"""`mlflow run --backend sagemaker`: whatever happens to its launcher, a job is found, booked and closed as it ended."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.commands.mlflow_run import (
    SageMakerBackend,
    SageMakerSubmittedRun,
    follow,
    read_request,
)
from paretune.core.clock import Interruption
from paretune.core.errors import BadInput
from paretune.jobs import workplace as workplace_module
from paretune.jobs.sync import Collected, Sync
from paretune.launchers.base import CREATED_WITHIN_S, job_name
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.job import JobSpec
from paretune.tracking.recorded_job import RecordedJob
from paretune.tracking.store import Tracking
from tests.stand_ins.aws import BUCKET, ROLE, Aws, FakeClock
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine
from tests.workplaces import make_workplace

__all__ = ["nothing_of_this_machine"]

BILLED_S = 360  # of every job
USD_PER_HOUR = 0.115  # ml.m5.large in us-east-1, in the price list that comes with paretune
USD = BILLED_S / 3600 * USD_PER_HOUR


@dataclass
class User:
    """Somebody with a project, an AWS account and an MLflow store."""

    aws: Aws
    clock: FakeClock
    folder: Path
    client: MlflowClient

    def start(self, **configuration: Any) -> SageMakerSubmittedRun:
        """What `mlflow run PROJECT --backend sagemaker` does."""
        chosen = {"instance_type": "ml.m5.large", "role": ROLE, "sagemaker.s3_bucket": BUCKET} | configuration
        project = str(self.folder / "project")
        uri = mlflow.get_tracking_uri()
        run = SageMakerBackend().run(project, "main", {"word": "two words"}, None, chosen, uri, "0")
        assert isinstance(run, SageMakerSubmittedRun)
        return run

    def sync(self) -> dict[str, Collected]:
        """The command `sync`; run to what became of it."""
        tracking = Tracking({}, self.clock)

        def workplace_of(spec: JobSpec) -> Any:
            launcher = SageMakerLauncher(spec, self.clock, {})
            return make_workplace(launcher=launcher, tracking=tracking, home=self.folder, clock=self.clock)

        sync = Sync(
            workplace_of=workplace_of,
            tracking=tracking,
            interruption=Interruption(),
        )
        return {item.run_id: item for item in sync.run()}

    def end(self, run_id: str, primary: str = "Completed", **more: Any) -> None:
        """The job ends."""
        self.aws.sagemaker.end(job_name(run_id, 1), primary, BillableTimeInSeconds=BILLED_S, **more)

    def the_run(self) -> Run:
        """The newest run."""
        return self.client.search_runs(["0"], max_results=1)[0]

    def closed(self, run_id: str) -> tuple[str, str, float | None]:
        """Status, state and dollars of a run."""
        run = self.client.get_run(run_id)
        return run.info.status, run.data.tags["paretune.state"], run.data.metrics.get("cost_usd")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests of this file: making one takes seconds."""
    return tmp_path_factory.mktemp("store") / "mlflow.db"


@pytest.fixture
def user(
    aws: Aws, clock: FakeClock, workplace: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[User]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.setattr(workplace_module, "SystemClock", lambda: clock)
    project = workplace / "project"
    project.mkdir()
    (project / "MLproject").write_text(
        "name: shell\nentry_points:\n  main:\n    parameters:\n      word: {type: string, default: hello}\n"
        '    command: "echo {word}"\n'
    )
    user = User(aws, clock, workplace, MlflowClient())
    yield user
    for run in user.client.search_runs(["0"]):
        user.client.delete_run(run.info.run_id)


def recorded_in_the_job(user: User, run_id: str) -> None:
    """The archive of a job's results, with what its command has recorded."""
    workspace = user.folder / "results" / "paretune"
    (workspace / "mlruns").mkdir(parents=True)
    inner = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
    inner.log_metric(inner.create_run("0").info.run_id, "loss", 0.25, timestamp=1000)
    archive = user.folder / "output.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(workspace, "paretune")
    user.aws.s3.put_object(Key=f"paretune/jobs/{job_name(run_id, 1)}/output/output.tar.gz", Body=archive.read_bytes())


def test_what_a_job_prints_reaches_the_terminal_without_commands_to_it(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted = user.start()
    lines = ("paretune: begins", "\x1b]0;title\x07done \u202e", "  1%|\r 50%|\r100%|\r")
    user.aws.logs.say(f"{submitted.job_name}/algo-1-1", *lines)
    user.end(submitted.run_id, "Failed", FailureReason="AlgorithmError: \x1b[2Jexit code 1")
    capsys.readouterr()

    submitted.wait()

    out, err = capsys.readouterr()
    assert out == "paretune: begins\n\\x1b]0;title\\x07done \\u202e\n100%|\n"
    assert "\\x1b[2Jexit code 1" in err
    assert "\x1b" not in err


@pytest.mark.slow
def test_sync_follows_a_running_project_and_collects_what_it_recorded(user: User) -> None:
    run_id = user.start().run_id
    recorded_in_the_job(user, run_id)
    user.end(run_id)  # and nobody has looked since

    outcome = user.sync()[run_id].result

    assert outcome is not None
    run = user.client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["loss"] == 0.25
    assert run.data.metrics["cost_usd"] == pytest.approx(USD)
    assert run.data.params["project_parameters.word"] == "two words"
    assert user.sync() == {}
    recorded = Tracking({}, user.clock).runs(f"attributes.run_id = '{run_id}'")
    (job,) = map(RecordedJob, recorded)
    assert (job.origin, job.instance_type, job.instance_count) == ("measured", "ml.m5.large", 1)


def test_a_job_that_aws_did_not_know_is_looked_for_again_and_booked_when_it_is_there(user: User) -> None:
    run_id = user.start().run_id
    user.client.set_tag(run_id, "paretune.secondary_status", "Training")  # it has run
    hidden = user.aws.sagemaker.jobs.pop(job_name(run_id, 1))
    user.clock.sleep(CREATED_WITHIN_S + 1)

    began = user.clock.monotonic()
    remark = user.sync()[run_id].remark

    assert user.clock.monotonic() - began >= 60  # one answer is no proof
    assert "no longer known to AWS" in remark
    assert user.closed(run_id)[2] is None
    assert user.sync() == {}

    user.aws.sagemaker.jobs[job_name(run_id, 1)] = hidden
    user.end(run_id)
    user.sync()

    assert user.closed(run_id) == ("FINISHED", "Completed", pytest.approx(USD))
    assert user.sync() == {}


def stop_at_once(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs end when they are asked to stop."""
    stop = user.aws.sagemaker.stop_training_job

    def stop_and_end(**request: Any) -> dict[str, Any]:
        answer = stop(**request)
        user.aws.sagemaker.end(request["TrainingJobName"], "Stopped", BillableTimeInSeconds=BILLED_S)
        return answer

    monkeypatch.setattr(user.aws.sagemaker, "stop_training_job", stop_and_end)


@pytest.mark.parametrize("is_created", [True, False])
def test_ctrl_c_during_create_training_job_stops_the_job_and_the_run_is_killed(
    user: User, monkeypatch: pytest.MonkeyPatch, is_created: bool
) -> None:
    create = user.aws.sagemaker.create_training_job

    def interrupt(**request: Any) -> None:
        if is_created:
            create(**request)
        raise KeyboardInterrupt

    monkeypatch.setattr(user.aws.sagemaker, "create_training_job", interrupt)
    stop_at_once(user, monkeypatch)

    with pytest.raises(KeyboardInterrupt):
        user.start()

    usd = USD if is_created else 0
    assert user.closed(user.the_run().info.run_id) == ("KILLED", "Stopped", pytest.approx(usd))
    assert user.sync() == {}


def test_an_interrupted_command_line_stops_its_job_and_the_run_is_killed(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    submitted = user.start()
    stop_at_once(user, monkeypatch)
    sleep = user.clock.sleep

    def signalled(seconds: float) -> None:
        if user.clock.monotonic() < 30 <= user.clock.monotonic() + seconds:
            signal.raise_signal(signal.SIGTERM)
        sleep(seconds)

    monkeypatch.setattr(user.clock, "sleep", signalled)

    with pytest.raises(KeyboardInterrupt):
        follow(submitted)

    assert user.closed(submitted.run_id) == ("KILLED", "Stopped", pytest.approx(USD))


OF_MLFLOW: dict[str, Any] = {
    "ENV_MANAGER": None,
    "SYNCHRONOUS": False,
    "DOCKER_ARGS": {},
    "STORAGE_DIR": None,
    "build_image": False,
    "docker_auth": None,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def request(version: str | None = None, **keys: Any) -> tuple[JobSpec, bool, str | None]:
    return read_request("mine", "train", {"word": "x"}, version, OF_MLFLOW | keys, {})


def test_the_keys_are_parameters_of_a_job(project: Path) -> None:
    cluster = {"instance_type": "ml.m5.xlarge", "instance_count": 2, "spot": True, "tags": {"team": "search"}}
    network = {"sagemaker.subnets": ["subnet-1"], "sagemaker.security_group_ids": "sg-1"}
    spec, waits, run_id = request(**cluster, **network, wait=False)

    assert (spec.project, spec.entry_point, spec.project_parameters) == (str(project), "train", {"word": "x"})
    assert (spec.instance_type, spec.instance_count, spec.spot, spec.tags) == tuple(cluster.values())
    assert (spec.sagemaker.subnets, spec.sagemaker.security_group_ids) == (("subnet-1",), ("sg-1",))
    assert (spec.on_sagemaker, waits, run_id) == (True, False, None)


@pytest.mark.usefixtures("project")
def test_a_list_of_instance_types_is_a_fault_of_its_parameter() -> None:
    with pytest.raises(BadInput, match=r"instance_type must be a text, got ml\.g5\.xlarge"):
        request(instance_type=["ml.g5.xlarge"])


@pytest.mark.usefixtures("project")
def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        request(
            "main", instance_typ="x", instance_count="many", learning_rate=1e-4, wait="yes", run_id=1, build_image=True
        )

    text = "\n".join(caught.value.faults)
    for part in (
        "instance_typ: did you mean instance_type",
        "instance_count must be a whole number at least 1 and at most 1024, got 'many'",
        "wait must be true or false, got 'yes'",
        "run_id must be a text, got 1",
        "--build-image mean nothing here",
        "--version means nothing here: clone the project",
    ):
        assert part in text
