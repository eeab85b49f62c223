"""Bills as AWS would send them for made-up jobs, and what each job truly cost: kept in whole units of 1e-10 dollars.

Lines have the columns of the Cost and Usage Report 2.0. The truth is counted when a line is made, by integers, and
knows nothing of the code that reads bills.
"""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from paretune.commands.bill.recorded_costs import RecordedCost

UNIT = 10**10
"""Units of a dollar, and of an hour."""
MONTH = datetime(2026, 11, 1, tzinfo=UTC)
UNTIL = MONTH + timedelta(days=20)
"""Where the bill ends."""
RATES = {"ml.g5.xlarge": 14080, "ml.g5.12xlarge": 70900, "ml.p4d.24xlarge": 376885, "ml.m5.large": 1150}
"""Instance type to list price per hour, in 1e-4 dollars."""
ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"
SPELLINGS = ("user_paretune_run", "user:paretune:run", "paretune:run", "user_paretune:run")
_SAVED = (64, 100)  # what a Savings Plan leaves of the list price
_COSTS = (
    *("line_item_unblended_cost", "line_item_net_unblended_cost", "pricing_public_on_demand_cost"),
    *("savings_plan_savings_plan_effective_cost", "savings_plan_net_savings_plan_effective_cost"),
    *("reservation_effective_cost", "line_item_usage_amount"),
)
_TEXTS = (
    *("identity_line_item_id", "line_item_line_item_type", "line_item_product_code", "line_item_resource_id"),
    *("line_item_usage_type", "line_item_unblended_rate", "pricing_public_on_demand_rate", "line_item_currency_code"),
    *("pricing_unit", "bill_bill_type", "bill_payer_account_id", "line_item_usage_account_id"),
    "product_sku",
)
_TIMES = ("line_item_usage_start_date", "line_item_usage_end_date")

Row = dict[str, Any]


@dataclass
class Truth:
    """What one run truly cost, in units; `parts` are those of the difference that are known exactly."""

    billed: int = 0
    effective: int = 0
    apart: int = 0
    unexplained: int = 0
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("storage", "discount", "pool"), 0))


@dataclass
class Bill:
    """A bill, the runs that it is of, and the truth.

    Attributes:
        net: whether it has net costs; else discounts are lines of their own.
        others: units of everybody else's lines, and of `unknown` jobs.
        silent: runs that AWS has forgotten to bill; `unfinished` are those that end after the bill.
    """

    net: bool
    rows: list[Row] = field(default_factory=list)
    recorded: list[RecordedCost] = field(default_factory=list)
    truths: dict[str, Truth] = field(default_factory=dict)
    others: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    unfinished: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        """Units of all its lines."""
        return sum(row["line_item_unblended_cost"] for row in self.rows)

    def row(self, kind: str, usage_type: str, cost: int, start: datetime, **more: Any) -> int:
        """Add a line; its cost. Names of `more` are columns, amounts and costs in units."""
        made = {
            "identity_line_item_id": f"line{len(self.rows):08d}",
            "line_item_line_item_type": kind,
            "line_item_product_code": "AmazonSageMaker",
            "line_item_usage_type": usage_type,
            "line_item_unblended_cost": cost,
            "line_item_usage_start_date": start,
            "line_item_usage_end_date": start + timedelta(hours=1),
            "line_item_usage_amount": 0,
            "line_item_currency_code": "USD",
            "bill_bill_type": "Anniversary",
            "resource_tags": {},
        } | more
        if self.net:
            made.setdefault("line_item_net_unblended_cost", cost)
        self.rows.append(made)
        return cost


