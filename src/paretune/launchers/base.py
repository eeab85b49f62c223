"""The interface of all launchers: a `Launcher` starts and finds jobs, and a `Job` is one of its jobs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Self

from paretune.core.clock import Clock, SkippingClock
from paretune.core.errors import BudgetRefused
from paretune.estimating.estimator import Estimate
from paretune.presentation.text import usd
from paretune.pricing import admit, unknown_price, worst_case_usd
from paretune.specification.container import Event, JobDocument, JobInputs, JobReport
from paretune.specification.ending import Ending, JobState
from paretune.specification.job import JobSpec
from paretune.specification.launchers import LauncherTraits
from paretune.specification.order import job_of
from paretune.specification.parallelism import DEVICE_MAP
from paretune.specification.price import Price

CREATED_WITHIN_S = 600.0  # a job may be created this long after its submitter last recorded its name or a sign of life
GONE_AFTER_S = 60.0  # a job is gone if its service reports for this long that it does not exist; one answer is no proof
SHOWN_WITHIN_S = 5.0  # how long to look for a job that an interrupted process may just have created
LOOK_EVERY_S = 2.0  # seconds between two requests for a job that is not visible yet
# Strategies whose checkpoints fit any number of devices.
_RESUMES_ON_ANY_DEVICE_COUNT = ("ddp", "smddp", "fsdp", DEVICE_MAP)


def checkpoint_folder(document: JobDocument) -> str:
    """Return the name of the folder with a job's checkpoints, from which later attempts continue.

    If checkpoints can only be loaded on the same number of devices, each instance type has its own folder.
    """
    spec, job = document.spec, job_of(document.job_name)
    return job if spec.strategy in _RESUMES_ON_ANY_DEVICE_COUNT else f"{job}-{spec.instance_type}"


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
        """Id of the run that first submitted the job (`JobDocument.run_id`).

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

    @abstractmethod
    def log_tail(self, lines: int = 15) -> list[str]:
        """Return the last lines that the job printed."""

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
class JobSetup:
    """The choices that a launcher makes for a job before creating it; a launcher adds its own choices in a subclass.

    For each job, `Launcher.check` makes them once, `check_inputs` completes them, and `submit` uses them.

    Attributes:
        spec: the job with the parameters that come from the launcher's configuration, such as a role.
        recorded: the parameters of `spec` that later attempts and `clean` need; they become a tag of the run.
    """

    spec: JobSpec
    recorded: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Everything that a launcher gets from the command that opens it.

    Attributes:
        home: folder of jobs, checkpoints and prepared data.
        clock: the machine's clock.
        environment: environment variables of the command.
        region: the parameter `region` of the jobs; only launchers with regions use it.
        check: raises Interrupted when the command should end; a launcher calls it during long work.
        predict: returns the estimate of a job whose inputs are not prepared, or None if it cannot be estimated.
    """

    home: Path
    clock: Clock
    environment: Mapping[str, str]
    region: str | None = None
    check: Callable[[], None] = lambda: None
    predict: Callable[[JobDocument], Estimate | None] = lambda _: None


def open_launcher(traits: LauncherTraits, surroundings: Surroundings) -> "Launcher":
    """Return the launcher with these traits. Its module, which may need optional packages, is imported only here."""
    implementation: type[Launcher] = resolve_name(traits.implementation)
    return implementation.open(surroundings)


class Launcher(ABC):
    """Starts jobs in one place, such as this machine, and finds them again."""

    traits: ClassVar[LauncherTraits]  # what other code must know before it opens the launcher
    reads_inputs = True  # whether jobs read the prepared rows and the model; if not, `submit` gets neither
    jobs_outlive_submitter = True  # whether jobs outlive the process that submitted them
    jobs_may_appear_late = True  # whether a job may still appear after the process that submitted it has ended
    stop_s = 0.0  # seconds that a job may take to stop after its maximum runtime
    exceeded_s = 0.0  # most seconds that any job so far was billed beyond its worst case; added to later worst cases
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

    @abstractmethod
    def submit(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> Job:
        """Start a job, or return the job that already has its name. Raises ParetuneError if neither is possible.

        The first attempt of an admitted job has the `setup` that `check_inputs` returned. Without a setup, as for a
        later attempt, the document has all parameters that the job needs, and the launcher makes its other choices now.
        """

    @abstractmethod
    def attach(self, job_name: str) -> Job | None:
        """Return the job with this name, whoever started it, or None if there is none."""

    def find(self, job_name: str, clock: Clock, within_s: float) -> Job | None:
        """Return the job as `attach` does, but retry for `within_s` seconds if jobs may appear late."""
        until = clock.monotonic() + (within_s if self.jobs_may_appear_late else 0.0)
        while (job := self.attach(job_name)) is None and clock.monotonic() < until:
            clock.sleep(LOOK_EVERY_S)
        return job

    @abstractmethod
    def price(self, spec: JobSpec) -> Price | None:
        """Return the hourly price of one instance of the job's cluster, or None if it is unknown."""

    def region(self, spec: JobSpec) -> str:
        """Return the region whose prices apply to a job; "" without regions. Raises BadInput if it is unknown."""
        return ""

    def worst_case_usd(self, spec: JobSpec) -> float | None:
        """Return the most dollars that the job should cost on any of its instance types; None if a price is unknown."""
        prices = [(each, self.price(each)) for each in spec.clusters()]
        known = [
            worst_case_usd(each, price, self.billed_after_limit_s(each) + self.exceeded_s)
            for each, price in prices
            if price is not None
        ]
        return max(known) if len(known) == len(prices) else None

    def admit(self, spec: JobSpec) -> float | None:
        """Return the job's `worst_case_usd`, after checking it against max_cost_usd.

        Raises BudgetRefused if the worst case exceeds max_cost_usd, or if max_cost_usd is set and a price is unknown.
        """
        if spec.max_cost_usd is None:
            return self.worst_case_usd(spec)
        priced = list[tuple[JobSpec, Price, float]]()
        for each in spec.clusters():
            if (price := self.price(each)) is None:
                consequence = f"max_cost_usd, {usd(spec.max_cost_usd)}, cannot be enforced"
                raise BudgetRefused(unknown_price(each.instance_type, self.region(each), consequence))
            priced.append((each, price, self.billed_after_limit_s(each) + self.exceeded_s))
        # Check the most expensive type, so that a limit of the dollars in the refusal covers all types.
        admit(*max(priced, key=lambda one: worst_case_usd(*one)))
        return self.worst_case_usd(spec)

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """Return the most seconds billed beyond a job's maximum runtime, for stopping and uploading results."""
        return self.stop_s

    def deadline_s(self, document: JobDocument) -> float:
        """Return how many seconds after its start the attempt of `document` stops itself.

        A later attempt for which this is 0 or less is not started.
        """
        return document.max_seconds

    def types_of_request(self, spec: JobSpec) -> tuple[str, ...]:
        """Return the instance types that one request names, best first; the service takes the first with capacity."""
        return (spec.instance_type,)

    def location_tags(self) -> Mapping[str, str]:
        """Return where `attach` looks for jobs (account and region, or the machine), as tags without their prefix."""
        return {}

    def check(self, spec: JobSpec) -> JobSetup:
        """Return the launcher's choices for the job, after checking everything that can be checked for free.

        Raises BadInput with all faults that can be found together, and LaunchRefused if a service does not answer.
        """
        return JobSetup(spec=spec)

    def check_inputs(self, setup: JobSetup, inputs: JobInputs) -> JobSetup:
        """Return the setup with the choices that depend on the inputs, such as the size of a disk.

        Raises BadInput if the job cannot run with its inputs.
        """
        return setup

    def check_without_account(self, spec: JobSpec, inputs: JobInputs) -> None:  # noqa: B027  # most need no account
        """Make those checks of `check` and `check_inputs` that need no account. Raises BadInput."""

    def preview(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> Mapping[str, Any]:
        """Return the request that `submit` would send, without secrets; empty if it sends none. Sends nothing."""
        return {}
