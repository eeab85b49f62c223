"""Whether a process that somebody names runs."""

import os
import socket

import psutil

from paretune.launchers.processes import is_alive, is_watched, this_process

STARTED = f"{psutil.Process().create_time():.0f}"


def test_a_process_is_known_by_host_id_and_start() -> None:
    host = socket.gethostname()

    assert is_alive(this_process()) is True
    assert is_alive(f"{host} 4194304 {STARTED}") is False  # no process has this id
    assert is_alive(f"{host} {os.getpid()} 1") is False  # another process had this id
    assert is_alive(f"elsewhere {os.getpid()} {STARTED}") is None
    assert is_alive("") is None
    assert not is_watched(this_process())
