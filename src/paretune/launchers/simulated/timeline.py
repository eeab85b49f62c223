"""The timelines of simulated jobs, in virtual seconds.

Seconds come from recorded runs or an estimate, F1 only from recorded runs. Jobs fail as recorded, if they do not fit
in memory, or at random with the rates in `simulation`. Every random draw is a function of the simulation's seed, the
job's specification hash and seed, and the attempt. So repeating a command repeats its random draws.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from paretune.core.errors import BadInput
from paretune.estimating.estimator import Estimate
from paretune.estimating.phases import BOOT_SECONDS, Seconds, kind_of, phases_of, usual
from paretune.launchers.simulated.recorded_runs import COMPLETED, OUT_OF_MEMORY, ReplayedJob, RunTable
from paretune.launchers.simulated.user_runs import UserRuns
from paretune.presentation.text import duration
from paretune.specification import metrics
from paretune.specification.container import Event, JobReport
from paretune.specification.ending import Cause, Ending, JobState
from paretune.specification.job import JobSpec, Simulation
from paretune.specification.parallelism import BatchPlan

STOP_SECONDS = 5.0
"""Virtual seconds from a stop request to the end of the job, in which a real job writes a checkpoint."""
CAPACITY_SECONDS = 60.0  # virtual seconds until a job fails for lack of capacity; not billed
_UNBILLED = ("Starting", "Pending", "Interrupted")  # SageMaker's secondary statuses in which no instances run
_UPLOADING = "Uploading"
_Key = tuple[object, ...]  # specification hash, seed and attempt of a job, for its random numbers


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Everything that happens to a job until its end.

    Attributes:
        phases: SageMaker's secondary statuses in order, such as Downloading, each with its seconds.
        events: pairs of seconds since the creation and an event, in order of time; an event's own `time` is not used.
        failure: cause of the failure at the end, or of the limit that stopped the job, and a sentence about it.
        report: the result of a job that completes.
        log: the lines that the job prints.
        facts: facts that are recorded as tags of the run.
        is_stopped: whether a stop request or a limit ends the job.
    """

    phases: tuple[tuple[str, float], ...]
    events: tuple[tuple[float, Event], ...] = ()
    failure: tuple[Cause, str] | None = None
    report: JobReport | None = None
    log: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    is_stopped: bool = False

    @cached_property
    def spans(self) -> list[tuple[str, float, float]]:
        """Status, start and end of each phase, in seconds since the creation."""
        ends = list(itertools.accumulate(seconds for _, seconds in self.phases))
        names = [name for name, _ in self.phases]
        return list(zip(names, [0.0, *ends[:-1]], ends, strict=True))

    @property
    def ending(self) -> Ending:
        """How the job ends."""
        state = JobState.COMPLETED if self.failure is None else JobState.FAILED
        return Ending(JobState.STOPPED if self.is_stopped else state, *(self.failure or ()))

    @property
    def seconds(self) -> float:
        """Seconds from the creation to the end."""
        return self.spans[-1][2]

    def billable_seconds(self, until: float = math.inf) -> float:
        """Return for how many seconds instances are running, up to `until` seconds after the creation."""
        running = [(begin, end) for name, begin, end in self.spans if name not in _UNBILLED]
        return sum(max(min(until, end) - begin, 0.0) for begin, end in running)

    def status_at(self, moment: float) -> str:
        """Return the secondary status at `moment` seconds after the creation."""
        return next((name for name, _, end in self.spans if moment < end), self.spans[-1][0])

    def limited(self, limit_s: float) -> "Timeline":
        """Return the timeline of a job that is stopped when its running seconds exceed `limit_s`.

        As on SageMaker, uploads do not count.
        """
        left_s = limit_s
        for name, begin, end in self.spans:
            if name not in (*_UNBILLED, _UPLOADING):
                if left_s < end - begin:
                    sentence = f"it ran longer than {duration(limit_s)}"
                    return self.stopped(begin + left_s, (Cause.TIME_LIMIT, sentence))
                left_s -= end - begin
        return self

    def stopped(self, moment: float, failure: tuple[Cause, str] | None = None) -> "Timeline":
        """Return the timeline of a job that is stopped at `moment`, unless it ends before the stop takes effect."""
        end = moment + (0.0 if self.status_at(moment) in _UNBILLED else STOP_SECONDS)
        if end >= self.seconds:
            return self
        events = [entry for entry in self.events if entry[0] <= moment]
        last = Event(time=0.0, step=max((event.step for _, event in events), default=0), message="stopped")
        # A job that is stopped at the moment of its creation still has its first phase.
        phases = tuple(
            (name, min(ended, end) - begin) for name, begin, ended in self.spans if begin < end or begin == 0
        )
        events.append((end, last))
        return replace(self, phases=phases, events=tuple(events), failure=failure, report=None, is_stopped=True)


