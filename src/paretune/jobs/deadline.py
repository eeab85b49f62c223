"""Jobs with `finish_by`: the plan before the launch, and what follows from it while the job runs.

`plan_job` chooses the cluster and shows dollars and probability. `Deadline` follows the plan over the attempts of the
job: an attempt is on spot instances or on demand, and `choose` says when the next one begins.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from statistics import NormalDist

from paretune.core.errors import BadInput, BudgetRefused, LostContact, refuse
from paretune.estimating.phases import BOOT_SECONDS, Seconds, phases_of
from paretune.estimating.posterior import Z80
from paretune.estimating.time_estimate import TimeEstimate
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, JobState
from paretune.presentation.numbers import duration
from paretune.specification.container import CHECKPOINT_EVERY_S, Event, FailureKind, JobDocument
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import phase_of
from paretune.specification.limits import finish_moment
from paretune.tracking import Run, schema

INTERRUPTIONS_PER_HOUR = 0.65  # 1,052 in 1,621 hours on spot, of the traces on which `benchmarks/deadline.py` chooses
SPOT_RISK = 0.5  # part of the allowed risk of being late that spot instances may use up; chosen on the same traces
SPOT_SHARE = 0.3  # Spot dollars as a share of on-demand dollars; about that of V100s in the traces' years. Assumed.
STOP_S = 90.0  # From a stop request to the end of a job: two minutes at most for a checkpoint, and its upload. Assumed.
WORTH_WAITING_S = 1800.0
"""Least time to wait for spot capacity for which a job leaves its on-demand instances; chosen on the same traces."""
WORTH_RETURNING_S = 7200.0  # least rest of the training for which it does; chosen on the same traces
EXPECTED_SHARES = ((0.0, 1.0), (0.07, 0.82), (0.4, 0.74))
"""Time to wait for spot as a share of the seconds on demand, and dollars as a share of those on demand; same traces."""
_AROUND = ("starting", "data", "image", "uploading")
_WITHIN = 6.0  # standard deviations, in which probabilities are looked for
MOST_TIMES_INSTANCES = 8  # a plan has at most so many times the instances that were asked for, by factors of two
_SHOWS_SPEED = 0.02  # share of the training after which it has shown its speed
_SPEED_DEVIATION = 0.03  # of the logarithm of its seconds then; assumed
_LOOK_EVERY_S = 30.0
_LONGEST_WAIT_MINUTES = 40_320.0  # of max_wait_minutes
_CHANGES = {False: "the time gets short: changing to on demand", True: "there is time: going back to spot instances"}


def seconds_at(phases: Mapping[str, Seconds], progress: float, z: float) -> float:
    """Seconds that an on-demand job takes from its request to its model, `z` standard deviations above the usual.

    `progress` is the share of the training that is in a checkpoint. Deviations of the phases are independent, and each
    phase is log-normal.
    """
    training = phases["training"]
    boot = min(BOOT_SECONDS, training.seconds / 2) if "starting" in phases else 0.0
    rest = training.scaled((1 - progress) * (1 - boot / training.seconds)) if training.seconds else training
    parts = [rest, *(phases[name] for name in _AROUND if name in phases)]
    deviations = [part.seconds * math.expm1(abs(z) * _log_deviation(part)) for part in parts]
    return boot + sum(part.seconds for part in parts) + math.copysign(math.hypot(*deviations), z)


def probability(phases: Mapping[str, Seconds], progress: float, left_s: float) -> float:
    """Probability that an on-demand job which is requested now is done within `left_s` seconds."""
    low, high = -_WITHIN, _WITHIN
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if seconds_at(phases, progress, middle) <= left_s else (low, middle)
    return NormalDist().cdf((low + high) / 2)


class On(Enum):
    """The instances that a job is on."""

    NOTHING = "waiting for spot"
    SPOT = "spot"
    DEMAND = "on demand"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The decision on what a job does now."""

    spot: bool  # whether it is on spot instances, or waits for them; else on demand
    review_s: float = math.inf  # seconds for which this holds if nothing changes


