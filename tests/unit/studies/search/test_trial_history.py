"""The history of a study, read from a ledger whose trials never ran."""

import gc
import random
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialNote, TrialStatus
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Range
from paretune.studies.results.front import trials_on_front
from paretune.studies.search.trial_history import TrialHistory
from tests.study_examples import COST_AND_F1

FILE = StudyFile(
    name="one",
    job={},
    search={"learning_rate": Range(low=1e-5, high=1e-4)},
    objectives=COST_AND_F1,
    constraints={"f1": {"min": 0.3}},
    n_trials=10_000,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[StudyLedger]:
    opened = StudyLedger(f"sqlite:///{tmp_path / 'study.db'}", FILE.name)
    yield opened
    opened.close()


def book(ledger: StudyLedger, trial: int, draw: random.Random, *, kept_usd: float | None = None) -> None:
    """A trial at a learning rate of its own with what jobs measure; every ninth has failed."""
    rate, cost = draw.uniform(1e-5, 1e-4), draw.uniform(1.0, 9.0)
    spec = JobSpec.read({"learning_rate": str(rate), "instance_type": "ml.g5.xlarge"})
    note = TrialNote(point={"learning_rate": rate})
    terms = {"worst_usd": 10.0, "budget_usd": None, "identity": spec.spec_hash()}
    ledger.reserve(trial, spec.as_text(), note, **terms)  # type: ignore[arg-type]  # each has its type
    ledger.set_run_id(trial, f"{trial:032x}")
    measured = {"f1": draw.random(), "cost_usd": cost, "job_seconds": draw.random(), "train_seconds": draw.random()}
    status = TrialStatus.FAILED if trial % 9 == 4 else TrialStatus.COMPLETED
    trial_end = TrialEnd(
        status=status,
        metrics=measured if status is TrialStatus.COMPLETED else {},
        cost_usd=cost,
        kept_usd=kept_usd,
    )
    ledger.book(trial, trial_end, settled=status is TrialStatus.COMPLETED)


def test_the_front_follows_the_trials_as_they_are_booked(ledger: StudyLedger) -> None:
    draw, history = random.Random(3), TrialHistory(FILE, ledger, "simulated")
    for trial in range(60):
        book(ledger, trial, draw, kept_usd=0.5 if trial == 20 else None)
        if trial in (20, 40, 55):
            ledger.book_kept(20, 0.25)
        if trial % 7 == 0 or trial == 59:
            history.refresh()
            whole = trials_on_front(history.trials.values(), FILE.objectives, FILE.constraints)
            assert history.front == whole

    assert len(history.front) > 2


def bytes_of(history: TrialHistory) -> int:
    """Of all that the history holds, each thing once; without its ledger, its file, and what is a part of a program."""
    waiting = [value for name, value in vars(history).items() if name not in {"_ledger", "_file"}]
    seen: dict[int, Any] = {}
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen and not isinstance(thing, type | Enum | ModuleType | FunctionType):
            seen[id(thing)] = thing
            waiting += gc.get_referents(thing)
    return sum(map(sys.getsizeof, seen.values()))
