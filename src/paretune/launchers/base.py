"""The seam between paretune and the places where jobs run: `Launcher` and `Job`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from paretune.pricing.budget import admit
from paretune.pricing.prices import Price
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs, JobReport
from paretune.specification.job import JobSpec

CREATED_WITHIN_S = 600.0
"""Seconds between the recording of a job's name and its creation: its code is uploaded meanwhile."""


NAMED = "paretune-"
"""How the names of jobs begin."""
NAMED_BY_QUEUE = "AWSBatch"
"""How the names of the training jobs begin that AWS Batch creates; the beginning of the job's own name follows, then 32
hexadecimal digits. Source: the managed policy AWSBatchServiceRolePolicyForSageMaker and the examples of the AWS Batch
user guide, read 2026-11-22."""


def job_name(run_id: str, attempt: int) -> str:
    """A pure function of run and attempt, so that a job is found again and never started twice.

    At most 63 letters, digits and hyphens, as SageMaker wants it.
    """
    return f"{NAMED}{run_id}-{attempt}"


def run_of(name: str) -> tuple[str, int] | None:
    """Run and attempt that a job's name was made from; None for a name that `job_name` has not made."""
    run_id, _, attempt = name.removeprefix(NAMED).rpartition("-")
    return (run_id, int(attempt)) if name.startswith(NAMED) and run_id and attempt.isdigit() else None


