"""Jobs that run for a number of polls and then end as the test decides, and a launcher for these jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

from paretune.launchers import SAGEMAKER
from paretune.launchers.base import Job, JobStatus, Launcher, Surroundings, WarmPoolStatus
from paretune.specification.container import Event, JobReport
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.price import Price

SMALL, LARGE, OTHER = "ml.g5.xlarge", "ml.g5.2xlarge", "ml.g6.xlarge"
PRICES = {SMALL: 1.0, LARGE: 2.0, OTHER: 4.0}
SECONDS = 36.0  # seconds that every job runs: 0.01 hours
DONE, ENDLESS = COMPLETED, "endless"  # how a job ends
MEMORY = failed(Cause.OUT_OF_MEMORY, "CUDA out of memory")
CAPACITY = failed(Cause.CAPACITY, "no capacity")
INTERNAL = failed(Cause.INTERNAL, "AWS had an internal error")
BROKEN = failed(Cause.ERROR, "broken")
End = Ending | str
FIRST_EVENT = Event(time=1.0, step=1, metrics={"train/loss": 0.5})


def pool(status: str = "Available", seconds: float = 9.0) -> WarmPoolStatus:
    return WarmPoolStatus(status=status, is_kept=status in ("Available", "InUse"), seconds=seconds)


@dataclass
class ScriptedJob(Job):
    """A job that runs for `runs` polls and then ends as `ending` defines. Its events come with the first poll."""

    name: str
    order: Order
    ending: End
    runs: int = 1
    looks: int = 0
    stopped: bool = False
    new_events: list[Event] = field(default_factory=lambda: [FIRST_EVENT])
    pools: dict[str, WarmPoolStatus] = field(default_factory=dict)
    f1: float = 0.75
    eval_loss: float = 0.5
    model: str = "model"
    chosen: str = ""  # the instance type that the service chose from several

    @property
    def run_id(self) -> str:
        return self.order.run_id

    def state(self) -> JobState:
        self.looks += 1
        if self.stopped:
            return JobState.STOPPED
        if self.looks <= self.runs:
            return JobState.RUNNING
        return self.ending.state if isinstance(self.ending, Ending) else JobState.RUNNING

    def events(self) -> list[Event]:
        events, self.new_events = self.new_events, []
        return events

    def stop(self) -> None:
        self.stopped = self.stopped or self.ending == ENDLESS

    def report(self) -> JobReport:
        return JobReport(metrics={"f1": self.f1, "eval_loss": self.eval_loss})

    def phase_seconds(self) -> Mapping[str, float]:
        return {}

    def status(self) -> JobStatus:
        return JobStatus(
            ending=self._end() if self.state().is_terminal else None,
            seconds=SECONDS,
            billable_seconds=SECONDS,
            phase_seconds=self.phase_seconds(),
            report=self.report() if self.ending == DONE and not self.stopped else None,
            model=self.model,
        )

    def _end(self) -> Ending | None:
        if self.stopped:
            return STOPPED
        return self.ending if isinstance(self.ending, Ending) else None

    def chosen_instance_type(self) -> str:
        return self.chosen

    def log_tail(self, lines: int = 15) -> list[str]:
        return ["last line"]

    def new_lines(self) -> list[str]:
        return ["last line"]

    def log_location(self) -> str:
        return "somewhere"

    def warm_pool(self) -> WarmPoolStatus | None:
        return self.pools.get(self.name)

    def release_warm_pool(self) -> None:
        if self.name in self.pools:
            self.pools[self.name] = replace(self.pools[self.name], status="Terminated", is_kept=False)


class ScriptedLauncher(Launcher):
    """Gives each new job the next ending. Its jobs outlive the commands and drivers that watch them."""

    traits = SAGEMAKER
    region = "us-east-1"

    def __init__(self, endings: list[End | Exception]) -> None:
        self.endings = endings
        self.jobs: dict[str, ScriptedJob] = {}
        self.created: list[str] = []
        self.pools: dict[str, WarmPoolStatus] = {}
        self.keeps = False
        self.lock = Lock()  # so that two threads cannot create the same job twice

    @classmethod
    def open(cls, surroundings: Surroundings) -> "ScriptedLauncher":
        raise NotImplementedError  # tests call the constructor, which takes the endings

    def request_of(self, job_name: str) -> str:
        return self.jobs[job_name].order.request if job_name in self.jobs else ""

    def submit(self, order: Order) -> Job:
        with self.lock:
            if (job := self.attach(order.job_name)) is not None:
                return job
            ending = self.endings.pop(0)
            if isinstance(ending, Exception):
                raise ending
            self.created.append(order.job_name)
            if self.keeps:
                self.pools[order.job_name] = pool()
            return self.jobs.setdefault(order.job_name, ScriptedJob(order.job_name, order, ending, pools=self.pools))

    def attach(self, job_name: str) -> Job | None:
        job = self.jobs.get(job_name)
        return None if job is None else replace(job, looks=0, stopped=False, new_events=[])

    def price(self, spec: JobSpec) -> Price | None:
        usd = PRICES.get(spec.instance_type)
        return Price(usd_per_hour=usd, region="r", as_of="2026-01-01", source="test") if usd is not None else None

    @property
    def orders(self) -> list[Order]:
        return [self.jobs[name].order for name in self.created]