TIMELINE = TypeAdapter(Timeline)  # to and from JSON values


@dataclass
class TimelineFactory:
    """Creates the timelines of jobs.

    `predict` returns the estimate of a job with a batch, or None. It is used if there is no table of recorded runs, or
    if the table has no seconds.
    """

    predict: Callable[[JobSpec, BatchPlan], Estimate | None]
    read_table: Callable[[Path], RunTable] = field(default_factory=lambda: functools.cache(RunTable.read))
    read_user_runs: Callable[[Path], UserRuns] = field(default_factory=lambda: functools.cache(UserRuns.read))

    def __call__(self, spec: JobSpec, batch: BatchPlan, attempt: int = 1) -> Timeline:
        """Return the timeline of an attempt of a job with this batch.

        Raises BadInput if the table does not cover it, or if no estimate is possible.
        """
        settings, job = spec.simulation, (spec.spec_hash(), spec.seed, attempt)
        try:
            answer = _with_noise(self._answer(spec, batch), settings, job, is_users=spec.runs_user_code)
        except BadInput as error:
            if batch == spec.plan():
                raise
            # The batch was reduced after an out-of-memory failure, and the table has no run with this batch.
            sentence = f"no recorded run with the smaller per-device batch: {error.faults[0]}"
            return Timeline(phases=(("Pending", 0.0),), failure=(Cause.ERROR, sentence), log=(sentence,))
        if settings.share("capacity", *job) < settings.capacity_error_rate:
            sentence = f"no capacity for {spec.instance_type} (simulated)"
            phases = (("Pending", CAPACITY_SECONDS),)
            return Timeline(phases=phases, failure=(Cause.CAPACITY, sentence), log=(sentence,))
        return _timeline(spec, batch, answer, job)

    def _answer(self, spec: JobSpec, batch: BatchPlan) -> ReplayedJob:
        settings, replayed = spec.simulation, None
        if settings.runs is not None and spec.runs_user_code:
            own = self.read_user_runs(Path(settings.runs))
            return own.answer(spec, draw=settings.seed, startup_seconds=settings.startup_seconds)
        if settings.runs is not None:
            table = self.read_table(Path(settings.runs))
            replayed = table.answer(spec, batch, draw=settings.seed, startup_seconds=settings.startup_seconds)
            if "billable_seconds" in table.columns or replayed.status != COMPLETED:
                return replayed
        estimate = self.predict(spec, batch)
        if estimate is None:
            remedy = "set simulation.runs to a table of recorded runs, or set max_train_samples"
            raise BadInput([f"the seconds of this job cannot be estimated: {remedy}"])
        basis, memory = f"the estimate ({estimate.basis})", estimate.memory
        if memory is not None and (estimate.did_not_fit is not None or memory.gib > memory.usable_gib):
            return ReplayedJob(
                billable_seconds=estimate.time.startup_seconds,
                f1=None,
                status=OUT_OF_MEMORY,
                basis=f"{memory.gib:.1f} GiB does not fit on a device of {spec.instance_type} ({basis})",
            )
        return ReplayedJob(
            billable_seconds=estimate.time.seconds,
            f1=None if replayed is None else replayed.f1,
            basis=f"seconds from {basis}" + ("" if replayed is None else f", F1 from {replayed.basis}"),
            startup_seconds=estimate.time.startup_seconds,
            steps=estimate.time.steps,
            upload_seconds=estimate.time.upload_seconds,
            measured={} if memory is None else {metrics.PEAK_MEMORY_GIB: memory.gib},
        )


