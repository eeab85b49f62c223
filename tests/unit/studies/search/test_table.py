"""The trials of a study in Optuna's storage: asked for, reserved, recorded, completed and found again."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from paretune.core.errors import BadInput, LostContact
from paretune.ledger.lock import StudyLock
from paretune.pricing import Balance
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range
from paretune.studies.results.trials import Trial
from paretune.studies.search.table import StudyTable
from paretune.studies.trial_status import TrialStatus

OPENED: list[StudyTable] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def storage(empty_storage: Path, tmp_path: Path) -> str:
    shutil.copy(empty_storage, tmp_path / "study.db")
    return f"sqlite:///{tmp_path / 'study.db'}"


def study(storage: str, lock: StudyLock | None = None, **terms: Any) -> StudyTable:
    standard: dict[str, Any] = {
        "name": "one",
        "search": {
            "instance_count": Choices(values=(1, 2)),
            "learning_rate": Range(low=1e-5, high=1e-3, log=True),
        },
        "job": {"instance_type": "ml.g5.xlarge"},
        "budget_usd": 10.0,
        "sampler": "tpe",
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
    }
    OPENED.append(StudyTable(StudyFile(**{**standard, **terms}), storage, lock))
    return OPENED[-1]


def trial(made: StudyTable, number: int) -> optuna.trial.FrozenTrial:
    return made.study.get_trials()[number]


def ask(made: StudyTable) -> tuple[int, Mapping[str, Any]]:
    """Return the number and the point of the next trial."""
    return made.ask({}, {}, lambda point: True)


def begun(made: StudyTable, number: int, point: Mapping[str, Any] | None = None, **more: Any) -> Trial:
    """Return a trial that is reserved, with its run."""
    point = point or {"instance_count": 1, "learning_rate": 1e-4}
    given = {name: str(value) for name, value in {**point, **more.get("changes", {})}.items()}
    given["instance_type"] = "ml.g5.xlarge"
    first = Trial(number=number, run_id="", point=point, given=given, status=TrialStatus.RUNNING)
    made.save(replace(first, **{"worst_usd": 3.0, "run_id": f"run{number}", **more}))
    return next(trial for trial in made.trials()[0] if trial.number == number)


def ended(made: StudyTable, running: Trial, status: TrialStatus = TrialStatus.COMPLETED, **more: Any) -> None:
    """Record the end of a trial, in our record and in Optuna."""
    measured = {"cost_usd": 1.0, "f1": 0.9, "billable_seconds": 60.0} if status is TrialStatus.COMPLETED else {}
    made.save(replace(running, **{"status": status, "measured": measured, "cost_usd": 1.0, **more}))
    made.tell(next(each for each in made.trials()[1] if each.number == running.number))


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random", "grid"])
def test_every_sampler_suggests_a_point_of_the_search(storage: str, sampler: str) -> None:
    search = {"instance_count": Choices(values=(1, 2)), "learning_rate": Choices(values=(1e-5, 1e-4))}
    number, point = ask(study(storage, sampler=sampler, search=search))
    assert number == 0
    assert point["instance_count"] in (1, 2)
    assert point["learning_rate"] in (1e-5, 1e-4)


def test_a_point_that_is_asked_for_is_given_to_who_asked_and_to_nobody_else(storage: str) -> None:
    item, other = study(storage), study(storage)
    first, second = {"instance_count": 1, "learning_rate": 1e-4}, {"instance_count": 2, "learning_rate": 5e-4}
    assert item.ask(first, {}) == (0, first)
    assert ask(other)[1] != first
    assert other.ask(second, {}) == (2, second)
    assert [trial(item, number).params for number in (0, 2)] == [first, second]


def test_the_state_that_optuna_got_first_stands_and_a_cost_recorded_after_it_is_not_lost(storage: str) -> None:
    made = study(storage)
    running = begun(made, ask(made)[0])
    made.study.tell(0, state=optuna.trial.TrialState.FAIL)  # in the dashboard, while its job runs
    made.look_again()
    assert [each.number for each in study(storage).trials()[0]] == [0]
    assert made.reported() == {0}
    ended(made, running, TrialStatus.STOPPED, reason="ended", cost_usd=2.0)
    (read,) = study(storage).trials()[1]
    assert (read.status, read.cost_usd, read.reason) == (TrialStatus.STOPPED, 2.0, "ended")
    assert trial(made, 0).state.name == "FAIL"
    assert made.balance() == Balance(spent_usd=2.0, committed_usd=0.0)


def test_a_trial_that_cost_nothing_is_charged_nothing(storage: str) -> None:
    made = study(storage)
    ended(made, begun(made, ask(made)[0]), TrialStatus.STOPPED, cost_usd=0.0)
    ended(made, begun(made, ask(made)[0]), TrialStatus.STOPPED, cost_usd=None)
    assert made.balance() == Balance(spent_usd=0.0, committed_usd=0.0)


def test_a_driver_whose_lock_is_broken_writes_nothing(storage: str) -> None:
    class Broken(StudyLock):
        def check(self) -> None:
            raise LostContact("the connection that locks the study is broken")

    made = study(storage)
    running = begun(made, ask(made)[0])
    lost = study(storage, lock=Broken())
    for write in (lambda: ask(lost), lambda: lost.save(replace(running, cost_usd=1.0)), lambda: lost.drop(0)):
        with pytest.raises(LostContact):
            write()
    made.look_again()
    assert made.trials() == ([running], [])
    assert made.reported() == set()


def test_a_trial_is_read_as_it_was_written_before_and_after_its_end(storage: str) -> None:
    made = study(storage)
    changes = {"probe_steps": 40}
    running = begun(made, made.ask({"instance_count": 1, "learning_rate": 1e-4}, changes)[0], changes=changes)
    assert (running.run_id, running.worst_usd, running.is_probe) == ("run0", 3.0, True)
    assert made.balance() == Balance(spent_usd=0.0, committed_usd=3.0)
    end: dict[str, Any] = {"reason": "no capacity", "ended_at": 5.0, "running_when_refused": 1}
    end |= {"cost_usd": 0.5, "kept_usd": 2.0, "billed_s": 9.0, "verdicts": ("its loss did not fall",)}
    ended(made, running, TrialStatus.REFUSED, **end)
    (read,) = study(storage).trials()[1]
    assert read == replace(running, status=TrialStatus.REFUSED, **end)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (TrialStatus.OUT_OF_MEMORY, "out_of_memory"),
        (TrialStatus.CUT_OFF, "cut_off"),
        (TrialStatus.FAILED, "failed"),
        (TrialStatus.INTERRUPTED, "interrupted"),
    ],
)
def test_a_job_that_failed_says_why_and_what_was_billed(storage: str, status: TrialStatus, outcome: str) -> None:
    made = study(storage)
    ended(made, begun(made, ask(made)[0]), status, billed_s=90.0, reason="it broke")
    attributes = trial(made, 0).user_attrs
    assert (trial(made, 0).state.name, attributes["outcome"], attributes["seconds"]) == ("FAIL", outcome, 90.0)


@pytest.mark.parametrize(
    ("metric", "direction", "baseline"), [("f1", "maximize", 0.35), ("eval_loss", "minimize", None)]
)
def test_the_f1_of_the_most_frequent_class_is_no_baseline_of_a_loss(
    storage: str, metric: str, direction: str, baseline: float | None
) -> None:
    made = study(storage, sampler="split", objectives={"cost_usd": "minimize", metric: direction})
    measured = {"cost_usd": 1.0, "f1": 0.9, "eval_loss": 0.4, "baseline_f1_majority": 0.35, "billable_seconds": 60.0}
    ended(made, begun(made, ask(made)[0]), measured=measured)
    assert trial(made, 0).user_attrs.get("baseline") == baseline


def described(**parts: dict[str, object]) -> str:
    return json.dumps({f"{part} {name}": value for part, entries in parts.items() for name, value in entries.items()})


def test_a_study_goes_on_with_its_search_and_its_objectives_in_another_order(storage: str) -> None:
    search = {"learning_rate": {"low": 1, "high": 2}, "seed": {"choices": [1, 2]}}
    objectives = {"cost_usd": "minimize", "f1": "maximize"}
    mark = study(storage).open(described(search=search, objectives=objectives), {})

    objectives, search = dict(reversed(objectives.items())), dict(reversed(search.items()))
    made = study(storage, objectives=objectives)
    assert made.open(described(search=search, objectives=objectives), {}) == mark
    ended(made, begun(made, ask(made)[0]))
    assert trial(made, 0).values == [1.0, 0.9]  # dollars, then F1: in the order of the first call


def test_another_search_under_the_same_name_is_refused_with_the_difference(storage: str) -> None:
    made = study(storage)
    job = {f"parameter_{number:02d}": "x" * 600 for number in range(12)}
    made.open(described(job={**job, "seed": 1}, search={"learning_rate": {"low": 1, "high": 2}}), {})
    with pytest.raises(BadInput, match="study one was started with a different search space") as caught:
        made.open(
            described(job={**job, "tags": {"team": "search"}}, search={"learning_rate": {"low": 1, "high": 3}}), {}
        )
    expected = 'job seed: 1 then, none now; job tags: none then, {"team": "search"} now; search learning_rate: '
    assert str(caught.value).endswith(f'({expected}{{"low": 1, "high": 2}} then, {{"low": 1, "high": 3}} now)')

    with pytest.raises(BadInput) as caught:
        made.open(described(job=dict.fromkeys(job, "y")), {})
    assert len(str(caught.value)) < 4000


def test_a_storage_that_goes_away_says_that_the_same_command_goes_on(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(storage)

    def crash(*_: object) -> None:
        raise optuna.exceptions.StorageInternalError("server closed the connection")

    monkeypatch.setattr(made.study, "ask", crash)
    with pytest.raises(LostContact, match="the same command continues the study"), made.reachable():
        ask(made)
