"""The command `reconcile`: AWS's bill beside the recorded costs; `billed_usd` and `effective_usd` of every run.

A bill is an export of CUR, 2.0 or before, or of FOCUS 1.x, as Parquet or CSV. Columns and folders: AWS Data Exports
user guide, table dictionaries of "CUR 2.0" and "FOCUS 1.2 with AWS columns", "Line item details" (read 2026-11-26).
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
from paretune.launchers.base import JOB_PREFIX, job_of
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.specification.parameters import Parameters, Rules, parameter, rules_of
from paretune.tracking import schema
from paretune.tracking.recorded_job import RecordedJob, RecordedRun

if TYPE_CHECKING:
    import pandas as pd

    from paretune.tracking.store import Tracking

_SUFFIXES = (".parquet", ".csv", ".gz")
_COVERED = ("SavingsPlanCoveredUsage", "DiscountedUsage")  # types of lines, and what these cost in effect
_COLUMNS = {  # name here to those of CUR and FOCUS
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
_CHARGES = r"Usage|Discount$"  # types of lines that a job costs; not tax, credits, refunds, fees and negations of plans
_OURS = f"^$|:training-job/{JOB_PREFIX}"  # resources: none, or a job of paretune
_MONTH = re.compile(r"/(BILLING_PERIOD=[^/]+|\d{8}-\d{8}|year=\d+/month=\d+)(?=/)")  # a folder for each month
_DELIVERY = re.compile(r"/(\d{4}-?\d\d-?\d\dT[^/]*|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})(?=/)")  # and one in it
_PART = re.compile(r"(-\d{5})?(\.snappy)?(\.parquet|\.csv)?(\.gz)?$")  # ends the name of each file of a delivery
_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_OPEN_STATES = ("Running", "Stopping")
_LATE = timedelta(days=2)  # after which SageMaker's lines are there: AWS updates bills at least once a day
_MOST = 20  # runs that are listed
_WHOLE_BEFORE = "a bill that is complete for these runs was read before, so its figures stay"
_TWICE = "two exports or deliveries have it, and nothing tells whether they overlap: name the file or folder of one"
COLUMNS = ["run_id", "job", "cost_usd", "billed_usd", "effective_usd", "difference_usd", "complete", "remark"]


class ReconcileRequest(Parameters):
    """The bill to read."""

    bill: str = parameter("")
    """export of CUR 2.0 or FOCUS, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/"""

    rules: ClassVar[Rules] = rules_of(
        {
            "bill must be an export of CUR 2.0 or FOCUS, a file, a folder, or s3://BUCKET/PREFIX/, got '{bill}': there "
            "is none": lambda request: not (request.bill.startswith(IN_S3) or exists(request.bill.strip()))
        }
    )


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
    dearest = table.drop(columns="job").sort_values("difference_usd", key=abs, ascending=False)[:_MOST]
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

    def whole(usd: "pd.Series") -> float:  # NaN if one of them is
        return float(usd.sum(skipna=False))

    lines = bill.lines.assign(run_key=bill.lines["job"].map(job_of))
    jobs = lines.groupby("run_key").agg({"billed_usd": whole, "effective_usd": whole, "until": "max"})
    keys = {run.run_id: job_of(run.tags[schema.JOB_NAME]) for run in runs}
    rows = list[dict[str, Any]]()
    for run in runs:
        key = keys[run.run_id]
        billed: dict[str, Any] = jobs.loc[key].to_dict() if key in jobs.index else {}
        remark = _missing(run, billed.pop("until", bill.until))
        if not billed and remark:  # nobody expects it on the bill yet
            continue
        if not billed:
            remark = "the bill has no line of it"
        elif math.isnan(billed["billed_usd"]):
            remark = _TWICE
        elif not remark and math.isnan(billed["effective_usd"]):
            remark = "the bill lacks its effective cost: export all net and effective costs of CUR 2.0, or FOCUS"
        if billed and remark and run.tags.get(schema.BILL) == schema.BILL_COMPLETE:
            remark = _WHOLE_BEFORE
        row = {"run_id": run.run_id, "job": run.tags[schema.JOB_NAME], "cost_usd": RecordedJob(run).cost_usd}
        rows.append(row | billed | {"complete": not remark, "remark": remark})
    strangers = lines[~lines["run_key"].isin(keys.values())]
    for name, usd in strangers.groupby("job")["billed_usd"].agg(whole).items():
        rows.append({"run_id": "", "job": name, "billed_usd": usd, "complete": False, "remark": "it has no run here"})
    numbers = ["cost_usd", "billed_usd", "effective_usd"]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(numbers, float))
    return table.assign(difference_usd=table["billed_usd"] - table["cost_usd"])


def _missing(run: RecordedRun, until: datetime | None) -> str:
    """Why a bill that ends at `until` does not have all of a run yet; an empty text if it has."""
    job = RecordedJob(run)
    is_kept = run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT
    if job.state in _OPEN_STATES or is_kept or not run.ended_at:
        return "the job, or its warm pool, has not ended"
    end = datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=job.warm_pool_seconds)
    if until is not None and until >= end + _LATE:
        return ""
    ends = "has no hourly or daily lines" if until is None else f"ends at {until:%Y-%m-%d %H:%M} (UTC)"
    return f"the bill {ends}, less than {_LATE.days} days after the job, {end:%Y-%m-%d %H:%M}"


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
    texts = ["billed_usd is before tax, credits, fees and an account's discounts; effective_usd with plans and rates"]
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
    """Lines of jobs: job, billed_usd (NaN if two exports have it), effective_usd; and the end of an export's usage."""

    lines: "pd.DataFrame"
    until: datetime | None


