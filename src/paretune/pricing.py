"""Hourly prices of instances, costs of jobs, and checks of worst cases against dollar limits.

A price has a region, a date, a source and a confidence. Prices come from three lists: the launchers' tables of instance
types, such as instances.csv of this package; the file that `paretune prices --refresh true` writes from AWS's Pricing
API; and the user's CSV, which PARETUNE_PRICES names. The user's prices override all others; of the other prices, the
newest counts. Prices of EC2 are never used, because those of SageMaker Training are 1.15 to 1.4 times as high,
depending on the instance family.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from operator import attrgetter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import ClassVar, Literal

from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.file_lock import locked_file
from paretune.core.reading import exists, read_table
from paretune.core.result import csv_text
from paretune.specification import catalog
from paretune.specification.catalog import REGIONS, region_faults, usual_region
from paretune.specification.declaration import Parameters, Rules, parameter, rules_of
from paretune.specification.job import SageMaker
from paretune.specification.launchers import LOCAL
from paretune.specification.price import DOUBT, OF_A_PLAN, Price, first_day
from paretune.storage.files import find_path

VARIABLE = "PARETUNE_PRICES"  # environment variable that names the user's CSV
COLUMNS = ("instance_type", "region", "price_usd_per_hour", "as_of", "source")
"""Required columns of a price file. A column `confidence` is optional."""
_TABLE = "the launcher's table of instance types"  # has the prices of a launcher without regions
ROUNDING_USD = 1e-9  # tolerance in dollars, for the rounding errors of floating-point sums


# SageMaker Training price of ml.m5.large (2 vCPUs, 8 GiB), us-east-1: usage type USE1-Train:ml.m5.large of the AWS
# price list, read on 2026-08-11.
ML_M5_LARGE = Price(
    usd_per_hour=0.115,
    region="us-east-1",
    as_of="2026-08-11",
    source="notional: AWS price list, SageMaker Training, ml.m5.large; a local job is not billed",
    instance_type="ml.m5.large",
    confidence="notional",
)


def dates_of(prices: Iterable[Price | None]) -> str:
    """Describe the dates of prices: `of 2026-08`, `of 2026-04 to 2026-10`; empty if none has a date."""
    dates = sorted({price.as_of for price in prices if price is not None and price.as_of})
    return "of " + " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""


def price_remarks(price: Price | None, instance_type: str, region: str, today: date) -> list[str]:
    """Return a list with one warning if a price is unknown or doubtful; otherwise, return an empty list."""
    if price is None:
        return [unknown_price(instance_type, region, "no cost will be known")]
    if not (doubts := price.doubts(today)):
        return []
    remedy = f"{_refresh(region)} reads today's" if region else f"bring {_TABLE} up to date"
    if price.confidence == "user":
        remedy = f"bring the file of {VARIABLE} up to date"
    return [f"price of {_with_region(instance_type, region)} is {', '.join(doubts)} ({price.plain_source}): {remedy}"]


def unknown_price(instance_type: str, region: str, consequence: str) -> str:
    """Return a message that says that a price is unknown, what the consequence is, and how to set the price."""
    unknown = f"the price of {_with_region(instance_type, region)} is not known, so {consequence}"
    if not region:
        return f"{unknown}: write it into {_TABLE}"
    return f"{unknown}: {_refresh(region)} reads it from AWS, or name your own CSV in {VARIABLE}"


def _with_region(instance_type: str, region: str) -> str:
    return f"{instance_type} in {region}" if region else instance_type


def _refresh(region: str) -> str:
    return f"`paretune prices --refresh true --region {region}`"


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """All prices on this machine: `listed` has those of the launchers and AWS, `users` those of the user's CSV."""

    listed: tuple[Price, ...]
    users: tuple[Price, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "PriceList":
        """Read the launchers' tables, `kept_file`, and the CSV that PARETUNE_PRICES names.

        That CSV may be a shipped file. Raises BadInput with the faults of `kept_file` and of the CSV; see `read_file`.
        """
        faults: list[str] = []
        cached: list[Price] = []
        users: list[Price] = []
        path = kept_file(environment)
        if path is not None and exists(path):
            with collecting(faults):
                cached = read_file(path, is_users=False)
        if users_path := environment.get(VARIABLE):
            with collecting(faults):
                users = read_file(find_path(users_path), is_users=True)
        refuse(faults)
        return cls(listed=(*_packaged(), *cached), users=tuple(users))

    def price(self, instance_type: str, region: str, on: date | None = None) -> Price | None:
        """Return the newest price of this type in this region up to the date `on`, or None if there is none.

        The user's prices come first, even if all of them are newer than `on`.
        """
        users, listed = (
            [row for row in rows if (row.instance_type, row.region) == (instance_type, region)]
            for rows in (self.users, self.listed)
        )
        return _newest(users, on) or _newest(users, None) or _newest(listed, on)

    def of_region(self, region: str) -> dict[str, Price]:
        """Return the newest price of each type that has a price in `region`."""
        names = sorted({row.instance_type for row in (*self.users, *self.listed) if row.region == region})
        return {name: price for name in names if (price := self.price(name, region)) is not None}


def plan_price(settings: SageMaker, instance_type: str, region: str) -> Price | None:
    """Return what an instance of a job's training plan costs per hour; None if the job uses no training plan."""
    if settings.training_plan is None:
        return None
    usd, paid = settings.training_plan_usd_per_hour, "sagemaker.training_plan_usd_per_hour"
    return Price(
        usd_per_hour=usd,
        region=region,
        as_of="",
        source=f"training plan: {paid if usd else 'paid for in advance, so the job itself costs nothing more'}",
        instance_type=instance_type,
        confidence=OF_A_PLAN,
    )


def price_region(instance_type: str, region: str | None, environment: Mapping[str, str]) -> str:
    """Return the region whose prices apply to jobs on these instances; empty if their launcher has no regions.

    `region` is the one that was given, if any.

    AWS is not called. Raises BadInput if the region is invalid.
    """
    has_regions = instance_type != LOCAL and catalog.owner(instance_type).has_regions
    return usual_region(region, environment) if has_regions else ""


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Dollars of several jobs: the costs of jobs that have ended are spent, the worst cases of others are committed."""

    spent_usd: float
    committed_usd: float

    def left_usd(self, budget_usd: float) -> float:
        """Return a budget minus spent and committed dollars; negative if these are more than the budget."""
        return budget_usd - self.spent_usd - self.committed_usd

    def covers(self, worst_usd: float, budget_usd: float) -> bool:
        """Return whether one more worst case fits into what is left of a budget."""
        return worst_usd <= self.left_usd(budget_usd) + ROUNDING_USD


def cost_usd(price: Price | None, seconds: float, instance_count: int) -> float | None:
    """Return the cost in dollars of a cluster with this many billable seconds per instance; None without a price."""
    return None if price is None else price.cost_usd(seconds, instance_count)


def kept_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the CSV that keeps prices read from AWS, or None if neither XDG_CACHE_HOME nor HOME is set."""
    cache_home = environment.get("XDG_CACHE_HOME", "")
    if cache_home.startswith("/"):  # XDG Base Directory Specification: relative paths are ignored
        return Path(cache_home) / "paretune" / "prices.csv"
    home = environment.get("HOME")
    return Path(home) / ".cache" / "paretune" / "prices.csv" if home else None


def keep(environment: Mapping[str, str], read: Sequence[Price]) -> Path:
    """Add prices `read` from AWS to `kept_file`, atomically; return its path. Raises BadInput if that is impossible.

    A lock makes other processes wait, because the new file replaces the one that has been read.
    """
    path = kept_file(environment)
    if path is None:
        raise BadInput(["HOME or XDG_CACHE_HOME must be set: the prices are kept under it"])
    names = (*COLUMNS, "confidence")
    cells = attrgetter("instance_type", "region", "usd_per_hour", "as_of", "source", "confidence")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked_file(path.with_suffix(".lock"), is_removed=True):
            rows = [*(read_file(path, is_users=False) if exists(path) else []), *read]
            newest = {(row.region, row.instance_type, row.as_of): row for row in rows}
            with NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, delete=False) as file:
                written = [dict(zip(names, cells(newest[key]), strict=True)) for key in sorted(newest)]
                file.write(csv_text(names, written))
            Path(file.name).replace(path)
    except OSError as error:
        raise BadInput([f"{path} cannot be written ({error.strerror}): free disk space or make it writable"]) from error
    return path


