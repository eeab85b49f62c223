"""The command `reconcile`: compares AWS's bill with recorded costs, and records `billed_usd` and `effective_usd`.

This module matches runs with the lines of a bill, and finds what the bill lacks. `bill` reads the bill.
"""

import math
import os
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from paretune.commands.command import command_of
from paretune.commands.reconcile.bill import SUFFIXES, AwsBill, months_between, read_bill
from paretune.core.clock import SystemClock
from paretune.core.reading import at_home, exists
from paretune.core.result import CommandOutput, Row, as_json, csv_text, rows_of
from paretune.core.secrets import markdown
from paretune.presentation.text import usd
from paretune.specification import metrics
from paretune.specification.declaration import Parameters, Rules, parameter, rules_of
from paretune.specification.inputs import IN_S3
from paretune.specification.order import job_of
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd

    from paretune.tracking.store import Tracking

_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_OPEN_STATES = ("Running", "Stopping")
_LATE = timedelta(days=2)  # time from a job's end until a bill has all its lines; AWS updates bills at least once a day
_MOST = 20  # limit of runs that are listed
_WHOLE_BEFORE = "a bill that is complete for these runs was read before, so its figures stay"
_TWICE = "two exports or deliveries have it, and it is unknown whether they overlap: name the file or folder of one"
_NO_COST = "one of its lines on the bill has no cost: export the bill again"
_NO_MANIFEST = (
    "numbered files came without their manifest, so it is unknown whether the last ones are missing: name the folder "
    "that has both, such as the export's folder with data/ and metadata/"
)
COLUMNS = ["run_id", "job", "cost_usd", "billed_usd", "effective_usd", "difference_usd", "complete", "remark"]


class ReconcileRequest(Parameters):
    """The bill to read."""

    bill: str = parameter("")
    """export of CUR (2.0 or legacy) or FOCUS, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/"""

    rules: ClassVar[Rules] = rules_of(
        {
            "bill is missing: name an export of CUR 2.0 or FOCUS, such as --bill cur.parquet": lambda request: (
                not request.bill.strip()
            ),
            "bill must be an export of CUR 2.0 or FOCUS, a file, a folder, or s3://BUCKET/PREFIX/, got '{bill}': it "
            "does not exist": lambda request: (
                request.bill.strip() and not (request.bill.startswith(IN_S3) or exists(request.bill.strip()))
            ),
        }
    )


def run_reconcile(request: ReconcileRequest) -> CommandOutput:
    """Record the billed dollars of each run, and keep the table in the command's own run."""
    from paretune.tracking.store import Tracking

    environment = dict(os.environ)
    bill = read_bill(_on_disk(request.bill, environment))
    tracking = Tracking(environment, SystemClock())
    runs = [run for run in tracking.runs(_BILLED_RUNS) if run.instance_type.startswith("ml.")]
    table = reconciled(bill, runs)
    written, remarks = _record(table, {run.run_id: run for run in runs}, tracking), _remarks(table, bill)
    files, note = {"reconcile.csv": csv_text(COLUMNS, rows_of(table))}, markdown("\n\n".join(remarks))
    run_id, open_command = tracking.keep("reconcile", note, files, {"bill": request.bill})
    largest = table.drop(columns="job").sort_values("difference_usd", key=abs, ascending=False)[:_MOST]
    rows = largest.to_string(index=False, na_rep="", float_format="{:.4f}".format) if len(table) else ""
    listed = "\n".join(f"- {remark}" for remark in remarks)
    return CommandOutput(
        text=f"{rows}\n\n{listed}\n\nreconcile.csv is in run {run_id}: {open_command}",
        document={
            "run_id": run_id,
            "rows": as_json(table.to_dict("records")),
            "covered_until": max(bill.until.values()).isoformat() if bill.until else None,
            "recorded": written,
            "remarks": remarks,
            "open_command": open_command,
        },
    )