def read_bill(path: Path) -> AwsBill:
    """Read a file, or all files of a folder; of an export that creates new files, the newest delivery of a month.

    Raises BadInput if no file is a bill, a column is missing, or the currency is not USD.
    """
    import pandas as pd

    frames, ends = [], dict[str, list[datetime]]()
    for file, (export, month, delivery) in _files(path).items():
        lines, end = _read(file)
        frames.append(lines.assign(export=export, source=f"{month} {delivery} {export}"))
        ends.setdefault(export, []).extend(end)
    lines = pd.concat(frames, ignore_index=True)
    is_copy = lines.duplicated(["id", "start", "type", "job", "billed_usd"]) & lines["id"].notna()
    lines = lines[~is_copy]
    lines["until"] = lines["export"].map({export: max(each) for export, each in ends.items() if each})
    lines = lines.assign(effective_usd=_effective(lines))[lines["job"] != ""]
    is_twice = lines.groupby(["job", "month"], dropna=False)["source"].transform("nunique") > 1
    lines["billed_usd"] = lines["billed_usd"].mask(is_twice)
    return AwsBill(lines, max((end for each in ends.values() for end in each), default=None))


def _files(path: Path) -> dict[Path, tuple[str, str, str]]:
    """The files of a bill, each with the path of its export, its month and its delivery, as their folders tell them."""
    files = dict[Path, tuple[str, str, str]]()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and file.suffix.lower() in _SUFFIXES:
            name = file.resolve().as_posix()
            month, delivery = _MONTH.search(name), _DELIVERY.search(name)
            export = _PART.sub("", _DELIVERY.sub("", _MONTH.sub("", name)))
            files[file] = export, month[1] if month else "", delivery[1] if delivery else ""
    if not files:
        raise BadInput([f"bill {path} has no file that ends in {', '.join(_SUFFIXES)}: name the folder of an export"])
    stamps = [(re.sub("[-:.]", "", place[2]), place) for place in files.values() if "T" in place[2]]
    newest = {place[:2]: place for _, place in sorted(stamps)}
    return {file: place for file, place in files.items() if "T" not in place[2] or newest[place[:2]] == place}


