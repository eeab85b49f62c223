"""What `report` shows: recorded runs with old and new costs, and how far their estimates lay off."""

from collections.abc import Sequence

from paretune.cli.output.accuracy import Accuracy, EstimateError
from paretune.cli.output.repricing import RunCost, Terms
from paretune.core.result import csv_text
from paretune.core.text_table import text_table
from paretune.tracking import RecordedJob

_SHORT = 8  # characters of a run id: enough to name the run in `runs`
_NUMBERS = {"instances", "global batch", "learning rate", "F1", "seconds", "cost USD", "USD/hour", "new seconds"} | {
    *("new USD/hour", "new cost USD", "difference", "predicted", "measured", "error", "runs", "mean absolute error"),
    "in 80 % interval",
}
_OF_A_PRICE = ("usd_per_hour", "region", "as_of", "source")
_QUANTITIES = {"seconds": "billable seconds", "cost_usd": "cost, USD", "memory_gib": "memory per device, GiB"}


def cost_table(costs: Sequence[RunCost], terms: Terms) -> str:
    """A line per run: what it was, reached and cost, and what it would cost on other terms."""
    header = ["run", "origin", "state", "instances", "instance type", "global batch", "learning rate", "F1", "seconds"]
    header += ["cost USD", "USD/hour", "price of", "front"]
    if terms.are_new:
        header += ["new seconds", "new USD/hour", "new price of", "new cost USD", "difference", "new front"]
    rows = [_recorded(cost) + (_repriced(cost) if terms.are_new else []) for cost in costs]
    return text_table(header, rows, _NUMBERS)


def cost_csv(costs: Sequence[RunCost], errors: Sequence[EstimateError]) -> str:
    """Everything about every run, as CSV; what is not known is an empty cell."""
    off = {(one.job.run_id, one.quantity): one for one in errors}
    rows: list[dict[str, object]] = []
    for cost in costs:
        job, price = cost.job, cost.price
        row: dict[str, object] = {
            "run_id": job.run_id,
            "run_name": job.name,
            **{name: getattr(job, name) for name in ("origin", "launcher", "state")},
            "dataset": job.param("dataset"),
            "instance_type": job.instance_type,
            "instance_count": job.instance_count,
            "spot": job.param("spot"),
            "global_batch_size": job.param("global_batch_size"),
            "learning_rate": _learning_rate(job),
            "f1": job.f1,
            "billable_seconds": job.billable_seconds,
            "cost_usd": job.cost_usd,
            "price_usd_per_hour": _text(job.price_usd_per_hour, "g"),
            **{f"price_{name}": getattr(job, f"price_{name}") for name in _OF_A_PRICE[1:]},
            "on_front": cost.was_on_front,
            "new_seconds": cost.seconds,
            **{f"new_price_{name}": getattr(price, name, None) for name in _OF_A_PRICE},
            "new_cost_usd": cost.cost_usd,
            "difference_usd": cost.difference_usd,
            "on_new_front": cost.is_on_front,
            "remark": cost.remark,
        }
        for quantity in _QUANTITIES:
            one = off.get((job.run_id, quantity))
            row[f"estimated_{quantity}"] = one.predicted if one else None
            row |= {f"estimated_{quantity}_{name}": getattr(one, name, None) for name in ("low", "high", "error")}
        rows.append(row)
    return csv_text(list(rows[0]) if rows else ["run_id"], rows)


def error_tables(errors: Sequence[EstimateError], accuracies: Sequence[Accuracy]) -> str:
    """Predicted against measured, a line per run and quantity, and the mean errors below."""
    header = ["run", "origin", "quantity", "predicted", "80 % interval", "measured", "error"]
    rows = [
        [
            one.job.run_id[:_SHORT],
            one.job.origin,
            _QUANTITIES[one.quantity],
            f"{one.predicted:.4g}",
            f"{one.low:.4g} to {one.high:.4g}" if one.low is not None and one.high is not None else "",
            f"{one.measured:.4g}",
            f"{one.error:+.1%}",
        ]
        for one in errors
    ]
    means = [
        [
            one.origin,
            _QUANTITIES[one.quantity],
            str(one.jobs),
            f"{one.mean_absolute:.1%}",
            f"{one.inside:.0%}" if one.inside is not None else "",
        ]
        for one in accuracies
    ]
    mean_header = ["origin", "quantity", "runs", "mean absolute error", "in 80 % interval"]
    return f"{text_table(header, rows, _NUMBERS)}\n\n{text_table(mean_header, means, _NUMBERS)}"


def front_changes(costs: Sequence[RunCost]) -> list[str]:
    """Which runs join and which leave the front of F1 against cost; a sentence each."""
    fates = [(cost.job.run_id[:_SHORT], cost.was_on_front, cost.is_on_front) for cost in costs]
    changed = {
        "on the front only by the new costs": [name for name, was, now in fates if now and not was],
        "no longer on the front": [name for name, was, now in fates if was and now is False],
        "on the front before, and without a new cost": [name for name, was, now in fates if was and now is None],
    }
    said = [f"{what}: {', '.join(names)}" for what, names in changed.items() if names]
    return said or ["the front of F1 against cost is the same"]


def about_kinds(costs: Sequence[RunCost]) -> list[str]:
    """That numbers of different origins, or of different data, stand in one table."""
    origins = sorted({cost.job.origin for cost in costs})
    said = []
    if len(origins) > 1:
        said.append(f"the table mixes {' and '.join(origins)} runs: compare within one origin only")
    if len({cost.kind for cost in costs}) > 1:
        said.append("each origin and data set has a front of its own, and so have the notional dollars of local runs")
    return said


def _recorded(cost: RunCost) -> list[str]:
    job = cost.job
    return [
        job.run_id[:_SHORT],
        job.origin,
        "" if job.is_completed else job.state,
        str(job.instance_count),
        job.instance_type,
        job.param("global_batch_size"),
        _learning_rate(job),
        _text(job.f1, ".4f"),
        _text(job.billable_seconds, ",.0f"),
        _text(job.cost_usd, ".5g"),
        _text(job.price_usd_per_hour, "g"),
        f"{job.price_region} {job.price_as_of}".strip(),
        "*" if cost.was_on_front else "",
    ]


def _repriced(cost: RunCost) -> list[str]:
    price = cost.price
    return [
        _text(cost.seconds, ",.0f"),
        f"{price.usd_per_hour:g}" if price is not None else "",
        f"{price.region} {price.as_of}".strip() if price is not None else "",
        _text(cost.cost_usd, ".5g"),
        _text(None if cost.difference_usd is None else round(cost.difference_usd, 6) or 0.0, "+.5g"),
        "*" if cost.is_on_front else "",
    ]


def _learning_rate(job: RecordedJob) -> str:
    """The peak rate that was used, after scaling."""
    text = job.param("scaled_learning_rate") or job.param("learning_rate")
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _text(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"
