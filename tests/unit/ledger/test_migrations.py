"""Ledgers that earlier versions have written are opened, migrated and gone on with; those of later ones are refused."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import create_engine, inspect, text

from paretune.cli.main import main
from paretune.core.errors import BadInput
from paretune.ledger.ledger import STUDY_METADATA
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialStatus
from paretune.pricing.budget import Balance
from paretune.storage.database import with_driver
from tests.stand_ins import postgresql
from tests.study_tables import entries_of, write_study

NAME = "begun before"
BEFORE = Balance(spent_usd=5.787914912955619, committed_usd=3.667086111111111)
DUMP = (Path(__file__).parent / "begun_before_versions.sql").read_text()
NOISE = {"failure_rate": 0.1, "capacity_error_rate": 0.1, "f1_noise": 0.002}


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty storage."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'studies.db'}"
        return
    missing = postgresql.what_is_missing()
    if missing:
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def write_old_ledger(storage: str) -> None:
    """The ledger's part of the dump."""
    statements = [line for line in DUMP.split(";\n") if "paretune_" in line]
    engine = create_engine(with_driver(storage))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%") if "postgresql" in storage else statement)
    engine.dispose()


def columns(storage: str) -> dict[str, set[str]]:
    """Table of the ledger to the names of its columns and indices."""
    engine = create_engine(with_driver(storage))
    result = inspect(engine)
    names = {
        table: {column["name"] for column in result.get_columns(table)}
        | {str(index["name"]) for index in result.get_indexes(table)}
        for table in result.get_table_names()
        if table.startswith("paretune_")
    }
    engine.dispose()
    return names


def expected_columns() -> dict[str, set[str]]:
    tables = {
        table.name: {column.name for column in table.columns} | {str(index.name) for index in table.indexes}
        for table in STUDY_METADATA.sorted_tables
    }
    return tables | {StudyLedger._version_table: {"version_num"}}


def test_a_new_storage_gets_the_tables_that_the_ledger_reads(storage: str) -> None:
    StudyLedger(storage, NAME).close()
    assert columns(storage) == expected_columns()


def test_an_old_ledger_is_migrated_and_keeps_its_rows(storage: str) -> None:
    write_old_ledger(storage)
    ledger = StudyLedger(storage, NAME)

    assert columns(storage) == expected_columns()
    assert ledger.balance() == BEFORE
    entries = ledger.booked(0)
    assert [entry.booking_order for entry in entries] == list(range(1, 16))
    assert [entry.trial for entry in entries if entry.end and entry.end.retryable] == [3, 4, 5]
    assert {entry.end.status for entry in entries if entry.end} == set(TrialStatus)
    assert entries[0].note.point["instance_type"] == "ml.g5.xlarge"
    ledger.close()


@pytest.mark.parametrize("is_old", [False, True])
def test_drivers_that_open_a_storage_at_the_same_moment_migrate_it_once(storage: str, is_old: bool) -> None:
    if is_old:
        write_old_ledger(storage)
    together, failures = threading.Barrier(6), []

    def open_ledger() -> None:
        together.wait(60)
        try:
            StudyLedger(storage, NAME).close()
        except Exception as error:
            failures.append(error)

    drivers = [threading.Thread(target=open_ledger) for _ in range(6)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert failures == []
    assert columns(storage) == expected_columns()


def test_tables_of_a_newer_version_are_refused_with_the_next_step(storage: str) -> None:
    StudyLedger(storage, NAME).close()
    engine = create_engine(with_driver(storage))
    with engine.begin() as connection:
        connection.execute(text("update paretune_schema set version_num = '99'"))
    engine.dispose()
    with pytest.raises(BadInput, match=r"written by a newer paretune .*version of its tables: 99.*update paretune"):
        StudyLedger(storage, NAME)


@pytest.mark.slow
def test_a_study_begun_by_an_earlier_version_goes_on_with_its_dollars(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / ".paretune").mkdir()
    database = workplace / ".paretune" / "studies.db"
    with sqlite3.connect(database) as connection:
        connection.executescript(_with_runs(DUMP))
    connection.close()
    job = {"launcher": "simulated", "recorded_runs": "runs.csv", "num_train_epochs": 2, "max_runtime_minutes": 60}
    write_study(workplace, name=NAME, job={**job, "simulation": NOISE}, budget_usd=20.0, n_trials=30, seed=2)

    assert main(["study", "--study", "study.yaml"]) == 0
    output = capsys.readouterr()
    assert "trial 16: taken over" in output.err
    assert "trial 18: taken over" in output.err
    ledger = StudyLedger(f"sqlite:///{database}", NAME)
    entries, balance = entries_of(ledger), ledger.balance()
    ledger.close()
    assert len(entries) > 17
    assert balance.committed_usd == 0
    assert BEFORE.spent_usd < balance.spent_usd <= 20.0
    assert balance.spent_usd == pytest.approx(sum(entry.booked_usd or 0.0 for entry in entries))
    assert sum(entry.booked_usd or 0.0 for entry in entries if (entry.booking_order or 99) <= 15) == pytest.approx(
        BEFORE.spent_usd
    )


def _with_runs(dump: str) -> str:
    """The dump with runs of this MLflow store in the place of those it names."""
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(dump)
        rows = connection.execute("select run_id from paretune_ledger union select run_id from paretune_studies")
        reference = [run_id for (run_id,) in rows]
    connection.close()
    client = MlflowClient()
    for run_id in reference:
        dump = dump.replace(run_id, client.create_run("0").info.run_id)
    return dump
