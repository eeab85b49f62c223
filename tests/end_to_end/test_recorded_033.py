"""What version 0.3.3 (and its forerunners) have left in folders is opened and gone on with; see tests/recorded.

Only commands are used and what is in the databases: nothing here knows how the program is built.
"""

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest
from packaging.version import Version

import paretune
from paretune.cli.main import main
from tests.conftest import user_s_own
from tests.recorded import unpack

pytestmark = pytest.mark.skipif(
    Version(mlflow.__version__) < Version("3.17"),
    reason="the recorded stores have the tables of MLflow 3.17, which no older version opens: install mlflow 3.17",
)

STUDY = ("study", "--study", "study.yaml")
OF_THE_TEAM = ("--tags", '{"team": "nlp"}', "--budget", "team.yaml", "--user", "ana")
OF_TWO_EPOCHS = ("--launcher", "simulated", "--recorded_runs", "runs.csv", "--num_train_epochs", "2")
JOB = (*OF_TWO_EPOCHS, "--instance_type", "ml.g5.xlarge", "--learning_rate", "1e-5")
CALL_AGAIN = 75
KEPT = ("run_id", "identity", "booked_usd", "spent_usd", "ended")
"""Columns of a booked trial, which nothing changes any more."""


class Place:
    """A recorded folder, made anew; it is the current one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def trials(self) -> dict[int, dict[str, Any]]:
        """Trial to its row in the ledger."""
        rows = self._rows("SELECT * FROM paretune_ledger ORDER BY trial", ".paretune/studies.db")
        return {row["trial"]: row for row in rows}

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Name of a reservation to its row in the accounts of budgets."""
        rows = self._rows("SELECT * FROM paretune_budget_entries", ".paretune/studies.db")
        return {row["job"]: row for row in rows}

    def lease(self) -> dict[str, Any]:
        """The lease of the study."""
        (row,) = self._rows("SELECT * FROM paretune_leases", ".paretune/studies.db")
        return row

    def asked(self) -> set[str]:
        """States of the trials that Optuna knows."""
        return {row["state"] for row in self._rows("SELECT state FROM trials", ".paretune/studies.db")}

    def runs(self) -> dict[str, str]:
        """MLflow run of each job to its status."""
        query = "SELECT run_uuid, status FROM runs JOIN tags USING (run_uuid) WHERE key = 'paretune.launcher'"
        return {row["run_uuid"]: row["status"] for row in self._rows(query, "mlflow.db")}

    def cost_usd(self) -> dict[str, float]:
        """MLflow run of each job that has ended to what it has cost."""
        query = "SELECT run_uuid, value FROM latest_metrics WHERE key = 'cost_usd'"
        reference = self.runs()
        return {row["run_uuid"]: row["value"] for row in self._rows(query, "mlflow.db") if row["run_uuid"] in reference}

    def jobs(self) -> dict[str, bytes]:
        """Name of each simulated job to the file that it is."""
        files = (self._folder / ".paretune" / "simulated" / "jobs").glob("*.json")
        return {path.stem: path.read_bytes() for path in files if not path.stem.endswith(".stop")}

    def answer(self) -> list[dict[str, str]]:
        """The rows of the study's pareto.csv, without drawn names and the model's own numbers."""
        (path,) = (self._folder / "mlruns").rglob("pareto.csv")
        with path.open(newline="") as file:
            return [{name: text for name, text in row.items() if name not in MODELLED} for row in csv.DictReader(file)]

    def _rows(self, query: str, database: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self._folder / database)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]


MODELLED = {"run_id", "f1_low", "f1_high", "cost_usd_low", "cost_usd_high", "collapse_probability"}
SEARCHED = ("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate")
Recorded = Callable[[str], Place]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Makes a recorded folder anew, as that of a user who comes back."""

    def make(name: str) -> Place:
        folder = tmp_path / name
        folder.mkdir()
        unpack(name, folder)
        monkeypatch.chdir(folder)
        workspace = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}", **user_s_own(folder)}
        for variable, text in workspace.items():
            monkeypatch.setenv(variable, text)
        for variable in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "PARETUNE_STORAGE"):
            monkeypatch.delenv(variable, raising=False)
        return Place(folder)

    return make


def ended(trials: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows of a ledger whose trials have ended."""
    return {number: row for number, row in trials.items() if row["ended"] is not None}