def choose(phases: Mapping[str, Seconds], on: On, *, left_s: float, progress: float, confidence: float) -> Choice:
    """Whether a job is to be on spot instances or on demand.

    Args:
        phases: of the job on demand, as the estimate and the job itself predict them.
        on: where it is; it trains there, or waits for spot capacity.
        left_s: seconds until the job has to be finished.
        progress: share of the training that is in a checkpoint.
        confidence: probability with which it has to be.
    """
    rest_s = (1 - progress) * phases["training"].seconds
    interrupted = -math.expm1(-INTERRUPTIONS_PER_HOUR * rest_s / 3600)
    if on is On.SPOT:  # to stay is right if there is time to start again, or if that is riskier than to stay
        if probability(phases, progress, left_s - CHECKPOINT_EVERY_S) >= confidence:
            return Choice(spot=True)
        return Choice(spot=1 - interrupted >= probability(phases, progress, left_s - STOP_S))
    risk = SPOT_RISK * (1 - confidence) / max(interrupted, 1e-9)
    z = NormalDist().inv_cdf(1 - min(risk, 0.5))
    lost_s = starting_s(phases) + CHECKPOINT_EVERY_S / 2  # by an interruption
    slack_s = left_s - seconds_at(phases, progress, z) - lost_s
    if on is On.NOTHING:
        return Choice(spot=slack_s > 0, review_s=max(0.0, slack_s))
    returns = slack_s - STOP_S > WORTH_WAITING_S and rest_s > WORTH_RETURNING_S
    return Choice(spot=returns)


def starting_s(phases: Mapping[str, Seconds]) -> float:
    """Usual seconds from capacity to the first step of training."""
    return sum(phases[name].seconds for name in _AROUND[:3] if name in phases) + BOOT_SECONDS


def expected_share(slack: float) -> float:
    """Expected dollars as a share of those on demand, if `slack` of the seconds on demand can be waited for spot."""
    for (low, share), (high, following) in itertools.pairwise(EXPECTED_SHARES):
        if slack < high:
            return share + (following - share) * (slack - low) / (high - low)
    return EXPECTED_SHARES[-1][1]


def _log_deviation(seconds: Seconds) -> float:
    """Standard deviation of the logarithm, from the interval that holds 80 %."""
    if not 0 < seconds.seconds_low < seconds.seconds_high:
        return 0.0
    return math.log(seconds.seconds_high / seconds.seconds_low) / (2 * Z80)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan with which a job is finished in time, as its run records it."""

    until: float  # when it has to be finished, in seconds since the epoch
    confidence: float
    phases: Mapping[str, Seconds]  # predicted seconds of its phases on demand
    instance_count: int  # of its cluster, which may be larger than the one that was asked for
    probability: float  # of being in time if it runs on demand from the beginning
    expected_usd: float | None  # dollars that are expected; None if the price or the time is unknown
    on_demand_usd: float | None  # the same if there are no spot instances
    on_demand_at: float  # when it changes to on demand at the latest if it never gets spot instances
    instances: Mapping[int, bool]  # number of an attempt to whether it, and those after it, are on spot instances

    def is_on_spot(self, attempt: int) -> bool:
        """Whether the attempt of this number is on spot instances."""
        return self.instances[max(number for number in self.instances if number <= attempt)]

    def sentence(self) -> str:
        """The plan in a sentence, as it is shown before the launch."""
        count = f"{self.instance_count} instance{'s' if self.instance_count > 1 else ''}"
        plan = f"finish by {_utc(self.until)} with probability {self.confidence:g}: {count}"
        away = "dollars unknown" if self.on_demand_usd is None else f"{self.on_demand_usd:.3g} USD"
        if not self.instances[1]:
            return f"{plan} on demand, {away}"
        usd = "dollars unknown" if self.expected_usd is None else f"about {self.expected_usd:.3g} USD"
        return f"{plan} on spot, {usd}; without spot on demand from {_utc(self.on_demand_at)}, {away}"

    def as_json(self) -> str:
        """The text of the run's tag."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, tags: Mapping[str, str]) -> "Plan | None":
        """The plan in the tags of a run; None if there is none."""
        raw = json.loads(tags.get(schema.DEADLINE) or "{}")
        if "phases" not in raw:
            return None
        phases = {name: Seconds(**seconds) for name, seconds in raw["phases"].items()}
        instances = {int(number): spot for number, spot in raw["instances"].items()}
        return cls(**raw | {"phases": phases, "instances": instances})


