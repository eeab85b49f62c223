"""A Cost and Usage Report 2.0 as lines: Parquet and CSV files, read in pieces.

Only lines of SageMaker trainings become `Line`s. All others, usually nearly all, stay columns and are one exact sum.
Columns and table settings: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0" (read 2026-11-22).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from paretune.commands.bill.coverage import Coverage
from paretune.commands.bill.deliveries import BillFile, Claims, Scope, bill_files
from paretune.commands.bill.lines import EXACT, USAGE_TYPES, Line, LineKind, kind_of
from paretune.commands.bill.seen import Keys, Seen
from paretune.commands.bill.tag_columns import is_tag_column, run_tags
from paretune.core.errors import BadInput, collecting, first_line, refuse

_ROWS = 65_536  # at a time
_SERVICE = "AmazonSageMaker"
_ID, _TYPE, _USAGE = "identity_line_item_id", "line_item_line_item_type", "line_item_usage_type"
_START, _END = "line_item_usage_start_date", "line_item_usage_end_date"
_PRODUCT, _RESOURCE, _OPERATION = "line_item_product_code", "line_item_resource_id", "line_item_operation"
_PAYER, _ACCOUNT = "bill_payer_account_id", "line_item_usage_account_id"
_PERIOD = "bill_billing_period_start_date"
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
_READ = frozenset({*_TEXTS, *_NUMBERS, _PRODUCT, _START, _END, _PERIOD, _PAYER, _ACCOUNT, _OPERATION})
_KEY = (_ID, _TYPE, _RESOURCE, _USAGE, _OPERATION, _PAYER, _ACCOUNT)
"""With the times: what tells a line from others. An id alone is unique within one file of a delivery."""
_COVERED = {"SavingsPlanCoveredUsage": (_PLAN_NET, _PLAN), "DiscountedUsage": (_RESERVED_NET, _RESERVED)}
"""Type of a line to the columns that tell what is paid for it in effect, the best first."""
_ODD = np.array([0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.int64)
"""Large odd numbers, so that different times and costs move a hash to different places."""
_SUM = pa.decimal256(76, 38)
_LEGACY = re.compile("lineItem/|(line_item|identity)_[a-z]+(type|id|cost|date)$")
"""A column of a legacy report, as AWS names it and as Athena does (lineItem/UsageType, line_item_usagetype)."""
_ZONE = re.compile(r"(?:\.\d+)?\s*(?:Z|UTC|([+-])(\d\d):?(\d\d)?)?")
_A_TIME = "must be times such as 2026-11-01T10:00:00Z"
_YEAR_10000 = 253_402_300_800  # its first second
_WHOLE, _FRACTION = 20, 60  # digits before and after the point: more are no dollars
_NOT_FOR_ARROW = r"[eE][+-]?\d{3}|\d{30}"
"""Numbers that Arrow's decimals may crash on (large exponents), or turn into others without a word (many digits)."""
_SHOWN = 60  # letters of a cell in a message
_MOST_FAULTS = 50  # of columns, after which no further files are looked at


@dataclass
class Sum:
    """How many lines, and their unblended dollars."""

    lines: int = 0
    usd: Decimal = field(default=Decimal(0))

    def add(self, usd: Decimal, lines: int = 1) -> None:
        """Count further lines."""
        self.lines += lines
        self.usd = EXACT.add(self.usd, usd)


