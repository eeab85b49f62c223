"""Every run with its cost, also on other terms, totals of dollars, and the errors of estimates."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import moocore
import pandas as pd

from paretune.commands.report.command import TOTAL_KEYS, ReportRequest
from paretune.commands.report.document import Chart, Report, Section, records, scatter, table
from paretune.commands.report.jobs import began, dates, frame_of
from paretune.core.result import value_of
from paretune.jobs.bill import recorded_price
from paretune.presentation.numbers import dollars, plain
from paretune.presentation.table import Table
from paretune.pricing.prices import Price, PriceList, price_remarks
from paretune.specification import metrics
from paretune.tracking import RecordedJob, schema

ALL, NONE = "all runs", "(none)"
_ON_FRONT = "front *: no other run is as cheap and as good; cost = seconds x instances x price"
_APART = "each origin and data set has a front of its own, and so have the notional dollars of local runs"
_TOTALS_APART = "every origin has sums of its own, and so have the notional dollars of local jobs: do not add them up"
_BILL_REMARK = "cost is the effective cost of its bill, storage included"
_NO_BILL = "no complete bill of it was read, so its effective cost is unknown (`paretune reconcile`)"
_PRICE = ("usd_per_hour", "region", "as_of", "source")
_MOST_FRONTS = 4
_ESTIMATES = {
    "seconds": ("billable seconds", metrics.ESTIMATED_SECONDS, metrics.BILLABLE_SECONDS),
    "cost_usd": ("cost, USD", metrics.ESTIMATED_COST_USD, metrics.COST_USD),
    "memory_gib": ("memory per device, GiB", metrics.ESTIMATED_MEMORY_GIB, metrics.PEAK_MEMORY_GIB),
}
"""Quantity to its name, and the metrics that were estimated and measured."""
_RUNS = {
    "run": "run",
    "date": "date",
    "origin": "origin",
    "state": "shown_state",
    "instances": "instance_count",
    "instance type": "instance_type",
    "global batch": "global_batch_size",
    "learning rate": ("learning_rate", "g"),
    "F1": ("f1", ".4f"),
    "seconds": ("billable_seconds", ",.0f"),
    "cost USD": ("cost_usd", ".5g"),
    "USD/hour": ("price_usd_per_hour", "g"),
    "price of": "price_of",
    "front": ("on_front", lambda is_best: "*" if is_best else ""),
    "new seconds": ("new_seconds", ",.0f"),
    "new USD/hour": ("new_price_usd_per_hour", "g"),
    "new price of": "new_price_of",
    "new cost USD": ("new_cost_usd", ".5g"),
    "difference": ("difference_usd", lambda usd: f"{round(usd, 6) or 0.0:+.5g}"),
    "new front": ("on_new_front", lambda is_best: "*" if is_best else ""),
}
_SUMS = {"cost (USD)": "cost_usd", "billed (USD)": "billed_usd", "of failed jobs (USD)": "failed_usd"}
_COUNTS = {"runs without a cost": "without_cost", "runs billed": "billed"}
_TOTALS = {
    "origin": "origin",
    "runs": ("jobs", ","),
    **{header: (name, dollars) for header, name in _SUMS.items()},
    "instance hours": ("instance_hours", lambda hours: plain(hours, 3)),
    "best F1": ("best_f1", ".4f"),
    "first": "first",
    "last": "last",
    **{header: (name, lambda count: f"{count:,}" if count else "") for header, name in _COUNTS.items()},
}


class NewCost(NamedTuple):
    """The cost of a recorded job on other terms; None if it is unknown."""

    usd: float | None = None
    seconds: float | None = None  # per instance
    price: Price | None = None
    remark: str = ""  # why the cost is unknown, or another remark
    unknown_in: str = ""  # region whose price is missing


def costs_report(
    request: ReportRequest, jobs: Sequence[RecordedJob], prices: PriceList, studies: Mapping[str, str], today: date
) -> Report:
    """A row per run, priced again if asked for, totals of dollars, and the errors of estimates.

    `studies` has the name of each study by its run's id, if the jobs do not have it.
    """
    is_new = (request.region, request.on, request.spot_share, request.rate) != (None, None, None, "list")
    costs = [new_cost(job, prices, request) if is_new else NewCost() for job in jobs]
    rows = [_row(job, cost) for job, cost in zip(jobs, costs, strict=True)]
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # runs that may be compared
    for job, row in zip(jobs, rows, strict=True):
        kind = (origin_of(job), job.param("dataset"), job.param("dataset_config_name"))
        kinds.setdefault(kind, []).append(row)
    for column, cost in (("on_front", "cost_usd"), ("on_new_front", "new_cost_usd")):
        for own in kinds.values():
            known = [row for row in own if row["f1"] is not None and row[cost] is not None]
            points = [(row["f1"], row[cost]) for row in known]
            marks = moocore.is_nondominated(points, maximise=(True, False), keep_weakly=True).tolist() if points else []
            for row, is_best in zip(known, marks, strict=True):
                row[column] = is_best
    origins = sorted({job.origin for job in jobs})
    mixes = f"the table mixes {' and '.join(origins)} runs: compare within one origin only"
    sentences = [_ON_FRONT, *([mixes] if len(origins) > 1 else []), *([_APART] if len(kinds) > 1 else [])]
    if is_new:
        sentences += [*_front_changes(rows), *_remarks(jobs, costs, request.on, today)]
    sums = totals(jobs, studies, request.by)
    overall = [row for row in sums if row["by"] == ALL]
    about_sums = [_TOTALS_APART] if len(overall) > 1 else []
    if any(row["best_f1"] is not None for row in overall):
        about_sums.append("best F1 is that of any model and data set of the row")
    charts = [dollars_against_f1(jobs, rows, studies, request)]
    listed = table([{**row, **_shown(row)} for row in rows], _RUNS)
    sections = [
        Section(heading="Runs", tables=[("Newest first", listed)], sentences=sentences, charts=charts),
        Section(heading="Dollars, as they were recorded", tables=total_tables(sums), sentences=about_sums),
        *_errors(jobs),
    ]
    return Report(title="Report on recorded runs", about=[dates(jobs)], sections=sections, rows=rows, totals=sums)


def origin_of(job: RecordedJob) -> str:
    """The origin of a job, and whether its dollars are notional: those of a job on this machine."""
    return job.origin if job.cluster.instance_type.startswith("ml.") else f"{job.origin}, notional dollars"


def _row(job: RecordedJob, new: NewCost) -> dict[str, Any]:
    bill = job.bill
    is_known = new.usd is not None and bill.cost_usd is not None
    row: dict[str, Any] = {
        "run_id": job.run_id,
        "run_name": job.name,
        "date": began(job),
        "origin": job.origin,
        "launcher": job.cluster.launcher,
        "state": job.state,
        "dataset": job.param("dataset"),
        "instance_type": job.cluster.instance_type,
        "instance_count": job.cluster.instance_count,
        "spot": job.param("spot"),
        "global_batch_size": value_of(job.param("global_batch_size")),
        "learning_rate": value_of(job.param("scaled_learning_rate") or job.param("learning_rate")),
        "f1": job.f1,
        "billable_seconds": bill.billable_seconds,
        "cost_usd": bill.cost_usd,
        **{f"price_{name}": getattr(bill, f"price_{name}") for name in _PRICE},
        "on_front": None,
        "new_seconds": new.seconds,
        **{f"new_price_{name}": getattr(new.price, name, None) for name in _PRICE},
        "new_cost_usd": new.usd,
        "difference_usd": (new.usd or 0.0) - (bill.cost_usd or 0.0) if is_known else None,
        "on_new_front": None,
        "remark": new.remark,
    }
    for quantity in _ESTIMATES:
        error = _error(job, quantity)
        row |= {f"estimated_{quantity}": error.get("predicted")}
        row |= {f"estimated_{quantity}_{name}": error.get(name) for name in ("low", "high", "error")}
    return row


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    """Texts of a row that only its table has."""
    prices = {
        f"{new}price_of": " ".join(filter(None, (row[f"{new}price_region"], row[f"{new}price_as_of"])))
        for new in ("", "new_")
    }
    return prices | {"run": row["run_id"][:8], "shown_state": "" if row["state"] == "Completed" else row["state"]}


def new_cost(job: RecordedJob, prices: PriceList, request: ReportRequest) -> NewCost:
    """The cost of a job in another region, on another day, on spot or as billed. The recorded run does not change."""
    if not job.cluster.instance_type.startswith("ml."):
        return NewCost(job.bill.cost_usd, remark="local, its notional price is kept")
    if request.rate == "effective":
        usd = job.bill.effective_usd
        return NewCost(usd, remark=_NO_BILL if usd is None else _BILL_REMARK)
    seconds = job.bill.billable_seconds
    if seconds is None:
        return NewCost(remark="no billable seconds are recorded: it cannot be priced again")
    if request.spot_share is None:
        seconds += job.bill.warm_pool_seconds
    else:
        if job.cluster.is_spot:
            # AWS describes the undiscounted seconds of the last job only; those of earlier attempts are lost.
            if job.bill.training_seconds is None or not job.is_first_attempt:
                return NewCost(remark="a spot run whose training seconds are not recorded: it cannot be priced again")
            seconds = job.bill.training_seconds
        # AWS bills spot as the on-demand price times fewer seconds (DescribeTrainingJob, BillableTimeInSeconds; read
        # 2026-11-20), and keeps no warm pool of spot instances.
        seconds *= request.spot_share
    region = request.region or job.cluster.region
    if request.region is None and request.on is None:
        price, remark, unknown_in = recorded_price(job), "no price is recorded: set region", ""
    elif not region:
        price, remark, unknown_in = None, "no region is recorded: set region", ""
    else:
        price = prices.price(job.cluster.instance_type, region, request.on)
        remark, unknown_in = f"price unknown in {region}", region
    if price is None:
        return NewCost(seconds=seconds, remark=remark, unknown_in=unknown_in)
    return NewCost(price.cost_usd(seconds, job.cluster.instance_count), seconds, price)


def _front_changes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on the runs that join or leave the front of F1 against cost."""
    fates = [(row["run_id"][:8], row["on_front"], row["on_new_front"]) for row in rows]
    changed = {
        "on the front only by the new costs": [name for name, was, now in fates if now and not was],
        "no longer on the front": [name for name, was, now in fates if was and now is False],
        "on the front before, and without a new cost": [name for name, was, now in fates if was and now is None],
    }
    sentences = [f"{change}: {', '.join(names)}" for change, names in changed.items() if names]
    return sentences or ["the front of F1 against cost is the same"]


