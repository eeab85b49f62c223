"""The command `reconcile`: AWS's bill beside the recorded costs; `billed_usd` and `effective_usd` of every run.

A bill is a Data Export of CUR 2.0 or FOCUS 1.x, as Parquet or CSV. Columns: AWS Data Exports user guide, table
dictionaries of "Cost and Usage Report (CUR) 2.0" and "FOCUS 1.0 with AWS columns" (read 2026-11-22).
"""

import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from paretune.commands.command import command_of
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, first_line
from paretune.core.result import CommandOutput, as_json
from paretune.core.untrusted import at_home, exists, markdown
from paretune.launchers.base import parse_job_name
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.specification.parameters import Fault, Parameters, Rules, parameter
from paretune.tracking import schema
from paretune.tracking.recorded_job import RecordedJob, RecordedRun

if TYPE_CHECKING:
    import pandas as pd

    from paretune.tracking.store import Tracking

_SUFFIXES = (".parquet", ".csv", ".gz")
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
_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_OPEN_STATES = ("Running", "Stopping")
_LATE = timedelta(days=2)  # after which SageMaker's lines are there: AWS updates bills at least once a day
_MOST = 20  # runs that are listed
_WHOLE_BEFORE = "a bill that is complete for these runs was read before, so its figures stay"
_FORMS = "a file, a folder, or s3://BUCKET/PREFIX/"
COLUMNS = ["run_id", "job", "cost_usd", "billed_usd", "effective_usd", "difference_usd", "complete", "remark"]


class ReconcileRequest(Parameters):
    """The bill to read."""

    bill: str = parameter("")
    """export of CUR 2.0 or FOCUS, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/"""

    listed_by: ClassVar[str] = "reconcile"
    rules: ClassVar[Rules] = (lambda request: _faults(request.bill),)


def _faults(bill: str) -> list[Fault]:
    if bill.startswith(IN_S3) or (bill.strip() and exists(bill)):
        return []
    return [Fault(("bill",), f"bill must be an export of CUR 2.0 or FOCUS, {_FORMS}, got {bill!r}: there is none")]


def run_reconcile(request: ReconcileRequest) -> CommandOutput:
    """Record what each run was billed; the table is kept with the command's own run."""
    from paretune.tracking.store import Tracking

    environment = dict(os.environ)
    bill = read_bill(_on_disk(request.bill, environment))
    tracking = Tracking(environment, SystemClock())
    runs = [run for run in tracking.runs(_BILLED_RUNS) if RecordedJob(run).instance_type.startswith("ml.")]
    table = reconciled(bill, runs)
    written, remarks = _record(table, {run.run_id: run for run in runs}, tracking), _remarks(table)
    files, note = {"reconcile.csv": table.to_csv(index=False)}, markdown("\n\n".join(remarks))
    run_id, open_command = tracking.keep("reconcile", note, files, {"bill": request.bill})
    dearest = table[COLUMNS].drop(columns="job").sort_values("difference_usd", key=abs, ascending=False)[:_MOST]
    rows = dearest.to_string(index=False, na_rep="", float_format="{:.4f}".format) if len(table) else ""
    listed = "\n".join(f"- {remark}" for remark in remarks)
    return CommandOutput(
        text=f"{rows}\n\n{listed}\n\nreconcile.csv is in run {run_id}: {open_command}",
        document={
            "run_id": run_id,
            "rows": as_json(table.to_dict("records")),
            "covered_until": None if bill.until is None else bill.until.isoformat(),
            "recorded": written,
            "remarks": remarks,
            "open_command": open_command,
        },
    )


def reconciled(bill: "AwsBill", runs: list[RecordedRun]) -> "pd.DataFrame":
    """A row for each run on the bill or that should be there, then for each job that no run tells of."""
    import pandas as pd

    lines = bill.lines.assign(run_id=[(parse_job_name(name) or ("",))[0] for name in bill.lines["job"]])
    jobs = lines.groupby("run_id").agg(
        billed_usd=("billed_usd", "sum"),
        effective_usd=("effective_usd", lambda usd: usd.sum(skipna=False)),
    )
    rows = list[dict[str, Any]]()
    for run in runs:
        billed: dict[str, Any] = jobs.loc[run.run_id].to_dict() if run.run_id in jobs.index else {}
        remark = _missing(run, bill)
        if not billed and remark:  # nobody expects it on the bill yet
            continue
        if not billed:
            remark = "the bill has no line of it"
        elif not remark and math.isnan(billed["effective_usd"]):
            remark = "the bill lacks the effective cost of hours of a Savings Plan or reservation"
        if billed and remark and run.tags.get(schema.BILL) == schema.BILL_COMPLETE:
            remark = _WHOLE_BEFORE
        row = {"run_id": run.run_id, "job": run.tags[schema.JOB_NAME], "cost_usd": RecordedJob(run).cost_usd}
        rows.append(row | billed | {"complete": not remark, "remark": remark})
    strangers = lines[~lines["run_id"].isin([run.run_id for run in runs]) & (lines["run_id"] != "")]
    for name, usd in strangers.groupby("job")["billed_usd"].sum().items():
        rows.append({"run_id": "", "job": name, "billed_usd": usd, "complete": False, "remark": "it has no run here"})
    numbers = ["cost_usd", "billed_usd", "effective_usd"]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(numbers, float))
    return table.assign(difference_usd=table["billed_usd"] - table["cost_usd"])


