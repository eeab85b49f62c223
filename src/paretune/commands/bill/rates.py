"""Effective cost of an instance's hour according to a bill, with Savings Plans and private rates."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from paretune.commands.bill.lines import EXACT, Line, LineKind
from paretune.core.errors import BadInput

FILE = "rates.csv"  # artifact of a run of `reconcile`
COLUMNS = ("instance_type", "region", "instance_hours", "effective_usd", "usd_per_hour", "as_of")
_STEP = Decimal("1e-10")


@dataclass(frozen=True, kw_only=True)
class EffectiveRate:
    """Effective dollars of one instance's hour, computed from `instance_hours` and `effective_usd`.

    `as_of` is the last day of the bill.
    """

    instance_type: str
    region: str
    instance_hours: Decimal
    effective_usd: Decimal
    as_of: str

    @property
    def usd_per_hour(self) -> Decimal:
        """Effective dollars divided by hours."""
        return EXACT.quantize(EXACT.divide(self.effective_usd, self.instance_hours), _STEP)

    def row(self) -> dict[str, object]:
        """The row of `rates.csv`."""
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass
class RateSums:
    """Adds up the hours and effective dollars of all training instances of a bill, whoever used them.

    Managed spot is left out, and so are hours that cost nothing: a training plan has paid for them in advance.
    """

    unknown: set[tuple[str, str]] = field(default_factory=set)
    """Types and regions without a rate, because the bill lacks the effective cost of some of their hours, or the usage
    of a discount."""
    _sums: dict[tuple[str, str], tuple[Decimal, Decimal]] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Count a line; without effect unless it charges for training instances in a region."""
        hours = line.amount if line.kind in (LineKind.INSTANCE, LineKind.POOL) else Decimal(0)
        if not (line.instance_type and line.region) or (not hours and line.kind is not LineKind.DISCOUNT):
            return
        key = line.instance_type, line.region
        if line.effective_usd is None:
            self.unknown.add(key)
        if not line.is_spot and line.effective_usd:
            self._count(key, hours, line.effective_usd)

    def add_discount(self, key: tuple[str, str] | None, usd: Decimal | None) -> None:
        """Count a share of a discount; None if the share is unknown. Without effect if no rate contains the usage."""
        if key is not None and usd is None:
            self.unknown.add(key)
        elif key is not None and usd is not None:
            self._count(key, Decimal(0), usd)

    def _count(self, key: tuple[str, str], hours: Decimal, usd: Decimal) -> None:
        sum_hours, sum_usd = self._sums.get(key, (Decimal(0), Decimal(0)))
        self._sums[key] = sum_hours + hours, sum_usd + usd

    def rates(self, as_of: str) -> tuple[EffectiveRate, ...]:
        """Return the rate of each type and region, sorted by name."""
        return tuple(
            EffectiveRate(instance_type=kind, region=region, instance_hours=hours, effective_usd=usd, as_of=as_of)
            for (kind, region), (hours, usd) in sorted(self._sums.items())
            if hours > 0 and (kind, region) not in self.unknown
        )


def read_rates(text: str) -> Mapping[tuple[str, str], EffectiveRate]:
    """Return the rates in the text of a `rates.csv`, by instance type and region; raises BadInput if it is damaged."""
    try:
        rates = [
            EffectiveRate(
                instance_type=row["instance_type"],
                region=row["region"],
                instance_hours=Decimal(row["instance_hours"]),
                effective_usd=Decimal(row["effective_usd"]),
                as_of=row["as_of"],
            )
            for row in csv.DictReader(io.StringIO(text))
        ]
    except (KeyError, ArithmeticError) as error:
        raise BadInput(
            [f"{FILE} of a run of reconcile cannot be read ({error!r}): reconcile the bill again"]
        ) from error
    return {(rate.instance_type, rate.region): rate for rate in rates}
