"""The command line as a user meets it: exit codes, messages, and nothing launched by mistake."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.cli import COMMANDS, SHELLS, Program, command_named, main, mlflow_run, program, read_words
from paretune.core.commands import spelled
from paretune.specification.job import JobSpec
from tests.conftest import write_csv

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in an empty place; (exit code, standard output, standard error)."""

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        return code, *capsys.readouterr()

    return command


WRONG = {  # words to sentences of the one message
    "train --learning_rat 1e-4": ["unknown parameter learning_rat: did you mean learning_rate"],
    "train --lr 1 --gpus 4 --fp16": [
        "3 faults",
        "did you mean learning_rate?",
        "did you mean instance_type?",
        "unknown parameter fp16: did you mean precision?",
    ],
    "train --learning-rate fast --seed": ["learning_rate must be a number", "seed needs a value: --seed VALUE"],
    "train --seed --task causal-lm": ["seed needs a value"],
    "train --max_cost_uds= --dry_run": ["unknown parameter max_cost_uds: did you mean max_cost_usd?"],
    "train --lora.rr= --dry_run": ["unknown parameter lora.rr: did you mean lora.r"],
    "study smoke --n_trails= --budget_uds=": ["n_trails: did you mean n_trials", "budget_uds: did you mean budget_usd"],
    "estimate --regoin=": ["unknown parameter regoin: did you mean region?"],
    "import --colums=": ["unknown parameter colums: did you mean columns?"],
    "sync --all": ["unknown parameter all: `paretune sync --help all`"],
    "train --seed 1 --seed 2": ["seed is given twice: '1' and '2'"],
    "train --spot perhaps": ["spot must be true or false, got 'perhaps'"],
    "train --spot": ["spot is for SageMaker"],
    "train --max_cost_usd 5$": ["max_cost_usd must be a number at least 0, got '5$'"],
    "train --max_cost_usd all": ["max_cost_usd must be a number at least 0, got 'all'"],
    "train --instance_type ml.g5.xlage": ["known types, got 'ml.g5.xlage': did you mean ml.g5.xlarge or"],
    "train --instance_type p4d": ["did you mean ml.p4d.24xlarge?"],
    "train --dataset none.csv --model ./no_model": [
        "dataset none.csv does not exist",
        "model ./no_model does not exist",
    ],
    "train none.py --learning_rate fast": ["learning_rate must be", "entry_script none.py does not exist (looked from"],
    "train . ": ["entry_script must be a file, and . is a folder"],
    "train rows.csv": ["rows.csv"],
    "train --dataset rows.csv --text_column Body": ["'Body' is not in the train rows of rows.csv: did you mean body?"],
    "train --dataset rows.csv --text_column body": ["'body' is missing or blank in 1 of 3 train rows (first: rows 2)"],
    "train --dataset latin.csv": ["latin.csv is not UTF-8 text (byte 13 cannot be decoded) but probably LATIN1"],
    "train --dataset binary.csv": ["binary.csv is a binary file: give a CSV, TSV, JSONL or Parquet file"],
    "train seed=1 more": ["unexpected 'more'"],
    "train -seed 1": ["unexpected '-seed'"],
    "trian": ["unknown command 'trian': did you mean train?"],
    "study": ["study must name the file of a study, such as studies/smoke.yaml"],
    "study smoek": ["smoek does not exist", "did you mean smoke?"],
    "study .": ["study must name a YAML file, and . is a folder"],
    "study binary.csv": ["binary.csv is not UTF-8"],
    "study wrong.yaml --n_trails 3": ["wrong.yaml:2: learning_rate: low must be less than", "did you mean n_trials?"],
    "estimate --instance_type ml.g5.xlarge,": ["instance_type must have a value between all commas"],
    "estimate --instance_type ml.p9.huge --instance_count 1,x": ["instance_count must be a whole number"],
    "prices --region us-east": ["region must be an AWS region that has SageMaker"],
    "reconcile none.csv": ["bill must be a file or folder, or s3://BUCKET/PREFIX/, got none.csv"],
    "report --view runz": ["view must be one of runs, scaling, compare, got 'runz'; did you mean runs?"],
    "sync --all true": ["unknown parameter all"],
    "completion tcsh": ["completion needs a shell: paretune completion bash | zsh | fish, got 'tcsh'"],
}


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_input_ends_with_2_and_one_message_and_leaves_nothing(line: str, run: Run, workplace: Path) -> None:
    write_csv(workplace / "rows.csv", [("a", "x"), (" ", "y"), ("b", "x")], header="body,label")
    (workplace / "latin.csv").write_bytes(b"text,label\nca\xe9,a\n")
    (workplace / "binary.csv").write_bytes(b"\x80PNG\x00\x01\xff")
    (workplace / "wrong.yaml").write_text("name: x\nsearch: {learning_rate: {low: 1e-4, high: 1e-5}}\nn_trials: 2\n")
    before = {path.name for path in workplace.iterdir()}

    code, out, err = run(*line.split())

    assert (code, out) == (2, "")
    assert err.count("paretune: ") == 1
    assert "Traceback" not in err
    assert [text for text in WRONG[line] if text not in err] == []
    assert {path.name for path in workplace.iterdir()} == before  # not even an MLflow store


