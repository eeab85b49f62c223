"""Shared jobs: one job that trains several trials of a study, with one start-up for all of them.

Each trial is a `Job` of its own to whoever watches it: state, events, report, and its share of the bill. A group is
formed as trials come, and its job is created when no more can come. Its name is that of its first trial's run, and the
name of a trial ends with a dot and the trial's run, so that each is found again from what its run has recorded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from paretune.core.errors import BadInput, LaunchRefused
from paretune.launchers.base import Job, JobState, Launcher, job_name
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs, JobReport, MemberEnd
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting

_QUALITY = affecting(JobSpec, "batch", "quality", "noise", without=("data", "evaluation", "cluster"))
_OF_A_TRIAL = {*_QUALITY, "max_runtime_minutes", "max_cost_usd"} - {"entry_script", "fine_tuning"}
"""Parameters in which the trials of one job may differ; of fine_tuning depends what is installed."""


def group_of(name: str) -> tuple[str, str]:
    """Name of the shared job and key of the trial in it; the key is empty in the name of a job of its own."""
    group, _, key = name.partition(".")
    return group, key


def attach(launcher: Launcher, name: str) -> Job | None:
    """The job of that name, whoever started it, or the trial of a shared one; None when there is none.

    Raises:
        LaunchRefused: the place does not answer.
    """
    group, key = group_of(name)
    found = launcher.attach(group)
    return found if found is None or not key else SharedJob(group, job=found).member(key)


@dataclass
class SharedJob:
    """One job of several trials; `job` is None until it is created, `refusal` why it could not be.

    Attributes:
        documents: of its trials, where this process forms it.
    """

    name: str
    job: Job | None = None
    inputs: JobInputs = field(default_factory=JobInputs)
    documents: dict[str, JobDocument] = field(default_factory=dict)
    refusal: Exception | None = None
    ends: dict[str, MemberEnd] = field(default_factory=dict)
    _told: dict[str, list[Event]] = field(default_factory=dict)  # for each trial, of what nobody has asked for yet
    _begun: dict[str, float] = field(default_factory=dict)  # when each was told of first, in seconds since the epoch
    _until: dict[str, float] = field(default_factory=dict)  # and last
    _stopping: set[str] = field(default_factory=set)
    _left_out: set[str] = field(default_factory=set)  # stopped before the job was created

    def member(self, key: str) -> "MemberJob":
        """One of its trials, as a job."""
        self._told.setdefault(key, [])
        return MemberJob(self, key)

    @property
    def count(self) -> int:
        """How many trials it has."""
        return self.job.trials() if self.job is not None else len(self.documents)

    @property
    def is_forming(self) -> bool:
        """Whether its job is not created yet."""
        return self.job is None and self.refusal is None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, or will."""
        if self.job is None:
            return self.refusal is not None or self._is_given_up
        return self.job.state().is_terminal

    @property
    def _is_given_up(self) -> bool:
        return bool(self.documents) and self._stopping >= self.documents.keys()

    def create(self, launcher: Launcher) -> None:
        """Create its job, without the trials that were stopped meanwhile; why it was refused is each trial's to tell.

        Raises:
            LostContact: it may have been created.
        """
        if self._is_given_up:
            return
        self._left_out = self._stopping & self.documents.keys()
        documents = [document for key, document in self.documents.items() if key not in self._left_out]
        group = replace(documents[0], job_name=self.name, members=tuple(documents))
        try:
            self.job = launcher.submit(group, self.inputs)
        except (BadInput, LaunchRefused) as error:
            self.refusal = error

    def stop(self, key: str) -> None:
        """Stop a trial where the job can be told so while others go on; the job, once all that have not ended are."""
        self._stopping.add(key)
        if self.job is None:
            return
        self.read()
        if len((self._stopping - self._left_out) | self.ends.keys()) >= self.count:
            self.job.stop()
        else:
            self.job.stop_trial(key)

    def is_stopping(self, key: str) -> bool:
        """Whether a trial was asked to stop."""
        return key in self._stopping

    def is_left_out(self, key: str) -> bool:
        """Whether a trial was stopped before the job was created: nothing of it runs, and it is billed nothing."""
        return key in self._left_out if self.job is not None else key in self._stopping

    def has_begun(self, key: str) -> bool:
        """Whether the job has told of a trial."""
        return key in self._begun

    def under_way(self) -> set[str]:
        """Trials that have begun and not ended: several where they are trained side by side."""
        return self._begun.keys() - self.ends.keys()

    def read(self) -> None:
        """Take what the job has told since the last call."""
        for event in self.job.events() if self.job is not None else ():
            if not event.member:  # of the whole job
                for waiting in self._told.values():
                    waiting.append(event)
                continue
            self._begun.setdefault(event.member, event.time)
            self._until[event.member] = event.time
            if event.ended and (end := MemberEnd.read(event.ended)) is not None:
                self.ends.setdefault(event.member, end)
            if event.metrics or event.message:
                own = replace(event, member="", ended={})
                self._told.setdefault(event.member, []).append(own)

    def events(self, key: str) -> list[Event]:
        """Of a trial and of the whole job, since the last call."""
        self.read()
        told, self._told[key] = self._told[key], []
        return told

    def share(self, key: str, total: float) -> float:
        """A trial's share of the job's seconds: those spent on it alone, and an equal share of all others.

        The shares of all its trials add up to `total`.
        """
        if self.is_left_out(key):
            return 0.0
        own, around = self._parts(total)
        return own.get(key, 0.0) + around / max(1, self.count)

    def spared(self, total: float) -> float:
        """Seconds around the trainings that a trial does not bear, of `total` of the job."""
        return self._parts(total)[1] * (1 - 1 / max(1, self.count))

    def _parts(self, total: float) -> tuple[dict[str, float], float]:
        """Seconds spent on each trial alone, and all others, such as those of the start-up; `total` together."""
        own = {one: self.ends[one].seconds if one in self.ends else self._so_far(one) for one in self._begun}
        spent = sum(own.values())
        scale = min(1.0, total / spent) if spent > 0 else 0.0  # clocks of two machines may differ
        return {one: seconds * scale for one, seconds in own.items()}, total - spent * scale

    def _so_far(self, key: str) -> float:
        return max(0.0, self._until[key] - self._begun[key])


