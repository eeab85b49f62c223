"""Measure the bookkeeping of one trial of a simulated study: everything but the sampler.

    python benchmarks/simulated_bookkeeping.py            # about a minute on two hyper-threads
    python benchmarks/simulated_bookkeeping.py --trials 100
    python benchmarks/simulated_bookkeeping.py --study    # the command `study` itself, random points, with its pages

Each trial is one job through `run_job()`, as a study launches it: specification, budget check, MLflow run with all its
parameters, tags, curve and report in a SQLite store, and the simulated launcher's own files. The table that is
replayed is made here, by a formula. Nothing is billed and nothing is trained. Printed: milliseconds of wall time a
trial (median, 90th percentile, worst), after ten trials that are not counted, and which calls they went to.
"""

import argparse
import itertools
import logging
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import published

TARGET_MS = 50.0
WARM_UP = 10
TYPES = ("ml.g5.xlarge", "ml.g5.12xlarge", "ml.g6.xlarge")
EPOCHS = 3


def write_table(path: Path) -> None:
    """Runs on a grid: seconds and F1 by a formula that has nothing to do with any real job."""
    curve = ",".join(f"f1_epoch_{epoch}" for epoch in range(1, EPOCHS + 1))
    lines = [
        f"instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,f1,{curve}"
    ]
    for kind, count, batch, rate in itertools.product(TYPES, (1, 2, 4, 8), (8, 16, 32, 64), (1e-5, 3e-5, 1e-4)):
        seconds = 120 + 4000 / count**0.9 * (8 / batch) ** 0.3
        f1 = 0.9 - 0.02 * abs(rate * 2e4 - 1) - 0.002 * count
        values = ",".join(f"{f1 - 0.1 * (EPOCHS - epoch) / EPOCHS:.4f}" for epoch in range(1, EPOCHS + 1))
        lines.append(f"{kind},{count},{batch},{rate},{EPOCHS},{seconds:.1f},{f1:.4f},{values}")
    path.write_text("\n".join(lines) + "\n")


def specifications(trials: int, table: Path) -> Iterator[Any]:
    """Jobs at random points of the table's range."""
    from paretune.specification.job import JobSpec

    source = random.Random(0)
    for _ in range(trials):
        yield JobSpec(
            launcher="simulated",
            recorded_runs=str(table),
            instance_type=source.choice(TYPES),
            instance_count=source.choice((1, 2, 3, 4, 6, 8)),
            per_device_train_batch_size=source.choice((8, 16, 24, 32, 64)),
            learning_rate=10 ** source.uniform(-5, -4),
            num_train_epochs=float(EPOCHS),
            max_runtime_minutes=120.0,
            max_cost_usd=1000.0,
        )


class Shares:
    """Milliseconds by what they were spent on; a part inside a part counts for the inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inside: list[float] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time booked under `name`."""

        def wrapped(*arguments: Any, **named: Any) -> Any:
            self._inside.append(0.0)
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took = time.perf_counter() - start
                self.seconds[name] += took - self._inside.pop()
                self.calls[name] += 1
                if self._inside:
                    self._inside[-1] += took

        return wrapped

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time MLflow's client and the simulated launcher while the block runs."""
        from mlflow import MlflowClient

        from paretune.launchers.simulated.launcher import SimulatedJob, SimulatedLauncher

        watched = {
            MlflowClient: (
                *("create_run", "update_run", "get_run", "log_batch", "log_inputs", "get_metric_history"),
                *("set_terminated", "log_text"),
            ),
            SimulatedLauncher: ("submit", "attach", "check", "price"),
            SimulatedJob: ("state", "events", "report", "failure", "facts", "detail"),
        }
        with ExitStack() as patches:
            for owner, names in watched.items():
                for name in names:
                    timed = self.timed(f"{owner.__name__}.{name}", getattr(owner, name))
                    patches.enter_context(mock.patch.object(owner, name, timed))
            yield


def run_study(trials: int, workspace: Path) -> None:
    """Run `paretune study` and print what its trials took, from one that has ended to the next."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{workspace / 'mlflow.db'}"
    os.environ["PARETUNE_HOME"] = str(workspace / "home")
    os.chdir(workspace)
    from optuna.study import Study as OptunaStudy

    from paretune.cli.main import main as paretune
    from paretune.ledger.study_ledger import StudyLedger
    from paretune.studies.search.study_run import StudyRunWriter

    logging.disable(logging.WARNING)
    write_table(workspace / "runs.csv")
    table = workspace / "runs.csv"
    (workspace / "study.yaml").write_text(
        f"""name: bookkeeping
