"""The user's cache of prices read from AWS: one CSV per region, with the first and the last day of each price."""

import contextlib
import csv
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.pricing.prices import COLUMNS, Price, cache_folder, read_file


@dataclass(frozen=True, kw_only=True)
class Change:
    """A changed price of an instance type: the cached one and the one just read."""

    instance_type: str
    old_usd_per_hour: float
    new_usd_per_hour: float

    @property
    def share(self) -> float:
        """The relative change: -0.33 after a cut by a third; 0 if the old price is 0."""
        old = self.old_usd_per_hour
        return (self.new_usd_per_hour - old) / old if old else 0.0


def changes(before: Mapping[str, Price], read: Sequence[Price]) -> list[Change]:
    """Price changes from `before` to `read`, sorted by instance type; types without an earlier price are left out."""
    return [
        Change(instance_type=now.instance_type, old_usd_per_hour=old.usd_per_hour, new_usd_per_hour=now.usd_per_hour)
        for now in sorted(read, key=attrgetter("instance_type"))
        if (old := before.get(now.instance_type)) is not None and old.usd_per_hour != now.usd_per_hour
    ]


def store(environment: Mapping[str, str], region: str, read: Sequence[Price]) -> Path:
    """Add today's prices, at most one per type, to the cache of a region, and return the path of its file.

    The file is replaced atomically, so that a process that is killed meanwhile leaves the old one. For each price the
    rows of the first and the last day are kept, so that the price of any day in between is known.

    Raises:
        BadInput: there is no folder for a cache, or the file cannot be read or written.
    """
    folder = cache_folder(environment)
    if folder is None:
        raise BadInput(["HOME or XDG_CACHE_HOME must be set: the price cache is a folder below it"])
    path = folder / f"{region}.csv"
    cached = read_file(path, is_users=False) if path.exists() else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(path, with_new(cached, read))
    except OSError as error:
        raise BadInput([f"{path} cannot be written ({error.strerror}): free disk space or allow it"]) from error
    return path


def with_new(cached: Sequence[Price], read: Sequence[Price]) -> list[Price]:
    """The rows of a cache after `read` was added, sorted by type and date."""
    by_type: dict[str, list[Price]] = {}
    for row in sorted(cached, key=lambda row: row.since):
        by_type.setdefault(row.instance_type, []).append(row)
    for row in read:
        rows = [earlier for earlier in by_type.get(row.instance_type, []) if earlier.as_of != row.as_of]
        is_third = [earlier.usd_per_hour for earlier in rows[-2:]] == [row.usd_per_hour] * 2
        by_type[row.instance_type] = [*(rows[:-1] if is_third else rows), row]
    return [row for name in sorted(by_type) for row in by_type[name]]


def _replace(path: Path, rows: Sequence[Price]) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
    cells = attrgetter("instance_type", "region", "usd_per_hour", "as_of", "source", "confidence")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([(*COLUMNS, "confidence"), *map(cells, rows)])
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
