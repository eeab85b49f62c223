"""Shared jobs: one job trains several trials of a study, which share its start-up.

To the study each trial is a `Job` of its own, with state, events, report and its share of the bill. Trials are grouped
as they come; the job of a group is created when no more can come. The job is named after the run of its first trial. A
trial's name is the job's name, a dot and the trial's run, so that a later process finds both from what the run records.

A job that searches is created with a queue, and trials join it while it runs. If it is killed, another attempt of it
goes on with its trials.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from paretune.core.errors import BadInput, LaunchRefused
from paretune.launchers.base import Capacity, Job, JobState, Launcher, job_name, parse_job_name
from paretune.specification.container import (
    Event,
    FailureKind,
    JobDocument,
    JobInputs,
    JobReport,
    MemberEnd,
    TrialQueue,
)
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting

MAY_DIFFER = {
    *affecting(JobSpec, "batch", "quality", "noise", without=("data", "evaluation", "cluster")),
    *("max_runtime_minutes", "max_cost_usd"),
} - {"entry_script", "fine_tuning"}
"""Parameters in which the trials of one job may differ. fine_tuning decides which packages are installed."""


OUT_OF_TIME = "MaxRuntimeExceeded"
"""Beginning of the reason of a job that its maximum runtime has ended, as SageMaker writes it."""


def split_job_name(name: str) -> tuple[str, str]:
    """The name of the job and the run id of the trial in it; "" as run id for a job of its own."""
    shared_job, _, run_id = name.partition(".")
    return shared_job, run_id


def attempt_name(name: str, attempt: int) -> str:
    """The name of the same trial in another attempt of its shared job."""
    job_of_all, run_id = split_job_name(name)
    parsed = parse_job_name(job_of_all)
    return f"{job_name(parsed[0], attempt)}.{run_id}" if parsed is not None else name


def attach(launcher: Launcher, name: str) -> Job | None:
    """The job, or the trial of a shared job, with this name, whoever started it; None if there is none.

    Raises:
        LaunchRefused: the place does not answer.
    """
    job_of_all, run_id = split_job_name(name)
    job = launcher.attach(job_of_all)
    return job if job is None or not run_id else SharedJob.of(job).trial(run_id)


@dataclass
class SharedJob:
    """One job of several trials, each known by its run id."""

    name: str
    job: Job | None = None  # None until it is created
    inputs: JobInputs = field(default_factory=JobInputs)
    documents: dict[str, JobDocument] = field(default_factory=dict)  # of the trials, if this process groups them
    refusal: Exception | None = None  # why the job could not be created
    common: tuple[str, ...] = ()  # the parameters that its trials share, if this process groups them
    ends: dict[str, MemberEnd] = field(default_factory=dict)  # how trials have ended
    queue: TrialQueue | None = None  # the newest one, if the job searches
    stopping: set[str] = field(default_factory=set)  # trials that were asked to stop
    _left_out: set[str] = field(default_factory=set)  # trials that were stopped before the job was created
    _unread: dict[str, list[Event]] = field(default_factory=dict)
    _run_ids: frozenset[str] = frozenset()  # of its trials, as far as they were needed
    _first_event: dict[str, float] = field(default_factory=dict)  # seconds since the epoch
    _last_event: dict[str, float] = field(default_factory=dict)
    _paused: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """The seconds that a paused trial had used, and the time at which it goes on."""

    @classmethod
    def of(cls, job: Job) -> "SharedJob":
        """The shared job of a job that was created before.

        Raises:
            LaunchRefused: it searches, and its queue cannot be read now.
        """
        queue = job.trials.queue()
        if queue is None and job.trials.searches:
            raise LaunchRefused(f"the queue of {job.name} cannot be read now")
        return cls(job.name, job=job, queue=queue)

    def trial(self, run_id: str) -> "TrialOfSharedJob":
        """One of its trials as a job."""
        self._unread.setdefault(run_id, [])
        return TrialOfSharedJob(self, run_id)

    @property
    def count(self) -> int:
        """The number of its trials."""
        return self.job.trials.count if self.job is not None else len(self.documents)

    @property
    def is_forming(self) -> bool:
        """Whether its job is still to be created."""
        return self.job is None and self.refusal is None

    @property
    def is_ready(self) -> bool:
        """Whether its job can be created now; one that searches needs a queue first."""
        return self.is_forming and bool(self.documents) and (self.queue is None or bool(self.queue.order))

    def knows(self, run_id: str) -> bool:
        """Whether the job has this trial. A trial of a job that searches may have failed to join it."""
        self.read_events()
        if self.queue is None or run_id in self.documents or run_id in self._first_event:
            return True
        members = {document.member for document in self.queue.members}
        return run_id in members | self.queue.given_up | {key for key, _ in self.queue.order}

    def direct(self, order: Iterable[tuple[str, int]], given_up: Iterable[str] = (), *, is_complete: bool) -> None:
        """Replace the queue of a job that searches, if it changes, and let the trials join that it does not have.

        Entries of 0 steps are added for all its trials: they train nothing, and tell a later process which it has.

        Raises:
            LostContact: the queue may not have been sent.
        """
        assert self.queue is not None  # it searches
        members = {} if self.job is None else {document.member: document for document in self.queue.members}
        sent = {key for key, _ in self.queue.order} if self.job is not None else self.documents.keys()
        members |= {key: replace(document, queue=None) for key, document in self.documents.items() if key not in sent}
        order = tuple(order)
        queue = TrialQueue(
            version=self.queue.version + (self.job is not None),
            order=order + tuple((key, 0) for key in sorted(sent | members.keys()) if (key, 0) not in order),
            given_up=self.queue.given_up | frozenset(given_up),
            is_complete=is_complete,
            members=tuple(members.values()),
        )
        if self.job is not None:
            if queue == (numbered := replace(self.queue, version=queue.version)):
                return
            self.queue = numbered  # if it cannot be seen to be sent, the job may have it: the next one is newer still
            self.job.trials.direct(queue)
        self.queue = queue

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, or will run."""
        if self.job is None:
            return self.refusal is not None or self._has_no_trials
        return self.job.state().is_terminal

    @property
    def _has_no_trials(self) -> bool:
        return bool(self.documents) and self.stopping >= self.documents.keys()

    def create(self, launcher: Launcher) -> None:
        """Create its job, without the trials that were stopped meanwhile. A refusal is kept for each trial to raise.

        Raises:
            LostContact: the job may have been created.
        """
        if self._has_no_trials:
            return
        self._left_out = self.stopping & self.documents.keys()
        documents = [
            replace(document, queue=None) for run_id, document in self.documents.items() if run_id not in self._left_out
        ]
        document = replace(documents[0], job_name=self.name, members=tuple(documents), queue=self.queue)
        try:
            self.job = launcher.submit(document, self.inputs)
        except (BadInput, LaunchRefused) as error:
            self.refusal = error

    def stop(self, run_id: str) -> None:
        """Stop a trial while the others go on, if the job can be told so; the job with the last of its trials."""
        self.stopping.add(run_id)
        if self.job is None:
            return
        self.read_events()
        if len((self.stopping - self._left_out) | self.ends.keys()) >= self.count:
            self.job.stop()
        else:
            self.job.trials.stop(run_id)

    def is_left_out(self, run_id: str) -> bool:
        """Whether a trial was stopped before the job was created: it does not run and is billed nothing."""
        return run_id in (self.stopping if self.job is None else self._left_out)

    @property
    def is_out_of_time(self) -> bool:
        """Whether its maximum runtime has ended the job."""
        failure = self.job.failure() if self.job is not None and self.job.state().is_terminal else None
        return failure is not None and failure[1].startswith(OUT_OF_TIME)

    @property
    def started(self) -> set[str]:
        """The trials of which the job has sent an event. It may send events of others, which take no share."""
        if self.job is not None and not self._first_event.keys() <= self._run_ids:
            self._run_ids = self.job.trials.run_ids()
        return {run_id for run_id in self._first_event if run_id in self._run_ids or not self._run_ids}

    def read_events(self) -> None:
        """Read the job's new events and keep them for its trials."""
        for event in self.job.events() if self.job is not None else ():
            if not event.member:  # of the whole job
                for unread in self._unread.values():
                    unread.append(event)
                continue
            self._first_event.setdefault(event.member, event.time)
            self._last_event[event.member] = event.time
            used_s, goes_on = self._paused.get(event.member, (0.0, event.time))
            if event.paused is not None:
                self._paused[event.member] = event.paused, None
            elif goes_on is None:
                self._paused[event.member] = used_s, event.time
            if event.ended and (end := MemberEnd.read(event.ended)) is not None:
                self.ends.setdefault(event.member, end)
            if event.metrics or event.message or event.paused is not None:
                self._unread.setdefault(event.member, []).append(replace(event, member="", ended={}))

    def events(self, run_id: str) -> list[Event]:
        """The new events of a trial and of the whole job."""
        self.read_events()
        events, self._unread[run_id] = self._unread[run_id], []
        return events

    def share_s(self, run_id: str, total_s: float) -> float:
        """A trial's share of `total_s` seconds of the job: its own training and an equal share of the rest.

        The shares of all trials add up to `total_s`.
        """
        if self.is_left_out(run_id):
            return 0.0
        training_s, rest_s = self._split_s(total_s)
        return training_s.get(run_id, 0.0) + rest_s * self.part(run_id)

    def part(self, run_id: str) -> float:
        """A trial's part of what is spent on no single one; 0 for a trial that a job that searches has not begun."""
        if self.queue is None:
            return 1 / max(1, self.count)
        parsed = parse_job_name(self.name)
        sharers = self.started or ({parsed[0]} if parsed is not None else self.documents.keys())
        return 1 / len(sharers) if run_id in sharers else 0.0

    def spared_s(self, run_id: str, total_s: float) -> float:
        """The part of the seconds around a training that the other trials bear.

        In a job that searches, the seconds between its first and its last event of a trial are around no training, and
        its upload is that of all models.
        """
        rest_s = self._split_s(total_s)[1]
        around_s = rest_s
        if self.queue is not None and self._first_event and self.job is not None:
            span_s = max(self._last_event.values()) - min(self._first_event.values())
            models = max(1, sum(end.report is not None for end in self.ends.values()))
            around_s = max(0.0, total_s - span_s) - self.job.phase_seconds().get("uploading", 0.0) * (1 - 1 / models)
        return around_s - rest_s * self.part(run_id)

    def _split_s(self, total_s: float) -> tuple[dict[str, float], float]:
        """Seconds of each trial's training, and the rest, such as start-up; together `total_s`."""
        self.read_events()
        training_s = {
            run_id: self.ends[run_id].seconds if run_id in self.ends else self.used_s(run_id) for run_id in self.started
        }
        sum_s = sum(training_s.values())
        scale = min(1.0, total_s / sum_s) if sum_s > 0 else 0.0  # the clocks of two machines may differ
        return {run_id: seconds * scale for run_id, seconds in training_s.items()}, total_s - sum_s * scale

    def used_s(self, run_id: str) -> float:
        """Seconds of the job that a trial which has not ended has used until its last event."""
        if run_id not in self._first_event:
            return 0.0
        used_s, goes_on = self._paused.get(run_id, (0.0, self._first_event[run_id]))
        return used_s + (0.0 if goes_on is None else max(0.0, self._last_event[run_id] - goes_on))

    def next_attempt(self) -> int | None:
        """Number of the attempt that goes on with a job that searches and was killed; None if there is none.

        A second attempt is made in any case, a later one if the attempt before it came as far as a pause.
        """
        parsed = parse_job_name(self.name)
        failure = self.job.failure() if self.job is not None and self.job.state().is_terminal else None
        if self.queue is None or parsed is None or failure is None or failure[0] is not FailureKind.ERROR:
            return None
        may_go_on = parsed[1] == 1 or bool(self._paused or self.ends)
        return parsed[1] + 1 if may_go_on and not failure[1].startswith(OUT_OF_TIME) else None


