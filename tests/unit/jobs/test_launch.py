"""What a launched job says before it begins, and that a dry run, an estimate and a simulation agree with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.clock import SystemClock
from paretune.core.interruption import Interruption
from paretune.jobs.launch import launch, run_job
from paretune.jobs.preparation import cache_inputs
from paretune.jobs.workplace import Workplaces, has_store
from paretune.specification.container import DataFindings, JobInputs, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.tracking import PATIENCE, schema
from paretune.tracking.store import Tracking
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import DONE, SMALL, ScriptedLauncher
from tests.support.tags import tags_of
from tests.support.workplaces import make_workplace


def test_a_job_that_its_limit_would_end_is_refused_before_it_is_paid(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"model": "bert-base-uncased", "dataset": "a/b", "max_train_samples": "100000", "max_runtime_minutes": "2"}
    job |= {"launcher": "simulated", "instance_type": "ml.g4dn.xlarge"}
    words = ["train", *(word for name, text in job.items() for word in (f"--{name}", text))]
    opened = MlflowClient().create_run("0").info.run_id
    with monkeypatch.context() as by_mlflow:
        by_mlflow.setenv("MLFLOW_RUN_ID", opened)
        assert main(words) == 2
    refusal = capsys.readouterr().err
    assert main([*words, "--dry_run", "true"]) == 2

    assert "max_runtime_minutes must be at least" in refusal
    assert "max_runtime_minutes must be at least" in capsys.readouterr().err
    run = MlflowClient().get_run(opened)
    assert run.info.status == "FAILED"
    assert "max_runtime_minutes" in tags_of(run)[schema.FAILURE_REASON]
    assert main([*words, "--force", "limit"]) == 3  # intended: its limit ends it


@pytest.fixture
def no_account(workplace: Path, no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(workplace / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(workplace / "none"))


@pytest.mark.parametrize(
    ("region", "reason"),
    [((), "no AWS region is set"), (("--region", "us-east-1"), "no usable AWS credentials")],
    ids=["no region", "no credentials"],
)
def test_a_dry_run_without_an_aws_account_shows_plan_and_price_and_names_what_is_not_checked(
    region: tuple[str, ...],
    reason: str,
    workplace: Path,
    no_account: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (workplace / "train.py").write_text("import argparse\n")
    words = ["train", "train.py", "--instance_type", "ml.g5.xlarge", *region]

    assert main([*words, "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^  where +SageMaker, 1 x ml.g5.xlarge$", output, re.MULTILINE)
    assert re.search(r"^  worst case +\d+\.\d+ USD; the job is stopped after 1 h$", output, re.MULTILINE)
    assert f"warning: your AWS account was not queried: {reason}" in output
    assert "not checked: role, bucket, data in S3, permissions, quotas and budgets" in output
    assert "every parameter as JSON" in output
    assert "to launch it: paretune train --entry_script train.py --instance_type ml.g5.xlarge" in output
    assert main(words) == 2  # a launch needs the account
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("train.py --instance_type ml.g5.xlarge --strategy smddp", "strategy smddp needs one of"),
        pytest.param(
            *("--instance_type ml.g5.xlarge --strategy smp", "needs a training script of your own"),
            id="smp",
            marks=pytest.mark.trains,
        ),
        ("train.py --instance_type ml.m5.large --strategy deepspeed", "deepspeed needs GPUs"),
        ("train.py --instance_type ml.g5.xlarge --spot true --sagemaker.keep_alive_minutes 10", "cannot be combined"),
        ("train.py --instance_type ml.g5.xlarge --sagemaker.network_isolation true", "but pip must install einops"),
    ],
)
def test_a_dry_run_without_an_aws_account_refuses_what_the_launch_would_refuse(
    words: str, fault: str, workplace: Path, no_account: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text("import argparse\n")
    (workplace / "requirements.txt").write_text("einops\n")

    assert main(["train", *words.split(), "--dry_run"]) == 2
    assert fault in capsys.readouterr().err


@pytest.mark.trains
@pytest.mark.usefixtures("no_store")
def test_what_is_refused_leaves_nothing(
    workplace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def prepare(words: list[str], **_: object) -> subprocess.Popen[bytes]:
        Path(words[-1]).write_text('{"faults": ["dataset . has no rows"]}')
        return subprocess.Popen(["true"])

    monkeypatch.setattr(
        "paretune.jobs.preparation.subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": prepare})
    )
    path = tmp_path / "file.yaml"
    search = {"learning_rate": {"choices": [1e-5, 3e-5]}}
    path.write_text(json.dumps({"name": "n", "job": {"dataset": "."}, "search": search, "n_trials": 2}))
    assert main(["study", str(path)]) == 2

    assert "dataset . has no rows" in capsys.readouterr().err
    assert list(workplace.iterdir()) == []
    assert main(["train", "--dataset", "."]) == 2
    assert list(workplace.iterdir()) == []
    assert main(["train", "--max_cost_usd", "1e-9"]) == 4
    assert list(workplace.iterdir()) == []


def test_a_busy_machine_is_named_before_a_local_job(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "train.py").touch()
    monkeypatch.setattr("os.getloadavg", lambda: (1e3, 0.0, 0.0))
    place = make_workplace(launcher=ScriptedLauncher([DONE]), tracking=Tracking({}, SystemClock()), clock=FakeClock())

    run_job(JobSpec(entry_script="train.py"), place)

    (run,) = MlflowClient().search_runs(["0"])
    assert "this machine is busy, with a load average of 1000.0 on" in tags_of(run)[schema.WARNINGS]


class Listening(ScriptedLauncher):
    """Notes what the user has been told when a job is created."""

    def __init__(self, told: list[str]) -> None:
        super().__init__([DONE])
        self._told = told
        self.told_before: list[str] = []

    def submit(self, *given: Any, **named: Any) -> Any:
        self.told_before += self._told
        return super().submit(*given, **named)


def test_what_is_cut_off_the_rows_is_said_before_the_job_is_created_and_recorded(workplace: Path) -> None:
    model, rows, told = workplace / "model", workplace / "rows.csv", list[str]()
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 512}')
    rows.write_text("text,label\na,x\nb,y\n")
    spec = JobSpec(model=str(model), dataset=str(rows), instance_type=SMALL, region="us-east-1")
    facts = {"train_rows": 90.0, "train_tokens": 900.0, "validation_rows": 10.0, "kept_share": 0.01}
    prepared = PreparedDataset(key="1", folder=workplace, labels=("x", "y"), facts=facts, digests={})
    prepared.write()
    cut = "max_seq_length=128 keeps 1% of the tokens"
    cache_inputs(spec, workplace, JobInputs(dataset=prepared, model=model, findings=DataFindings(warnings=(cut,))))
    launcher = Listening(told)
    tracking = Tracking({}, SystemClock())
    place = make_workplace(launcher=launcher, tracking=tracking, home=workplace, clock=FakeClock(), messages=told)

    run_job(spec, place)

    assert f"warning: {cut}" in launcher.told_before
    (run,) = MlflowClient().search_runs(["0"])
    assert cut in tags_of(run)[schema.WARNINGS]
    assert tags_of(run)["paretune.kept_share"] == "0.01"


LAUNCHERS = JobSpec.schema_at(["launcher"])["enum"]


@pytest.mark.parametrize("name", sorted({*LAUNCHERS} - {"auto"}))
def test_a_job_is_opened_on_the_launcher_that_it_names(name: str, tmp_path: Path) -> None:
    instance_type = "ml.m5.large" if name == "sagemaker" else "local"
    spec = JobSpec(launcher=name, instance_type=instance_type, region="eu-west-1")

    workplace = Workplaces(environment={}, interruption=Interruption(), home=tmp_path).of(spec)

    assert workplace.launcher.traits.name == name
    assert (workplace.launcher.virtual_clock is workplace.clock) == (name == "simulated")


def test_a_folder_mlruns_is_no_store_if_mlflow_is_told_to_use_a_file_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mlflow")  # as in a command that has not needed it so far
    (tmp_path / "mlruns").mkdir()

    assert has_store({})
    assert not has_store({"MLFLOW_TRACKING_URI": "sqlite:///new.db"})


def test_a_store_whose_folder_cannot_be_entered_counts_as_one_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Path) -> bool:
        raise PermissionError

    monkeypatch.delitem(sys.modules, "mlflow")
    monkeypatch.setattr(Path, "exists", denied)

    assert has_store({"MLFLOW_TRACKING_URI": "sqlite:////none/inside/it.db"})  # opening it says what is wrong


def test_a_notebook_keeps_its_own_patience_with_mlflow(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PATIENCE:
        monkeypatch.delenv(name, raising=False)
    seen: list[str] = []
    monkeypatch.setattr("paretune.jobs.launch.run_job", lambda *_: seen.extend(map(os.environ.get, PATIENCE)))

    launch(JobSpec(launcher="simulated", instance_type="ml.g5.xlarge"), quiet=True)

    assert seen == ["2", "15"]
    assert not {*PATIENCE} & os.environ.keys()
