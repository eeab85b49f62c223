"""Two drivers, two processes, one study: only one works at a time, no trial runs twice, and the budget is kept."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.studies.trial_status import TrialStatus
from tests.support.processes import command, paretune
from tests.support.stand_ins import postgresql
from tests.support.study_tables import records_of, write_study
from tests.support.tags import tags_of

BUDGET_USD = 9.0
WITHIN_S = 240.0


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, workplace: Path) -> Iterator[str]:
    """Return the address of the study's storage."""
    if request.param == "sqlite":
        yield f"sqlite:///{workplace / 'shared.db'}"
        return
    missing = postgresql.what_is_missing()
    if missing:
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def _drive(storage: str, folder: Path, drivers: int) -> None:
    """Start that many drivers at once, again and again until one ends the study; the others say that one is at work."""
    codes: list[int] = []
    while 0 not in codes:
        with ExitStack() as stack:
            words = paretune("study", "--study", "study.yaml", "--storage", storage)
            started = [
                stack.enter_context(command(words, cwd=folder, log=folder / f"driver-{number}.log"))
                for number in range(drivers)
            ]
            codes = [driver.wait(WITHIN_S) for driver in started]
            texts = [driver.text for driver in started]
        assert set(codes) <= {0, 75}, "\n\n".join(texts)
        assert all("is working on the study" in text for code, text in zip(codes, texts, strict=True) if code == 75)


@pytest.mark.slow
def test_of_two_drivers_at_once_one_works_and_no_job_is_run_twice(storage: str, workplace: Path) -> None:
    path = write_study(workplace, name="shared", budget_usd=BUDGET_USD, n_parallel=2)
    _drive(storage, workplace, 2)

    running, ended, balance = records_of(path, storage)
    assert running == []
    assert balance.spent_usd <= BUDGET_USD
    assert balance.committed_usd == 0
    completed = Counter(trial.computation for trial in ended if trial.status is TrialStatus.COMPLETED)
    assert set(completed.values()) == {1}

    runs = MlflowClient().search_runs(["0"], max_results=1000)
    result = [run for run in runs if tags_of(run).get("paretune.kind") == "study"]
    trials = [run for run in runs if "paretune.trial" in tags_of(run)]
    assert [run.info.status for run in result] == ["FINISHED"]
    assert sorted(run.info.run_id for run in trials) == sorted(trial.run_id for trial in ended)
    assert sum(run.data.metrics["cost_usd"] for run in trials) == pytest.approx(balance.spent_usd)
    assert result[0].data.metrics["cost_usd"] == pytest.approx(balance.spent_usd)
