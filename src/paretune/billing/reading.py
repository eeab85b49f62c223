"""A Cost and Usage Report 2.0 as lines: Parquet and CSV files, read in pieces.

Only lines of SageMaker trainings become `Line`s. All others, usually nearly all, stay columns and are one exact sum.
Columns and table settings: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0" (read 2026-11-22).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from paretune.billing.lines import RUN_TAG, USAGE_TYPES, Line, LineKind, kind_of, tag_name
from paretune.billing.seen import Keys, Seen
from paretune.core.errors import BadInput, collecting, first_line, refuse

EXACT = Context(prec=60)
"""Decimal arithmetic that rounds nothing: costs have at most 20 digits after the point, and 60 hold their products."""
SUFFIXES = (".parquet", ".csv", ".gz")
_ROWS = 65_536  # at a time
_SERVICE = "AmazonSageMaker"
_ID, _TYPE, _USAGE = "identity_line_item_id", "line_item_line_item_type", "line_item_usage_type"
_START, _END = "line_item_usage_start_date", "line_item_usage_end_date"
_PRODUCT, _RESOURCE, _TAGS = "line_item_product_code", "line_item_resource_id", "resource_tags"
_AMOUNT, _UNBLENDED = "line_item_usage_amount", "line_item_unblended_cost"
_NET, _CURRENCY = "line_item_net_unblended_cost", "line_item_currency_code"
_LIST, _LIST_RATE, _RATE = "pricing_public_on_demand_cost", "pricing_public_on_demand_rate", "line_item_unblended_rate"
_PLAN, _PLAN_NET = "savings_plan_savings_plan_effective_cost", "savings_plan_net_savings_plan_effective_cost"
_RESERVED, _RESERVED_NET = "reservation_effective_cost", "reservation_net_effective_cost"
_UNIT = "pricing_unit"
_NUMBERS = (_AMOUNT, _UNBLENDED, _NET, _LIST, _LIST_RATE, _RATE, _PLAN, _PLAN_NET, _RESERVED, _RESERVED_NET)
_TEXTS = (_ID, _TYPE, _USAGE, _RESOURCE, _CURRENCY, _UNIT)
_NECESSARY = {
    **dict.fromkeys((_ID, _TYPE, _PRODUCT, _USAGE, _AMOUNT, _UNBLENDED), "name it in the query of the export"),
    **dict.fromkeys((_START, _END), "name it in the query of the export, with TIME_GRANULARITY HOURLY or DAILY"),
    _RESOURCE: "make the export with INCLUDE_RESOURCES TRUE (Billing console: Include resource IDs)",
}
"""Column to what adds it to an export."""
_READ = (*_TEXTS, *_NUMBERS, _PRODUCT, _START, _END, _TAGS)
_ODD = np.array([0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.int64)
"""Large odd numbers, so that different times and costs move a hash to different places."""
_SUM = pa.decimal256(76, 38)
_LONGEST = timedelta(days=1)  # of a line that tells up to when there are lines
_DELIVERY = re.compile(r"(?P<month>(?:.*/)?BILLING_PERIOD=[^/]+)/(?P<name>[^/]+)/")
_LEGACY = "lineItem/"


@dataclass
class Sum:
    """How many lines, and their unblended dollars."""

    lines: int = 0
    usd: Decimal = field(default=Decimal(0))

    def add(self, usd: Decimal, lines: int = 1) -> None:
        """Count further lines."""
        self.lines += lines
        self.usd = EXACT.add(self.usd, usd)


@dataclass
class Coverage:
    """Which months the bill is of, and up to when it has lines of an hour or a day; None without such lines."""

    months: set[tuple[int, int]] = field(default_factory=set)
    until: datetime | None = None

    def add(self, start: datetime, end: datetime) -> None:
        """A line of usage in this time."""
        self.months.add((start.year, start.month))
        if end - start <= _LONGEST and (self.until is None or end > self.until):
            self.until = end

    def lacks(self, start: datetime, end: datetime) -> str:
        """Why the bill does not tell all of a job in this time; empty where it does."""
        if self.until is None:
            return "the bill has no lines of an hour or a day: export it with TIME_GRANULARITY HOURLY or DAILY"
        year, month = start.year, start.month
        while (year, month) <= (end.year, end.month):
            if (year, month) not in self.months:
                return f"the bill has no lines of {year}-{month:02}"
            year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        if end > self.until:
            return f"the bill ends at {self.until:%Y-%m-%d %H:%M} UTC and the job at {end:%Y-%m-%d %H:%M}"
        return ""


class BillFiles:
    """The files of a bill; `lines` reads them, and then the sums are known.

    Attributes:
        others: of all lines but those that `lines` gives.
        repeated: lines that have come before, which are not counted.
        changed: those of `repeated` whose cost was another one.
        left_out: deliveries of a billing period that a later one in the same folder replaces.

    Raises:
        BadInput: there is no bill, or its columns do not suffice; all faults at once.
    """

    def __init__(self, place: Path) -> None:
        self.files, self.left_out = _files(place)
        self.others = Sum()
        self.coverage = Coverage()
        self.repeated = self.changed = 0
        self._seen, self._seen_with_cost = Seen(), Seen()
        faults: list[str] = []
        for path in self.files:
            with collecting(faults):
                _check_columns(path, _columns_of(path))
        refuse(faults)

    def lines(self) -> Iterator[Line]:
        """The lines of SageMaker trainings, each once.

        Raises:
            BadInput: a file is damaged, a number is none, or a currency is not USD.
        """
        for path in self.files:
            try:
                for batch in _batches(path):
                    yield from self._of_batch(_Rows(path, batch))
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable(path, error) from error

    def _of_batch(self, rows: "_Rows") -> Iterator[Line]:
        rows = self._fresh(rows)
        self._cover(rows)
        of_service = pc.equal(rows.texts(_PRODUCT), _SERVICE)
        is_training = pc.match_substring_regex(rows.texts(_USAGE), "Train")
        is_named = pc.match_substring(rows.texts(_RESOURCE), ":training-job/")
        tags = rows.run_tags()
        is_tagged = np.zeros(len(rows), dtype=bool)
        is_tagged[list(tags)] = True
        wanted = pc.and_(of_service, pc.or_(pc.or_(is_training, is_named), pa.array(is_tagged)))
        self.others.add(*rows.only(pc.invert(wanted)).total())
        found = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
        yield from rows.only(wanted).lines([tags.get(int(place), "") for place in found])

    def _fresh(self, rows: "_Rows") -> "_Rows":
        """The rows that have not come before."""
        keys = rows.keys()
        is_fresh = self._seen.fresh(keys)
        is_new_cost = self._seen_with_cost.fresh(keys + rows.cost_keys())
        self.repeated += int(np.sum(~is_fresh))
        self.changed += int(np.sum(~is_fresh & is_new_cost))
        return rows.only(pa.array(is_fresh))

    def _cover(self, rows: "_Rows") -> None:
        for start, end, kind in rows.distinct_times():
            if kind in USAGE_TYPES and start and end:
                self.coverage.add(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))


class _Rows:
    """Some rows of a file, by column."""

    def __init__(self, path: Path, batch: Any) -> None:
        self._path = path
        self._batch = batch
        self._names = set(batch.schema.names)

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def only(self, mask: Any) -> "_Rows":
        return _Rows(self._path, self._batch.filter(mask))

    def texts(self, name: str) -> Any:
        """A column as texts, numbers in the shortest form that is exactly they; empty where nothing stands."""
        if name not in self._names:
            return pa.array([""] * len(self), pa.string())
        return pc.fill_null(pc.cast(self._batch.column(name), pa.string()), "")

    def times(self, name: str) -> Any:
        """A column of times as seconds since the epoch, 0 where nothing stands; all of a bill are in UTC."""
        column = self._batch.column(name)
        if pa.types.is_timestamp(column.type):
            seconds = pc.cast(pc.cast(column, pa.timestamp("s", column.type.tz), safe=False), pa.int64())
            return pc.fill_null(seconds, 0)
        texts = pc.utf8_slice_codeunits(self.texts(name), 0, 19)
        filled = pc.if_else(pc.equal(texts, ""), "1970-01-01T00:00:00", texts)
        try:
            return pc.cast(pc.cast(filled, pa.timestamp("s")), pa.int64())
        except pa.ArrowInvalid as error:
            how = "must be times such as 2026-11-01T10:00:00Z"
            raise BadInput([f"{self._path}: {name} {how}: {first_line(error)}"]) from error

    def keys(self) -> Keys:
        """A hash of what tells a line from others: its id, which is unique in a billing period, its type and time."""
        joined = pc.binary_join_element_wise(self.texts(_ID), self.texts(_TYPE), "\x1f").to_pylist()
        found: Keys = np.fromiter(map(hash, joined), np.int64, len(joined))
        for name, odd in ((_START, _ODD[0]), (_END, _ODD[1])):
            found = found + self.times(name).to_numpy() * odd
        return found

    def cost_keys(self) -> Keys:
        """The same of the unblended cost alone, however it is written; shape (N,)."""
        try:
            costs = pc.cast(self._batch.column(_UNBLENDED), pa.float64())
        except pa.ArrowInvalid:  # some are no numbers, such as empty cells
            texts = self.texts(_UNBLENDED).to_pylist()
            costs = pa.array([self._number(_UNBLENDED, text) if text else 0 for text in texts], pa.float64())
        found: Keys = pc.fill_null(costs, 0).to_numpy(zero_copy_only=False).view(np.int64) * _ODD[2]
        return found

    def distinct_times(self) -> Iterator[tuple[int, int, str]]:
        """The different beginnings, ends and types of the rows."""
        columns = {"start": self.times(_START), "end": self.times(_END), "type": self.texts(_TYPE)}
        found = pa.table(columns).group_by(list(columns)).aggregate([])
        return zip(*(found.column(name).to_pylist() for name in columns), strict=True)

    def total(self) -> tuple[Decimal, int]:
        """Unblended dollars of all rows, and how many rows those are."""
        texts = self.texts(_UNBLENDED)
        try:
            costs = pc.cast(pc.if_else(pc.equal(texts, ""), "0", texts), _SUM)
            return pc.sum(costs).as_py() or Decimal(0), len(self)
        except pa.ArrowInvalid:  # some have more than 38 digits after the point, or are no numbers
            found = (self._number(_UNBLENDED, text) for text in texts.to_pylist() if text)
            return reduce(EXACT.add, found, Decimal(0)), len(self)

    def run_tags(self) -> dict[int, str]:
        """Row to the value of its tag `paretune:run`."""
        if _TAGS not in self._names:
            return {}
        column = self._batch.column(_TAGS)
        if pa.types.is_map(column.type):
            return _tags_of_map(column)
        return _tags_of_texts(self.texts(_TAGS))

    def lines(self, run_tags: Sequence[str]) -> Iterator[Line]:
        """The rows as lines; BadInput where a number is none or the currency is not USD."""
        texts = {name: self.texts(name).to_pylist() for name in _TEXTS}
        cells = {name: self.texts(name).to_pylist() for name in _NUMBERS if name in self._names}
        for place, run_tag in enumerate(run_tags):
            told = {name: texts[name][place] for name in _TEXTS}
            numbers = {name: self._number(name, found[place]) for name, found in cells.items() if found[place]}
            if told[_CURRENCY] not in ("", "USD"):
                raise BadInput(
                    [f"{self._path}: {_CURRENCY} must be USD, got {told[_CURRENCY]}: costs are recorded in dollars"]
                )
            yield _line(told, numbers, run_tag, tells_net=_NET in self._names)

    def _number(self, name: str, text: str) -> Decimal:
        try:
            found = Decimal(text)
        except InvalidOperation:
            found = Decimal("nan")
        if not found.is_finite():
            raise BadInput([f"{self._path}: {name} must be a number, got {text!r}: export the bill again"])
        return found


def _line(told: Mapping[str, str], numbers: Mapping[str, Decimal], run_tag: str, *, tells_net: bool) -> Line:
    listed = numbers.get(_LIST) or None  # 0 on lines without a public price
    return Line(
        id=told[_ID],
        type=told[_TYPE],
        usage_type=told[_USAGE],
        resource=told[_RESOURCE],
        run_tag=run_tag,
        unit=told[_UNIT],
        amount=numbers.get(_AMOUNT, Decimal(0)),
        unblended_usd=numbers.get(_UNBLENDED, Decimal(0)),
        list_usd=listed,
        rate=numbers.get(_RATE if listed is None else _LIST_RATE),
        effective_usd=_effective_usd(told, numbers, tells_net=tells_net),
    )


def _effective_usd(told: Mapping[str, str], numbers: Mapping[str, Decimal], *, tells_net: bool) -> Decimal:
    """What is paid for a line in effect, before tax and credits.

    A discount that is a line of its own (INCLUDE_MANUAL_DISCOUNT_COMPATIBILITY) counts where there are no net costs;
    where there are, those of the discounted lines hold it already.
    """
    kind = kind_of(told[_TYPE], told[_USAGE], told[_UNIT])
    if kind in (LineKind.TAX, LineKind.CREDIT, LineKind.PLAN):
        return Decimal(0)
    if kind is LineKind.DISCOUNT and tells_net:
        return numbers.get(_NET, Decimal(0))
    special = {"SavingsPlanCoveredUsage": (_PLAN_NET, _PLAN), "DiscountedUsage": (_RESERVED_NET, _RESERVED)}
    named = (*special.get(told[_TYPE], ()), _NET, _UNBLENDED)
    return next((numbers[name] for name in named if name in numbers), Decimal(0))


def _tags_of_map(column: Any) -> dict[int, str]:
    keys = pc.dictionary_encode(column.keys)
    ours = [number for number, key in enumerate(keys.dictionary.to_pylist()) if tag_name(key) == RUN_TAG]
    if not ours:
        return {}
    places = np.flatnonzero(np.isin(keys.indices.to_numpy(zero_copy_only=False), ours))
    rows = np.searchsorted(column.offsets.to_numpy(), places, side="right") - 1
    values = column.items.take(pa.array(places)).to_pylist()
    return {int(row): value for row, value in zip(rows, values, strict=True) if value and 0 <= row < len(column)}


def _tags_of_texts(texts: Any) -> dict[int, str]:
    found = {}
    for place in np.flatnonzero(pc.match_substring(texts, "paretune").to_numpy(zero_copy_only=False)):
        try:
            tags = json.loads(texts[int(place)].as_py())
        except ValueError:
            continue
        named = (
            [str(value) for key, value in tags.items() if tag_name(key) == RUN_TAG] if isinstance(tags, dict) else []
        )
        found.update({int(place): value for value in named if value})
    return found


def _files(place: Path) -> tuple[list[Path], list[str]]:
    """The files at a path, by name, and the deliveries that were left out."""
    if place.is_file():
        found = [place]
    elif place.is_dir():
        found = sorted(path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    else:
        raise BadInput([f"bill must be a file or folder of a Cost and Usage Report, or s3://..., got {place}: no such"])
    if not found:
        raise BadInput(
            [f"bill {place} has no file that ends in {', '.join(SUFFIXES)}: name the folder `data` of an export"]
        )
    return _newest_deliveries(place, found)


def _newest_deliveries(place: Path, found: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """An export that creates new files keeps every delivery of a month in a folder whose name begins with its time."""
    of_path = {path: _DELIVERY.match(path.relative_to(place).as_posix()) for path in found}
    newest: dict[str, str] = {}
    for delivery in filter(None, of_path.values()):
        newest[delivery["month"]] = max(newest.get(delivery["month"], ""), delivery["name"])
    old = {path: one for path, one in of_path.items() if one and one["name"] != newest[one["month"]]}
    return [path for path in found if path not in old], sorted({one[0].rstrip("/") for one in old.values()})


def _columns_of(path: Path) -> list[str]:
    try:
        if path.suffix.lower() == ".parquet":
            return list(parquet.read_schema(path).names)
        with csv.open_csv(_opened(path)) as reader:
            return list(reader.schema.names)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _check_columns(path: Path, names: Sequence[str]) -> None:
    if any(name.startswith(_LEGACY) for name in names):
        raise BadInput([f"{path} is a legacy Cost and Usage Report: make a Data Export of the table CUR 2.0"])
    refuse([f"{path}: column {name} is missing: {how}" for name, how in _NECESSARY.items() if name not in names])


def _batches(path: Path) -> Iterator[Any]:
    """The columns of a file that are read, some rows at a time."""
    if path.suffix.lower() == ".parquet":
        with parquet.ParquetFile(path) as file:
            names = [name for name in _READ if name in file.schema_arrow.names]
            yield from file.iter_batches(batch_size=_ROWS, columns=names)
        return
    names = [name for name in _READ if name in _columns_of(path)]
    texts = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
    with csv.open_csv(_opened(path), convert_options=texts) as reader:
        yield from reader


def _opened(path: Path) -> Any:
    return pa.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None)


def _unreadable(path: Path, error: BaseException) -> BadInput:
    return BadInput([f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"])