class MemberJob(Job):
    """One trial of a shared job. It ends when the job ends, for only then is known what the job is billed."""

    def __init__(self, shared: SharedJob, key: str) -> None:
        self.name = f"{shared.name}.{key}"
        self._shared = shared
        self._key = key

    def state(self) -> JobState:
        """RUNNING until the job has ended, also before it is created; raises why it was refused."""
        shared = self._shared
        if shared.refusal is not None:
            raise shared.refusal
        if shared.is_left_out(self._key):
            return JobState.STOPPED
        if shared.job is None:
            return JobState.RUNNING
        whole = shared.job.state()
        if not whole.is_terminal:
            is_stopping = shared.is_stopping(self._key) or whole is JobState.STOPPING
            return JobState.STOPPING if is_stopping else JobState.RUNNING
        end = self._end()
        if end is None:
            return JobState.FAILED if whole is JobState.COMPLETED else whole
        if end.report is not None:
            return JobState.COMPLETED
        return JobState.STOPPED if end.failure is None else JobState.FAILED

    def events(self) -> list[Event]:
        """What was told of this trial, and of the job as a whole."""
        return self._shared.events(self._key)

    def stop(self) -> None:
        """Ask for the end of this trial; without effect where the job can be stopped only as a whole."""
        self._shared.stop(self._key)

    def report(self) -> JobReport | None:
        """What came out of this trial; None unless it has completed."""
        end = self._end() if self.state() is JobState.COMPLETED else None
        return None if end is None else end.report

    def failure(self) -> tuple[FailureKind, str] | None:
        """Of this trial; of the whole job where that ended during it, or before it began."""
        job = self._shared.job
        if job is None or self._shared.is_left_out(self._key) or not job.state().is_terminal:
            return None
        if (end := self._end()) is not None:
            return end.failure
        if job.state() is JobState.COMPLETED:
            return FailureKind.ERROR, f"the shared job {job.name} has not told how this trial ended"
        whole = job.failure()  # of one that was stopped there is none
        if whole is None or whole[0] in {FailureKind.CAPACITY, FailureKind.OFF_PLAN}:
            return whole
        if self._shared.has_begun(self._key):
            others = self._shared.under_way() - {self._key}
            is_crowded = others and whole[0] is FailureKind.OUT_OF_MEMORY
            return (FailureKind.CROWDED, f"beside {len(others)} other trials: {whole[1]}") if is_crowded else whole
        return FailureKind.UNTRIED, f"the shared job {job.name} ended before this trial began: {whole[1]}"

    def has_lost_plan(self) -> bool:
        """Whether the whole job has."""
        return self._shared.job is not None and self._shared.job.has_lost_plan()

    def seconds(self) -> float:
        """The trial's share of the job's wall time."""
        return 0.0 if self._shared.job is None else self._share(self._shared.job.seconds())

    def billable_seconds(self) -> float:
        """The trial's share of what is billed per instance."""
        return 0.0 if self._shared.job is None else self._share(self._shared.job.billable_seconds())

    def spared_seconds(self) -> float:
        """Start-up and end of the job, less the trial's share of them."""
        job = self._shared.job
        self._shared.read()
        return 0.0 if job is None else self._shared.spared(job.billable_seconds())

    def detail(self) -> str:
        """Where in its state the whole job is."""
        return self._shared.job.detail() if self._shared.job is not None else ""

    def facts(self) -> dict[str, str]:
        """Those of the job, its name and the number of its trials."""
        shared = self._shared
        known = shared.job.facts() if shared.job is not None else {}
        return {**known, "shared_job": shared.name, "trials_in_job": str(shared.count)}

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines that the whole job printed."""
        return self._shared.job.log_tail(lines) if self._shared.job is not None else []

    def log_location(self) -> str:
        """Where the log of the whole job is."""
        return self._shared.job.log_location() if self._shared.job is not None else "nowhere: it was not created"

    def model_location(self) -> str:
        """Where the trial's model is: a folder, or an archive and the folder in it."""
        place = self._shared.job.model_location() if self._shared.job is not None else ""
        inside = f"members/{self._key}"
        return str(Path(place) / inside) if Path(place).is_dir() else f"{place} ({inside})"

    def clean_up(self) -> None:
        """Remove checkpoints far away once every trial has completed."""
        shared = self._shared
        if shared.job is not None and sum(end.report is not None for end in shared.ends.values()) == shared.count:
            shared.job.clean_up()

    def _end(self) -> MemberEnd | None:
        self._shared.read()
        return self._shared.ends.get(self._key)

    def _share(self, total: float) -> float:
        self._shared.read()
        return self._shared.share(self._key, total)


