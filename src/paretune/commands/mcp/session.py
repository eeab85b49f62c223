"""The dollars of a session: what agents have launched, through any of its servers, and what is left.

A session is kept in the ledger of studies: its commands are the trials, and its budget is admitted as that of a study.
It outlives a server, and servers with the same storage and session share it.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paretune.commands.mcp.commands import Running
from paretune.commands.mcp.quotes import Quote
from paretune.core.errors import BadInput, BudgetRefused
from paretune.ledger.study_ledger import Reservation, StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote, TrialStatus
from paretune.pricing.budget import Balance

_MOST_ENDED = 20  # ended commands in a list, the latest ones


@dataclass(frozen=True, kw_only=True)
class LaunchedCommand:
    """A command that an agent has launched."""

    name: str
    entry: TrialEntry  # its dollars; it has an end once its cost is booked
    running: Running  # its process, of this server or an earlier one


class Session:
    """Launches quotes while their worst cases fit the budget; safe to call from several threads and processes.

    A worst case is reserved before its command is started, and replaced by the cost when that is known. Nothing else
    lowers the sum, so the bill of a session cannot exceed its budget.
    """

    def __init__(
        self,
        name: str,  # servers with the same name and storage share the dollars
        budget_usd: float,  # the most that all commands of the session may cost together
        *,
        open_ledger: Callable[[str], StudyLedger],  # opens the ledger of the session; called when it is first needed
        start: Callable[[Quote, str], None],  # starts a quote under a name
        command: Callable[[str], Running],  # the command of a name, which `start` starts
    ) -> None:
        self.name, self.budget_usd = name, budget_usd
        self._open_ledger, self._start, self._command = open_ledger, start, command

    @cached_property
    def _ledger(self) -> StudyLedger:
        ledger = self._open_ledger(f"agents of session {self.name}")
        ledger.open("", json.dumps({"agents": "{}"}))
        return ledger

    def launch(self, quote: Quote) -> LaunchedCommand:
        """Start the command of a quote, or return it if it was launched before.

        Raises:
            BudgetRefused: its worst case does not fit what is left.
        """
        if self.budget_usd <= 0:
            raise BudgetRefused("this server launches nothing: it was started without --session_budget_usd")
        self._book_ended()
        number = int(quote.number[:7], 16)  # an integer of 32 bits
        name = f"{quote.command}-{number}"
        try:
            reservation = self._ledger.reserve(
                number,
                quote.parameters,
                TrialNote(kind=quote.command),
                worst_usd=quote.worst_case_usd,
                budget_usd=self.budget_usd,
                identity=quote.number,
            )
        except BudgetRefused as error:
            hint = "wait for what runs, or have the server started with more, or with another --session"
            raise BudgetRefused(f"session {self.name}: {error}: {hint}") from error
        if reservation is Reservation.GRANTED:
            try:
                self._start(quote, name)
            except BaseException:
                self._book(self._ledger.entry(number), {"error": "not started"})
                raise
        return self._launched(self._ledger.entry(number))

    def find(self, name: str) -> LaunchedCommand:
        """The command that was launched under a name; raises BadInput if there is none."""
        commands = {command.name: command for command in self.all()}
        if name not in commands:
            raise BadInput([f"nothing was launched as {name}: {', '.join(commands) or 'nothing was launched yet'}"])
        return commands[name]

    def all(self) -> list[LaunchedCommand]:
        """The commands that run, then the latest ones that have ended."""
        if self.budget_usd <= 0:
            return []
        self._book_ended()
        entries = [*self._ledger.running(), *self._ledger.booked(0)[::-1][:_MOST_ENDED]]
        return [self._launched(entry) for entry in entries]

    def balance(self) -> Balance:
        """Dollars that were spent, and that running commands may still cost."""
        if self.budget_usd <= 0:
            return Balance(spent_usd=0.0, committed_usd=0.0)
        self._book_ended()
        return self._ledger.balance()

    def _launched(self, entry: TrialEntry) -> LaunchedCommand:
        name = f"{entry.note.kind}-{entry.trial}"
        return LaunchedCommand(name=name, entry=entry, running=self._command(name))

    def _book_ended(self) -> None:
        for entry in self._ledger.running():
            outcome = self._launched(entry).running.outcome()
            if outcome is not None:
                self._book(entry, outcome)

    def _book(self, entry: TrialEntry, outcome: Mapping[str, Any]) -> None:
        """Book what a command has cost, or its worst case if that is unknown."""
        usd = cost_usd(entry.note.kind, outcome)
        status = TrialStatus.FAILED if "error" in outcome else TrialStatus.COMPLETED
        end = TrialEnd(status=status, cost_usd=entry.worst_usd if usd is None else usd)
        self._ledger.book(entry.trial, end, settled=True)


def cost_usd(command: str, outcome: Mapping[str, Any]) -> float | None:
    """The most that an ended command can be billed, with instances that it keeps, USD; None if that is unknown."""
    if "error" in outcome:
        return None
    if command == "study":
        parts: list[object] = [outcome.get("spent_usd"), outcome.get("committed_usd") or 0.0]
    else:
        parts = [(outcome.get("metrics") or {}).get("cost_usd"), outcome.get("kept_usd") or 0.0]
    usd = [float(part) for part in parts if isinstance(part, (int, float)) and math.isfinite(part) and part >= 0]
    return sum(usd) if len(usd) == len(parts) else None
