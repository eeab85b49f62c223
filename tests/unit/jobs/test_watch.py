"""Who watches a job, as every machine can read it."""

import socket
import time
from pathlib import Path

import pytest

from paretune.core.clock import SystemClock
from paretune.jobs.watch import ABANDONED_S, Watches, watcher
from paretune.launchers.processes import this_process
from paretune.tracking import Tracking
from tests.processes import wait_until

ELSEWHERE = "host-b/1a2b/42 77 1"


def test_a_lease_is_renewed_in_the_store_until_it_is_given_up(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paretune.jobs.watch.HEARTBEAT_S", 0.01)
    tracking, seconds = Tracking({}, SystemClock()), iter(range(1_000, 10**9))
    run = tracking.create("job")
    watches = Watches(now=lambda: next(seconds))
    run.set_tags(watches.hold(run))
    assert run.tags()["paretune.watched_by"] == this_process()
    wait_until(lambda: int(run.tags()["paretune.watched_at"]) > 1_003, within_s=60, what="it is renewed")

    run.set_tags(watches.release(run.run_id))

    assert (run.tags()["paretune.watched_by"], run.tags()["paretune.watched_at"]) == ("", "")
    later = next(seconds)
    assert next(seconds) == later + 1  # nothing asks for the time any more


@pytest.mark.parametrize(
    ("name", "renewed_s_ago", "words"),
    [
        ("", 0.0, ""),
        (this_process(), 0.0, ""),
        (f"{socket.gethostname()} 4194304 1", 0.0, ""),  # no process has this id
        (ELSEWHERE, 12.0, "a process on host-b (12 s ago)"),
        (ELSEWHERE, ABANDONED_S + 2, ""),
        (ELSEWHERE, -ABANDONED_S - 2, ""),  # its clock cannot be right
        (ELSEWHERE, None, ""),
    ],
    ids=[
        "nobody",
        "this process",
        "a dead process here",
        "elsewhere",
        "elsewhere, long ago",
        "in the future",
        "never renewed",
    ],
)
def test_who_watches_is_known_of_every_machine(name: str, renewed_s_ago: float | None, words: str) -> None:
    now = time.time()
    renewed = {} if renewed_s_ago is None else {"paretune.watched_at": repr(now - renewed_s_ago)}

    assert watcher({"paretune.watched_by": name, **renewed}, now) == words