ADDRESS = "postgresql://ann:hunter2@db/studies"


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        *(f"train --storge {ADDRESS}", f"train --seed {ADDRESS}", f"train --model {ADDRESS}", f"train {ADDRESS}"),
        *(f"study {ADDRESS}", "study wrong.yaml", "train --pasword a hunter2", ADDRESS),
        "train --password hunter2 --password hunter2",
        'train --training_arguments {"hub_token":"hf_hunter2hunter2hunter2"}',
    ],
)
def test_a_password_in_the_wrong_place_is_not_shown(line: str, as_json: bool, run: Run, workplace: Path) -> None:
    (workplace / "wrong.yaml").write_text(
        f"name: x\nstorge: {ADDRESS}\njob: {{password: hunter2, seed: '{ADDRESS}'}}\nsearch: {{seed: {ADDRESS}}}\n"
    )
    code, out, err = run(*line.split(), *["--json"] * as_json)

    assert code == 2
    assert "hunter2" not in out + err
    assert err


def test_the_bare_name_of_a_switch_is_true_and_dashes_are_underscores() -> None:
    words = ["--dry-run", "--training_arguments.batch-size", "8", "--seed=", "--text-column=-x"]

    assert read_words(words, {"dry_run"}) == (
        {"dry_run": "true", "training_arguments.batch-size": "8", "seed": "", "text_column": "-x"},
        [],
    )


def test_the_program_alone_and_its_help_are_one_screen(run: Run) -> None:
    assert run()[1] == run("--help")[1]
    out = run("-h")[1]
    tasks = re.findall(r"^  paretune (\w+)", out, re.MULTILINE)

    assert set(tasks) <= COMMANDS.keys()
    assert re.findall(r"^  (\w+) +\w", out.partition("\nRun:")[2], re.MULTILINE) == list(COMMANDS)


def test_help_shows_the_most_used_parameters_and_all_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    short, everything = (" ".join(run("train", *words)[1].split()) for words in (["--help"], ["--seed", "-h", "all"]))
    left_out = [name for name in JobSpec.model_fields if f"--{name} " not in short]

    assert len(left_out) == len(JobSpec.model_fields) - 10
    assert f"{len(left_out)} more: paretune train --help all" in short
    assert [name for name in JobSpec.model_fields if f"--{name} " not in everything] == []
    assert "--strategy ddp|fsdp|smddp" in everything
    assert "--json" in short
    for name in COMMANDS:
        assert run(name, "--help")[0] == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_completes_commands_options_and_choices(shell: str, run: Run) -> None:
    from click.shell_completion import ShellComplete

    def suggested(words: list[str], begun: str) -> set[str]:
        return {item.value for item in ShellComplete(Program(), {}, "paretune", "X").get_completions(words, begun)}

    assert "_PARETUNE_COMPLETE" in run("completion", shell)[1]
    assert suggested([], "s") == {"study", "sync"}
    assert "--learning_rate" in suggested(["train"], "--lear")
    assert suggested(["train", "--strategy"], "fs") == {"fsdp"}


