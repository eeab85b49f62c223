"""A Cost and Usage Report 2.0 as lines: Parquet and CSV files, read in pieces.

Only lines of SageMaker training become `Line`s. All others, usually nearly all, stay columns and are one exact sum.
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
from numpy.typing import NDArray
from pyarrow import csv, parquet

from paretune.commands.bill.coverage import Coverage
from paretune.commands.bill.deliveries import BillFile, MonthScopes, Scope, bill_files
from paretune.commands.bill.lines import EXACT, RUN_TAG, USAGE_TYPES, Line, LineKind, kind_of, tag_name
from paretune.core.errors import BadInput, collecting, first_line, refuse
from paretune.core.untrusted import parse_json

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
_UNIT, _SKU = "pricing_unit", "product_sku"
_NUMBERS = (_AMOUNT, _UNBLENDED, _NET, _LIST, _LIST_RATE, _RATE, _PLAN, _PLAN_NET, _RESERVED, _RESERVED_NET)
_TEXTS = (_ID, _TYPE, _USAGE, _RESOURCE, _CURRENCY, _UNIT, _ACCOUNT, _SKU)
_NECESSARY = {
    **dict.fromkeys((_ID, _TYPE, _PRODUCT, _USAGE, _AMOUNT, _UNBLENDED), "name it in the query of the export"),
    **dict.fromkeys((_START, _END), "name it in the query of the export, with TIME_GRANULARITY HOURLY or DAILY"),
    _RESOURCE: "make the export with INCLUDE_RESOURCES TRUE (Billing console: Include resource IDs)",
}
"""Column to what adds it to an export."""
_READ = frozenset({*_TEXTS, *_NUMBERS, _PRODUCT, _START, _END, _PERIOD, _PAYER, _OPERATION})
_KEY = (_ID, _TYPE, _RESOURCE, _USAGE, _OPERATION, _PAYER, _ACCOUNT)
"""Columns that, with the times, identify a line. An id alone is unique within one file of a delivery."""
_CHARGE = (*_KEY[1:], _SKU)  # columns that, with the times, say what a line is for, whatever its id and amounts
_COVERED = {"SavingsPlanCoveredUsage": (_PLAN_NET, _PLAN), "DiscountedUsage": (_RESERVED_NET, _RESERVED)}
"""Type of a line to the columns that hold its effective cost, the best first."""
_ODD = np.array([0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.int64)
"""Large odd numbers, so that different times and costs change a hash differently."""
_SUM = pa.decimal256(76, 38)
_OTHER_TABLES = {
    "FOCUS 1.2 export": re.compile("BillingAccountType"),
    "FOCUS 1.1 export": re.compile("CapacityReservationId|SkuMeter"),
    "FOCUS 1.0 export": re.compile("BilledCost"),
    "legacy Cost and Usage Report": re.compile("lineItem/|(line_item|identity)_[a-z]+(type|id|cost|date)$"),
    "detailed billing report": re.compile("RecordType|UnBlendedCost"),
}
"""Other reports of AWS to a column by which they are recognised; a legacy report has lineItem/UsageType, in Athena
line_item_usagetype. Columns: AWS Data Exports user guide, "FOCUS 1.2 with AWS columns" (read 2026-11-23)."""
_ZONE = re.compile(r"(?:\.\d+)?\s*(?:Z|UTC|([+-])(\d\d):?(\d\d)?)?")
_TIME_RULE = "must be times such as 2026-11-01T10:00:00Z"
_YEAR_10000 = 253_402_300_800  # its first second
_WHOLE, _FRACTION = 20, 60  # digits before and after the point, at most
_NOT_FOR_ARROW = r"[eE][+-]?\d{3}|\d{30}"
"""Numbers that crash Arrow's decimals (large exponents), or that it silently changes (many digits)."""
_LONGEST_CELL = 60  # characters of a cell in a message
_MOST_FAULTS = 50  # of columns; no further files are checked then
Keys = NDArray[np.int64]
"""Hashes of lines; shape (N,). Two of a million different lines have the same hash once in 30 million bills."""
_TAG_MAPS = ("resource_tags", "tags")
"""Columns with maps of tags, which CSV files hold as JSON. A query of an export may also take single keys out of them,
as columns such as resource_tags.user_paretune_run (AWS Data Exports user guide, read 2026-11-22)."""


