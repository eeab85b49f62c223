"""A study whose trials somebody deletes in MLflow by hand: no job is lost, and none is paid for twice."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.tracking._tracking_service.utils import _get_store

from paretune.studies.search.driver import Start
from paretune.tracking.store import Tracking
from tests.support.scripted_study import RATES, Desk, QuickClock, searched, until_ended
from tests.support.stand_ins import postgresql

USD = 0.01  # cost of a scripted job


class DeskWithStorage(Desk):
    """A desk whose studies are in a given storage."""

    address = ""

    @property
    def storage(self) -> str:
        return self.address


@pytest.fixture(params=["sqlite", "postgresql"])
def desk(request: pytest.FixtureRequest, workplace: Path, tmp_path: Path) -> Iterator[Desk]:
    if request.param == "postgresql" and (missing := postgresql.what_is_missing()):
        pytest.skip(missing)
    file = f"sqlite:///{tmp_path / 'studies.db'}"
    with postgresql.server() if request.param == "postgresql" else nullcontext(file) as address:
        clock = QuickClock()
        made = DeskWithStorage(tmp_path, clock, Tracking({}, clock))
        made.address = address
        yield made
        made.close()


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_study_goes_on_with_the_jobs_of_trials_that_were_deleted_in_mlflow(desk: Desk, is_removed: bool) -> None:
    driver = desk.driver(n_parallel=3)
    assert driver.begin(Start({"learning_rate": RATES[0]})) == ""
    until_ended(driver)
    for rate in RATES[1:3]:
        assert driver.begin(Start({"learning_rate": rate})) == ""
    (ended,), under_way = driver.table.trials()[1], driver.table.trials()[0]
    runs = [ended.run_id, *(trial.run_id for trial in under_way)]
    for run_id in runs:  # of a driver that is killed now
        MlflowClient().delete_run(run_id)
        if is_removed:
            _get_store()._hard_delete_run(run_id)  # type: ignore[no-untyped-call]  # as `mlflow gc` does

    again = desk.next_driver(n_parallel=3)

    assert searched(again) == "every point was tried"
    assert len(desk.launcher.created) == len(RATES)
    trials = again.table.trials()[1]
    assert sorted(float(str(trial.point["learning_rate"])) for trial in trials) == sorted(RATES)
    assert [trial.cost_usd for trial in trials] == pytest.approx([USD] * 4)
    assert again.table.balance().spent_usd == pytest.approx(4 * USD)
    for trial in trials:
        run = desk.tracking.recorder_of(trial.run_id)
        if trial.number != ended.number:  # the run of the trial that had ended stays deleted
            assert run is not None
            assert (run.is_deleted, run.state) == (False, "Completed")
            assert run.cost_usd == pytest.approx(USD)
