"""The interface of all launchers: a `Launcher` starts and finds jobs, and a `Job` is one of its jobs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Self

from paretune.core.clock import Clock, SkippingClock
from paretune.estimating.estimator import Estimate
from paretune.specification.container import Event, JobInputs, JobReport
from paretune.specification.ending import Ending, JobState
from paretune.specification.job import JobSpec
from paretune.specification.launchers import LauncherTraits
from paretune.specification.order import Order, job_of
from paretune.specification.parallelism import DEVICE_MAP, BatchPlan
from paretune.specification.price import Price

CREATED_WITHIN_S = 600.0  # a job may be created this long after its submitter last recorded its name or a sign of life
GONE_AFTER_S = 60.0  # a job is gone if its service reports for this long that it does not exist; one answer is no proof
SHOWN_WITHIN_S = 5.0  # how long to look for a job that an interrupted process may just have created
LOOK_EVERY_S = 2.0  # seconds between two requests for a job that is not visible yet
# Strategies whose checkpoints fit any number of devices.
_RESUMES_ON_ANY_DEVICE_COUNT = ("ddp", "smddp", "fsdp", DEVICE_MAP)


def checkpoint_folder(order: Order) -> str:
    """Return the name of the folder with a job's checkpoints, from which later attempts continue.

    If checkpoints can only be loaded on the same number of devices, each instance type has its own folder.
    """
    job, can_move = job_of(order.job_name), order.payload.strategy in _RESUMES_ON_ANY_DEVICE_COUNT
    return job if can_move else f"{job}-{order.offer.instance_type}"


@dataclass(frozen=True, kw_only=True)
class WarmPoolStatus:
    """The state of the instances that are kept after a job for the next similar one."""

    status: str  # as the service reports it, such as Available or Reused
    is_kept: bool  # whether the instances are still kept, and billed
    seconds: float | None  # seconds billed per instance so far, in addition to the job's own; None if unknown

    def billed_s(self, longest_s: float) -> float:
        """Return the billed seconds, or `longest_s` while instances are kept or if the seconds are unknown."""
        return longest_s if self.is_kept or self.seconds is None else self.seconds


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The seconds and results of a job: partial while it runs, complete once it has ended."""

    ending: Ending | None = None  # how it ended; None while it runs
    seconds: float  # wall-clock seconds from the start to the end, or to now
    billable_seconds: float  # seconds billed per instance
    phase_seconds: Mapping[str, float] = field(default_factory=dict)  # named as in `read_phases`; empty if unknown
    report: JobReport | None = None  # the result of a completed job
    partial: JobReport | None = None  # what a user's own training measured that failed or was stopped
    ended_at: float | None = None  # when it ended, in real seconds since the epoch; None if unknown or simulated
    facts: Mapping[str, str] = field(default_factory=dict)  # about where it ran; recorded as tags `paretune.*`
    model: str = ""  # path or URI of the trained model of a completed job; "" if there is none


class Job(ABC):
    """One training run on one cluster, created by a launcher.

    Any process that submitted the job or attached to it may call any method. No method waits for the job.
    """

    name: str

    @property
    @abstractmethod
    def run_id(self) -> str:
        """Id of the run that first submitted the job (`Order.run_id`).

        Identical jobs of two runs share a name. A launch compares this id to know whether a job belongs to its own run.
        """

    @abstractmethod
    def state(self) -> JobState:
        """Return the state now. A terminal state never changes."""

    @abstractmethod
    def events(self) -> list[Event]:
        """Return the events since the last call, oldest first; after the job's end, all remaining ones.

        No event is returned twice.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask the job to write a checkpoint and stop. Poll `state` until it is terminal."""

    @abstractmethod
    def status(self) -> JobStatus:
        """Return how the job ended, if it has, and its seconds and results."""

    def chosen_instance_type(self) -> str:
        """Return the instance type that the service chose from several.

        Returns "" if there was only one, or if none is chosen yet.
        """
        return ""

    def detail(self) -> str:
        """Return the launcher's own name for the job's phase, such as Downloading; "" if it has none."""
        return ""

    @property
    def launched_by(self) -> str:
        """Who has launched the job, as `core.machine.user_here` names them; "" if it does not say so."""
        return ""

    @abstractmethod
    def log_tail(self, lines: int = 15) -> list[str]:
        """Return the last lines that the job printed."""

    @abstractmethod
    def new_lines(self) -> list[str]:
        """Return the lines that the job has printed since the last call; the first call begins with the last ones."""

    @abstractmethod
    def log_location(self) -> str:
        """Return the path of the whole log, or the command that shows it."""

    def profile(self) -> Mapping[str, bytes]:
        """Return the job's trace.json.gz, profile.json and profile.md by name; empty without a profile.

        Raises LostContact if they cannot be read now.
        """
        return {}

    def warm_pool(self) -> WarmPoolStatus | None:
        """Return the instances kept after the job, or None if there never were any.

        Raises LostContact if the service cannot be asked now.
        """
        return None

    def release_warm_pool(self) -> None:  # noqa: B027  # most launchers keep no instances
        """Release the kept instances. Raises LostContact if they are still kept and billed."""

    def fetch_output(self, name: str, folder: Path) -> Path:
        """Return the folder `name` in the output of a user's own training.

        If it is not on this machine, it is first downloaded to `folder`. The returned folder does not exist if the
        training wrote none. Raises LostContact if the output cannot be read now.
        """
        return folder / name

    def clean_up(self) -> None:  # noqa: B027  # most launchers have nothing to remove
        """Remove what only an unfinished job needs, such as checkpoints in S3. Called after a job has completed."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Everything that a launcher gets from the command that opens it.

    Attributes:
        home: folder of jobs, checkpoints and prepared data.
        clock: the machine's clock.
        environment: environment variables of the command.
        region: the parameter `region` of the jobs; only launchers with regions use it.
        check: raises Interrupted when the command should end; a launcher calls it during long work.
        predict: returns the estimate of a job with a batch, or None if it cannot be estimated. The inputs need not be
            prepared.
    """

    home: Path
    clock: Clock
    environment: Mapping[str, str]
    region: str | None = None
    check: Callable[[], None] = lambda: None
    predict: Callable[[JobSpec, BatchPlan], Estimate | None] = lambda *_: None


