"""The command line for users: exit codes, messages, and nothing launched by mistake."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paretune import __version__, cli
from paretune.cli import COMMANDS, go_where_typed, main, program, read_words
from paretune.commands.train import TRAIN
from paretune.core.shell import started_by
from paretune.jobs import attempts
from paretune.specification.job import JobSpec
from tests.support.tags import tags_of
from tests.support.typed import Run

ROOT = Path(__file__).parents[3]


def test_the_bare_name_of_a_switch_is_true_and_dashes_are_underscores() -> None:
    words = ["--dry-run", "--training_arguments.batch-size", "8", "--seed=", "--text-column=-x"]

    assert read_words(words, {"dry_run"}) == (
        {"dry_run": "true", "training_arguments.batch-size": "8", "seed": "", "text_column": "-x"},
        [],
    )


def test_words_after_a_script_are_its_own_wherever_they_stand_between_its_options() -> None:
    words = ["--entry_script=t.py", "data", "--seed", "5", "fit one", "--rounds", "3"]

    assert read_words(words, (), of_script=()) == (
        {"entry_script": "t.py", "seed": "5", "rounds": "3", "script_words": "data 'fit one'"},
        [],
    )
    (fault,) = read_words([*words, "--script_words", "test"], (), of_script=())[1]
    assert fault == """script_words is given twice: the script also gets "data 'fit one'\""""


@pytest.mark.parametrize("typed", ["--fast rows.csv", "rows.csv --fast", "--fast true rows.csv"])
def test_a_word_after_a_switch_of_a_script_is_the_script_s_own(typed: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--fast', action='store_true')\n"
        "parser.add_argument('data')\nprint(parser.parse_args())\n"
    )

    code, out, _ = run("train", str(tmp_path / "tool.py"), *typed.split(), "--dry_run", "true")

    assert code == 0
    assert re.search(r"passes +rows.csv --fast$", out, re.MULTILINE)


def test_a_script_is_named_with_the_subcommand_that_runs(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "tool.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--seed')\n"
        "fit = parser.add_subparsers(required=True).add_parser('fit')\nfit.add_argument('--rounds')\n"
        "parser.parse_args()\n"
    )

    code, out, _ = run("train", str(script), "--seed", "5", "fit", "--rounds", "3", "--dry_run", "true")

    assert code == 0
    assert re.search(r"would run +your script .*tool\.py fit with seed=5 rounds=3", out)
    assert re.search(r"passes +--seed 5 fit --rounds 3", out)


def test_the_program_alone_and_its_help_are_one_screen(run: Run) -> None:
    assert run()[1] == run("--help")[1]
    out = run("-h")[1]
    tasks = re.findall(r"^  paretune (\w+)", out, re.MULTILINE)

    assert set(tasks) <= COMMANDS.keys()
    assert re.findall(r"^  (\w+) +\w", out.partition("\nRun:")[2], re.MULTILINE) == list(COMMANDS)


def test_help_shows_the_most_used_parameters_and_all_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    short, everything = (" ".join(run("train", *words)[1].split()) for words in (["--help"], ["--seed", "-h", "all"]))
    left_out = [name for name in JobSpec.model_fields if f"--{name} " not in short]

    assert len(left_out) == len(JobSpec.model_fields) - 13
    assert f"{len(left_out)} more: paretune train --help all" in short
    assert [name for name in JobSpec.model_fields if f"--{name} " not in everything] == []
    assert "--strategy ddp|fsdp|smddp" in everything
    assert "--json" in short
    for name in COMMANDS:
        assert run(name, "--help")[0] == 0
    assert "--name TEXT" in run("study", "--help")[1]


def test_an_address_of_mlflow_without_a_port_that_is_one_is_no_traceback_of_a_dry_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:notaport")

    code, _, err = run("train", "--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--dry_run")

    assert code == 2
    assert "http://127.0.0.1:notaport does not answer" in err


