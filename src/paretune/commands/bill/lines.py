"""The lines of AWS's bill that belong to training jobs: Data Exports of CUR 2.0 or FOCUS 1.x, as Parquet or CSV.

Columns: AWS Data Exports user guide, table dictionaries of "Cost and Usage Report (CUR) 2.0" and "FOCUS 1.0 with AWS
columns" (read 2026-11-22).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

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
    "line_item_usage_type": "usage",
    "line_item_usage_amount": "amount",
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
    "ConsumedQuantity": "amount",
    "ChargePeriodEnd": "end",
    "BillingCurrency": "currency",
    "x_UsageType": "usage",
}
_OPTIONAL = {"net_usd", "plan_usd", "reserved_usd", "id", "interval", "usage", "currency", "amount"}
_NUMBERS = ("billed_usd", "effective_usd", "amount", "net_usd", "plan_usd", "reserved_usd")
_COVERED = {"SavingsPlanCoveredUsage": "plan_usd", "DiscountedUsage": "reserved_usd"}
_CHARGES = r"Usage|Discount$"  # types of lines that a job costs; not tax, credits, refunds, fees and negations of plans
_HOURS = r"Train\w*[:-](?:\w+:)?ml\."  # usage types of instance hours, such as USE1-Train:ml.m5.large
_DELIVERY = re.compile(r"(.*/BILLING_PERIOD=[^/]+)/(\d{4}-?\d\d-?\d\dT[^/]*)/")


@dataclass(frozen=True)
class Bill:
    """Lines of training jobs, with columns job, billed_usd, effective_usd and hours, and the end of its last line."""

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
    if "id" in lines:  # the same line in two files
        known = lines["id"].notna()
        lines = lines[~(known & lines.duplicated(["id", "interval", "type", "job"]))]
    until = max((each for each in untils if each is not None), default=None)
    return Bill(lines, until)


def _files(path: Path) -> list[Path]:
    below = [path] if path.is_file() else files_below(path, _MOST_FILES)
    if below is None:
        raise BadInput([f"bill {path} holds more than {_MOST_FILES:,} files: name the folder `data` of an export"])
    files = [each for each in below if each.suffix.lower() in SUFFIXES]
    if not files:
        raise BadInput([f"bill {path} has no file that ends in {', '.join(SUFFIXES)}: name the folder of an export"])
    deliveries = {each: match for each in files if (match := _DELIVERY.match(each.as_posix()))}
    newest: dict[str, str] = {}
    for match in deliveries.values():
        newest[match[1]] = max(newest.get(match[1], ""), match[2], key=lambda name: re.sub("[-:.]", "", name))
    return [each for each in files if each not in deliveries or deliveries[each][2] == newest[deliveries[each][1]]]


def _read(path: Path) -> tuple[pd.DataFrame, datetime | None]:
    """The lines of training jobs in one file, and the end of its last line of any service."""
    try:
        is_parquet = path.suffix.lower() == ".parquet"
        names = parquet.read_schema(path).names if is_parquet else list(pd.read_csv(path, nrows=0))
        columns = _columns(path, names)
        if is_parquet:
            frame = pd.read_parquet(path, columns=list(columns))
        else:
            frame = pd.read_csv(path, usecols=list(columns), dtype=str)
    except (OSError, ValueError, UnicodeDecodeError) as error:  # pyarrow's and pandas' are ValueErrors
        text = f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"
        raise BadInput([text]) from error
    frame = frame.rename(columns=columns)
    ends = pd.to_datetime(frame["end"], utc=True, errors="coerce", format="mixed").dropna()
    until = None if ends.empty else ends.max().to_pydatetime()
    frame = frame[frame["resource"].astype("string").str.contains(":training-job/", na=False)].copy()
    others = set(frame.get("currency", pd.Series(dtype=str)).dropna()) - {"", "USD"}
    if others:
        raise BadInput([f"{path}: the currency must be USD, got {', '.join(others)}: costs are recorded in dollars"])
    for name in {*_NUMBERS} & {*frame}:
        numbers = pd.to_numeric(frame[name].astype("string").replace("", pd.NA), errors="coerce")
        if (numbers.isna() & frame[name].astype("string").fillna("").str.strip().ne("")).any():
            raise BadInput([f"{path}: a cell of {name} is no number: export the bill again"])
        frame[name] = numbers.astype(float)
    frame["job"] = frame["resource"].astype("string").str.replace(r"^.*:training-job/", "", regex=True).str.lower()
    frame = frame[frame["type"].astype("string").str.contains(_CHARGES, na=False)]
    if "effective_usd" not in frame:
        frame["effective_usd"] = _effective(frame)
    is_hours = frame.get("usage", pd.Series("", frame.index)).astype("string").str.contains(_HOURS, na=False)
    frame["hours"] = frame.get("amount", pd.Series(0.0, frame.index)).where(is_hours, 0.0)
    keep = ["job", "type", "billed_usd", "effective_usd", "hours", *({"id", "interval"} & {*frame})]
    return frame[keep], until


def _columns(path: Path, names: list[str]) -> Mapping[str, str]:
    """The columns to read, and what they are called here."""
    table = _FOCUS if "BilledCost" in names else _CUR
    missing = [name for name, short in table.items() if name not in names and short not in _OPTIONAL]
    if missing:
        text = f"{path}: {', '.join(missing)} missing: make a Data Export of CUR 2.0 or FOCUS, with resource IDs"
        raise BadInput([f"{text} (Billing console, Data Exports)"])
    return {name: short for name, short in table.items() if name in names}


def _effective(frame: pd.DataFrame) -> pd.Series:
    """What a line of CUR costs with Savings Plans, reservations and private rates; NaN where the bill lacks it."""
    net = frame.get("net_usd", pd.Series(float("nan"), frame.index))
    usd = net.fillna(frame["billed_usd"]) if net.fillna(0.0).any() else frame["billed_usd"]
    for kind, column in _COVERED.items():
        paid = frame.get(column, pd.Series(float("nan"), frame.index))
        usd = usd.mask(frame["type"] == kind, paid.where(paid.ne(0.0) | frame["billed_usd"].eq(0.0)))
    return usd
