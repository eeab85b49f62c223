"""The tables in which the books of studies are kept, beside Optuna's own, and what stands in their lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Float, Index, Integer, MetaData, Row, String, Table, Text

METADATA = MetaData()
STUDIES = Table(
    "paretune_studies",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("run_id", String(64), nullable=False),  # of MLflow; empty until it is open
    Column("mark", String(64), nullable=False),  # by which that run is found when its driver died in between
    Column("described", Text, nullable=False),
)
ENTRIES = Table(
    "paretune_ledger",
    METADATA,
    Column("study", String(255), primary_key=True),
    Column("trial", Integer, primary_key=True),
    Column("identity", String(255), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("worst_usd", Float),
    Column("booked_usd", Float),
    Column("spent_usd", Float),
    Column("place", Integer),
    Column("counts", Integer, nullable=False),  # towards the most trials: 0 or 1
    Column("settled", Integer, nullable=False),  # its outcome is known, the same job need not run again: 0 or 1
    Column("owner", String(255), nullable=False),
    Column("parameters", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("ended", Text),
    Index("paretune_ledger_identity", "study", "identity"),
    Index("paretune_ledger_place", "study", "place"),
)
DRIVERS = Table(
    "paretune_drivers",
    METADATA,
    Column("study", String(255), primary_key=True),
    Column("owner", String(255), primary_key=True),
    Column("seen", Float, nullable=False),  # seconds since the epoch
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the books.

    Attributes:
        trial: its number.
        identity: of what its job computes.
        parameters: of its job, as text.
        note: what the driver wants to know of it later.
        run_id: its MLflow run; empty until that has been opened.
        worst_usd: dollars promised; None where the price is unknown.
        booked_usd: dollars paid; None while it runs, or where the price is unknown.
        ended: how it ended; None while it runs.
        place: from 1, in the order of booking; None while it runs.
        spent_usd: dollars that the study had paid when it was booked, its own among them; None while it runs.
        owner: the process that is at work on it.
    """

    trial: int
    identity: str
    parameters: Mapping[str, str]
    note: Mapping[str, Any]
    run_id: str
    worst_usd: float | None
    booked_usd: float | None
    ended: Mapping[str, Any] | None
    place: int | None
    spent_usd: float | None
    owner: str


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Dollars of a study: paid, and promised to what still runs."""

    spent_usd: float
    committed_usd: float


def entry_of(row: Row[Any]) -> Entry:
    """A line, from its row."""
    texts = {"parameters": json.loads(row.parameters), "note": json.loads(row.note)}
    names = ("trial", "identity", "run_id", "worst_usd", "booked_usd", "place", "spent_usd", "owner")
    plain = {name: getattr(row, name) for name in names}
    return Entry(**plain, **texts, ended=None if row.ended is None else json.loads(row.ended))