class BillFiles:
    """The files of a bill; `lines` reads them, and then the sums are known.

    Attributes:
        others: of all lines but those that `lines` gives.
        repeated: lines that have come before, which are not counted.
        left_out: deliveries of a billing period that a later one in the same folder replaces.
        without_tags: names of the files that have no column of tags.

    Raises:
        BadInput: there is no bill, or its columns do not suffice; the faults of all files, or of the first ones.
    """

    def __init__(self, place: Path, address: str = "") -> None:
        self.files, self.left_out = bill_files(place, address)
        self.others = Sum()
        self.coverage = Coverage()
        self.repeated = 0
        self.without_tags: list[str] = []
        self._rows = 0
        self._claims = Claims()
        self._changed: dict[str, int] = {}
        self._seen, self._seen_with_cost = Seen(), Seen()
        self._net: dict[str, bool] = {}
        faults: list[str] = []
        for file in self.files:
            with collecting(faults):
                names = _columns_of(file.path)
                _check_columns(file.path, names)
                if not any(map(is_tag_column, names)):
                    self.without_tags.append(file.path.name)
            if len(faults) >= _MOST_FAULTS:  # it is no folder of a bill
                break
        refuse(faults)

    def lines(self) -> Iterator[Line]:
        """The lines of SageMaker trainings, each once.

        Raises:
            BadInput: a file is damaged, a number is none, a currency is not USD, there are no lines, or it is not known
                which lines count: then only after all lines, none of which may be used.
        """
        for file in self.files:
            try:
                for batch in batches(file.path):
                    yield from self._of_batch(_Rows(file.path, batch), file)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable(file.path, error) from error
        self._claims.refuse_doubled()
        refuse(
            [
                f"{count:,} lines of {name} have come before with other costs: give one delivery of each month"
                for name, count in self._changed.items()
            ]
        )
        if not self._rows:
            raise BadInput(["the bill has no lines: give the files of an export that has been delivered"])

    def _tells_net(self, delivery: str) -> bool:
        """Whether any usage in a delivery has a net cost; the column alone may be empty, or filled with zeros."""
        if delivery not in self._net:
            parts = [file.path for file in self.files if file.delivery == delivery]
            self._net[delivery] = any(map(_has_net, parts))
        return self._net[delivery]

    def _of_batch(self, rows: "_Rows", file: BillFile) -> Iterator[Line]:
        self._rows += len(rows)
        rows = self._fresh(rows)
        self._cover(rows)
        self._claims.add(file.delivery, rows.scopes(file.month))
        of_service = pc.equal(rows.texts(_PRODUCT), _SERVICE)
        is_training = pc.match_substring_regex(rows.texts(_USAGE), "Train")
        is_named = pc.match_substring(rows.texts(_RESOURCE), ":training-job/")
        tags = rows.run_tags()
        is_tagged = np.zeros(len(rows), dtype=bool)
        is_tagged[list(tags)] = True
        wanted = pc.and_(of_service, pc.or_(pc.or_(is_training, is_named), pa.array(is_tagged)))
        self.others.add(*rows.only(pc.invert(wanted)).total())
        found = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
        if len(found):
            named = [tags.get(int(place), "") for place in found]
            yield from rows.only(wanted).lines(named, tells_net=self._tells_net(file.delivery))

    def _fresh(self, rows: "_Rows") -> "_Rows":
        """The rows that have not come before."""
        keys = rows.keys()
        is_fresh = self._seen.fresh(keys)
        is_new_cost = self._seen_with_cost.fresh(keys + rows.cost_keys())
        self.repeated += int(np.sum(~is_fresh))
        if changed := int(np.sum(~is_fresh & is_new_cost)):
            self._changed[rows.file] = self._changed.get(rows.file, 0) + changed
        return rows.only(pa.array(is_fresh))

    def _cover(self, rows: "_Rows") -> None:
        for start, end, kind, product in rows.distinct_times():
            if kind in USAGE_TYPES and start and end:
                times = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)
                self.coverage.add(*times, of_service=product == _SERVICE)


