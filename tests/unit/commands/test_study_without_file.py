"""A study without a file: its search follows from the data set or the script, and from the budget."""

import json
import re
from pathlib import Path

import pytest
import yaml

from paretune.cli import main
from paretune.studies.definition.file import StudyFile

SCRIPT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
print(f"epoch 1: val_f1: {0.9 - abs(args.lr - 0.1):.4f}")
"""
REHEARSED = ("study", "--dataset", "bundled:rotten_tomatoes", "--launcher", "simulated", "--max_train_samples", "2000")


@pytest.fixture
def script(workplace: Path) -> Path:
    path = workplace / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_dry_run_prints_the_study_file_which_runs_as_it_is(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "train.py", "--budget_usd", "20", "--metric", "val_f1", "--dry_run"]) == 0
    text = capsys.readouterr().out

    values = yaml.safe_load(text)
    assert values["search"]["learning_rate"] == {"low": 0.0125, "high": 0.8, "log": True}
    assert values["search"]["per_device_train_batch_size"] == {"choices": [8, 16, 32, 64, 128]}
    assert values["objectives"] == {"job_seconds": "minimize", "val_f1": "maximize"}
    assert values["budget_usd"] == 20
    (workplace / "saved.yaml").write_text(text)
    assert StudyFile.read("saved.yaml").takes_split
    assert main(["study", "saved.yaml", "--dry_run"]) == 0


def test_a_dry_run_prints_every_option_of_the_study_with_its_type(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--budget_usd", "20", "--metric", "val_f1", "--dry_run")
    options = ("--name", "2026", "--n_trials", "3", "--stop", "never", "--once", "false", "--n_parallel", "1")
    assert main(["study", "train.py", *asked, *options]) == 0

    values = yaml.safe_load(capsys.readouterr().out)
    shown = {"name": "2026", "n_trials": 3, "stop": "never", "once": False, "n_parallel": 1, "budget_usd": 20.0}
    assert shown.items() <= values.items()


def test_an_environment_variable_may_be_typed_as_empty(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--budget_usd", "20", "--metric", "val_f1", "--dry_run")
    assert main(["study", "train.py", *asked, "--environment.CUDA_VISIBLE_DEVICES", ""]) == 0

    text = capsys.readouterr().out
    assert yaml.safe_load(text)["job"]["environment"] == {"CUDA_VISIBLE_DEVICES": ""}
    (workplace / "saved.yaml").write_text(text.replace("CUDA_VISIBLE_DEVICES: ''", "CUDA_VISIBLE_DEVICES: '0'"))
    study = StudyFile.read("saved.yaml", {"environment.CUDA_VISIBLE_DEVICES": "", "name": ""})
    assert study.job.environment == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("val_ppl", "minimize"),
        ("wer", "minimize"),
        ("val/NLL", "minimize"),
        ("rmse", "minimize"),
        ("answer_f1", "maximize"),
        ("eval_neg_log_loss", "maximize"),
        ("neg_mean_squared_error", "maximize"),
        ("neg_log_likelihood_loss", "minimize"),
    ],
)
def test_the_direction_of_a_script_s_metric_follows_from_its_name_and_is_stated(
    workplace: Path, capsys: pytest.CaptureFixture[str], metric: str, direction: str
) -> None:
    (workplace / "train.py").write_text(SCRIPT.replace("val_f1", metric))
    assert main(["study", "train.py", "--budget_usd", "20", "--metric", metric, "--dry_run"]) == 0

    text = capsys.readouterr().out
    assert yaml.safe_load(text)["objectives"] == {"job_seconds": "minimize", metric: direction}
    assert f"# {metric} is {direction}d\n" in text


ASKED = ("study", "train.py", "--budget_usd", "20", "--dry_run")


def test_a_metric_whose_name_leaves_doubt_is_asked_for_its_direction(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text(SCRIPT.replace("val_f1", "val_rae"))

    assert main([*ASKED, "--metric", "val_rae"]) == 2
    assert "val_rae: say --minimize val_rae or --maximize val_rae" in capsys.readouterr().err

    for words in (["--minimize", "val_rae"], ["--metric", "val_rae", "--minimize", "val_rae"]):
        assert main([*ASKED, *words]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["objectives"] == {
            "job_seconds": "minimize",
            "val_rae": "minimize",
        }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--metric", "acc"], "train.py does not report acc: its text shows val_f1; if it reports acc, too"),
        (["--maximize", "acc"], "train.py does not report acc"),
        (["--metric", "VAL_F1"], "train.py does not report VAL_F1: did you mean val_f1?"),
        (["--minimize", "loss,lr"], "loss,lr is not the name of a metric"),
        (["--minimize", "val_f1"], "val_f1 is better when it is higher: say --maximize val_f1"),
        (
            ["--maximise", "val_f1"],
            "unknown parameter maximise, which train.py does not have either: did you mean maximize?",
        ),
        (
            ["--metrics", "val_f1"],
            "unknown parameter metrics, which train.py does not have either: did you mean metric?",
        ),
        (["--metric", "val_f1", "--bogus", "1"], "`paretune study --help all` lists all parameters"),
        (["--metric", "cost_usd"], "cost_usd is always minimized: name a metric that the script reports"),
        (["--maximize", "val_f1", "--minimize", "ms"], "one metric besides dollars, got --minimize ms and --maximize"),
        (["--minimize", "val_f1", "--maximize", "val_f1"], "one metric besides dollars"),
    ],
)
def test_a_wrong_metric_or_direction_is_refused_in_the_first_dry_run(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main([*ASKED, *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "train --help" not in error


@pytest.mark.parametrize("library", ["import mlflow\nmlflow.autolog()\n", "from transformers import Trainer\n"])
def test_a_metric_that_a_library_may_log_is_accepted(workplace: Path, script: Path, library: str) -> None:
    script.write_text(f"{library}{SCRIPT}")

    assert main([*ASKED, "--metric", "eval_accuracy"]) == 0


def test_a_metric_that_the_user_defines_is_accepted(workplace: Path, script: Path) -> None:
    definition = '[{"Name": "acc", "Regex": "right: ([0-9.]+)"}]'

    assert main([*ASKED, "--metric", "acc", "--metric_definitions", definition]) == 0


def test_a_data_file_is_called_a_data_set(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "ok.csv").write_text("text,label\na,b\n")

    assert main(["study", "ok.csv", "--budget_usd", "1"]) == 2
    assert "ok.csv is a data file, not a study: give it as dataset: --dataset ok.csv" in capsys.readouterr().err


def test_a_project_gets_a_study_file_to_start_from(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "--project", "nanogpt", "--metric", "val_loss", "--budget_usd", "2"]) == 2
    error = capsys.readouterr().err

    assert "a study of a project needs a study file" in error
    values = yaml.safe_load(error[error.index("{") :])
    assert values["job"] == {"project": "nanogpt"}
    assert values["objectives"] == {"job_seconds": "minimize", "val_loss": "minimize"}


def test_instance_types_are_searched_even_if_rate_and_batch_of_the_script_are_given(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = ("--instance_type", "ml.g5.xlarge,ml.g6.xlarge", "--launcher", "sagemaker")
    given = ("--learning_rate", "0.1", "--per_device_train_batch_size", "32", "--max_runtime_minutes", "10")
    asked = ("--budget_usd", "20", "--metric", "val_f1", "--dry_run")
    assert main(["study", "train.py", *types, *given, *asked]) == 0, capsys.readouterr().err

    assert yaml.safe_load(capsys.readouterr().out)["search"] == {
        "instance_type": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}
    }


@pytest.mark.trains
def test_a_dry_run_on_sagemaker_needs_no_account_and_says_that_it_asked_none(
    workplace: Path, no_settings: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"film {number} was {'great' if number % 2 else 'awful'};{number % 2}" for number in range(400)]
    (workplace / "reviews.csv").write_text("\n".join(["text;label", *rows, ""]))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(workplace / "none"))
    for cluster in (("--launcher", "sagemaker"), ("--instance_type", "ml.g5.xlarge,ml.m5.large")):
        words = ["study", "--dataset", "reviews.csv", "--budget_usd", "20", *cluster]

        assert main([*words, "--dry_run"]) == 0, capsys.readouterr().err

        text = capsys.readouterr().out
        types = yaml.safe_load(text)["search"]["instance_type"]["choices"]
        assert {"ml.m5.large", "ml.g5.xlarge"} & set(types)
        assert "# your AWS account was not queried, so prices are public ones: no AWS region is set" in text
        assert main(words) == 2
        assert "no AWS region is set" in capsys.readouterr().err


@pytest.mark.linux
@pytest.mark.parametrize(
    "parameters",
    [
        "lr: float = 0.1, batch_size: int = 32",
        "*, lr: float = 0.1, batch_size: int = 32",
    ],
)
def test_the_defaults_of_a_function_s_parameters_are_searched_around(
    workplace: Path, capsys: pytest.CaptureFixture[str], parameters: str
) -> None:
    pytest.importorskip("typer")
    lines = ("import typer", f"def main({parameters}) -> None:", '    print(f"val_f1: {1 - lr}")', "typer.run(main)")
    (workplace / "train.py").write_text("\n".join(lines) + "\n")

    words = ["study", "train.py", "--budget_usd", "20", "--metric", "val_f1", "--ask_script", "true", "--dry_run"]
    assert main(words) == 0

    search = yaml.safe_load(capsys.readouterr().out)["search"]
    assert search["learning_rate"] == {"low": 0.0125, "high": 0.8, "log": True}
    assert search["per_device_train_batch_size"] == {"choices": [8, 16, 32, 64, 128]}


@pytest.mark.linux
def test_a_script_whose_help_fails_is_refused_with_the_reason(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("import typer", "import no_such_module", "def main(lr: float = 0.1) -> None: ...", "typer.run(main)")
    (workplace / "train.py").write_text("\n".join(lines) + "\n")

    words = ["study", "train.py", "--budget_usd", "20", "--metric", "val_f1", "--ask_script", "true", "--dry_run"]
    assert main(words) == 2

    assert "train.py --help names no option (ModuleNotFoundError: No module named" in capsys.readouterr().err


def test_the_default_of_a_declared_argument_counts_before_that_of_a_function_s_parameter(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper = "import argparse\ndef optimizer(model, lr=5.0, batch_size=7): ...\n"
    (workplace / "train.py").write_text(SCRIPT.replace("import argparse\n", helper))

    assert main(["study", "train.py", "--budget_usd", "20", "--metric", "val_f1", "--dry_run"]) == 0

    search = yaml.safe_load(capsys.readouterr().out)["search"]
    assert search["learning_rate"] == {"low": 0.0125, "high": 0.8, "log": True}
    assert search["per_device_train_batch_size"] == {"choices": [8, 16, 32, 64, 128]}


def test_instance_types_are_those_on_the_estimated_front_each_with_its_reason(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*REHEARSED, "--budget_usd", "40", "--dry_run"]) == 0
    text = capsys.readouterr().out

    search = yaml.safe_load(text)["search"]
    types = search["instance_type"]["choices"]
    assert 2 <= len(types) <= 8
    assert search["global_batch_size"] == {"choices": [8, 16, 32, 64]}  # a batch of 128 has fewer than 20 steps
    assert "learning_rate" not in search, "a simulation without recorded runs knows nothing of quality"
    assert "# a simulation trains nothing: leave launcher out to compare f1 and learning rates too" in text
    for name in types:
        assert f"# {name}: about " in text
    assert "USD a job" in text
    assert yaml.safe_load(text)["job"]["max_runtime_minutes"] >= 1


def test_an_instance_type_that_is_hardly_faster_than_a_cheaper_one_is_not_searched(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A job that mostly starts up takes about the same time on every type.
    words = ["--max_train_samples", "64", "--budget_usd", "20", "--dry_run"]
    assert main([*REHEARSED[:-2], *words]) == 0

    assert len(yaml.safe_load(capsys.readouterr().out)["search"]["instance_type"]["choices"]) == 1


def test_a_study_without_a_file_runs_to_its_answer_within_its_dollars(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*REHEARSED, "--budget_usd", "20", "--n_trials", "4"]) == 0
    output = capsys.readouterr()
    assert "Take trial" in output.out
    assert "of 20.00 USD" in output.out
    assert "about " in output.err  # why these instance types


def test_a_study_continues_with_a_larger_budget_and_its_own_search_although_another_would_be_proposed_now(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*REHEARSED, "--n_trials", "2"]
    assert main([*words, "--budget_usd", "0.1", "--dry_run"]) == 0
    began = yaml.safe_load(capsys.readouterr().out)
    assert main([*words, "--budget_usd", "0.1"]) == 0, capsys.readouterr().err

    assert main([*words, "--budget_usd", "20"]) == 0, capsys.readouterr().err
    error = capsys.readouterr().err
    assert "this continues the study rotten_tomatoes with its own search" in error
    assert "study rotten_tomatoes continues: 2 trials run" in error
    assert main([*words, "--budget_usd", "20", "--dry_run"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == began | {"budget_usd": 20.0}

    assert main([*words, "--budget_usd", "20", "--global_batch_size", "16"]) == 2
    assert "was started with a different search space" in capsys.readouterr().err


@pytest.mark.trains
def test_a_rehearsal_is_not_continued_by_a_command_that_names_no_simulation(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = ("--n_trials", "2", "--budget_usd", "5")
    assert main([*REHEARSED, *terms]) == 0, capsys.readouterr().err
    at = REHEARSED.index("--launcher")

    assert main([*REHEARSED[:at], *REHEARSED[at + 2 :], *terms]) == 2
    assert "study rotten_tomatoes was started with a different search space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "study must name a study file, such as studies/smoke.yaml, or a script"),
        (
            ["train.py", "--metric", "val_f1"],
            "budget_hours is missing: say how long the study's jobs may take together",
        ),
        (["trian.py", "--metric", "val_f1"], "budget_hours is missing"),
        (["trian.py", "--metric", "val_f1"], "did you mean train.py"),
        (["train.py", "--budget_usd", "3"], "say which metric judges the model of train.py"),
        (["train.py", "--budget_usd", "3"], "found in the script: val_f1"),
        (["--dataset", "no.csv", "--budget_usd", "3"], "no.csv"),
        (["--dataset", "bundled:rotten_tomatoes", "--budget_usd", "x"], "budget_usd must be a number"),
        (["--dataset", "bundled:rotten_tomatoes", "--budget_usd", "3", "--metric", "f1"], "metric is for a script"),
        (
            ["train.py", "--budget_usd", "3", "--metric", "val_f1", "--learning_rate", "1", "--batch_size", "8"],
            "nothing is left to search: leave learning_rate or the batch size open",
        ),
        (
            ["broken.py", "--budget_usd", "3", "--metric", "val_f1"],
            "entry_script broken.py, line 2: Python cannot read it",
        ),
        (["train.py", "--budget_usd", "3", "--metric", "val_f1", "--launcher", "sagemaker"], "needs an instance_type"),
        ([*REHEARSED[1:], "--budget_usd", "0.01"], "budget_usd, 0.0100 USD, pays for fewer than 4 of these jobs"),
        (
            [*REHEARSED[1:], "--budget_usd", "900", "--model", "falcon-40b", "--task", "causal-lm"],
            ", or choose a smaller model or fine_tuning=lora",
        ),
        (
            [*REHEARSED[1:], "--budget_usd", "9", "--region", "ap-south-2"],
            "without a reliable price): run `paretune prices --refresh true --region ap-south-2`",
        ),
        (
            ["--dataset", "bundled:rotten_tomatoes", "--budget_usd", "3", "--instance_type", ","],
            "instance_type must name at least one type",
        ),
        (["smoke", "--metric", "f1"], "metric is for a study without a file"),
        (["smoke", "--maximize", "f1"], "maximize is for a study without a file: put it in the file's objectives"),
    ],
)
def test_a_wrong_wish_is_refused_in_one_sentence_before_anything_starts(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    (workplace / "broken.py").write_text("import argparse\nprint 1\n")
    assert main(["study", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_batch_that_is_given_by_the_script_s_own_option_is_not_searched(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--metric", "val_f1", "--batch_size", "8"]) == 0, capsys.readouterr().err

    study = yaml.safe_load(capsys.readouterr().out)
    assert list(study["search"]) == ["learning_rate"]
    assert study["job"]["training_arguments"] == {"batch-size": 8}


RICH_SCRIPT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--weight-decay", type=float, default=0.0)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--warmup-epochs", type=int, default=0)
parser.add_argument("--momentum", type=float)
parser.add_argument("--optimizer", choices=["adam", "sgd", "lion"], default="adam")
parser.add_argument("--nesterov", action="store_true")
parser.add_argument("--log-interval", type=int, default=10)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
print(f"val_f1: {args.lr}")
"""


