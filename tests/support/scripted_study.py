"""The driver of a study whose jobs end as a test decides, on a clock that moves only while it sleeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paretune.core.interruption import Interruption
from paretune.estimating.forecast import Forecast
from paretune.jobs.attempts import WATCH_INTERVAL_S
from paretune.launchers.base import Job
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.next_job import Sampled, Verification
from paretune.studies.search.table import StudyTable
from paretune.tracking.store import Tracking
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import DONE, SMALL, End, ScriptedLauncher
from tests.support.workplaces import make_workplace

RATES = (1e-5, 2e-5, 3e-5, 4e-5)
Judge = Callable[[JobSpec, int], End | Exception]


def always_done(spec: JobSpec, times: int) -> End:
    """Return the ending of a completed job, as the judge of a `JudgedLauncher`."""
    return DONE


class QuickClock(FakeClock):
    """A fake clock that sleeps forty times as long as it is told, so that an hour passes in a few steps."""

    def sleep(self, seconds: float) -> None:
        super().sleep(40 * seconds)


class JudgedLauncher(ScriptedLauncher):
    """Ends each job as `judge` decides from its specification and the number of earlier jobs with the same one."""

    reads_inputs = False

    def __init__(self, judge: Judge) -> None:
        super().__init__([])
        self.judge = judge
        self.scatter = 0.0  # difference of F1 from one seed to the next
        self.loss_scatter = 0.0  # the same for eval_loss
        self.asked: list[str] = []
        self.specs: dict[str, JobSpec] = {}  # the jobs that were planned, by what they compute

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        self.specs |= {each.spec_hash(): each for each in spec.clusters()}
        return super().place(spec, account=account)

    def submit(self, order: Order) -> Job:
        spec = self.specs[order.offer.computation]
        times = self.asked.count(order.offer.computation)
        self.asked.append(order.offer.computation)
        self.endings = [self.judge(spec, times)]
        job = super().submit(order)
        self.jobs[order.job_name].f1 += self.scatter * (spec.seed - 42)
        self.jobs[order.job_name].eval_loss += self.loss_scatter * (spec.seed - 42)
        return job


def searched(driver: Driver) -> str:
    """Let a driver search, and return why the search ended."""
    return driver.run(Sampled(driver).propose)


def until_ended(driver: Driver) -> None:
    """Let a driver wait for the jobs that it has started."""
    while driver.running:
        driver.poll()
        driver.workplace.clock.sleep(WATCH_INTERVAL_S)


def repeated(driver: Driver, front: Callable[[], StudyFront]) -> tuple[int, dict[int, str]]:
    """Let a driver repeat points of the front. Return the number of repeats, and why points get no more repeats."""
    verification = Verification(driver, front)
    driver.run(verification.propose)
    return sum(trial.repeats is not None for trial in driver.trials.values()), verification.reasons


@dataclass
class Desk:
    """Everything that stays the same when the driver of a study is started again.

    Attributes:
        folder: the folder of the study's storage.
        clock: the clock of tracking and launcher.
        tracking: the store in which runs are recorded.
        launcher: the launcher of all drivers; its jobs outlive the drivers.
        interruption: the Ctrl-C of the drivers.
        said: the drivers' messages to their user.
        ended: the ended trials, in the order in which drivers reported them.
        run_id: the run of the study; "" before the first driver.
        opened: the storages that drivers opened, for `close`.
    """

    folder: Path
    clock: FakeClock
    tracking: Tracking
    launcher: JudgedLauncher = field(default_factory=lambda: JudgedLauncher(always_done))
    interruption: Interruption = field(default_factory=Interruption)
    said: list[str] = field(default_factory=list)
    ended: list[Trial] = field(default_factory=list)
    run_id: str = ""
    opened: list[Any] = field(default_factory=list)

    @property
    def storage(self) -> str:
        """Address of the study's storage."""
        return f"sqlite:///{self.folder / 'studies.db'}"

    def driver(self, **terms: Any) -> Driver:
        """Return a new driver, as if another process had started it.

        By default, its study is a grid over learning rates. `terms` change the keys of the study file.
        """
        standard: dict[str, Any] = {
            "name": "scripted",
            "job": {"instance_type": SMALL, "max_runtime_minutes": 6},
            "search": {"learning_rate": Choices(values=RATES)},
            "objectives": {"cost_usd": "minimize", "f1": "maximize"},
            "sampler": "grid",
            "budget_usd": 100.0,
        }
        terms = standard | terms
        # Estimates do not know how long scripted jobs take.
        file = StudyFile(**{**terms, "job": {"force": "limit"} | terms["job"]})
        self.run_id = self.run_id or self.tracking.create("study").run_id
        table = StudyTable(file, self.storage)
        self.opened.append(table)
        workplace = make_workplace(
            launcher=self.launcher,
            tracking=self.tracking,
            home=self.folder,
            clock=self.clock,
            interruption=self.interruption,
        )
        vars(workplace)["forecast"] = Forecast(None)  # learning from each run would take a fourth of these tests' time
        return Driver(
            file,
            table,
            run_id=self.run_id,
            workplace=workplace,
            on_trial=self.ended.append,
            say=self.said.append,
        )

    def next_driver(self, **terms: Any) -> Driver:
        """Return a new driver that has adopted the jobs of earlier drivers."""
        driver = self.driver(**terms)
        driver.adopt()
        return driver

    def close(self) -> None:
        """Close all storages."""
        for item in self.opened:
            item.close()
