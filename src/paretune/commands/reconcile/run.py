"""Runs `reconcile`: AWS's bill beside the recorded costs, and `billed_usd` and `effective_usd` of every run."""

import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from paretune.commands.reconcile.command import ReconcileRequest
from paretune.commands.reconcile.lines import SUFFIXES, Bill, read_bill
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, as_json
from paretune.core.untrusted import at_home, markdown
from paretune.jobs.workplace import Workplaces
from paretune.launchers.base import parse_job_name
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.tracking import RecordedJob, RecordedRun, RunStatus, Tracking, schema

_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_OPEN_STATES = ("Running", "Stopping")
_LATE = timedelta(days=2)  # after which SageMaker's lines are there: AWS updates bills at least once a day
_MOST = 20  # runs that are listed
COLUMNS = ["run_id", "job", "cost_usd", "billed_usd", "effective_usd", "difference_usd", "complete", "remark"]


def run_reconcile(request: ReconcileRequest) -> CommandOutput:
    """Record what each run was billed; the table is kept with the command's own run."""
    environment = dict(os.environ)
    bill = read_bill(_on_disk(request.bill, environment))
    tracking = Tracking(environment, SystemClock())
    runs = [run for run in tracking.runs(_BILLED_RUNS) if RecordedJob(run).instance_type.startswith("ml.")]
    table = reconciled(bill, runs)
    kept, written = _record(table, {run.run_id: run for run in runs}, tracking)
    remarks = _remarks(table, kept)
    run = tracking.begin("reconcile")
    run.set_tags({schema.KIND: "reconcile", schema.NOTE: markdown("\n\n".join(remarks))})
    run.log_params({"bill": request.bill})
    run.log_text(table.to_csv(index=False), "reconcile.csv")
    run.end(RunStatus.FINISHED)
    open_command = tracking.open_command(run.run_id)
    shown = table[COLUMNS].drop(columns="job").sort_values("difference_usd", key=abs, ascending=False)[:_MOST]
    lines = [shown.to_string(index=False, na_rep="", float_format="{:.4f}".format)] if len(table) else []
    lines += ["", *(f"- {remark}" for remark in remarks), "", f"reconcile.csv is in run {run.run_id}: {open_command}"]
    return CommandOutput(
        text="\n".join(lines),
        document={
            "run_id": run.run_id,
            "rows": as_json(table.to_dict("records")),
            "covered_until": None if bill.until is None else bill.until.isoformat(),
            "recorded": written,
            "remarks": remarks,
            "open_command": open_command,
        },
    )


def reconciled(bill: Bill, runs: list[RecordedRun]) -> pd.DataFrame:
    """A row for each run on the bill or that should be there, then for each job that no run tells of."""
    lines = bill.lines.assign(run_id=[(parse_job_name(name) or ("",))[0] for name in bill.lines["job"]])
    jobs = lines.groupby("run_id").agg(
        job=("job", lambda names: " ".join(dict.fromkeys(names))),
        billed_usd=("billed_usd", "sum"),
        effective_usd=("effective_usd", lambda usd: usd.sum(skipna=False)),
    )
    rows = list[dict[str, Any]]()
    for run in runs:
        billed: dict[str, Any] = jobs.loc[run.run_id].to_dict() if run.run_id in jobs.index else {}
        remark = _missing(run, bill)
        if not billed and remark:  # nobody expects it on the bill yet
            continue
        if billed and not remark and math.isnan(billed["effective_usd"]):
            remark = "the bill lacks the effective cost of hours of a Savings Plan or reservation"
        row = {"run_id": run.run_id, "job": run.tags[schema.JOB_NAME], "cost_usd": RecordedJob(run).cost_usd}
        is_complete = bool(billed) and not remark
        rows.append(
            row
            | billed
            | {"complete": is_complete, "remark": remark or ("" if billed else "the bill has no line of it")}
        )
    strangers = lines[~lines["run_id"].isin([run.run_id for run in runs]) & (lines["run_id"] != "")]
    for name, usd in strangers.groupby("job")["billed_usd"].sum().items():
        rows.append({"run_id": "", "job": name, "billed_usd": usd, "complete": False, "remark": "it has no run here"})
    table = pd.DataFrame(rows, columns=COLUMNS)
    numbers = ["cost_usd", "billed_usd", "effective_usd"]
    table[numbers] = table[numbers].astype(float)
    return table.assign(difference_usd=table["billed_usd"] - table["cost_usd"])


def _missing(run: RecordedRun, bill: Bill) -> str:
    """Why the bill does not have all of a run yet; an empty text if it has."""
    job = RecordedJob(run)
    is_kept = run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT
    if job.state in _OPEN_STATES or is_kept or not run.ended_at:
        return "the job, or its warm pool, has not ended"
    ended = datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=job.warm_pool_seconds)
    if bill.until is not None and bill.until >= ended + _LATE:
        return ""
    until = "nowhere" if bill.until is None else f"{bill.until:%Y-%m-%d %H:%M}"
    return f"the bill ends at {until} (UTC), less than {_LATE.days} days after the job, {ended:%Y-%m-%d %H:%M}"


def _record(table: pd.DataFrame, runs: Mapping[str, RecordedRun], tracking: Tracking) -> tuple[list[str], int]:
    """Write what is new to the runs; ids of runs whose figures from a whole bill stay, and the number written."""
    kept, written = [], 0
    for row in table[(table["run_id"] != "") & table["billed_usd"].notna()].to_dict("records"):
        run = runs[row["run_id"]]
        if run.tags.get(schema.BILL) == schema.BILL_COMPLETE and not row["complete"]:
            kept.append(run.run_id)
            continue
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
    return kept, written


def _remarks(table: pd.DataFrame, kept: list[str]) -> list[str]:
    texts = ["billed_usd is before tax, credits, refunds and fees of plans; effective_usd with plans and private rates"]
    on_bill = table[(table["run_id"] != "") & table["billed_usd"].notna()]
    if len(on_bill):
        total, complete = on_bill["difference_usd"].sum(), int(on_bill["complete"].sum())
        texts.append(f"billed minus recorded: {total:+.4f} USD, {len(on_bill)} runs on the bill, {complete} complete")
    for remark, group in table[~table["complete"].astype(bool)].groupby("remark"):
        names = group["run_id"].where(group["run_id"] != "", group["job"])
        texts.append(f"{remark}: {', '.join(names[:_MOST])}{' and more' if len(names) > _MOST else ''}")
    if kept:
        texts.append(
            f"a bill that is complete for these runs was read before, so its figures stay: {', '.join(kept[:_MOST])}"
        )
    return texts


def _on_disk(bill: str, environment: Mapping[str, str]) -> Path:
    """The path of the bill; one in S3 is fetched first, unless it is here. Raises BadInput if it cannot be."""
    if not bill.startswith(IN_S3):
        return at_home(bill)
    # Imported here: a bill on this disk needs no boto3.
    from paretune.launchers.sagemaker.storage import fetch, s3_client

    workplaces = Workplaces.of_process()
    folder, check = workplaces.home / "bills", workplaces.interruption.check
    return fetch(s3_client(None, environment), "bill", bill, folder, suffixes=SUFFIXES, check=check)
