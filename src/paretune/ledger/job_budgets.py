"""One job against the budgets that it counts against: checked before launch, reserved, and booked at its end."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import BadInput, LaunchRefused, LostContact
from paretune.core.tags import Attribution
from paretune.launchers.base import Launcher
from paretune.ledger.budget_ledger import BudgetLedger, BudgetRequest, BudgetStatus
from paretune.specification.job import JobSpec


@dataclass(frozen=True, kw_only=True)
class JobBudgets:
    """The budgets of one job. A job without budgets is always admitted.

    Attributes:
        open_ledger: returns the ledger of the job's budgets, or None if it has none; may raise BadInput.
        attribution: study, user and team, by which budgets choose jobs beside the tags of the job.
    """

    open_ledger: Callable[[], BudgetLedger | None]
    spec: JobSpec
    launcher: Launcher
    attribution: Attribution
    clock: Clock

    def check(self) -> list[BudgetStatus]:
        """The budgets that the job counts against; nothing is reserved.

        Raises:
            BudgetRefused: some budget does not cover the worst case of the job, or its price is not known.
            BadInput: the file of the budgets has faults, or its storage cannot be opened.
            LaunchRefused: the storage of the budgets does not answer.
        """
        ledger = self.open_ledger()
        try:
            return [] if ledger is None else ledger.check(self._request(""))
        except LostContact as error:
            raise LaunchRefused(str(error)) from error

    def reserve(self, run_id: str) -> None:
        """Reserve the worst case of the job, unless that is done.

        Raises:
            BudgetRefused: some budget does not cover it; nothing was launched.
            LaunchRefused: the storage of the budgets does not answer; nothing was launched.
        """
        ledger = self.open_ledger()
        try:
            if ledger is not None:
                ledger.reserve(self._request(run_id))
        except LostContact as error:
            raise LaunchRefused(f"{error}; nothing was launched") from error

    def book(self, run_id: str, usd: float | None, kept_usd: float | None) -> str:
        """Replace the reservation by what the job has cost; returns what went wrong, or an empty text.

        `usd` is None if the cost is not known: then the worst case is booked. `kept_usd` stays reserved for instances
        kept after the job.
        """
        if not self.launcher.is_billed:
            return ""
        try:
            ledger = self.open_ledger()
            if ledger is None or ledger.book(run_id, usd, kept_usd) or not usd:
                return ""
        except (BadInput, LostContact) as error:
            return f"its worst case stays reserved in its budgets until `{command_line('sync')}` books it: {error}"
        return (
            f"its {usd:.4g} USD are in no budget of {ledger.file.path}: {ledger.shown_address} has no reservation "
            "for it; set PARETUNE_STORAGE as it was when the job was launched"
        )

    def _request(self, run_id: str) -> BudgetRequest:
        worst_usd, now = self.launcher.worst_case_usd(self.spec), self.clock.now()
        origin = self.launcher.origin
        request = BudgetRequest.of(self.spec, self.attribution, worst_usd, job=run_id, origin=origin, now=now)
        return replace(request, run_id=run_id)
