"""Studies on a machine that nobody bills: they trade quality against time, and their budget may be typed in hours."""

import json
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.next_job import Sampled
from tests.support.scripted_study import Desk

SCRIPT = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
a = p.parse_args()
print(f"epoch 1: val_f1: {0.9 - abs(a.lr - 0.1):.4f}")
"""
STUDY = ["study", "train.py", "--metric", "val_f1", "--n_trials", "2"]


@pytest.fixture
def script(workplace: Path) -> Path:
    path = workplace / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_study_on_ones_own_machine_speaks_of_time_and_names_notional_dollars_once(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STUDY, "--budget_hours", "0.1"]) == 0

    shown = capsys.readouterr()
    assert re.search(
        r"trial 0 Completed: job time [\d.]+ s, val_f1 0\.\d+ .*; spent [\d.]+ s, left (5 m \d+ s|6 m)", shown.err
    )
    assert "USD" not in shown.err
    assert re.search(r"Take trial \d \(rate [\d.e-]+\): job time [\d.]+.* s; val_f1 0\.\d+", shown.out)
    assert re.search(r"The search took [\d.]+ s of job time, as much as [\d.]+ jobs", shown.out)
    assert "job time (s)" in shown.out
    assert re.search(
        r"Budget: spent [\d.]+ s, reserved 0 s for running jobs \(worst case\), left 5 m .* of 6 m\.", shown.out
    )
    assert re.search(r"As an ml.m5.large, this machine would have cost [\d.]+ USD\.", shown.out)
    assert shown.out.count("USD") == 1
    jobs = [run for run in MlflowClient().search_runs(["0"]) if "val_f1" in run.data.metrics]
    assert jobs
    assert all(run.data.metrics["cost_usd"] > 0 for run in jobs)


def test_dollars_on_ones_own_machine_still_limit_a_study_which_says_what_time_they_stand_for(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STUDY, "--budget_usd", "0.115", "--json"]) == 0

    shown = capsys.readouterr()
    stands = "nobody bills these jobs: 0.115 USD stand for 1 h of job time, at the price of an ml.m5.large"
    assert stands in shown.err
    assert re.search(r"spent [\d.]+ s, left 59 m", shown.err) or "left 1 h" in shown.err
    answer = json.loads(shown.out)
    assert answer["objectives"] == {"job_seconds": "minimize", "val_f1": "maximize"}
    assert answer["budget_s"] == pytest.approx(3600)


def test_a_study_that_was_begun_with_dollars_goes_on_with_them(
    workplace: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STUDY, "--budget_usd", "0.1", "--dry_run"]) == 0
    saved = capsys.readouterr().out.replace("job_seconds: minimize", "cost_usd: minimize")
    (workplace / "saved.yaml").write_text(saved)
    assert main(["study", "saved.yaml"]) == 0

    assert main(["study", "train.py", "--metric", "val_f1", "--n_trials", "3", "--budget_usd", "0.1"]) == 0

    shown = capsys.readouterr()
    assert "this continues the study train" in shown.err
    assert re.search(r"Take trial \d .*: cost ", shown.out)


@pytest.mark.parametrize(
    ("job", "paid"),
    [
        ({}, "job_seconds"),
        ({"launcher": "sagemaker", "instance_type": "ml.g5.xlarge"}, "cost_usd"),
        ({"instance_type": "ml.g5.xlarge"}, "cost_usd"),
        ({"launcher": "simulated", "instance_type": "ml.g5.xlarge"}, "cost_usd"),
    ],
)
def test_what_a_study_trades_quality_against_follows_from_where_its_jobs_run(job: dict[str, str], paid: str) -> None:
    search = {"learning_rate": {"choices": [1e-5, 3e-5]}}

    study = StudyFile.read({"name": "x", "job": job, "search": search, "budget_usd": 5})

    assert study.objectives == {paid: "minimize", "f1": "maximize"}
    assert study.spending.metric == paid


def test_hours_are_a_second_limit_of_a_study_that_is_billed(desk: Desk) -> None:
    driver = desk.driver(budget_hours=400 / 3600, n_parallel=4)  # its jobs are stopped after 6 minutes
    most_s = 0.0

    class Watched(Sampled):
        def propose(self):  # type: ignore[no-untyped-def]
            nonlocal most_s
            most_s = max(most_s, sum(driver.table.seconds()))
            return super().propose()

    driver.run(Watched(driver).propose)

    assert driver.table.seconds()[0] > 0
    assert most_s <= 400
    assert sum(driver.table.seconds()) <= 400
    starts = [run.info.start_time for run in MlflowClient().search_runs(["0"]) if "f1" in run.data.metrics]
    assert len(starts) == len(set(starts))  # never two at once: the limits of two are 12 minutes


def test_hours_that_are_less_than_the_shortest_limit_are_refused_at_once(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STUDY, "--budget_hours", "0.005"]) == 4

    assert "no job fits the budget (18.0 s): the shortest limit of a job is 30.0 s; raise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "budget_hours is missing: say how long the study's jobs may take together, such as --budget_hours 2"),
        (
            ["--launcher", "sagemaker", "--instance_type", "ml.g5.xlarge"],
            "budget_usd is missing: say how many dollars the study may spend",
        ),
        (["--budget_hours", "0"], "budget_hours must be greater than 0"),
        (["--budget_hours", "two"], "budget_hours must be"),
    ],
)
def test_a_study_without_a_limit_is_refused_with_the_one_that_it_needs(
    script: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["study", "train.py", "--metric", "val_f1", *words]) == 2

    assert sentence in capsys.readouterr().err
