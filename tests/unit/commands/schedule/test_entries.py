"""Entries for schedulers: each is what its scheduler takes, has no secret in it, and counts 75 as no failure."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator

from paretune.cli.main import main
from paretune.storage.address import SERVERS_ONLY
from tests.study_tables import write_study

HIDDEN = "hunter2"
STORAGE = f"postgresql://ada:{HIDDEN}@db.example.com/studies"
SERVER = "https://mlflow.example.com"
ROLES = ["--role", "arn:aws:iam::111122223333:role/train", "--scheduler_role", "arn:aws:iam::111122223333:role/call"]
AWS = [*ROLES, "--image_uri", "111122223333.dkr.ecr.eu-west-1.amazonaws.com/paretune:1", "--region", "eu-west-1"]
AWS += ["--secret", "paretune/storage", "--bucket", "my-models"]

ROLE = "SageMakerTraining"

Printed = Callable[..., str]


def write_cloud_study(folder: Path, **job: Any) -> None:
    """study.yaml, whose jobs run on SageMaker and read nothing of this machine."""
    study = {
        "name": "Nightly: rates & batches",
        "job": {"instance_type": "ml.g5.xlarge", **job},
        "search": {"learning_rate": {"choices": [1e-5, 1e-4]}},
        "budget_usd": 5,
        "n_trials": 4,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.fixture
def printed(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What `paretune schedule` prints of a study; the storage with its password is known from the environment."""
    write_cloud_study(workplace)
    monkeypatch.setenv("PARETUNE_STORAGE", STORAGE)
    monkeypatch.setenv("PARETUNE_ROLE", ROLE)
    monkeypatch.setenv("PARETUNE_BUCKET", "our-models")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)

    def call(*words: str) -> str:
        study = () if "--study" in words else ("--study", "study.yaml")
        assert main(["schedule", *study, *words]) == 0
        output = capsys.readouterr()
        assert HIDDEN not in output.out + output.err
        return output.out

    return call


def model_faults(service: str, operation: str, request: Any) -> str:
    """What botocore's model of the service has against a request."""
    model = botocore.session.get_session().get_service_model(service).operation_model(operation)
    return str(ParamValidator().validate(request, model.input_shape).generate_report())