def read_file(path: str | Path, *, is_users: bool) -> list[Price]:
    """Return the prices in a file, which is either the user's CSV or `kept_file`.

    Raises BadInput with the faults of all lines, or with one fault if the file cannot be read or lacks columns.
    """
    must = f"{VARIABLE} must name a CSV of prices, but " if is_users else ""
    try:
        header, table = read_table(path, must=must)
    except BadInput as error:
        hint = "" if is_users else "; delete it, `paretune prices --refresh true` creates it again"
        raise BadInput([f"{fault}{hint}" for fault in error.faults]) from error
    if missing := [name for name in COLUMNS if name not in header]:
        columns = ", ".join(COLUMNS)
        raise BadInput([f"{path}:1: column {', '.join(missing)} is missing; the required columns are {columns}"])
    faults: list[str] = []
    prices: list[Price] = []
    for line, cells in table:
        texts = {name: cell for name, cell in zip(header, cells, strict=False) if name in _Row.model_fields}
        row, row_faults = _Row.check(texts)
        messages = [fault.text for fault in row_faults]
        if is_users and row is not None and row.instance_type not in catalog.instances():
            messages = [catalog.unknown_type(row.instance_type, catalog.instances())]
        faults += [f"{path}:{line}: {message}" for message in messages]
        if row is not None:
            confidence = "user" if is_users else row.confidence
            prices.append(_price(row.as_text(), row.price_usd_per_hour or 0.0, confidence))
    refuse(faults)
    return prices


