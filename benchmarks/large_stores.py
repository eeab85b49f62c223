"""Measure the seconds of commands over the number of recorded runs.

    python benchmarks/large_stores.py                     # up to 10,000 runs: a quarter of an hour on two hyper-threads
    python benchmarks/large_stores.py --runs 500,1000     # other sizes
    python benchmarks/large_stores.py --stores sqlite     # without a PostgreSQL server of its own
    python benchmarks/large_stores.py --only "one more"   # what has these words in its name

One simulated study of two trials is run; its first trial is then copied in the tables of MLflow, of Optuna and of the
ledger, with other learning rates, F1 and dollars, until the store holds so many runs. Half of them are trials of the
study, the rest single jobs, which the store says were measured. At each size every command is called once; all have
been called before. Beside them stand MLflow alone, which searches for the same runs, and Optuna alone, which asks and
tells one trial of the same study at random. Nothing is billed and nothing is trained.

Printed for each: seconds at each size, how many runs MLflow has answered with at the largest, and the growth: the slope
of the logarithm of seconds over the logarithm of runs. 0 does not grow, 1 grows in proportion. Below the table stands
how many times as long as the part of MLflow or Optuna alone it takes.
"""

import argparse
import contextlib
import io
import json
import logging
import math
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import published
import sqlalchemy as sa
from simulated_bookkeeping import write_table

STUDY = "large"
ONE_TRIAL = "one more trial"
_ALL, _NEWEST, _ASK = "MLflow alone, all jobs", "MLflow alone, newest 200", "Optuna alone, ask and tell"
_BESIDE = {"`report`": _ALL, "one more job": _NEWEST, "`estimate`": _NEWEST, ONE_TRIAL: _ASK}
"""The operations to compare, in pairs."""
SIZES = "1000,2000,5000,10000"
_STORES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_COPIED = ("params", "tags", "metrics", "latest_metrics")
"""Tables of an MLflow store with what a run has recorded."""
_OF_A_TRIAL = ("trial_params", "trial_values", "trial_user_attributes", "trial_system_attributes")
"""Tables of Optuna with what a trial has."""
_RANK = "paretune.pareto_rank"
_COPY: dict[str, Any] = {
    "run_id": sa.String(32),
    "started": sa.BigInteger,
    "usd": sa.Float(53),
    "f1": sa.Float(53),
    "rate": sa.String(40),
    "trial": sa.String(20),
}
"""The values that differ between copied runs; `trial` is empty for a single job."""


def write_study(store: "Store", trials: int) -> Path:
    """The study's file, which ends after so many trials."""
    workspace, path = store.folder, store.folder / "study.yaml"
    path.write_text(
        f"""name: {STUDY}
job: {{launcher: simulated, recorded_runs: {workspace / "runs.csv"}, num_train_epochs: 3, max_runtime_minutes: 120}}
search:
  instance_type: {{choices: [ml.g5.xlarge, ml.g5.12xlarge, ml.g6.xlarge]}}
  per_device_train_batch_size: {{choices: [8, 16, 32, 64]}}
  learning_rate: {{low: 1.0e-5, high: 1.0e-4, log: true}}
objectives: {{f1: maximize, cost_usd: minimize}}
sampler: random
storage: {store.studies}
n_trials: {trials}
budget_usd: 1000000
"""
    )
    return path