class BillMaker:
    """Makes jobs and their lines, from a seed; of runs with these ids, or with invented ones."""

    def __init__(self, seed: int, *, net: bool = True, run_ids: Sequence[str] = ()) -> None:
        self._run_ids = list(run_ids)
        self._source = random.Random(seed)
        self.bill = Bill(net=net)
        self._number = seed * 10**9

    def add_jobs(self, count: int) -> "BillMaker":
        """So many runs: on spot, in attempts, with pools, storage, plans, discounts, credits, tax."""
        for _ in range(count):
            self._add_job()
        return self

    def add_others(self, count: int) -> "BillMaker":
        """So many lines that are not ours: other services, other teams' trainings, fees and taxes of a month."""
        for number in range(count):
            start = MONTH + timedelta(hours=self._source.randrange(480))
            cost = self._source.randrange(1, 50 * UNIT)
            if number % 50 == 0:
                kind = self._source.choice(("Tax", "RIFee", "Credit", "Fee", "SavingsPlanRecurringFee"))
                end = MONTH + timedelta(days=30)
                more: Row = {"line_item_usage_end_date": end, "line_item_resource_id": ""}
                self.bill.others += self.bill.row(
                    kind, "Monthly", -cost if kind == "Credit" else cost, MONTH, line_item_product_code="Others", **more
                )
            elif number % 10 == 0:
                name = f"{ARN}someone-elses-{number}"
                self.bill.others += self.bill.row(
                    "Usage", "USE1-Train:ml.g5.xlarge", cost, start, line_item_resource_id=name
                )
            else:
                self.bill.others += self.bill.row(
                    "Usage", "BoxUsage:m5.large", cost, start, line_item_product_code="AmazonEC2"
                )
        return self

    def add_unknown(self, count: int) -> "BillMaker":
        """So many jobs of paretune whose runs are in no store."""
        for _ in range(count):
            name = f"paretune-{self._run_id()}-1"
            cost = self._source.randrange(1, 9 * UNIT)
            self.bill.unknown[name] = self.bill.row(
                "Usage", "USE1-Train:ml.g5.xlarge", cost, MONTH, line_item_resource_id=ARN + name
            )
        return self

    def _chance(self, share: float) -> bool:
        return self._source.random() < share

    def _run_id(self) -> str:
        self._number += 1
        return self._run_ids.pop() if self._run_ids else f"{self._number:032x}"

    def _add_job(self) -> None:
        run_id, source = self._run_id(), self._source
        attempts = 2 if self._chance(0.1) else 1
        kind, count = source.choice(list(RATES)), source.randint(1, 4)
        seconds = [source.randint(60, 20_000) for _ in range(attempts)]
        pool = source.randint(30, 3_000) if self._chance(0.15) else 0
        start = MONTH + timedelta(seconds=source.randrange(19 * 86_400))
        end = start + timedelta(seconds=sum(seconds) + pool)
        price = RATES[kind] + (source.randrange(-500, 500) if self._chance(0.1) else 0)
        item = _recorded(run_id, f"paretune-{run_id}-{attempts}", kind, count, sum(seconds), pool, price, start, end)
        truth = Truth()
        self.bill.recorded.append(item)
        self.bill.truths[run_id] = truth
        if self._chance(0.02):
            self.bill.silent.add(run_id)
            return
        begin = start
        for number, spent in enumerate(seconds):
            self._lines(truth, f"paretune-{run_id}-{number + 1}", kind, count, spent, begin)
            begin += timedelta(seconds=spent)
        if pool:
            self._pool(truth, f"paretune-{run_id}-{attempts}", kind, count, pool, begin)
            truth.parts["pool"] -= round(Decimal(pool * count * price * UNIT) / 3600 / 10_000)
        if end > UNTIL or self._chance(0.02):
            self._make_unfinished(run_id)

    def _make_unfinished(self, run_id: str) -> None:
        self.bill.unfinished.add(run_id)
        workspace = next(at for at, first in enumerate(self.bill.recorded) if first.run_id == run_id)
        old = self.bill.recorded[workspace]
        changed = {
            **{name: getattr(old, name) for name in old.__dataclass_fields__},
            "ended_at": UNTIL + timedelta(hours=1),
        }
        self.bill.recorded[workspace] = RecordedCost(**changed)

    def _lines(self, truth: Truth, name: str, kind: str, count: int, seconds: int, start: datetime) -> None:
        """The lines of one job: an hour each, in the way that this job is paid."""
        location = self._where(name)
        usage = f"USE1-{'SpotTrain' if self._chance(0.2) else 'Train'}:{kind}"
        way = self._source.choices(("list", "plan", "private", "reserved"), (65, 15, 12, 8))[0]
        for begin, spent in _hours(start, seconds):
            self._hour(truth, location, usage, way, spent * count, begin)
        if self._chance(0.8):
            amount = self._source.randint(1, 5 * UNIT // 100)
            cost = amount * 14 // 100
            rate: Row = {"line_item_unblended_rate": "0.14", "pricing_unit": "GB-Mo", "line_item_usage_amount": amount}
            self._count(
                truth, "storage", self.bill.row("Usage", "USE1-Train:VolumeUsage.gp2", cost, start, **location, **rate)
            )
        self._extras(truth, location, start)

    def _hour(self, truth: Truth, where: Row, usage: str, way: str, seconds: int, start: datetime) -> None:
        rate = RATES[usage.partition(":")[2]]
        amount = round(Decimal(seconds * UNIT) / 3600)
        listed = round(Decimal(amount * rate) / 10_000)
        cost = {"list": listed, "plan": listed, "private": listed * 9 // 10, "reserved": 0}[way]
        kinds = {"plan": "SavingsPlanCoveredUsage", "reserved": "DiscountedUsage"}
        more: Row = {
            "line_item_usage_amount": amount,
            "pricing_unit": "Hrs",
            "pricing_public_on_demand_cost": listed,
            "pricing_public_on_demand_rate": f"{Decimal(rate) / 10_000}",
            "line_item_unblended_rate": f"{Decimal(cost) / amount:.10f}",
        }
        paid = cost
        if self.bill.net and way in ("list", "private"):
            paid = more["line_item_net_unblended_cost"] = cost * 95 // 100
        if way == "plan":
            paid = more["savings_plan_savings_plan_effective_cost"] = listed * _SAVED[0] // _SAVED[1]
        elif way == "reserved":
            paid = more["reservation_effective_cost"] = listed // 2
        self.bill.row(kinds.get(way, "Usage"), usage, cost, start, **where, **more)
        truth.billed += cost
        truth.effective += paid
        truth.parts["discount"] += cost - listed
        if way == "plan":
            self._negation(truth, where, usage, cost, start)
        elif not self.bill.net and way == "list" and self._chance(0.3):
            less = self.bill.row("EdpDiscount", usage, -(cost // 20), start, **where)
            self._count(truth, "discount", less)

    def _negation(self, truth: Truth, where: Row, usage: str, cost: int, start: datetime) -> None:
        """AWS gives negations no resource; the reading must not depend on it."""
        if self._chance(0.5):
            truth.apart += self.bill.row("SavingsPlanNegation", usage, -cost, start, **where)
        else:
            self.bill.others += self.bill.row("SavingsPlanNegation", usage, -cost, start, line_item_resource_id="")

    def _extras(self, truth: Truth, where: Row, start: datetime) -> None:
        for kind in ("Credit", "Tax", "Refund"):
            if self._chance(0.1):
                cost = self._source.randrange(1, UNIT) * (1 if kind == "Tax" else -1)
                truth.apart += self.bill.row(kind, "USE1-Train:ml.g5.xlarge", cost, start, **where)
        for kind, usage in (("Fee", "USE1-Train:Fee"), ("Usage", "USE1-Train:DataProcessed-Bytes")):
            if self._chance(0.02):
                cost = self.bill.row(kind, usage, self._source.randrange(UNIT // 100, UNIT), start, **where)
                truth.billed, truth.effective = truth.billed + cost, truth.effective + cost
                truth.unexplained += cost

    def _pool(self, truth: Truth, name: str, kind: str, count: int, seconds: int, start: datetime) -> None:
        for begin, spent in _hours(start, seconds):
            amount = round(Decimal(spent * count * UNIT) / 3600)
            cost = round(Decimal(amount * RATES[kind]) / 10_000)
            more: Row = {"line_item_usage_amount": amount, "pricing_unit": "Hrs"}
            row = self.bill.row("Usage", f"USE1-TrainWarmPool:{kind}", cost, begin, **self._where(name), **more)
            self._count(truth, "pool", row)

    def _where(self, name: str) -> Row:
        """The job's ARN, or rarely its tag alone."""
        run_id = name.split("-")[1]
        tags = {self._source.choice(SPELLINGS): run_id, "user_team": "=nlp"}
        if self._chance(0.05):
            return {"line_item_resource_id": "", "resource_tags": tags}
        return {"line_item_resource_id": ARN + name, "resource_tags": tags if self._chance(0.5) else {}}

    def _count(self, truth: Truth, part: str, cost: int) -> None:
        truth.billed, truth.effective = truth.billed + cost, truth.effective + cost
        truth.parts[part] += cost


def _recorded(
    run_id: str, name: str, kind: str, count: int, seconds: int, pool: int, price: int, start: datetime, end: datetime
) -> RecordedCost:
    """As `main` records it: a float product of seconds, instances and price."""
    usd_per_hour = price / 10_000
    cost = seconds * count * usd_per_hour / 3600 + pool * count * usd_per_hour / 3600
    return RecordedCost(
        run_id=run_id,
        job_name=name,
        cost_usd=Decimal(repr(cost)),
        seconds=Decimal(seconds),
        pool_seconds=Decimal(pool),
        instance_count=count,
        price_usd_per_hour=Decimal(repr(usd_per_hour)),
        started=start,
        ended_at=end,
    )


def _hours(start: datetime, seconds: int) -> list[tuple[datetime, int]]:
    """Beginning of each hour of the clock that a time falls into, and how many of its seconds do."""
    result = []
    while seconds > 0:
        hour = start.replace(minute=0, second=0, microsecond=0)
        here = min(seconds, int((hour + timedelta(hours=1) - start).total_seconds()))
        result.append((hour, here))
        start, seconds = start + timedelta(seconds=here), seconds - here
    return result


def write(bill: Bill, folder: Path, seed: int = 0, files: int = 4, repeated: float = 0.05) -> int:
    """Write the lines in any order to Parquet, CSV and gzipped CSV files, some twice; how many came twice."""
    source = random.Random(seed)
    rows = list(bill.rows)
    twice = source.sample(rows, int(len(rows) * repeated))
    rows += twice
    source.shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * size : (number + 1) * size]
        name = ("parquet", "csv", "csv.gz")[number % 3]
        write_file(part, folder / f"export-{number:05d}.{name}", net=bill.net)
    return len(twice)


def write_file(
    rows: Sequence[Mapping[str, Any]], path: Path, *, net: bool = True, leave_out: Sequence[str] = ()
) -> None:
    """One file, by the ending of its name: numbers are doubles in Parquet, as AWS writes them, and decimals in CSV."""
    costs = [name for name in _COSTS if net or name != "line_item_net_unblended_cost"]
    is_parquet = path.suffix == ".parquet"
    columns: dict[str, Any] = {}
    for name in costs:
        units = [row.get(name) for row in rows]
        texts = [None if unit is None else f"{Decimal(unit) / UNIT:f}" for unit in units]
        columns[name] = pa.array([text and float(text) for text in texts], pa.float64()) if is_parquet else texts
    for name in _TEXTS:
        columns[name] = pa.array([row.get(name, "") for row in rows], pa.string())
    for name in _TIMES:
        times = [row[name] for row in rows]
        columns[name] = pa.array(times, pa.timestamp("ms", "UTC")) if is_parquet else [_text(time) for time in times]
    tags = [row["resource_tags"] for row in rows]
    kind = pa.map_(pa.string(), pa.string())
    columns["resource_tags"] = (
        pa.array([list(tag.items()) for tag in tags], kind) if is_parquet else [json.dumps(item) for item in tags]
    )
    table = pa.table({name: column for name, column in columns.items() if name not in leave_out})
    if is_parquet:
        parquet.write_table(table, path)
    else:
        with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
            csv.write_csv(table, file)


def _text(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%S}.000Z"
