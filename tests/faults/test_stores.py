"""Tracking servers that are unavailable, slow or return nonsense; locked or restarted databases; full disks."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests.support.faults.proxy import TROUBLES, Proxy
from tests.support.faults.worlds import Trial, World
from tests.support.processes import free_port, tracking_server, wait_until
from tests.support.stand_ins import postgresql
from tests.support.study_tables import records_of, write_study

pytestmark = pytest.mark.slow


@contextmanager
def behind_a_proxy(trial: Trial) -> Iterator[tuple[World, Proxy]]:
    """Yield a user of a tracking server behind a proxy; after the block, the user accesses its store directly."""
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    with trial.world("simulated") as world, tracking_server(world.folder, port), Proxy(server) as proxy:
        store = world.environment["MLFLOW_TRACKING_URI"]
        world.environment["MLFLOW_TRACKING_URI"] = proxy.url
        yield world, proxy
        world.recover()
        world.environment["MLFLOW_TRACKING_URI"] = store


def test_a_tracking_server_in_trouble_costs_no_record(trial: Trial) -> None:
    with behind_a_proxy(trial) as (world, proxy):
        world.environment["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "3"
        for how in trial.draw.sample(TROUBLES, 3):  # for some seconds, starting at any moment
            command = world.begin(pace=10.0)
            command.has_ended_within(trial.draw.uniform(0.0, 1.5))
            proxy.disturb(how)
            command.has_ended_within(trial.draw.uniform(0.5, 8.0))
            proxy.calm()
            assert command.wait() in (0, 2, 3), command.text
            trial.count_fault(f"{how} of MLflow", took_effect=proxy.disturbed > 0)


@pytest.mark.parametrize("how", ["401", "404"])
def test_a_tracking_server_that_refuses_everything_in_the_middle_of_a_job_costs_no_record(
    trial: Trial, how: str
) -> None:
    with behind_a_proxy(trial) as (world, proxy):
        command = world.begin(pace=10.0)
        wait_until(lambda: world.created() or command.code is not None, within_s=300, what="the job is created")
        proxy.disturb(how)
        command.has_ended_within(4.0)
        proxy.calm()
        assert command.wait() in (0, 3), command.text
        assert "Traceback" not in command.text
        trial.count_fault(f"{how} of MLflow after the job was created", took_effect=proxy.disturbed > 0)


def test_no_job_is_created_whose_name_mlflow_has_not_taken(trial: Trial) -> None:
    with behind_a_proxy(trial) as (world, proxy):
        proxy.disturb("503", lambda path: path.endswith(("log-batch", "set-tag")))
        refused = world.begin()
        assert refused.wait() == 2, refused.text
        assert world.created() == []
        proxy.calm()
        trial.count_fault("MLflow that takes no name", took_effect=proxy.disturbed > 0)
        command = world.begin()
        assert command.wait() == 0, command.text


def test_a_store_that_another_process_locks_costs_no_record(trial: Trial) -> None:
    with trial.world("simulated") as world:
        for _ in range(2):
            command = world.begin(pace=4.0)
            command.has_ended_within(trial.draw.uniform(0.0, 0.6))
            path = world.folder / "mlflow.db"
            with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                command.has_ended_within(trial.draw.uniform(1.0, 9.0))
                connection.execute("ROLLBACK")
            assert command.wait() in (0, 2), command.text
            trial.count_fault("a locked store")


def test_a_ledger_that_is_restarted_loses_and_doubles_no_trial(trial: Trial) -> None:
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)

    with trial.world("simulated") as world, postgresql.cluster() as server:
        world.attempts = 10  # some find no capacity, or run out of memory
        path = write_study(world.folder, name="restarted", budget_usd=9.0, n_parallel=2)
        words = ["paretune", "study", "--study", "study.yaml", "--storage", server.address]
        study = world.begin_words(words)
        study.has_ended_within(trial.draw.uniform(0.5, 4.0))
        server.restart()
        study.wait()
        trial.count_fault("a restarted ledger")
        again = world.begin_words(words)
        assert again.wait() == 0, again.text
        running, _, balance = records_of(path, server.address)
        assert running == []
        assert balance.committed_usd == 0
        assert balance.spent_usd <= 9.0


@pytest.mark.parametrize("name", ["simulated", "sagemaker"])
def test_a_full_disk_of_the_launching_machine_costs_no_record(name: str, trial: Trial) -> None:
    with trial.world(name, disk_mib=48) as world:
        world.may_fail = True
        command = world.begin()
        command.has_ended_within(trial.draw.uniform(0.0, 1.0 if name == "simulated" else 8.0))
        filler = world.folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"0" * 4096)
        command.has_ended_within(3.0)
        filler.unlink()
        command.wait()
        trial.count_fault("a full disk")


def test_a_job_whose_disk_is_full_fails_with_that_reason_and_is_recorded(trial: Trial) -> None:
    with trial.world("local") as world:
        world.write_script(steps=3, ending="open('/dev/full', 'w').write('x' * 10_000)")
        done = world.begin(world.open_run())
        assert done.wait() == 3
        assert "No space left on device" in done.text
        trial.count_fault("a full disk of a job")
