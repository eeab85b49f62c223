"""The dollars of a session: what agents have launched, what that may still cost, and what is left."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from paretune.commands.mcp.commands import Running
from paretune.commands.mcp.quotes import Quote
from paretune.core.errors import BadInput, BudgetRefused


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A command that was launched under a name."""

    name: str
    quote: Quote
    running: Running

    def cost_usd(self) -> float | None:
        """What it has cost, USD; None while it runs, and where it does not say: then its worst case stays booked."""
        outcome = self.running.outcome()
        if outcome is None or "error" in outcome:
            return None
        if self.quote.command == "study":
            parts: list[object] = [outcome.get("spent_usd"), outcome.get("committed_usd") or 0.0]
        else:
            parts = [(outcome.get("metrics") or {}).get("cost_usd")]
        known = [float(part) for part in parts if isinstance(part, (int, float)) and math.isfinite(part) and part >= 0]
        return sum(known) if len(known) == len(parts) else None


class Session:
    """Launches quotes while their worst cases fit the budget; safe to call from several threads.

    Each quote is launched at most once: its worst case is booked before it is begun, and replaced by what it has cost
    when it has ended well and says so. Nothing lowers the sum otherwise, so the bill of a session cannot exceed its
    budget, whatever is asked for and however often.
    """

    def __init__(self, budget_usd: float, begin: Callable[[Quote, str], Running]) -> None:
        self._budget_usd = budget_usd
        self._begin = begin
        self._launched: dict[str, Launched] = {}
        self._begun: set[str] = set()  # numbers of quotes, also of those that could not be begun
        self._lost_usd = 0.0  # worst cases of commands that may have been begun and are not known
        self._lock = threading.Lock()

    def launch(self, quote: Quote) -> Launched:
        """The command of the quote, begun; the same one where it was launched before.

        Raises:
            BudgetRefused: its worst case does not fit what is left.
            BadInput: it was tried before and could not be begun.
        """
        with self._lock:
            if (known := self._launched.get(quote.number)) is not None:
                return known
            if quote.number in self._begun:
                raise BadInput(["this quote was tried before and could not be begun: ask for another one with `quote`"])
            left = self._budget_usd - self._booked_usd()
            if not quote.worst_case_usd <= left:
                raise BudgetRefused(
                    f"this may cost {quote.worst_case_usd:.4g} USD, and {max(left, 0.0):.4g} of the session's "
                    f"{self._budget_usd:g} USD are left: wait for what runs, or ask whoever started the server"
                )
            self._begun.add(quote.number)
            name = f"{quote.command}-{len(self._begun)}"
            self._lost_usd += quote.worst_case_usd
            launched = Launched(name=name, quote=quote, running=self._begin(quote, name))
            self._lost_usd -= quote.worst_case_usd
            self._launched[quote.number] = launched
            return launched

    def find(self, name: str) -> Launched:
        """What was launched under a name.

        Raises:
            BadInput: nothing was.
        """
        with self._lock:
            named = {launched.name: launched for launched in self._launched.values()}
        if name not in named:
            raise BadInput([f"nothing was launched as {name}: {', '.join(named) or 'nothing was launched yet'}"])
        return named[name]

    def all(self) -> list[Launched]:
        """Everything that was launched, in order."""
        with self._lock:
            return list(self._launched.values())

    def booked_usd(self) -> float:
        """Dollars that were spent or may still be."""
        with self._lock:
            return self._booked_usd()

    @property
    def budget_usd(self) -> float:
        """Dollars of the session."""
        return self._budget_usd

    def _booked_usd(self) -> float:
        ended = {number: launched.cost_usd() for number, launched in self._launched.items()}
        worst = {number: launched.quote.worst_case_usd for number, launched in self._launched.items()}
        return self._lost_usd + sum(worst[number] if usd is None else usd for number, usd in ended.items())
