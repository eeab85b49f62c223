"""One night of a recurring training: choose a point, train it, judge it, train again where it missed the floor.

What has been decided stands in MLflow before a job is created: its run carries name, night, part and point. So a
command that was killed, started again for the same night, adopts what runs and pays nothing twice.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from paretune.commands.recur.answer import RecurResult
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
)
from paretune.commands.recur.points import Points
from paretune.commands.recur.policy import Choice, Knowledge, Seen
from paretune.commands.recur.record import RecurRunWriter
from paretune.core import file_lock
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, JobFailed, LaunchRefused, ParetuneError
from paretune.core.tags import Attribution
from paretune.jobs.launch import run_job
from paretune.jobs.progress import say_on_stderr, watched
from paretune.jobs.workplace import Workplaces
from paretune.models.register import register
from paretune.presentation.numbers import plain, usd
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.specification.profile import charged
from paretune.studies.search.trial_job import PARENT
from paretune.tracking import schema

_ROUNDING_USD = 1e-9


def run_night(file: RecurFile, *, say: Callable[[str], None] = say_on_stderr) -> RecurResult:
    """Tonight's model and what it cost; a night that has ended already is only told again.

    Raises:
        BadInput, LaunchRefused, TrackingUnavailable: the default could not be launched.
        BudgetRefused: no point and its retraining fit the night's `max_cost_usd`; nothing was launched.
        Interrupted, LostContact: as of a job; the same command goes on with the night.
    """
    file = file.dated(file.night or datetime.now(UTC).date().isoformat())
    workplaces = replace(Workplaces.of_process(), shows_work=say is say_on_stderr)
    file = replace(file, job=charged(file.job, workplaces.environment))
    with watched(workplaces.interruption) as on_events, _alone(workplaces.home, file.name):
        return _NightRun(file, workplaces, on_events, say).run()


class _NightRun:
    """The night under way."""

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
        job = self._tonight().returned or self._last()
        is_met = job is not None and self._policy.meets(job.value)
        registered = ""
        if job is not None and is_met:
            self._tracking.run(job.run_id).set_tags({schema.RETURNED: "true"})
            if name := self._file.job.get("register"):
                registered = register(str(name), job.run_id, self._tracking)
        nights = self._nights()
        tonight = self._tonight(nights)
        return self._record.finish(nights, tonight, self._default_usd(nights), registered, is_met=is_met)

    def _last(self) -> NightJob | None:
        """The try, or what was trained after it: the first job that meets the floor, else the last one."""
        job = self._part(TRY, 0, self._open_try)
        for number in range(self._file.retrains):
            if job is not None and self._policy.meets(job.value):
                break
            if job is not None and job.is_unmeasured:
                metric = self._file.metric
                self._say(f"the job has logged no {metric}, so another would not: log {metric}, or change floor")
                break
            missed = "the try was refused" if job is None else _how(job, self._file)
            self._say(f"{missed}: training again, at a safe point")
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
            else:
                self._train(job.run_id, self._job(self._begun(job), part, job.run_id), part, is_adopted=True)

    def _begun(self, job: NightJob) -> int:
        """The number of the point of a job that was begun before."""
        at = self._points.number_of(job)
        if at is None:
            text = f"night {job.night} has begun with a point that {self._file.path} no longer has: {job.point}"
            raise BadInput([f"{text}; put it back, or set another night"])
        return at

    def _train(self, run_id: str, spec: JobSpec, part: str, *, is_adopted: bool = False) -> None:
        """Run or adopt the job of a run to its end, whatever that is; a try that was refused is only noted."""
        workplace = self._workplaces.with_opened_run(run_id).of(spec)
        try:
            run_job(spec, workplace, self._on_events, study=self._file.name)
        except JobFailed as error:
            if (
                is_adopted and not workplace.launcher.jobs_outlive_submitter
            ):  # it has died with the command that started it
                self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED})
            elif not any(job.run_id == run_id and job.has_ended for job in self._tonight().jobs):
                self._refused(run_id, spec, part, error)  # it has failed before there was a job
        except Interrupted:
            if spec.on_interrupt != "detach" or not spec.on_sagemaker:
                self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED})
            raise
        except (BadInput, LaunchRefused, BudgetRefused) as error:
            is_over = isinstance(error, BudgetRefused) and self._can_be_paid(spec)  # of a month: no fault of the point
            self._refused(run_id, spec, part, error, is_over=is_over)

    def _refused(self, run_id: str, spec: JobSpec, part: str, error: ParetuneError, *, is_over: bool = False) -> None:
        """Note that a try was refused; raise the error where the night is over, for nothing safer can be trained.

        Once it is mended, the same command tries it again.
        """
        is_last = is_over or part == RETRAIN or self._is_default(spec)
        self._tracking.run(run_id).set_tags({schema.NIGHT_PART: INTERRUPTED if is_last else REFUSED})
        if is_last:
            raise error
        self._say(str(error))

    def _can_be_paid(self, spec: JobSpec) -> bool:
        """Whether the job's worst case is within its own limit."""
        try:
            self._workplace.launcher.worst_case_usd(spec)
        except BudgetRefused:
            return False
        return True

    def _is_default(self, spec: JobSpec) -> bool:
        return spec.replace(seed=0).spec_hash() == self._points.specs[0].replace(seed=0).spec_hash()

    def _open_try(self, night: Night) -> tuple[str, JobSpec]:
        """Choose tonight's point and open its run; BudgetRefused where none fits the dollars of the night."""
        knowledge = self._policy.knowledge(self._seen(), night.number)
        allowed = self._affordable(knowledge, night.usd)
        digest = hashlib.sha256(f"{self._file.seed} {night.name} {len(night.jobs)}".encode()).digest()
        choice = knowledge.choice(np.random.default_rng(int.from_bytes(digest[:8])), allowed)
        is_blind = knowledge.is_blind and choice.at == self._policy.default
        self._say(self._why(choice, is_blind=is_blind))
        figures = {CHANCE: choice.chance, EXPECTED: choice.usd, DEFAULT: choice.default_usd}
        self._require(choice.at, allowed, night)
        return self._open(choice.at, TRY, night, {} if is_blind else figures)

    def _open_retrain(self, night: Night) -> tuple[str, JobSpec]:
        """The safest point, now that the try is known, of those that tonight's dollars still cover."""
        knowledge = self._policy.knowledge(self._seen(), night.number)
        allowed = self._covered(night.usd, RETRAIN)
        missed = {at for job in night.jobs if job.counts and (at := self._points.number_of(job)) is not None}
        is_last = len(night.parts(RETRAIN)) == self._file.retrains - 1
        at = knowledge.retrain(missed, is_last=is_last, allowed=allowed)
        self._require(at, allowed, night)
        return self._open(at, RETRAIN, night, {CHANCE: float(knowledge.chances[at])})

    def _open(self, at: int, part: str, night: Night, figures: Mapping[str, float]) -> tuple[str, JobSpec]:
        spec = self._points.limited(at, part)
        whose = Attribution.of(spec.user, spec.tags, self._workplace.environment, study=self._file.name)
        tags = {
            **{f"{schema.PREFIX}{name}": text for name, text in whose.named().items()},
            schema.RECUR: self._file.name,
            schema.NIGHT: night.name,
            schema.NIGHT_PART: part,
            schema.NIGHT_POINT: json.dumps(dict(self._points.points[at])),
            schema.NIGHT_IDENTITY: self._points.identities[at],
            PARENT: self._record.run_id,
        }
        run = self._tracking.create(f"{self._file.name} {night.name} {part}", tags)
        run.log_metrics(figures)
        return run.run_id, self._job(at, part, run.run_id)

    def _job(self, at: int, part: str, run_id: str) -> JobSpec:
        """The job of a point in a run. Each has a seed of its own: equal jobs would share checkpoints."""
        spec = self._points.limited(at, part)
        digest = hashlib.sha256(f"{spec.seed} {run_id}".encode()).digest()
        return spec.replace(seed=int.from_bytes(digest[:4]) % 2**31)

    def _covered(self, spent_usd: float, part: str) -> set[int] | None:
        """Points whose worst case fits what is left of the night; None: there is no limit."""
        most = self._file.max_cost_usd
        if most is None:
            return None
        worst = {at: self._points.worst_usd(at, part) for at in range(len(self._points.points))}
        return {at for at, usd_ in worst.items() if usd_ is not None and spent_usd + usd_ <= most + _ROUNDING_USD}

    def _affordable(self, knowledge: Knowledge, spent_usd: float) -> set[int] | None:
        """Points whose worst case fits what is left of the night together with that of the retraining.

        Raises:
            BudgetRefused: none does.
        """
        most = self._file.max_cost_usd
        if most is None:
            return None
        worst = [self._points.worst_usd(at, RETRAIN) for at in (knowledge.fallback(), 0)]
        kept = None if None in worst else self._file.retrains * max(each for each in worst if each is not None)
        found = set() if kept is None else self._covered(spent_usd + kept, TRY) or set()
        if not found:
            alone = "more than its own max_cost_usd" if kept is None else usd(kept)
            raise BudgetRefused(
                f"a night may cost {usd(most)} (max_cost_usd), {usd(spent_usd)} of it is spent, and training again "
                f"after a miss (retrains={self._file.retrains}) can cost {alone} at worst: no try fits beside it; "
                "raise max_cost_usd, or lower retrains or max_runtime_minutes"
            )
        return found

    def _require(self, at: int, allowed: Collection[int] | None, night: Night) -> None:
        """Refuse to launch a point that is not allowed, which is taken where no other one is left."""
        if allowed is not None and at not in allowed:
            raise BudgetRefused(
                f"the worst case of {setting(self._points.points[at])} does not fit beside the {usd(night.usd)} that "
                f"night {night.name} has cost: raise max_cost_usd, {usd(self._file.max_cost_usd or 0.0)}"
            )

    def _nights(self) -> list[Night]:
        return nights_of(self._tracking, self._file.name, self._file.metric)

    def _tonight(self, nights: list[Night] | None = None) -> Night:
        """The night of this command, with the jobs that it has so far."""
        nights = self._nights() if nights is None else nights
        own = (night for night in nights if night.name == self._file.night)
        return next(own, Night(name=str(self._file.night), number=len(nights), jobs=()))

    def _seen(self, nights: list[Night] | None = None) -> list[Seen]:
        """What all nights have shown of the points that the file still has."""
        found = []
        for night in self._nights() if nights is None else nights:
            for job in night.jobs:
                at = self._points.number_of(job)
                if job.counts and at is not None:
                    candidate = self._policy.candidates[at]
                    found.append(Seen(candidate=candidate, night=night.number, value=job.value, usd=job.usd))
        return found

    def _default_usd(self, nights: list[Night]) -> dict[str, float]:
        """Night to dollars that the default would have cost, by all that is known now."""
        process = self._policy.cost_process(self._seen(nights))
        default = self._policy.candidates[0]
        return {
            night.name: float(np.exp(default.log_usd + process.predict([default.cost], night.number).mean[0]))
            for night in nights
        }

    def _why(self, choice: Choice, *, is_blind: bool) -> str:
        """The choice in a sentence."""
        if is_blind:
            known = "too little" if self._seen() else "nothing"
            return f"night {self._file.night}: the default, for {known} is known of this job yet; it is learnt from"
        chosen = "the default" if choice.at == 0 else setting(self._points.points[choice.at])
        floor = f"{self._file.metric} {plain(self._file.floor, 4)}"
        known = f"{choice.chance:.1%} to miss {floor} or to fail"
        count = f"{choice.admissible} of {len(self._points.points)} points are under 5 %"
        dollars = f"{usd(choice.usd)} expected, retraining included; the default about {usd(choice.default_usd)}"
        return f"night {self._file.night}: {chosen}: {known} ({count}); {dollars}"


def setting(point: Mapping[str, Value]) -> str:
    """A point in words."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


def _how(job: NightJob, file: RecurFile) -> str:
    """How a job missed the floor."""
    if job.value is None:
        return f"the job {job.state.lower()} ({job.reason or 'no reason given'})"
    return f"{file.metric} {plain(job.value, 4)} misses the floor {plain(file.floor, 4)}"


@contextmanager
def _alone(home: Path, name: str) -> Iterator[None]:
    """No other process of this machine works on the same recurring training meanwhile."""
    folder = home / "recurring"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock").open("a") as file:
        try:
            file_lock.lock(file.fileno(), wait=False)
        except BlockingIOError as error:
            raise LaunchRefused(f"another process works on {name}: wait until it has ended") from error
        try:
            yield
        finally:
            with suppress(OSError):
                file_lock.unlock(file.fileno())
