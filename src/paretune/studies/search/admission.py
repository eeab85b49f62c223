"""Admits the jobs of a study to its own budget and to the budgets that it shares with others."""

import math
from collections.abc import Callable
from dataclasses import replace

from paretune.core.errors import BudgetRefused
from paretune.jobs.workplace import Workplace
from paretune.ledger.budget_ledger import BudgetRequest, BudgetStatus
from paretune.pricing.budget import Balance
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.table import StudyTable
from paretune.studies.search.worst_case import WorstCase


class Admission:
    """Reserves the worst cases of a study's jobs, and tells what its budgets still cover."""

    def __init__(self, file: StudyFile, table: StudyTable, workplace: Workplace) -> None:
        self._file = file
        self._table = table
        self._workplace = workplace
        self._shared = workplace.budget_ledger(file.budget)
        self.worst_case = WorstCase(workplace, has_budget=file.budget_usd is not None)

    @property
    def has_budget(self) -> bool:
        """Whether any budget limits the study's jobs."""
        return self._file.budget_usd is not None or self._shared is not None

    def has_enough(self, count: int) -> bool:
        """Whether the study may have no more trials than these."""
        return self._file.n_trials is not None and count >= self._file.n_trials

    def reserve(self, trial: Trial) -> Trial:
        """Reserve the worst case of a trial's job in all budgets; the trial with it.

        Raises:
            BudgetRefused: some budget does not cover it, or its price is unknown.
        """
        worst_usd = self.worst_case.reserved_usd(trial.spec)
        if self._file.budget_usd is not None:
            _admit(worst_usd, self._file.budget_usd, self._table.balance(), trial.spec.instance_type)
        if self._shared is not None:
            request = BudgetRequest(
                job=self._shared_name(trial.number),
                worst_usd=worst_usd,
                tags=self._workplace.attribution(trial.spec, self._file.name).of_budgets(trial.spec.tags),
                origin=self._workplace.launcher.origin,
                now=self._workplace.clock.now(),
                instance_type=trial.spec.instance_type,
            )
            self._shared.reserve(request)
        trial = replace(trial, worst_usd=worst_usd)
        self._table.reserve(trial)
        return trial

    def name_run(self, number: int, run_id: str) -> None:
        """Record the MLflow run of a trial, by which its job is booked."""
        self._table.name_run(number, run_id)
        if self._shared is not None:
            self._shared.name_run(self._shared_name(number), run_id)

    def release(self, number: int) -> None:
        """Take back the shared reservation of a trial whose job was never begun."""
        if self._shared is not None:
            self._shared.release(self._shared_name(number))

    def affordable(self, *, keep_usd: float = 0.0) -> Callable[[JobSpec], bool]:
        """A test of jobs with their limits: whether the budgets, as they are now, cover the worst case.

        `keep_usd` are dollars of the study's own budget that must be left after that.

        The budgets are read once, for all jobs. The test raises Interrupted if the command was interrupted.
        """
        budget_usd = self._file.budget_usd
        own = [] if budget_usd is None else [(self._table.balance(), budget_usd - keep_usd)]
        shared_status = self._shared_statuses()

        def is_affordable(spec: JobSpec) -> bool:
            self._workplace.interruption.check()
            try:
                worst_usd = self.worst_case.reserved_usd(spec)
            except BudgetRefused:  # above max_cost_usd, or its price is unknown
                return False
            status = shared_status(spec)
            limits = own + ([] if status is None else [(status.balance, status.budget.usd_per_month)])
            return all(worst_usd is not None and spent.covers(worst_usd, most_usd) for spent, most_usd in limits)

        return is_affordable

    def fits(self, spec: JobSpec) -> bool:
        """Whether the budgets now cover the worst case of the job, with the limit that it would get."""
        return self.affordable()(self.worst_case.limited(spec))

    def tightest_budget(self, spec: JobSpec | None) -> str:
        """In words, the dollars left of the budget with the fewest left for a job; empty without a budget."""
        budget_usd = self._file.budget_usd
        left_usd = math.inf if budget_usd is None else self._table.balance().left_usd(budget_usd)
        status = None if spec is None else self._shared_statuses()(spec)
        if status is not None and status.left_usd < left_usd:
            return f"what is left of {status.sentence()}"
        return "" if budget_usd is None else f"what is left of the budget ({left_usd:.4g} USD)"

    def _shared_statuses(self) -> Callable[[JobSpec], BudgetStatus | None]:
        """A function that gives a job's shared budget with the fewest dollars left; the ledger is read once, now."""
        if self._shared is None:
            return lambda _: None
        statuses = self._shared.statuses(self._workplace.clock.now(), self._workplace.launcher.origin)

        def tightest_for(spec: JobSpec) -> BudgetStatus | None:
            tags = self._workplace.attribution(spec, self._file.name).of_budgets(spec.tags)
            counted = [status for status in statuses if status.budget.covers(tags)]
            return min(counted, key=lambda status: status.left_usd, default=None)

        return tightest_for

    def _shared_name(self, number: int) -> str:
        return f"{self._table.mark}/{number}"


def _admit(worst_usd: float | None, budget_usd: float, balance: Balance, instance_type: str) -> None:
    if worst_usd is None:
        raise BudgetRefused(
            f"the price of {instance_type} is not known, so it fits no budget: "
            "leave it out of the search, or give its price (PARETUNE_PRICES)"
        )
    if not balance.covers(worst_usd, budget_usd):
        raise BudgetRefused(
            f"worst case {worst_usd:.4g} USD does not fit: of {budget_usd:g} USD {balance.spent_usd:.4g} "
            f"are spent and {balance.committed_usd:.4g} promised to running jobs and kept instances"
        )