def _remarks(jobs: Sequence[RecordedJob], costs: Sequence[NewCost], on: date | None, today: date) -> list[str]:
    """Remarks on the new costs, each once."""
    sentences: dict[str, None] = {}  # a set that keeps its order
    for job, cost in zip(jobs, costs, strict=True):
        kind, region = job.cluster.instance_type, cost.unknown_in
        if region and on is not None:
            sentences[f"price of {kind} in {region} on {on} or before is not known, so cost is absent"] = None
        elif region:
            sentences |= dict.fromkeys(price_remarks(None, kind, region, today))
        elif cost.price is not None:
            sentences |= dict.fromkeys(cost.price.remarks(on or today))
    reasons = pd.Series([cost.remark for cost in costs if cost.remark and not cost.unknown_in], dtype=str)
    counts = reasons.value_counts(sort=False).items()
    return [*sentences, *(f"{count} run{'s' * (count > 1)}: {reason}" for reason, count in counts)]


def dollars_against_f1(
    jobs: Sequence[RecordedJob], rows: Sequence[Mapping[str, Any]], studies: Mapping[str, str], request: ReportRequest
) -> Chart | None:
    """Dollars and F1 of all completed runs, a series per key of `by` and origin, with the fronts of the main kinds.

    Dollars are those that were recorded, or with rate=effective those of the bill.
    """
    frame, by = frame_of(jobs), request.by or "instance_type"
    if frame.empty:
        return None
    if request.rate == "effective":
        frame[metrics.COST_USD] = frame.run_id.map({row["run_id"]: row["new_cost_usd"] for row in rows}).astype(float)
    series = {job.run_id: f"{', '.join(keys_of(job, by, studies))}, {origin_of(job)}" for job in jobs}
    frame = frame.assign(series=frame.run_id.map(series))[(frame.cost_usd > 0) & frame.f1.notna()]
    kinds = sorted(frame.groupby(["origin", "is_notional", "model", "dataset", "task"]), key=lambda kind: -len(kind[1]))
    fronts = {
        f"front of {origin}{', notional dollars' * notional}: {model} on {dataset}": runs
        for (origin, notional, model, dataset, _), runs in kinds[:_MOST_FRONTS]
    }
    caption = (
        f"A point per completed run ({len(frame):,}), coloured by {by.replace('_', ' ')} and origin. A dashed line "
    )
    caption += "is the front: no run of its kind is as cheap and as good. Compare within one origin and data set only."
    title = f"Dollars against F1 ({' and '.join(sorted({job.origin for job in jobs}))})"
    return scatter(frame, (metrics.COST_USD, metrics.F1), title=title, caption=caption, fronts=fronts)


