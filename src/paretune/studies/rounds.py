"""A study in rounds: each one does what can be done now and ends; no process waits for jobs in between.

A round reads what earlier ones have left in the storages: trials, dollars, attempts and refusals in the ledger,
suggestions in Optuna's storage, pauses and early stops in the tags of runs, and in the row of the lease whether the
search or the whole study has ended. A study that has ended with the same terms is not begun again by the next call of a
scheduler; with another budget or number of trials it goes on. If a study ends for lack of dollars in a shared budget,
its end is not recorded: the next round tries again.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from paretune.core.errors import CallAgain, LostContact
from paretune.launchers.processes import this_process
from paretune.ledger.study_ledger import StudyLedger
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.driver import drivers_at_work
from paretune.studies.search.parent_run import without_payer

SEARCHED, FINISHED = "searched", "finished"
"""Stages of a study whose ends are recorded: the search for its points, and the whole study."""
_NO_TERMS = {"n_parallel", "storage"}  # keys of a study whose change leaves nothing more to be searched


@contextmanager
def hold_lease(ledger: StudyLedger, now: Callable[[], float], holder: str = "") -> Iterator[None]:
    """Hold the lease of the study inside the block. `holder` is this process by default.

    Raises:
        CallAgain: another round works on the study, or a driver that stays until its end; nothing was done.
    """
    if others := drivers_at_work(ledger, now()):
        names = " and ".join(sorted(others))
        raise CallAgain(f"{names} works on the study until its end, so this round has nothing to do: call again")
    if other := ledger.lease.take(holder or this_process()):
        raise CallAgain(f"another round works on the study ({other}): call again")
    try:
        yield
    finally:
        with suppress(LostContact):
            ledger.lease.release()


def record_end(ledger: StudyLedger, file: StudyFile, stage: str, reason: str) -> None:
    """Record that a stage of the study has ended, and why."""
    ledger.lease.record_end(json.dumps({"stage": stage, "reason": reason, "terms": _terms(file)}))


def recorded_end(ledger: StudyLedger, file: StudyFile) -> tuple[str, str]:
    """The last stage of the study that has ended with the same terms, and why; both empty if none has."""
    end = json.loads(ledger.lease.recorded_end() or "{}")
    return (end["stage"], end["reason"]) if end.get("terms") == _terms(file) else ("", "")


def _terms(file: StudyFile) -> dict[str, str]:
    file = replace(file, job=without_payer(file.job))
    return {name: text for name, text in file.as_text().items() if name not in _NO_TERMS}
