"""Reads bills that AWS has exported: the files of each delivery, which of them are missing, and the lines of jobs.

A bill is an export of the Cost and Usage Report (CUR, 2.0 or before) or of FOCUS 1.x, as Parquet or CSV. AWS delivers
the files of a month several times, and writes the manifest of a delivery after all its files. Source of columns,
folders and manifests: AWS Data Exports user guide, table dictionaries of "CUR 2.0" and "FOCUS 1.2 with AWS columns",
"Line item details", "Understanding export delivery", "Data Exports manifest file reference", "Understanding your report
versions" (read 2026-11-28).
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from paretune.core.errors import BadInput, first_line
from paretune.core.reading import LARGEST_CONFIG, parse_json, read_text
from paretune.specification.order import JOB_PREFIX

if TYPE_CHECKING:
    import pandas as pd

_DATA = (".parquet", ".csv", ".gz")
SUFFIXES = (*_DATA, ".json")
"""Endings of the files that `read_bill` reads: data and manifests."""
_COVERED = ("SavingsPlanCoveredUsage", "DiscountedUsage")
"""Types of lines that a plan or a reservation covers; in _COLUMNS, the keys of their effective costs."""
_COLUMNS = {  # name here to the names in CUR and in FOCUS
    "resource": ("line_item_resource_id", "ResourceId"),
    "type": ("line_item_line_item_type", "ChargeCategory"),
    "start": ("line_item_usage_start_date", "ChargePeriodStart"),
    "end": ("line_item_usage_end_date", "ChargePeriodEnd"),
    "month": ("bill_billing_period_start_date", "BillingPeriodStart"),
    "billed_usd": ("line_item_unblended_cost", "BilledCost"),
    "effective_usd": ("", "EffectiveCost"),
    "net_usd": ("line_item_net_unblended_cost", ""),
    _COVERED[0]: ("savings_plan_savings_plan_effective_cost", ""),
    f"net {_COVERED[0]}": ("savings_plan_net_savings_plan_effective_cost", ""),
    _COVERED[1]: ("reservation_effective_cost", ""),
    f"net {_COVERED[1]}": ("reservation_net_effective_cost", ""),
    "id": ("identity_line_item_id", ""),
    "currency": ("line_item_currency_code", "BillingCurrency"),
}
_NEEDED, _NUMBERS = [*_COLUMNS][:7], [*_COLUMNS][5:12]
_CHARGES = r"Usage|Discount$"  # types of lines that count; not tax, credits, refunds, fees and negations of plans
_OURS = f"^$|:training-job/{JOB_PREFIX}"  # no resource (counts only for discounts), or a job of paretune
_MONTH = re.compile(
    r"/(?:billing_period=(\d{4})-(\d\d)|(\d{4})(\d\d)\d\d-\d{8}|year=(\d{4})/month=(\d{1,2}))(?=/)", re.IGNORECASE
)
"""The folder of a month: BILLING_PERIOD=2026-11, 20261101-20261201 or year=2026/month=11."""
_STAMP = re.compile(r"/(\d{4}-?\d\d-?\d\dT[^/]*)(?=/)")  # the folder of a delivery if the export keeps old files
_ASSEMBLY = re.compile(r"/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})(?=/)")  # the same in CUR before 2.0
_PART = re.compile(r"-(\d{5})(?=(\.snappy)?(\.parquet|\.csv)?(\.gz)?$)")  # the number of a file in its delivery
_ENDING = re.compile(r"(\.snappy)?(\.parquet|\.csv)?(\.gz)?$")
_MANIFEST = "-manifest.json"
_NAMED = 3  # limit of missing files of a month that a message names


@dataclass(frozen=True)
class _Delivery:
    """The files of one month that AWS has delivered together.

    Attributes:
        month: such as 2026-11; empty if neither a manifest nor a folder names it.
        files: paths of the files that are here.
        missing: names of the files that belong to the delivery and are not here.
        has_manifest: whether a manifest lists the files. If not, files after the last one may be missing.
    """

    export: str
    month: str
    name: str
    files: tuple[Path, ...]
    missing: tuple[str, ...]
    has_manifest: bool


class AwsBill(NamedTuple):
    """The lines of jobs on a bill, and the time that the bill covers.

    Attributes:
        lines: table with the columns job, billed_usd (NaN if the cell is empty, or if `is_twice`), effective_usd (NaN
            if it is unknown, or if `is_twice`), export, and is_twice (whether two exports or deliveries have the job
            in the same month).
        until: maps each export to the time at which its last hourly or daily line, of any service, ends.
        months: maps each export to the months that it has, such as 2026-11.
        missing: maps a month to the names of its files that are not here.
        without_manifest: whether numbered files came without a manifest, so files after the last one may be missing.
    """

    lines: "pd.DataFrame"
    until: Mapping[str, datetime]
    months: Mapping[str, Collection[str]]
    missing: Mapping[str, Collection[str]]
    without_manifest: bool

    def skips(self, months: Collection[str]) -> bool:
        """Return whether the bill lacks one of these months although it has earlier and later ones."""
        here = {month for of_export in self.months.values() for month in of_export}
        return any(min(here) < month < max(here) for month in months if here and month not in here)

    def holes(self, months: Collection[str] | None = None) -> list[str]:
        """Return a sentence for each of these months (by default, all) that has missing files."""
        texts = []
        # If a folder names no month, its missing files may belong to any month.
        for month in sorted(self.missing if months is None else self.missing.keys() & {*months, ""}):
            names = sorted(self.missing[month])
            more = f" and {len(names) - _NAMED} more files" if len(names) > _NAMED else ""
            bill = f"the bill of {month}" if month else "the bill"
            texts.append(f"{bill} lacks {', '.join(names[:_NAMED])}{more}")
        return texts


def read_bill(path: Path) -> AwsBill:
    """Return the bill in a file or a folder.

    For each export and month, the delivery that AWS's newest manifest names is read. Without a manifest, the newest
    delivery is recognized by the times in folder names (if they have none, all deliveries are read), and missing files
    by gaps in the numbers of the files.

    Raises BadInput if no file is a bill, a column or a manifest cannot be read, or the currency is not USD.
    """
    import pandas as pd

    frames, until = [], dict[str, datetime]()
    months, missing = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    deliveries = _deliveries(path)
    for delivery in deliveries:
        missing[delivery.month].update(delivery.missing)
        months[delivery.export] |= {delivery.month} if delivery.month else set()
        for file in delivery.files:
            lines, of_months, end = _read(file)
            source = f"{delivery.export} {delivery.month} {delivery.name}"
            frames.append(lines.assign(export=delivery.export, source=source))
            months[delivery.export] |= of_months
            if end is not None:
                until[delivery.export] = max(end, until.get(delivery.export, end))
    lines = pd.concat(frames, ignore_index=True)
    is_copy = lines.duplicated(["id", "start", "type", "job", "billed_usd"]) & lines["id"].notna()
    lines = lines[~is_copy]
    lines = lines.assign(effective_usd=_effective(lines))[lines["job"] != ""]
    is_twice = lines.groupby(["job", "month"], dropna=False)["source"].transform("nunique") > 1
    usd = {name: lines[name].mask(is_twice) for name in ("billed_usd", "effective_usd")}
    lines = lines.assign(**usd, is_twice=is_twice)
    numbered = [file for each in deliveries if not each.has_manifest for file in each.files if _PART.search(file.name)]
    return AwsBill(lines, until, months, {month: names for month, names in missing.items() if names}, bool(numbered))


def months_between(begin: datetime, end: datetime) -> list[str]:
    """Return the months, such as 2026-11, that a period touches."""
    numbers = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month)
    return [f"{number // 12}-{number % 12 + 1:02}" for number in numbers]


def _deliveries(path: Path) -> list[_Delivery]:
    """Return the newest deliveries, according to their manifests or else to the names of folders and files."""
    files = {each.resolve().as_posix(): each for each in ([path] if path.is_file() else path.rglob("*"))}
    files = {name: file for name, file in sorted(files.items()) if file.is_file()}
    data = {name: file for name, file in files.items() if file.suffix.lower() in _DATA}
    manifests = [_Manifest.read(file) for name, file in files.items() if name.lower().endswith(_MANIFEST)]
    newest, listed = _newest(manifests), {manifest: manifest.find(data) for manifest in manifests}
    deliveries = [
        _Delivery(
            each.export,
            each.month,
            each.execution,
            files=tuple(data[name] for name in listed[each].values() if name),
            missing=tuple(_short(key) for key, name in listed[each].items() if not name),
            has_manifest=True,
        )
        for each in newest
    ]
    # If an export and month has a manifest, other files do not count: they may be of an earlier delivery.
    named = {name for paths in listed.values() for name in paths.values() if name}
    with_manifest = {_place(name)[:2] for name in named}
    places = defaultdict[tuple[str, str, str], list[str]](list)
    for name in data:
        if _place(name)[:2] not in with_manifest:
            places[_place(name)].append(name)
    last = {place[:2]: place for place in sorted(places, key=lambda place: _without_signs(place[2])) if "T" in place[2]}
    for place, names in places.items():
        if "T" not in place[2] or last[place[:2]] == place:
            skipped = tuple(_skipped(names))
            deliveries.append(_Delivery(*place, tuple(data[name] for name in names), skipped, has_manifest=False))
    if not any(delivery.files for delivery in deliveries):
        raise BadInput([f"bill {path} has no file that ends in {', '.join(_DATA)}: name the folder of an export"])
    return deliveries


@dataclass(frozen=True)
class _Manifest:
    """A manifest: its path, its export, month and delivery, and the S3 keys of the delivery's files."""

    path: Path
    export: str
    month: str
    execution: str
    keys: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "_Manifest":
        """Return a manifest of Data Exports (CUR 2.0, FOCUS) or of CUR before 2.0. Raises BadInput for other files."""
        try:
            content = parse_json(read_text(path, LARGEST_CONFIG))
            is_legacy = "reportKeys" in content
            export, execution = (content[key] for key in _OF_REPORTS[is_legacy][:2])
            keys = content[_OF_REPORTS[is_legacy][2]]
            if not all(isinstance(text, str) for text in (export, execution, *keys)) or not isinstance(keys, list):
                raise ValueError("text is expected")
            period = f"/{content['billingPeriod']['start'][:8]}-00000000/" if is_legacy else ""
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path} is not the manifest of a bill ({type(error).__name__}: {error}): download it again"
            raise BadInput([text]) from error
        months = [month for text in (period, *keys, path.as_posix()) if (month := _month(text))]
        return cls(path, export, months[0] if months else "", execution, tuple(keys))

    @property
    def rank(self) -> tuple[bool, str]:
        """The order of the manifests of one export and month: a larger rank is newer.

        A manifest whose path does not name its delivery ranks highest: it is AWS's pointer to the newest delivery. The
        others are in the order of the times in folder names.
        """
        is_pointer = not any(self.execution in part for part in self.path.parts)
        stamps = [stamp[1] for text in (*self.keys, self.path.as_posix()) if (stamp := _STAMP.search(text))]
        return is_pointer, max(map(_without_signs, stamps), default="")

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the path in `names` of each file of the delivery, by S3 key; empty if the file is not here.

        If a copy of an export has kept AWS's folders, the manifest and the files are below one folder, and from the
        folder of the month on, the path of a file is the same as its key. In any other copy, a file must be next to its
        manifest.
        """
        own = self.path.resolve().as_posix()
        month = _MONTH.search(own)
        root = own[: month.start()].removesuffix("/metadata") if month else self.path.resolve().parent.as_posix()
        paths = dict[str, str]()
        for key in self.keys:
            name, month = key.rpartition("/")[2], _MONTH.search(key)
            tail = key[month.start() :] if month else f"/{name}"
            sibling = f"{own.rpartition('/')[0]}/{name}"
            fitting = (each for each in names if each.startswith(f"{root}/") and each.endswith(tail))
            paths[key] = next(fitting, sibling if sibling in names else "")
        return paths


_OF_REPORTS = {False: ("exportArn", "executionId", "dataFiles"), True: ("reportId", "assemblyId", "reportKeys")}
"""Keys of the export, the delivery and the files in a manifest of Data Exports, and in one of CUR before 2.0 (True)."""


def _newest(manifests: Collection[_Manifest]) -> Collection[_Manifest]:
    """Return the newest manifest of each export and month, or several if their order is unknown."""
    best = dict[tuple[str, str], tuple[bool, str]]()
    for manifest in manifests:
        place = manifest.export, manifest.month
        best[place] = max(manifest.rank, best.get(place, manifest.rank))
    newest = [each for each in manifests if each.rank == best[each.export, each.month]]
    return {(each.export, each.month, each.execution): each for each in newest}.values()  # one of identical copies


def _place(name: str) -> tuple[str, str, str]:
    """Return the export, the month and the delivery that a file belongs to, according to the folders in its path."""
    delivery = _STAMP.search(name) or _ASSEMBLY.search(name)
    export = _ENDING.sub("", _PART.sub("", _ASSEMBLY.sub("", _STAMP.sub("", _MONTH.sub("", name)))))
    return export, _month(name), delivery[1] if delivery else ""


def _month(path: str) -> str:
    year, month = filter(None, match.groups()) if (match := _MONTH.search(path)) else ("", "")
    return f"{year}-{int(month):02}" if month else ""


def _without_signs(stamp: str) -> str:
    return re.sub("[-:.]", "", stamp)


def _short(key: str) -> str:
    """Return the folder and the name of a file, which a user can look for."""
    return "/".join(key.split("/")[-2:])


def _skipped(names: Collection[str]) -> Iterator[str]:
    """Yield the names of missing numbered files, up to the last one that is here."""
    numbered = {int(part[1]): name for name in names if (part := _PART.search(name))}
    for number in range(1, max(numbered, default=0)):
        if number not in numbered:
            yield _short(_PART.sub(f"-{number:05}", numbered[max(numbered)]))


def _read(path: Path) -> tuple["pd.DataFrame", set[str], datetime | None]:
    """Return the lines of a file that belong to our jobs or are discounts without a job, its months, and its end.

    The months are those of all lines in the file. The end is when its last hourly or daily line ends, or None.
    """
    import pandas as pd
    from pyarrow import parquet

    try:
        if path.suffix.lower() == ".parquet":
            columns = _columns(path, parquet.read_schema(path).names)
            frame = pd.read_parquet(path, columns=list(columns))
        else:
            columns = _columns(path, list(pd.read_csv(path, nrows=0).columns))
            frame = pd.read_csv(path, usecols=list(columns), dtype=str)
        frame = frame.rename(columns=columns).reindex(columns=[*_COLUMNS])
        texts = ["resource", "type", "currency"]
        frame[texts] = frame[texts].astype("string").fillna("")
        for column in ("start", "end", "month"):
            frame[column] = pd.to_datetime(frame[column], utc=True, errors="coerce", format="mixed")
        is_usage = frame["type"].str.contains("Usage") & (frame["end"] - frame["start"] <= timedelta(days=1))
        end = frame.loc[is_usage, "end"].max()
        months = {*frame["month"].dropna().dt.strftime("%Y-%m")}
        frame = frame[frame["type"].str.contains(_CHARGES) & frame["resource"].str.contains(_OURS, case=False)]
        frame = frame[frame["resource"].ne("") | frame["type"].str.endswith("Discount")].copy()
        frame[_NUMBERS] = frame[_NUMBERS].replace("", None).astype(float)
    except (OSError, ValueError) as error:  # the errors of pyarrow and pandas are ValueErrors
        text = f"{path} cannot be read as a bill ({first_line(error)}): download or export it again"
        raise BadInput([text]) from error
    if others := set(frame.loc[frame["resource"] != "", "currency"]) - {"", "USD"}:
        raise BadInput([f"{path}: the currency must be USD, got {', '.join(others)}: costs are recorded in dollars"])
    jobs = frame["resource"].str.extract(r":training-job/(.*)$", expand=False).fillna("").str.lower()
    return frame.assign(job=jobs), months, None if pd.isna(end) else end.to_pydatetime()


def _columns(path: Path, names: list[str]) -> Mapping[str, str]:
    is_focus = "BilledCost" in names
    table = {columns[is_focus]: short for short, columns in _COLUMNS.items() if columns[is_focus]}
    known = {name if is_focus else _plain(name): name for name in names}
    missing = [name for name, short in table.items() if name not in known and short in _NEEDED]
    if missing:
        text = f"{path}: no column {', '.join(missing)}: create a Data Export of CUR 2.0 or FOCUS, with resource IDs"
        raise BadInput([f"{text} (Billing console, Data Exports)"])
    return {known[name]: short for name, short in table.items() if name in known}


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("/", "_").lower()


def _effective(lines: "pd.DataFrame") -> "pd.Series[float]":
    """Return what each line costs with Savings Plans, reservations and private rates; NaN if the bill does not show it.

    The net costs of a job already include its discounts. If a bill has discounts that name no job, the effective
    dollars of jobs without net costs in the same month are unknown.
    """
    is_discount = lines["type"].str.endswith("Discount")
    is_net = lines["net_usd"].fillna(0.0).ne(0.0).groupby(lines["job"]).transform("any")
    usd = lines["net_usd"].where(is_net).fillna(lines["billed_usd"].mask(is_discount & is_net, 0.0))
    usd = usd.mask(lines["month"].isin(lines.loc[lines["job"] == "", "month"]) & ~is_net)
    for kind in _COVERED:
        covered_usd = lines[f"net {kind}"].replace(0.0, math.nan).fillna(lines[kind].mask(is_net))
        is_known = covered_usd.ne(0.0) | lines["billed_usd"].eq(0.0)
        usd = usd.mask(lines["type"] == kind, covered_usd.where(is_known))
    return lines["effective_usd"].fillna(usd)
