"""Timelines of simulated jobs: seconds and F1 from recorded runs or an estimate, failures from `simulation`.

Every random draw is a function of the simulation's seed, the job's specification hash and seed, and the attempt: the
same command gives the same timeline, whatever ran before it.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.estimating.estimator import Estimate
from paretune.estimating.hardware import speed_remarks
from paretune.estimating.phases import BOOT_SECONDS, Seconds, kind_of, phases_of, usual
from paretune.estimating.recorded.recorded_runs import RecordedRuns, ReplayedJob
from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY
from paretune.launchers.simulated.timeline import TRAINING, UPLOADING, Phase, Timeline
from paretune.specification import metrics
from paretune.specification.container import CHECKPOINT_EVERY_S, Event, FailureKind, JobDocument, JobReport
from paretune.specification.job import JobSpec
from paretune.specification.simulation import Simulation

CAPACITY_SECONDS = 60.0  # virtual seconds until a job fails for lack of capacity; not billed
INTERRUPTION_SECONDS = 300.0  # mean virtual seconds without spot capacity after an interruption; not billed
_MOST_INTERRUPTIONS = 100


@dataclass
class TimelineFactory:
    """Makes the timeline of a job.

    For jobs without a table of recorded runs, `predict` gives the estimate of a job, and `recall_f1` the F1 of runs
    like it with a text that names them. Both return None if there is nothing. A table without seconds gives F1 only.
    """

    predict: Callable[[JobDocument], Estimate | None]
    recall_f1: Callable[[JobDocument], tuple[float, str] | None]
    read_table: Callable[[Path], RecordedRuns] = field(default_factory=lambda: functools.cache(RecordedRuns.read))

    def __call__(self, document: JobDocument) -> Timeline:
        """The timeline of the job; raises BadInput if neither table nor estimate covers it."""
        settings = document.spec.simulation
        draws = _Draws(settings, document)
        delay = draws.exponential(settings.startup_delay_seconds, "delay")
        if document.spec.spot:
            delay += draws.exponential(settings.spot_wait_seconds, "spot delay")
        wait = Phase(seconds=delay, detail="Pending", runs=False)
        unknown = ""
        try:
            answer = draws.noise(self._answer(document, settings))
        except BadInput as error:
            if document.plan == document.spec.plan():
                raise
            # A smaller batch after an out-of-memory failure, not in the table.
            unknown = f"no recorded run with the smaller per-device batch: {error.faults[0]}"
        if draws.share("capacity") < settings.capacity_error_rate:
            sentence = f"no capacity for {document.spec.instance_type} (simulated)"
            waiting = replace(wait, seconds=wait.seconds + CAPACITY_SECONDS)
            return Timeline(phases=(waiting,), failure=(FailureKind.CAPACITY, sentence), log=(sentence,))
        if unknown:
            return Timeline(phases=(wait,), failure=(FailureKind.ERROR, unknown), log=(unknown,))
        return _timeline(document, answer, wait, draws)

    def _answer(self, document: JobDocument, settings: Simulation) -> ReplayedJob:
        spec, replayed = document.spec, None
        if settings.runs is not None:
            table = self.read_table(Path(settings.runs))
            replayed = table.answer(spec, document.plan, draw=settings.seed, startup_seconds=settings.startup_seconds)
            if table.has_seconds or replayed.status != COMPLETED:
                return replayed
        estimate = self.predict(document)
        if estimate is None:
            remedy = "set simulation.runs to a table of recorded runs, or set max_train_samples"
            remarks = speed_remarks(spec.instance()) if spec.has_instances else []
            raise BadInput(
                [f"{sentence}; set simulation.runs to a table of recorded runs" for sentence in remarks]
                or [f"the seconds of this job cannot be estimated: {remedy}"]
            )
        basis = f"the estimate ({estimate.basis})"
        if estimate.did_not_fit is not None or estimate.memory.gib > estimate.usable_gib:
            return ReplayedJob(
                billable_seconds=estimate.time.startup_seconds,
                f1=None,
                status=OUT_OF_MEMORY,
                basis=f"{estimate.memory.gib:.1f} GiB do not fit a device of {spec.instance_type} ({basis})",
            )
        recalled = None if spec.probe_steps is not None or replayed is not None else self.recall_f1(document)
        f1, source = (None, "") if recalled is None else (recalled[0], f", F1 from {recalled[1]}")
        if replayed is not None:
            f1, source = replayed.f1, f", F1 from {replayed.basis}"
        return ReplayedJob(
            billable_seconds=estimate.time.seconds,
            f1=f1,
            curve=() if replayed is None else replayed.curve,
            basis=f"seconds from {basis}{source}",
            startup_seconds=estimate.time.startup_seconds,
            steps=estimate.time.steps,
            uploaded_bytes=estimate.time.uploaded_bytes,
            measured={metrics.PEAK_MEMORY_GIB: estimate.memory.gib},
        )


class _Draws:
    """Random draws for one attempt of one job."""

    def __init__(self, settings: Simulation, document: JobDocument) -> None:
        self.settings = settings
        self._job = (document.spec.spec_hash(), document.spec.seed, document.attempt)

    def share(self, *key: object) -> float:
        return self.settings.share(*key, *self._job)

    def exponential(self, mean: float, *key: object) -> float:
        return self.settings.exponential(mean, *key, *self._job)

    def noise(self, answer: ReplayedJob) -> ReplayedJob:
        """`answer` with the run-to-run noise of seconds and F1."""
        factor = math.exp(self.settings.normal(self.settings.seconds_noise, "seconds", *self._job))
        shift = self.settings.normal(self.settings.f1_noise, "f1", *self._job)
        if factor == 1.0 and shift == 0.0:
            return answer
        return replace(
            answer,
            billable_seconds=answer.billable_seconds * factor,
            startup_seconds=answer.startup_seconds * factor,
            f1=None if answer.f1 is None else _between_0_and_1(answer.f1 + shift),
            curve=tuple(_between_0_and_1(value + shift) for value in answer.curve),
            measured={},
        )


def _timeline(document: JobDocument, answer: ReplayedJob, wait: Phase, draws: _Draws) -> Timeline:
    """The timeline of a job with the seconds and F1 of `answer`, with the failures and interruptions drawn."""
    work, failure = _ending(answer, draws)
    phases = [*_before_bill(document.spec, wait), *_phases(document, answer, work, draws)]
    events = [(0.0, Event(time=0.0, step=0, message=f"simulated: {answer.basis}"))]
    events += [(_moment(phases, done), event) for done, event in _curve(document, answer) if done <= work]
    return Timeline(
        phases=tuple(phase for phase in phases if phase.seconds > 0) or (wait,),
        events=tuple(events),
        failure=failure,
        report=_report(document, answer) if failure is None else None,
        log=(f"simulated: {answer.basis}", *(failure[1:] if failure is not None else ())),
        facts={"basis": answer.basis},
        billable_share=draws.settings.spot_billable_share if document.spec.spot else 1.0,
    )


def _ending(answer: ReplayedJob, draws: _Draws) -> tuple[float, tuple[FailureKind, str] | None]:
    """Seconds of an uninterrupted job until its end, and kind and reason of its failure, or None."""
    whole, settings = answer.billable_seconds, draws.settings
    if answer.status == OUT_OF_MEMORY:
        return whole, (FailureKind.OUT_OF_MEMORY, answer.basis)
    if answer.status != COMPLETED:
        return whole, (FailureKind.ERROR, f"{answer.basis} failed")
    if draws.share("memory") < settings.out_of_memory_rate:
        return answer.startup_seconds, (FailureKind.OUT_OF_MEMORY, "simulated, by out_of_memory_rate")
    if draws.share("failure") < settings.failure_rate:
        return whole * draws.share("when"), (FailureKind.ERROR, "simulated, by failure_rate")
    return whole, None


def _before_bill(spec: JobSpec, wait: Phase) -> list[Phase]:
    """The wait for capacity that was drawn, and the usual start of such instances; neither is billed."""
    if not spec.has_instances:
        return [wait]
    starting = usual("starting", kind_of(spec.instance()))
    return [Phase(seconds=starting.seconds, detail="Starting", runs=False), wait]


def _usual_phases(spec: JobSpec, answer: ReplayedJob) -> Mapping[str, Seconds]:
    total = Seconds(**dict.fromkeys(("seconds", "seconds_low", "seconds_high"), answer.billable_seconds))
    return phases_of(total, spec, uploaded_bytes=answer.uploaded_bytes)


def _share_of_download(phases: Mapping[str, Seconds]) -> float:
    """The share of data and image in a start-up, whose rest is the start of the container."""
    seconds = sum(phases[phase].seconds for phase in ("data", "image") if phase in phases)
    return seconds / (seconds + BOOT_SECONDS)


@dataclass(frozen=True, kw_only=True)
class _Work(Phase):
    """A phase that makes progress, from second `begin` to second `end` of an uninterrupted job."""

    begin: float
    end: float


def _phases(document: JobDocument, answer: ReplayedJob, work: float, draws: _Draws) -> Iterator[Phase]:
    """Download, start, training and upload; after a spot interruption a wait, another start and the lost work."""
    startup = min(answer.startup_seconds, work)
    usually = _usual_phases(document.spec, answer)
    downloading = startup * _share_of_download(usually)
    if document.spec.has_instances:
        yield _Work(seconds=downloading, detail="Downloading", begin=0.0, end=downloading)
    yield _Work(seconds=startup - downloading, detail=TRAINING, prepares=True, begin=downloading, end=startup)
    uploading = usually["uploading"].seconds if "uploading" in usually and work == answer.billable_seconds else 0.0
    trained = work - min(uploading, (work - startup) / 2)
    done, rate = startup, draws.settings.spot_interruptions_per_hour if document.spec.spot else 0.0
    for number in itertools.count(1):
        left = trained - done
        until = draws.exponential(3600 / rate, "interruption", number) if rate else math.inf
        if until >= left or number > _MOST_INTERRUPTIONS:
            yield _Work(seconds=left, detail=TRAINING, begin=done, end=trained)
            yield _Work(seconds=work - trained, detail=UPLOADING, begin=trained, end=work)
            return
        yield _Work(seconds=until, detail=TRAINING, begin=done, end=done + until)
        done += until
        without = draws.exponential(INTERRUPTION_SECONDS, "away", number)
        yield Phase(seconds=without, detail="Interrupted", runs=False)
        lost = draws.share("lost", number) * min(CHECKPOINT_EVERY_S, done - startup)
        yield Phase(seconds=startup + lost, detail="Downloading")


def _moment(phases: list[Phase], done: float) -> float:
    """Seconds since the creation at which `done` seconds of an uninterrupted job are done."""
    begin = 0.0
    for phase in phases:
        if isinstance(phase, _Work) and done <= phase.end:
            return begin + done - phase.begin
        begin += phase.seconds
    return begin


def _curve(document: JobDocument, answer: ReplayedJob) -> Iterator[tuple[float, Event]]:
    """Seconds of an uninterrupted job and the event written then: at the start of training, after each evaluation."""
    values = answer.curve or (() if answer.f1 is None else (answer.f1,))
    training = answer.billable_seconds - answer.startup_seconds
    yield answer.startup_seconds, Event(time=0.0, step=0, message="training")
    for number, value in enumerate(values, start=1):
        share = number / len(values)
        step = number if answer.steps is None else max(1, round(answer.steps * share))
        curve = {"eval/f1": value, "eval/epoch": document.spec.num_train_epochs * share}
        total = len(values) if answer.steps is None else answer.steps
        yield answer.startup_seconds + training * share, Event(time=0.0, step=step, metrics=curve, total_steps=total)


def _report(document: JobDocument, answer: ReplayedJob) -> JobReport:
    training = max(answer.billable_seconds - answer.startup_seconds, 1e-9)
    measured: dict[str, float] = {metrics.TRAIN_SECONDS: training}
    facts: dict[str, str | int | float | bool] = {
        "simulated": True,
        "basis": answer.basis,
        "startup_seconds": answer.startup_seconds,
        **asdict(document.plan),
        "global_batch_size": document.plan.global_batch_size,
        "attempt": document.attempt,
    }
    if answer.steps is not None:
        facts["steps"] = answer.steps
        measured[metrics.THROUGHPUT_SAMPLES] = answer.steps * document.plan.global_batch_size / training
    measured |= {**answer.measured, **({} if answer.f1 is None else {metrics.F1: answer.f1})}
    return JobReport(metrics=measured, facts=facts)


def _between_0_and_1(value: float) -> float:
    return min(1.0, max(0.0, value))
