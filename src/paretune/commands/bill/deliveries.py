"""The files of a bill, and the delivery that each is a part of: a month of an account counts from one delivery.

An export delivers a month as parts NAME-00001.csv.gz, NAME-00002.csv.gz, ... in one folder: again and again in that of
the month (overwriting), or each time in a folder below it whose name begins with the time (creating new files).
Ids do not tell whether two deliveries hold the same line: they are not "consistent between different Cost and Usage
Reports" (AWS Data Exports user guide, table dictionary of CUR 2.0, identity_line_item_id).
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import files_below

SUFFIXES = (".parquet", ".csv", ".gz")
_MONTH = re.compile(r"(?P<month>.*/BILLING_PERIOD=[^/]+)/(?P<name>\d{4}-?\d\d-?\d\dT[^/]*)/")
"""A folder of one delivery below the folder of its month."""
_PERIOD = re.compile(r"/BILLING_PERIOD=(\d{4}-\d\d)/")
_PART = re.compile(r"(?P<name>.*)-(?P<number>\d{5})$")
_MOST = 5  # faults that are told
_MOST_FILES = 50_000  # of a bill: five years of an export that keeps every daily delivery of 27 parts

Scope = tuple[str, str]
"""Payer account and usage account of lines; empty where the bill does not say."""


@dataclass(frozen=True, kw_only=True)
class BillFile:
    """A file, the delivery that it is a part of, and the month that its folder names, such as 2026-11, or nothing."""

    path: Path
    delivery: str
    month: str


def bill_files(place: Path, address: str = "") -> tuple[list[BillFile], list[str]]:
    """The files of a bill by name, without those of deliveries that a newer one replaces, and these deliveries.

    `address` is the URI that `place` has been fetched from; empty for a bill that lies on this disk.

    Raises:
        BadInput: there is no file that may be one of a bill, or so many files that it is another folder.
    """
    if place.is_file():
        found = [place]
    elif place.is_dir():
        below = files_below(place, _MOST_FILES)
        if below is None:
            raise BadInput([f"bill {place} holds more than {_MOST_FILES:,} files: name the folder `data` of an export"])
        found = [path for path in below if path.suffix.lower() in SUFFIXES]
    else:
        raise BadInput([f"bill must be a file or folder of a Cost and Usage Report, or s3://..., got {place}: no such"])
    if not found:
        raise BadInput(
            [f"bill {place} has no file that ends in {', '.join(SUFFIXES)}: name the folder `data` of an export"]
        )
    root = (address or os.path.abspath(place)).rstrip("/")
    names = {path: root if path == place else f"{root}/{path.relative_to(place).as_posix()}" for path in found}
    kept, old = _newest(names)
    files = _in_deliveries({path: names[path] for path in kept}, f"{root}/")
    return files, [name.removeprefix(f"{root}/") for name in old]


def _newest(names: dict[Path, str]) -> tuple[list[Path], list[str]]:
    """The files that are in no older delivery of their month, and the folders of the older ones."""
    of_path = {path: _MONTH.match(name) for path, name in names.items()}
    newest: dict[str, str] = {}
    for found in filter(None, of_path.values()):
        newest[found["month"]] = max(newest.get(found["month"], ""), found["name"], key=_by_time)
    old = {path: one for path, one in of_path.items() if one and one["name"] != newest[one["month"]]}
    return [path for path in names if path not in old], sorted({one[0].rstrip("/") for one in old.values()})


def _by_time(name: str) -> str:
    return re.sub("[-:.]", "", name)


def _in_deliveries(names: dict[Path, str], root: str) -> list[BillFile]:
    """The files with their deliveries: parts of one have one name and different numbers in one folder."""
    split = {path: _split(name.removeprefix(root)) for path, name in names.items()}
    numbers = Counter((name, number) for name, number, _ in split.values())
    twice = {name for (name, number), count in numbers.items() if number and count > 1}  # such as .parquet and .csv.gz
    return [
        BillFile(
            path=path,
            delivery=f"{name}{suffixes}" if not number or name in twice else f"{name}-*",
            month=next(iter(_PERIOD.findall(names[path])), ""),
        )
        for path, (name, number, suffixes) in split.items()
    ]


def _split(name: str) -> tuple[str, str, str]:
    """Folder and name without its number, the number or nothing, and the endings."""
    folder, slash, file = name.rpartition("/")
    endings = re.search(r"(\.snappy)?\.parquet$|(\.csv)?\.gz$|\.csv$", file, re.IGNORECASE)
    suffixes = endings[0] if endings else ""
    part = _PART.match(file.removesuffix(suffixes))
    stem, number = (part["name"], part["number"]) if part else (file.removesuffix(suffixes), "")
    return f"{folder}{slash}{stem}", number, suffixes


@dataclass
class Claims:
    """Of which months and accounts the deliveries have lines that no other file has."""

    _months: dict[str, dict[str, set[Scope]]] = field(default_factory=dict)

    def add(self, delivery: str, found: Iterable[tuple[str, Scope]]) -> None:
        """A delivery has lines of these months and accounts."""
        for month, scope in found:
            self._months.setdefault(month, {}).setdefault(delivery, set()).add(scope)

    def refuse_doubled(self) -> None:
        """Raise BadInput where two deliveries have lines of one month of one account: which counts is not known."""
        faults = [
            f"the bill has {month} twice, in {one} and in {other}: give a bill with one delivery of each month "
            "(parts of one delivery lie in one folder and have the names that AWS gives them: NAME-00001.csv.gz, ...)"
            for month, deliveries in sorted(self._months.items())
            for one, other in combinations(deliveries, 2)
            if _overlap(deliveries[one], deliveries[other])
        ]
        refuse(faults[:_MOST])


def _overlap(ours: set[Scope], theirs: set[Scope]) -> bool:
    if all(map(all, ours | theirs)):
        return not ours.isdisjoint(theirs)
    return any(_is_same(one, other) for one in ours for other in theirs)


def _is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two scopes may be one; an account that is not told may be any."""
    return all(not ours or not theirs or ours == theirs for ours, theirs in zip(one, other, strict=True))
