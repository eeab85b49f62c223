"""One night of a recurring training: choose a point, train it, judge it, and train again if it missed the floor.

Every decision is in MLflow before its job is created: the run carries name, night, part and point. A command that was
killed and is started again for the same night adopts the running job and pays nothing twice.
"""

import fcntl
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.history import (
    CHANCE,
    DEFAULT,
    EXPECTED,
    INTERRUPTED,
    REFUSED,
    RETRAIN,
    TRY,
    Night,
    NightJob,
    nights_of,
    setting,
)
from paretune.commands.recur.points import Points
from paretune.commands.recur.policy import Choice, Observation, Posterior
from paretune.commands.recur.result import RecurResult, RecurRunWriter
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, JobFailed, LaunchRefused, ParetuneError
from paretune.core.tags import Attribution
from paretune.jobs.launch import run_job
from paretune.jobs.preparation import inputs_of
from paretune.jobs.progress import say_on_stderr, watched
from paretune.jobs.workplace import Workplaces, without_empty_home
from paretune.models.register import register
from paretune.presentation.numbers import plain, usd
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from paretune.specification.profile import charged
from paretune.tracking import schema

_ROUNDING_USD = 1e-9
_LOCKS = "recurring"


@without_empty_home()
def run_night(file: RecurFile, *, say: Callable[[str], None] = say_on_stderr) -> RecurResult:
    """Tonight's model and its cost; a night that has already ended is only reported again.

    Raises:
        BadInput, LaunchRefused, TrackingUnavailable: the default could not be launched.
        BudgetRefused: no point and its retraining fit the night's `max_cost_usd`; nothing was launched.
        Interrupted, LostContact: as for a job; the same command continues the night.
    """
    file = file.dated(file.night or datetime.now(UTC).date().isoformat())
    workplaces = replace(Workplaces.of_process(), shows_work=say is say_on_stderr)
    file = replace(file, job=charged(file.job, workplaces.environment))
    with watched(workplaces.interruption) as on_events:
        if not (workplaces.home / _LOCKS).exists():  # a first night that is refused leaves nothing
            default = file.spec_at(file.default_point())
            workplace = workplaces.without_opened_run().of(default)
            workplace.launcher.check(default)
            inputs_of(default, workplace)
        with _locked(workplaces.home, file.name):
            return _NightRun(file, workplaces, on_events, say).run()