@dataclass
class Store:
    """A store that is filled with copies of one recorded job.

    Attributes:
        address: of MLflow's store, and of the study's storage; a SQLAlchemy address each.
        runs: jobs that it holds.
    """

    address: str
    studies: str
    folder: Path
    runs: int = 2
    source: random.Random = field(default_factory=lambda: random.Random(0))

    def fill(self, size: int) -> None:
        """Copy the template until there are `size` jobs, half of them trials of the study."""
        have = self._trials()
        new = [self._drawn(number) for number in range(size - self.runs)]
        for number, row in enumerate(new):
            row["trial"] = str(have + number) if have + number < size // 2 else ""
        with connected(self.address) as connection:
            self._copy(connection, new)
        if trials := [row for row in new if row["trial"]]:
            with connected(self.studies) as connection:
                self._copy_trials(connection, trials)
                self._book(connection, trials)
        self.runs = size

    def _drawn(self, number: int) -> dict[str, Any]:
        usd = 10 ** self.source.uniform(-1, 1)
        return {
            "run_id": uuid.UUID(int=self.source.getrandbits(128), version=4).hex,
            "started": 1_750_000_000_000 + 60_000 * (self.runs + number),
            "usd": usd,
            "f1": 0.8 + 0.05 * math.log10(10 * usd) + self.source.gauss(0, 0.01),
            "rate": repr(10 ** self.source.uniform(-5, -4)),
        }

    def _trials(self) -> int:
        import optuna

        return len(optuna.load_study(study_name=STUDY, storage=self.studies).get_trials(deepcopy=False))

    def _copy(self, connection: sa.Connection, new: list[dict[str, Any]]) -> None:
        """Rows of the first trial in MLflow's tables once more for each new run, with its own numbers."""
        tables = sa.MetaData()
        tables.reflect(connection, only=["runs", *_COPIED])
        copies = sa.Table("copies", tables, *(sa.Column(name, kind) for name, kind in _COPY.items()))
        copies.create(connection)
        connection.execute(copies.insert(), new)
        tags = tables.tables["tags"].c
        is_first = (tags.key == "paretune.trial") & (tags.value == "0")
        template = connection.execute(sa.select(tags.run_uuid).where(is_first)).scalar_one()
        for name in ("runs", *_COPIED):
            table = tables.tables[name]
            custom = self._own(table, copies.c)
            rows = sa.select(*(custom.get(column.name, column) for column in table.c))
            rows = rows.select_from(table.join(copies, sa.true())).where(table.c.run_uuid == template)
            if name == "tags":
                is_of_a_trial = table.c.key.in_(("mlflow.parentRunId", "paretune.trial"))
                rows = rows.where((table.c.key != _RANK) & ((copies.c.trial != "") | ~is_of_a_trial))
            connection.execute(table.insert().from_select([column.name for column in table.c], rows))
        copies.drop(connection)

    def _own(self, table: sa.Table, copy: Any) -> dict[str, Any]:
        """Column to what a copied run has in it that is not the template's."""
        if table.name == "runs":
            return {"run_uuid": copy.run_id, "start_time": copy.started, "end_time": copy.started + 1000}
        key, value = table.c.key, table.c.value
        changed = {
            "params": [(key == "learning_rate", copy.rate)],
            "tags": [
                (key == "paretune.trial", copy.trial),
                ((key == "paretune.origin") & (copy.trial == ""), "measured"),
            ],
        }.get(table.name, [(key == "f1", copy.f1), (key == "cost_usd", copy.usd)])
        return {"run_uuid": copy.run_id, "value": sa.case(*changed, else_=value)}

    def _copy_trials(self, connection: sa.Connection, new: list[dict[str, Any]]) -> None:
        """Optuna's first trial once more for each new one, told with the values of its run."""
        tables = sa.MetaData()
        tables.reflect(connection, only=["trials", *_OF_A_TRIAL])
        copies = sa.Table("copies", tables, *(sa.Column(name, kind) for name, kind in _COPY.items()))
        copies.create(connection)
        connection.execute(copies.insert(), new)
        trials = tables.tables["trials"]
        number = sa.cast(copies.c.trial, sa.Integer)
        custom = {"number": number}
        rows = sa.select(*(custom.get(column.name, column) for column in trials.c if not column.primary_key))
        rows = rows.select_from(trials.join(copies, sa.true())).where(trials.c.number == 0).order_by(number)
        names = [column.name for column in trials.c if not column.primary_key]
        connection.execute(trials.insert().from_select(names, rows))
        fresh = trials.alias("fresh")
        for name in _OF_A_TRIAL:
            table = tables.tables[name]
            values: dict[str, Any] = {"trial_id": fresh.c.trial_id}
            if name == "trial_values":
                values["value"] = sa.case((table.c.objective == 0, copies.c.f1), else_=copies.c.usd)
            if name == "trial_params":
                is_rate = table.c.param_name == "learning_rate"
                values["param_value"] = sa.case(
                    (is_rate, sa.cast(copies.c.rate, sa.Float(53))), else_=table.c.param_value
                )
            retained = [column for column in table.c if not column.primary_key]
            rows = sa.select(*(values.get(column.name, column) for column in retained)).select_from(
                table.join(trials, (trials.c.trial_id == table.c.trial_id) & (trials.c.number == 0))
                .join(copies, sa.true())
                .join(fresh, fresh.c.number == number)
            )
            connection.execute(table.insert().from_select([column.name for column in retained], rows))
        copies.drop(connection)

    def _book(self, connection: sa.Connection, new: list[dict[str, Any]]) -> None:
        """The ledger's first trial once more for each new one, booked with the dollars of its run."""
        from paretune.ledger.ledger import TRIALS

        row = connection.execute(sa.select(TRIALS).where(TRIALS.c.trial == 0)).one()._mapping
        parameters, note, finished = (json.loads(row[name]) for name in ("parameters", "note", "ended"))
        spent = connection.execute(sa.select(sa.func.max(TRIALS.c.spent_usd))).scalar_one()
        entries = []
        for item in new:
            spent += item["usd"]
            note["point"]["learning_rate"] = float(item["rate"])
            parameters["learning_rate"] = item["rate"]
            finished["metrics"] |= {"f1": item["f1"], "cost_usd": item["usd"]}
            custom = {"trial": int(item["trial"]), "identity": item["run_id"], "run_id": item["run_id"]}
            custom |= {"booked_usd": item["usd"], "spent_usd": spent, "booking_order": int(item["trial"]) + 1}
            custom |= {"parameters": json.dumps(parameters), "note": json.dumps(note), "ended": json.dumps(finished)}
            entries.append({**row, **custom})
        connection.execute(TRIALS.insert(), entries)

    def write_ranks(self, ranks: Mapping[str, int]) -> None:
        """Write the rank of each of these runs, as the study would, one by one."""
        with connected(self.address) as connection:
            tables = sa.MetaData()
            tables.reflect(connection, only=["tags"])
            tags = tables.tables["tags"]
            connection.execute(tags.delete().where(tags.c.key == _RANK))
            rows = [{"run_uuid": run_id, "key": _RANK, "value": str(rank)} for run_id, rank in ranks.items()]
            connection.execute(tags.insert(), rows)