def open_launcher(traits: LauncherTraits, surroundings: Surroundings) -> "Launcher":
    """Return the launcher with these traits. Its module, which may need optional packages, is imported only here."""
    implementation: type[Launcher] = resolve_name(traits.implementation)
    return implementation.open(surroundings)


class Launcher(ABC):
    """Starts jobs in one place, such as this machine, and finds them again.

    For each job, `place` and `fit` are called once, before it starts. What they return is in the `Order` of each
    attempt, which `submit` gets. A launcher looks up prices for the plan; the order then fixes price, instance type,
    batch and time limit.
    """

    traits: ClassVar[LauncherTraits]  # what other code must know before it opens the launcher
    reads_inputs = True  # whether jobs read the prepared rows and the model; if not, an order has neither
    jobs_outlive_submitter = True  # whether jobs outlive the process that submitted them
    jobs_may_appear_late = True  # whether a job may still appear after the process that submitted it has ended
    stop_s = 0.0  # seconds that a job may take to stop after its maximum runtime
    uploads_are_billed = False  # whether jobs on instances are also billed for the upload of their results, as on AWS
    has_deadline = False  # whether jobs must stop themselves early enough to save a checkpoint within the limit
    region = ""  # the region of all of its jobs; "" if they have none, or if each has its own
    virtual_clock: SkippingClock | None = None  # the clock of its jobs, if their time is simulated

    @classmethod
    @abstractmethod
    def open(cls, surroundings: Surroundings) -> Self:
        """Return a launcher for a command.

        Raises BadInput or LaunchRefused if something is missing that all of its jobs need, such as an AWS region.
        """

    @property
    def origin(self) -> str:
        """`simulated` if the figures of its jobs are simulated, else `measured`; recorded as `paretune.origin`."""
        return "simulated" if self.traits.is_simulated else "measured"

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        """Return the launcher's choices for a job, such as a role, after checking everything that is free to check.

        The choices are JSON values by name, which become `Order.place`. `offers_of` reads these, each by instance type:
        `requests`, the number of the request that names the type; and `images`, each with `image` and `packages`.

        With `account=False`, nothing is asked that needs an account, and `not_checked` in the result names what was not
        checked instead.

        Raises BadInput with all faults that can be found together, and LaunchRefused if a service does not answer.
        """
        return {}

    def fit(self, spec: JobSpec, place: Mapping[str, Any], inputs: JobInputs) -> Mapping[str, Any]:
        """Return `place` with the choices that depend on a job's inputs, such as `volumes`, in GiB by instance type.

        Raises BadInput if the job cannot run with its inputs.
        """
        return place

    @abstractmethod
    def price(self, spec: JobSpec) -> Price | None:
        """Return the hourly price of one instance of the job's cluster, or None if it is unknown."""

    @abstractmethod
    def submit(self, order: Order) -> Job:
        """Start a job, or return the job that already has its name. Raises ParetuneError if neither is possible.

        If `traits.files_travel`, the order of a later attempt has no inputs: it uses what the first attempt has sent.
        """

    @abstractmethod
    def attach(self, job_name: str) -> Job | None:
        """Return the job with this name, whoever started it, or None if there is none."""

    def request_of(self, job_name: str) -> str:
        """Return `Order.request` of a job, from where neither the job nor MLflow can change it; "" if it is unknown.

        A later attempt that another process starts must have the request of the first one. A launcher that reads its
        own first order back, because files travel, has no use for this.
        """
        return ""

    def find(self, job_name: str, clock: Clock, within_s: float) -> Job | None:
        """Return the job as `attach` does, but retry for `within_s` seconds if jobs may appear late."""
        until = clock.monotonic() + (within_s if self.jobs_may_appear_late else 0.0)
        while (job := self.attach(job_name)) is None and clock.monotonic() < until:
            clock.sleep(LOOK_EVERY_S)
        return job

    def location_tags(self) -> Mapping[str, str]:
        """Return where `attach` looks for jobs (account and region, or the machine), as tags without their prefix."""
        return {}

    def preview(self, order: Order) -> Mapping[str, Any]:
        """Return the request that `submit` would send, without secrets; empty if it sends none. Sends nothing."""
        return {}
