"""paretune's own searches of a table: whole studies on the simulated launcher and SQLite, and the sampler alone."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from paretune.core.clock import SystemClock
from paretune.core.interruption import Interruption
from paretune.jobs.workplace import Workplace
from paretune.launchers.simulated.jobs import VirtualClock
from paretune.launchers.simulated.launcher import SimulatedLauncher
from paretune.launchers.simulated.recorded_runs import COMPLETED, OUT_OF_MEMORY
from paretune.launchers.simulated.timeline import TimelineFactory
from paretune.studies.definition.file import StudyFile, full_name
from paretune.studies.definition.space import Choices, Range
from paretune.studies.record import open_run
from paretune.studies.results.trials import Trial
from paretune.studies.sampler.sampler import SplitSampler
from paretune.studies.search.driver import Driver
from paretune.studies.search.next_job import Split
from paretune.studies.search.table import StudyTable, distribution_of
from paretune.studies.trial_status import TrialStatus
from paretune.tracking.store import Tracking
from search.peers import Asking
from search.scoring import EndedJob
from search.tables import Costs, Outcome, Point, Table

_EMPTY = Path(tempfile.gettempdir()) / f"paretune-search-{os.getpid()}"


def search(table: Table, *, seed: int, budget_usd: float, most: int) -> list[EndedJob]:
    """Run one study to its end, and return its jobs in the order in which they ended.

    The study gets the budget as users set it: a job whose worst case exceeds what is left is refused.
    """
    content = {
        "name": "search",
        "job": {**table.job, "simulation": {"seed": seed}},
        "search": {name: entry(table, name) for name in table.axes},
        "objectives": goals_of(table),
        "constraints": table.constraints,
        "seed": seed,
        "budget_usd": budget_usd,
        "n_trials": most,
        "sampler": "split",
    }
    with empty_home() as home:
        return run(StudyFile.read(content), table, home)


@contextmanager
def empty_home() -> Iterator[Path]:
    """Yield a folder for studies that know about one another, with its own empty MLflow store."""
    with tempfile.TemporaryDirectory(prefix="paretune-search-", dir=_fast_folder()) as folder:
        home = Path(folder)
        _empty_store(home / "mlflow.db")
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{home / 'mlflow.db'}"
        yield home


def goals_of(table: Table) -> dict[str, str]:
    """Return the objectives of a table, with their directions."""
    return {"cost_usd": "minimize", table.metric: "maximize"}


def entry(table: Table, name: str) -> Choices | Range:
    """Return the values of an axis that a study searches."""
    values = table.axes[name]
    return Range(low=values[0], high=values[-1], log=True) if name in table.ranges else Choices(values=values)


def run(file: StudyFile, table: Table, home: Path) -> list[EndedJob]:
    """Run a study to its end in a folder of `empty_home`, and return its jobs in the order in which they ended."""
    clock = VirtualClock(home)
    tracking = Tracking({}, clock)
    storage = f"sqlite:///{home / 'studies.db'}"
    kept = StudyTable(file, storage, origin="simulated")
    course = TimelineFactory(predict=lambda *_: None)
    setattr(course, "read_user_runs" if table.metric != "f1" else "read_table", lambda path: table.runs)  # read once
    names = {full_name(file.job.given(), name): name for name in table.axes}
    ended: list[EndedJob] = []
    goals = goals_of(table).keys()

    def finished(trial: Trial) -> None:
        point = None if trial.is_probe else {names[name]: value for name, value in trial.point.items()}
        is_done = trial.status is TrialStatus.COMPLETED and point is not None and goals <= trial.values.keys()
        ended.append(
            EndedJob(
                usd=trial.cost_usd or 0.0,
                point=point,
                costs=(trial.values["cost_usd"], -trial.values[table.metric]) if is_done else None,
                status=trial.status.value if point is not None else f"Probe {trial.status.value}",
            )
        )

    driver = Driver(  # writes no pages
        file,
        kept,
        run_id=open_run(tracking, kept, file),
        workplace=Workplace(
            launcher=SimulatedLauncher(home, clock, table.environment, course),
            home=home,
            clock=clock,
            environment=table.environment,
            interruption=Interruption(),
            store=tracking,
        ),
        on_trial=finished,
        say=lambda text: None,
    )
    driver.run(Split(driver).propose)
    return ended


class Sampler(Asking):
    """paretune's sampler alone, in a study of plain Optuna: one job at a time, and nothing is recorded."""

    def __init__(self, table: Table, *, stop: bool = True) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        searched = {name: distribution_of(name, entry(table, name)) for name in table.axes}
        self._sampler = SplitSampler(
            table.job,
            searched,
            objectives=tuple(goals_of(table)),
            price_of=lambda spec: table.usd(spec, 1.0),
            rows=table.rows,
            constraints=table.constraints,
            stop=stop,
        )
        runs = {str(point) for point in table.points}
        self._sampler.accepts = lambda job, expected: str({n: job.point[n] for n in table.axes}) in runs  # no holes
        directions = [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE]
        self._study = optuna.create_study(directions=directions, sampler=self._sampler)
        self._table = table
        self.ends_after: int | None = None  # number of jobs after which a sampler that may stop would have ended

    def ask(self) -> tuple[Any, Point] | None:
        """Return the next job, with what the sampler sets itself, or None when the search is over."""
        if self._sampler.is_done(self._study):
            return None
        decision = self._sampler._decision(self._study)
        if self.ends_after is None and decision.beliefs.has_quality and decision.why_over:
            self.ends_after = len(self._study.trials)
        trial = self._study.ask(self._sampler.space)
        own = {name: value for name, value in trial.params.items() if name not in self._table.axes and value > 0}
        return trial, {name: trial.params[name] for name in self._table.axes} | own

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Report the end of a job to Optuna: its seconds, and its values unless it failed."""
        handle.set_user_attr("seconds", outcome.seconds)
        if outcome.status != COMPLETED or not outcome.steps:
            handle.set_user_attr("outcome", "out_of_memory" if outcome.status == OUT_OF_MEMORY else "failed")
            self._study.tell(handle, state=TrialState.FAIL)
            return
        handle.set_user_attr("startup_seconds", outcome.startup_s)
        handle.set_user_attr("step_seconds", (outcome.seconds - outcome.startup_s) / outcome.steps)
        if costs is None:
            self._study.tell(handle, state=TrialState.PRUNED)
        else:
            self._study.tell(handle, [costs[0], -costs[1]])


def _fast_folder() -> str | None:
    """Return a folder in memory if there is one, because SQLite waits for the disk after each write."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def _empty_store(path: Path) -> None:
    """Copy an empty MLflow store to a path; making one takes seconds, so each process does it once."""
    made = _EMPTY.with_name(f"{_EMPTY.name}-{os.getpid()}.db")
    if not made.exists():
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{made}"
        Tracking({}, SystemClock())
    shutil.copyfile(made, path)
