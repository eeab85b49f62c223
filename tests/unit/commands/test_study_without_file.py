"""A study without a file: its search follows from the data set or the script, and from the budget."""

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
    assert values["objectives"] == {"cost_usd": "minimize", "val_f1": "maximize"}
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
        ("neg_perplexity", "maximize"),
        ("neg_log_likelihood_loss", "minimize"),
        ("neg_loss", "minimize"),
    ],
)
def test_the_direction_of_a_script_s_metric_follows_from_its_name_and_is_stated(
    workplace: Path, capsys: pytest.CaptureFixture[str], metric: str, direction: str
) -> None:
    (workplace / "train.py").write_text(SCRIPT.replace("val_f1", metric))
    assert main(["study", "train.py", "--budget_usd", "20", "--metric", metric, "--dry_run"]) == 0

    text = capsys.readouterr().out
    assert yaml.safe_load(text)["objectives"] == {"cost_usd": "minimize", metric: direction}
    assert f"# {metric} is {direction}d\n" in text


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
@pytest.mark.parametrize("cluster", [("--launcher", "sagemaker"), ("--instance_type", "ml.g5.xlarge,ml.m5.large")])
def test_a_dry_run_on_sagemaker_needs_no_account_and_says_that_it_asked_none(
    workplace: Path,
    no_settings: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cluster: tuple[str, str],
) -> None:
    rows = [f"film {number} was {'great' if number % 2 else 'awful'};{number % 2}" for number in range(400)]
    (workplace / "reviews.csv").write_text("\n".join(["text;label", *rows, ""]))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(workplace / "none"))
    words = ["study", "--dataset", "reviews.csv", "--budget_usd", "20", *cluster]

    assert main([*words, "--dry_run"]) == 0, capsys.readouterr().err

    text = capsys.readouterr().out
    types = yaml.safe_load(text)["search"]["instance_type"]["choices"]
    assert {"ml.m5.large", "ml.g5.xlarge"} & set(types)
    assert "# your AWS account was not queried, so prices are public ones: no AWS region is set" in text
    assert main(words) == 2
    assert "no AWS region is set" in capsys.readouterr().err


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
    lines = ("import typer", f"def main({parameters}) -> None:", '    print(f"val_f1: {1 - lr}")', "typer.run(main)")
    (workplace / "train.py").write_text("\n".join(lines) + "\n")

    words = ["study", "train.py", "--budget_usd", "20", "--metric", "val_f1", "--ask_script", "true", "--dry_run"]
    assert main(words) == 0

    search = yaml.safe_load(capsys.readouterr().out)["search"]
    assert search["learning_rate"] == {"low": 0.0125, "high": 0.8, "log": True}
    assert search["per_device_train_batch_size"] == {"choices": [8, 16, 32, 64, 128]}


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
    assert "of 20 USD" in output.out or "of 20.00 USD" in output.out
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
        (["train.py", "--metric", "val_f1"], "budget_usd is missing: say how many dollars the study may spend"),
        (["trian.py", "--metric", "val_f1"], "budget_usd is missing"),
        (["trian.py", "--metric", "val_f1"], "did you mean train.py"),
        (["train.py", "--budget_usd", "3"], "say which metric judges the model of train.py"),
        (["train.py", "--budget_usd", "3"], "found in the script: val_f1"),
        (["--dataset", "no.csv", "--budget_usd", "3"], "no.csv"),
        (["--dataset", "bundled:rotten_tomatoes", "--budget_usd", "x"], "budget_usd must be a number"),
        (["--dataset", "bundled:rotten_tomatoes", "--budget_usd", "3", "--metric", "f1"], "metric is for a script"),
        (["train.py", "--budget_usd", "3", "--metric", "val_f1", "--learning_rate", "1", "--batch_size", "8"], "batch"),
        (
            ["broken.py", "--budget_usd", "3", "--metric", "val_f1"],
            "entry_script broken.py, line 2: Python cannot read it",
        ),
        (["train.py", "--budget_usd", "3", "--metric", "val_f1", "--launcher", "sagemaker"], "needs an instance_type"),
        ([*REHEARSED[1:], "--budget_usd", "0.01"], "budget_usd 0.01 pays for fewer than 4 of these jobs"),
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
    ],
)
def test_a_wrong_wish_is_refused_in_one_sentence_before_anything_starts(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    (workplace / "broken.py").write_text("import argparse\nprint 1\n")
    assert main(["study", *words]) == 2
    assert sentence in capsys.readouterr().err
