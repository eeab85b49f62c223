"""Hourly prices of SageMaker Training instances, each with region, date, source and confidence.

Three lists, a later one overriding the earlier: instances.csv of this package; the user's cache, which `paretune prices
--refresh true` fills from AWS; and the user's CSV, named by PARETUNE_PRICES. EC2 prices are never used: SageMaker's are
1.15 to 1.4 times as high, depending on the instance family.
"""

import calendar
import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from pathlib import Path

from paretune.core.errors import BadInput, collecting
from paretune.core.untrusted import LARGEST_TABLE, read_text
from paretune.specification import catalog
from paretune.specification.job import JobSpec
from paretune.specification.limits import SEARCHED_PLAN
from paretune.specification.placement import Placement
from paretune.specification.regions import REGIONS, region_faults, usual_region

VARIABLE = "PARETUNE_PRICES"
"""Environment variable that names the user's CSV."""
COLUMNS = ("instance_type", "region", "price_usd_per_hour", "as_of", "source")
"""Columns of the user's CSV and of the cache; `confidence` may follow."""
_CONFIDENCES = ("confirmed", "single_source", "uncertain", "user")
_DOUBT = {"uncertain": "uncertain: ", "single_source": "one source: "}  # prefixes of `Price.source`
_STALE_DAYS = 180
_CACHE_HINT = "; delete it, `paretune prices --refresh true` creates it again"


@dataclass(frozen=True, kw_only=True)
class Price:
    """The hourly price of one instance, with region, date and source.

    Attributes:
        region: as `instance_type`, empty for a local instance with `local_price_usd_per_hour`.
        as_of: year, month or day on which the price was read; empty where it is not known.
        source: where it was read, after "uncertain: " or "one source: " for these confidences.
        confidence: confirmed, single_source, uncertain, user (from the user's CSV) or notional (not billed).
    """

    usd_per_hour: float
    region: str
    as_of: str
    source: str
    instance_type: str = ""
    confidence: str = "confirmed"

    def cost_usd(self, billable_seconds: float, instance_count: int) -> float:
        """Dollars of a job. Source: AWS, DescribeTrainingJob, BillableTimeInSeconds (read 2026-11-20)."""
        return billable_seconds * instance_count * self.usd_per_hour / 3600

    @property
    def since(self) -> date:
        """First day of `as_of`; the earliest possible date where it is empty."""
        return _days(self.as_of)[0] if self.as_of else date.min

    @property
    def plain_source(self) -> str:
        """The first of its sources, without the prefix for its confidence."""
        return self.source.removeprefix(_DOUBT.get(self.confidence, "")).partition(";")[0]

    def doubts(self, today: date) -> list[str]:
        """Reasons to distrust the price, a few words each: confidence, age over 180 days; none for a notional price."""
        if self.confidence == "notional":
            return []
        reasons = {"uncertain": ["uncertain"], "single_source": ["from one source only"]}.get(self.confidence, [])
        age = (today - self.since).days
        if self.as_of and age > _STALE_DAYS:
            first, last = _days(self.as_of)
            return [*reasons, f"{age} days old" if first == last else f"up to {age} days old"]
        return reasons if self.as_of else [*reasons, "without a date"]

    def remarks(self, today: date) -> list[str]:
        """`doubts` as one sentence with the next step; empty where there are none."""
        doubts = self.doubts(today)
        if not doubts:
            return []
        where = f"is of {self.as_of}" if self.as_of else f"is {doubts.pop()}"
        about = ", ".join([f"price of {self.instance_type} in {self.region} {where}", *doubts])
        remedy = f"`paretune prices --refresh true --region {self.region}` reads today's"
        if self.confidence == "user":
            remedy = f"bring the file of {VARIABLE} (a design's `prices`) up to date"
        return [f"{about} ({self.plain_source}): {remedy}"]


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


def local_price(usd_per_hour: float) -> Price:
    """The notional price of a local instance: that of ml.m5.large, or `local_price_usd_per_hour`."""
    if usd_per_hour == ML_M5_LARGE.usd_per_hour:
        return ML_M5_LARGE
    source = "notional: local_price_usd_per_hour"
    return Price(usd_per_hour=usd_per_hour, region="", as_of="", source=source, confidence="notional")