def plan_job(
    spec: JobSpec, workplace: Workplace, estimate_of: Callable[[JobSpec], TimeEstimate | None]
) -> tuple[JobSpec, Plan]:
    """The cheapest plan by which a job is finished in time, and the job on the cluster of the plan.

    Larger clusters train the same global batch size. A job without an estimate may take its max_runtime_minutes.

    Raises:
        BadInput: no cluster is fast enough, or the limit of the job is too low; all faults.
    """
    now = workplace.clock.now()
    until = finish_moment(spec.finish_by or "", now)
    plans: list[tuple[JobSpec, Plan]] = []
    faults: list[str] = []
    for cluster in _clusters(spec, workplace):
        try:
            plans.append((cluster, _plan_on(cluster, estimate_of(cluster), now, until)))
        except BadInput as error:
            faults = faults or list(error.faults)  # of the cluster that was asked for
    if not plans:
        raise BadInput(faults)
    return min(plans, key=lambda pair: (pair[1].expected_usd or 0.0, pair[0].instance_count))


def as_planned(spec: JobSpec, plan: Plan | None) -> JobSpec:
    """The job on the cluster of its plan."""
    return spec if plan is None else _with_instances(spec, plan.instance_count)


def _clusters(spec: JobSpec, workplace: Workplace) -> Iterator[JobSpec]:
    """The job on its cluster and on larger ones that its launcher accepts within max_cost_usd."""
    yield spec
    count = 2 * spec.instance_count
    while spec.has_instances and not spec.runs_own_training and count <= MOST_TIMES_INSTANCES * spec.instance_count:
        try:
            larger = _with_instances(spec, count)
            workplace.launcher.check(larger)
            workplace.launcher.worst_case_usd(larger)
        except (BadInput, BudgetRefused):
            return
        yield larger
        count *= 2


def _with_instances(spec: JobSpec, count: int) -> JobSpec:
    if count == spec.instance_count:
        return spec
    batch = spec.plan()
    devices = spec.processes * count
    fits = batch.global_batch_size % (batch.per_device_train_batch_size * devices) == 0
    return spec.replace(
        instance_count=count,
        global_batch_size=batch.global_batch_size,
        gradient_accumulation_steps=None,
        per_device_train_batch_size=batch.per_device_train_batch_size if fits else None,
    )