@dataclass
class Sum:
    """A number of lines, and their unblended dollars."""

    lines: int = 0
    usd: Decimal = field(default=Decimal(0))

    def add(self, usd: Decimal, lines: int = 1) -> None:
        """Count further lines."""
        self.lines += lines
        self.usd = EXACT.add(self.usd, usd)


class KeySet:
    """Keys of lines that have been read, eight bytes each, in sorted pieces whose sizes at least halve."""

    def __init__(self) -> None:
        self._pieces: list[Keys] = []

    def add(self, keys: Keys) -> NDArray[np.bool_]:
        """Add `keys` and return which of them are new, also among themselves; shape (N,)."""
        is_new = np.zeros(len(keys), dtype=bool)
        is_new[np.unique(keys, return_index=True)[1]] = True
        for piece in self._pieces:
            indices = np.minimum(np.searchsorted(piece, keys), len(piece) - 1)
            is_new &= piece[indices] != keys
        added = np.sort(keys[is_new])
        while self._pieces and len(self._pieces[-1]) < 2 * len(added):
            added = np.sort(np.concatenate([self._pieces.pop(), added]))
        if len(added):
            self._pieces.append(added)
        return is_new


class BillFiles:
    """The files of a bill; `lines` reads them, and then the sums are complete.

    Attributes:
        others: all lines that `lines` does not return.
        repeated: number of lines that had come before and are not counted.
        left_out: deliveries of a billing period that a later one in the same folder replaces.
        without_tags: names of the files that have no column of tags.

    Raises:
        BadInput: there is no bill, or its columns do not suffice; the faults of all files, or of the first ones.
    """

    def __init__(self, bill: Path, address: str = "") -> None:
        self.files, self.left_out = bill_files(bill, address)
        self.others = Sum()
        self.coverage = Coverage()
        self.repeated = 0
        self.without_tags: list[str] = []
        self._rows = 0
        self._scopes = MonthScopes()
        self._changed: dict[str, int] = {}
        self._keys, self._keys_with_cost = KeySet(), KeySet()
        self._has_net: dict[str, bool] = {}
        faults: list[str] = []
        for file in self.files:
            with collecting(faults):
                names = _columns_of(file.path)
                _check_columns(file.path, names)
                if not any(map(_is_tag_column, names)):
                    self.without_tags.append(file.path.name)
            if len(faults) >= _MOST_FAULTS:  # it is not the folder of a bill
                break
        refuse(faults)

    def lines(self) -> Iterator[Line]:
        """Yield each line of SageMaker training once.

        Raises:
            BadInput: a file is damaged, a number is invalid, a currency is not USD, there are no lines, or it is
                unknown which lines count. The last is raised after all lines; none of them may be used then.
        """
        for file in self.files:
            try:
                for batch in batches(file.path):
                    yield from self._training_lines(_Rows(file.path, batch), file)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable(file.path, error) from error
        self._scopes.refuse_doubled()
        refuse(
            [
                f"{count:,} lines of {name} have come before with other costs: give one delivery of each month"
                for name, count in self._changed.items()
            ]
        )
        if not self._rows:
            raise BadInput(["the bill has no lines: give the files of an export that has been delivered"])

    def _delivery_has_net(self, delivery: str) -> bool:
        """Whether any usage in a delivery has a net cost; the column may be there but empty, or hold only zeros."""
        if delivery not in self._has_net:
            parts = [file.path for file in self.files if file.delivery == delivery]
            self._has_net[delivery] = any(map(_has_net, parts))
        return self._has_net[delivery]

    def _training_lines(self, rows: "_Rows", file: BillFile) -> Iterator[Line]:
        """Count the rows and yield those of SageMaker training."""
        self._rows += len(rows)
        rows = self._new_rows(rows)
        for start, end, kind, product in rows.distinct_times():
            if kind in USAGE_TYPES and start and end:
                times = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)
                self.coverage.add(*times, of_service=product == _SERVICE)
        self._scopes.add(file.delivery, rows.scopes(file.month))
        of_service = pc.equal(rows.texts(_PRODUCT), _SERVICE)
        is_training = pc.match_substring_regex(rows.texts(_USAGE), "Train")
        is_named = pc.match_substring(rows.texts(_RESOURCE), ":training-job/")
        tags = rows.run_tags()
        is_tagged = np.zeros(len(rows), dtype=bool)
        is_tagged[list(tags)] = True
        is_discount = pc.ends_with(rows.texts(_TYPE), "Discount")  # may name a SKU alone
        is_ours = (is_training, is_named, is_discount, pa.array(is_tagged))
        mask = pc.and_(of_service, reduce(pc.or_, is_ours))
        self.others.add(*rows.only(pc.invert(mask)).total())
        indices = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        if len(indices):
            run_tags = [tags.get(int(index), "") for index in indices]
            yield from rows.only(mask).lines(run_tags, has_net=self._delivery_has_net(file.delivery))

    def _new_rows(self, rows: "_Rows") -> "_Rows":
        """Return the rows that have not come before."""
        keys = rows.keys()
        is_new = self._keys.add(keys)
        is_new_cost = self._keys_with_cost.add(keys + rows.cost_keys())
        self.repeated += int(np.sum(~is_new))
        if changed := int(np.sum(~is_new & is_new_cost)):
            self._changed[rows.file] = self._changed.get(rows.file, 0) + changed
        return rows.only(pa.array(is_new))


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
        """Return a column as texts; numbers as the shortest decimal that parses back, missing values as empty texts."""
        if name not in self._names:
            return pa.array([""] * len(self), pa.string())
        return pc.fill_null(pc.cast(self._batch.column(name), pa.string()), "")

    def times(self, name: str) -> Any:
        """Return a column of times as seconds since the epoch, 0 for a missing time; UTC unless they name another zone.

        Raises:
            BadInput: some are not times between the years 1970 and 9999.
        """
        column = self._batch.column(name)
        if pa.types.is_timestamp(column.type):
            exact = pc.cast(pc.cast(column, pa.timestamp("s", column.type.tz), safe=False), pa.int64())
            seconds = pc.fill_null(exact, 0)
        else:
            seconds = self._parsed_times(name)
        least, most = pc.min_max(seconds).as_py().values()
        if least is not None and not 0 <= least <= most < _YEAR_10000:
            raise BadInput([f"{self._path}: {name} {_TIME_RULE}: some are not between 1970 and 9999"])
        return seconds

    def _parsed_times(self, name: str) -> Any:
        texts = self.texts(name)
        times = pc.utf8_slice_codeunits(texts, 0, 19)
        filled = pc.if_else(pc.equal(times, ""), "1970-01-01T00:00:00", times)
        zones = pc.dictionary_encode(pc.utf8_slice_codeunits(texts, 19))
        try:
            seconds = pc.cast(pc.cast(filled, pa.timestamp("s")), pa.int64())
            offsets = pa.array([_offset_s(zone) for zone in zones.dictionary.to_pylist()], pa.int64())
            return pc.subtract(seconds, offsets.take(zones.indices))
        except (pa.ArrowInvalid, ValueError) as error:
            raise BadInput([f"{self._path}: {name} {_TIME_RULE}: {first_line(error)}"]) from error

    def keys(self) -> Keys:
        """Return a hash of what identifies each line; shape (N,). BadInput if a line has no id."""
        if pc.any(pc.equal(self.texts(_ID), "")).as_py():
            raise BadInput([f"{self._path}: {_ID} must not be empty: without it, a line may count twice"])
        return self._hashes(_KEY)

    def _hashes(self, columns: Sequence[str]) -> Keys:
        joined = pc.binary_join_element_wise(*map(self.texts, columns), "\x1f").to_pylist()
        keys: Keys = np.fromiter(map(hash, joined), np.int64, len(joined))
        for name, odd in ((_START, _ODD[0]), (_END, _ODD[1])):
            keys = keys + self.times(name).to_numpy() * odd
        return keys

    def cost_keys(self) -> Keys:
        """Return a hash of each unblended cost, independent of how it is written; shape (N,)."""
        texts = self.texts(_UNBLENDED)
        try:
            costs = pc.cast(pc.if_else(pc.equal(texts, ""), "0", texts), pa.float64())
        except pa.ArrowInvalid:  # some are no numbers, or are written in another way
            numbers = (self._number(_UNBLENDED, text or "0") for text in texts.to_pylist())
            costs = pa.array(list(map(float, numbers)), pa.float64())
        keys: Keys = costs.to_numpy(zero_copy_only=False).view(np.int64) * _ODD[2]
        return keys

    def scopes(self, folder_month: str) -> set[tuple[str, Scope]]:
        """Return billing months and accounts of the usage in the rows.

        Without a column of the billing period it is the month of the folder, else the month of the usage.
        """
        start = self.times(_START)
        if _PERIOD in self._names:
            period = self.times(_PERIOD)
            start = pc.if_else(pc.equal(period, 0), start, period)
        month = pc.floor_temporal(pc.cast(start, pa.timestamp("s")), unit="month")
        columns = {"month": month, "payer": self.texts(_PAYER), "account": self.texts(_ACCOUNT)}
        is_usage = pc.is_in(self.texts(_TYPE), pa.array(sorted(USAGE_TYPES)))
        distinct = pa.table(columns).filter(is_usage).group_by(list(columns)).aggregate([])
        times, payers, accounts = (distinct.column(name).to_pylist() for name in columns)
        fixed = folder_month if _PERIOD not in self._names else ""
        return {
            (fixed or f"{time:%Y-%m}", (payer, account))
            for time, payer, account in zip(times, payers, accounts, strict=True)
        }

    def distinct_times(self) -> Iterator[tuple[int, int, str, str]]:
        """Return the distinct starts, ends, types and products of the rows."""
        columns = {"start": self.times(_START), "end": self.times(_END)}
        columns |= {"type": self.texts(_TYPE), "product": self.texts(_PRODUCT)}
        distinct = pa.table(columns).group_by(list(columns)).aggregate([])
        return zip(*(distinct.column(name).to_pylist() for name in columns), strict=True)

    def total(self) -> tuple[Decimal, int]:
        """Return the unblended dollars of all rows, and the number of rows."""
        texts = self.texts(_UNBLENDED)
        if not pc.any(pc.match_substring_regex(texts, _NOT_FOR_ARROW)).as_py():
            try:
                costs = pc.cast(pc.if_else(pc.equal(texts, ""), "0", texts), _SUM)
                return pc.sum(costs).as_py() or Decimal(0), len(self)
            except pa.ArrowInvalid:  # some have more than 38 digits after the point, or are no numbers
                pass
        numbers = (self._number(_UNBLENDED, text) for text in texts.to_pylist() if text)
        return reduce(EXACT.add, numbers, Decimal(0)), len(self)

    def run_tags(self) -> dict[int, str]:
        """Return row to the value of its tag `paretune:run`; the first column that has one counts."""
        tags: dict[int, str] = {}
        for name in filter(_is_tag_column, self._batch.schema.names):
            tags = _column_tags(name, self._batch.column(name)) | tags
        return tags

    def lines(self, run_tags: Sequence[str], *, has_net: bool) -> Iterator[Line]:
        """Yield the rows as lines; BadInput if a number is invalid or the currency is not USD."""
        texts = {name: self.texts(name).to_pylist() for name in _TEXTS}
        cells = {name: self.texts(name).to_pylist() for name in _NUMBERS if name in self._names}
        starts, ends = (self.times(name).to_pylist() for name in (_START, _END))
        charges = self._hashes(_CHARGE).tolist()
        for index, run_tag in enumerate(run_tags):
            row = {name: texts[name][index] for name in _TEXTS}
            numbers = {name: self._number(name, column[index]) for name, column in cells.items() if column[index]}
            if row[_CURRENCY] not in ("", "USD"):
                raise BadInput(
                    [f"{self._path}: {_CURRENCY} must be USD, got {row[_CURRENCY]}: costs are recorded in dollars"]
                )
            list_usd = numbers.get(_LIST) or None  # 0 on lines without a public price
            yield Line(
                id=row[_ID],
                type=row[_TYPE],
                usage_type=row[_USAGE],
                resource=row[_RESOURCE],
                account=row[_ACCOUNT],
                sku=row[_SKU],
                start=starts[index],
                end=ends[index],
                charge=charges[index],
                file=self.file,
                run_tag=run_tag,
                unit=row[_UNIT],
                amount=numbers.get(_AMOUNT, Decimal(0)),
                unblended_usd=numbers.get(_UNBLENDED, Decimal(0)),
                list_usd=list_usd,
                rate=numbers.get(_RATE if list_usd is None else _LIST_RATE),
                effective_usd=_effective_usd(row, numbers, has_net=has_net),
            )

    def _number(self, name: str, text: str) -> Decimal:
        try:
            number = Decimal(text.replace("_", "?"))  # Python takes 1_000 for a number
        except InvalidOperation:
            number = Decimal("nan")
        is_valid = number.is_finite() and number.adjusted() < _WHOLE and -int(number.as_tuple().exponent) <= _FRACTION
        if not is_valid:
            cell = text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "..."
            raise BadInput([f"{self._path}: {name} must be a number, got {cell!r}: export the bill again"])
        return number