class TrialOfSharedJob(Job):
    """One trial of a shared job. It ends with the job, because only then is the bill known."""

    def __init__(self, shared: SharedJob, run_id: str) -> None:
        self.name = f"{shared.name}.{run_id}"
        self.shared = self._shared = shared
        self._run_id = run_id

    def state(self) -> JobState:
        """RUNNING until the whole job has ended, also before it is created.

        Raises:
            BadInput, LaunchRefused: the job was refused.
        """
        shared = self._shared
        if shared.refusal is not None:
            raise shared.refusal
        if shared.is_left_out(self._run_id):
            return JobState.STOPPED
        if shared.job is None:
            return JobState.RUNNING
        state = shared.job.state()
        if not state.is_terminal:
            is_stopping = self._run_id in shared.stopping or state is JobState.STOPPING
            return JobState.STOPPING if is_stopping else JobState.RUNNING
        end = self.end
        if end is None:
            if self._is_cut_off:
                return JobState.STOPPED
            return JobState.FAILED if state is JobState.COMPLETED else state
        if end.report is not None:
            return JobState.COMPLETED
        return JobState.STOPPED if end.failure is None else JobState.FAILED

    def events(self) -> list[Event]:
        """The new events of this trial, and of the job as a whole."""
        return self._shared.events(self._run_id)

    def stop(self) -> None:
        """Ask for the end of this trial; nothing happens if the job can be stopped only as a whole."""
        self._shared.stop(self._run_id)

    def report(self) -> JobReport | None:
        """The result of this trial."""
        end = self.end if self.state() is JobState.COMPLETED else None
        return None if end is None else end.report

    def failure(self) -> tuple[FailureKind, str] | None:
        """The failure of this trial, or of the whole job if that ended during the trial or before it began."""
        job = self._shared.job
        if job is None or self._shared.is_left_out(self._run_id) or not job.state().is_terminal:
            return None
        if (end := self.end) is not None:
            return end.failure
        if self._is_cut_off:
            return None
        if job.state() is JobState.COMPLETED:
            if self._shared.queue is not None and self._run_id not in self._shared.started:
                return FailureKind.UNTRIED, f"the job {job.name} ended before this trial began"
            return FailureKind.ERROR, f"the shared job {job.name} has not reported how this trial ended"
        failure = job.failure()  # None if it was stopped
        if failure is None or failure[0] in {FailureKind.CAPACITY, FailureKind.OFF_PLAN}:
            return failure
        kind, reason = failure
        if self._run_id not in self._shared.started:
            return FailureKind.UNTRIED, f"the shared job {job.name} ended before this trial began: {reason}"
        others = self._shared.started - {self._run_id, *self._shared.ends}  # several are trained side by side
        if others and kind is FailureKind.OUT_OF_MEMORY:
            return FailureKind.CROWDED, f"beside {len(others)} other trials: {reason}"
        return failure

    @property
    def end(self) -> MemberEnd | None:
        """The end of this trial, as the job has reported it; None while it goes on."""
        self._shared.read_events()
        return self._shared.ends.get(self._run_id)

    def next_attempt(self, document: JobDocument, launcher: Launcher) -> tuple[JobDocument, str] | None:
        """The attempt after a job that searches and was killed, and a message about it; None if there is none.

        `document` is that of this attempt. All trials that had not ended go on from their checkpoints, within the time
        that the whole job had; attempts that had ended when this trial joined count.
        """
        number, job = self._shared.next_attempt(), self._shared.job
        if number is None or job is None or self.end is not None:
            return None
        name = attempt_name(self.name, number)
        before = [attempt_name(self.name, attempt) for attempt in range(document.attempt, number - 1)]
        jobs = [job, *(launcher.attach(split_job_name(earlier)[0]) for earlier in before)]
        spent_s = document.spent_seconds + sum(each.billable_seconds() for each in jobs if each is not None)
        again = replace(document, job_name=name, attempt=number, spent_seconds=spent_s)
        reason = (job.failure() or ("", "it was killed"))[1]
        message = f"{job.name}: {reason}: the search goes on in {split_job_name(name)[0]}"
        return (again, message) if again.max_seconds > 0 else None

    def capacity(self) -> Capacity:
        """Whether the whole job has lost its plan; the instances are not chosen per trial."""
        job = self._shared.job
        return Capacity(has_lost_plan=job is not None and job.capacity().has_lost_plan)

    def seconds(self) -> float:
        """The trial's share of the job's wall-clock seconds."""
        job = self._shared.job
        return 0.0 if job is None else self._shared.share_s(self._run_id, job.seconds())

    def billable_seconds(self) -> float:
        """The trial's share of the seconds billed per instance."""
        job = self._shared.job
        return 0.0 if job is None else self._shared.share_s(self._run_id, job.billable_seconds())

    def phase_seconds(self) -> Mapping[str, float]:
        """An equal share of each phase that all trials have in common; the training is in `seconds`."""
        shared = self._shared
        if shared.job is None or shared.is_left_out(self._run_id):
            return {}
        common = {phase: seconds for phase, seconds in shared.job.phase_seconds().items() if phase != "training"}
        return {phase: seconds * shared.part(self._run_id) for phase, seconds in common.items()}

    def spared_seconds(self) -> float:
        """Seconds that a job of its own would be billed in addition: the start-up that other trials bear."""
        job = self._shared.job
        return 0.0 if job is None else self._shared.spared_s(self._run_id, job.billable_seconds())

    def detail(self) -> str:
        """The phase of the whole job."""
        return self._shared.job.detail() if self._shared.job is not None else ""

    def facts(self) -> dict[str, str]:
        """The facts of the job, its name and the number of its trials."""
        facts = self._shared.job.facts() if self._shared.job is not None else {}
        return {**facts, "shared_job": self._shared.name, "trials_in_job": str(self._shared.count)}

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines that the whole job printed."""
        return self._shared.job.log_tail(lines) if self._shared.job is not None else []

    def log_location(self) -> str:
        """The place of the log of the whole job."""
        return self._shared.job.log_location() if self._shared.job is not None else "nowhere: it was not created"

    def model_location(self) -> str:
        """The trial's folder in the job's model: a path, or the job's archive and the folder in it."""
        model = self._shared.job.model_location() if self._shared.job is not None else ""
        folder = f"members/{self._run_id}"
        return str(Path(model) / folder) if Path(model).is_dir() else f"{model} ({folder})"

    def clean_up(self) -> None:
        """Remove the checkpoints once every trial has completed, or ended in a job that searches."""
        shared = self._shared
        count = sum(end.report is not None or shared.queue is not None for end in shared.ends.values())
        if shared.job is not None and count == shared.count:
            shared.job.clean_up()

    @property
    def _is_cut_off(self) -> bool:
        """Whether the maximum runtime of a job that searches has ended this trial, which counts as stopped."""
        shared = self._shared
        return shared.queue is not None and shared.is_out_of_time and self._run_id in shared.started


