"""The command line as a user meets it: exit codes, messages, and nothing launched by mistake."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.cli import ALIASES, COMMANDS, SHELLS, command_named, main, program, read_words
from paretune.commands.command import parameter_help
from paretune.core.commands import spelled
from paretune.specification.catalog import instances
from paretune.specification.job import JobSpec

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `paretune train ...` in an empty place; (exit code, standard output, standard error)."""

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["train", *arguments])
        return code, *capsys.readouterr()

    return command


def _parameters(name: str) -> set[str]:
    """All parameters that a command takes."""
    return {parameter for group in command_named(name).all_groups().values() for parameter in group}


def nothing_was_started(folder: Path) -> bool:
    """No MLflow run, no job and no data; the store itself may be there."""
    database = folder / "mlflow.db"
    runs = 0
    if database.exists():
        with sqlite3.connect(database) as connection:
            ((runs,),) = connection.execute("SELECT count(*) FROM runs")
    return runs == 0 and not (folder / ".paretune" / "jobs").exists()


WRONG = {
    "unknown parameter": (["--learning_rat", "1e-4"], ["unknown parameter learning_rat", "learning_rate"]),
    "hyphens": (["--learning-rate", "1e-4"], ["unknown parameter learning-rate", "learning_rate"]),
    "gone": (["--trials_per_job", "2"], ["unknown parameter trials_per_job: it is gone: keep_alive_minutes lets"]),
    "wrong type": (["--seed", "abc"], ["seed must be a whole number, got 'abc'"]),
    "not whole": (["--max_train_samples", "1.5"], ["max_train_samples must be a whole number, got '1.5'"]),
    "out of range": (["--num_train_epochs", "0"], ["num_train_epochs must be greater than 0"]),
    "negative": (["--learning_rate", "-1e-4"], ["learning_rate must be greater than 0", "-0.0001"]),
    "not a number": (["--learning_rate", "nan"], ["learning_rate must be a finite number"]),
    "infinite": (["--max_runtime_minutes", "inf"], ["max_runtime_minutes must be a finite number"]),
    "contradictory batch": (
        ["--global_batch_size", "64", "--per_device_train_batch_size", "3"],
        ["global_batch_size 64", "per_device_train_batch_size 3", "possible", "16 x 4"],
    ),
    "indivisible batch": (
        ["--global_batch_size", "7", "--instance_count", "2"],
        ["multiple of the 2 devices", "6 or 8"],
    ),
    "broken JSON": (["--training_arguments", "{weight_decay: 0.1}"], ["training_arguments must be a JSON object"]),
    "JSON list": (["--training_arguments", "[1, 2]"], ["training_arguments must be a JSON object", "[1, 2]"]),
    "reserved argument": (["--training_arguments", '{"seed": 1}'], ["must not set seed: use the parameter seed"]),
    "cloud instance": (
        ["--instance_type", "ml.g5.xlage"],
        [f"must be one of the {len(instances())} known types", "did you mean ml.g5.xlarge"],
    ),
    "unknown task": (["--task", "clasification"], ["task must be one of", "did you mean classification?"]),
    "unknown launcher": (
        ["--launcher", "slurm"],
        ["launcher must be one of auto, local, sagemaker, simulated, got 'slurm'"],
    ),
    "validation of others": (["--validation_file", "v.csv"], ["validation_file goes with a data set of your own"]),
    "missing value": (["--seed"], ["seed needs a value"]),
    "switch with a wrong value": (["--spot", "perhaps"], ["spot must be true or false, got 'perhaps'"]),
    "value forgotten": (["--seed", "--task", "causal-lm"], ["seed needs a value"]),
    "given twice": (["--seed", "1", "--seed", "2"], ["seed is given twice: '1' and '2'"]),
    "name of other tools": (["--lr", "1e-4"], ["unknown parameter lr: did you mean learning_rate?"]),
    "GPU for a type": (["--gpu", "1"], ["unknown parameter gpu: did you mean instance_type?"]),
    "GPUs": (["--instance_type", "A100:8"], ["did you mean ml.p4d.24xlarge or ml.p4de.24xlarge?"]),
    "family": (["--instance_type", "p4d"], ["did you mean ml.p4d.24xlarge?"]),
    "hours": (
        ["--max_runtime_minutes", "2h"],
        ["must be a number, got '2h': it is in minutes, 120"],
    ),
    "no dashes": (["seed=1"], ["unexpected 'seed=1': parameters are given as --name value"]),
    "one dash": (["-seed", "1"], ["unexpected '-seed'"]),
}


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_ends_with_2_and_one_message(
    arguments: list[str], expected: list[str], run: Run, workplace: Path
) -> None:
    code, out, err = run(*arguments)

    assert code == 2
    assert out == ""
    assert err.startswith("paretune: ")
    assert err.count("paretune: ") == 1
    assert "Traceback" not in err
    assert not [text for text in expected if text not in err], err
    assert list(workplace.iterdir()) == []  # not even an MLflow store


