"""The difference between AWS's bill and the recorded cost: parts that add up to the difference, to the last digit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from paretune.commands.bill.lines import BILLED, Line, LineKind
from paretune.commands.bill.recorded_costs import STEP, RecordedCost

PARTS = ("price", "rounding", "storage", "pool", "discount", "seconds")
"""Explanations of a difference.

price: the bill's rate against the recorded price; rounding: of hours, seconds and costs; storage: volumes, which
cost_usd leaves out; pool: warm pools against the seconds booked for them; discount: private rates, reservations and
lines of discounts; seconds: billed hours against recorded seconds.
"""
ROUNDING_USD = Decimal("1e-6")
"""Rounding on one line, at most: AWS gives amounts and costs with ten digits after the point."""
_ZERO = Decimal(0)
RECORD = "record"  # type of a residue without a line: cost_usd is not seconds x instances x price


@dataclass(frozen=True, kw_only=True)
class Residue:
    """Dollars that no part explains, and the line of the bill that holds them."""

    line_id: str
    type: str
    usage_type: str
    usd: Decimal


@dataclass(frozen=True, kw_only=True)
class RunBill:
    """The bill of one run, and why it differs from the recorded cost."""

    recorded: RecordedCost
    jobs: tuple[str, ...]  # names of its jobs that have lines on the bill
    lines: int
    billed_usd: Decimal  # unblended, before tax, credits, refunds and the fees of plans
    least_usd: Decimal  # the same if lines count once that come again in another file under another id
    effective_usd: Decimal | None
    """With Savings Plans, reservations and private rates, before tax and credits; None if a line is covered by one and
    the bill does not have its effective cost, or if its discount cannot be divided."""
    apart_usd: Mapping[str, Decimal]  # dollars of its lines that are not in `billed_usd`, by kind
    parts: Mapping[str, Decimal]
    """PARTS to dollars; they and `residue` add up to billed_usd - cost_usd. Empty without a recorded cost."""
    residue: tuple[Residue, ...]
    missing: str  # why the bill is not complete yet; empty if it is

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self.recorded.run_id

    @property
    def is_complete(self) -> bool:
        """Whether the bill covers the whole run."""
        return not self.missing

    @property
    def difference_usd(self) -> Decimal | None:
        """Billed minus recorded dollars, or None without a recorded cost."""
        return None if self.recorded.cost_usd is None else self.billed_usd - self.recorded.cost_usd

    @property
    def residue_usd(self) -> Decimal:
        """Dollars that no part explains."""
        return sum((residue.usd for residue in self.residue), _ZERO)


@dataclass
class RunTally:
    """Adds up the lines of one run."""

    recorded: RecordedCost
    jobs: dict[str, None] = field(default_factory=dict)  # a set that keeps its order
    lines: int = 0
    billed_usd: Decimal = _ZERO
    effective_usd: Decimal | None = _ZERO
    hours: Decimal = _ZERO  # of instances, without those that the bill marks as a warm pool's
    lacks_discount: bool = False  # whether the run's share of a discount is unknown
    _charges: dict[int, dict[str, Decimal]] = field(default_factory=dict)  # by what it is for, then file
    _other_usd: Decimal = _ZERO  # of instances of another type than the last attempt's, at the bill's own rate
    _hours: Decimal = _ZERO  # of the recorded type
    _pool_lines: int = 0
    _apart: dict[str, Decimal] = field(default_factory=dict)
    _parts: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(PARTS, _ZERO))
    _residue: list[Residue] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Count a line of this run."""
        self.lines += 1
        if line.job_name:
            self.jobs[line.job_name] = None
        kind = line.kind
        if kind not in BILLED:
            self._apart[kind.value] = self._apart.get(kind.value, _ZERO) + line.unblended_usd
            return
        self.billed_usd += line.unblended_usd
        charged = self._charges.setdefault(line.charge, {})
        charged[line.file] = charged.get(line.file, _ZERO) + line.unblended_usd
        self._add_effective(line.effective_usd)
        if kind is LineKind.DISCOUNT:
            self._parts["discount"] += line.unblended_usd
        elif kind is LineKind.OTHER:
            self._add_residue(line, line.unblended_usd)
        else:
            list_usd = line.unblended_usd if line.list_usd is None else line.list_usd
            self._parts["discount"] += line.unblended_usd - list_usd
            if kind is LineKind.INSTANCE:
                self._add_hours(line, list_usd)
            else:
                self._parts["storage" if kind is LineKind.STORAGE else "pool"] += list_usd
                self._pool_lines += kind is LineKind.POOL

    def add_discount(self, usd: Decimal | None) -> None:
        """Count a share of a discount that AWS states once for an account; None if the share is unknown."""
        self.lacks_discount |= usd is None
        self._add_effective(usd)

    def _add_effective(self, usd: Decimal | None) -> None:
        is_known = self.effective_usd is not None and usd is not None
        self.effective_usd = (self.effective_usd or _ZERO) + (usd or _ZERO) if is_known else None

    @property
    def least_usd(self) -> Decimal:
        """Billed dollars if a charge that several files hold counts once, with its highest amount."""
        return sum((max(files.values(), key=abs) for files in self._charges.values()), _ZERO)

    @property
    def doubled_files(self) -> list[str]:
        """Names of the files that hold the same charges, in alphabetical order; empty if no dollar comes twice."""
        doubled = (files for files in self._charges.values() if sum(map(bool, files.values())) > 1)
        return sorted({name for files in doubled for name in files})

    def _add_hours(self, line: Line, list_usd: Decimal) -> None:
        """Count instance hours; dollars beyond the recorded price are price, rounding, or residue."""
        self.hours += line.amount
        if self.recorded.instance_type not in ("", line.instance_type):
            self._other_usd += list_usd
            return
        self._hours += line.amount
        excess = list_usd - line.amount * (self.recorded.price_usd_per_hour or _ZERO)
        if abs(excess) <= ROUNDING_USD:
            self._parts["rounding"] += excess
            return
        by_rate = list_usd if line.rate is None and line.amount else line.amount * (line.rate or _ZERO)
        rest = list_usd - by_rate
        self._parts["price"] += excess - rest
        if abs(rest) <= ROUNDING_USD:
            self._parts["rounding"] += rest
        else:
            self._add_residue(line, rest)

    def _add_residue(self, line: Line, usd: Decimal) -> None:
        self._residue.append(Residue(line_id=line.id, type=line.type, usage_type=line.usage_type, usd=usd))

    def bill(self, missing: str) -> RunBill:
        """Return the bill of all added lines; `missing` is why it is not complete yet."""
        parts, residue = self._explained()
        return RunBill(
            recorded=self.recorded,
            jobs=tuple(self.jobs),
            lines=self.lines,
            billed_usd=self.billed_usd,
            least_usd=self.least_usd,
            effective_usd=self.effective_usd,
            apart_usd=dict(self._apart),
            parts=parts,
            residue=tuple(residue),
            missing=missing,
        )

    def _explained(self) -> tuple[dict[str, Decimal], list[Residue]]:
        """Return parts and residue after subtracting the recorded cost from hours and warm pool.

        Lines that do not mark a warm pool's hours are compared with the seconds of both. If attempts ran on several
        instance types, only the sum of their costs is known: it is compared with the hours of all.
        """
        recorded = self.recorded
        if recorded.cost_usd is None:
            return {}, []
        price, parts, residue = recorded.price_usd_per_hour or _ZERO, dict(self._parts), list(self._residue)
        job_usd, pool_usd = (
            (seconds * recorded.instance_count * price / 3600).quantize(STEP)
            for seconds in (recorded.seconds, recorded.pool_seconds)
        )
        if self._other_usd:
            job_usd = recorded.cost_usd - pool_usd
        booked = job_usd if self._pool_lines else job_usd + pool_usd
        parts["pool"] -= pool_usd if self._pool_lines else _ZERO
        excess = self._hours * price + self._other_usd - booked
        parts["rounding" if abs(excess) <= ROUNDING_USD * max(1, self.lines) else "seconds"] += excess
        in_record = job_usd + pool_usd - recorded.cost_usd
        if abs(in_record) <= ROUNDING_USD:
            parts["rounding"] += in_record
        else:
            residue.append(Residue(line_id="", type=RECORD, usage_type="", usd=in_record))
        return parts, residue
