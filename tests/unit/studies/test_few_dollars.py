"""Studies with money for no job, one job and a few jobs: what they buy, what they say, and what they keep."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.errors import CallAgain
from paretune.storage.files import find_file
from paretune.studies.run import run_study
from paretune.studies.search.driver import Driver, Start
from paretune.studies.search.money import Money
from paretune.studies.search.next_job import Split
from tests.support.scripted_study import RATES, Desk
from tests.support.tags import tags_of
from tests.support.workplaces import driver_of

DEMO = find_file("demo")


def rows_of(workplace: Path) -> list[dict[str, str]]:
    """Return the rows of the newest pareto.csv."""
    path = max(workplace.glob("mlruns/**/pareto.csv"), key=lambda each: each.stat().st_mtime)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def demo(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARETUNE_PRICES", str(Path(DEMO).with_name("polarity_prices.csv")))
    return workplace


CLUSTERS = 6  # two types, one, two or four of them


def test_for_0_dollars_the_demos_study_answers_with_the_estimate_and_runs_nothing(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "demo", "--budget_usd", "0"]) == 0

    output = capsys.readouterr().out
    assert "Estimated: nothing was run, and 0 USD were spent. Take ml.p3." in output
    assert "Nothing was trained: hours and dollars come from an estimate" in output
    assert "this machine's time" not in output
    rows = rows_of(demo)
    assert {row["evidence"] for row in rows} == {"estimated"}
    assert len({(row["instance_type"], row["instance_count"]) for row in rows}) == CLUSTERS
    best = [row for row in rows if row["pareto_rank"] == "0"]
    assert len({(row["instance_type"], row["instance_count"]) for row in best}) >= 3
    assert all(0 < float(row["cost_usd_low"]) < float(row["cost_usd"]) < float(row["cost_usd_high"]) for row in rows)
    (run,) = MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert "estimated" in tags_of(run)["mlflow.runName"]
    assert "pick_f1" not in run.data.metrics


@pytest.mark.parametrize(
    ("usd", "least_trained"), [("30", 0), ("100", 1), pytest.param("200", 2, marks=pytest.mark.slow), ("300", 3)]
)
def test_with_few_dollars_the_demos_study_spends_them_and_its_answer_knows_all_clusters(
    demo: Path, capsys: pytest.CaptureFixture[str], usd: str, least_trained: int
) -> None:
    assert main(["study", "demo", "--budget_usd", usd]) == 0

    output, rows = capsys.readouterr().out, rows_of(demo)
    trained = [row for row in rows if row["evidence"] == "trained"]
    spent_usd = sum(float(row["cost_usd"]) for row in rows if row["trial"])
    names = ("learning_rate", "instance_type", "instance_count")
    assert len({tuple(row[name] for name in names) for row in trained}) >= least_trained
    assert spent_usd <= float(usd)
    assert not trained or spent_usd > 0.8 * float(usd) or "the cheapest may cost" in output
    best = [row for row in rows if row["pareto_rank"] == "0"]
    assert len({(row["instance_type"], row["instance_count"]) for row in best}) >= 3, "never less than the estimate"
    assert ("Nothing was trained" in output) == (not trained)
    assert bool(re.search(r"Take trial \d+ ", output)) == bool(trained), "a trained one as soon as there is any"
    assert "The search cost " in output
    assert "the fastest that was trained" in output or not re.search(r"It is (also )?the fastest[,.]", output)


SCRIPT = """
name: too dear
job: {entry_script: train.py, launcher: simulated, simulation.runs: runs.csv, instance_type: ml.g5.xlarge}
search: {rate: {choices: [1, 2, 3]}}
objectives: {cost_usd: minimize, score: maximize}
budget_usd: 1.2
"""


def write_script(folder: Path, seconds: float, **more: Any) -> None:
    rows = [f"ml.g5.xlarge,{rate},{seconds},{0.7 + rate / 10}" for rate in (1, 2, 3)]
    (folder / "runs.csv").write_text("\n".join(["instance_type,rate,billable_seconds,score", *rows]) + "\n")
    (folder / "train.py").write_text("p.add_argument('--rate')\n")
    (folder / "study.yaml").write_text(SCRIPT)


def test_a_script_whose_limit_is_dearer_than_the_budget_starts_with_a_limit_that_a_third_of_it_covers(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(workplace, 400.0)
    limit = ["--max_runtime_minutes", "600"]

    assert main(["study", "study.yaml", *limit]) == 0

    shown = capsys.readouterr()
    assert re.search(r"trial 0: it gets \d+ m.*, not 10 h, because no job of this code has completed", shown.err)
    trained = [row for row in rows_of(workplace) if row["evidence"] == "trained"]
    assert {row["training_arguments.rate"] for row in trained} == {"1", "2", "3"}


def test_a_first_job_that_was_cut_off_counts_as_longer_and_the_next_one_gets_more(workplace: Path) -> None:
    write_script(workplace, 1500.0)
    driver = driver_of(workplace, "study.yaml", {"max_runtime_minutes": "600", "budget_usd": "1.7"})
    driver.run(Split(driver).propose)

    first, second, *_ = driver.trials.values()
    assert first.status.name == "CUT_OFF"
    assert second.spec.max_runtime_minutes > first.spec.max_runtime_minutes
    assert any(trial.status.name == "COMPLETED" for trial in driver.trials.values())
    assert driver.table.balance().spent_usd <= 1.7


def test_a_driver_that_dies_while_a_shorter_limit_is_decided_leaves_nothing_reserved_and_the_next_decides_alike(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(workplace, 400.0)
    typed = {"max_runtime_minutes": "600"}
    decided = list[float]()

    def dies(money: Money, trial: Any, asked: Any) -> Any:
        decided.append(trial.spec.max_runtime_minutes)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Money, "reserve", dies)
        driver = driver_of(workplace, "study.yaml", typed)
        with pytest.raises(KeyboardInterrupt):
            driver.run(Split(driver).propose)
    assert driver.table.balance().committed_usd == 0.0

    following: Driver = driver_of(workplace, "study.yaml", typed)
    following.adopt()
    following.run(Split(following).propose)

    assert next(iter(following.trials.values())).spec.max_runtime_minutes == decided[0]
    assert following.table.balance().spent_usd <= 1.2


def test_a_second_driver_does_not_decide_beside_the_first(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(workplace, 400.0)
    reserve, refused = Money.reserve, list[str]()

    def beside(money: Money, trial: Any, asked: Any) -> Any:
        if not refused:
            with pytest.raises(CallAgain) as caught:
                run_study("study.yaml", max_runtime_minutes=600, quiet=True)
            refused.append(str(caught.value))
        return reserve(money, trial, asked)

    monkeypatch.setattr(Money, "reserve", beside)
    result = run_study("study.yaml", max_runtime_minutes=600, quiet=True)

    assert refused
    assert len({trial.computation for trial in result.answer.front.trials}) == len(result.answer.front.trials)
    assert result.answer.front.spent_usd <= 1.2


def test_two_first_jobs_start_at_once_and_others_wait_until_one_has_begun_to_train(workplace: Path) -> None:
    write_script(workplace, 400.0)
    driver = driver_of(workplace, "study.yaml", {"n_parallel": "3", "budget_usd": "50"})
    searching = Split(driver)

    for _ in range(2):
        start = searching.propose()
        assert not isinstance(start, str)
        assert driver.begin(start) == ""
    assert searching.propose() == "the next job depends on those that are running"
    assert len(driver.running) == 2
    driver.run(searching.propose)


def test_a_driver_asks_again_as_soon_as_a_job_has_begun_to_train(desk: Desk) -> None:
    """Nothing else happens in between: no job ends."""
    driver = desk.driver(n_parallel=2)
    running_when_asked = list[int]()

    def propose() -> Start | str:
        running_when_asked.append(len(driver.running))
        if not driver.running and not driver.trials:
            return Start({"learning_rate": RATES[0]})
        if any(job.has_begun for job in driver.running) and len(driver.running) == 1 and not driver.trials:
            return Start({"learning_rate": RATES[1]})
        return "the next job depends on those that are running"

    driver.run(propose)

    assert len(driver.trials) == 2
    assert running_when_asked[:3] == [0, 1, 1]


def test_the_dry_run_shows_what_is_known_before_any_job_and_for_0_dollars_too(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for usd in ("0", "300"):
        assert main(["study", "demo", "--budget_usd", usd, "--dry_run", "true"]) == 0
        output = capsys.readouterr().out
        assert "known before any job, the answer for 0 USD (80 % interval):" in output
        assert re.search(
            r"^estimate +\d+ \(\d+ to \d+\) +\d+ \(\d+ to \d+\) +4 x ml\.p3\.16xlarge", output, re.MULTILINE
        )


def test_for_0_dollars_a_script_of_which_nothing_is_known_says_what_to_give(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(workplace, 400.0)

    assert main(["study", "study.yaml", "--budget_usd", "0"]) == 3
    output = capsys.readouterr().out
    assert (
        "nothing is known of the seconds of these jobs before one has run: give the study a budget for a job" in output
    )


def test_a_study_for_0_dollars_goes_on_with_the_dollars_that_it_gets(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "demo", "--budget_usd", "0"]) == 0
    assert main(["study", "demo", "--budget_usd", "100"]) == 0

    assert "Take trial " in capsys.readouterr().out.rpartition("study demo: ")[2]
    studies = [run for run in MlflowClient().search_runs(["0"]) if "mlflow.parentRunId" not in tags_of(run)]
    assert len(studies) == 1