def _effective_usd(row: Mapping[str, str], numbers: Mapping[str, Decimal], *, has_net: bool) -> Decimal | None:
    """Return the effective cost of a line before tax and credits, or None if it is covered and no column has it.

    A discount that is a line of its own (INCLUDE_MANUAL_DISCOUNT_COMPATIBILITY) counts if there are no net costs;
    otherwise the net costs of the discounted lines contain it already.
    """
    kind = kind_of(row[_TYPE], row[_USAGE], row[_UNIT])
    if kind in (LineKind.TAX, LineKind.CREDIT, LineKind.PLAN):
        return Decimal(0)
    if kind is LineKind.DISCOUNT and has_net:
        return numbers.get(_NET, Decimal(0))
    if row[_TYPE] in _COVERED:  # a share of 0 is unknown: exports without net costs may fill the column with zeros
        paid = next((numbers[name] for name in _COVERED[row[_TYPE]] if numbers.get(name)), None)
        is_free = not any(numbers.get(name) for name in (_AMOUNT, _UNBLENDED, _LIST))
        return Decimal(0) if paid is None and is_free else paid
    columns = (_NET, _UNBLENDED) if has_net else (_UNBLENDED,)
    return next((numbers[name] for name in columns if name in numbers), Decimal(0))


def _offset_s(zone: str) -> int:
    """Return the seconds by which a time zone is ahead of UTC; ValueError if the text is no zone."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise ValueError(f"{zone!r} is no time zone")
    sign, hours, minutes = match.groups()
    return 0 if sign is None else int(f"{sign}1") * (int(hours) * 3600 + int(minutes or 0) * 60)


def _is_tag_column(name: str) -> bool:
    return name in _TAG_MAPS or tag_name(name) == RUN_TAG


def _column_tags(name: str, column: Any) -> dict[int, str]:
    """Return row to the value of the tag of a run, for a column of any form."""
    kind = column.type
    if pa.types.is_map(kind):
        return _tags_of_pairs(column.offsets, column.keys, column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):  # of key and value, as some converters write a map
        if not (pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
            return {}
        return _tags_of_pairs(column.offsets, *(column.values.field(index) for index in range(2)))
    texts = pc.fill_null(pc.cast(column, pa.string()), "")
    if name not in _TAG_MAPS:
        return {row: value for row, value in enumerate(texts.to_pylist()) if value}
    is_candidate = pc.match_substring(texts, "paretune", ignore_case=True).to_numpy(zero_copy_only=False)
    tags_of_rows = {}
    for row in np.flatnonzero(is_candidate):
        try:
            tags = parse_json(texts[int(row)].as_py())
        except ValueError:  # not JSON
            continue
        pairs = tags.items() if isinstance(tags, dict) else ()
        values = [value for key, value in pairs if tag_name(key) == RUN_TAG]
        tags_of_rows.update({int(row): value for value in values if value and isinstance(value, str)})
    return tags_of_rows


def _tags_of_pairs(offsets: Any, keys: Any, values: Any) -> dict[int, str]:
    encoded = pc.dictionary_encode(pc.cast(keys, pa.string()))
    run_keys = [number for number, key in enumerate(encoded.dictionary.to_pylist()) if key and tag_name(key) == RUN_TAG]
    if not run_keys:
        return {}
    numbers = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    indices = np.flatnonzero(np.isin(numbers, run_keys))
    rows = np.searchsorted(offsets.to_numpy(), indices, side="right") - 1
    texts = pc.cast(values, pa.string()).take(pa.array(indices)).to_pylist()
    return {int(row): text for row, text in zip(rows, texts, strict=True) if text and 0 <= row < len(offsets) - 1}


def _has_net(path: Path) -> bool:
    """Whether any usage in a file has a net cost other than 0."""
    if _NET not in _columns_of(path):
        return False
    for batch in batches(path, lambda name: name in (_NET, _TYPE)):
        rows = _Rows(path, batch)
        is_usage = pc.is_in(rows.texts(_TYPE), pa.array(sorted(USAGE_TYPES)))
        is_nonzero = pc.match_substring_regex(rows.texts(_NET), "^[^eE]*[1-9]")
        if pc.any(pc.and_(is_usage, is_nonzero)).as_py():
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
    doubled = sorted({name for name in names if _is_read(name) and names.count(name) > 1})
    refuse([f"{path}: column {name} is there {names.count(name)} times: export the bill again" for name in doubled])
    missing = [name for name in _NECESSARY if name not in names]
    table = next((table for table, column in _OTHER_TABLES.items() if any(map(column.match, names))), "")
    if missing and table:
        raise BadInput(
            [
                f"{path} is a {table}, which has other columns: make a Data Export of the table CUR 2.0 (Billing "
                "console, Data Exports, with resource IDs and hourly or daily lines)"
            ]
        )
    refuse([f"{path}: column {name} is missing: {_NECESSARY[name]}" for name in missing])


def _is_read(name: str) -> bool:
    return name in _READ or _is_tag_column(name)


def batches(path: Path, is_read: Callable[[str], bool] = _is_read) -> Iterator[Any]:
    """Yield the columns that `is_read` selects, some rows at a time; by default those that a bill needs."""
    if path.suffix.lower() == ".parquet":
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=list(filter(is_read, file.schema_arrow.names)))
        return
    names = list(filter(is_read, _columns_of(path)))
    texts = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
    with csv.open_csv(_opened(path), convert_options=texts) as reader:
        yield from reader


def _opened(path: Path) -> Any:
    return pa.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None)


def _unreadable(path: Path, error: BaseException) -> BadInput:
    return BadInput([f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"])