class _Rows:
    """Some rows of a file, by column."""

    def __init__(self, path: Path, batch: Any) -> None:
        self._path = path
        self._batch = batch
        self._names = set(batch.schema.names)

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @property
    def file(self) -> str:
        """Name of the file."""
        return self._path.name

    def only(self, mask: Any) -> "_Rows":
        return _Rows(self._path, self._batch.filter(mask))

    def texts(self, name: str) -> Any:
        """A column as texts, numbers in the shortest form that is exactly they; empty where nothing stands."""
        if name not in self._names:
            return pa.array([""] * len(self), pa.string())
        return pc.fill_null(pc.cast(self._batch.column(name), pa.string()), "")

    def times(self, name: str) -> Any:
        """A column of times as seconds since the epoch, 0 where nothing stands; in UTC unless they say another zone.

        Raises:
            BadInput: some are no times, or are not between the years 1970 and 9999.
        """
        seconds = self._seconds(name)
        least, most = pc.min_max(seconds).as_py().values()
        if least is not None and not 0 <= least <= most < _YEAR_10000:
            raise BadInput([f"{self._path}: {name} {_A_TIME}: some are not between 1970 and 9999"])
        return seconds

    def _seconds(self, name: str) -> Any:
        column = self._batch.column(name)
        if pa.types.is_timestamp(column.type):
            seconds = pc.cast(pc.cast(column, pa.timestamp("s", column.type.tz), safe=False), pa.int64())
            return pc.fill_null(seconds, 0)
        whole = self.texts(name)
        texts = pc.utf8_slice_codeunits(whole, 0, 19)
        filled = pc.if_else(pc.equal(texts, ""), "1970-01-01T00:00:00", texts)
        ends = pc.dictionary_encode(pc.utf8_slice_codeunits(whole, 19))
        try:
            seconds = pc.cast(pc.cast(filled, pa.timestamp("s")), pa.int64())
            ahead = pa.array([_ahead_s(text) for text in ends.dictionary.to_pylist()], pa.int64())
            return pc.subtract(seconds, ahead.take(ends.indices))
        except (pa.ArrowInvalid, ValueError) as error:
            raise BadInput([f"{self._path}: {name} {_A_TIME}: {first_line(error)}"]) from error

    def keys(self) -> Keys:
        """A hash of what tells a line from others; shape (N,). BadInput where a line has no id."""
        if pc.any(pc.equal(self.texts(_ID), "")).as_py():
            raise BadInput([f"{self._path}: {_ID} must not be empty: without it, a line may count twice"])
        joined = pc.binary_join_element_wise(*map(self.texts, _KEY), "\x1f").to_pylist()
        found: Keys = np.fromiter(map(hash, joined), np.int64, len(joined))
        for name, odd in ((_START, _ODD[0]), (_END, _ODD[1])):
            found = found + self.times(name).to_numpy() * odd
        return found

    def cost_keys(self) -> Keys:
        """The same of the unblended cost alone, however it is written; shape (N,)."""
        texts = self.texts(_UNBLENDED)
        try:
            costs = pc.cast(pc.if_else(pc.equal(texts, ""), "0", texts), pa.float64())
        except pa.ArrowInvalid:  # some are no numbers, or are written in another way
            told = (self._number(_UNBLENDED, text or "0") for text in texts.to_pylist())
            costs = pa.array(list(map(float, told)), pa.float64())
        found: Keys = costs.to_numpy(zero_copy_only=False).view(np.int64) * _ODD[2]
        return found

    def scopes(self, of_folder: str) -> set[tuple[str, Scope]]:
        """Billing months and accounts that the usage in the rows is of.

        Without a column of the billing period it is that of the folder, and without one there the month of the usage.
        """
        start = self.times(_START)
        if _PERIOD in self._names:
            period = self.times(_PERIOD)
            start = pc.if_else(pc.equal(period, 0), start, period)
        month = pc.floor_temporal(pc.cast(start, pa.timestamp("s")), unit="month")
        columns = {"month": month, "payer": self.texts(_PAYER), "account": self.texts(_ACCOUNT)}
        is_usage = pc.is_in(self.texts(_TYPE), pa.array(sorted(USAGE_TYPES)))
        different = pa.table(columns).filter(is_usage).group_by(list(columns)).aggregate([])
        times, payers, accounts = (different.column(name).to_pylist() for name in columns)
        named = of_folder if _PERIOD not in self._names else ""
        found = zip(times, payers, accounts, strict=True)
        return {(named or f"{time:%Y-%m}", (payer, account)) for time, payer, account in found}

    def distinct_times(self) -> Iterator[tuple[int, int, str, str]]:
        """The different beginnings, ends, types and products of the rows."""
        columns = {"start": self.times(_START), "end": self.times(_END)}
        columns |= {"type": self.texts(_TYPE), "product": self.texts(_PRODUCT)}
        found = pa.table(columns).group_by(list(columns)).aggregate([])
        return zip(*(found.column(name).to_pylist() for name in columns), strict=True)

    def total(self) -> tuple[Decimal, int]:
        """Unblended dollars of all rows, and how many rows those are."""
        texts = self.texts(_UNBLENDED)
        if not pc.any(pc.match_substring_regex(texts, _NOT_FOR_ARROW)).as_py():
            try:
                costs = pc.cast(pc.if_else(pc.equal(texts, ""), "0", texts), _SUM)
                return pc.sum(costs).as_py() or Decimal(0), len(self)
            except pa.ArrowInvalid:  # some have more than 38 digits after the point, or are no numbers
                pass
        found = (self._number(_UNBLENDED, text) for text in texts.to_pylist() if text)
        return reduce(EXACT.add, found, Decimal(0)), len(self)

    def run_tags(self) -> dict[int, str]:
        """Row to the value of its tag `paretune:run`."""
        return run_tags(self._batch)

    def lines(self, run_tags: Sequence[str], *, tells_net: bool) -> Iterator[Line]:
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
            yield _line(told, numbers, run_tag, tells_net=tells_net)

    def _number(self, name: str, text: str) -> Decimal:
        try:
            found = Decimal(text.replace("_", "?"))  # Python takes 1_000 for a number
        except InvalidOperation:
            found = Decimal("nan")
        is_number = found.is_finite() and found.adjusted() < _WHOLE and -int(found.as_tuple().exponent) <= _FRACTION
        if not is_number:
            shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
            raise BadInput([f"{self._path}: {name} must be a number, got {shown!r}: export the bill again"])
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


