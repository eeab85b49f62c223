"""`--json`: one document on standard output, whatever happens; its fields are those of docs/api.md."""

import json
import re
import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from paretune.cli import COMMANDS, main
from tests.support.pages import fields_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "api.md").read_text()
Run = Callable[..., tuple[int, Any, str]]
SIMULATED = ("--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000")


@pytest.fixture
def run(run: Callable[..., tuple[int, str, str]], next_to_the_studies: Path) -> Run:
    """Return a function that runs a command next to the studies, and returns exit code, document and standard error."""

    def command(*words: str) -> tuple[int, Any, str]:
        code, out, err = run(*words)
        return code, json.loads(out), err

    return command


def test_the_page_lists_every_command() -> None:
    for name in COMMANDS.keys() - {"mcp"}:  # it answers an agent, not its caller
        assert fields_of(f"`{name}`")


def test_the_example_of_the_page_is_what_the_command_prints(run: Run) -> None:
    (matches,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (line,) = re.findall(r"```bash\n(paretune .*)\n```", PAGE)

    code, document, err = run(*shlex.split(line)[1:])
    expected = json.loads(matches)
    for row in (*document["rows"], *expected["rows"]):
        row["age_days"] = 0  # days since the price's date, so it grows

    assert (code, document, err) == (0, expected, "")


@pytest.mark.parametrize("flag", [["--json"], ["--json", "true"], ["--json=true"]])
def test_the_flag_may_stand_anywhere_and_have_a_value(flag: list[str], run: Run) -> None:
    for words in ([*flag, "prices"], ["prices", *flag], ["prices", "--region", "us-east-1", *flag]):
        assert run(*words)[1]["region"] == "us-east-1"


def test_json_false_is_the_text(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "--region", "us-east-1", "--json", "false"]) == 0
    assert capsys.readouterr().out.startswith("SageMaker Training, on demand, us-east-1\n")


def test_a_key_without_its_end_is_hidden_and_the_document_is_whole(run: Run) -> None:
    code, document, _ = run("-----BEGIN SSH KEY-----hunter2", "--json")

    assert code == 2
    assert document["error"]["faults"] == ["unknown command '..."]
    assert document["error"]["exit_code"] == 2


def test_wrong_words_are_an_error_document_and_one_after_the_flag_that_is_no_truth_is_a_fault(run: Run) -> None:
    assert run("mian", "--json")[1]["error"]["class"] == "BadInput"
    code, document, _ = run("train", "--seed", "x", "--json", "maybe")

    assert code == 2
    assert document["error"]["faults"] == [
        "unexpected 'maybe': options are given as --name value",
        "seed must be a whole number at least 0 and at most 4294967295, got 'x'",
    ]


def test_the_version_and_the_help_are_documents_too(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", "--json")[1] == {"version": version("paretune")}
    for words in (["--help"], ["train", "--help"], ["train", "--help", "all"]):
        assert main(words) == 0
        text = capsys.readouterr().out.rstrip("\n")
        assert run(*words, "--json")[1] == {"help": text}


def test_a_job_and_its_dry_run(run: Run) -> None:
    code, document, err = run("train", *SIMULATED, "--json")

    assert code == 0
    assert set(document) == fields_of("`train`")
    assert document["metrics"]["cost_usd"] > 0
    assert document["params"]["max_train_samples"] == 4000
    assert document["price"]["usd_per_hour"] == 1.408
    assert "simulated job" in err  # progress
    code, document, _ = run("train", *SIMULATED, "--dry_run", "true", "--json")
    assert code == 0
    assert set(document) <= fields_of("`train` with `dry_run`")
    assert document["command"].endswith(
        "train --max_train_samples 4000 --instance_type ml.g5.xlarge --launcher simulated"
    )


def test_estimate_report_import_and_sync(run: Run, workplace: Path) -> None:
    code, document, err = run("estimate", *SIMULATED, "--instance_count", "1,2", "--json")
    assert (code, err) == (0, "")
    assert set(document) == fields_of("`estimate`")
    assert [row["instance_count"] for row in document["rows"]] == [1, 2]
    assert isinstance(document["rows"][0]["on_front"], bool)

    table = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,color\n"
    (workplace / "runs.csv").write_text(f"{table}ml.g5.xlarge,1,32,5e-5,1000,0.9,red\n")
    shared = "--model m --dataset d --num_train_epochs 1 --max_seq_length 128 --precision fp32"
    code, document, _ = run("import", "--recorded_runs", "runs.csv", *shared.split(), "--json")
    assert code == 0
    assert set(document) == fields_of("`import`")
    assert (len(document["run_ids"]), document["ignored_columns"]) == (1, ["color"])

    code, document, _ = run("report", "--json")
    assert code == 0
    assert set(document) == fields_of("`report`")
    (row,) = document["rows"]
    assert (row["origin"], row["f1"], row["new_cost_usd"]) == ("published", 0.9, None)

    code, document, _ = run("sync", "--json")
    assert (code, document) == (0, {"runs": []})


def test_a_study_and_its_dry_run(run: Run) -> None:
    words = ["--study", "studies/pareto.yaml", "--n_trials", "2", "--sampler", "random"]
    code, document, err = run("study", *words, "--dry_run", "--json")

    assert (code, err) == (0, "")
    assert set(document) == fields_of("`study` with `dry_run`")
    assert all(job["worst_case_usd"] > 0 and "learning_rate" in job for job in document["jobs"])
    assert run("sync", "--json")[1] == {"runs": []}
    code, document, err = run("study", *words, "--json")

    assert code == 0
    assert set(document) == fields_of("`study`")
    assert document["origin"] == "simulated"
    assert len(document["trials"]) >= 2
    assert document["recommended"][0]["means"]["cost_usd"] > 0
    assert "trial 0 " in err


def test_a_refused_budget_and_a_failed_job_are_error_documents_with_their_exit_codes(run: Run) -> None:
    fields = {"class", "message", "faults", "exit_code"}
    code, document, err = run("train", *SIMULATED, "--max_cost_usd", "0.01", "--json")
    assert set(document["error"]) == fields
    assert (document["error"]["class"], document["error"]["exit_code"], code) == ("BudgetRefused", 4, 4)
    assert err == f"paretune: {document['error']['message']}\n"

    code, document, _ = run("train", *SIMULATED, "--simulation", '{"failure_rate": 1}', "--json")
    assert code == 3
    assert set(document["error"]) == {*fields, "job_name", "reason", "cause", "log_tail", "where"}
    assert document["error"]["job_name"].startswith("paretune-")