@pytest.mark.usefixtures("no_store")
def test_the_program_alone_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    commands = re.findall(r"^  paretune (\w+)", capsys.readouterr().out, re.MULTILINE)

    assert {ALIASES.get(name, name) for name in commands} <= COMMANDS.keys()


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study", "none.yaml"], "none.yaml"),
        (["design", "none.yaml"], "none.yaml"),
        (["reconcile", "none.csv"], "bill must be a file or folder, or s3://BUCKET/PREFIX/, got none.csv"),
        (["run", "none.py", "--learning_rate", "fast"], "learning_rate must be a number, got 'fast'"),
        (["run"], "run needs a training script after it"),
        (["run", "none.py", "more"], "unexpected 'more'"),
        (["train", "--seed", "x"], "seed must be a whole number"),
    ],
)
def test_the_word_after_a_command_is_its_file(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], workplace: Path
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("words", [["--spot"], ["--spot", "--dry_run"], ["--dry_run", "--spot", "true"]])
def test_the_bare_name_of_a_switch_is_true(words: list[str], run: Run) -> None:
    code, _, err = run("--instance_type", "ml.g5.xlarge", "--seed", "abc", "--max_wait_minutes", "soon", *words)

    assert code == 2
    assert [line.split()[1] for line in err.splitlines()[1:]] == ["seed", "max_wait_minutes"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if "spot" in _parameters(name)])
def test_every_command_that_takes_a_switch_of_a_job_takes_its_bare_name(name: str) -> None:
    assert read_words(["--spot"], command_named(name).all_switches()) == ({"spot": "true"}, [])


