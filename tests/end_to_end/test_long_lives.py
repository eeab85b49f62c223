"""Studies that live long, in short: rounds of several hosts that are killed, and many drivers at once."""

import argparse
import os
from pathlib import Path
from types import ModuleType

import pytest

from tests.end_to_end.cloud import REPOSITORY
from tests.stand_ins import postgresql

pytestmark = pytest.mark.slow
DRIVERS = 8


@pytest.fixture
def long_lives(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> ModuleType:
    """The benchmark, in the folder of the test."""
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    monkeypatch.setenv("PARETUNE_HOME", str(workplace / ".paretune"))
    import long_lives

    return long_lives


def check(result: dict[str, float]) -> None:
    """Each trial has one job, one run and one bill, and all of them are booked."""
    assert result["billed_usd"] > 0
    assert result["ledger_usd"] == pytest.approx(result["billed_usd"])
    assert result["mlflow_usd"] == pytest.approx(result["billed_usd"])
    assert result["trials"] == result["jobs"] == result["runs"]
    for name in ("committed_usd", "not_booked", "jobs_twice", "jobs_without_a_trial"):
        assert result[name] == 0, name


def test_rounds_of_four_hosts_a_third_of_them_killed_lose_and_double_nothing(
    long_lives: ModuleType, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = argparse.Namespace(rounds=24, minutes=120.0, seed=int(os.environ.get("PARETUNE_KILL_SEED", "5")))
    result = long_lives.rounds(namespace, workplace)
    check(result)
    assert result["heartbeats_left"] == 0
    assert "'killed': " in capsys.readouterr().out


def test_eight_drivers_on_one_postgresql_study_run_no_job_twice(long_lives: ModuleType, workplace: Path) -> None:
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as address:
        result = long_lives.drivers(argparse.Namespace(drivers=DRIVERS, trials=12, storage=address), workplace)
    check(result)
    assert result["failed"] == 0
    assert result["trials"] >= 12
