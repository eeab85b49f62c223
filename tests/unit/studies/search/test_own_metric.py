"""A search over a metric of the user's own: decisions as with F1, the best value of a run, a metric nobody logs."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.studies.definition.space import Choices, Range
from paretune.studies.search.driver import Driver
from paretune.studies.verification import RUNS
from paretune.tracking import Tracking
from tests.scripted_study import Desk, QuickClock, repeated, searched
from tests.study_examples import answer
from tests.unit.jobs.test_retrying_job import SMALL, ScriptedJob

LEAVES, SHRINKAGE = "training_arguments.leaves", "training_arguments.shrinkage"
SEARCH = {LEAVES: Choices(values=(7, 15, 31)), SHRINKAGE: Range(low=0.001, high=0.3, log=True)}
TRIALS = 11  # one more than the sampler draws at random


@pytest.fixture
def desk(workplace: Path, tmp_path: Path) -> Iterator[Desk]:
    clock = QuickClock()
    made = Desk(tmp_path, clock, Tracking({}, clock))
    (tmp_path / "own.py").touch()
    yield made
    made.close()


def worth(spec: JobSpec) -> float:
    leaves, rate = (spec.training_arguments[name] for name in ("leaves", "shrinkage"))
    chance = math.sin(1000.0 * spec.seed)
    return 0.9 - 0.05 * (math.log10(rate) + 1.5) ** 2 - 0.002 * abs(leaves - 15) + 0.001 * chance


def study_of(desk: Desk, metric: str, direction: str = "maximize", **terms: Any) -> Driver:
    """A study of cost against the metric, of a script that is never run."""
    standard: dict[str, Any] = {
        "name": f"study of {metric} {direction}",
        "job": {"instance_type": SMALL, "max_runtime_minutes": 6, "entry_script": str(desk.folder / "own.py")},
        "search": SEARCH,
        "objectives": {"cost_usd": "minimize", metric: direction},
        "sampler": "tpe",
        "n_trials": TRIALS,
    }
    return desk.driver(**{**standard, **terms})


def logs(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[float], float] = lambda value: value) -> None:
    """Let jobs log their worth under a name, changed."""
    monkeypatch.setattr(
        ScriptedJob, "report", lambda job: JobReport(metrics={name: change(worth(job.document.spec)), "other": 1.0})
    )


def asked(driver: Driver) -> list[Any]:
    return [trial.point for _, trial in sorted(driver.trials.items())]


@pytest.mark.slow
def test_the_same_points_are_tried_whatever_the_metric_is_called_and_whichever_way_it_is_better(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    for name, direction, sign in (("f1", "maximize", 1), ("val_ndcg", "maximize", 1), ("val_loss", "minimize", -1)):
        logs(monkeypatch, name, lambda value, sign=sign: sign * value)  # type: ignore[misc]
        driver = study_of(desk, name, direction)
        searched(driver)
        tried.append(asked(driver))

    assert len(tried[0]) == TRIALS
    assert tried[0] == tried[1] == tried[2]


@pytest.mark.slow
def test_what_is_recommended_by_an_own_metric_is_trained_again_and_its_noise_is_learnt(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs(monkeypatch, "val_ndcg")
    driver = study_of(desk, "val_ndcg")
    searched(driver)

    def answered() -> Any:
        trials, file = list(driver.trials.values()), driver.file
        return answer(trials, file.objectives, file.constraints, name="own", quality=file.judged_by)

    before = answered()
    result = repeated(driver, lambda: answered().picks)
    after = answered()

    assert result.repeats >= RUNS - 1
    assert len(after.picks[0].point.trials) == RUNS
    assert after.front.noises["val_ndcg"].degrees > before.front.noises["val_ndcg"].degrees
    assert after.front.noises["val_ndcg"].deviation < before.front.noises["val_ndcg"].deviation
    assert "--training_arguments " in after.picks[0].command
    assert {LEAVES, SHRINKAGE} <= set(after.csv().splitlines()[0].split(","))


@pytest.mark.parametrize("n_trials", [2, 6])
def test_a_study_ends_after_two_jobs_that_log_no_such_metric_and_says_what_they_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, n_trials: int
) -> None:
    logs(monkeypatch, "eval_ndcg")
    driver = study_of(desk, "ndcg", n_trials=n_trials)
    reason = searched(driver)

    assert len(driver.trials) == 2
    assert "none has logged ndcg" in reason
    assert "eval_ndcg" in reason
    assert "other" in reason


def test_a_job_without_an_estimate_reserves_all_of_its_maximum_runtime(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs(monkeypatch, "val_ndcg")
    driver = study_of(desk, "val_ndcg", n_trials=3, budget_usd=0.8)  # 6 minutes at a dollar an hour, and the upload
    searched(driver)

    assert driver.table.balance().spent_usd <= 0.8
    assert {trial.given["max_runtime_minutes"] for trial in driver.trials.values()} == {"6.0"}
