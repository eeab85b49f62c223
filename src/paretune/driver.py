"""Drives a study: asks for trials, runs their jobs several at a time, keeps the books, stops in order.

Order of writing makes a driver that is killed at any moment replaceable by another one:

    asked in Optuna -> promised in the ledger -> run opened in MLflow -> job created -> run filled -> booked -> told

Who starts again takes over what the ledger says is running, finishes it, and tells Optuna what is booked and untold.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paretune.early_stopping import Curve
from paretune.errors import BadInput, BudgetRefused, Interrupted, LaunchRefused, LostSight
from paretune.launch import WATCH_INTERVAL_S, admit
from paretune.launchers.processes import is_alive, this_process
from paretune.ledger import Entry, Ledger
from paretune.spec import JobSpec
from paretune.study import Asked, Study
from paretune.study_file import StudyFile
from paretune.trial_job import PARENT, Ended, Place, TrialJob
from paretune.trials import Trial, TrialStatus

TRIAL = "trial"
"""An ordinary trial: a point that the sampler has suggested."""
MOST_REFUSALS = 12
"""Suggestions in a row that do not fit the budget, or are known already, before the search is over."""
ABANDONED_S = 300.0
"""Real seconds without a sign of life after which another machine's driver counts as dead."""
_HEARTBEAT_S = 30.0
_RUNTIME_MARGIN = 2.0  # times the upper end of the estimate's interval: the limit of a trial's job


