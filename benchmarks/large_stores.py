"""How do the commands grow with the number of runs that are recorded already?

    python benchmarks/large_stores.py                     # SQLite, up to 10,000 runs: some minutes on two hyper-threads
    python benchmarks/large_stores.py --runs 500,1000     # other sizes
    python benchmarks/large_stores.py --postgresql        # the same on a PostgreSQL server of its own, if installed

One simulated study of two trials is run; its last trial is then copied in the store's own tables, in Optuna's and in the
ledger, with other learning rates, F1 and dollars, until the store holds so many runs. Half of them are trials of the
study, the rest single jobs, of which the store says that they were measured. At each size every command is called once, after one call that is not counted. Beside them
stand MLflow alone, which searches for the same runs, and Optuna alone, which asks and tells one trial of the same
study with the same sampler. Nothing is billed and nothing is trained.

Printed for each: seconds at each size, how many runs MLflow was asked for, and the growth: the slope of the logarithm
of seconds over the logarithm of runs. 0 does not grow, 1 grows in proportion.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import published
import sqlalchemy as sa
from simulated_bookkeeping import write_table

STUDY = "large"
SIZES = "1000,2000,5000,10000"
_COPIED = ("params", "tags", "metrics", "latest_metrics")
"""Tables of an MLflow store with what a run has recorded."""
_OWN_NUMBERS = {"f1": "f1", "cost_usd": "usd"}
"""Metric to the column of `copies` that says what it is in a copied run."""


def write_study(place: Path, trials: int) -> Path:
    """The study's file, which ends after so many trials."""
    path = place / "study.yaml"
    path.write_text(
        f"""name: {STUDY}
job: {{launcher: simulated, recorded_runs: {place / "runs.csv"}, num_train_epochs: 3, max_runtime_minutes: 120}}
search:
  instance_type: {{choices: [ml.g5.xlarge, ml.g5.12xlarge, ml.g6.xlarge]}}
  per_device_train_batch_size: {{choices: [8, 16, 32, 64]}}
  learning_rate: {{low: 1.0e-5, high: 1.0e-4, log: true}}
objectives: {{f1: maximize, cost_usd: minimize}}
sampler: random
storage: {os.environ["LARGE_STORES_STUDIES"]}
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
    place: Path
    runs: int = 2
    source: random.Random = field(default_factory=lambda: random.Random(0))

    def fill(self, size: int) -> None:
        """Copy the template until there are `size` jobs, half of them trials of the study."""
        engine = sa.create_engine(self.address)
        with engine.begin() as connection:
            template = self._template(connection)
            have = self._trials()
            new = [self._drawn(number) for number in range(size - self.runs)]
            for number, row in enumerate(new):
                row["trial"] = str(have + number) if have + number < size // 2 else ""
            self._copy(connection, template, new)
        engine.dispose()
        self._add_trials([row for row in new if row["trial"]], have)
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

    def _template(self, connection: sa.Connection) -> str:
        """Run id of the trial that is copied: the first one."""
        query = "SELECT run_uuid FROM tags WHERE key = 'paretune.trial' AND value = '0'"
        return str(connection.execute(sa.text(query)).scalar_one())

    def _trials(self) -> int:
        import optuna

        return len(optuna.load_study(study_name=STUDY, storage=self.studies).get_trials(deepcopy=False))

    def _copy(self, connection: sa.Connection, template: str, new: list[dict[str, Any]]) -> None:
        """Rows of the template in MLflow's tables once more for each new run, with its own numbers."""
        connection.execute(sa.text("DROP TABLE IF EXISTS copies"))
        columns = "run_id VARCHAR(32), started BIGINT, usd FLOAT, f1 FLOAT, rate VARCHAR(40), trial VARCHAR(20)"
        connection.execute(sa.text(f"CREATE TABLE copies ({columns})"))
        values = ":run_id, :started, :usd, :f1, :rate, :trial"
        connection.execute(sa.text(f"INSERT INTO copies VALUES ({values})"), new)
        own = {
            "runs": {"run_uuid": "c.run_id", "start_time": "c.started", "end_time": "c.started + 1000"},
            "params": {"run_uuid": "c.run_id", "value": "CASE t.key WHEN 'learning_rate' THEN c.rate ELSE t.value END"},
            "tags": {
                "run_uuid": "c.run_id",
                "value": "CASE WHEN t.key = 'paretune.trial' THEN c.trial "
                "WHEN t.key = 'paretune.origin' AND c.trial = '' THEN 'measured' ELSE t.value END",
            },
        }
        number = " ".join(f"WHEN '{name}' THEN c.{column}" for name, column in _OWN_NUMBERS.items())
        own |= {name: {"run_uuid": "c.run_id", "value": f"CASE t.key {number} ELSE t.value END"} for name in _COPIED[2:]}
        for name, columns_of in own.items():
            names = [item["name"] for item in sa.inspect(connection).get_columns(name)]
            taken = ", ".join(columns_of.get(item, f"t.{item}") for item in names)
            only = ""
            if name == "tags":
                only = "AND NOT (c.trial = '' AND t.key IN ('mlflow.parentRunId', 'paretune.trial'))"
            connection.execute(
                sa.text(
                    f"INSERT INTO {name} ({', '.join(names)}) SELECT {taken} FROM {name} t CROSS JOIN copies c "
                    f"WHERE t.run_uuid = :template {only}"
                ),
                {"template": template},
            )
        connection.execute(sa.text("DROP TABLE copies"))

    def _add_trials(self, new: list[dict[str, Any]], have: int) -> None:
        """The trials of the new runs in Optuna's tables and in the ledger, as if they had been told and booked."""
        import optuna

        from paretune.studies.search.ledger import ENTRIES

        storage = optuna.storages.RDBStorage(self.studies)
        study = optuna.load_study(study_name=STUDY, storage=storage)
        frozen = study.get_trials(deepcopy=False)[0]
        entries = []
        with storage.engine.begin() as connection:
            row = connection.execute(sa.select(ENTRIES).where(ENTRIES.c.trial == 0)).one()
        last = dict(row._mapping)
        for number, one in enumerate(new, start=have):
            rate, values = float(one["rate"]), [one["f1"], one["usd"]]
            params = {**frozen.params, "learning_rate": rate}
            study.add_trial(
                optuna.trial.create_trial(
                    values=values, params=params, distributions=frozen.distributions, user_attrs=frozen.user_attrs
                )
            )
            parameters, note, ended = (json.loads(last[name]) for name in ("parameters", "note", "ended"))
            parameters["learning_rate"] = note["point"]["learning_rate"] = rate
            parameters["learning_rate"] = one["rate"]
            ended["metrics"] |= {"f1": one["f1"], "cost_usd": one["usd"]}
            last["spent_usd"] += one["usd"]
            own = {"trial": number, "identity": uuid.uuid4().hex, "run_id": one["run_id"], "booked_usd": one["usd"]}
            texts = {"parameters": parameters, "note": note, "ended": ended}
            own |= {"booking_order": number + 1, "spent_usd": last["spent_usd"]}
            entries.append({**last, **own, **{name: json.dumps(value) for name, value in texts.items()}})
        if entries:
            with storage.engine.begin() as connection:
                connection.execute(ENTRIES.insert(), entries)
        storage.remove_session()
        storage.engine.dispose()


class Reads:
    """How many requests for runs reach MLflow, and how many runs it answers with."""

    def __init__(self) -> None:
        self.requests = 0
        self.runs = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        from mlflow import MlflowClient

        search = MlflowClient.search_runs

        def counting(*arguments: Any, **named: Any) -> Any:
            found = search(*arguments, **named)
            self.requests += 1
            self.runs += len(found)
            return found

        with mock.patch.object(MlflowClient, "search_runs", counting):
            yield


def command(*words: str) -> None:
    """Run a command of paretune in this process, what it prints thrown away."""
    from paretune.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(list(words))
    if status:
        sys.exit(f"paretune {' '.join(words)} ended with {status}:\n{said.getvalue()}")


def operations(store: Store) -> dict[str, Callable[[], None]]:
    """What is timed at each size, by name; paretune's own first, then MLflow and Optuna alone."""
    import optuna
    from mlflow import MlflowClient

    import paretune

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = ["--launcher", "simulated", "--recorded_runs", str(store.place / "runs.csv"), "--num_train_epochs", "3"]
    job += ["--max_runtime_minutes", "120", "--instance_type", "ml.g5.xlarge"]
    state = {"trials": 0, "jobs": 0}

    def one_trial() -> None:
        trials = optuna.load_study(study_name=STUDY, storage=store.studies).get_trials(deepcopy=False)
        state["trials"] = len(trials)
        with mock.patch("paretune.studies.verification.MOST_REPEATS", 0):  # one trial, and not its repeats
            command("study", "--study", str(write_study(store.place, len(trials) + 1)))
        store.runs += 1

    def one_job() -> None:
        command("main", *job, "--seed", str(store.runs))
        store.runs += 1

    def search(most: int | None) -> Callable[[], None]:
        def run() -> None:
            client, found, token = MlflowClient(store.address), 0, None
            while most is None or found < most:
                page = client.search_runs(
                    ["0"],
                    "tags.`paretune.state` != ''",
                    max_results=1000 if most is None else most,
                    page_token=token,
                    order_by=["attributes.start_time DESC"],
                )
                found, token = found + len(page), page.token
                if not token:
                    break

        return run

    def optuna_alone() -> None:
        study = optuna.load_study(study_name=STUDY, storage=store.studies, sampler=optuna.samplers.RandomSampler())
        trial = study.ask()
        study.tell(trial, state=optuna.trial.TrialState.FAIL)

    return {
        "`report`": lambda: command("report"),
        "front of the study": lambda: str(paretune.front(STUDY)) and None,
        "`sync`": lambda: command("sync"),
        "one more job": one_job,
        "`estimate`": lambda: command("estimate", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000"),
        "one more trial": one_trial,
        "MLflow alone: all jobs": search(None),
        "MLflow alone: newest 200": search(200),
        "Optuna alone: ask and tell": optuna_alone,
    }


def growth(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds over log size, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(max(value, 1e-6)) for value in seconds]
    return statistics.linear_regression(xs, ys).slope if len(sizes) > 1 else math.nan


def measure(store: Store, sizes: list[int], only: str) -> None:
    """Fill the store to each size, time everything, and print the table."""
    took: dict[str, list[float]] = {}
    read: dict[str, list[int]] = {}
    found = {name: call for name, call in operations(store).items() if only in name}
    for call in found.values():
        call()
    for size in sizes:
        begun = time.perf_counter()
        store.fill(size)
        print(f"{size} runs are there after {time.perf_counter() - begun:.1f} s of copying", file=sys.stderr)
        for name, call in found.items():
            reads = Reads()
            begun = time.perf_counter()
            with reads.counted():
                call()
            took.setdefault(name, []).append(time.perf_counter() - begun)
            read.setdefault(name, []).append(reads.runs)
            print(f"  {name}: {took[name][-1]:.2f} s, {reads.requests} requests, {reads.runs} runs", file=sys.stderr)
    header = ["seconds with so many runs", *(f"{size:,}" for size in sizes), "growth", f"runs read of {sizes[-1]:,}"]
    rows = [
        [name, *(f"{value:.2f}" for value in values), f"{growth(sizes, values):.2f}", f"{read[name][-1]:,}"]
        for name, values in took.items()
    ]
    print("\n".join(published.table(header, rows)))


def run(sizes: list[int], place: Path, address: str, only: str) -> None:
    """Make the store with a study of two trials, then measure."""
    os.chdir(place)
    os.environ["MLFLOW_TRACKING_URI"] = address or f"sqlite:///{place / 'mlflow.db'}"
    os.environ["PARETUNE_HOME"] = str(place / "home")
    os.environ["LARGE_STORES_STUDIES"] = f"sqlite:///{place / 'studies.db'}"
    logging.disable(logging.WARNING)
    write_table(place / "runs.csv")
    with mock.patch("paretune.studies.verification.MOST_REPEATS", 0):
        command("study", "--study", str(write_study(place, 2)))
    store = Store(os.environ["MLFLOW_TRACKING_URI"], os.environ["LARGE_STORES_STUDIES"], place)
    measure(store, sizes, only)


def main() -> None:
    """Read the arguments, say what is measured on, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=SIZES, help="how many, several sizes with commas, rising")
    parser.add_argument("--only", default="", help="what has these words in its name")
    parser.add_argument("--postgresql", action="store_true", help="a PostgreSQL server in place of SQLite files")
    asked = arguments.parse(parser, runs="50,100,200")
    print(published.conditions("paretune", "mlflow", "optuna", "sqlalchemy"))
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="paretune-"))
        run([int(size) for size in asked.runs.split(",")], Path(folder), "", asked.only)


if __name__ == "__main__":
    main()