def totals(jobs: Sequence[RecordedJob], studies: Mapping[str, str], by: str | None = None) -> list[dict[str, Any]]:
    """Sums over all jobs, then by each of TOTAL_KEYS, or only by one; origins and notional dollars apart.

    A job with several tags counts for each of them. A row has `by`, `key` and `origin`, then `jobs`, the first and last
    day in UTC, and sums, which are None if no job has a value: dollars by list prices of all jobs, those on AWS's bill
    as far as `reconcile` has recorded it (of `billed` jobs), those of failed jobs, and hours times instances. `best_f1`
    is of the completed jobs, on any data. `without_cost` counts jobs whose dollars are unknown.
    """
    frame = pd.DataFrame(
        {
            "origin": origin_of(job),
            "date": began(job),
            "cost_usd": job.bill.cost_usd,
            "billed_usd": job.run.metrics.get(metrics.BILLED_USD),
            "failed_usd": job.bill.cost_usd if job.state == "Failed" else None,
            "seconds": job.bill.billable_seconds,
            "kept": job.bill.warm_pool_seconds,
            "instances": job.cluster.instance_count,
            "best_f1": job.f1 if job.is_completed else None,
        }
        for job in jobs
    )
    numbers = [*_SUMS.values(), "seconds", "best_f1"]
    frame[numbers] = frame[numbers].astype(float)
    frame["instance_hours"] = (frame.seconds + frame.kept) * frame.instances / 3600
    frame["without_cost"], frame["billed"] = frame.cost_usd.isna(), frame.billed_usd.notna()
    measures: dict[str, Any] = {
        "jobs": ("date", "size"),
        "first": ("date", lambda days: min(filter(None, days), default="")),
        "last": ("date", max),
        **{name: (name, lambda values: values.sum(min_count=1)) for name in (*_SUMS.values(), "instance_hours")},
        "best_f1": ("best_f1", "max"),
        **{name: (name, "sum") for name in _COUNTS.values()},
    }
    rows = []
    for name in (ALL, *([by] if by else TOTAL_KEYS)):
        keys = [[ALL] if name == ALL else keys_of(job, name, studies) for job in jobs]
        keyed = frame.assign(by=name, key=keys).explode("key").groupby(["by", "key", "origin"])
        rows += records(keyed.agg(**measures).reset_index())
    return rows


