"""Admits the jobs of a study to its own budget and to the budgets that it shares with others."""

import math
from collections.abc import Callable
from functools import cached_property

import sqlalchemy as sa

from paretune.core.errors import BudgetRefused
from paretune.core.tags import Attribution
from paretune.jobs.workplace import Workplace
from paretune.ledger.budget_ledger import BudgetRequest, BudgetStatus
from paretune.ledger.study_ledger import Reservation, StudyLedger
from paretune.ledger.trial_entry import TrialNote
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.trial_history import TrialHistory
from paretune.studies.search.worst_case import WorstCase


class Admission:
    """Reserves the worst cases of a study's jobs, and tells what its budgets still cover."""

    def __init__(self, file: StudyFile, ledger: StudyLedger, workplace: Workplace, history: TrialHistory) -> None:
        self._file = file
        self._ledger = ledger
        self._workplace = workplace
        self._shared = workplace.budget_ledger(file.budget)
        self._history = history
        self.worst_case = WorstCase(workplace, history.longest_s, has_budget=file.budget_usd is not None)
        self.is_full = False  # whether the study has begun as many trials as it may have

    @property
    def has_budget(self) -> bool:
        """Whether any budget limits the study's jobs."""
        return self._file.budget_usd is not None or self._shared is not None

    def refresh(self, *, has_news: bool) -> None:
        """Take into account that trials have ended, if there are any new ones."""
        if has_news:
            self.is_full = False
        self.worst_case.learn(len(self._history.trials))

    def has_enough(self, count: int) -> bool:
        """Whether the study may have no more trials than these."""
        return self._file.n_trials is not None and (self.is_full or count >= self._file.n_trials)

    def reserve(self, trial: int, spec: JobSpec, note: TrialNote, *, identity: str) -> bool:
        """Reserve a job's worst case in all budgets; False if the job is a duplicate or the study has enough trials.

        Raises:
            BudgetRefused: some budget does not cover it, or its price is unknown.
        """
        worst_usd = self.worst_case.reserved_usd(spec)
        reservation = self._ledger.reserve(
            trial,
            spec.changed(),
            note,
            worst_usd=worst_usd,
            budget_usd=self._file.budget_usd,
            identity=identity,
            most_trials=self._file.n_trials,
            reserve_shared=self._shared_reservation(trial, spec, worst_usd),
        )
        if reservation is not Reservation.GRANTED:
            self.is_full = reservation is Reservation.TRIAL_LIMIT
        return reservation is Reservation.GRANTED

    def name_run(self, trial: int, run_id: str) -> None:
        """Record the MLflow run of a trial, by which its job is booked."""
        self._ledger.set_run_id(trial, run_id)
        if self._shared is not None:
            self._shared.name_run(self._shared_name(trial), run_id)

    def release(self, trial: int) -> None:
        """Take back the shared reservation of a trial whose job was never begun."""
        if self._shared is not None:
            self._shared.release(self._shared_name(trial))

    def affordable(self, *, keep_usd: float = 0.0) -> Callable[[JobSpec], bool]:
        """A test of jobs with their limits: whether the budgets, as they are now, cover the worst case.

        `keep_usd` are dollars of the study's own budget that must be left after that.

        The ledgers are read once, for all jobs. The test raises Interrupted if the command was interrupted.
        """
        budget_usd = self._file.budget_usd
        balance = None if budget_usd is None else self._ledger.balance()
        shared_status = self._shared_statuses()

        def is_affordable(spec: JobSpec) -> bool:
            self._workplace.interruption.check()
            try:
                worst_usd = self.worst_case.reserved_usd(spec)
            except BudgetRefused:  # above max_cost_usd, or its price is unknown
                return False
            limits = [] if balance is None or budget_usd is None else [(balance, budget_usd - keep_usd)]
            if (status := shared_status(spec)) is not None:
                limits.append((status.balance, status.budget.usd_per_month))
            return all(worst_usd is not None and spent.covers(worst_usd, most_usd) for spent, most_usd in limits)

        return is_affordable

    def fits(self, spec: JobSpec) -> bool:
        """Whether the budgets now cover the worst case of the job, with the limit that it would get."""
        return self.affordable()(self.worst_case.limited(spec))

    def left_usd(self, spec: JobSpec | None = None) -> float:
        """Dollars left of the study's budget, or of a shared one of a job that has less; infinite without a budget."""
        budget_usd = self._file.budget_usd
        left = math.inf if budget_usd is None else self._ledger.balance().left_usd(budget_usd)
        status = None if spec is None else self._shared_statuses()(spec)
        return left if status is None else min(left, status.left_usd)

    def tightest_budget(self, spec: JobSpec | None) -> str:
        """In words, the dollars left of the budget with the fewest left for a job; empty without a budget."""
        status = None if spec is None else self._shared_statuses()(spec)
        if status is not None and status.left_usd < self.left_usd():
            return f"what is left of {status.sentence()}"
        return "" if self._file.budget_usd is None else f"what is left of the budget ({self.left_usd():.4g} USD)"

    def _shared_reservation(
        self, trial: int, spec: JobSpec, worst_usd: float | None
    ) -> Callable[[sa.Connection], None]:
        """A function that reserves in the shared budgets or raises BudgetRefused, given a connection of the ledger."""
        budgets = self._shared
        if budgets is None:
            return lambda _: None
        request = BudgetRequest(
            job=self._shared_name(trial),
            worst_usd=worst_usd,
            tags=self._attribution(spec).of_budgets(spec.tags),
            origin=self._workplace.launcher.origin,
            now=self._workplace.clock.now(),
            instance_type=spec.instance_type,
        )
        return lambda connection: budgets.reserve(request, connection)

    def _shared_statuses(self) -> Callable[[JobSpec], BudgetStatus | None]:
        """A function that gives a job's shared budget with the fewest dollars left; the ledger is read once, now."""
        if self._shared is None:
            return lambda _: None
        statuses = self._shared.statuses(self._workplace.clock.now(), self._workplace.launcher.origin)

        def tightest_for(spec: JobSpec) -> BudgetStatus | None:
            tags = self._attribution(spec).of_budgets(spec.tags)
            counted = [status for status in statuses if status.budget.covers(tags)]
            return min(counted, key=lambda status: status.left_usd, default=None)

        return tightest_for

    def _attribution(self, spec: JobSpec) -> Attribution:
        return Attribution.of(spec.tags, self._workplace.environment, self._file.name)

    def _shared_name(self, trial: int) -> str:
        return f"{self._mark}/{trial}"

    @cached_property
    def _mark(self) -> str:
        """A text that no other study has, even of the same name in another storage."""
        return self._ledger.mark()