class SharedJobs:
    """The shared jobs of one process: groups trials and creates the jobs of the groups.

    Args:
        at_a_time: the number of jobs that may run at a time.
        on_created: called for each job that is created.
    """

    def __init__(self, launcher: Launcher, at_a_time: int, on_created: Callable[[], None]) -> None:
        self._launcher = launcher
        self._at_a_time = at_a_time
        self._on_created = on_created
        self._jobs: dict[str, SharedJob] = {}

    def name_for(self, spec: JobSpec, run_id: str, *, searches: bool = False) -> str:
        """The name of a new trial: in a group that still has room for it, or as the first trial of a new group.

        `searches` is for a trial of the job that searches, which it may join while that runs.
        """
        if (shared := self.searching if searches else self._with_room(spec)) is None:
            name, queue = job_name(run_id, 1), TrialQueue() if searches else None
            shared = self._jobs[name] = SharedJob(name, common=common_parameters(spec), queue=queue)
        return f"{shared.name}.{run_id}"

    def beside(self, spec: JobSpec) -> list[JobSpec]:
        """The trials with whose job a new trial ends, or for whose jobs it waits."""
        if spec.trials_per_job == 1:
            return []
        group = self._with_room(spec)
        jobs = [shared for shared in self._jobs.values() if shared.queue is None and not shared.has_ended]
        waits = [group] if group is not None else jobs if len(jobs) >= self._at_a_time else []
        return [document.spec for shared in waits for document in shared.documents.values()]

    def _with_room(self, spec: JobSpec) -> SharedJob | None:
        common = common_parameters(spec)
        for shared in self._jobs.values():
            has_room = shared.is_forming and shared.queue is None and len(shared.documents) < spec.trials_per_job
            if has_room and shared.common == common:
                return shared
        return None

    @property
    def searching(self) -> SharedJob | None:
        """The job that searches, forming or running; None if there is none."""
        return next((job for job in self._jobs.values() if job.queue is not None and not job.has_ended), None)

    def attach(self, name: str) -> Job | None:
        """The job or trial with this name. Trials of one job share its events, unlike with the function `attach`."""
        job_of_all, run_id = split_job_name(name)
        if not run_id:
            return self._launcher.attach(name)
        shared = self._jobs.get(job_of_all)
        if shared is None or (shared.is_forming and not shared.documents):
            job = self._launcher.attach(job_of_all)
            if job is None:
                return None
            shared = self._jobs[job_of_all] = SharedJob.of(job)
        if shared.job is None or not (shared.knows(run_id) or shared.has_ended):
            return None
        return shared.trial(run_id)

    def submit(self, document: JobDocument, inputs: JobInputs) -> Job:
        """Add a trial to the group in its name; a job of its own is created at once."""
        job_of_all, run_id = split_job_name(document.job_name)
        if not run_id:
            return self._launcher.submit(document, inputs)
        shared = self._jobs.setdefault(job_of_all, SharedJob(job_of_all, queue=document.queue))
        shared.inputs = inputs
        shared.documents[run_id] = document
        return shared.trial(run_id)

    def create_jobs(self) -> list[str]:
        """Create the jobs of the groups as they are now, oldest first, up to `at_a_time` running jobs.

        Returns:
            Why AWS or this machine refused jobs; each of their trials raises the same.

        Raises:
            LostContact: a job may have been created.
        """
        self._jobs = {name: shared for name, shared in self._jobs.items() if not shared.has_ended}
        running, refusals = sum(not shared.is_forming for shared in self._jobs.values()), []
        for shared in self._jobs.values():
            if running < self._at_a_time and shared.is_ready:
                shared.create(self._launcher)
                if isinstance(shared.refusal, LaunchRefused):
                    refusals.append(str(shared.refusal))
                elif shared.job is not None:
                    running += 1
                    self._on_created()
        return refusals


def common_parameters(spec: JobSpec) -> tuple[str, ...]:
    """The parameters that all trials of a job share, as texts."""
    texts = spec.as_text()
    return tuple(f"{item.name}={texts.get(item.name, '')}" for item in fields(spec) if item.name not in MAY_DIFFER)