class _Cells(Parameters):
    """The cells of a price in any table."""

    instance_type: str = parameter("")
    price_usd_per_hour: float | None = parameter(None, ge=0)
    as_of: str = parameter("")
    source: str = parameter("")
    confidence: Literal["confirmed", "single_source", "uncertain", "user"] = parameter("confirmed")

    rules: ClassVar[Rules] = (
        lambda row: as_of_fault("as_of", row.as_of),
        *rules_of({"price_usd_per_hour is empty": lambda row: row.price_usd_per_hour is None}),
    )


class _Row(_Cells):
    region: str = parameter("")

    rules: ClassVar[Rules] = (lambda row: region_faults(row.region), *_Cells.rules)


def as_of_fault(name: str, text: str) -> list[str]:
    """Return a list with one fault if `text`, the value of `name`, is neither a price's date nor empty."""
    try:
        first_day(text or "2026")
    except ValueError:
        return [f"{name} must be a date such as 2026-11-20, 2026-11 or 2026, or empty, got {text!r}"]
    return []


def _price(row: Mapping[str, str], usd_per_hour: float, confidence: str) -> Price:
    return Price(
        usd_per_hour=usd_per_hour,
        region=row["region"],
        as_of=row["as_of"],
        source=row["source"] or (VARIABLE if confidence == "user" else "unknown source"),
        instance_type=row["instance_type"],
        confidence=confidence,
    )


@cache
def _packaged() -> tuple[Price, ...]:
    faults: list[str] = []
    prices: list[Price] = []
    for row in catalog.rows():
        texts = {
            name: cell for name in _Cells.model_fields if (cell := row.get(name)) and cell != "missing"
        }  # the confidence of a price that was not read is "missing"
        region = row.get("region") or ""
        if "price_usd_per_hour" not in texts or (region not in REGIONS and _has_regions(row)):
            continue
        cells, row_faults = _Cells.check(texts)
        faults += [f"{row['table']}: {row['instance_type']}: {fault.text}" for fault in row_faults]
        if cells is not None:
            source = DOUBT.get(cells.confidence, "") + cells.source
            given = cells.as_text() | {"region": region, "source": source}
            prices.append(_price(given, cells.price_usd_per_hour or 0.0, cells.confidence))
    refuse(faults)
    return tuple(prices)


def _has_regions(row: Mapping[str, str]) -> bool:
    return catalog.owner(row["instance_type"]).has_regions


def _newest(rows: Iterable[Price], on: date | None) -> Price | None:
    candidates = [row for row in rows if on is None or row.since <= on]
    return max(reversed(candidates), key=lambda row: row.since, default=None)  # of the newest rows, the last one