class _NightRun:
    """A night under way."""

    def __init__(
        self,
        file: RecurFile,
        workplaces: Workplaces,
        on_events: Callable[[list[Event]], None],
        say: Callable[[str], None],
    ) -> None:
        self._file, self._say, self._on_events = file, say, on_events
        self._workplaces = workplaces.without_opened_run()
        self._workplace = self._workplaces.of(file.spec_at(file.default_point()))
        self._tracking = self._workplace.tracking
        self._points = Points.of(file, self._workplace, self._nights())
        self._record = RecurRunWriter(file, workplaces.of(self._points.specs[0]).tracking, self._workplace)
        self._policy = self._points.policy

    def run(self) -> RecurResult:
        """Try, judge, train again, record."""
        job = self._tonight().returned or self._train_until_met()
        is_met = job is not None and self._policy.meets(job.value)
        registered = ""
        if job is not None and is_met:
            self._tracking.run(job.run_id).set_tags({schema.RETURNED: "true"})
            if name := self._file.job.get("register"):
                registered = register(str(name), job.run_id, self._tracking)
        nights = self._nights()
        tonight = self._tonight(nights)
        return self._record.finish(nights, tonight, self._default_usd(nights), registered, is_met=is_met)

    def _train_until_met(self) -> NightJob | None:
        """The first job of tonight that meets the floor, else the last one."""
        job = self._part(TRY, 0, self._open_try)
        for number in range(self._file.retrains):
            if job is not None and self._policy.meets(job.value):
                break
            if job is not None and job.is_unmeasured:
                metric = self._file.metric
                self._say(f"the job has logged no {metric}, so another would not: log {metric}, or change floor")
                break
            reason = "the try was refused" if job is None else _miss(job, self._file)
            self._say(f"{reason}: training again, at a safe point")
            job = self._part(RETRAIN, number, self._open_retrain)
        return job

    def _part(self, part: str, number: int, begin: Callable[[Night], tuple[str, JobSpec]]) -> NightJob | None:
        """The ended job of a part of the night, started or adopted; None for a try that was refused."""
        while True:
            night = self._tonight()
            job = next(iter(night.parts(part)[number:]), None)
            if job is not None and job.has_ended:
                return job
            if part == TRY and night.parts(REFUSED):
                return None
            if job is None:
                self._train(*begin(night), part)
                continue
            point = self._points.number_of(job)
            if point is None:
                text = f"night {job.night} has begun with a point that {self._file.path} no longer has: {job.point}"
                raise BadInput([f"{text}; put it back, or set another night"])
            self._train(job.run_id, self._job(point, part, job.run_id), part, is_adopted=True)

    def _train(self, run_id: str, spec: JobSpec, part: str, *, is_adopted: bool = False) -> None:
        """Run or adopt the job of a run until it ends; a refused try is only recorded."""
        workplace = self._workplaces.with_opened_run(run_id).of(spec)
        try:
            run_job(spec, workplace, self._on_events, study=self._file.name)
        except JobFailed as error:
            if is_adopted and not workplace.launcher.jobs_outlive_submitter:  # it died with its command
                self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED})
            elif not any(job.run_id == run_id and job.has_ended for job in self._tonight().jobs):
                self._refused(run_id, spec, part, error)  # it failed before there was a job
        except Interrupted:
            if spec.on_interrupt != "detach" or not spec.on_sagemaker:
                self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED})
            raise
        except (BadInput, LaunchRefused, BudgetRefused) as error:
            # A budget of the month refuses a point that its own limit allows: no other point would help.
            is_over = isinstance(error, BudgetRefused) and self._is_within_own_limit(spec)
            self._refused(run_id, spec, part, error, is_over=is_over)

    def _refused(self, run_id: str, spec: JobSpec, part: str, error: ParetuneError, *, is_over: bool = False) -> None:
        """Record that a try was refused; raise the error if nothing safer can be trained tonight.

        The same command tries again after the reason is mended.
        """
        is_default = spec.replace(seed=0).spec_hash() == self._points.specs[0].replace(seed=0).spec_hash()
        is_last = is_over or part == RETRAIN or is_default
        self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED if is_last else REFUSED})
        if is_last:
            raise error
        self._say(str(error))

    def _is_within_own_limit(self, spec: JobSpec) -> bool:
        try:
            self._workplace.launcher.worst_case_usd(spec)
        except BudgetRefused:
            return False
        return True

    def _open_try(self, night: Night) -> tuple[str, JobSpec]:
        """Choose tonight's point and open its run. BudgetRefused if none fits the night's dollars."""
        posterior = self._policy.posterior(self._observations(), night.number)
        allowed = self._affordable(posterior, night.usd)
        digest = hashlib.sha256(f"{self._file.seed} {night.name} {len(night.jobs)}".encode()).digest()
        choice = posterior.choose(np.random.default_rng(int.from_bytes(digest[:8])), allowed)
        is_blind = posterior.is_blind and choice.index == self._policy.default
        self._say(self._reason(choice, is_blind=is_blind))
        forecast = {CHANCE: choice.chance, EXPECTED: choice.usd, DEFAULT: choice.default_usd}
        self._require(choice.index, allowed, night)
        return self._open(choice.index, TRY, night, {} if is_blind else forecast)

    def _open_retrain(self, night: Night) -> tuple[str, JobSpec]:
        """Open the run of the safest point, given tonight's try, that the rest of tonight's dollars covers."""
        posterior = self._policy.posterior(self._observations(), night.number)
        allowed = self._covered(night.usd, RETRAIN)
        numbers = [self._points.number_of(job) for job in night.jobs if job.counts]
        missed = {number for number in numbers if number is not None}
        is_last = len(night.parts(RETRAIN)) == self._file.retrains - 1
        number = posterior.retrain(missed, is_last=is_last, allowed=allowed)
        self._require(number, allowed, night)
        return self._open(number, RETRAIN, night, {CHANCE: float(posterior.chances[number])})

    def _open(self, number: int, part: str, night: Night, forecast: Mapping[str, float]) -> tuple[str, JobSpec]:
        spec = self._points.limited(number, part)
        attribution = Attribution.of(spec.user, spec.tags, self._workplace.environment, study=self._file.name)
        tags = {
            **{f"{schema.PREFIX}{name}": text for name, text in attribution.named().items()},
            schema.RECUR: self._file.name,
            schema.NIGHT: night.name,
            schema.NIGHT_PART: part,
            schema.NIGHT_POINT: json.dumps(dict(self._points.points[number])),
            schema.NIGHT_IDENTITY: self._points.identities[number],
            schema.PARENT: self._record.run_id,
        }
        run = self._tracking.create(f"{self._file.name} {night.name} {part}", tags)
        run.log_metrics(forecast)
        return run.run_id, self._job(number, part, run.run_id)

    def _job(self, number: int, part: str, run_id: str) -> JobSpec:
        """The job of a point in a run. Each run has its own seed: equal jobs would share checkpoints."""
        spec = self._points.limited(number, part)
        digest = hashlib.sha256(f"{spec.seed} {run_id}".encode()).digest()
        return spec.replace(seed=int.from_bytes(digest[:4]) % 2**31)

    def _covered(self, spent_usd: float, part: str) -> set[int] | None:
        """Points whose worst case fits the rest of the night's dollars, or None if there is no limit."""
        if self._file.max_cost_usd is None:
            return None
        limit_usd = self._file.max_cost_usd + _ROUNDING_USD
        worst = {number: self._points.worst_usd(number, part) for number in range(len(self._points.points))}
        return {number for number, bound in worst.items() if bound is not None and spent_usd + bound <= limit_usd}

    def _affordable(self, posterior: Posterior, spent_usd: float) -> set[int] | None:
        """Points whose worst case fits the rest of the night's dollars together with that of the retraining.

        Raises:
            BudgetRefused: there is none.
        """
        limit_usd = self._file.max_cost_usd
        if limit_usd is None:
            return None
        worst = [self._points.worst_usd(number, RETRAIN) for number in (posterior.fallback(), 0)]
        bounds = [bound for bound in worst if bound is not None]
        reserve_usd = self._file.retrains * max(bounds) if len(bounds) == len(worst) else None
        points = set() if reserve_usd is None else self._covered(spent_usd + reserve_usd, TRY) or set()
        if not points:
            retraining = "more than its own max_cost_usd" if reserve_usd is None else usd(reserve_usd)
            raise BudgetRefused(
                f"a night may cost {usd(limit_usd)} (max_cost_usd), {usd(spent_usd)} of it is spent, and training "
                f"again after a miss (retrains={self._file.retrains}) can cost {retraining} at worst: no try fits "
                "beside it; raise max_cost_usd, or lower retrains or max_runtime_minutes"
            )
        return points

    def _require(self, number: int, allowed: Collection[int] | None, night: Night) -> None:
        """Refuse to launch a point that is not allowed; the policy returns one if no allowed point is left."""
        if allowed is not None and number not in allowed:
            raise BudgetRefused(
                f"the worst case of {setting(self._points.points[number])} does not fit beside the {usd(night.usd)} "
                f"that night {night.name} has cost: raise max_cost_usd, {usd(self._file.max_cost_usd or 0.0)}"
            )

    def _nights(self) -> list[Night]:
        return nights_of(self._tracking, self._file.name, self._file.metric)

    def _tonight(self, nights: list[Night] | None = None) -> Night:
        """The night of this command, with its jobs so far."""
        nights = self._nights() if nights is None else nights
        same = (night for night in nights if night.name == self._file.night)
        return next(same, Night(name=str(self._file.night), number=len(nights), jobs=()))

    def _observations(self, nights: list[Night] | None = None) -> list[Observation]:
        """All runs of all nights whose points the file still has."""
        pairs = [(night, job) for night in (self._nights() if nights is None else nights) for job in night.jobs]
        return [
            Observation(candidate=self._policy.candidates[number], night=night.number, value=job.value, usd=job.usd)
            for night, job in pairs
            if job.counts and (number := self._points.number_of(job)) is not None
        ]

    def _default_usd(self, nights: list[Night]) -> dict[str, float]:
        """Night to the dollars that the default point would have cost, as estimated today."""
        process = self._policy.cost_process(self._observations(nights))
        default = self._policy.candidates[0]
        return {
            night.name: float(np.exp(default.log_usd + process.predict([default.cost], night.number).mean[0]))
            for night in nights
        }

    def _reason(self, choice: Choice, *, is_blind: bool) -> str:
        """The choice in a sentence."""
        if is_blind:
            amount = "too little" if self._observations() else "nothing"
            return f"night {self._file.night}: the default, for {amount} is known of this job yet; it is learnt from"
        point = "the default" if choice.index == 0 else setting(self._points.points[choice.index])
        floor = f"{self._file.metric} {plain(self._file.floor, 4)}"
        chance = f"{choice.chance:.1%} to miss {floor} or to fail"
        count = f"{choice.admissible} of {len(self._points.points)} points are under 5 %"
        dollars = f"{usd(choice.usd)} expected, retraining included; the default about {usd(choice.default_usd)}"
        return f"night {self._file.night}: {point}: {chance} ({count}); {dollars}"


def _miss(job: NightJob, file: RecurFile) -> str:
    """A sentence on how a job missed the floor."""
    if job.value is None:
        return f"the job {job.state.lower()} ({job.reason or 'no reason given'})"
    return f"{file.metric} {plain(job.value, 4)} misses the floor {plain(file.floor, 4)}"


@contextmanager
def _locked(home: Path, name: str) -> Iterator[None]:
    """Keep other processes of this machine from the same recurring training."""
    folder = home / _LOCKS
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock").open("a") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LaunchRefused(f"another process works on {name}: wait until it has ended") from error
        yield