def reconciled(bill: AwsBill, runs: list[RecordedRun]) -> "pd.DataFrame":
    """Return a table with the runs that are or should be on the bill, then the billed jobs without a run."""
    import pandas as pd

    def whole(usd: "pd.Series[float]") -> float:  # the sum, or NaN if any of them is NaN
        return float(usd.sum(skipna=False))

    lines = bill.lines.assign(run_key=bill.lines["job"].map(job_of))
    sums = lines.groupby("run_key").agg({"billed_usd": whole, "effective_usd": whole, "export": set, "is_twice": "any"})
    jobs = sums.to_dict("index")  # run_key to its sums
    keys = {run.run_id: job_of(run.tags[schema.JOB_NAME]) for run in runs}
    # If a launcher was killed before it created its job, its run may have the name of another run's job.
    owners = {keys[run.run_id]: run for run in sorted(runs, key=lambda run: run.has_job)}
    runs = [run for run in runs if run is owners[keys[run.run_id]]]
    rows = list[Row]()
    for run in runs:
        key = keys[run.run_id]
        billed = {str(name): value for name, value in jobs.get(key, {}).items()}
        is_twice = billed.pop("is_twice", False)
        begin, end = _time(run)
        remark = _missing(run, end, bill, billed.pop("export", bill.months.keys()))
        months = months_between(begin, end)
        if not billed and remark and not bill.skips(months):  # the job is not expected on this bill
            continue
        holes = bill.holes(months)
        if not billed:
            remark = remark or "; ".join(["the bill has no line for it", *holes])
        elif math.isnan(billed["billed_usd"]):
            remark = _TWICE if is_twice else _NO_COST
        elif holes and not remark:
            remark = "; ".join(holes)
        elif not remark and math.isnan(billed["effective_usd"]):
            remark = "the bill lacks its effective cost: export all net and effective costs of CUR 2.0, or FOCUS"
        if billed and remark and run.tags.get(schema.BILL) == schema.BILL_COMPLETE:
            remark = _WHOLE_BEFORE
        row = {"run_id": run.run_id, "job": run.tags[schema.JOB_NAME], "cost_usd": run.cost_usd}
        rows.append(row | billed | {"complete": not remark, "remark": remark})
    strangers = lines[~lines["run_key"].isin(keys.values())]
    for name, billed_usd in strangers.groupby("job")["billed_usd"].agg(whole).items():
        stranger = {"run_id": "", "job": name, "billed_usd": billed_usd}
        rows.append({**stranger, "complete": False, "remark": "it has no run here"})
    numbers = ["cost_usd", "billed_usd", "effective_usd"]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(numbers, float))
    return table.assign(difference_usd=table["billed_usd"] - table["cost_usd"])


def _time(run: RecordedRun) -> tuple[datetime, datetime]:
    """Return when a run started, which is before its job started, and when its job and warm pool ended."""
    end = datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=run.warm_pool_seconds)
    return datetime.fromtimestamp(run.started, UTC), end


def _missing(run: RecordedRun, end: datetime, bill: AwsBill, exports: Collection[str]) -> str:
    """Return why these exports may lack costs of a run, or an empty string if they have all costs of the run."""
    is_kept = run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT
    if run.state in _OPEN_STATES or is_kept or not run.ended_at:
        return "the job, or its warm pool, has not ended"
    until = max((bill.until[export] for export in exports if export in bill.until), default=None)
    if until is None:
        return "the bill has no hourly or daily lines"
    if until < end + _LATE:
        ends = f"the bill ends at {until:%Y-%m-%d %H:%M} (UTC)"
        return f"{ends}, less than {_LATE.days} days after the job or its warm pool ended, {end:%Y-%m-%d %H:%M}"
    there = {month for export in exports for month in bill.months[export]}
    absent = [month for month in months_between(_time(run)[0], end) if month not in there]
    return f"the bill lacks {', '.join(absent)}" if absent else ""


def _record(table: "pd.DataFrame", runs: Mapping[str, RecordedRun], tracking: "Tracking") -> int:
    """Write new figures to their runs, and return how many runs were written.

    If this bill is not complete for a run, the figures of an earlier complete bill stay.
    """
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
        with tracked.later():  # sends all of it in one request
            tracked.log_metrics(figures)
            tracked.set_tags({schema.BILL: state})
        tracked.flush()
        written += not tracked.has_gap
    return written


def _remarks(table: "pd.DataFrame", bill: AwsBill) -> list[str]:
    usual = "billed_usd is before tax, credits, fees and discounts of the account"
    texts = [f"{usual}; effective_usd includes Savings Plans, reservations and private rates"]
    on_bill = table[(table["run_id"] != "") & table["billed_usd"].notna()]
    if len(on_bill):
        total, complete = on_bill["difference_usd"].sum(), int(on_bill["complete"].sum())
        texts.append(
            f"billed minus recorded: {usd(round(total, 6) or 0.0)}, {len(on_bill)} runs on the bill, "
            f"{complete} complete"
        )
    texts += bill.holes()
    texts += [_NO_MANIFEST] if bill.without_manifest else []
    for remark, group in table[table["remark"] != ""].groupby("remark"):
        names = group["run_id"].where(group["run_id"] != "", group["job"])
        texts.append(f"{remark}: {', '.join(names[:_MOST])}{' and more' if len(names) > _MOST else ''}")
    return texts


def _on_disk(bill: str, environment: Mapping[str, str]) -> Path:
    """Return the path of the bill, fetched from S3 if needed. Raises BadInput if it cannot be fetched."""
    if not bill.startswith(IN_S3):
        return at_home(bill)
    from paretune.jobs.workplace import Workplaces
    from paretune.launchers.sagemaker.storage import fetch, s3_client

    workplaces = Workplaces.of_process()
    folder, check = workplaces.home / "bills", workplaces.interruption.check
    return fetch(s3_client(None, environment), "bill", bill, folder, suffixes=SUFFIXES, check=check)


RECONCILE = command_of(ReconcileRequest, run_reconcile)
