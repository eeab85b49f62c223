"""What a command reads and writes does not grow with the runs that are recorded already, but where it is about them.

Requests and runs are counted, never seconds; benchmarks/large_stores.py has those, of up to 10,000 runs.
"""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from optuna.storages import RDBStorage

import paretune
from paretune.cli.main import main
from paretune.tracking import Run, schema
from tests.study_tables import write_study


class Searched:
    """Requests for runs that have reached MLflow's client, and how many runs it has answered with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = self.runs = 0
        search = MlflowClient.search_runs

        def counted(*arguments: Any, **named: Any) -> Any:
            match = search(*arguments, **named)
            self.requests += 1
            self.runs += len(match)
            return match

        monkeypatch.setattr(MlflowClient, "search_runs", counted)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Count what the block asks for only."""
        self.requests = self.runs = 0
        yield


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Searched:
    return Searched(monkeypatch)


@pytest.fixture
def one_more_job(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[int], None]:
    """Launches a simulated job with this seed, and waits for its end."""
    Path("runs.csv").write_text(
        "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,f1\n"
        "ml.g5.xlarge,1,16,5e-5,2,600,0.9\nml.g5.xlarge,1,32,5e-5,2,500,0.8\n"
    )

    def launch(seed: int) -> None:
        words = ["--launcher", "simulated", "--recorded_runs", "runs.csv", "--instance_type", "ml.g5.xlarge"]
        assert main(["main", *words, "--num_train_epochs", "2", "--seed", str(seed)]) == 0

    return launch


def copy_of_the_newest(count: int) -> None:
    """So many runs more in the store, each with all that the newest one has recorded."""
    client = MlflowClient()
    (newest,) = client.search_runs(["0"], max_results=1)
    tags = [RunTag(name, text) for name, text in newest.data.tags.items()]
    params = [Param(name, text) for name, text in newest.data.params.items()]
    metrics = [Metric(name, value, 0, 0) for name, value in newest.data.metrics.items()]
    for _ in range(count):
        client.log_batch(client.create_run("0").info.run_id, metrics, params, tags)


@pytest.mark.slow
def test_one_more_job_asks_for_as_much_however_many_runs_there_are(
    one_more_job: Callable[[int], None], searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.estimating.evidence.NEWEST", {"params.instance_type != 'local'": 3})
    one_more_job(1)
    copy_of_the_newest(3)
    counts = []
    for seed, more in ((2, 0), (3, 9)):
        copy_of_the_newest(more)
        with searched.during():
            one_more_job(seed)
        counts.append((searched.requests, searched.runs))

    assert counts[0] == counts[1]
    assert counts[0][1] == 3


def test_sync_reads_no_run_of_a_job_that_has_ended(one_more_job: Callable[[int], None], searched: Searched) -> None:
    one_more_job(1)
    copy_of_the_newest(2)
    with searched.during():
        assert main(["sync"]) == 0

    assert searched.requests > 0
    assert searched.runs == 0


@pytest.fixture
def small_study(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The file of a study of four trials, whose recommendation is not trained again."""
    monkeypatch.setattr("paretune.studies.verification.MOST_REPEATS", 0)
    return write_study(workplace, n_trials=4, n_parallel=1)


def ranks_in_the_store(parent: str) -> dict[str, str]:
    runs = MlflowClient().search_runs(["0"], f"tags.`mlflow.parentRunId` = '{parent}'")
    return {run.info.run_id: run.data.tags.get(schema.PARETO_RANK, "") for run in runs}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Trials, by Optuna's ids, that something was written down of."""
    trials: list[int] = []
    tell = RDBStorage.set_trial_user_attr

    def telling(storage: RDBStorage, trial: int, key: str, value: Any) -> None:
        trials.append(trial)
        tell(storage, trial, key, value)

    monkeypatch.setattr(RDBStorage, "set_trial_user_attr", telling)
    return trials


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs whose rank was written."""
    runs: list[str] = []
    tag = Run.set_tags

    def tagging(run: Run, tags: dict[str, str | None]) -> None:
        runs.extend([run.run_id] if schema.PARETO_RANK in tags else [])
        tag(run, tags)

    monkeypatch.setattr(Run, "set_tags", tagging)
    return runs


@pytest.mark.slow
def test_one_more_trial_tells_and_ranks_only_what_is_new(small_study: Path, told: list[int], ranked: list[str]) -> None:
    assert main(["study", "--study", str(small_study)]) == 0
    (study,) = MlflowClient().search_runs(["0"], "tags.`paretune.kind` = 'study'")
    before = ranks_in_the_store(study.info.run_id)
    beaten = next(run_id for run_id, rank in before.items() if rank not in ("", "0"))
    MlflowClient().set_tag(beaten, schema.PARETO_RANK, "0")  # as another process could have left it
    reference = set(told)
    told.clear()
    ranked.clear()
    assert main(["study", "--study", str(small_study), "--n_trials", "5"]) == 0
    text = MlflowClient().download_artifacts(study.info.run_id, "pareto.csv", str(small_study.parent))
    rows = csv.DictReader(io.StringIO(Path(text).read_text()))

    after = ranks_in_the_store(study.info.run_id)
    assert {run_id: rank for run_id, rank in after.items() if rank} == {
        row["run_id"]: row["pareto_rank"] for row in rows if row["pareto_rank"]
    }
    assert told
    assert not reference & set(told)
    assert beaten in ranked
    assert set(ranked) - {beaten} <= {run_id for run_id in after if after[run_id] != before.get(run_id, "")}


@pytest.mark.slow
def test_the_front_of_a_study_reads_the_run_of_the_study_alone(small_study: Path, searched: Searched) -> None:
    assert main(["study", "--study", str(small_study)]) == 0
    (study,) = MlflowClient().search_runs(["0"], "tags.`paretune.kind` = 'study'")
    with searched.during():
        trials = paretune.front(study.info.run_id)

    assert len(trials.runs) >= 4
    assert (searched.requests, searched.runs) == (1, 1)
