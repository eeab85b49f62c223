"""What a study promises for a job before it begins it."""

from pathlib import Path

import pytest

from paretune.core.errors import BudgetRefused
from paretune.studies.search.driver import Driver
from paretune.studies.search.untried import UntriedPoints, some_jobs
from tests.study_rig import driver_of
from tests.unit.studies.search.test_default_job import write

USD_PER_HOUR = 1.408  # of the ml.g5.xlarge, us-east-1


def made(folder: Path, **typed: str) -> Driver:
    return driver_of(folder, write(folder), {"instance_type": "ml.g5.xlarge", "max_runtime_minutes": "90"} | typed)


def test_without_any_evidence_a_job_may_cost_its_whole_limit(workplace: Path) -> None:
    driver = made(workplace, budget_usd="50")
    (spec, *_) = some_jobs(driver.file, 1)

    assert driver.worst_case.limited(spec) == spec
    assert driver.worst_case.usd(spec) == pytest.approx(1.5 * USD_PER_HOUR, rel=0.1)  # and a grace of minutes


def test_more_than_its_own_limit_in_dollars_is_refused(workplace: Path) -> None:
    driver = made(workplace, budget_usd="50", max_cost_usd="0.5")
    (spec, *_) = some_jobs(driver.file, 1)

    with pytest.raises(BudgetRefused):
        driver.worst_case.usd(spec)


def test_points_whose_worst_case_does_not_fit_are_not_proposed(workplace: Path) -> None:
    driver = made(workplace, budget_usd="2")
    untried = UntriedPoints(driver)

    assert untried.next_point() is None
    assert "no untried point fits what is left of the budget (2 USD)" in untried.why_exhausted()


def test_every_point_is_proposed_until_it_was_run(workplace: Path) -> None:
    driver = made(workplace, budget_usd="500", per_device_train_batch_size="16")
    untried, seen = UntriedPoints(driver), set()
    while (point := untried.next_point()) is not None:
        seen.add(point["learning_rate"])
        assert driver.start(driver.study.ask_for(point))
        while driver.running:
            driver.poll()
            driver.wait()

    assert len(seen) == 4
    assert untried.why_exhausted() == "every point was tried"