def _plan_on(spec: JobSpec, estimate: TimeEstimate | None, now: float, until: float) -> Plan:
    limit_s, confidence = spec.max_runtime_minutes * 60, spec.finish_confidence
    whole = Seconds(seconds=limit_s, seconds_low=limit_s, seconds_high=limit_s)
    phases = phases_of(whole, spec) if estimate is None else estimate.phases
    phases = {name: part.scaled(1.0) for name, part in phases.items() if name != "waiting"}  # on demand none waits
    least_s, left_s = seconds_at(phases, 0.0, NormalDist().inv_cdf(confidence)), until - now
    faults = []
    if left_s < least_s:
        state = "is over" if left_s <= 0 else f"leaves {duration(left_s)}"
        earliest = datetime.fromtimestamp(now + least_s + 60, UTC)  # the minutes are cut off
        cluster = f"{spec.instance_count} x {spec.instance_type}" if spec.has_instances else "this machine"
        faults.append(
            f"finish_by={spec.finish_by} {state}, and start-up, training and upload on {cluster} take "
            f"{duration(least_s)} with probability {confidence:g}: set {earliest:%Y-%m-%dT%H:%MZ} or later, "
            "more instances or a lower finish_confidence"
        )
    first = choose(phases, On.NOTHING, left_s=left_s, progress=0.0, confidence=confidence)
    is_on_spot = spec.has_instances and not spec.keep_alive_minutes and first.spot
    billed_s = least_s - _unbilled_s(phases)
    if is_on_spot:  # it may lose its instances once
        billed_s += starting_s(phases) + CHECKPOINT_EVERY_S
    if estimate is not None and billed_s > limit_s:
        faults.append(
            f"max_runtime_minutes must be at least {math.ceil(billed_s / 60)} for finish_by with probability "
            f"{confidence:g}{' and spot instances that are lost once' if is_on_spot else ''}, got "
            f"{spec.max_runtime_minutes:g}"
        )
    refuse(faults)
    usd = None if estimate is None else estimate.cost_usd
    share = expected_share(first.review_s / seconds_at(phases, 0.0, 0.0)) if is_on_spot else 1.0
    return Plan(
        until=until,
        confidence=confidence,
        phases=phases,
        instance_count=spec.instance_count,
        probability=probability(phases, 0.0, left_s),
        expected_usd=None if usd is None else usd * share,
        on_demand_usd=usd,
        on_demand_at=now + (first.review_s if is_on_spot else 0.0),
        instances={1: is_on_spot},
    )


def _unbilled_s(phases: Mapping[str, Seconds]) -> float:
    return phases["starting"].seconds if "starting" in phases else 0.0


