"""`mlflow run PROJECT --backend sagemaker`, by MLflow's own command and function."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient
from mlflow.cli import cli
from mlflow.entities import Run
from mlflow.exceptions import ExecutionException

from paretune.cli import main
from paretune.jobs import workplace as workplace_module
from tests.support.aws_account import nothing_of_this_machine
from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import BUCKET, ROLE, Aws
from tests.support.tags import tags_of

__all__ = ["nothing_of_this_machine"]

ROOT = Path(__file__).parents[3]
FOREIGN = ROOT / "tests" / "foreign" / "sklearn_elasticnet"
ON_AWS: dict[str, Any] = {"instance_type": "ml.m5.large", "role": ROLE, "sagemaker": {"s3_bucket": BUCKET}}
USD = 360 / 3600 * 0.115  # ml.m5.large in us-east-1, in the price list that comes with paretune


class EndingClock(FakeClock):
    """Ends the jobs of the account after ten waits."""

    def __init__(self, aws: Aws) -> None:
        super().__init__()
        self._aws, self._waits, self.reason = aws, 0, ""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._waits += 1
        for name, job in self._aws.training.jobs.items():
            if not job.is_over and (self._waits > 10 or "stop" in job.orders):
                end = "Stopped" if "stop" in job.orders else "Failed" if self.reason else "Completed"
                self._aws.end(name, end, reason=self.reason, BillableTimeInSeconds=360, TrainingTimeInSeconds=360)


@pytest.fixture
def ending(aws: Aws, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> EndingClock:
    clock = EndingClock(aws)
    monkeypatch.setattr(workplace_module, "SystemClock", lambda: clock)
    monkeypatch.setenv("PARETUNE_HOME", str(workplace / ".paretune"))
    return clock


@pytest.fixture
def mlflow_run(ending: EndingClock) -> Callable[..., Result]:
    """Return a function that runs `mlflow run PROJECT --backend sagemaker` with these words and this configuration."""

    def run(*words: str, project: Path = FOREIGN, **configuration: Any) -> Result:
        config = json.dumps({**ON_AWS, **configuration})
        command = ["run", str(project), "--backend", "sagemaker", "--backend-config", config, *words]
        return CliRunner().invoke(cli, command)

    return run


def the_run() -> Run:
    (run,) = MlflowClient().search_runs(["0"])
    return run


def document_of(aws: Aws) -> dict[str, Any]:
    """Return the document of the only job."""
    (content,) = [content for key, content in aws.objects.items() if key.endswith("/job.json")]
    return dict(json.loads(content))


def test_it_runs_the_project_as_a_job_and_waits_for_the_end(mlflow_run: Callable[..., Result], aws: Aws) -> None:
    done = mlflow_run("-P", "alpha=0.25", max_runtime_minutes=30)

    assert done.exit_code == 0, done.output
    assert "train.py 0.25 0.1" in document_of(aws)["command"]["words"][0]
    (job,) = aws.training.jobs.values()
    assert job.request["StoppingCondition"]["MaxRuntimeInSeconds"] == 1800
    run = the_run()
    assert run.info.status == "FINISHED"
    assert run.data.params["training_arguments.alpha"] == "0.25"
    assert run.data.metrics["cost_usd"] == pytest.approx(USD)
    tags = tags_of(run)
    assert (tags["mlflow.project.backend"], tags["mlflow.project.entryPoint"]) == ("sagemaker", "main")
    assert tags["mlflow.source.name"] == str(FOREIGN)


def test_the_policy_in_the_pages_is_enough_for_a_launch(mlflow_run: Callable[..., Result], aws: Aws) -> None:
    page = (ROOT / "docs" / "sagemaker.md").read_text()
    blocks = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    (policy,) = [block for block in blocks if "iam:PassRole" in json.dumps(block)]
    allowed = {action for statement in policy["Statement"] for action in statement["Action"]}
    aws.allow_only(allowed)

    done = mlflow_run()

    assert done.exit_code == 0, done.output
    assert the_run().data.metrics["cost_usd"] == pytest.approx(USD)
    aws.allow_only(allowed - {"sagemaker:CreateTrainingJob"})
    assert mlflow_run().exit_code == 1


def test_a_failed_job_ends_the_command_with_1_and_its_reason(
    mlflow_run: Callable[..., Result], ending: EndingClock
) -> None:
    ending.reason = "AlgorithmError: no such column"

    done = mlflow_run()

    assert done.exit_code == 1
    assert "no such column" in done.output
    assert the_run().info.status == "FAILED"


def test_typed_twice_it_pays_one_job(mlflow_run: Callable[..., Result], aws: Aws, ending: EndingClock) -> None:
    submitted = mlflow.projects.run(
        str(FOREIGN), backend="sagemaker", backend_config=ON_AWS, parameters={"alpha": "0.25"}, synchronous=False
    )
    done = mlflow_run("-P", "alpha=0.25")

    assert done.exit_code == 0, done.output
    assert aws.count("CreateTrainingJob") == 1
    assert submitted.wait()
    assert submitted.run_id == the_run().info.run_id


def test_from_python_it_returns_at_once_and_cancel_stops_the_job(ending: EndingClock, aws: Aws) -> None:
    submitted = mlflow.projects.run(str(FOREIGN), backend="sagemaker", backend_config=ON_AWS, synchronous=False)
    assert submitted.get_status() == "RUNNING"

    submitted.cancel()

    assert aws.count("StopTrainingJob") == 1
    assert submitted.get_status() == "KILLED"
    assert the_run().info.status == "KILLED"
    assert the_run().data.metrics["cost_usd"] == pytest.approx(USD)


def test_a_project_that_runs_itself_starts_jobs_in_runs_of_their_own(
    ending: EndingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = MlflowClient().create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", opened)

    submitted = mlflow.projects.run(str(FOREIGN), backend="sagemaker", backend_config=ON_AWS)

    assert submitted.run_id != opened
    assert MlflowClient().get_run(opened).info.status == "RUNNING"


@pytest.mark.parametrize(
    ("words", "configuration", "message"),
    [
        (["-P", "alhpa=1"], {"launcher": "local", "project": "x"}, "launcher is set by `mlflow run`"),
        ([], {"instance_typ": "ml.m5.large"}, "instance_type"),
        (["--version", "abc"], {}, "--version has no effect here"),
        (["-A", "gpus=all"], {}, "set sagemaker.training_image"),
        (["-e", "nothing.sh"], {}, "entry_point nothing.sh is not in project"),
        ([], {"dry_run": True}, "--dry_run true`"),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_launched(
    mlflow_run: Callable[..., Result], aws: Aws, words: list[str], configuration: dict[str, Any], message: str
) -> None:
    done = mlflow_run(*words, **configuration)

    assert done.exit_code == 1
    assert message in done.output
    assert "Traceback" not in done.output
    assert aws.count("CreateTrainingJob", "PutObject") == 0
    assert not MlflowClient().search_runs(["0"])


def test_the_command_to_use_in_place_of_a_dry_run_works(
    mlflow_run: Callable[..., Result], aws: Aws, capsys: pytest.CaptureFixture[str]
) -> None:
    done = mlflow_run(dry_run=True)

    (command,) = re.findall("use `paretune (.+)`", done.output)
    assert main(shlex.split(command)) == 0
    assert "nothing was launched" in capsys.readouterr().out
    assert aws.count("CreateTrainingJob", "PutObject") == 0


def test_for_paretune_s_own_project_it_is_a_job_of_paretune_s_training(
    mlflow_run: Callable[..., Result], aws: Aws, tiny_model: Path, reviews: Path
) -> None:
    words = ["-P", f"model={tiny_model}", "-P", f"dataset={reviews}", "-P", "max_seq_length=32"]

    done = mlflow_run(*words, project=ROOT)

    assert "without a report.json" in done.output  # the account of this test trains nothing
    assert document_of(aws)["spec"]["max_seq_length"] == 32
    (job,) = aws.training.jobs.values()
    assert {channel["ChannelName"] for channel in job.request["InputDataConfig"]} == {"code", "job", "dataset", "model"}


def test_for_other_entry_points_of_paretune_it_says_to_leave_the_backend_out(
    mlflow_run: Callable[..., Result],
) -> None:
    done = mlflow_run("-e", "study", project=ROOT)

    assert done.exit_code == 1
    assert "study does not launch a training job: run it without --backend" in done.output


def test_a_configuration_may_be_a_file(ending: EndingClock, workplace: Path) -> None:
    (workplace / "job.json").write_text(json.dumps(ON_AWS))

    command = ["run", str(FOREIGN), "--backend", "sagemaker", "--backend-config", "job.json"]
    done = CliRunner().invoke(cli, command)

    assert done.exit_code == 0, done.output


def test_from_python_a_failed_job_raises_mlflow_s_own_error(ending: EndingClock) -> None:
    ending.reason = "AlgorithmError: no such column"

    with pytest.raises(ExecutionException):
        mlflow.projects.run(str(FOREIGN), backend="sagemaker", backend_config=ON_AWS)