job: {{launcher: simulated, recorded_runs: {table}, num_train_epochs: {EPOCHS}, max_runtime_minutes: 120}}
search:
  instance_type: {{choices: [{", ".join(TYPES)}]}}
  instance_count: {{choices: [1, 2, 4, 8]}}
  per_device_train_batch_size: {{choices: [8, 16, 32, 64]}}
  learning_rate: {{low: 1e-5, high: 1e-4, log: true}}
sampler: random
n_trials: {trials + WARM_UP}
budget_usd: 1000000
"""
    )
    shares = Shares()
    ends: list[float] = []
    finished = StudyRunWriter.trial_ended

    def stamp(record: StudyRunWriter, trial: Any) -> None:
        finished(record, trial)
        ends.append(time.perf_counter())
        if len(ends) == WARM_UP:
            shares.seconds.clear()
            shares.calls.clear()

    watched: dict[type, tuple[str, ...]] = {OptunaStudy: ("ask", "tell"), StudyRunWriter: ("_write",)}
    watched[StudyLedger] = tuple(
        name for name, item in vars(StudyLedger).items() if callable(item) and not name.startswith("_")
    )
    with ExitStack() as patches:
        patches.enter_context(shares.watching())
        for owner, names in watched.items():
            for name in names:
                timed = shares.timed(f"{owner.__name__}.{name}", getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, timed))
        patches.enter_context(mock.patch.object(StudyRunWriter, "trial_ended", stamp))
        patches.enter_context(
            mock.patch("paretune.studies.search.stopping.PATIENCE", 2 * (WARM_UP + trials))
        )  # it is to go on
        paretune(["study", "--study", "study.yaml"])
    report([1000 * (after - before) for before, after in itertools.pairwise(ends)], trials, shares)


def run(trials: int, workspace: Path) -> None:
    """Launch the jobs and print what they took."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{workspace / 'mlflow.db'}"
    os.chdir(workspace)

    from paretune.core.interruption import Interruption
    from paretune.jobs.launch import run_job
    from paretune.jobs.workplace import Workplaces

    logging.disable(logging.WARNING)
    table = workspace / "runs.csv"
    write_table(table)
    home = workspace / "home"
    took: list[float] = []
    shares = Shares()
    workplaces = Workplaces(environment={}, interruption=Interruption(), home=home)
    for number, spec in enumerate(specifications(trials + WARM_UP, table)):
        if number == WARM_UP:
            shares.seconds.clear()
            shares.calls.clear()
        with shares.watching():
            start = time.perf_counter()
            run_job(spec, workplaces.of(spec), lambda events: None)
            took.append(1000 * (time.perf_counter() - start))
    report(took, trials, shares)


def report(took: list[float], trials: int, shares: Shares) -> None:
    """Print milliseconds a trial, and what they went to."""
    counted = sorted(took[WARM_UP:])
    ninth = counted[int(0.9 * len(counted))]
    print(f"{trials} trials, milliseconds each: median {statistics.median(counted):.1f}, 90th percentile {ninth:.1f}, ")
    print(f"worst {counted[-1]:.1f}; the first 100 {statistics.median(took[WARM_UP:][:100]):.1f}, ", end="")
    print(f"the last 100 {statistics.median(took[-100:]):.1f} (medians); aim: under {TARGET_MS:g}")
    whole = sum(took[WARM_UP:]) / trials
    print("milliseconds a trial (calls a trial):")
    for name, seconds in sorted(shares.seconds.items(), key=lambda item: -item[1]):
        print(f"  {1000 * seconds / trials:7.2f}  ({shares.calls[name] / trials:5.2f})  {name}")
    print(f"  {whole - 1000 * sum(shares.seconds.values()) / trials:7.2f}           all else")


def main() -> None:
    """Read the arguments, say what is measured on, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--study", action="store_true", help="the command `study`, and not single jobs")
    options = arguments.parse(parser, trials=3)
    trials = options.trials
    print(published.conditions("paretune", "mlflow", "sqlalchemy"))
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        if not options.study:
            run(trials, Path(folder))
        if options.study or options.small:
            run_study(trials, Path(folder))


if __name__ == "__main__":
    main()