def test_a_worst_case_above_the_limit_ends_with_4(run: Run, workplace: Path) -> None:
    # 90 minutes x 2 x 0.115 USD per hour = 0.345 USD, and 70 seconds to stop
    words = ["--max_cost_usd", "0.346", "--max_runtime_minutes", "90", "--instance_count", "2"]
    code, out, err = run("train", *words)

    assert (code, out) == (4, "")
    assert "worst case 0.350 USD" in err
    assert run("train", "--max_cost_usd", "0", "--dry_run")[0] == 4
    assert not (workplace / ".paretune" / "jobs").exists()


@pytest.mark.usefixtures("no_store")
def test_a_dry_run_shows_the_command_that_launches_the_job_and_leaves_no_store(
    run: Run, workplace: Path, database: Path
) -> None:
    (workplace / "train.py").write_text("raise SystemExit('it ran')")
    code, out, _ = run("train", "train.py", "--seed", "7", "--dry_run", "yes")

    assert code == 0
    with started_by(*program()):
        assert out.rstrip().endswith(f"to launch it: {JobSpec(entry_script='train.py', seed=7).command()}")
    assert not database.exists()


def test_the_package_help_and_refused_input_import_nothing_heavy(workplace: Path) -> None:
    heavy = {"mlflow", "torch", "boto3", "pandas", "optuna", "numpy", "matplotlib"}
    (workplace / "rows.csv").write_text("text,label\na,x\nb,y\n")
    code = (
        "import sys, paretune; paretune.JobSpec(seed=1)\n"
        "from paretune.cli import main; main(['--help']); main(['train', '--sed', '1'])\n"
        "assert main(['train', '--model', 'nobody/knows', '--dataset', 'rows.csv']) == 2\n"
        f"print(sorted({heavy} & sys.modules.keys()))\n"
        "assert main(['train']) == 2 and main(['logs', 'nosuchrun']) == 2 and main(['stop', '0123456789abcdef']) == 2\n"
        f"print(sorted({heavy} & sys.modules.keys()))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.splitlines()[-2:] == ["[]", "['numpy']"]  # of the estimate of what `train` alone would take
    refused = [line for line in done.stderr.splitlines() if line.startswith("paretune: ")]
    assert [line.split()[1] for line in refused] == ["unknown", "model", "train", "no", "no"]


def test_train_alone_says_what_it_would_train_and_for_how_long_and_waits_for_a_word(
    workplace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("train")

    assert code == 2
    what = "train without a parameter would fine-tune bundled:all-MiniLM-L6-v2 on 7,677 rows of bundled:rotten_tomatoes"
    assert err.startswith(f"paretune: {what}, on this machine, which takes an idle machine ")
    (workplace / "MLproject").write_text("name: paretune\n")  # a clone, in which README says what it does
    assert TRAIN.read({}).spec == JobSpec()
    (workplace / "MLproject").write_text("name: another\n")
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)  # typed as `mlflow run`
    assert TRAIN.read({}).spec == JobSpec()


@pytest.mark.parametrize("home", ["/dev/null/below", "/proc/paretune"])
def test_a_home_that_cannot_be_made_is_refused_by_its_name(
    home: str, workplace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "train.py").write_text("print('loss: 1')\n")
    monkeypatch.setenv("PARETUNE_HOME", home)

    code, _, err = run("train", "train.py")

    assert (code, err) == (2, f"paretune: PARETUNE_HOME must be a folder that can be written to, got {home}\n")


@pytest.mark.slow  # it imports MLflow in another process, which may write ~/.config/mlflow/telemetry.json
def test_a_command_writes_nothing_into_the_user_s_home(workplace: Path) -> None:
    home = workplace / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home)}
    command = [sys.executable, "-P", "-m", "paretune", "report"]

    ended = subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, check=False)

    assert ended.stdout.startswith(f"no job is recorded in sqlite:///{workplace}/mlflow.db: `"), ended
    assert [*home.rglob("*")] == []


