"""A whole study of several jobs with one or two drivers, on Optuna's storage and the ledger in memory."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sqlalchemy as sa
import yaml
from optuna.storages import InMemoryStorage

from paretune.ledger.ledger import STUDIES, TRIALS
from paretune.ledger.study_ledger import Lease, StudyLedger
from paretune.specification.container import JobInputs
from paretune.studies.definition.file import StudyFile
from paretune.studies.search import driver as driver_module
from paretune.studies.search import joint, optuna_study, trial_job
from paretune.studies.search.driver import Driver
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.studies.search.waiting import wait_for_others
from tests.histories.history import CLOSE_USD, HOSTS, TYPES, BudgetDatabase, History, usd_of
from tests.histories.world import Heartbeat, Process, World


class _Storage(InMemoryStorage):
    """Optuna's trials, which outlive the processes of a history."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.asked_at: dict[int, float] = {}

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        def create() -> int:
            number = InMemoryStorage.create_new_trial(self, study_id, template_trial)
            self.asked_at[number] = self._world.time
            return number

        return int(self._world.call("optuna", "ask", create))

    def set_trial_state_values(self, *words: Any, **values: Any) -> bool:
        return bool(self._world.call("optuna", "tell", super().set_trial_state_values, *words, **values))


class _Ledger(BudgetDatabase, StudyLedger):
    """The ledger of the study."""

    def __init__(self, study: str, world: World) -> None:
        self._study, self._is_study = study, STUDIES.c.name == study
        self._in_study = TRIALS.c.study == study
        self.lease = Lease(study, self._transaction)
        self.connect_to(world)


class StudyHistory:
    """One study in the world of a history."""

    storage: _Storage

    def __init__(self, history: History, folder: Path) -> None:
        draw = history.world.random
        self.history = history
        self.budget_usd = draw.choice((2.0, 6.0, 30.0))
        self.file = _file(folder, draw.choice((4, 6, 10)), draw.choice((1, 2, 4)), self.budget_usd)
        StudyHistory.storage = _Storage(history.world)

    def drive(self, process: Process) -> None:
        """The command `study`, without its page."""
        workplace = self.history.workplace(process)
        workplace.__dict__["forecast"] = SimpleNamespace(time_of=lambda *_: None, renew=lambda: None)
        ledger = _Ledger(self.file.name, self.history.world)
        if not (run_id := ledger.open("", "{}")):
            run_id = ledger.name_run(workplace.tracking.create("study").run_id)
        driver = Driver(
            self.file,
            OptunaStudy(self.file, "memory:"),
            ledger,
            run_id=run_id,
            workplace=workplace,
            now=process.now,
            on_trial=lambda trial: None,
            say=self.history.world.write,
        )
        try:
            with driver.study.reachable():
                driver.adopt()
                joint.search(driver)
                while wait_for_others(driver, self.history.world.write):
                    joint.search(driver)
            driver.finish()
        except BaseException as error:
            driver.stop(error)
            raise

    def play(self) -> None:
        """Drivers, one or two at a time, some of them killed; the last one ends the study without faults."""
        world, draw = self.history.world, self.history.world.random
        world.trouble = draw.choice((0.005, 0.02))
        for _ in range(draw.randint(1, 4)):
            for delay_s in (0.0, 30.0)[: draw.randint(1, 2)]:
                driver = world.begin(self.drive, draw.choice(HOSTS), delay_s=delay_s, has_faults=True)
                driver.dies_at = draw.choice((None, draw.randint(1, 1500)))
            world.run()
            world.pass_time(draw.choice((0.0, 30.0, 900.0)))
        world.trouble = 0.0
        world.down.clear()
        world.pass_time(400.0)  # after which a driver of another host counts as dead
        world.begin(self.drive, HOSTS[0], has_faults=False)
        world.run()

    def check(self, entries: Any, bills: Mapping[str, float]) -> Iterator[str]:
        """Promises of the study's own ledger that do not hold."""
        booked = defaultdict(float)
        for entry in entries:
            booked[entry.run_id] += entry.booked_usd or 0.0
            if entry.ended is None or entry.kept_usd:
                yield f"trial {entry.trial}: its reservation stays"
        for run_id in {*bills, *booked}:
            if abs(bills.get(run_id, 0.0) - booked[run_id]) > CLOSE_USD:
                yield f"run {run_id[-3:]}: the study books {booked[run_id]:.4f} USD of {bills.get(run_id, 0.0):.4f}"
        if sum(bills.values()) > self.budget_usd + CLOSE_USD:
            yield f"the study has cost {sum(bills.values()):.4f} USD of {self.budget_usd:g}"
        counted = sum(entry.counts for entry in entries)
        if self.file.n_trials is not None and counted > self.file.n_trials:
            yield f"{counted} trials count, of {self.file.n_trials}"


def play_study(history: History, folder: Path) -> None:
    """A study from its first driver to the last, then its oracles; those of all jobs follow in `History.check`."""
    study = StudyHistory(history, folder)
    study.play()
    history.settle()
    is_study = [run_id for run_id, run in history.store.runs.items() if run.data.tags["mlflow.runName"] == "study"]
    for run_id in is_study:  # whose page the command writes, which is left out here
        del history.store.runs[run_id]
    bills: dict[str, float] = defaultdict(float)
    for life in history.cloud.training.lives.values():
        bills[life.run_id] += usd_of(life)
    with BudgetDatabase.engine().begin() as connection:
        entries = connection.execute(sa.select(TRIALS)).all()
    history.broken += study.check(entries, bills)


@cache
def _file(folder: Path, n_trials: int, n_parallel: int, budget_usd: float) -> StudyFile:
    study = {
        "name": "history",
        "job": {"log_model": False, "max_runtime_minutes": 20},
        "search": {
            "instance_type": {"choices": list(TYPES[:2])},
            "per_device_train_batch_size": {"choices": [1, 4, 16]},
            "learning_rate": {"choices": [1e-5, 3e-5, 1e-4]},
        },
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "method": "joint",
        "sampler": "random",
        "n_trials": n_trials,
        "n_parallel": n_parallel,
        "budget_usd": budget_usd,
    }
    path = folder / f"study-{n_trials}-{n_parallel}-{budget_usd}.yaml"
    path.write_text(yaml.safe_dump(study))
    return StudyFile.read(str(path), {})


@contextmanager
def simulated_study() -> Iterator[None]:
    """Put memory and virtual time in place of what studies ask beside jobs."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(optuna_study, "_storage", _memory))
        stack.enter_context(mock.patch.object(OptunaStudy, "running", _running))
        stack.enter_context(mock.patch.object(driver_module, "Heartbeat", Heartbeat))
        stack.enter_context(mock.patch.object(trial_job, "inputs_of", return_value=JobInputs()))
        yield


def _running(study: OptunaStudy) -> dict[int, float]:
    """Unfinished trials with the virtual time at which they were asked for."""
    running = [trial for trial in study._study.get_trials(deepcopy=False) if not trial.state.is_finished()]
    return {trial.number: StudyHistory.storage.asked_at[trial._trial_id] for trial in running}


def _memory(_address: str) -> _Storage:
    return StudyHistory.storage
