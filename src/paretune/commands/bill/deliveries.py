"""The files of a bill, and the delivery that each belongs to: each month of an account counts from one delivery.

An export delivers a month as parts NAME-00001.csv.gz, NAME-00002.csv.gz, ... in one folder: it overwrites the folder of
the month each time, or creates a folder below it whose name begins with the time. Ids do not show whether two
deliveries hold the same line: they are not "consistent between different Cost and Usage Reports" (AWS Data Exports
user guide, table dictionary of CUR 2.0, identity_line_item_id).
"""

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import files_below

SUFFIXES = (".parquet", ".csv", ".gz")
_MONTH_FOLDER = re.compile(r"(?P<month>.*/BILLING_PERIOD=[^/]+)/(?P<name>\d{4}-?\d\d-?\d\dT[^/]*)/")
"""A folder of one delivery below the folder of its month."""
_PERIOD = re.compile(r"/BILLING_PERIOD=(\d{4}-\d\d)/")
_PART = re.compile(r"(?P<name>.*)-(?P<number>\d{5})$")
_MOST_FAULTS = 5
_MOST_FILES = 50_000  # of a bill: five years of an export that keeps every daily delivery of 27 parts

Scope = tuple[str, str]  # payer account and usage account of lines; empty if the bill does not have them


@dataclass(frozen=True, kw_only=True)
class BillFile:
    """A file, the delivery that it belongs to, and the month of its folder, such as 2026-11; empty if it has none."""

    path: Path
    delivery: str
    month: str


def bill_files(bill: Path, address: str = "") -> tuple[list[BillFile], list[str]]:
    """Return the files of a bill by name, without deliveries that a newer one replaces, and those deliveries.

    `address` is the URI that `bill` was fetched from; empty for a bill that was on this disk.

    Raises:
        BadInput: no file can be part of a bill, or there are so many files that it must be another folder.
    """
    if bill.is_file():
        paths = [bill]
    elif bill.is_dir():
        below = files_below(bill, _MOST_FILES)
        if below is None:
            raise BadInput([f"bill {bill} holds more than {_MOST_FILES:,} files: name the folder `data` of an export"])
        paths = [path for path in below if path.suffix.lower() in SUFFIXES]
    else:
        raise BadInput([f"bill must be a file or folder of a Cost and Usage Report, or s3://..., got {bill}: no such"])
    if not paths:
        raise BadInput(
            [f"bill {bill} has no file that ends in {', '.join(SUFFIXES)}: name the folder `data` of an export"]
        )
    root = (address or os.path.abspath(bill)).rstrip("/")
    names = {path: root if path == bill else f"{root}/{path.relative_to(bill).as_posix()}" for path in paths}
    current, replaced = _newest(names)
    files = _in_deliveries({path: names[path] for path in current}, f"{root}/")
    return files, [name.removeprefix(f"{root}/") for name in replaced]


def _newest(names: dict[Path, str]) -> tuple[list[Path], list[str]]:
    """Return the files that are in no older delivery of their month, and the folders of the older deliveries."""
    deliveries = {path: match for path, name in names.items() if (match := _MONTH_FOLDER.match(name))}
    newest: dict[str, str] = {}
    for match in deliveries.values():
        newest[match["month"]] = max(
            newest.get(match["month"], ""), match["name"], key=lambda name: re.sub("[-:.]", "", name)
        )
    older = {path: match for path, match in deliveries.items() if match["name"] != newest[match["month"]]}
    return [path for path in names if path not in older], sorted({match[0].rstrip("/") for match in older.values()})


def _in_deliveries(names: dict[Path, str], root: str) -> list[BillFile]:
    """Return the files with their deliveries; parts of a delivery share folder and name and differ in their number."""
    parts = {path: _split(name.removeprefix(root)) for path, name in names.items()}
    numbers = Counter((name, number) for name, number, _ in parts.values())
    doubled = {name for (name, number), count in numbers.items() if number and count > 1}  # .parquet and .csv.gz
    return [
        BillFile(
            path=path,
            delivery=f"{name}{suffixes}" if not number or name in doubled else f"{name}-*",
            month=next(iter(_PERIOD.findall(names[path])), ""),
        )
        for path, (name, number, suffixes) in parts.items()
    ]


def _split(name: str) -> tuple[str, str, str]:
    """Split a file's name into folder and name without number, the number (may be empty), and the suffixes."""
    folder, slash, file = name.rpartition("/")
    match = re.search(r"(\.snappy)?\.parquet$|(\.csv)?\.gz$|\.csv$", file, re.IGNORECASE)
    suffixes = match[0] if match else ""
    part = _PART.match(file.removesuffix(suffixes))
    stem, number = (part["name"], part["number"]) if part else (file.removesuffix(suffixes), "")
    return f"{folder}{slash}{stem}", number, suffixes


@dataclass
class MonthScopes:
    """Months and accounts of which each delivery has lines that no other file has."""

    _months: dict[str, dict[str, set[Scope]]] = field(default_factory=dict)

    def add(self, delivery: str, scopes: Iterable[tuple[str, Scope]]) -> None:
        """Note that a delivery has lines of these months and accounts."""
        for month, scope in scopes:
            self._months.setdefault(month, {}).setdefault(delivery, set()).add(scope)

    def refuse_doubled(self) -> None:
        """Raise BadInput if two deliveries have lines of one month of one account: it is unknown which one counts."""
        faults = [
            f"the bill has {month} twice, in {first} and in {second}: give a bill with one delivery of each month "
            "(parts of one delivery lie in one folder and have the names that AWS gives them: NAME-00001.csv.gz, ...)"
            for month, deliveries in sorted(self._months.items())
            for first, second in combinations(deliveries, 2)
            if _overlap(deliveries[first], deliveries[second])
        ]
        refuse(faults[:_MOST_FAULTS])


def _overlap(first: set[Scope], second: set[Scope]) -> bool:
    """Whether two deliveries may share an account; an account that is not in the bill may be any."""
    if all(map(all, first | second)):
        return not first.isdisjoint(second)
    return any(
        all(not a or not b or a == b for a, b in zip(scope, other, strict=True)) for scope in first for other in second
    )
