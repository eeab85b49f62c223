"""Ten wrong inputs of three commands: one message each, exit code 2, and no run."""

import contextlib
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.specification.catalog import instances

WRONG = [
    (
        "main --instance_type ml.g5.xlarge,ml.g5.2xlarge",
        f"instance_type must be one of the {len(instances())} known types",
    ),
    ("main --max_cost_usd 5$", "max_cost_usd must be a number, got '5$'"),
    ("main --learning_rate 0,0001", "learning_rate must be a number, got '0,0001'"),
    ("main --instance_type ml.g5.xlarge --region us-east", "region must be an AWS region that has SageMaker"),
    ("study --study reversed.yaml", "reversed.yaml:2: learning_rate: low must be less than high"),
    ("study --study binary.yaml", "binary.yaml is not UTF-8 (byte 0)"),
    ("study --study .", "study must name a YAML file, and . is a folder"),
    ("estimate --instance_type ml.g5.xlarge,", "instance_type must have a value between all commas"),
    ("estimate --instance_type ml.p9.huge --instance_count 1,x", "instance_count must be a whole number, got 'x'"),
    ("estimate --dataset who/knows", " main --dataset who/knows --dry_run true`"),
]


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(("line", "report"), WRONG)
def test_a_wrong_input_ends_with_one_message_and_no_run(
    line: str, report: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "reversed.yaml").write_text(
        "name: x\nsearch: {learning_rate: {low: 1e-4, high: 1e-5}}\nobjectives: {cost_usd: minimize}\nn_trials: 2\n"
    )
    (workplace / "binary.yaml").write_bytes(b"\xff\xfe\x00")

    assert main(line.split()) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert report in err
    assert err.count("paretune: ") == 1
    assert "Traceback" not in err
    assert not (workplace / "mlflow.db").exists()


ADDRESS = "postgresql://ann:hunter2@db/studies"


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        f"main --storge {ADDRESS}",
        f"main --seed {ADDRESS}",
        f"main --model {ADDRESS}",
        f"main --dataset {ADDRESS}",
        f"main --budget {ADDRESS}",
        f"main {ADDRESS}",
        f"study --study {ADDRESS}",
        "study --study wrong.yaml",
        "main --pasword a hunter2",
        "main --password hunter2 --password hunter2",
        'main --training_arguments {"hub_token":"hf_hunter2hunter2hunter2"}',
        ADDRESS,
    ],
)
def test_a_password_in_the_wrong_parameter_is_not_shown(
    line: str, as_json: bool, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "wrong.yaml").write_text(
        f"name: x\nstorge: {ADDRESS}\njob: {{password: hunter2, seed: '{ADDRESS}'}}\nsearch: {{seed: {ADDRESS}}}\n"
    )
    with contextlib.suppress(SystemExit):  # of argparse, which does not know the command
        assert main([*line.split(), *["--json"] * as_json]) == 2

    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert err