def uncommented(text: str) -> str:
    """Return a proposed study with all of its commented lines that would search another parameter."""
    return re.sub(r"^  # ([\w.-]+: \{.*)$", r"  \1", text, flags=re.MULTILINE)


def test_a_dry_run_says_what_is_not_searched_and_why_with_lines_that_a_study_file_takes(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text(RICH_SCRIPT)
    assert main([*ASKED, "--metric", "val_f1"]) == 0
    text = capsys.readouterr().out

    assert yaml.safe_load(text)["search"].keys() == {"learning_rate", "per_device_train_batch_size"}
    for line in (
        "num_train_epochs: {choices: [2, 4, 8]}  # 4 by default; more epochs cost more",
        "training_arguments.dropout: {low: 0.25, high: 0.75}  # 0.5 by default",
        "training_arguments.weight-decay: {choices: [0.0, 0.01, 0.1]}  # 0.0 by default",
        "training_arguments.width: {choices: [32, 64, 128]}  # 64 by default",
        "training_arguments.warmup-epochs: {choices: [0, 1, 2]}  # 0 by default",
        "training_arguments.optimizer: {choices: [adam, sgd, lion]}  # the script's own choices, adam by default",
        "training_arguments.nesterov: {choices: [false, true]}  # a switch",
        "training_arguments.momentum: the text of the script shows no number as the default of momentum",
        "training_arguments.log-interval: its name does not look like a setting of the model",
        "seed: it only changes random noise",
        "instance_type: jobs run on this machine; --instance_type ml.g4dn.xlarge,ml.g5.xlarge would compare",
    ):
        assert f"\n  # {line}" in text

    (workplace / "more.yaml").write_text(uncommented(text))
    study = StudyFile.read("more.yaml")
    assert len(study.search) == 9
    assert main(["study", "more.yaml", "--dry_run"]) == 0


def test_a_study_says_what_it_searches_and_what_it_leaves_out(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text(RICH_SCRIPT)
    assert main(["study", "train.py", "--metric", "val_f1", "--budget_usd", "0.00001"]) == 4
    error = capsys.readouterr().err

    assert "searched: learning_rate 2.5 to 160.0 (log scale); per_device_train_batch_size 8, 16, 32, 64, 128" in error
    left_out = "num_train_epochs, dropout, weight-decay, width, warmup-epochs, optimizer, nesterov"
    assert f"not searched: {left_out}; --dry_run true" in error


def test_a_dry_run_states_the_worst_case_of_a_job_and_how_many_the_budget_covers(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--metric", "val_f1", "--max_runtime_minutes", "30")
    assert main(["study", "train.py", "--budget_usd", "3", "--dry_run", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    worst = {job["worst_case_usd"] for job in document["jobs"]}
    assert len(worst) == 1

    assert main(["study", "train.py", "--budget_usd", "3", "--dry_run", *words]) == 0
    text = capsys.readouterr().out
    assert "# where: this machine\n" in text
    assert "# limit of a job: it is stopped after 30 m\n" in text
    stands = "nobody bills these jobs: 3.00 USD stand for 26 h 5 m of job time, at the price of an ml.m5.large"
    assert f"# dollars: {stands} (0.115 USD per hour)\n" in text
    assert "# budget: 26 h 5 m of job time cover 52 such jobs at their time limits, and more once" in text
    assert "# reports: val_f1\n" in text

    (workplace / "saved.yaml").write_text(text)
    assert main(["study", "saved.yaml", "--dry_run"]) == 0
    assert "limit of a job: it is stopped after 30 m" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("--dry_run",)])
def test_a_budget_that_covers_no_job_is_refused_even_in_a_dry_run(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main(["study", "train.py", "--metric", "val_f1", "--budget_usd", "0.00001", *words]) == 4
    assert "no job's worst case fits" in capsys.readouterr().err


@pytest.mark.trains
@pytest.mark.parametrize("words", [(), ("--dry_run",)])
def test_an_impossible_budget_and_an_unknown_model_are_refused_before_rows_are_prepared(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    started = list[object]()
    monkeypatch.setattr("paretune.jobs.preparation.subprocess.Popen", lambda words, **_: started.append(words))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (workplace / "reviews.csv").write_text("text,label\n" + "good,1\nbad,0\n" * 50)
    (workplace / "s.yaml").write_text(
        "name: s\nbudget_usd: 0.0001\njob: {dataset: reviews.csv}\nsearch: {learning_rate: {choices: [0.001, 0.01]}}\n"
    )
    small = ("--dataset", "reviews.csv", "--budget_usd")
    refusals = dict[tuple[str, ...], str]()
    for typed in ((*small, "0.0001"), ("s.yaml",), (*small, "9", "--model", "nobody/knows")):
        assert main(["study", *typed, *words]) in (2, 4)
        refusals[typed] = capsys.readouterr().err.splitlines()[-1]

    first, second, third = refusals.values()
    assert first.startswith("paretune: no job's worst case fits the budget (0.000100 USD): a job that is stopped after")
    assert second == first
    assert third.startswith("paretune: model nobody/knows is not in the local cache")
    assert started == []


@pytest.mark.parametrize("launcher", [(), ("--launcher", "sagemaker")])
def test_clusters_that_are_searched_are_not_listed_as_left_out(
    workplace: Path, script: Path, no_settings: None, capsys: pytest.CaptureFixture[str], launcher: tuple[str, ...]
) -> None:
    types = ("--instance_type", "ml.g5.xlarge,ml.g6.xlarge", "--max_runtime_minutes", "10", *launcher)
    assert main([*ASKED, "--metric", "val_f1", *types]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out

    assert "# instance_type" not in text
    assert "# where: SageMaker, 1 x ml.g5.xlarge; SageMaker, 1 x ml.g6.xlarge\n" in text
    assert re.search(r"# worst case of a job: [\d.]+ USD to [\d.]+ USD\n", text)
    assert re.search(r"# budget: 20.00 USD cover \d+ to \d+ such jobs", text)


def test_a_script_without_arguments_is_told_that_nothing_can_be_searched(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text('print("val_f1: 0.5")\n')
    assert main([*ASKED, "--metric", "val_f1"]) == 2
    assert "train.py reads no arguments, so a study cannot change anything" in capsys.readouterr().err


def test_a_script_whose_help_must_be_run_says_so_before_it_is_called_one_without_arguments(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text(
        "import typer\ndef main(lr: float = 0.1):\n    print('val_f1: 0.5')\ntyper.run(main)\n"
    )
    assert main([*ASKED, "--metric", "val_f1"]) == 2
    assert "by running train.py --help without network: add --ask_script true" in capsys.readouterr().err


def test_a_script_without_rate_and_batch_gets_a_study_file_to_start_from(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["import argparse", "parser = argparse.ArgumentParser()", "parser.add_argument('--width', default=8)"]
    (workplace / "train.py").write_text("\n".join([*lines, "print(f'val_f1: {parser.parse_args().width}')"]))
    assert main([*ASKED, "--metric", "val_f1"]) == 2
    error = capsys.readouterr().err

    (workplace / "saved.yaml").write_text(error[error.index("{") :])
    assert StudyFile.read("saved.yaml").search.keys() == {"training_arguments.width"}