def comparable(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of pareto.csv with seven digits, without what depends on when a job is stopped.

    Simulated jobs of 0.3.3 had no start that is not billed, so a stopped one had been billed for other seconds.
    """

    def rounded(text: str) -> str:
        try:
            return f"{float(text):.7g}"
        except ValueError:
            return text

    left_out = {"Stopped": {"spent_usd", "cost_usd"}}
    return [
        {name: rounded(text) for name, text in row.items() if name not in left_out.get(row["status"], {"spent_usd"})}
        for row in rows
    ]


def check_books(workspace: Place, before: dict[int, dict[str, Any]], jobs: dict[str, bytes]) -> None:
    """All reservations are closed; what was booked stays as it was; no trial has a second job."""
    after, costs = workspace.trials(), workspace.cost_usd()
    booked = {row["run_id"]: row["booked_usd"] for row in after.values()}
    assert ended(after) == after
    assert all(after[number][name] == row[name] for number, row in ended(before).items() for name in KEPT)
    assert all(after[number]["run_id"] == row["run_id"] for number, row in before.items() if row["run_id"])
    assert len(booked) == len(after)
    assert booked == pytest.approx({run_id: costs[run_id] for run_id in booked})
    assert max(row["spent_usd"] for row in after.values()) == pytest.approx(sum(booked.values()))

    assert workspace.jobs().items() >= jobs.items()
    of_trials = [name for name in workspace.jobs() if name.split("-")[1] in booked]
    assert sorted(of_trials) == sorted(f"paretune-{run_id}-1" for run_id in booked)
    completed = [row["identity"] for row in after.values() if json.loads(row["ended"])["status"] == "Completed"]
    assert len(set(completed)) == len(completed)
    assert not {"RUNNING", "WAITING"} & workspace.asked()


@pytest.mark.parametrize(
    ("name", "ends_as"), [("interrupted", "finished"), pytest.param("ledger_0", None, marks=pytest.mark.slow)]
)
def test_a_study_whose_driver_was_killed_goes_on_to_its_end(
    name: str, ends_as: str | None, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [] if ends_as is None else recorded(ends_as).answer()
    workspace = recorded(name)
    before, jobs = workspace.trials(), workspace.jobs()
    # Jobs that are launched now are simulated anew, with phases that 0.3.3 did not have.
    jobs_before = {number for number, row in before.items() if f"paretune-{row['run_id']}-1" in jobs}
    assert len(jobs_before) >= 3
    started = before.keys() - ended(before).keys()
    assert len(ended(before)) >= 3
    assert "" in {before[number]["run_id"] for number in started}
    assert len(started) >= 2

    assert main(STUDY) == 0

    output = capsys.readouterr()
    assert all(f"trial {number}: taken over" in output.err for number in started)
    assert "committed 0.00 USD" in output.out
    check_books(workspace, before, jobs)
    rows = {row["trial"]: row for row in comparable(workspace.answer())}
    for row in comparable(expected):
        if int(row["trial"]) in jobs_before:  # ranks depend on the later jobs
            assert rows[row["trial"]] | {"pareto_rank": ""} == row | {"pareto_rank": ""}


@pytest.mark.slow
def test_a_finished_study_keeps_its_answer_and_is_reported(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("finished")
    before, jobs, answer = workspace.trials(), workspace.jobs(), workspace.answer()
    on_front = [row["trial"] for row in answer if row["pareto_rank"] == "0"]
    assert len(set(on_front)) >= 2

    assert main(STUDY) == 0
    check_books(workspace, before, jobs)
    rows = {row["trial"]: row for row in comparable(workspace.answer())}
    assert all(rows[row["trial"]] | {"pareto_rank": ""} == row | {"pareto_rank": ""} for row in comparable(answer))
    # The model of F1 is a newer one: it may recommend another point, and that one is then repeated.
    later = [row for row in workspace.answer() if int(row["trial"]) not in before and row["status"]]
    settings = [{name: row[name] for name in SEARCHED} for row in answer]
    assert all({name: row[name] for name in SEARCHED} in settings for row in later)
    front = {row["run_id"] for row in workspace.trials().values()}
    assert {row["run_id"] for row in paretune.front("recorded").rows()} <= front

    capsys.readouterr()
    assert main(["report", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["run_id"]: row["cost_usd"] for row in rows} == pytest.approx(
        {row["run_id"]: row["booked_usd"] for row in workspace.trials().values()}
    )


@pytest.mark.slow
def test_a_study_whose_round_was_killed_goes_on_in_rounds(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("round")
    before, jobs, token = workspace.trials(), workspace.jobs(), workspace.lease()["token"]
    assert workspace.lease()["holder"]
    assert len(ended(before)) < len(before)

    codes = [main([*STUDY, "--once"])]
    while codes[-1] == CALL_AGAIN and len(codes) < 40:
        codes.append(main([*STUDY, "--once"]))

    assert codes[-1] == 0
    assert "6 trials were made" in capsys.readouterr().out
    assert (workspace.lease()["holder"], workspace.lease()["token"]) == ("", token + len(codes))
    check_books(workspace, before, jobs)


def test_a_study_whose_end_is_noted_is_begun_again_by_other_terms_only(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("rounds_ended")
    before, jobs, noted = workspace.trials(), workspace.jobs(), workspace.lease()["ended"]

    assert main([*STUDY, "--once"]) == 0
    assert "nothing was done" in capsys.readouterr().out
    assert (workspace.trials(), workspace.jobs(), workspace.lease()["ended"]) == (before, jobs, noted)

    assert main([*STUDY, "--once", "--n_trials", "12"]) == CALL_AGAIN
    assert len(workspace.trials()) > len(before)
    assert ended(workspace.trials()) == before


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    """Why a job is refused that no budget covers, which says how much is spent and promised."""
    capsys.readouterr()
    assert main(["main", *JOB, *OF_THE_TEAM, "--max_runtime_minutes", "1200"]) == 4
    return capsys.readouterr().err


def spent_and_promised(accounts: dict[str, dict[str, Any]]) -> str:
    """What a refusal says of them."""
    spent = sum(row["booked_usd"] or 0.0 for row in accounts.values())
    promised = sum(row["worst_usd"] for row in accounts.values() if row["booked_usd"] is None)
    return f"{spent:.4g} are spent and {promised:.4g} promised"


def check_accounts(workspace: Place, before: dict[str, dict[str, Any]]) -> None:
    """What was booked stays as it was, and what is booked is what jobs have cost."""
    after, costs = workspace.accounts(), workspace.cost_usd()
    assert {job: after[job] for job, row in before.items() if row["booked_usd"] is not None} == {
        job: row for job, row in before.items() if row["booked_usd"] is not None
    }
    assert {row["month"] for row in after.values()} == {row["month"] for row in before.values()}
    booked = {row["run_id"]: row["booked_usd"] for row in after.values() if row["booked_usd"] is not None}
    assert booked == pytest.approx({run_id: costs[run_id] for run_id in booked})


@pytest.mark.slow
def test_budgets_of_a_month_count_what_was_booked_and_close_what_was_reserved(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("month")
    before, trials, jobs = workspace.accounts(), workspace.trials(), workspace.jobs()
    (single,) = [job for job, row in before.items() if row["booked_usd"] is None and job == row["run_id"]]
    assert spent_and_promised(before) in refusal(capsys)

    assert main([*STUDY, *OF_THE_TEAM]) == 0
    check_books(workspace, trials, jobs)
    check_accounts(workspace, before)
    assert [job for job, row in workspace.accounts().items() if row["booked_usd"] is None] == [single]

    assert main(["sync"]) == 0
    check_accounts(workspace, before)
    assert " 0 promised" in refusal(capsys)
    assert spent_and_promised(workspace.accounts()) in refusal(capsys)


def test_budgets_of_the_first_version_of_their_tables_go_on(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("month_1")
    before = workspace.accounts()
    (without_run,) = [job for job, row in before.items() if row["run_id"] == ""]
    assert spent_and_promised(before) in refusal(capsys)

    assert main(["sync"]) == 0
    assert workspace.accounts().keys() == before.keys()
    assert [job for job, row in workspace.accounts().items() if row["booked_usd"] is None] == [without_run]
    assert spent_and_promised(workspace.accounts()) in refusal(capsys)


def test_single_jobs_are_adopted_reported_and_learnt_from(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = recorded("jobs")
    jobs, before, costs = workspace.jobs(), workspace.runs(), workspace.cost_usd()
    (killed,) = [run_id for run_id, status in before.items() if status == "RUNNING"]
    assert sorted(before.values()) == ["FAILED", "FINISHED", "FINISHED", "RUNNING"]

    assert main(["sync"]) == 0
    assert workspace.runs() == {**before, killed: "FINISHED"}
    assert workspace.jobs() == jobs
    assert workspace.cost_usd().items() >= {run: usd for run, usd in costs.items() if run != killed}.items()
    assert workspace.cost_usd()[killed] > 0

    capsys.readouterr()
    assert main(["report", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["run_id"] for row in rows} == before.keys()
    assert {row["cost_usd"] for row in rows} == set(workspace.cost_usd().values())
    best = {row["run_id"] for row in paretune.front(rows).rows()}
    assert best == {row["run_id"] for row in rows if row["on_front"]}

    assert main(["estimate", *JOB, "--per_device_train_batch_size", "8"]) == 0
    assert "2 simulated runs of this model on this cluster" in capsys.readouterr().out