class JobState(Enum):
    """Where a job is in its life. The three terminal states stick."""

    RUNNING = "Running"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended and its state will not change any more."""
        return self in {JobState.COMPLETED, JobState.FAILED, JobState.STOPPED}


@dataclass(frozen=True, kw_only=True)
class WarmPool:
    """Instances that are kept after a job, for the next one like it, and billed meanwhile.

    Attributes:
        status: the launcher's own word.
        is_kept: whether they are billed still.
        seconds: billed so far per instance, after the job's own.
        most_seconds: billed at most per instance; 0 where the job never had an instance.
        reused_by: name of the job that has taken them over; empty where none has.
    """

    status: str
    is_kept: bool
    seconds: float
    most_seconds: float
    reused_by: str = ""


class Job(ABC):
    """One training on one cluster. Made by a launcher, never by hand.

    Every method may be called from the process that submitted the job or from one that attached to it. None blocks.
    """

    name: str

    @abstractmethod
    def state(self) -> JobState:
        """The state now. Once terminal, always the same."""

    @abstractmethod
    def events(self) -> list[Event]:
        """Events since this object was last asked, oldest first; each is given once. After the end, the rest."""

    def printed(self) -> list[str]:
        """Lines that a project's command has printed since this object was last asked; none of our training."""
        return []

    @abstractmethod
    def stop(self) -> None:
        """Ask the job to checkpoint and stop; a job that has ended is left alone. Poll `state` until it is terminal."""

    def trials(self) -> int:
        """How many trials of a study it trains; more than 1 for a shared job."""
        return 1

    def stop_trial(self, key: str) -> None:  # noqa: B027  # only some places can tell a running job something
        """Ask for the end of one trial of a shared job while the others go on; without effect where that cannot be.

        It may take a while until the job knows.
        """

    @abstractmethod
    def report(self) -> JobReport | None:
        """What came out; None unless the state is COMPLETED."""

    @abstractmethod
    def failure(self) -> tuple[FailureKind, str] | None:
        """Kind and one sentence; None unless the state is FAILED, or STOPPED by something else than `stop`."""

    def selected_instances(self) -> tuple[str, int] | None:
        """The instance type that was taken of those to choose from, and how many; None without a choice, or before."""
        return None

    def has_lost_plan(self) -> bool:
        """Whether it is billed on demand although it was asked for on a training plan."""
        return False

    @abstractmethod
    def seconds(self) -> float:
        """Wall time from the start to the end, or to now."""

    def billable_seconds(self) -> float:
        """What is billed per instance, so far."""
        return self.seconds()

    def spared_seconds(self) -> float:
        """What it would have been billed beyond `billable_seconds` as a job of its own: start-up that others share."""
        return 0.0

    def warm_pool(self) -> WarmPool | None:
        """The instances kept after this job, which has ended; None where none were asked for.

        Raises:
            LostContact: how long they are billed cannot be asked now.
        """
        return None

    def release(self) -> None:  # noqa: B027  # there is nothing to release, unless a launcher says so
        """Give back the instances kept after this job.

        Raises:
            LostContact: it cannot be asked for now: they are kept and billed.
        """

    def detail(self) -> str:
        """Where in its state the job is, in the launcher's own words; empty where there is nothing to say."""
        return ""

    def facts(self) -> dict[str, str]:
        """What the record should say of where the job ran; recorded as tags `paretune.*`."""
        return {}

    @abstractmethod
    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines the job printed."""

    @abstractmethod
    def log_location(self) -> str:
        """Where the whole log is."""

    @abstractmethod
    def model_location(self) -> str:
        """Where the trained model is, once the state is COMPLETED."""

    def results(self) -> Path | None:
        """The folder of what it left beside its model, where that lies on this machine; None anywhere else."""
        return None

    def save_results(self, path: Path) -> bool:
        """Write the archive of what the job left in its output folder to `path`; False when there is none.

        Raises:
            LostContact: it cannot be read now.
        """
        return False

    def profile(self) -> Mapping[str, bytes]:
        """The files of its profile by name: trace.json.gz, profile.json and profile.md; empty where it has left none.

        Raises:
            LostContact: they cannot be read now.
        """
        return {}

    def clean_up(self) -> None:  # noqa: B027  # nothing to remove, unless a launcher says so
        """Remove what only an unfinished job needs, such as checkpoints far away; the job has completed."""


class Launcher(ABC):
    """A place where jobs run."""

    name: str

    origin = "measured"
    """How the figures of its jobs are obtained: measured or simulated. Recorded as `paretune.origin`."""
    reads_inputs = True
    """Whether its jobs need the prepared rows and the model; else `submit` gets none."""
    is_billed = True
    """Whether somebody is billed for its jobs, or would be; else their dollars are notional, and use up no budget."""
    outlives = True
    """Whether its jobs go on when the process that started them dies."""
    creates_at_once = False
    """Whether no job appears any more once the process that was to create it has ended."""
    overrun_s = 0.0
    """Seconds that a job may be billed beyond its maximum runtime: until it has stopped, and has uploaded."""
    is_direct = False
    """Whether its jobs write to MLflow themselves while they run."""

    @abstractmethod
    def submit(self, document: JobDocument, inputs: JobInputs) -> Job:
        """Start a job, or adopt the one that has this name already: a job is never started twice.

        Raises:
            ParetuneError: the job could not be started.
        """

    @abstractmethod
    def attach(self, job_name: str) -> Job | None:
        """The job of that name, whoever started it; None when there is none."""

    @abstractmethod
    def price(self, spec: JobSpec) -> Price | None:
        """The hourly price of one instance of this job's cluster; None when it is not known."""

    def admit(self, spec: JobSpec) -> float | None:
        """The most dollars that the job can be billed here, None when its price is not known.

        Raises:
            BudgetRefused: they exceed max_cost_usd, or the price is not known and a limit is set.
        """
        return admit(spec, self.price(spec), self.overrun_s)

    def prepaid_usd(self, spec: JobSpec, seconds: float) -> float | None:
        """Dollars paid in advance, and not billed again, that so many billable seconds use up; None of most jobs."""
        return None

    def plan_remarks(self, spec: JobSpec) -> list[str]:
        """What is known of the capacity that the job would use, or could, and that is paid for in advance."""
        return []

    def most_usd(self, spec: JobSpec) -> float | None:
        """As `admit`, on the dearest of the instance types that the job may run on; None where one's price is unknown.

        Raises:
            BudgetRefused: as `admit`.
        """
        found = [self.admit(one) for one in spec.clusters()]
        return None if None in found else max(usd for usd in found if usd is not None)

    def location_tags(self) -> Mapping[str, str]:
        """Where it is, as tags less their prefix: what `attach` needs (account, region, bucket), or the machine."""
        return {}

    def wake_at(self, moment: float) -> None:  # noqa: B027  # only a virtual clock can pass over a moment
        """Somebody will look again at `moment`, in seconds since the epoch; a virtual clock must not pass over it."""

    def pass_time(self, seconds: float) -> None:  # noqa: B027  # real time passes by itself
        """Nobody looks for so many seconds; a virtual clock advances as it would meanwhile."""

    def check(self, spec: JobSpec) -> None:  # noqa: B027  # nothing to ask, unless a launcher says so
        """Ask everything that can be asked before a job costs anything.

        Raises:
            BadInput: all that stands against the job, at once.
            LaunchRefused: the place does not answer at all.
        """

    def check_offline(self, spec: JobSpec) -> None:
        """What `check` can tell without an account: all of it, unless a launcher says so.

        Raises:
            BadInput: all that stands against the job, at once.
        """
        self.check(spec)

    def check_inputs(self, spec: JobSpec, inputs: JobInputs) -> None:  # noqa: B027  # as above
        """Compare what the job reads and writes with what its instances can hold.

        Raises:
            BadInput: it does not fit.
        """

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """What `submit` would send, secrets masked; nothing is sent. Empty where nothing is."""
        return {}