class SharedJobs:
    """The shared jobs of one process: forms groups of trials, and creates the jobs of some at a time.

    Args:
        at_a_time: jobs that may run beside each other.
        is_given: called when one was created.
    """

    def __init__(self, launcher: Launcher, at_a_time: int, is_given: Callable[[], None]) -> None:
        self._launcher = launcher
        self._at_a_time = at_a_time
        self._is_given = is_given
        self._known: dict[str, SharedJob] = {}
        self._forming: dict[str, tuple[str, ...]] = {}  # name to what its trials have in common

    def place(self, spec: JobSpec, run_id: str) -> str:
        """The name of a trial: in a group that is still formed, or the first one of another."""
        common = _in_common(spec)
        for name, shared in self._known.items():
            has_room = shared.is_forming and len(shared.documents) < spec.trials_per_job
            if has_room and self._forming.get(name) == common:
                return f"{name}.{run_id}"
        name = job_name(run_id, 1)
        self._known[name] = SharedJob(name)
        self._forming[name] = common
        return f"{name}.{run_id}"

    def attach(self, name: str) -> Job | None:
        """As `attach` of the module; the trials of one job are read together."""
        group, key = group_of(name)
        if not key:
            return self._launcher.attach(name)
        if group not in self._known or (self._known[group].is_forming and not self._known[group].documents):
            found = self._launcher.attach(group)
            if found is None:
                return None
            self._known[group] = SharedJob(group, job=found)
        shared = self._known[group]
        return None if shared.job is None else shared.member(key)

    def submit(self, document: JobDocument, inputs: JobInputs) -> Job:
        """Add a trial to the group of its name; a job of its own is created at once."""
        group, key = group_of(document.job_name)
        if not key:
            return self._launcher.submit(document, inputs)
        shared = self._known[group]
        shared.inputs = inputs
        shared.documents[key] = document
        return shared.member(key)

    def create(self) -> list[str]:
        """Create the jobs of the groups as they are now, the first ones first, while fewer than `at_a_time` run.

        Why jobs were refused by the place, a reason each; it is each trial's to tell, too.

        Raises:
            LostContact: one may have been created.
        """
        self._known = {name: one for name, one in self._known.items() if not one.has_ended}
        running, refused = sum(not one.is_forming for one in self._known.values()), []
        for shared in self._known.values():
            if running < self._at_a_time and shared.is_forming and shared.documents:
                shared.create(self._launcher)
                if isinstance(shared.refusal, LaunchRefused):
                    refused.append(str(shared.refusal))
                elif shared.job is not None:
                    running += 1
                    self._is_given()
        return refused


def _in_common(spec: JobSpec) -> tuple[str, ...]:
    """What the trials of one job have in common."""
    shared: Mapping[str, str] = spec.as_text()
    return tuple(f"{item.name}={shared.get(item.name, '')}" for item in fields(spec) if item.name not in _OF_A_TRIAL)
