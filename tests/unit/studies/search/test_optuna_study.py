"""The door to Optuna: trials that are asked for, told about and found again, in a storage of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from paretune.core.errors import BadInput, LostContact
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote, TrialStatus
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range
from paretune.studies.search.optuna_study import OptunaStudy

STEPS = "gradient_accumulation_steps"
OPENED: list[OptunaStudy] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def study(storage: str, **terms: Any) -> OptunaStudy:
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
    OPENED.append(OptunaStudy(StudyFile(**{**standard, **terms}), storage))
    return OPENED[-1]


def trial(made: OptunaStudy, number: int) -> optuna.trial.FrozenTrial:
    return made.trials.get_trials()[number]


def ask(made: OptunaStudy) -> tuple[int, Mapping[str, Any]]:
    """Number and point of the next trial."""
    return made.ask(lambda point: True, {})


def tell(made: OptunaStudy, number: int, **values: float) -> None:
    """Tell how a completed job has ended."""
    made.report_outcome(entry(number, end=TrialEnd(status=TrialStatus.COMPLETED, metrics=values)), HISTORY)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random", "grid"])
def test_every_sampler_suggests_a_point_of_the_search(storage: str, sampler: str) -> None:
    search = {"instance_count": Choices(values=(1, 2)), "learning_rate": Choices(values=(1e-5, 1e-4))}
    number, point = ask(study(storage, sampler=sampler, search=search))
    assert number == 0
    assert point["instance_count"] in (1, 2)
    assert point["learning_rate"] in (1e-5, 1e-4)


def test_a_point_that_is_not_accepted_is_replaced_by_another_one(storage: str) -> None:
    made = study(storage)
    tried: list[Any] = []
    _, point = made.ask(lambda point: bool(tried.append(point)) or len(tried) == 3, {})
    assert point == tried[-1]
    least = {"instance_count": 1, "learning_rate": 1e-5}
    assert made.ask(lambda point: False, least) == (1, least)


def test_a_point_that_is_asked_for_is_given_to_who_asked_and_to_nobody_else(storage: str) -> None:
    item, other = study(storage), study(storage)
    first, second = {"instance_count": 1, "learning_rate": 1e-4}, {"instance_count": 2, "learning_rate": 5e-4}
    assert item.ask_for(first, {}) == 0
    assert ask(other)[1] != first
    assert other.ask_for(second, {}) == 2
    assert [trial(item, number).params for number in (0, 2)] == [first, second]


def test_a_split_search_says_in_optuna_what_is_a_probe_and_what_accumulates(storage: str) -> None:
    made = study(storage, sampler="split")
    point = {"instance_count": 1, "learning_rate": 1e-4}
    made.ask_for(point, {})
    made.ask_for(point, {"probe_steps": 40, "gradient_accumulation_steps": 4})
    own = [(trial(made, number).params["probe_steps"], trial(made, number).params[STEPS]) for number in (0, 1)]
    assert own == [(0, 1), (40, 4)]


def test_values_are_told_in_the_order_of_the_objectives_and_constraints_beside_them(storage: str) -> None:
    made = study(storage, constraints={"f1": {"min": 0.8}})
    tell(made, ask(made)[0], f1=0.9, cost_usd=2.0, billable_seconds=60.0)
    assert trial(made, 0).values == [2.0, 0.9]
    assert made.trials.metric_names == ["cost_usd", "f1"]
    assert all(amount <= 0 for amount in trial(made, 0).constraints.values())


def test_what_was_told_first_stands(storage: str) -> None:
    made, other = study(storage), study(storage)
    number, _ = ask(made)
    tell(made, number, f1=0.9, cost_usd=2.0)
    tell(other, number, f1=0.1, cost_usd=9.0)
    other.tell_failed(number)
    assert trial(other, number).values == [2.0, 0.9]


def test_running_trials_are_those_that_were_not_told_about(storage: str) -> None:
    made = study(storage)
    (report, _), (left, _) = ask(made), ask(made)
    made.tell_failed(report)
    assert list(study(storage).running()) == [left]


def test_a_driver_that_starts_again_suggests_something_new(storage: str) -> None:
    assert ask(study(storage, sampler="random"))[1] != ask(study(storage, sampler="random"))[1]


def entry(number: int, **more: Any) -> TrialEntry:
    standard: dict[str, Any] = {
        "identity": f"job {number}",
        "parameters": {},
        "given": {},
        "note": TrialNote(),
        "end": TrialEnd(status=TrialStatus.COMPLETED, metrics={"cost_usd": 1.0, "f1": 0.9, "billable_seconds": 60.0}),
    }
    unset = dict.fromkeys(("worst_usd", "booked_usd", "kept_usd", "booking_order", "spent_usd"))
    return TrialEntry(trial=number, run_id=f"run{number}", **{**unset, **standard, **more})


class NoHistory:
    """Stands for the history of a study in which nothing is settled."""

    def values(self, found: dict[str, float], _: object) -> dict[str, float]:
        return dict(found)


HISTORY: Any = NoHistory()


def test_the_dashboard_shows_values_by_name_the_run_and_a_probe_that_is_no_failure(storage: str) -> None:
    made = study(storage)
    for size in (1, 2):
        made.ask_for({"instance_count": size, "learning_rate": 1e-4}, {})
    made.report_outcome(entry(0), HISTORY)
    probe = TrialNote(changes={"probe_steps": 40})
    made.report_outcome(entry(1, note=probe, parameters={"probe_steps": "40"}), HISTORY)
    number, _ = ask(made)
    lost = TrialEnd(status=TrialStatus.FAILED, retryable=True)
    made.report_outcome(entry(number, end=lost), HISTORY)

    trials = made.trials.get_trials()
    assert [first.state.name for first in trials] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [item.user_attrs["status"] for item in trials] == ["Completed", "Probe", "Failed"]
    assert [single.user_attrs["mlflow_run_id"] for single in trials] == ["run0", "run1", "run2"]
    assert [item.params["instance_count"] for item in trials[:2]] == [1, 2]
    assert made.trials.metric_names == ["cost_usd", "f1"]
    assert [best_trial.number for best_trial in made.trials.best_trials] == [0]
    made.report_outcome(entry(1, note=probe), HISTORY)  # told again by another driver: nothing changes
    assert made.trials.get_trials()[1].user_attrs == trials[1].user_attrs


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (TrialEnd(status=TrialStatus.OUT_OF_MEMORY), "out_of_memory"),
        (TrialEnd(status=TrialStatus.STOPPED, reason="MaxRuntimeExceeded: longer than 5 minutes"), "cut_off"),
        (TrialEnd(status=TrialStatus.FAILED, reason="it broke"), "failed"),
        (TrialEnd(status=TrialStatus.FAILED, retryable=True), "again"),
    ],
)
def test_a_job_that_failed_says_why_and_what_was_billed(storage: str, end: TrialEnd, outcome: str) -> None:
    made = study(storage)
    made.report_outcome(entry(ask(made)[0], end=replace(end, billed_s=90.0)), HISTORY)
    attributes = trial(made, 0).user_attrs
    assert (trial(made, 0).state.name, attributes["outcome"], attributes["seconds"]) == ("FAIL", outcome, 90.0)


def test_a_study_with_other_objectives_is_refused(storage: str) -> None:
    study(storage)
    with pytest.raises(BadInput, match="study one was begun with other objectives: give it another name"):
        study(storage, objectives={"f1": "maximize"})


def test_a_storage_that_does_not_answer_is_refused_without_its_password() -> None:
    with pytest.raises(BadInput, match="cannot be used") as caught:
        study("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_a_storage_that_goes_away_says_that_the_same_command_goes_on(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(storage)

    def crash(*_: object) -> None:
        raise optuna.exceptions.StorageInternalError("server closed the connection")

    monkeypatch.setattr(made.trials, "ask", crash)
    with pytest.raises(LostContact, match="the same command continues the study"), made.reachable():
        ask(made)
