"""`mlflow run --backend sagemaker`: whatever happens to its launcher, a job is found, booked and closed as it ended."""

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
from paretune.launchers.base import CREATED_WITHIN_S
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.job import JobSpec
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
            launcher = SageMakerLauncher(spec.region, self.clock, {})
            return make_workplace(launcher=launcher, tracking=tracking, home=self.folder, clock=self.clock)

        sync = Sync(
            workplace_of=workplace_of,
            tracking=tracking,
            interruption=Interruption(),
        )
        return {item.run_id: item for item in sync.run()}

    def end(self, run_id: str, primary: str = "Completed", **more: Any) -> None:
        """The job ends."""
        self.aws.sagemaker.end(self.job_of(run_id), primary, BillableTimeInSeconds=BILLED_S, **more)

    def job_of(self, run_id: str) -> str:
        """The name of the job of a run."""
        return self.client.get_run(run_id).data.tags["paretune.job_name"]

    def the_run(self) -> Run:
        """The newest run."""
        return self.client.search_runs(["0"], max_results=1)[0]

    def closed(self, run_id: str) -> tuple[str, str, float | None]:
        """Status, state and dollars of a run."""
        run = self.client.get_run(run_id)
        return run.info.status, run.data.tags["paretune.state"], run.data.metrics.get("cost_usd")


@pytest.fixture
def user(aws: Aws, clock: FakeClock, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.setattr(workplace_module, "SystemClock", lambda: clock)
    project = workplace / "project"
    project.mkdir()
    (project / "MLproject").write_text(
        "name: shell\nentry_points:\n  main:\n    parameters:\n      word: {type: string, default: hello}\n"
        '    command: "echo {word}"\n'
    )
    return User(aws, clock, workplace, MlflowClient())


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


def test_a_job_that_aws_did_not_know_is_looked_for_again_and_booked_when_it_is_there(user: User) -> None:
    run_id = user.start().run_id
    user.client.set_tag(run_id, "paretune.secondary_status", "Training")  # it has run
    hidden = user.aws.sagemaker.jobs.pop(user.job_of(run_id))
    user.clock.sleep(CREATED_WITHIN_S + 1)

    began = user.clock.monotonic()
    remark = user.sync()[run_id].remark

    assert user.clock.monotonic() - began >= 60  # one answer is no proof
    assert "no longer known to AWS" in remark
    assert user.closed(run_id)[2] is None
    assert user.sync() == {}

    user.aws.sagemaker.jobs[user.job_of(run_id)] = hidden
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


def test_a_list_of_instance_types_is_a_fault_of_its_parameter(workplace: Path) -> None:
    (workplace / "mine").mkdir()
    of_mlflow = {"ENV_MANAGER": None, "SYNCHRONOUS": False, "DOCKER_ARGS": {}, "STORAGE_DIR": None, "docker_auth": None}
    with pytest.raises(BadInput, match=r"instance_type must be a text, got ml\.g5\.xlarge"):
        read_request("mine", "train", {}, None, of_mlflow | {"instance_type": ["ml.g5.xlarge"]}, {})


def test_every_fault_is_told_at_once(workplace: Path) -> None:
    (workplace / "mine").mkdir()
    of_mlflow = {"ENV_MANAGER": None, "SYNCHRONOUS": False, "DOCKER_ARGS": {}, "STORAGE_DIR": None, "docker_auth": None}
    wrong = {"instance_typ": "x", "instance_count": "many", "learning_rate": 1e-4, "wait": "yes", "run_id": 1}
    with pytest.raises(BadInput) as caught:
        read_request("mine", "train", {"word": "x"}, "main", of_mlflow | wrong | {"build_image": True}, {})

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