def test_a_program_that_the_search_path_does_not_lead_to_is_spelled_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "paretune").touch(mode=0o755)

    assert program() == (sys.executable, "-m", "paretune")  # the program of another environment
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program() == ("paretune",)
    monkeypatch.setattr(cli, "_where_typed", lambda: cli._Typed(tmp_path, "/usr/bin"))  # MLflow has activated PATH
    assert program() == (str(tmp_path / "python"), "-m", "paretune")


def test_under_mlflow_run_a_path_counts_from_where_it_was_typed_then_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, typed = tmp_path / "clone", tmp_path / "typed"
    for folder in (project, typed):
        folder.mkdir()
        (folder / "rows.csv").write_bytes(b"\x80")
    (project / "own.yaml").write_text("nmae: x")
    monkeypatch.chdir(project)
    monkeypatch.setattr(cli, "_where_typed", lambda: cli._Typed(typed, None))

    assert go_where_typed() == project
    assert Path.cwd() == typed
    assert main(["train", "--dataset", "rows.csv"], project) == main(["study", "own.yaml"], project) == 2

    err = capsys.readouterr().err
    assert "paretune: dataset rows.csv is not UTF-8" in err
    assert f"{project / 'own.yaml'}:1: " in err


def test_mlflow_run_uses_the_code_of_its_own_clone_whatever_is_installed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "entrypoints", tmp_path / "entrypoints")
    package = tmp_path / "src" / "paretune" / "__init__.py"
    package.write_text(package.read_text().replace(f'__version__ = "{__version__}"', '__version__ = "0.0.1"'))

    command = [sys.executable, "entrypoints/run.py", "--version"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ended.stdout == "0.0.1\n"
    assert f"# {__version__}" in (ROOT / "conda.yaml").read_text(), "write the version of this release into conda.yaml"


def test_the_run_of_a_refused_mlflow_run_names_the_reason(
    workplace: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.create_run("0", run_name="random-crab-12")
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)

    assert main(["train", "--sed", "1"]) == 2

    refused = client.get_run(run.info.run_id)
    assert refused.info.run_name.startswith("refused: ")
    assert "sed" in refused.info.run_name
    assert "seed" in tags_of(refused)["mlflow.note.content"]
    assert "seed" in tags_of(refused)["paretune.failure_reason"]


def test_a_command_waits_for_a_job_that_would_end_with_it(run: Run) -> None:
    code, _, err = run("train", "--wait", "false")

    assert code == 2
    assert "wait=false is for jobs that outlive this command, got launcher=local: leave it out" in err


@pytest.mark.trains
def test_a_script_takes_the_arguments_that_its_class_inherits_from_transformers(run: Run, workplace: Path) -> None:
    (workplace / "train.py").write_text(
        "from dataclasses import dataclass\n"
        "from transformers import HfArgumentParser, TrainingArguments\n"
        "@dataclass\n"
        "class MyArguments(TrainingArguments):\n"
        "    rounds: int = 1\n"
        "arguments, = HfArgumentParser(MyArguments).parse_args_into_dataclasses()\n"
    )

    for name, value in (("rounds", "2"), ("weight_decay", "0.1"), ("label_smoothing_factor", "0.1")):
        assert run("train", "train.py", f"--training_arguments.{name}", value, "--dry_run")[0] == 0
    code, _, err = run("train", "train.py", "--training_arguments.weight_decy", "0.1", "--dry_run")
    assert code == 2
    assert "train.py has no argument weight_decy: did you mean weight_decay?" in err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("print(f'epoch {epoch}/4', flush=True)", r"(25|50|75) %, about \d+(\.\d+)? s and \S+ USD left"),
        ("pass", "it counts no epochs or steps that say how far it is"),
    ],
)
def test_a_job_that_shows_nothing_else_says_how_far_it_is_in_a_file_too(
    line: str, said: str, workplace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_LONGEST_SILENCE_S", 1.0)
    (workplace / "train.py").write_text(f"import time\nfor epoch in range(1, 5):\n    {line}\n    time.sleep(1.5)\n")

    code, _, err = run("train", "train.py")

    assert code == 0
    assert re.search(rf"^paretune-\w+-1, after \d+(\.\d+)? s: {said}$", err, re.MULTILINE), err
