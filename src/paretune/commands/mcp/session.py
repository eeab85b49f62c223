"""The dollars of a session: commands that agents have launched, their highest cost, and what is left."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from paretune.commands.mcp.commands import Running
from paretune.commands.mcp.quotes import Quote
from paretune.core.errors import BadInput, BudgetRefused


@dataclass(frozen=True, kw_only=True)
class LaunchedCommand:
    """A command that was launched under a name."""

    name: str
    quote: Quote
    running: Running

    def cost_usd(self) -> float | None:
        """Return its cost in USD, or None if it is unknown or the command runs: its worst case then stays booked."""
        outcome = self.running.outcome()
        if outcome is None or "error" in outcome:
            return None
        if self.quote.command == "study":
            parts: list[object] = [outcome.get("spent_usd"), outcome.get("committed_usd") or 0.0]
        else:
            parts = [(outcome.get("metrics") or {}).get("cost_usd")]
        parts_usd = [
            float(part) for part in parts if isinstance(part, (int, float)) and math.isfinite(part) and part >= 0
        ]
        return sum(parts_usd) if len(parts_usd) == len(parts) else None


class Session:
    """Launches quotes while their worst cases fit the budget; safe to call from several threads.

    Each quote is launched at most once: its worst case is booked before it is started, and replaced by its cost when it
    has completed with a known cost. Nothing else lowers the sum, so the bill of a session cannot exceed its budget.
    """

    def __init__(self, budget_usd: float, start: Callable[[Quote, str], Running]) -> None:
        self._budget_usd = budget_usd
        self._start = start
        self._launched: dict[str, LaunchedCommand] = {}
        self._started: set[str] = set()  # numbers of quotes, also of those that could not be started
        self._lost_usd = 0.0  # worst cases of commands that may have been started but are not known
        self._lock = threading.Lock()

    def launch(self, quote: Quote) -> LaunchedCommand:
        """Start the command of a quote, or return it if it was launched before.

        Raises:
            BudgetRefused: its worst case does not fit what is left.
            BadInput: it was tried before and could not be started.
        """
        with self._lock:
            if (launched_before := self._launched.get(quote.number)) is not None:
                return launched_before
            if quote.number in self._started:
                raise BadInput(
                    ["this quote was tried before and could not be started: ask for another one with `quote`"]
                )
            if self._budget_usd <= 0:
                raise BudgetRefused("this server launches nothing: it was started without --session_budget_usd")
            left = self._budget_usd - self._booked_usd()
            if not quote.worst_case_usd <= left:
                raise BudgetRefused(
                    f"this may cost {quote.worst_case_usd:.4g} USD, and {max(left, 0.0):.4g} of the session's "
                    f"{self._budget_usd:g} USD are left: wait for what runs, or ask whoever started the server"
                )
            self._started.add(quote.number)
            name = f"{quote.command}-{len(self._started)}"
            self._lost_usd += quote.worst_case_usd
            launched = LaunchedCommand(name=name, quote=quote, running=self._start(quote, name))
            self._lost_usd -= quote.worst_case_usd
            self._launched[quote.number] = launched
            return launched

    def find(self, name: str) -> LaunchedCommand:
        """Return the command that was launched under a name.

        Raises:
            BadInput: there is none.
        """
        with self._lock:
            named = {launched.name: launched for launched in self._launched.values()}
        if name not in named:
            raise BadInput([f"nothing was launched as {name}: {', '.join(named) or 'nothing was launched yet'}"])
        return named[name]

    def all(self) -> list[LaunchedCommand]:
        """Return all launched commands, in order."""
        with self._lock:
            return list(self._launched.values())

    def booked_usd(self) -> float:
        """Return the dollars that were spent or may still be spent."""
        with self._lock:
            return self._booked_usd()

    @property
    def budget_usd(self) -> float:
        """Dollars of the session."""
        return self._budget_usd

    def _booked_usd(self) -> float:
        costs = {number: launched.cost_usd() for number, launched in self._launched.items()}
        worst = {number: launched.quote.worst_case_usd for number, launched in self._launched.items()}
        return self._lost_usd + sum(worst[number] if usd is None else usd for number, usd in costs.items())
