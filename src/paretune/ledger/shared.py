"""The trials of a study or a design against budgets that it shares with others."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property

import sqlalchemy as sa

from paretune.core.tags import Attribution
from paretune.ledger.budget_ledger import BudgetLedger, BudgetRequest, BudgetStatus, tightest
from paretune.specification.job import JobSpec


class SharedBudgets:
    """What the jobs of one study may still cost; nothing limits them if there is no ledger.

    Args:
        study: its name.
        mark: a text that no other study has, even of the same name in another storage; called when it is needed.
        origin: measured or simulated.
        now: seconds since the epoch, of the launcher's clock.
    """

    def __init__(
        self,
        ledger: BudgetLedger | None,
        study: str,
        *,
        mark: Callable[[], str],
        origin: str,
        now: Callable[[], float],
        environment: Mapping[str, str],
    ) -> None:
        self._ledger = ledger
        self._study = study
        self._read_mark = mark
        self._origin = origin
        self._now = now
        self._environment = environment

    @property
    def are_set(self) -> bool:
        """Whether there are any."""
        return self._ledger is not None

    def reservation(self, trial: int, spec: JobSpec, worst_usd: float | None) -> Callable[[sa.Connection], None]:
        """What reserves a trial's worst case, or raises BudgetRefused; called with a connection of its storage."""
        ledger = self._ledger
        if ledger is None:
            return lambda _: None
        whose = Attribution.of(spec.user, spec.tags, self._environment, self._study)
        job = self._job(trial)
        request = BudgetRequest.of(spec, whose, worst_usd, job=job, origin=self._origin, now=self._now())
        return lambda connection: ledger.reserve(request, connection)

    def name_run(self, trial: int, run_id: str) -> None:
        """Write down the MLflow run of a trial, by which its job is booked."""
        if self._ledger is not None:
            self._ledger.name_run(self._job(trial), run_id)

    def release(self, trial: int) -> None:
        """Take back what was reserved for a trial whose job was never begun."""
        if self._ledger is not None:
            self._ledger.release(self._job(trial))

    def statuses(self) -> Callable[[JobSpec], BudgetStatus | None]:
        """What gives the budget that leaves a job the fewest dollars; they are read once, now."""
        if self._ledger is None:
            return lambda _: None
        found = self._ledger.statuses(self._now(), self._origin)

        def of(spec: JobSpec) -> BudgetStatus | None:
            tags = Attribution.of(spec.user, spec.tags, self._environment, self._study).of_budgets(spec.tags)
            return tightest([standing for standing in found if standing.budget.covers(tags)])

        return of

    def _job(self, trial: int) -> str:
        return f"{self._mark}/{trial}"

    @cached_property
    def _mark(self) -> str:
        return self._read_mark()


def left_usd(standing: BudgetStatus | None) -> float:
    """Dollars that are left of a budget; infinite of none."""
    return math.inf if standing is None else standing.left_usd