def _missing(run: RecordedRun, bill: "AwsBill") -> str:
    """Why the bill does not have all of a run yet; an empty text if it has."""
    job = RecordedJob(run)
    is_kept = run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT
    if job.state in _OPEN_STATES or is_kept or not run.ended_at:
        return "the job, or its warm pool, has not ended"
    end = datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=job.warm_pool_seconds)
    if bill.until is not None and bill.until >= end + _LATE:
        return ""
    until = "nowhere" if bill.until is None else f"{bill.until:%Y-%m-%d %H:%M}"
    return f"the bill ends at {until} (UTC), less than {_LATE.days} days after the job, {end:%Y-%m-%d %H:%M}"


def _record(table: "pd.DataFrame", runs: Mapping[str, RecordedRun], tracking: "Tracking") -> int:
    """Write to the runs what is new, and return the number of these runs; figures from a whole bill stay."""
    is_new = (table["run_id"] != "") & table["billed_usd"].notna() & (table["remark"] != _WHOLE_BEFORE)
    written = 0
    for row in table[is_new].to_dict("records"):
        run = runs[row["run_id"]]
        values = {metrics.BILLED_USD: row["billed_usd"], metrics.EFFECTIVE_USD: row["effective_usd"]}
        figures = {name: value for name, value in values.items() if not math.isnan(value)}
        state = schema.BILL_COMPLETE if row["complete"] else f"not complete yet: {row['remark']}"
        if run.tags.get(schema.BILL) == state and figures.items() <= run.metrics.items():
            continue
        tracked = tracking.run(run.run_id)
        with tracked.later():  # one request for all
            tracked.log_metrics(figures)
            tracked.set_tags({schema.BILL: state})
        tracked.flush()
        written += not tracked.has_gap
    return written


def _remarks(table: "pd.DataFrame") -> list[str]:
    texts = ["billed_usd is before tax, credits, refunds and fees of plans; effective_usd with plans and private rates"]
    on_bill = table[(table["run_id"] != "") & table["billed_usd"].notna()]
    if len(on_bill):
        total, complete = on_bill["difference_usd"].sum(), int(on_bill["complete"].sum())
        texts.append(f"billed minus recorded: {total:+.4f} USD, {len(on_bill)} runs on the bill, {complete} complete")
    for remark, group in table[table["remark"] != ""].groupby("remark"):
        names = group["run_id"].where(group["run_id"] != "", group["job"])
        texts.append(f"{remark}: {', '.join(names[:_MOST])}{' and more' if len(names) > _MOST else ''}")
    return texts


def _on_disk(bill: str, environment: Mapping[str, str]) -> Path:
    """The path of the bill; one in S3 is fetched first, unless it is here. Raises BadInput if it cannot be."""
    if not bill.startswith(IN_S3):
        return at_home(bill)
    from paretune.jobs.workplace import Workplaces
    from paretune.launchers.sagemaker.storage import fetch, s3_client

    workplaces = Workplaces.of_process()
    folder, check = workplaces.home / "bills", workplaces.interruption.check
    return fetch(s3_client(None, environment), "bill", bill, folder, suffixes=_SUFFIXES, check=check)


class AwsBill(NamedTuple):
    """Lines of training jobs, with columns job, billed_usd and effective_usd, and the end of its last line."""

    lines: "pd.DataFrame"
    until: datetime | None


def read_bill(path: Path) -> AwsBill:
    """Read a file, or all files of a folder; of an export that creates new files, the newest delivery of a month.

    Raises:
        BadInput: no file is a bill, a column is missing, or the currency is not USD.
    """
    import pandas as pd

    frames, ends = zip(*map(_read, _files(path)), strict=True)
    lines = pd.concat(frames, ignore_index=True)
    lines = lines[lines["id"].isna() | ~lines.duplicated(["id", "interval", "type", "job"])]  # a line in two files
    return AwsBill(lines, max(filter(None, ends), default=None))


def _files(path: Path) -> list[Path]:
    below = [path] if path.is_file() else sorted(path.rglob("*"))
    files = [each for each in below if each.is_file() and each.suffix.lower() in _SUFFIXES]
    if not files:
        raise BadInput([f"bill {path} has no file that ends in {', '.join(_SUFFIXES)}: name the folder of an export"])
    deliveries = {each: match.groups() for each in files if (match := _DELIVERY.match(each.as_posix()))}
    in_order = sorted(deliveries.values(), key=lambda names: re.sub("[-:.]", "", names[1]))
    newest = {month: (month, delivery) for month, delivery in in_order}
    return [each for each in files if each not in deliveries or deliveries[each] in newest.values()]


def _read(path: Path) -> tuple["pd.DataFrame", datetime | None]:
    """The lines of training jobs in one file, and the end of its last line of any service."""
    import pandas as pd
    from pyarrow import parquet

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


def _effective(frame: "pd.DataFrame") -> "pd.Series":
    """Dollars of each line of CUR with Savings Plans, reservations and private rates; NaN where the bill lacks it."""
    usd = frame["net_usd"].fillna(frame["billed_usd"]) if frame["net_usd"].any() else frame["billed_usd"]
    for kind, column in _COVERED.items():
        covered_usd = frame[column].where(frame[column].ne(0.0) | frame["billed_usd"].eq(0.0))
        usd = usd.mask(frame["type"] == kind, covered_usd)
    return usd


COMMAND = command_of(ReconcileRequest, run_reconcile)
