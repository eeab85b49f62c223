"""Why what AWS bills for a run is not what was recorded: parts that add up to the difference, to the last digit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from paretune.commands.bill.accounts import RecordedCost
from paretune.commands.bill.lines import BILLED, Line, LineKind

PARTS = ("price", "rounding", "storage", "pool", "discount", "seconds")
"""What a difference is explained by.

price: the bill's rate against the recorded price; rounding: of hours, seconds and costs; storage: volumes, which
cost_usd leaves out; pool: warm pools against what was booked of them; discount: private rates, reservations and lines
of discounts; seconds: billed hours against recorded seconds.
"""
ROUNDING_USD = Decimal("1e-6")
"""What is rounding on one line: AWS gives amounts and costs with ten digits after the point."""
_STEP = Decimal("1e-12")
_ZERO = Decimal(0)
RECORD = "record"
"""Type of a residue that no line has: cost_usd is not seconds x instances x price."""


@dataclass(frozen=True, kw_only=True)
class Residue:
    """Dollars that no part explains, and the line that they stand on."""

    line_id: str
    type: str
    usage_type: str
    usd: Decimal


@dataclass(frozen=True, kw_only=True)
class RunBill:
    """What one run was billed, and why it is not what was recorded.

    Attributes:
        jobs: names of its jobs that the bill has lines of.
        billed_usd: unblended, before tax, credits, refunds and the fees of plans.
        effective_usd: with Savings Plans, reservations and private rates, before tax and credits; None where a line is
            covered by one and the bill does not tell what is paid for it.
        apart_usd: of its lines that are not in `billed_usd`, by kind.
        parts: PARTS to dollars; they and `residue` add up to billed_usd - cost_usd. Empty without a recorded cost.
        lacks: why the bill does not tell all of it yet; empty where it does.
    """

    recorded: RecordedCost
    jobs: tuple[str, ...]
    lines: int
    billed_usd: Decimal
    effective_usd: Decimal | None
    apart_usd: Mapping[str, Decimal]
    parts: Mapping[str, Decimal]
    residue: tuple[Residue, ...]
    lacks: str

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self.recorded.run_id

    @property
    def is_complete(self) -> bool:
        """Whether the bill tells all of it."""
        return not self.lacks

    @property
    def difference_usd(self) -> Decimal | None:
        """Billed less recorded dollars; None without a recorded cost."""
        return None if self.recorded.cost_usd is None else self.billed_usd - self.recorded.cost_usd


@dataclass
class Account:
    """Adds up the lines of one run."""

    recorded: RecordedCost
    jobs: dict[str, None] = field(default_factory=dict)  # a set that keeps its order
    lines: int = 0
    billed_usd: Decimal = _ZERO
    effective_usd: Decimal | None = _ZERO
    hours: Decimal = _ZERO  # of instances, without those that the bill calls a warm pool's
    _other_usd: Decimal = _ZERO  # of instances of another type than the last attempt's, at the bill's own rate
    _hours: Decimal = _ZERO  # of the recorded type
    _pool_lines: int = 0
    _apart: dict[str, Decimal] = field(default_factory=dict)
    _parts: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(PARTS, _ZERO))
    _residue: list[Residue] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Count a line, or this run's share of one."""
        self.lines += 1
        if line.job_name:
            self.jobs[line.job_name] = None
        kind = line.kind
        if kind not in BILLED:
            self._apart[kind.value] = self._apart.get(kind.value, _ZERO) + line.unblended_usd
            return
        self.billed_usd += line.unblended_usd
        told, paid = self.effective_usd, line.effective_usd
        self.effective_usd = None if told is None or paid is None else told + paid
        if kind is LineKind.DISCOUNT:
            self._parts["discount"] += line.unblended_usd
        elif kind is LineKind.OTHER:
            self._leave(line, line.unblended_usd)
        else:
            listed = line.unblended_usd if line.list_usd is None else line.list_usd
            self._parts["discount"] += line.unblended_usd - listed
            if kind is LineKind.INSTANCE:
                self._add_hours(line, listed)
            else:
                self._parts["storage" if kind is LineKind.STORAGE else "pool"] += listed
                self._pool_lines += kind is LineKind.POOL

    def _add_hours(self, line: Line, listed: Decimal) -> None:
        """Instance hours: what they cost beyond the recorded price is the price, rounding, or not explained."""
        self.hours += line.amount
        if self.recorded.instance_type not in ("", line.instance_type):
            self._other_usd += listed
            return
        self._hours += line.amount
        apart = listed - line.amount * (self.recorded.price_usd_per_hour or _ZERO)
        if abs(apart) <= ROUNDING_USD:
            self._parts["rounding"] += apart
            return
        by_rate = listed if line.rate is None and line.amount else line.amount * (line.rate or _ZERO)
        left = listed - by_rate
        self._parts["price"] += apart - left
        if abs(left) <= ROUNDING_USD:
            self._parts["rounding"] += left
        else:
            self._leave(line, left)

    def _leave(self, line: Line, usd: Decimal) -> None:
        self._residue.append(Residue(line_id=line.id, type=line.type, usage_type=line.usage_type, usd=usd))

    def closed(self, lacks: str) -> RunBill:
        """All lines have been added."""
        parts, residue = self._explained()
        return RunBill(
            recorded=self.recorded,
            jobs=tuple(self.jobs),
            lines=self.lines,
            billed_usd=self.billed_usd,
            effective_usd=self.effective_usd,
            apart_usd=dict(self._apart),
            parts=parts,
            residue=tuple(residue),
            lacks=lacks,
        )

    def _explained(self) -> tuple[dict[str, Decimal], list[Residue]]:
        """The parts and the residue, once what was recorded is taken off the hours and the warm pool.

        Lines that do not tell a warm pool's hours from others are compared with the seconds of both. Of attempts on
        several instance types the sum of what was booked is known alone: it is compared with the hours of all.
        """
        one = self.recorded
        if one.cost_usd is None:
            return {}, []
        price, parts, residue = one.price_usd_per_hour or _ZERO, dict(self._parts), list(self._residue)
        own, kept = (
            (seconds * one.instance_count * price / 3600).quantize(_STEP) for seconds in (one.seconds, one.pool_seconds)
        )
        if self._other_usd:
            own = one.cost_usd - kept
        taken = own if self._pool_lines else own + kept
        parts["pool"] -= kept if self._pool_lines else _ZERO
        apart = self._hours * price + self._other_usd - taken
        parts["rounding" if abs(apart) <= ROUNDING_USD * max(1, self.lines) else "seconds"] += apart
        in_record = own + kept - one.cost_usd
        if abs(in_record) <= ROUNDING_USD:
            parts["rounding"] += in_record
        else:
            residue.append(Residue(line_id="", type=RECORD, usage_type="", usd=in_record))
        return parts, residue