def keys_of(job: RecordedJob, by: str, studies: Mapping[str, str]) -> list[str]:
    """The values of one of TOTAL_KEYS that a job counts for; NONE if it has none."""
    try:
        tags = json.loads(job.param("tags") or "{}")
    except json.JSONDecodeError:
        tags = {}
    tags, recorded = tags if isinstance(tags, dict) else {}, job.run.tags
    keys = {
        "study": [recorded.get(schema.STUDY) or studies.get(job.parent_run_id, "")],
        "month": [began(job, "%Y-%m")],
        "user": [recorded.get(schema.USER, "")],
        "team": [recorded.get(schema.TEAM) or str(tags.get("team", ""))],
        "tag": [f"{name}={value}" for name, value in sorted(tags.items())],
        "instance_type": [job.cluster.instance_type or "local"],
    }[by]
    return [key or NONE for key in keys] or [NONE]


def total_tables(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Table]]:
    """A table with its caption for each key that any job has."""
    tables = []
    for by in dict.fromkeys(row["by"] for row in rows):
        group, words = [row for row in rows if row["by"] == by], "" if by == ALL else by.replace("_", " ")
        if any(row["key"] != NONE for row in group):
            tables.append(
                (f"Dollars by {words}" if words else "Dollars in all", table(group, {words: "key", **_TOTALS}))
            )
    return tables


def _error(job: RecordedJob, quantity: str) -> dict[str, Any]:
    """An estimate, its 80 % interval, the measured value and the relative error; empty if one is unknown.

    A job that was stopped or failed did not take what the whole job would have taken, so it has none.
    """
    _, estimate, measurement = _ESTIMATES[quantity]
    predicted, measured = job.metric(estimate), job.metric(measurement)
    if not job.is_completed or predicted is None or not measured:
        return {}
    low, high = (job.metric(f"{estimate}_{end}") for end in ("low", "high"))
    has_interval = low is not None and high is not None
    return {
        "predicted": predicted,
        "low": low,
        "high": high,
        "measured": measured,
        "error": predicted / measured - 1,
        "interval": f"{low:.4g} to {high:.4g}" if has_interval else "",
        "inside": float(low <= measured <= high) if low is not None and high is not None else float("nan"),
    }


def _errors(jobs: Sequence[RecordedJob]) -> list[Section]:
    """The errors of estimates by run, and their means by origin and quantity; empty without any."""
    frame = pd.DataFrame(
        {"run": job.run_id[:8], "origin": job.origin, "quantity": _ESTIMATES[quantity][0], **error}
        for job in jobs
        for quantity in _ESTIMATES
        if (error := _error(job, quantity))
    )
    if frame.empty:
        return []
    means = frame.assign(absolute=frame.error.abs()).groupby(["origin", "quantity"], sort=False)
    means = means.agg(runs=("run", "size"), absolute=("absolute", "mean"), inside=("inside", "mean")).reset_index()
    by_run = {"run": "run", "origin": "origin", "quantity": "quantity", "predicted": ("predicted", ".4g")}
    by_run |= {"80 % interval": "interval", "measured": ("measured", ".4g"), "error": ("error", "+.1%")}
    in_mean = {"origin": "origin", "quantity": "quantity", "runs": "runs", "mean absolute error": ("absolute", ".1%")}
    in_mean |= {"in 80 % interval": ("inside", ".0%")}
    tables = [("By run", table(records(frame), by_run)), ("In the mean", table(records(means), in_mean))]
    return [Section(heading="Estimates against measurements", tables=tables)]
