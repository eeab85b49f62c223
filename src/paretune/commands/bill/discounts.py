"""Discounts that AWS states once for an account and SKU, spread over the usage that they discount.

A discount of an agreement is a percentage of the usage before it, so each line's share is in proportion to its
unblended cost. Source: AWS Data Exports user guide, table dictionary of CUR 2.0, EdpDiscount and PrivateRateDiscount
in line_item_line_item_type (read 2026-11-22).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from paretune.commands.bill.lines import Line, LineKind
from paretune.commands.bill.recorded_costs import split

Payer = tuple[str, tuple[str, str] | None]
"""Whose usage it is: run (empty if it is none here), and the instance type and region whose rate it is part of."""
_Hours = dict[int, dict[Payer, Decimal]]  # by the second in which they start


@dataclass
class Discounts:
    """Collects usage and aggregated discounts of a bill."""

    lines: int = 0  # number of discounts that `spread` has divided
    unspread: set[str] = field(default_factory=set)
    """Names of those that it could not divide: SKU, else usage type, else the account."""
    _discounts: list[Line] = field(default_factory=list)
    _usage: dict[tuple[str, str, str, int, Payer], Decimal] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Count a line of no run; without effect unless it is a discount that names no resource."""
        names_resource = line.run_tag or line.resource.startswith("arn:")
        if line.kind is LineKind.DISCOUNT and line.effective_usd and not names_resource:
            self._discounts.append(line)

    def add_usage(self, line: Line, payer: Payer) -> None:
        """Count a line; without effect unless an agreement may discount it."""
        if line.type == "Usage" and line.unblended_usd > 0:
            key = line.sku, line.usage_type, line.account, line.start, payer
            self._usage[key] = self._usage.get(key, Decimal(0)) + line.unblended_usd

    def spread(self) -> Iterator[tuple[Payer, Decimal | None]]:
        """Yield the share of each payer in each discount; None if the bill does not have the usage of a discount.

        A discount that names neither SKU nor usage type may be for other services than training, so nobody's share
        is known. One of which no account here has usage is for something else and is left out.
        """
        usage = self._by_name() if self._discounts else {}
        for line in self._discounts:
            names = [name for name in (line.sku, line.usage_type) if name]
            accounts = next((usage[name] for name in names or [""] if name in usage), {})
            hours = accounts.get(line.account, {})
            weights = _sums(_within(line, hours)) if names else {}
            usd = line.effective_usd or Decimal(0)
            if weights and sum(weights.values()) >= abs(usd):
                self.lines += 1
                yield from zip(weights, split(usd, list(weights.values())), strict=True)
            elif concerned := accounts if names else ({"": hours} if hours else {}):
                self.unspread.add((names or [f"account {line.account}"])[0])
                for account_hours in concerned.values():
                    yield from ((payer, None) for payer in _sums(list(account_hours.values())))

    def _by_name(self) -> dict[str, dict[str, _Hours]]:
        """Return the usage by SKU, by usage type and by an empty text for all of it, each by account."""
        usage: dict[str, dict[str, _Hours]] = {}
        for (sku, usage_type, account, start, payer), usd in self._usage.items():
            for name in {sku, usage_type, ""}:
                hour = usage.setdefault(name, {}).setdefault(account, {}).setdefault(start, {})
                hour[payer] = hour.get(payer, Decimal(0)) + usd
        return usage


def _within(line: Line, hours: _Hours) -> Sequence[dict[Payer, Decimal]]:
    """Return the usage from start to end of a discount, or of its month if there is none."""
    in_time = [usage for start, usage in hours.items() if line.start <= start < line.end]
    return in_time or [usage for start, usage in hours.items() if _month(start) == _month(line.start)]


def _month(second: int) -> tuple[int, int]:
    day = datetime.fromtimestamp(second, UTC)
    return day.year, day.month


def _sums(hours: Sequence[dict[Payer, Decimal]]) -> dict[Payer, Decimal]:
    sums: dict[Payer, Decimal] = {}
    for usage in hours:
        for payer, usd in usage.items():
            sums[payer] = sums.get(payer, Decimal(0)) + usd
    return sums