def _read(path: Path) -> tuple["pd.DataFrame", list[datetime]]:
    """The lines of our jobs and of discounts without a job in one file, and the end of usage of any service, if any."""
    import pandas as pd
    from pyarrow import parquet

    try:
        if path.suffix.lower() == ".parquet":
            columns = _columns(path, parquet.read_schema(path).names)
            frame = pd.read_parquet(path, columns=list(columns))
        else:
            columns = _columns(path, list(pd.read_csv(path, nrows=0)))
            frame = pd.read_csv(path, usecols=list(columns), dtype=str)
        frame = frame.rename(columns=columns).reindex(columns=[*_COLUMNS])
        texts = ["resource", "type", "currency"]
        frame[texts] = frame[texts].astype("string").fillna("")
        for column in ("start", "end", "month"):
            frame[column] = pd.to_datetime(frame[column], utc=True, errors="coerce", format="mixed")
        is_usage = frame["type"].str.contains("Usage") & (frame["end"] - frame["start"] <= timedelta(days=1))
        end = frame.loc[is_usage, "end"].max()
        frame = frame[frame["type"].str.contains(_CHARGES) & frame["resource"].str.contains(_OURS, case=False)]
        frame = frame[frame["resource"].ne("") | frame["type"].str.endswith("Discount")].copy()
        frame[_NUMBERS] = frame[_NUMBERS].replace("", None).astype(float)
    except (OSError, ValueError) as error:  # pyarrow's and pandas' are ValueErrors
        text = f"{path} cannot be read as a bill ({first_line(error)}): fetch or export it again"
        raise BadInput([text]) from error
    if others := set(frame.loc[frame["resource"] != "", "currency"]) - {"", "USD"}:
        raise BadInput([f"{path}: the currency must be USD, got {', '.join(others)}: costs are recorded in dollars"])
    jobs = frame["resource"].str.extract(r":training-job/(.*)$", expand=False).fillna("").str.lower()
    return frame.assign(job=jobs), [] if pd.isna(end) else [end.to_pydatetime()]


def _columns(path: Path, names: list[str]) -> Mapping[str, str]:
    is_focus = "BilledCost" in names
    table = {columns[is_focus]: short for short, columns in _COLUMNS.items() if columns[is_focus]}
    known = {name if is_focus else _plain(name): name for name in names}
    missing = [name for name, short in table.items() if name not in known and short in _NEEDED]
    if missing:
        text = f"{path}: {', '.join(missing)} missing: make a Data Export of CUR 2.0 or FOCUS, with resource IDs"
        raise BadInput([f"{text} (Billing console, Data Exports)"])
    return {known[name]: short for name, short in table.items() if name in known}


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("/", "_").lower()


def _effective(lines: "pd.DataFrame") -> "pd.Series":
    """Dollars of each line with Savings Plans, reservations and private rates; NaN where the bill lacks it.

    The net costs of a job have its discounts already. Without them, discounts that name no job are in no line of it.
    """
    is_discount = lines["type"].str.endswith("Discount")
    is_net = lines["net_usd"].fillna(0.0).ne(0.0).groupby(lines["job"]).transform("any")
    usd = lines["net_usd"].where(is_net).fillna(lines["billed_usd"].mask(is_discount & is_net, 0.0))
    usd = usd.mask(lines["month"].isin(lines.loc[lines["job"] == "", "month"]) & ~is_net)
    for kind in _COVERED:
        covered_usd = lines[f"net {kind}"].replace(0.0, math.nan).fillna(lines[kind].mask(is_net))
        is_told = covered_usd.ne(0.0) | lines["billed_usd"].eq(0.0)
        usd = usd.mask(lines["type"] == kind, covered_usd.where(is_told))
    return lines["effective_usd"].fillna(usd)


RECONCILE = command_of(ReconcileRequest, run_reconcile)
