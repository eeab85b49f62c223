"""The door to Optuna: trials that are asked for, told about and found again, in a storage of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import optuna
import pytest

from paretune.core.errors import BadInput, LostContact
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote, TrialStatus
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range
from paretune.studies.search.optuna_study import OptunaStudy

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
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
    }
    OPENED.append(OptunaStudy(StudyFile(**{**standard, **terms}), storage))
    return OPENED[-1]


def trial(made: OptunaStudy, number: int) -> optuna.trial.FrozenTrial:
    return made._study.get_trials()[number]


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random", "grid"])
def test_every_sampler_suggests_a_point_of_the_search(storage: str, sampler: str) -> None:
    search = {"instance_count": Choices(values=(1, 2)), "learning_rate": Choices(values=(1e-5, 1e-4))}
    answer = study(storage, sampler=sampler, search=search).ask()
    assert answer.number == 0
    assert answer.point["instance_count"] in (1, 2)
    assert answer.point["learning_rate"] in (1e-5, 1e-4)


def test_a_point_that_is_asked_for_is_given_to_who_asked_and_to_nobody_else(storage: str) -> None:
    item, other = study(storage), study(storage)
    first, second = {"instance_count": 1, "learning_rate": 1e-4}, {"instance_count": 2, "learning_rate": 5e-4}
    assert item.ask_for(first).point == first
    assert other.ask().point != first
    assert other.ask_for(second).point == second
    assert [trial(item, number).user_attrs["point"] for number in (0, 2)] == [first, second]


def test_a_number_beyond_its_range_can_be_asked_for(storage: str) -> None:
    point = {"instance_count": 1, "learning_rate": 2e-3}
    assert study(storage).ask_for(point).point == point


def test_values_are_told_in_the_order_of_the_objectives(storage: str) -> None:
    made = study(storage)
    made.tell(made.ask().number, {"f1": 0.9, "cost_usd": 2.0}, {"f1 min": -0.1})
    assert trial(made, 0).values == [2.0, 0.9]
    assert made._study.metric_names == ["cost_usd", "f1"]
    assert all(amount <= 0 for amount in trial(made, 0).constraints.values())


def test_an_infeasible_point_is_told_as_a_constraint_with_the_worst_values_seen(storage: str) -> None:
    made = study(storage)
    made.tell(made.ask().number, {"f1": 0.9, "cost_usd": 2.0})
    made.tell(made.ask().number, {"f1": 0.7, "cost_usd": 1.0})
    made.tell_infeasible(made.ask().number, out_of_memory=True)
    assert trial(made, 2).state is optuna.trial.TrialState.COMPLETE
    assert trial(made, 2).values == [2.0, 0.7]
    assert trial(made, 2).constraints["memory"] > 0
    assert trial(made, 2).constraints["possible"] == 0


def test_a_trial_that_another_driver_tells_at_the_same_moment_is_no_error(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = study(storage), study(storage)
    number = made.ask().number
    tell = made._study.tell

    def later(*arguments: Any, **named: Any) -> Any:
        other.tell(number, {"f1": 0.9, "cost_usd": 2.0})
        monkeypatch.setattr("optuna.study._tell._get_frozen_trial", lambda *_: unfinished)
        return tell(*arguments, **named)

    unfinished = trial(made, number)
    monkeypatch.setattr(made._study, "tell", later)
    made.tell_failed(number)
    assert trial(other, number).values == [2.0, 0.9]


def test_what_was_told_first_stands(storage: str) -> None:
    made, other = study(storage), study(storage)
    number = made.ask().number
    made.tell(number, {"f1": 0.9, "cost_usd": 2.0})
    other.tell(number, {"f1": 0.1, "cost_usd": 9.0})
    other.tell_failed(number)
    assert trial(other, number).values == [2.0, 0.9]


def test_running_trials_are_those_that_were_not_told_about(storage: str) -> None:
    made = study(storage)
    report, left = made.ask().number, made.ask().number
    made.tell_failed(report)
    assert list(study(storage).running()) == [left]


def test_a_driver_that_starts_again_suggests_something_new(storage: str) -> None:
    assert study(storage, sampler="random").ask().point != study(storage, sampler="random").ask().point


def entry(number: int, **more: Any) -> TrialEntry:
    standard: dict[str, Any] = {
        "identity": f"job {number}",
        "parameters": {},
        "given": {},
        "note": TrialNote(),
        "end": TrialEnd(status=TrialStatus.COMPLETED, metrics={"cost_usd": 1.0, "f1": 0.9}),
    }
    unset = dict.fromkeys(("worst_usd", "booked_usd", "kept_usd", "booking_order", "spent_usd"))
    return TrialEntry(trial=number, run_id=f"run{number}", **{**unset, **standard, **more})


class NoHistory:
    """Stands for the history of a study in which nothing is settled."""

    settled: ClassVar[dict[str, TrialEntry]] = {}

    def values(self, found: dict[str, float], _: object) -> dict[str, float]:
        return dict(found)


def test_the_dashboard_shows_values_by_name_the_run_and_a_probe_that_is_no_failure(storage: str) -> None:
    made = study(storage)
    history: Any = NoHistory()
    for size in (1, 2):
        made.ask_for({"instance_count": size, "learning_rate": 1e-4})
    made.report_outcome(entry(0), history)
    probe = TrialNote(changes={"probe_steps": 40})
    made.report_outcome(entry(1, note=probe, parameters={"probe_steps": "40"}), history)
    number = made.ask().number
    lost = TrialEnd(status=TrialStatus.FAILED, retryable=True)
    made.report_outcome(entry(number, end=lost), history)

    trials = made._study.get_trials()
    assert [first.state.name for first in trials] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [item.user_attrs["status"] for item in trials] == ["Completed", "Probe", "Failed"]
    assert [single.user_attrs["mlflow_run_id"] for single in trials] == ["run0", "run1", "run2"]
    assert [element.user_attrs["instance_count"] for element in trials[:2]] == [1, 2]
    assert made._study.metric_names == ["cost_usd", "f1"]
    assert [best_trial.number for best_trial in made._study.best_trials] == [0]
    made.report_outcome(entry(1, note=probe), history)  # told again by another driver: nothing changes
    assert made._study.get_trials()[1].user_attrs == trials[1].user_attrs


def test_a_study_with_other_objectives_is_refused(storage: str) -> None:
    study(storage)
    with pytest.raises(BadInput, match="study one was begun with other objectives: give it another name"):
        study(storage, objectives={"f1": "maximize"})


def test_a_storage_that_does_not_answer_is_refused_without_its_password() -> None:
    with pytest.raises(BadInput, match="cannot be used") as caught:
        study("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random"])
@pytest.mark.slow
def test_numbers_to_choose_from_are_told_by_rank_and_suggested_as_they_stand(storage: str, sampler: str) -> None:
    made = study(storage, sampler=sampler, search={"global_batch_size": Choices(values=(8, 16, 64, 32))})
    points = [made.ask().point["global_batch_size"] for _ in range(20)]
    assert set(points) == {8, 16, 32, 64}
    assert all(isinstance(point, int) for point in points)
    report = [trial(made, number) for number in range(20)]
    assert [item.params["rank of global_batch_size"] for item in report] == [(8, 16, 32, 64).index(it) for it in points]
    assert [element.user_attrs["point"] for element in report] == [{"global_batch_size": point} for point in points]
    assert report[0].distributions["rank of global_batch_size"] == optuna.distributions.IntDistribution(0, 3)


@pytest.mark.parametrize("values", [("ml.g5.xlarge", "ml.g6.xlarge"), ("gpt2",)])
def test_what_has_no_order_is_told_as_categories(storage: str, values: tuple[Any, ...]) -> None:
    made = study(storage, search={"model": Choices(values=values)})
    assert made.ask().point["model"] in values
    (scale,) = trial(made, 0).distributions.values()
    assert isinstance(scale, optuna.distributions.CategoricalDistribution)


def test_a_storage_that_goes_away_says_that_the_same_command_goes_on(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(storage)

    def crash(*_: object) -> None:
        raise optuna.exceptions.StorageInternalError("server closed the connection")

    monkeypatch.setattr(made._study, "ask", crash)
    with pytest.raises(LostContact, match="the same command continues the study"), made.reachable():
        made.ask()