def _utc(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


class Deadline:
    """Follows the plan of one job over its attempts; each decision is in the run before it is carried out."""

    def __init__(self, plan: Plan, spec: JobSpec, workplace: Workplace, run: Run | None = None) -> None:
        self.plan = plan
        self._spec = spec
        self._workplace = workplace
        self._run = run
        self._phases = dict(plan.phases)
        self._progress = 0.0  # at `_since`
        self._since: float | None = None  # since when it trains; None while it does not
        self._first: tuple[float, float] | None = None  # time and progress of the first event of this spell
        self._look_at = -math.inf
        self._left: set[str] = set()  # names of attempts that are stopped for the next one

    def document(self, document: JobDocument) -> JobDocument:
        """The document of an attempt, on spot instances or on demand as the plan has it."""
        if not self.plan.is_on_spot(document.attempt):
            on_demand = JobDocument.first(document.job_name, self._spec)
            return replace(document, spec=on_demand.spec, plans=on_demand.plans)
        left_minutes = (self.plan.until - self._workplace.clock.now()) / 60
        wait = min(_LONGEST_WAIT_MINUTES, max(self._spec.max_runtime_minutes, left_minutes))  # AWS takes no less
        spec = self._spec.replace(spot=True, max_wait_minutes=wait, finish_by=None)
        return replace(document, spec=spec, plans={})

    def leave(self, job: Job, document: JobDocument, events: Iterable[Event]) -> str:
        """Stop the running job if the next attempt is due; returns the reason, once, or empty if it goes on."""
        if job.name in self._left or not (reason := self._why_leave(job, document, events)):
            return ""
        with suppress(LostContact):  # stopped at the next look
            job.stop()
            self._left.add(job.name)
        return reason if job.name in self._left else ""

    def goes_on(self, job: Job, attempt: int) -> bool:
        """Whether another attempt follows this ended one; after one on spot without capacity it is on demand."""
        failure = job.failure()  # None for a job that was stopped as asked
        if failure is not None and failure[0] is not FailureKind.CAPACITY:
            return False
        if failure is not None and self.plan.is_on_spot(attempt):
            self.change(attempt + 1, spot=False)
        return job.state() is not JobState.COMPLETED and attempt + 1 in self.plan.instances

    def _why_leave(self, job: Job, document: JobDocument, events: Iterable[Event]) -> str:
        now, spot = self._workplace.clock.now(), self.plan.is_on_spot(document.attempt)
        self._follow(job, events, now)
        if document.attempt + 1 in self.plan.instances:  # a process has decided it, and may have died before the stop
            return _CHANGES[not spot]
        if now < self._look_at or not self._spec.has_instances:
            return ""
        choice = self._choose(_on(job, spot=spot), now, document.spent_seconds + job.billable_seconds())
        self._look_at = now + min(_LOOK_EVERY_S, choice.review_s)
        if (clock := self._workplace.launcher.virtual_clock) is not None:
            clock.wake_at(now + min(10 * _LOOK_EVERY_S, max(1.0, choice.review_s)))
        if choice.spot == spot:
            return ""
        self.change(document.attempt + 1, spot=choice.spot)
        return _CHANGES[choice.spot]

    def change(self, attempt: int, *, spot: bool) -> None:
        """Record that the attempt of this number and those after it are on spot instances, or on demand."""
        self.plan = replace(self.plan, instances={**self.plan.instances, attempt: spot})
        if self._run is not None:
            self._run.set_tags({schema.DEADLINE: self.plan.as_json()})
            self._run.flush()

    def outcome(self, now: float) -> str:
        """The outcome of the plan, and the plan: second paragraph of the run's note. The job has ended just `now`."""
        early_s = self.plan.until - now
        changes = len(self.plan.instances) - 1
        changed = f" after {changes} change{'s' if changes > 1 else ''} between spot and on demand" if changes else ""
        return f"{duration(abs(early_s))} {'early' if early_s >= 0 else 'LATE'}{changed}. Plan: {self.plan.sentence()}."

    def _choose(self, on: On, now: float, billed_s: float) -> Choice:
        if on is On.DEMAND and self._phases == self.plan.phases:
            return Choice(spot=False)  # nothing is new before the training has shown its speed
        limit_s = self._spec.max_runtime_minutes * 60 + _unbilled_s(self._phases)
        left_s = min(self.plan.until - now, limit_s - billed_s)
        progress = self._progress_at(now)
        return choose(self._phases, on, left_s=left_s, progress=progress, confidence=self.plan.confidence)

    def _follow(self, job: Job, events: Iterable[Event], now: float) -> None:
        """Learn progress and speed from the job's states and events."""
        trains = job.state() is JobState.RUNNING and job.detail() in {"Training", ""}
        if not trains and self._since is not None:
            lost = CHECKPOINT_EVERY_S / self._phases["training"].seconds
            self._progress = max(0.0, self._progress_at(now) - lost)
        if not trains:
            self._since = self._first = None
        elif self._since is None:
            self._since = now + BOOT_SECONDS
        for event in events:
            if trains and event.total_steps:
                moment = min(now, max(event.time, now - job.seconds()))  # the clock of a job may be wrong
                self._progress, self._since = min(1.0, event.step / event.total_steps), moment
                self._learn_speed(moment)

    def _learn_speed(self, moment: float) -> None:
        if self._first is None or self._progress < self._first[1]:
            self._first = (moment, self._progress)
        first, before = self._first
        if moment > first and self._progress - before >= _SHOWS_SPEED:
            whole_s = (moment - first) / (self._progress - before) + BOOT_SECONDS
            low, high = (whole_s * math.exp(sign * Z80 * _SPEED_DEVIATION) for sign in (-1, 1))
            self._phases["training"] = Seconds(seconds=whole_s, seconds_low=low, seconds_high=high)

    def _progress_at(self, now: float) -> float:
        """Share of the training that is done; between two events by the slow end of its interval."""
        if self._since is None:
            return self._progress
        return min(1.0, self._progress + max(0.0, now - self._since) / self._phases["training"].seconds_high)


def _on(job: Job, *, spot: bool) -> On:
    if not spot:
        return On.DEMAND
    return On.NOTHING if phase_of(job.detail()) in {"waiting", "starting", ""} else On.SPOT