def _with_noise(answer: ReplayedJob, settings: Simulation, job: _Key, *, is_users: bool) -> ReplayedJob:
    factor = math.exp(settings.normal(settings.seconds_noise, "seconds", *job))
    shift = settings.normal(settings.f1_noise, "f1", *job)
    if factor == 1.0 and shift == 0.0:
        return answer
    return replace(
        answer,
        billable_seconds=answer.billable_seconds * factor,
        startup_seconds=answer.startup_seconds * factor,
        f1=None if answer.f1 is None else min(1.0, max(0.0, answer.f1 + shift)),
        measured=answer.measured if is_users else {},
    )


def _timeline(spec: JobSpec, batch: BatchPlan, answer: ReplayedJob, job: _Key) -> Timeline:
    settings, work = spec.simulation, answer.billable_seconds
    failure: tuple[Cause, str] | None = None
    if answer.status == OUT_OF_MEMORY:
        failure = Cause.OUT_OF_MEMORY, answer.basis
    elif answer.status != COMPLETED:
        failure = Cause.ERROR, f"{answer.basis} failed"
    elif settings.share("failure", *job) < settings.failure_rate:
        failure = Cause.ERROR, "simulated failure (simulation.failure_rate)"
        work *= settings.share("when", *job)
    phases = [(name, seconds) for name, seconds in _phases(spec, answer, work) if seconds > 0]
    starting = sum(seconds for name, seconds in phases if name in _UNBILLED)
    events = [(0.0, Event(time=0.0, step=0, message=f"simulated: {answer.basis}"))]
    if answer.startup_seconds <= work:
        events.append(
            (starting + answer.startup_seconds, Event(time=0.0, step=0, message="training", total_steps=answer.steps))
        )
    if answer.f1 is not None and failure is None:
        step = answer.steps or 1
        measured = {"eval/f1": answer.f1, "eval/epoch": spec.num_train_epochs}
        events.append((starting + work, Event(time=0.0, step=step, metrics=measured, total_steps=step)))
    return Timeline(
        phases=tuple(phases) or (("Training", 0.0),),
        events=tuple(events),
        failure=failure,
        report=_report(batch, answer) if failure is None else None,
        log=(f"simulated: {answer.basis}", *(failure[1:] if failure is not None else ())),
        facts={"basis": answer.basis},
    )


def _phases(spec: JobSpec, answer: ReplayedJob, work: float) -> Iterator[tuple[str, float]]:
    """Yield the phases with their seconds: unbilled start of the instances, download, training and upload.

    Training includes the start of the container. The billed phases last `work` seconds in total.
    """
    startup = min(answer.startup_seconds, work)
    downloading = uploading = 0.0
    if spec.has_instances:
        yield "Starting", usual("starting", kind_of(spec.instance())).seconds
        total = Seconds(**dict.fromkeys(("seconds", "seconds_low", "seconds_high"), answer.billable_seconds))
        usually = phases_of(total, spec.instance(), upload_seconds=answer.upload_seconds)
        fetching = sum(usually[phase].seconds for phase in ("data", "image") if phase in usually)
        downloading = startup * fetching / (fetching + BOOT_SECONDS)
        if "uploading" in usually and work == answer.billable_seconds:
            uploading = min(usually["uploading"].seconds, (work - startup) / 2)
    yield "Downloading", downloading
    yield "Training", work - downloading - uploading
    yield _UPLOADING, uploading


def _report(batch: BatchPlan, answer: ReplayedJob) -> JobReport:
    training = max(answer.billable_seconds - answer.startup_seconds, 1e-9)
    measured = {metrics.TRAIN_SECONDS: training}
    if answer.steps is not None:
        measured[metrics.THROUGHPUT_SAMPLES] = answer.steps * batch.global_batch_size / training
    measured |= {**answer.measured, **({} if answer.f1 is None else {metrics.F1: answer.f1})}
    return JobReport(metrics=measured, facts={"basis": answer.basis})