@contextmanager
def connected(address: str) -> Iterator[sa.Connection]:
    """A connection to a database, in one transaction."""
    engine = sa.create_engine(address)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


class Reads:
    """The number of requests for runs that reach MLflow, and of the runs it answers with."""

    def __init__(self) -> None:
        self.requests = 0
        self.runs = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        from mlflow import MlflowClient

        search = MlflowClient.search_runs

        def counting(*arguments: Any, **named: Any) -> Any:
            match = search(*arguments, **named)
            self.requests += 1
            self.runs += len(match)
            return match

        with mock.patch.object(MlflowClient, "search_runs", counting):
            yield


def command(*words: str) -> None:
    """Run a command of paretune in this process, what it prints thrown away."""
    from paretune.cli.main import main

    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer), contextlib.redirect_stderr(buffer):
        status = main(list(words))
    if status:
        sys.exit(f"paretune {' '.join(words)} ended with {status}:\n{buffer.getvalue()}")


def operations(store: Store) -> dict[str, Callable[[], None]]:
    """The operations that are timed at each size, by name; paretune's own first, then MLflow and Optuna alone."""
    import optuna
    from mlflow import MlflowClient

    import paretune

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = ["--launcher", "simulated", "--recorded_runs", str(store.folder / "runs.csv"), "--num_train_epochs", "3"]
    job += ["--max_runtime_minutes", "120", "--instance_type", "ml.g5.xlarge"]

    def one_trial() -> None:
        """One more trial of a study whose ranks are written, as they are after an earlier one."""
        trials = optuna.load_study(study_name=STUDY, storage=store.studies).get_trials(deepcopy=False)
        with mock.patch("paretune.studies.verification.MOST_REPEATS", 0):  # one trial, and not its repeats
            command("study", "--study", str(write_study(store, len(trials) + 1)))
        store.runs += 1

    def one_job() -> None:
        command("main", *job, "--seed", str(store.runs))
        store.runs += 1

    def front() -> None:
        str(paretune.front(STUDY))

    def search(most: int | None) -> Callable[[], None]:
        def run() -> None:
            client, result, token = MlflowClient(store.address), 0, None
            while most is None or result < most:
                page = client.search_runs(
                    [item.experiment_id for item in client.search_experiments()],
                    "tags.`paretune.state` != ''",
                    max_results=1000 if most is None else most,
                    page_token=token,
                    order_by=["attributes.start_time DESC"],
                )
                result, token = result + len(page), page.token
                if not token:
                    break

        return run

    def optuna_alone() -> None:
        study = optuna.load_study(study_name=STUDY, storage=store.studies, sampler=optuna.samplers.RandomSampler())
        trial = study.ask()
        study.tell(trial, state=optuna.trial.TrialState.FAIL)

    return {
        "`report`": lambda: command("report"),
        "front of the study": front,
        "`sync`": lambda: command("sync"),
        "one more job": one_job,
        "`estimate`": lambda: command("estimate", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000"),
        ONE_TRIAL: one_trial,
        _ALL: search(None),
        _NEWEST: search(200),
        _ASK: optuna_alone,
    }


def catch_up(store: Store, one_trial: Callable[[], None]) -> None:
    """Run one more trial of a study that has been filled, and write the ranks of all at once."""
    from paretune.studies.search.study_run import StudyRunWriter

    ranks: dict[str, int] = {}
    with mock.patch.object(StudyRunWriter, "_write_ranks", lambda _, result, is_last: ranks.update(result)):
        one_trial()
    store.write_ranks(ranks)


def growth(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds over log size, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(max(value, 1e-6)) for value in seconds]
    return statistics.linear_regression(xs, ys).slope if len(sizes) > 1 else math.nan


def measure(store: Store, sizes: list[int], only: str) -> list[str]:
    """Fill the store to each size and time everything; lines of Markdown."""
    took: dict[str, list[float]] = {}
    read: dict[str, list[int]] = {}
    result = {name: call for name, call in operations(store).items() if only in name}
    for call in result.values():
        call()
    for size in sizes:
        start = time.perf_counter()
        store.fill(size)
        if ONE_TRIAL in result:
            catch_up(store, result[ONE_TRIAL])
        print(f"{size} runs are there after {time.perf_counter() - start:.1f} s of copying", file=sys.stderr)
        for name, call in result.items():
            reads = Reads()
            start, processor = time.perf_counter(), time.process_time()
            with reads.counted():
                call()
            took.setdefault(name, []).append(time.perf_counter() - start)
            read.setdefault(name, []).append(reads.runs)
            message = f"{took[name][-1]:.2f} s ({time.process_time() - processor:.2f} s of the processor)"
            print(f"  {name}: {message}, {reads.requests} requests, {reads.runs} runs", file=sys.stderr)
    header = ["seconds with so many runs", *(f"{size:,}" for size in sizes), "growth", f"runs read of {sizes[-1]:,}"]
    rows = [
        [name, *(f"{value:.2f}" for value in values), f"{growth(sizes, values):.2f}", f"{read[name][-1]:,}"]
        for name, values in took.items()
    ]
    beside = [(name, other) for name, other in _BESIDE.items() if {name, other} <= took.keys()]
    ratios = [f"{name} takes {took[name][-1] / took[other][-1]:.1f} times as long as {other}" for name, other in beside]
    return [*published.table(header, rows), "", f"With {sizes[-1]:,} runs: {'; '.join(ratios)}."]


def run(sizes: list[int], workspace: Path, address: str, only: str) -> list[str]:
    """Make the store with a study of two trials, then measure; `address` is of a PostgreSQL database, or empty."""
    os.chdir(workspace)
    store = Store(address or f"sqlite:///{workspace / 'mlflow.db'}", f"sqlite:///{workspace / 'studies.db'}", workspace)
    if address:
        store.studies = own_database(address, "studies")
    os.environ["MLFLOW_TRACKING_URI"] = store.address
    os.environ["MLFLOW_EXPERIMENT_NAME"] = "large stores"
    os.environ["PARETUNE_HOME"] = str(workspace / "home")
    logging.disable(logging.WARNING)
    if address:
        import mlflow

        mlflow.create_experiment("large stores", str(workspace / "artifacts"))
    write_table(workspace / "runs.csv")
    with mock.patch("paretune.studies.verification.MOST_REPEATS", 0):
        command("study", "--study", str(write_study(store, 2)))
    return measure(store, sizes, only)


def own_database(address: str, name: str) -> str:
    """A second database on the server of the first: MLflow and Optuna both call a table alembic_version."""
    engine = sa.create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{address.rpartition('/')[0]}/{name}"


def main() -> None:
    """Read the arguments, say what is measured on, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=SIZES, help="how many, several sizes with commas, rising")
    parser.add_argument("--only", default="", help="what has these words in its name")
    parser.add_argument("--stores", default="sqlite,postgresql", help="sqlite, postgresql or both")
    options = arguments.parse(parser, runs="20,40", stores="sqlite")
    lines = [published.conditions("paretune", "mlflow", "optuna", "sqlalchemy")]
    for store in options.stores.split(","):
        with ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="paretune-"))
            address = opened.enter_context(_server()) if store == "postgresql" else ""
            result = run([int(size) for size in options.runs.split(",")], Path(folder), address, options.only)
            lines += ["", f"{_STORES[store]}:", "", *result]
            os.chdir("/")
    print(published.block("large_stores", lines))


def _server() -> AbstractContextManager[str]:
    """A PostgreSQL server of its own; the address of an empty database."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.stand_ins import postgresql

    if missing := postgresql.what_is_missing():
        sys.exit(missing)
    return postgresql.server()


if __name__ == "__main__":
    main()
