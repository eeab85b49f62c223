"""Tracking servers that are away, slow or talk nonsense; databases that are locked or restarted; full disks."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.conftest import Trial
from tests.faults.proxy import Proxy, standing_before
from tests.faults.worlds import World, Worlds, locked
from tests.stand_ins import postgresql
from tests.study_tables import books_of, write_study
from tests.tracking_server import free_port, tracking_server

pytestmark = pytest.mark.slow

TROUBLES = ("reset", "hang", "slow", "lost", "429", "500", "503", "garbage")


def test_a_tracking_server_in_trouble_costs_no_record(worlds: Worlds, trial: Trial) -> None:
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    with worlds.world("simulated") as world, tracking_server(world.folder, port), standing_before(server) as proxy:
        world.write_script(steps=10)
        world.environment |= {"MLFLOW_TRACKING_URI": proxy.url, "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
        for how in trial.draw.sample(TROUBLES, 3):
            _run_in_trouble(world, proxy, trial, how)
        world.recover()
        trial.check(world)


def _run_in_trouble(world: World, proxy: Proxy, trial: Trial, how: str) -> None:
    """A job during which the server is in trouble for some seconds, from any moment on."""
    command = world.begin(pace=10.0)
    begins = trial.draw.uniform(0.0, 1.5)
    command.has_ended_within(begins)
    proxy.disturb(how)
    command.has_ended_within(trial.draw.uniform(0.5, 8.0))
    proxy.calm()
    assert command.wait() in (0, 2, 3), command.text


def test_a_store_that_another_process_locks_costs_no_record(worlds: Worlds, trial: Trial) -> None:
    with worlds.world("simulated") as world:
        for _ in range(2):
            command = world.begin(pace=4.0)
            command.has_ended_within(trial.draw.uniform(0.0, 0.6))
            with locked(world.folder / "mlflow.db"):
                command.has_ended_within(trial.draw.uniform(1.0, 9.0))
            assert command.wait() in (0, 2), command.text
        world.recover()
        trial.check(world)


def test_a_ledger_that_is_restarted_loses_and_doubles_no_trial(worlds: Worlds, trial: Trial) -> None:
    missing = postgresql.what_is_missing()
    if missing:
        pytest.skip(missing)

    with worlds.world("simulated") as world, postgresql.cluster() as server:
        world.attempts = 10  # some find no capacity, or run out of memory
        path = write_study(world.folder, name="restarted", budget_usd=9.0, n_parallel=2)
        words = ["paretune", "study", "--study", "study.yaml", "--storage", server.address]
        study = world.begin_words(words)
        study.has_ended_within(trial.draw.uniform(0.5, 4.0))
        server.restart()
        study.wait()
        again = world.begin_words(words)
        assert again.wait() == 0, again.text
        running, _, balance = books_of(path, server.address)
        assert running == []
        assert balance.committed_usd == 0
        assert balance.spent_usd <= 9.0
        world.recover()
        trial.check(world)


@pytest.mark.parametrize("name", ["simulated", "sagemaker"])
def test_a_full_disk_of_the_launching_machine_costs_no_record(name: str, worlds: Worlds, trial: Trial) -> None:
    with worlds.world(name, disk_mib=48) as world:
        world.may_fail = True
        command = world.begin()
        command.has_ended_within(trial.draw.uniform(0.0, 1.0 if name == "simulated" else 8.0))
        filler = world.folder / "filler"
        _fill(filler)
        command.has_ended_within(3.0)
        filler.unlink()
        command.wait()
        world.recover()
        trial.check(world)


def _fill(path: Path) -> None:
    """Take all that is left of the disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0" * 4096)
