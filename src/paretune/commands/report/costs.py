"""view=runs: every run with its cost, also on other terms, and totals of dollars."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import pandas as pd

from paretune.commands.report import TOTAL_KEYS, ReportRequest
from paretune.commands.report.document import ALL, Report, Section
from paretune.commands.report.jobs import ESTIMATED, dates, frame_of, records
from paretune.core import pareto
from paretune.core.result import Row
from paretune.presentation.text import dollars, plain, texts
from paretune.pricing import PriceList, price_remarks
from paretune.specification import metrics
from paretune.tracking.recorded_job import RecordedJob

NONE = "(none)"
_KIND = ["kind", "dataset"]  # runs that may be compared are equal in these
_PRICE = ("usd_per_hour", "region", "as_of", "source")
_NEW = (*(f"new_price_{name}" for name in _PRICE), "new_cost_usd", "remark")


_STAR = {True: "*", False: ""}.get
_RUNS: dict[str, Any] = {
    "run": ("run_id", lambda run_id: run_id[:8]),
    "date": "date",
    "origin": "origin",
    "state": ("state", lambda state: "" if state == "Completed" else state),
    "instances": "instance_count",
    "instance type": "instance_type",
    "global batch": "global_batch_size",
    "learning rate": ("learning_rate", "g"),
    "F1": ("f1", ".4f"),
    "seconds": ("billable_seconds", ",.0f"),
    "cost USD": ("cost_usd", ".5g"),
    "USD/hour": ("price_usd_per_hour", "g"),
    "region": "price_region",
    "price of": "price_as_of",
    "front": ("on_front", _STAR),
    "new USD/hour": ("new_price_usd_per_hour", "g"),
    "new region": "new_price_region",
    "new price of": "new_price_as_of",
    "new cost USD": ("new_cost_usd", ".5g"),
    "difference": ("difference_usd", lambda usd: f"{round(usd, 6) or 0.0:+.5g}"),
    "new front": ("on_new_front", _STAR),
}
_ROWS = (
    *(column if isinstance(column, str) else column[0] for column in _RUNS.values()),
    *("run_name", "launcher", "dataset", "spot", "price_source", "new_price_source", "remark"),
)
"""Columns of report.csv, before estimates."""
_TOTALS: dict[str, Any] = {
    "origin": "origin",
    "runs": ("jobs", ","),
    "cost (USD)": ("cost_usd", dollars),
    "billed (USD)": ("billed_usd", dollars),
    "of failed jobs (USD)": ("failed_usd", dollars),
    "instance hours": ("instance_hours", lambda hours: plain(hours, 3)),
    "best F1": ("best_f1", ".4f"),
    "runs without a cost": ("without_cost", lambda count: f"{count:,}" if count else ""),
}


def costs_report(request: ReportRequest, jobs: Sequence[RecordedJob], prices: PriceList, today: date) -> Report:
    """A row per run, priced again if asked for, and totals of dollars."""
    frame = frame_of(jobs)
    is_new = bool(request.region or request.on or request.rate != "list")
    new = [new_cost(job, prices, request, today) if is_new else {} for job in jobs]
    rows = frame.assign(learning_rate=frame.rate)
    rows[[*_NEW]] = pd.DataFrame(new, columns=_NEW, dtype=object)
    rows["new_cost_usd"] = rows.new_cost_usd.astype(float)
    rows["difference_usd"] = rows.new_cost_usd - rows.cost_usd
    rows["on_front"], rows["on_new_front"] = _fronts(rows, metrics.COST_USD), _fronts(rows, "new_cost_usd")
    remarks = rows.remark[rows.remark.fillna("") != ""].value_counts(sort=False)
    sums = totals(frame, request.by)
    remarked = [f"{count} run{'s' * (count > 1)}: {remark}" for remark, count in remarks.items()]
    sections = [
        Section(
            "Newest first",
            texts(rows, _RUNS),
            [
                "front *: no other run of its origin and data set is as cheap and as good; "
                "cost = seconds x instances x price",
                *remarked,
            ],
        ),
        *(
            Section(
                f"Recorded dollars, by {by.replace('_', ' ')}", texts(group, {by.replace("_", " "): "key", **_TOTALS})
            )
            for by, group in sums.groupby("by", sort=False)
            if (group.key != NONE).any()
        ),
    ]
    return Report(
        title="Report on recorded runs",
        about=[dates(frame)],
        sections=sections,
        rows=records(rows[[*_ROWS, *ESTIMATED]]),
        totals=records(sums),
    )


def _fronts(frame: pd.DataFrame, cost: str) -> pd.Series:
    marks = pd.Series(None, frame.index, dtype=object)
    for _, points in frame[[*_KIND, cost, metrics.F1]].dropna().groupby(_KIND):
        marks[points.index] = pareto.front(points[[cost, metrics.F1]].to_numpy().tolist(), maximise=(False, True))
    return marks


def new_cost(job: RecordedJob, prices: PriceList, request: ReportRequest, today: date) -> Row:
    """The cost of a job in another region, on another day or as billed, with why it is unknown or in doubt."""
    if not job.instance_type.startswith("ml."):
        return {"new_cost_usd": job.cost_usd, "remark": "local, its notional price is kept"}
    if request.rate == "effective":
        usd = job.effective_usd
        unknown = "no complete bill of it was read, so its effective cost is unknown (`paretune reconcile`)"
        return {"new_cost_usd": usd, "remark": unknown if usd is None else "cost is the effective cost of its bill"}
    kind, region = job.instance_type, request.region or job.region
    if job.billable_seconds is None:
        return {"remark": "no billable seconds are recorded: it cannot be priced again"}
    if not region:
        return {"remark": "no region is recorded: set region"}
    price = prices.price(kind, region, request.on)
    remarks = price_remarks(price, kind, region, request.on or today)
    if price is None and request.on is not None:
        remarks = [f"price of {kind} in {region} on {request.on} or before is not known, so cost is absent"]
    row: Row = {"remark": "; ".join(remarks)}
    if price is not None:
        row["new_cost_usd"] = price.cost_usd(job.billable_seconds + job.warm_pool_seconds, job.instance_count)
        row |= {f"new_price_{name}": getattr(price, name) for name in _PRICE}
    return row


def totals(frame: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """Sums over all jobs, then by each of TOTAL_KEYS, or only by one; origins and notional dollars apart.

    A job with several tags counts for each of them. Sums are NaN if no job has a value: dollars by list prices, those
    on AWS's bill as far as `reconcile` has recorded it, those of failed jobs, and hours times instances. `best_f1` is
    of the completed jobs, on any data. `without_cost` counts jobs whose dollars are unknown.
    """
    seconds = frame.billable_seconds + frame[metrics.WARM_POOL_SECONDS].fillna(0.0)
    frame = frame.assign(
        origin=frame.kind,
        failed_usd=frame.cost_usd.where(frame.state == "Failed"),
        instance_hours=seconds * frame.instance_count.astype(int) / 3600,
        best_f1=frame.f1.where(frame.state == "Completed"),
        without_cost=frame.cost_usd.isna(),
        **{"instance_type": frame.instance_type.replace("", "local"), ALL: ALL},
    )
    sums = ("cost_usd", "billed_usd", "failed_usd", "instance_hours")
    measures: dict[str, Any] = {
        "jobs": ("date", "size"),
        **{name: (name, lambda values: values.sum(min_count=1)) for name in sums},
        "best_f1": ("best_f1", "max"),
        "without_cost": ("without_cost", "sum"),
    }
    tables = []
    for name in (ALL, *([by] if by else TOTAL_KEYS)):
        keyed = frame.assign(by=name, key=frame[name]).explode("key")
        keyed["key"] = keyed.key.fillna("").replace("", NONE)
        tables.append(keyed.groupby(["by", "key", "origin"]).agg(**measures).reset_index())
    return pd.concat(tables, ignore_index=True)