class Driver:
    """One process at work on a study.

    Args:
        file: the study.
        study: its trials in Optuna.
        ledger: its books.
        run_id: its MLflow run.
        place: where its jobs run.
        now: the machine's time, for signs of life; virtual clocks run ahead of it.
        on_trial: told each trial that has ended, after it was booked.
        say: told what a person wants to know.
    """

    def __init__(
        self,
        file: StudyFile,
        study: Study,
        ledger: Ledger,
        *,
        run_id: str,
        place: Place,
        now: Callable[[], float],
        on_trial: Callable[[Trial], None],
        say: Callable[[str], None],
    ) -> None:
        self.file = file
        self.study = study
        self.ledger = ledger
        self.place = place
        self._run_id = run_id
        self._now = now
        self._on_trial = on_trial
        self._say = say
        self._owner = this_process()
        self._seen = 0.0
        self._spent_usd = 0.0
        self._under_way: dict[int, TrialJob] = {}
        self._computed: dict[str, int] = {}
        self._curves: dict[int, Curve] = {}
        self._measured: dict[int, Mapping[str, float]] = {}
        self._kinds: dict[int, str] = {}
        self.trials: dict[int, Trial] = {}

    @property
    def running(self) -> tuple[TrialJob, ...]:
        """Jobs of this driver that have not ended."""
        return tuple(self._under_way.values())

    @property
    def curves(self) -> Mapping[int, Curve]:
        """F1 over the training of each completed trial."""
        return self._curves

    @property
    def measured(self) -> Mapping[int, Mapping[str, float]]:
        """All metrics of each completed trial."""
        return self._measured

    @property
    def kinds(self) -> Mapping[int, str]:
        """What each trial that has ended was made for."""
        return self._kinds

    def adopt(self) -> None:
        """Take over what a driver that is gone has left: finish its jobs, tell what it has not told."""
        entries = self.ledger.entries()
        for entry in entries:
            if entry.ended is not None:
                self._tell(entry.trial, entry.ended)
                self._remember(entry)
            elif self._is_abandoned(entry) and self.ledger.take_over(
                entry.trial, entry.owner, self._owner, self._now()
            ):
                self._say(f"trial {entry.trial}: taken over")
                self._begin(entry.trial, JobSpec.from_text(entry.parameters), entry.run_id)
        promised = {entry.trial for entry in entries}
        if all(entry.owner == self._owner or entry.ended is not None for entry in entries):
            for number in set(self.study.running()) - promised:  # asked, and never promised: nothing was begun
                self.study.tell_failed(number)

    def start(
        self, asked: Asked, *, repeats: int | None = None, changes: Mapping[str, Any] | None = None, kind: str = TRIAL
    ) -> bool:
        """Begin the trial, or answer it from the record; False when it cannot be had.

        Args:
            asked: its number and point.
            repeats: the trial it repeats with another seed.
            changes: parameters of its job that are not those of its point, such as another seed or accumulation.
            kind: what it is made for, a word of the method's own; kept in the books.
        """
        try:
            spec = self.file.spec_at(asked.point)
            if changes:
                spec = spec.but(**changes)
            self.place.launcher.check(spec)
        except BadInput as error:
            self.study.tell_infeasible(asked.number, out_of_memory=False)
            self._say(f"trial {asked.number}: cannot be: {error.faults[0]}")
            return False
        known = self._known(spec)
        if known is not None:
            self._repeat(asked, spec, known)
            return False
        spec = self._limited(spec)
        note = {"point": dict(asked.point), "seed": spec.seed, "repeats": repeats}
        note |= {"spec_hash": spec.spec_hash(), "kind": kind}
        try:
            self.ledger.promise(
                asked.number,
                spec.as_text(),
                note,
                worst_usd=admit(spec, self.place.launcher.price(spec)),
                budget_usd=self.file.budget_usd,
                owner=self._owner,
                now=self._now(),
            )
        except BudgetRefused as error:
            self.study.tell_failed(asked.number)
            self._say(f"trial {asked.number}: {error}")
            return False
        self._begin(asked.number, spec, "")
        return True

    def look(self) -> None:
        """Look at all jobs once, conclude those that have ended, and say that this driver is alive."""
        for number, job in list(self._under_way.items()):
            ended = job.look()
            if ended is not None:
                del self._under_way[number]
                self._conclude(number, job, ended)
        if self._now() - self._seen > _HEARTBEAT_S:
            self._seen = self._now()
            self.ledger.still_here(self._owner, self._seen)

    def wait(self) -> None:
        """Let time pass until the next look."""
        self.place.interruption.check()
        self.place.clock.sleep(WATCH_INTERVAL_S)

    def stop(self, error: BaseException) -> None:
        """End what runs: stopped and booked, or left running where the jobs are to be detached."""
        for number, job in list(self._under_way.items()):
            detach = job.spec.on_interrupt == "detach" and job.spec.on_sagemaker
            if (isinstance(error, Interrupted) and detach) or isinstance(error, LostSight):
                job.leave()
                continue
            try:
                self._conclude(number, job, job.abandon(error, WATCH_INTERVAL_S))
            except LostSight as lost:
                job.leave()
                self._say(str(lost))

    def _begin(self, number: int, spec: JobSpec, run_id: str) -> None:
        tracking = self.place.tracking
        if not run_id:
            condition = f"tags.`{PARENT}` = '{self._run_id}' and tags.`paretune.trial` = '{number}'"
            there = tracking.runs(condition, newest=1)  # opened by a driver that died before it could say so
            tags = {PARENT: self._run_id, "paretune.trial": str(number)}
            run_id = there[0].run_id if there else tracking.create(f"trial {number}", tags).run_id
            self.ledger.opened(number, run_id)
        self.study.note(number, run_id=run_id)
        job = TrialJob(number, spec, run_id, self.place)
        try:
            job.begin()
        except (BadInput, LaunchRefused) as error:  # AWS would not create it: quota, permission
            job.recording.give_up(error, None)
            self._conclude(number, job, Ended(status=TrialStatus.FAILED, cost_usd=0.0, reason=str(error)))
            return
        self._under_way[number] = job

    def _conclude(self, number: int, job: TrialJob, ended: Ended) -> None:
        """Book, tell, remember: in this order, so that nothing is told that is not booked."""
        found = ended.as_json()
        self.ledger.book(number, ended.cost_usd, found)
        self._tell(number, found)
        entry = next(entry for entry in self.ledger.entries() if entry.trial == number)
        trial = self._remember(entry)
        self._on_trial(trial)

    def _tell(self, number: int, ended: Mapping[str, Any]) -> None:
        status = TrialStatus(ended["status"])
        values = {name: value for name, value in ended["metrics"].items() if name in self.file.objectives}
        if status is TrialStatus.OUT_OF_MEMORY:
            self.study.tell_infeasible(number, out_of_memory=True)
        elif set(values) == set(self.file.objectives):
            self.study.tell(number, values, self._violations(ended["metrics"]))
        else:
            self.study.tell_failed(number)

    def _violations(self, measured: Mapping[str, float]) -> dict[str, float]:
        amounts = {}
        for name, bounds in self.file.constraints.items():
            if name not in measured:
                continue
            if "min" in bounds:
                amounts[f"{name} min"] = bounds["min"] - measured[name]
            if "max" in bounds:
                amounts[f"{name} max"] = measured[name] - bounds["max"]
        return amounts

    def _remember(self, entry: Entry) -> Trial:
        assert entry.ended is not None  # the callers have looked
        if entry.trial in self.trials:
            return self.trials[entry.trial]
        self._spent_usd += entry.booked_usd or 0.0
        status = TrialStatus(entry.ended["status"])
        measured = entry.ended["metrics"]
        trial = Trial(
            number=entry.trial,
            run_id=entry.run_id,
            point=entry.note["point"],
            parameters=entry.parameters,
            status=status,
            values={name: measured[name] for name in self.file.objectives if name in measured},
            cost_usd=entry.booked_usd,
            spent_usd=self._spent_usd,
            origin=self.place.launcher.origin,
            seed=entry.note["seed"],
            repeats=entry.note["repeats"],
            reason=entry.ended["reason"],
        )
        self.trials[entry.trial] = trial
        self._kinds[entry.trial] = entry.note["kind"]
        if status is TrialStatus.COMPLETED:
            self._measured[entry.trial] = measured
            self._curves[entry.trial] = [(share, value) for share, value in entry.ended["curve"]]
        if status in {TrialStatus.COMPLETED, TrialStatus.OUT_OF_MEMORY}:
            self._computed[entry.note["spec_hash"]] = entry.trial
        return trial

    def _known(self, spec: JobSpec) -> Trial | None:
        """A completed or impossible trial that computed the same."""
        number = self._computed.get(spec.spec_hash())
        return None if number is None else self.trials[number]

    def _repeat(self, asked: Asked, spec: JobSpec, known: Trial) -> None:
        """Answer a trial from the record: Optuna learns it again, nobody pays."""
        if known.status is TrialStatus.OUT_OF_MEMORY:
            self.study.tell_infeasible(asked.number, out_of_memory=True)
        else:
            self.study.tell(asked.number, known.values, self._violations(known.values))

    def _limited(self, spec: JobSpec) -> JobSpec:
        """The job with a maximum runtime not far above its estimate, so that its worst case binds less money."""
        price = self.place.launcher.price(spec)
        inputs = self.place.known_inputs(spec)
        estimate = self.place.forecast.of(spec, spec.plan(), inputs, price)
        if estimate is None or not estimate.measured_here:
            return spec
        minutes = max(1.0, _RUNTIME_MARGIN * estimate.time.seconds_high / 60)
        return replace(spec, max_runtime_minutes=min(spec.max_runtime_minutes, round(minutes, 1)))

    def _is_abandoned(self, entry: Entry) -> bool:
        alive = is_alive(entry.owner)
        return entry.owner != self._owner and (
            alive is False or (alive is None and self._now() - entry.seen > ABANDONED_S)
        )
