"""A study in rounds: each one does what can be done now and ends; no process waits for jobs in between.

What a round has to know of those before it stands in the storages: trials, dollars, attempts and refusals in the
ledger, suggestions in Optuna's storage, pauses and early stops in the tags of runs, and in the row of the lease whether
the search has ended, or the whole study. A study that has ended with the same terms is not begun again by the next
call of a scheduler; with another budget or number of trials it goes on. The end of a study for which a budget that it
shares with others has no dollars left is not written down: the next round looks whether there are some.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from paretune.core.errors import CallAgain, LostContact
from paretune.launchers.processes import this_process
from paretune.ledger.study_ledger import StudyLedger
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.drivers import drivers_at_work
from paretune.studies.search.parent_run import without_payer

SEARCHED, FINISHED = "searched", "finished"
"""Stages of a study whose ends are written down: the search for its points, and everything."""
_NO_TERMS = {"n_parallel", "storage"}
"""Keys of a study that may change without anything more to be searched."""


@contextmanager
def in_turn(ledger: StudyLedger, now: Callable[[], float], holder: str = "") -> Iterator[None]:
    """Hold the lease of the study inside the block. `holder` is this process by default.

    Raises:
        CallAgain: another round works on the study, or a driver that stays until its end; nothing was done.
    """
    if others := drivers_at_work(ledger, now()):
        named = " and ".join(sorted(others))
        raise CallAgain(f"{named} works on the study until its end, so this round has nothing to do: call again")
    if other := ledger.lease.take(holder or this_process()):
        raise CallAgain(f"another round works on the study ({other}): call again")
    try:
        yield
    finally:
        with suppress(LostContact):
            ledger.lease.release()


def note_end(ledger: StudyLedger, file: StudyFile, stage: str, reason: str) -> None:
    """Write down that a stage of the study has ended, and why."""
    ledger.lease.record_end(json.dumps({"stage": stage, "reason": reason, "terms": _terms(file)}))


def noted_end(ledger: StudyLedger, file: StudyFile) -> tuple[str, str]:
    """The last stage of the study that has ended with the same terms, and why; both empty where none has."""
    noted = json.loads(ledger.lease.recorded_end() or "{}")
    return (noted["stage"], noted["reason"]) if noted.get("terms") == _terms(file) else ("", "")


def _terms(file: StudyFile) -> dict[str, str]:
    file = replace(file, job=without_payer(file.job))
    return {name: text for name, text in file.as_text().items() if name not in _NO_TERMS}