def plan_price(cluster: Placement, region: str) -> Price:
    """The price of an instance of a training plan: nothing more, for the plan's upfront fee is paid already."""
    source = f"training plan, paid in advance: {cluster.training_plan}"
    kind = cluster.instance_type
    return Price(usd_per_hour=0.0, region=region, as_of="", source=source, instance_type=kind, confidence="notional")


def price_remarks(price: Price | None, instance_type: str, region: str, today: date) -> list[str]:
    """Sentences for the user before a job is paid for: doubts about its price, or that it is not known."""
    if price is not None:
        return price.remarks(today)
    return [
        f"price of {instance_type} in {region} is not known, so cost will be absent: `paretune prices --refresh true "
        f"--region {region}` reads it from AWS, or name your own CSV in {VARIABLE}"
    ]


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """All price rows known on this machine: of the package, then of the cache; `own` ones of the user's CSV win."""

    listed: tuple[Price, ...]
    own: tuple[Price, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "PriceList":
        """The rows of the package, of the user's cache, and of the user's CSV.

        Args:
            environment: PARETUNE_PRICES names the CSV; the cache is below XDG_CACHE_HOME or HOME.

        Raises:
            BadInput: a file cannot be read or a value is invalid; all faults at once, with file and line.
        """
        faults: list[str] = []
        cached: list[Price] = []
        own: list[Price] = []
        folder = cache_folder(environment)
        for path in sorted(folder.glob("*.csv")) if folder is not None else []:
            with collecting(faults):
                cached += read_file(path, own=False)
        if named := environment.get(VARIABLE):
            with collecting(faults):
                own = read_file(named, own=True)
        if faults:
            raise BadInput(faults)
        return cls(listed=(*_packaged(), *cached), own=tuple(own))

    def price(self, instance_type: str, region: str, on: date | None = None) -> Price | None:
        """The newest row of this type and region; None where there is none. Another region's price is never used.

        Rows after the date `on` are ignored.
        """
        own, listed = self._rows.get((instance_type, region), ([], []))
        return _newest(own, on) or _newest(own, None) or _newest(listed, on)

    def of_region(self, region: str) -> dict[str, Price]:
        """Instance type to newest price, for all types with a price in `region`."""
        names = sorted(name for name, there in self._rows if there == region)
        return {name: price for name in names if (price := self.price(name, region)) is not None}

    @cached_property
    def _rows(self) -> dict[tuple[str, str], tuple[list[Price], list[Price]]]:
        """(Own rows, listed rows) by type and region; built once, because a study looks up hundreds of prices."""
        rows: dict[tuple[str, str], tuple[list[Price], list[Price]]] = {}
        for index, prices in enumerate((self.own, self.listed)):
            for row in prices:
                rows.setdefault((row.instance_type, row.region), ([], []))[index].append(row)
        return rows


def usual_price(spec: JobSpec, prices: PriceList, environment: Mapping[str, str]) -> Price | None:
    """The price of a job's instance type in the job's region; for a local instance the notional price; None if unknown.

    Raises:
        BadInput: the region does not exist.
    """
    if not spec.has_instances:
        return local_price(spec.local_price_usd_per_hour)
    region = usual_region(spec.region, environment)
    if spec.training_plan not in (None, SEARCHED_PLAN):
        return plan_price(spec, region)
    return prices.price(spec.instance_type, region)


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Folder of the prices read from AWS, one CSV per region; None where neither XDG_CACHE_HOME nor HOME is set."""
    cache_home = environment.get("XDG_CACHE_HOME", "")
    if cache_home.startswith("/"):  # XDG Base Directory Specification: relative paths are ignored
        return Path(cache_home) / "paretune" / "prices"
    home = environment.get("HOME")
    return Path(home) / ".cache" / "paretune" / "prices" if home else None


def read_file(path: str | Path, *, own: bool) -> list[Price]:
    """Rows of a price file; BadInput with all its faults, each with file and line."""
    try:
        reader = csv.DictReader(io.StringIO(_text(path, own=own), newline=""), skipinitialspace=True)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
        if missing:
            needed = ", ".join(COLUMNS)
            raise BadInput([f"{path}:1: column {', '.join(missing)} is missing; needed are {needed}"])
        rows = [(reader.line_num, {name: (row.get(name) or "").strip() for name in row if name}) for row in reader]
    except csv.Error as error:
        raise BadInput([f"{_must(own=own)}{path} cannot be read ({error}){'' if own else _CACHE_HINT}"]) from error
    faults: list[str] = []
    found: list[Price] = []
    lines: dict[tuple[str, str, str], int] = {}
    for line, row in rows:
        wrong = _row_faults(row, own=own)
        key = (row["instance_type"], row["region"], row["as_of"])
        if not wrong and key in lines:
            wrong = [f"same instance_type, region and as_of as line {lines[key]}"]
        lines[key] = line
        faults += [f"{path}:{line}: {fault}" for fault in wrong]
        if not wrong:
            found.append(_price(row, "user" if own else row.get("confidence") or "confirmed"))
    if faults:
        raise BadInput(faults)
    return found


def _must(*, own: bool) -> str:
    """How a fault of a price file begins."""
    return f"{VARIABLE} must name a CSV of prices, but " if own else ""


def _text(path: str | Path, *, own: bool) -> str:
    """What a price file holds; BadInput where it cannot be read."""
    try:
        return read_text(path, LARGEST_TABLE, must=_must(own=own))
    except BadInput as error:
        raise BadInput([f"{fault}{'' if own else _CACHE_HINT}" for fault in error.faults]) from error


def as_of_fault(name: str, text: str) -> list[str]:
    """What is wrong with `text` as the date of a price, which is called `name`; empty if nothing is."""
    try:
        _days(text or "2026")
    except ValueError:
        return [f"{name} must be a date such as 2026-11-20, 2026-11 or 2026, or empty, got {text!r}"]
    return []


def _row_faults(row: Mapping[str, str], *, own: bool) -> list[str]:
    faults = []
    name, text = row["instance_type"], row["price_usd_per_hour"]
    if own and name not in catalog.instances():
        faults.append(catalog.unknown_type(name, catalog.instances()))
    faults += region_faults(row["region"])
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if not (math.isfinite(usd) and usd >= 0):
        faults.append(f"price_usd_per_hour must be a number of at least 0, got {text!r}")
    faults += as_of_fault("as_of", row["as_of"])
    if row.get("confidence") and row["confidence"] not in _CONFIDENCES:
        faults.append(f"confidence must be one of {', '.join(_CONFIDENCES)}, got {row['confidence']!r}")
    return faults


def _price(row: Mapping[str, str], confidence: str) -> Price:
    return Price(
        usd_per_hour=float(row["price_usd_per_hour"]),
        region=row["region"],
        as_of=row["as_of"],
        source=row["source"] or (VARIABLE if confidence == "user" else "unknown source"),
        instance_type=row["instance_type"],
        confidence=confidence,
    )


@cache
def _packaged() -> tuple[Price, ...]:
    """Rows of instances.csv with a price and a region."""
    return tuple(
        _price({**row, "source": _DOUBT.get(row["confidence"], "") + row["source"]}, row["confidence"])
        for row in catalog.rows()
        if row["price_usd_per_hour"] and row["region"] in REGIONS
    )


def _newest(rows: Iterable[Price], on: date | None) -> Price | None:
    known = [row for row in rows if on is None or row.since <= on]
    return max(reversed(known), key=lambda row: row.since, default=None)  # of the same day the last


def _days(as_of: str) -> tuple[date, date]:
    """First and last day of a year, a month or a day.

    Raises:
        ValueError: `as_of` has another form.
    """
    parts = as_of.split("-")
    if [len(part) for part in parts] not in ([4], [4, 2], [4, 2, 2]):
        raise ValueError(as_of)
    year, *rest = (int(part) for part in parts)
    if len(rest) == 2:
        return date(year, *rest), date(year, *rest)
    first, last = (rest[0], rest[0]) if rest else (1, 12)
    return date(year, first, 1), date(year, last, calendar.monthrange(year, last)[1])