@pytest.mark.usefixtures("no_store")
def test_all_faults_stand_in_one_message(run: Run, workplace: Path) -> None:
    code, _, err = run(
        *("stray", "--sed", "1", "--learning_rate", "fast", "--num_train_epochs", "-1", "--precision", "fp8"),
        *("--training_arguments", "{", "--instance_type", "p5.48xlarge", "--text_column"),
    )

    assert code == 2
    first, *faults = err.splitlines()
    assert first == "paretune: 8 faults:"
    named = [fault.removeprefix("  - ").split()[0] for fault in faults]
    assert sorted(named) == sorted(
        [
            "unexpected",
            "unknown",
            "learning_rate",
            "num_train_epochs",
            "precision",
            "training_arguments",
            "instance_type",
            "text_column",
        ]
    )
    assert list(workplace.iterdir()) == []


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trian"], "'trian': did you mean train?"),
        (["--seed", "1"], "'--seed': there are main, "),
        (["predict"], "'predict': it is gone: use transformers.pipeline"),
    ],
)
def test_an_unknown_command_ends_with_2_and_a_hint(
    arguments: list[str], hint: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert f"unknown command {hint}" in capsys.readouterr().err
    assert list(workplace.iterdir()) == []


def test_an_entry_script_that_is_missing_ends_with_2(run: Run, workplace: Path) -> None:
    code, out, err = run("--entry_script", "no_such_script.py")

    assert (code, out) == (2, "")
    assert "entry_script no_such_script.py does not exist" in err
    assert str(workplace) in err
    assert nothing_was_started(workplace)


def test_an_entry_script_that_is_a_folder_ends_with_2(run: Run, workplace: Path) -> None:
    (workplace / "scripts").mkdir()
    code, _, err = run("--entry_script", "scripts")

    assert code == 2
    assert err == "paretune: entry_script must be a file, and scripts is a folder: name the script in it\n"
    assert nothing_was_started(workplace)


def test_a_home_that_is_no_folder_ends_with_2(run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "file").write_text("")
    monkeypatch.setenv("PARETUNE_HOME", str(workplace / "file" / "home"))

    code, _, message = run()

    assert code == 2
    assert message.startswith("paretune: PARETUNE_HOME must be a folder")


@pytest.mark.slow
def test_a_model_and_rows_that_are_missing_stand_in_one_message(run: Run, workplace: Path) -> None:
    code, _, err = run("--model", "./no_model", "--dataset", "no_rows.csv")

    assert code == 2
    assert not [text for text in ("2 faults", "no_model", "no_rows.csv", str(workplace)) if text not in err], err
    assert "Traceback" not in err
    assert nothing_was_started(workplace)


@pytest.mark.parametrize("more", [(), ("--dry_run",)])
def test_a_tracking_server_that_is_down_ends_with_2(
    more: tuple[str, ...], run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # the discard port: nobody listens
    code, _, err = run(*more)

    assert code == 2
    assert "http://127.0.0.1:9 does not answer" in err
    assert nothing_was_started(workplace)


def test_a_worst_case_above_the_limit_ends_with_4(run: Run, workplace: Path) -> None:
    # 90 minutes x 2 x 0.115 USD per hour = 0.345 USD, and 70 seconds to stop
    code, out, err = run("--max_cost_usd", "0.346", "--max_runtime_minutes", "90", "--instance_count", "2")

    assert (code, out) == (4, "")
    assert "worst case 0.3495 USD" in err
    assert "0.346:" in err
    assert "Traceback" not in err
    assert nothing_was_started(workplace)


def test_a_dry_run_above_the_limit_ends_with_4_too(run: Run, workplace: Path) -> None:
    assert run("--max_cost_usd", "0", "--dry_run", "true")[0] == 4


@pytest.mark.usefixtures("no_store")
@pytest.mark.slow
def test_a_dry_run_prints_the_job_with_its_data_and_dollars_and_launches_nothing(
    run: Run, workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    arguments = ["--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32", "--dry_run", "true"]
    code, out, err = run(*arguments, "--global_batch_size", "24", "--max_cost_usd", "0.1173", "--json")

    assert code == 0, err
    assert nothing_was_started(workplace)
    assert not (workplace / "mlflow.db").exists()
    output = json.loads(out)
    assert set(output["specification"]) == set(parameter_help())
    assert output["batch"]["per_device_train_batch_size"] == 12
    assert output["batch"]["gradient_accumulation_steps"] == 2
    assert output["worst_case_usd"] == pytest.approx(0.115 * 3670 / 3600)  # an hour, and 70 seconds to stop
    assert (output["data"]["train_rows"], output["data"]["validation_rows"]) == (108, 12)

    code, out, _ = run(*arguments, "--global_batch_size", "24")
    assert code == 0
    assert len(out.splitlines()) <= 20
    lines = dict(re.findall(r"^  (\S.*?)  +(.*)$", out, re.MULTILINE))
    assert lines["where"] == "this machine"
    assert lines["data"].startswith("108 rows to train on, 12 to validate; ")
    assert lines["worst case"] == "0.117 USD (notional: nobody bills this machine); the job is ended after 1 h"
    assert "global batch size 24 = 12 x 1 x 2, learning rate 5e-05" in lines["settings"]
    assert lines["leaves this machine"] == "nothing"
    assert "nothing was launched; to launch it: " in out


def test_a_dry_run_shows_the_command_that_launches_the_job(run: Run, workplace: Path) -> None:
    (workplace / "train.py").write_text("raise SystemExit('it ran')")
    code, out, _ = run("--entry_script", "train.py", "--seed", "7", "--dry_run", "yes")

    assert code == 0
    assert nothing_was_started(workplace)
    with spelled(program()):
        assert out.rstrip().endswith(f"to launch it: {JobSpec(entry_script='train.py', seed=7).command()}")


def test_values_may_follow_an_equals_sign_be_empty_or_begin_with_a_dash(run: Run, workplace: Path) -> None:
    (workplace / "train.py").touch()
    code, out, err = run("--entry_script=train.py", "--seed", "", "--text_column", "-text", "--dry_run=1", "--json")

    assert code == 0, err
    output = json.loads(out)
    assert output["specification"]["seed"] == "42"
    assert output["specification"]["text_column"] == "-text"


Shown = Callable[..., str]


@pytest.fixture
def shown(workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a command that only explains prints."""
    monkeypatch.setenv("COLUMNS", "1000")

    def command(*words: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0
        return capsys.readouterr().out

    return command


@pytest.mark.parametrize(
    "arguments", [["train", "--help", "all"], ["main", "-h", "all"], ["train", "--seed", "1", "--help", "all"]]
)
def test_help_all_lists_every_parameter_in_its_group(arguments: list[str], shown: Shown) -> None:
    out = shown(*arguments)

    titles = ["\nmodel:", "\ndata:", "\nbatch size, learning rate and epochs:", "\nhow it is trained:"]
    titles += ["\nstrategy: how", "\ncluster and launcher:", "\nlimits, money and capacity:", "\nSageMaker:"]
    places = [out.index(title) for title in titles]
    assert sorted(places) == places
    assert places[1] < out.index("--text_column VALUE") < places[2] < out.index("--learning_rate VALUE") < places[3]
    assert not [name for name, line in parameter_help().items() if f"--{name} VALUE" not in out or line not in out]


def test_help_lists_the_ten_parameters_that_come_first_and_how_many_more_there_are(shown: Shown) -> None:
    out = shown("train", "--help")

    listed = re.findall(r"^  --(\w+) VALUE", out, re.MULTILINE)
    assert len(listed) == 10
    assert {"model", "dataset", "learning_rate", "instance_type", "max_cost_usd", "dry_run"} <= set(listed)
    assert f"{len(parameter_help()) - 10} more: paretune train --help all" in out
    assert "--study VALUE" in shown("study", "--help")
    assert "--dry_run" not in shown("study", "--help", "all")


def test_a_shell_gets_what_completes_commands_parameters_and_values(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        assert "paretune" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2

    def suggested(line: str) -> set[str]:
        request = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        request["_ARGCOMPLETE_STDOUT_FILENAME"] = "answer"
        subprocess.run([sys.executable, "-m", "paretune"], env={**os.environ, **request}, check=True)
        return {word.strip() for word in Path("answer").read_text().splitlines()}

    assert {"main", "study"} <= suggested("paretune ")
    assert suggested("paretune train --precision b") == {"bf16"}
    assert suggested("paretune train --spot ") == {"true", "false"}


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    with pytest.raises(SystemExit) as end:
        main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == version("paretune")


def test_the_list_of_commands_needs_no_outside_package_and_no_command(workplace: Path) -> None:
    program = (
        "import sys; from paretune.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'yaml', 'psutil', 'mlflow', 'argcomplete', 'paretune.specification.job')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

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
