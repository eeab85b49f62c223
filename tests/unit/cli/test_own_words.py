"""A user's words: whose option a name is, what a study file to paste repeats, and how a package runs."""

import textwrap
from pathlib import Path

import pytest
import yaml

from tests.support.typed import Run

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--wait", type=int, default=1)
parser.add_argument("--launcher", default="pytorch")
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--model.rate", type=float, default=1.0)
options = parser.parse_args()
print("val_f1:", 0.5)
"""


@pytest.fixture
def script(workplace: Path) -> Path:
    (workplace / "train.py").write_text(SCRIPT)
    return workplace / "train.py"


def test_one_option_under_two_names_is_refused_because_only_one_of_the_values_would_run(script: Path, run: Run) -> None:
    code, _, err = run("train", "train.py", "--learning_rate", "0.1", "--lr", "0.2")

    assert (code, err.strip()) == (
        2,
        "paretune: learning_rate and lr are the same option of train.py, --lr: give one of them",
    )


@pytest.mark.parametrize(
    ("words", "passed"), [(["--wait", "4"], "--wait 4"), (["--model.rate", "2"], "--model.rate 2")]
)
def test_a_script_s_own_option_is_passed_where_the_parameter_of_that_name_has_no_effect(
    script: Path, run: Run, words: list[str], passed: str
) -> None:
    code, out, err = run("train", "train.py", *words, "--dry_run")

    assert code == 0, err
    assert f"passes               {passed}" in out


def test_where_both_have_a_name_the_refusal_says_how_the_script_s_option_is_given(script: Path, run: Run) -> None:
    _, _, err = run("train", "train.py", "--launcher", "slurm2")

    assert "--training_arguments.launcher VALUE is the option of train.py" in err


def test_options_of_a_shell_script_are_passed_because_nobody_knows_which_it_has(workplace: Path, run: Run) -> None:
    (workplace / "run.sh").write_text('echo "val_f1: 0.5"\n')

    code, out, err = run("train", "--project", ".", "--entry_point", "run.sh", "--c", ".5", "--dry_run")

    assert code == 0, err
    assert "bash run.sh --c .5" in out


def test_choices_of_a_study_are_those_of_the_script(script: Path, run: Run, workplace: Path) -> None:
    (workplace / "s.yaml").write_text(
        "name: x\njob: {entry_script: train.py}\nsearch: {optimizer: {choices: [sgd, adamw]}}\n"
        "objectives: {val_f1: maximize, cost_usd: minimize}\nbudget_usd: 0.05\n"
    )

    code, _, err = run("study", "s.yaml", "--dry_run")

    assert (code, "s.yaml:3: --optimizer of train.py must be one of sgd, adam, got adamw" in err) == (2, True), err


def test_a_study_file_to_paste_has_the_budget_and_the_trials_that_were_typed(workplace: Path, run: Run) -> None:
    (workplace / "ppo.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--vec-env', choices=['dummy', 'subproc'], default='dummy')\n"
        "parser.add_argument('--img_size', type=int, default=28)\n"
        "parser.add_argument('--b2', type=float, default=0.999)\n"
        "parser.parse_args()\nprint('mean_reward:', 1)\n"
    )
    typed = ["--maximize", "mean_reward", "--budget_usd", "0.05", "--n_trials", "4"]

    code, _, err = run("study", "ppo.py", *typed)

    assert code == 2
    file = yaml.safe_load(err[err.index("{name: my study") :].strip())
    assert (file["budget_usd"], file["n_trials"]) == (0.05, 4)
    assert file["search"] == {"training_arguments.b2": {"low": 0.998, "high": 0.9995}}
    assert file["objectives"] == {"job_seconds": "minimize", "mean_reward": "maximize"}


def test_a_script_of_a_package_with_relative_imports_runs_as_a_module(workplace: Path, run: Run) -> None:
    package = workplace / "src" / "forest"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data.py").write_text("rows = 3\n")
    (package / "train.py").write_text(
        textwrap.dedent("""
        import click
        from .data import rows

        @click.command()
        @click.option("--c", default=0.5, show_default=True)
        def train(c):
            print("val_f1:", c / rows)

        if __name__ == "__main__":
            train()
        """)
    )

    code, out, err = run("train", "src/forest/train.py", "--ask_script", "true", "--c", "0.6")

    assert code == 0, err + out
    assert "val_f1" in out
    assert "0.2" in out


def test_a_study_that_ends_at_the_defaults_says_so_and_nothing_of_clusters(script: Path, run: Run) -> None:
    script.write_text(SCRIPT.replace('print("val_f1:", 0.5)', 'print("val_f1:", 0.9 - abs(options.lr - 0.1))'))
    study = script.with_name("s.yaml")
    study.write_text(
        "name: x\njob: {entry_script: train.py}\nsearch: {lr: {choices: [0.1, 0.3]}}\n"
        "objectives: {val_f1: maximize, cost_usd: minimize}\nbudget_usd: 0.05\nn_trials: 2\n"
    )

    code, out, err = run("study", "s.yaml")

    assert code == 0, err
    assert "These are the defaults of train.py" in out
    assert "price of the cluster" not in out


def test_a_dry_run_names_the_option_that_turns_on_a_logger(workplace: Path, run: Run) -> None:
    (workplace / "ppo.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--tensorboard-log', default='')\n"
        "parser.parse_args()\nprint('mean_reward:', 1)\n"
    )

    _, out, _ = run("train", "ppo.py", "--dry_run")

    assert "logs with            --tensorboard-log would log with more than printed lines" in out