def _effective_usd(told: Mapping[str, str], numbers: Mapping[str, Decimal], *, tells_net: bool) -> Decimal | None:
    """What is paid for a line in effect, before tax and credits; None where it is covered and no column tells.

    A discount that is a line of its own (INCLUDE_MANUAL_DISCOUNT_COMPATIBILITY) counts where there are no net costs;
    where there are, those of the discounted lines hold it already.
    """
    kind = kind_of(told[_TYPE], told[_USAGE], told[_UNIT])
    if kind in (LineKind.TAX, LineKind.CREDIT, LineKind.PLAN):
        return Decimal(0)
    if kind is LineKind.DISCOUNT and tells_net:
        return numbers.get(_NET, Decimal(0))
    if told[_TYPE] in _COVERED:  # a share of 0 is none: exports without net costs may fill the column with zeros
        paid = next((numbers[name] for name in _COVERED[told[_TYPE]] if numbers.get(name)), None)
        is_free = not any(numbers.get(name) for name in (_AMOUNT, _UNBLENDED, _LIST))
        return Decimal(0) if paid is None and is_free else paid
    named = (_NET, _UNBLENDED) if tells_net else (_UNBLENDED,)
    return next((numbers[name] for name in named if name in numbers), Decimal(0))


def _ahead_s(text: str) -> int:
    """Seconds by which a zone is ahead of UTC, from what stands behind a time; ValueError for anything else."""
    found = _ZONE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time zone")
    sign, hours, minutes = found.groups()
    return 0 if sign is None else int(f"{sign}1") * (int(hours) * 3600 + int(minutes or 0) * 60)


def _has_net(path: Path) -> bool:
    """Whether any usage in a file has a net cost other than 0."""
    if _NET not in _columns_of(path):
        return False
    for batch in batches(path, lambda name: name in (_NET, _TYPE)):
        rows = _Rows(path, batch)
        is_usage = pc.is_in(rows.texts(_TYPE), pa.array(sorted(USAGE_TYPES)))
        is_told = pc.match_substring_regex(rows.texts(_NET), "^[^eE]*[1-9]")
        if pc.any(pc.and_(is_usage, is_told)).as_py():
            return True
    return False


def _columns_of(path: Path) -> list[str]:
    try:
        if path.suffix.lower() == ".parquet":
            return list(parquet.read_schema(path).names)
        with csv.open_csv(_opened(path)) as reader:
            return list(reader.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _check_columns(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if _is_read(name) and names.count(name) > 1})
    refuse([f"{path}: column {name} is there {names.count(name)} times: export the bill again" for name in twice])
    missing = [name for name in _NECESSARY if name not in names]
    if missing and any(map(_LEGACY.match, names)):
        raise BadInput([f"{path} is a legacy Cost and Usage Report: make a Data Export of the table CUR 2.0"])
    refuse([f"{path}: column {name} is missing: {_NECESSARY[name]}" for name in missing])


def _is_read(name: str) -> bool:
    return name in _READ or is_tag_column(name)


def batches(path: Path, is_wanted: Callable[[str], bool] = _is_read) -> Iterator[Any]:
    """The wanted columns of a file, some rows at a time: those that are read of a bill."""
    if path.suffix.lower() == ".parquet":
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=list(filter(is_wanted, file.schema_arrow.names)))
        return
    names = list(filter(is_wanted, _columns_of(path)))
    texts = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
    with csv.open_csv(_opened(path), convert_options=texts) as reader:
        yield from reader


def _opened(path: Path) -> Any:
    return pa.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None)


def _unreadable(path: Path, error: BaseException) -> BadInput:
    return BadInput([f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"])
