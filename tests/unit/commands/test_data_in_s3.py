"""Which data of a user's own training stay in S3 or on this machine, for commands as users type them."""

import json
from pathlib import Path

import pytest

from tests.support.aws_account import nothing_of_this_machine
from tests.support.stand_ins.aws import BUCKET, ROLE, Aws
from tests.support.typed import Run

__all__ = ["nothing_of_this_machine"]

ON_AWS = ("--instance_type", "ml.m5.large", "--role", ROLE, "--sagemaker.s3_bucket", BUCKET)
PROJECT = """name: mine
entry_points:
  main:
    parameters: {data: path}
    command: "python train.py --data {data}"
"""


@pytest.fixture
def project(workplace: Path) -> Path:
    folder = workplace / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("import argparse\nargparse.ArgumentParser().add_argument('--train_file')\n")
    (folder / "MLproject").write_text(PROJECT)
    return folder


@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_a_dry_run_says_which_data_stay_in_s3_and_what_leaves_this_machine(
    aws: Aws, typed: Run, project: Path, mode: str
) -> None:
    aws.put("rows/train.csv", b"text,label")
    address = f"s3://{BUCKET}/rows/train.csv"

    words = ("--dataset", address, "--sagemaker.input_mode", mode, "--dry_run")
    code, out, err = typed("train", str(project / "train.py"), *ON_AWS, *words)

    assert code == 0, err
    lines = {line.strip().partition("  ")[0]: " ".join(line.split()) for line in out.splitlines()}
    how = "streamed" if mode == "FastFile" else "downloaded before the training starts"
    assert lines["stays in S3"] == f"stays in S3 train from {address}, {how}"
    assert lines["leaves this machine"].endswith("share them: code, job")
    assert aws.count("PutObject", "GetObject") == 0


def test_a_study_whose_data_are_not_in_s3_is_refused_before_a_trial_is_paid(
    aws: Aws, typed: Run, project: Path, workplace: Path
) -> None:
    job = {"role": ROLE, "sagemaker": {"s3_bucket": BUCKET}, "entry_script": str(project / "train.py")}
    job["dataset"] = f"s3://{BUCKET}/rows/none.csv"
    types = {"instance_type": {"choices": ["ml.m5.large", "ml.m5.xlarge"]}}
    goals = {"cost_usd": "minimize", "job_seconds": "minimize"}
    study = {"name": "n", "job": job, "search": types, "objectives": goals, "n_trials": 2, "budget_usd": 20}
    (workplace / "study.yaml").write_text(json.dumps(study))

    code, _, err = typed("study", "study.yaml")

    assert code == 2
    assert f"dataset s3://{BUCKET}/rows/none.csv is neither an object nor a prefix of objects" in err
    assert aws.count("PutObject", "CreateTrainingJob") == 0
    assert aws.count("GetRole") == 2  # once for each of the two jobs
    assert not (workplace / ".paretune" / "studies.db").exists()


def test_a_path_of_a_project_in_s3_stays_there(aws: Aws, typed: Run, project: Path) -> None:
    aws.put("rows/train.csv", b"text,label")
    words = ("--training_arguments.data", f"s3://{BUCKET}/rows", "--dry_run")

    code, out, err = typed("train", "--project", str(project), *ON_AWS, *words)

    assert code == 0, err
    assert f"data from s3://{BUCKET}/rows/" in out
    assert "--data /opt/ml/input/data/data" in out
    assert aws.count("PutObject", "GetObject") == 0


@pytest.mark.parametrize("code", ["train.py", "."])
def test_a_dry_run_names_the_files_that_stay_behind_for_their_names(
    aws: Aws, typed: Run, project: Path, code: str
) -> None:
    (project / "data").mkdir()
    for name in ("answer-key.json", "data/token.csv", "words.csv", "tokenizer.json"):
        (project / name).write_text("{}")
    words = ("--training_arguments.data", str(project / "words.csv")) if code == "." else ()

    done, out, err = typed(
        "train", *(("--project",) * (code == ".")), str(project / code), *words, *ON_AWS, "--dry_run"
    )

    assert done == 0, err
    (line,) = (line.strip() for line in out.splitlines() if "not sent with the code" in line)
    assert line.startswith("warning: ")
    assert "answer-key.json, data/token.csv; rename" in line


def test_paretune_s_own_training_cannot_stream(aws: Aws, typed: Run) -> None:
    code, _, err = typed("train", *ON_AWS, "--sagemaker.input_mode", "FastFile", "--dry_run")

    assert code == 2
    assert "sagemaker.input_mode=FastFile is for project or entry_script" in err
    assert aws.count() == 0