def exit_code_of(script: str, folder: Path, code: int) -> int:
    """How a shell script ends whose round ends with `code`."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("paretune", "python"):
        (programs / name).write_text(f"#!/bin/sh\n[ $0 = {programs}/python ] && echo address && exit 0\nexit {code}\n")
        (programs / name).chmod(0o755)
    result = subprocess.run(["sh", "-c", script], env={"PATH": f"{programs}:/usr/bin:/bin"}, cwd=folder, check=False)
    return result.returncode


def test_the_line_for_cron_has_five_fields_and_a_command_that_takes_75_for_no_failure(
    printed: Printed, workplace: Path
) -> None:
    *remarks, line = printed("--every_minutes", "15").strip().splitlines()
    fields, command = line.split(" ", 5)[:5], line.split(" ", 5)[5]
    assert fields == ["*/15", "*", "*", "*", "*"]
    assert all(remark.startswith("#") for remark in remarks)
    assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
    secrets = workplace / ".paretune" / "secrets"
    secrets.parent.mkdir()
    secrets.write_text("export PARETUNE_STORAGE=x\n")
    played = re.sub(r"\S+ -m paretune", "paretune", command)
    assert played != command
    assert [exit_code_of(played, workplace, code) for code in (0, 75, 2, 4)] == [0, 0, 2, 4]
    secrets.write_text("export PARETUNE_STORAGE=\n")
    assert exit_code_of(played, workplace, 0) == 2  # no round with a storage of its own
    assert "secrets" not in printed("--storage", "sqlite:///other.db")  # nothing of the round lies on the server


def test_a_round_of_cron_gets_what_its_storage_and_its_budgets_depend_on(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(workplace, n_trials=4)
    home, profile = workplace / "its home", workplace / "team.toml"
    profile.write_text('budget = "team.yaml"\n')
    reference = {
        "PARETUNE_STORAGE": "sqlite:///shared.db",
        "PARETUNE_HOME": str(home),
        "PARETUNE_PROFILE": str(profile),
    }
    reference |= {"AWS_PROFILE": "research", "AWS_REGION": "eu-west-1", "AWS_CONFIG_FILE": "/etc/our aws"}
    reference |= {"PARETUNE_ROLE": ROLE, "PARETUNE_BUCKET": "our-models"}
    for name, text in reference.items():
        monkeypatch.setenv(name, text)
    assert main(["schedule", "--study", "study.yaml"]) == 0
    line = capsys.readouterr().out.strip().splitlines()[-1]

    command = re.sub(r"\S+ -m paretune study .*? \|\| ", "env || ", line.split(" ", 5)[5])
    assert subprocess.run(["bash", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=False).returncode == 0
    seen = dict(text.split("=", 1) for text in (home / "rounds.log").read_text().splitlines())
    assert {name: seen.get(name) for name in reference} == reference


@pytest.mark.parametrize("location", ["study", "profile"])
def test_a_budget_that_would_not_reach_the_container_is_refused(
    location: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cloud_study(workplace, role=ROLE, **({"budget": "team.yaml"} if location == "study" else {}))
    if location == "profile":
        (workplace / "paretune.toml").write_text('budget = "team.yaml"\n')
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)
    assert main(["schedule", "--study", "study.yaml", "--kind", "github"]) == 2
    assert f"of the {location}, does not travel into containers" in capsys.readouterr().err
    assert main(["schedule", "--study", "study.yaml"]) == 0


def test_the_manifest_for_kubernetes_forbids_two_rounds_at_a_time(printed: Printed, workplace: Path) -> None:
    result = yaml.safe_load(printed("--kind", "kubernetes", "--image_uri", "example.com/paretune:1"))
    assert (result["apiVersion"], result["kind"]) == ("batch/v1", "CronJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", result["metadata"]["name"])
    spec = result["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("*/10 * * * *", "Forbid")
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    assert (pod["restartPolicy"], job["backoffLimit"]) == ("Never", 0)
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    script = container["command"][2].replace("cd /study", f"cd {shlex.quote(str(workplace))}")
    assert [exit_code_of(script, workplace, code) for code in (0, 75, 3)] == [0, 0, 3]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert env.items() >= {"PARETUNE_ROLE": ROLE, "PARETUNE_BUCKET": "our-models", "AWS_REGION": "us-east-1"}.items()


def test_the_study_s_file_has_a_name_in_the_pod_that_a_config_map_takes(printed: Printed, workplace: Path) -> None:
    path = workplace / "ada's 50 %.yaml"
    (workplace / "study.yaml").rename(path)
    text = printed("--study", path.name, "--kind", "kubernetes", "--image_uri", "example.com/paretune:1")
    command = next(line.removeprefix("# ") for line in text.splitlines() if "configmap" in line)
    assert shlex.split(command)[-1] == f"--from-file=study.yaml={path.name}"
    assert "--study study.yaml --once" in text


def test_a_secret_for_pods_is_not_made_of_an_address_that_is_not_set(printed: Printed, workplace: Path) -> None:
    text = printed("--kind", "kubernetes", "--image_uri", "example.com/paretune:1")
    command = next(line.removeprefix("# kubectl") for line in text.splitlines() if "create secret" in line)
    reference = {"PARETUNE_STORAGE": STORAGE, "MLFLOW_TRACKING_URI": SERVER}
    lacking = [reference, {**reference, "PARETUNE_STORAGE": ""}, {**reference, "MLFLOW_TRACKING_URI": ""}]
    finished = [
        subprocess.run(["sh", "-c", f"echo {command}"], env=env, check=False).returncode == 0 for env in lacking
    ]
    assert finished == [True, False, False]


@pytest.mark.parametrize("kind", ["kubernetes", "github", "eventbridge"])
def test_a_round_in_a_container_that_is_given_no_address_ends_before_it_opens_a_ledger_of_its_own(
    kind: str, printed: Printed, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"kubernetes": ["--image_uri", "example.com/paretune:1"], "github": [], "eventbridge": AWS}
    text = printed("--kind", kind, *words[kind])
    assert SERVERS_ONLY in text
    monkeypatch.setenv(SERVERS_ONLY, "1")
    monkeypatch.setenv("PARETUNE_STORAGE", "")
    write_study(workplace, n_trials=4)
    assert main(["study", "--study", "study.yaml", "--once"]) == 2
    assert "storage must be postgresql://... for rounds in containers" in capsys.readouterr().err
    monkeypatch.setenv("PARETUNE_STORAGE", STORAGE)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert main(["study", "--study", "study.yaml", "--once"]) == 2
    assert "MLFLOW_TRACKING_URI must name a server" in capsys.readouterr().err
    assert not list(workplace.rglob("studies.db"))


def test_the_workflow_for_github_runs_one_round_at_a_time(printed: Printed, workplace: Path) -> None:
    result = yaml.safe_load(printed("--kind", "github", "--every_minutes", "60"))
    assert result["on"]["schedule"] == [{"cron": "0 * * * *"}]
    assert result["concurrency"]["cancel-in-progress"] is False
    (job,) = result["jobs"].values()
    *_, sign_in, _, step = job["steps"]
    assert sign_in["with"]["role-to-assume"] == "${{ secrets.AWS_ROLE_TO_ASSUME }}"  # and not the role of the jobs
    assert step["env"]["PARETUNE_STORAGE"] == "${{ secrets.PARETUNE_STORAGE }}"
    assert step["env"].items() >= {"PARETUNE_ROLE": ROLE, "PARETUNE_BUCKET": "our-models"}.items()
    assert [exit_code_of(step["run"], workplace, code) for code in (0, 75, 2)] == [0, 0, 2]


def test_the_schedule_for_eventbridge_is_one_that_aws_takes(printed: Printed, workplace: Path) -> None:
    text = printed("--kind", "eventbridge", "--every_minutes", "7", *AWS)
    assert subprocess.run(["bash", "-n", "-c", text], check=False).returncode == 0
    upload, _, document = text.partition("\n")
    assert upload == "aws s3 cp study.yaml s3://my-models/paretune/schedules/nightly-rates-batches/study.yaml"
    request = json.loads(document.partition("<<'JSON'")[2].rpartition("JSON")[0])
    assert model_faults("scheduler", "CreateSchedule", request) == ""
    assert request["ScheduleExpression"] == "rate(7 minutes)"
    job = json.loads(request["Target"]["Input"])
    assert model_faults("sagemaker", "CreateProcessingJob", job) == ""
    name = job["ProcessingJobName"].replace("<aws.scheduler.execution-id>", "0" * 36)
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name)
    words = job["AppSpecification"]["ContainerEntrypoint"] + job["AppSpecification"]["ContainerArguments"]
    assert max(map(len, words)) <= 256
    assert job["ProcessingInputs"][0]["S3Input"]["S3Uri"] == upload.split()[-1]
    script = shlex.join(words)
    assert [exit_code_of(script, workplace, code) for code in (0, 75, 2)] == [0, 0, 1]
    assert job["Environment"].items() >= {"PARETUNE_ROLE": ROLE, "PARETUNE_BUCKET": "our-models"}.items()


@pytest.mark.parametrize("secret", ["exit 1", "echo"])
def test_a_round_whose_secret_cannot_be_read_or_is_empty_is_not_begun(
    secret: str, printed: Printed, workplace: Path
) -> None:
    text = printed("--kind", "eventbridge", *AWS)
    request = json.loads(text.partition("<<'JSON'")[2].rpartition("JSON")[0])
    application = json.loads(request["Target"]["Input"])["AppSpecification"]
    script = shlex.join(application["ContainerEntrypoint"] + application["ContainerArguments"])
    exit_code_of("true", workplace, 0)
    (workplace / "programs" / "python").write_text(f"#!/bin/sh\n{secret}\n")
    (workplace / "programs" / "paretune").write_text("#!/bin/sh\ntouch begun\n")
    path = {"PATH": f"{workplace / 'programs'}:/usr/bin:/bin"}
    assert subprocess.run(["sh", "-c", script], env=path, cwd=workplace, check=False).returncode == 2
    assert not (workplace / "begun").exists()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--every_minutes", "0"], "every_minutes must be at least 1 and at most 1440, got 0"),
        (["--every_minutes", "7"], "every_minutes must divide an hour or, in whole hours, a day"),
        (["--kind", "github", "--every_minutes", "1"], "every_minutes must be 5 or more for GitHub"),
        (["--kind", "kubernetes"], "kind=kubernetes needs image_uri"),
        (["--kind", "eventbridge", *AWS[:-2]], "kind=eventbridge needs bucket"),
        (["--kind", "github", "--storage", "sqlite:///a.db"], "a file ends with its container"),
        (["--kind", "eventbridge", *AWS, "--role", "me"], "role is given twice"),
    ],
)
def test_what_would_make_no_whole_entry_is_refused(
    words: list[str], fault: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(workplace)
    assert main(["schedule", "--study", "study.yaml", *words]) == 2
    assert fault in capsys.readouterr().err


def test_an_interval_below_a_minute_is_one_fault(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(workplace)
    assert main(["schedule", "--study", "study.yaml", "--kind", "github", "--every_minutes", "-7"]) == 2
    assert capsys.readouterr().err.count("every_minutes") == 1


@pytest.mark.parametrize(("kind", "more"), [("kubernetes", ["--image_uri", "example.com/i:1"]), ("eventbridge", AWS)])
def test_files_of_this_machine_that_would_not_reach_the_container_are_refused(
    kind: str, more: list[str], printed: Printed, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("")
    Path("rows.csv").write_text("text,label\n")
    for job in ({"entry_script": "train.py"}, {"dataset": "rows.csv"}):
        write_cloud_study(workplace, **job)
        assert main(["schedule", "--study", "study.yaml", "--kind", kind, *more]) == 2
        ((name, text),) = job.items()
        assert f"{name} {text} does not travel into containers" in capsys.readouterr().err
        assert printed()
        assert printed("--kind", "github")


def test_a_path_that_github_does_not_check_out_is_refused(
    printed: Printed, workplace: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["schedule", "--kind", "github", "--study"]
    assert main([*words, str(workplace / "study.yaml")]) == 2
    assert "study.yaml is not in the folder that GitHub checks out" in capsys.readouterr().err
    rows = tmp_path_factory.mktemp("elsewhere") / "rows.csv"
    rows.write_text("text,label\n")
    write_cloud_study(workplace, dataset=str(rows))
    assert main([*words, "study.yaml"]) == 2
    assert f"dataset {rows} is not in the folder that GitHub checks out" in capsys.readouterr().err
    (workplace / "studies").mkdir()
    (workplace / "studies" / "rows.csv").write_text("text,label\n")
    write_cloud_study(workplace, dataset="rows.csv")
    (workplace / "study.yaml").rename(workplace / "studies" / "own.yaml")
    assert main([*words, "studies/own.yaml"]) == 0


def test_containers_need_a_role_for_the_jobs_that_they_launch(
    printed: Printed, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PARETUNE_ROLE")
    assert main(["schedule", "--study", "study.yaml", "--kind", "github"]) == 2
    assert "role must be set for jobs that are launched from containers" in capsys.readouterr().err
    assert printed()  # cron's rounds have what this machine has
    write_cloud_study(workplace, role=ROLE)
    assert printed("--kind", "github")


def test_a_study_whose_jobs_end_with_their_process_gets_no_entry(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(workplace, job={"launcher": "local"}, search={"learning_rate": {"choices": [1e-5, 1e-4]}}, n_trials=2)
    assert main(["schedule", "--study", "study.yaml"]) == 2
    assert "rounds need jobs that go on" in capsys.readouterr().err


def test_containers_need_servers_and_passwords_are_not_printed(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cloud_study(workplace, role=ROLE)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert main(["schedule", "--study", "study.yaml", "--kind", "github"]) == 2
    assert "MLFLOW_TRACKING_URI must name a server" in capsys.readouterr().err
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"https://ada:{HIDDEN}@mlflow.example.com")
    assert main(["schedule", "--study", "study.yaml"]) == 2
    output = capsys.readouterr()
    assert "must have no password" in output.err
    assert HIDDEN not in output.err + output.out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)
    assert main(["schedule", "--study", "study.yaml", "--storage", STORAGE]) == 0
    assert HIDDEN not in capsys.readouterr().out
