"""Whether a process that somebody names runs: here, in another container, or as an earlier version names it."""

import os
import socket
from pathlib import Path

import psutil
import pytest

from paretune.launchers import processes
from paretune.launchers.processes import Process, is_alive, is_watched, this_process

STARTED = f"{Process.of(os.getpid()).created:.0f}"
NOBODY = 4194304  # no process has this id


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on as a process with the same host name in a PID namespace of its own."""
    (tmp_path / "namespace").touch()
    monkeypatch.setattr(processes, "_NAMESPACE", tmp_path / "namespace")


@pytest.fixture
def outside() -> str:
    """Name of this process, as it has it outside of the container."""
    return this_process()


def test_a_process_knows_itself_also_by_a_name_without_a_namespace() -> None:
    host = socket.gethostname()

    assert is_alive(this_process()) is True
    assert is_alive(f"{host} {os.getpid()} {STARTED}") is True
    assert is_alive(f"{host} {NOBODY} {STARTED}") is False
    assert is_alive(f"{host} {os.getpid()} 1") is False  # another process had this id
    assert is_alive(f"elsewhere {os.getpid()} {STARTED}") is None
    assert is_alive("") is None
    assert not is_watched(this_process())


def test_whether_a_process_of_another_container_with_this_host_name_runs_is_not_known(
    outside: str, container: None
) -> None:
    dead = outside.replace(f" {os.getpid()} ", f" {NOBODY} ")

    assert this_process() != outside
    assert is_alive(this_process()) is True
    assert (is_alive(outside), is_alive(dead)) == (None, None)
    assert not is_watched(outside)


def test_a_process_from_before_the_machine_was_started_again_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_HOST_NAMESPACE", str(processes._NAMESPACE.stat().st_ino))
    booted = psutil.boot_time()
    before, after = (
        f"{socket.gethostname()}/00000000/{processes._HOST_NAMESPACE} {os.getpid()} {booted + seconds:.0f}"
        for seconds in (-3600, 3600)
    )

    assert is_alive(before) is False
    assert is_alive(after) is None  # then this machine ran already: it is another one of the same name


def test_a_system_that_tells_no_namespace_names_its_processes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_NAMESPACE", Path("/none"))

    assert this_process() == f"{socket.gethostname()} {os.getpid()} {STARTED}"
    assert is_alive(this_process()) is True
