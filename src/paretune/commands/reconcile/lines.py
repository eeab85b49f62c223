"""The lines of AWS's bill that belong to training jobs: Data Exports of CUR 2.0 or FOCUS 1.x, as Parquet or CSV.

Columns: AWS Data Exports user guide, table dictionaries of "Cost and Usage Report (CUR) 2.0" and "FOCUS 1.0 with AWS
columns" (read 2026-11-22).
"""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pyarrow import parquet

from paretune.core.errors import BadInput, first_line
from paretune.core.untrusted import files_below

SUFFIXES = (".parquet", ".csv", ".gz")
_MOST_FILES = 50_000
_CUR = {
    "line_item_resource_id": "resource",
    "line_item_unblended_cost": "billed_usd",
    "line_item_line_item_type": "type",
    "line_item_usage_end_date": "end",
    "line_item_currency_code": "currency",
    "line_item_net_unblended_cost": "net_usd",
    "savings_plan_savings_plan_effective_cost": "plan_usd",
    "reservation_effective_cost": "reserved_usd",
    "identity_line_item_id": "id",
    "identity_time_interval": "interval",
}
_FOCUS = {
    "ResourceId": "resource",
    "BilledCost": "billed_usd",
    "EffectiveCost": "effective_usd",
    "ChargeCategory": "type",
    "ChargePeriodEnd": "end",
    "BillingCurrency": "currency",
}
_OPTIONAL = {"net_usd", "plan_usd", "reserved_usd", "id", "interval", "currency"}
_NUMBERS = ["billed_usd", "effective_usd", "net_usd", "plan_usd", "reserved_usd"]
_COVERED = {"SavingsPlanCoveredUsage": "plan_usd", "DiscountedUsage": "reserved_usd"}
_CHARGES = r"Usage|Discount$"  # types of lines that a job costs; not tax, credits, refunds, fees and negations of plans
_DELIVERY = re.compile(r"(.*/BILLING_PERIOD=[^/]+)/(\d{4}-?\d\d-?\d\dT[^/]*)/")


class Bill(NamedTuple):
    """Lines of training jobs, with columns job, billed_usd and effective_usd, and the end of its last line."""

    lines: pd.DataFrame
    until: datetime | None


def read_bill(path: Path) -> Bill:
    """Read a file, or all files of a folder; of an export that creates new files, the newest delivery of a month.

    Raises:
        BadInput: no file is a bill, a column is missing, or the currency is not USD.
    """
    files = _files(path)
    frames, untils = zip(*map(_read, files), strict=True)
    lines = pd.concat(frames, ignore_index=True)
    lines = lines[lines["id"].isna() | ~lines.duplicated(["id", "interval", "type", "job"])]  # a line in two files
    until = max((each for each in untils if each is not None), default=None)
    return Bill(lines, until)


def _files(path: Path) -> list[Path]:
    below = [path] if path.is_file() else files_below(path, _MOST_FILES)
    if below is None:
        raise BadInput([f"bill {path} holds more than {_MOST_FILES:,} files: name the folder `data` of an export"])
    files = [each for each in below if each.suffix.lower() in SUFFIXES]
    if not files:
        raise BadInput([f"bill {path} has no file that ends in {', '.join(SUFFIXES)}: name the folder of an export"])
    newest: dict[str, str] = {}  # month to delivery
    deliveries = [(each, (match := _DELIVERY.match(each.as_posix())) and match.groups()) for each in files]
    for month, delivery in filter(None, (delivery for _, delivery in deliveries)):
        newest[month] = max(newest.get(month, ""), delivery, key=lambda name: re.sub("[-:.]", "", name))
    return [each for each, delivery in deliveries if delivery is None or newest[delivery[0]] == delivery[1]]


def _read(path: Path) -> tuple[pd.DataFrame, datetime | None]:
    """The lines of training jobs in one file, and the end of its last line of any service."""
    try:
        if path.suffix.lower() == ".parquet":
            columns = _columns(path, parquet.read_schema(path).names)
            frame = pd.read_parquet(path, columns=list(columns))
        else:
            columns = _columns(path, list(pd.read_csv(path, nrows=0)))
            frame = pd.read_csv(path, usecols=list(columns), dtype=str)
        frame = frame.rename(columns=columns).reindex(columns=dict.fromkeys([*_CUR.values(), *_FOCUS.values()]))
        texts = ["resource", "type", "currency"]
        frame[texts] = frame[texts].astype("string").fillna("")
        ends = pd.to_datetime(frame["end"], utc=True, errors="coerce", format="mixed").dropna()
        frame = frame[frame["resource"].str.contains(":training-job/")].copy()
        frame[_NUMBERS] = frame[_NUMBERS].replace("", None).astype(float)
    except (OSError, ValueError) as error:  # pyarrow's and pandas' are ValueErrors
        text = f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"
        raise BadInput([text]) from error
    if others := set(frame["currency"]) - {"", "USD"}:
        raise BadInput([f"{path}: the currency must be USD, got {', '.join(others)}: costs are recorded in dollars"])
    frame = frame[frame["type"].str.contains(_CHARGES)]
    frame["job"] = frame["resource"].str.replace(r"^.*:training-job/", "", regex=True).str.lower()
    frame["effective_usd"] = frame["effective_usd"] if "BilledCost" in columns else _effective(frame)
    until = None if ends.empty else ends.max().to_pydatetime()
    return frame[["job", "type", "billed_usd", "effective_usd", "id", "interval"]], until


def _columns(path: Path, names: list[str]) -> Mapping[str, str]:
    """The columns to read, and what they are called here."""
    table = _FOCUS if "BilledCost" in names else _CUR
    missing = [name for name, short in table.items() if name not in names and short not in _OPTIONAL]
    if missing:
        text = f"{path}: {', '.join(missing)} missing: make a Data Export of CUR 2.0 or FOCUS, with resource IDs"
        raise BadInput([f"{text} (Billing console, Data Exports)"])
    return {name: short for name, short in table.items() if name in names}


def _effective(frame: pd.DataFrame) -> pd.Series:
    """Dollars of each line of CUR with Savings Plans, reservations and private rates; NaN where the bill lacks it."""
    usd = frame["net_usd"].fillna(frame["billed_usd"]) if frame["net_usd"].any() else frame["billed_usd"]
    for kind, column in _COVERED.items():
        covered_usd = frame[column].where(frame[column].ne(0.0) | frame["billed_usd"].eq(0.0))
        usd = usd.mask(frame["type"] == kind, covered_usd)
    return usd