def test_a_tracking_server_that_is_down_ends_with_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # the discard port: nobody listens
    code, _, err = run("train")

    assert code == 2
    assert "http://127.0.0.1:9 does not answer" in err


def test_a_worst_case_above_the_limit_ends_with_4(run: Run, workplace: Path) -> None:
    # 90 minutes x 2 x 0.115 USD per hour = 0.345 USD, and 70 seconds to stop
    words = ["--max_cost_usd", "0.346", "--max_runtime_minutes", "90", "--instance_count", "2"]
    code, out, err = run("train", *words)

    assert (code, out) == (4, "")
    assert "worst case 0.3495 USD" in err
    assert run("train", "--max_cost_usd", "0", "--dry_run")[0] == 4
    assert not (workplace / ".paretune" / "jobs").exists()


def test_a_home_that_is_no_folder_ends_with_2(run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "file").write_text("")
    monkeypatch.setenv("PARETUNE_HOME", str(workplace / "file" / "home"))

    code, _, err = run("train")

    assert code == 2
    assert err.startswith("paretune: PARETUNE_HOME must be a folder")


def test_a_dry_run_shows_the_command_that_launches_the_job(run: Run, workplace: Path) -> None:
    (workplace / "train.py").write_text("raise SystemExit('it ran')")
    code, out, _ = run("train", "train.py", "--seed", "7", "--dry_run", "yes")

    assert code == 0
    with spelled(program()):
        assert out.rstrip().endswith(f"to launch it: {JobSpec(entry_script='train.py', seed=7).command()}")


@pytest.mark.usefixtures("no_store")
@pytest.mark.slow
def test_a_dry_run_prints_the_job_with_its_data_and_dollars_and_launches_nothing(
    run: Run, workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    arguments = ["--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32", "--dry_run", "true"]
    code, out, err = run("train", *arguments, "--global_batch_size", "24", "--max_cost_usd", "0.1173", "--json")

    assert code == 0, err
    assert not (workplace / "mlflow.db").exists()
    output = json.loads(out)
    assert set(output["specification"]) == set(JobSpec.model_fields)
    assert output["batch"]["per_device_train_batch_size"] == 12
    assert output["worst_case_usd"] == pytest.approx(0.115 * 3670 / 3600)  # an hour, and 70 seconds to stop
    assert (output["data"]["train_rows"], output["data"]["validation_rows"]) == (108, 12)


def test_refused_input_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom paretune.cli import main\nmain(['--help']); main(['train', '--sed', '1'])\n"
        "print([name for name in ('mlflow', 'torch', 'boto3', 'pandas', 'optuna', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow  # a process of its own that imports MLflow, which writes ~/.config/mlflow/telemetry.json when it is
def test_a_command_writes_nothing_into_the_user_s_home(workplace: Path) -> None:
    home = workplace / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home)}
    command = [sys.executable, "-P", "-m", "paretune", "report"]

    ended = subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, check=False)

    assert ended.stdout == "no job is recorded\n", ended
    assert [*home.rglob("*")] == []


@pytest.mark.parametrize(
    ("prefix", "environment", "options"),
    [
        ("/env", {}, ("--env-manager", "local")),
        ("/home/me/.mlflow/envs/mlflow-0a1b", {"MLFLOW_EXPERIMENT_ID": "0"}, ()),
        ("/envs/mlflow-0a1b", {"MLFLOW_EXPERIMENT_ID": "7"}, ("--experiment-id", "7")),
    ],
)
def test_a_command_of_mlflow_run_is_repeated_in_its_environment_and_experiment(
    prefix: str, environment: dict[str, str], options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", prefix)

    assert mlflow_run(tmp_path, environment).words == ("mlflow", "run", ".", *options)
    assert mlflow_run(Path("/clone"), environment).words == ("mlflow", "run", "/clone", *options)


def test_a_program_that_the_search_path_does_not_lead_to_is_spelled_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "paretune").touch(mode=0o755)

    assert program().words == (sys.executable, "-m", "paretune")  # that of another environment
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program().words == ("paretune",)


def test_every_command_has_options_that_its_models_declare() -> None:
    for name in COMMANDS:
        assert all(option in model.model_fields for option, model in command_named(name).models().items())
