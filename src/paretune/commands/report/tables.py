"""What `report` shows: recorded runs with old and new costs, and how far their estimates lay off."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from paretune.commands.report.accuracy import Accuracy, EstimateError
from paretune.commands.report.observations import day
from paretune.commands.report.repricing import RunCost, Terms
from paretune.presentation.page import Table
from paretune.tracking import RecordedJob

_Item = TypeVar("_Item")
_SHORT = 8  # characters of a run id: enough to name the run in `runs`
_NUMBERS = {"instances", "global batch", "learning rate", "F1", "seconds", "cost USD", "USD/hour", "new seconds"} | {
    *("new USD/hour", "new cost USD", "difference", "predicted", "measured", "error", "runs", "mean absolute error"),
    "in 80 % interval",
}
_OF_A_PRICE = ("usd_per_hour", "region", "as_of", "source")
_QUANTITIES = {"seconds": "billable seconds", "cost_usd": "cost, USD", "memory_gib": "memory per device, GiB"}


def cost_table(costs: Sequence[RunCost], terms: Terms) -> Table:
    """A line per run: what it was, reached and cost, and what it would cost on other terms."""
    planned = _PLANNED if any(cost.job.plan_share_usd is not None for cost in costs) else {}
    return _table(_RECORDED | planned | (_REPRICED if terms.are_new else {}), costs)


def cost_rows(costs: Sequence[RunCost], errors: Sequence[EstimateError]) -> list[dict[str, object]]:
    """Everything about every run; what is not known is None."""
    off = {(one.job.run_id, one.quantity): one for one in errors}
    rows: list[dict[str, object]] = []
    for cost in costs:
        job, price = cost.job, cost.price
        row: dict[str, object] = {
            "run_id": job.run_id,
            "run_name": job.name,
            "date": day(job),
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
            "plan_share_usd": job.plan_share_usd,
            "price_usd_per_hour": _text(job.price_usd_per_hour, "g"),
            **{f"price_{name}": getattr(job, f"price_{name}") for name in _OF_A_PRICE[1:]},
            "on_front": cost.was_on_front,
            "new_seconds": cost.seconds,
            **{f"new_price_{name}": getattr(price, name, None) for name in _OF_A_PRICE},
            "new_cost_usd": cost.cost_usd,
            "new_cost_basis": cost.basis,
            "difference_usd": cost.difference_usd,
            "on_new_front": cost.is_on_front,
            "remark": cost.remark,
        }
        for quantity in _QUANTITIES:
            one = off.get((job.run_id, quantity))
            row[f"estimated_{quantity}"] = one.predicted if one else None
            row |= {f"estimated_{quantity}_{name}": getattr(one, name, None) for name in ("low", "high", "error")}
        rows.append(row)
    return rows


def error_tables(errors: Sequence[EstimateError], accuracies: Sequence[Accuracy]) -> tuple[Table, Table]:
    """Predicted against measured, a line per run and quantity; and the mean errors."""
    return _table(_ERRORS, errors), _table(_MEANS, accuracies)


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


def _learning_rate(job: RecordedJob) -> str:
    """The peak rate that was used, after scaling."""
    text = job.param("scaled_learning_rate") or job.param("learning_rate")
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _text(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


_RECORDED: dict[str, Callable[[RunCost], str]] = {
    "run": lambda cost: cost.job.run_id[:_SHORT],
    "date": lambda cost: day(cost.job),
    "origin": lambda cost: cost.job.origin,
    "state": lambda cost: "" if cost.job.is_completed else cost.job.state,
    "instances": lambda cost: str(cost.job.instance_count),
    "instance type": lambda cost: cost.job.instance_type,
    "global batch": lambda cost: cost.job.param("global_batch_size"),
    "learning rate": lambda cost: _learning_rate(cost.job),
    "F1": lambda cost: _text(cost.job.f1, ".4f"),
    "seconds": lambda cost: _text(cost.job.billable_seconds, ",.0f"),
    "cost USD": lambda cost: _text(cost.job.cost_usd, ".5g"),
    "USD/hour": lambda cost: _text(cost.job.price_usd_per_hour, "g"),
    "price of": lambda cost: f"{cost.job.price_region} {cost.job.price_as_of}".strip(),
    "front": lambda cost: "*" if cost.was_on_front else "",
}
_PLANNED: dict[str, Callable[[RunCost], str]] = {
    "share of plan USD": lambda cost: _text(cost.job.plan_share_usd, ".5g"),  # paid in advance, in no cost
}
_REPRICED: dict[str, Callable[[RunCost], str]] = {
    "new seconds": lambda cost: _text(cost.seconds, ",.0f"),
    "new USD/hour": lambda cost: _text(getattr(cost.price, "usd_per_hour", None), "g"),
    "new price of": lambda cost: f"{cost.price.region} {cost.price.as_of}".strip() if cost.price is not None else "",
    "new cost USD": lambda cost: _text(cost.cost_usd, ".5g"),
    "cost by": lambda cost: cost.basis,
    "difference": lambda cost: _text(
        None if cost.difference_usd is None else round(cost.difference_usd, 6) or 0.0, "+.5g"
    ),
    "new front": lambda cost: "*" if cost.is_on_front else "",
}
_ERRORS: dict[str, Callable[[EstimateError], str]] = {
    "run": lambda one: one.job.run_id[:_SHORT],
    "origin": lambda one: one.job.origin,
    "quantity": lambda one: _QUANTITIES[one.quantity],
    "predicted": lambda one: f"{one.predicted:.4g}",
    "80 % interval": lambda one: "" if one.is_inside is None else f"{one.low:.4g} to {one.high:.4g}",
    "measured": lambda one: f"{one.measured:.4g}",
    "error": lambda one: f"{one.error:+.1%}",
}
_MEANS: dict[str, Callable[[Accuracy], str]] = {
    "origin": lambda one: one.origin,
    "quantity": lambda one: _QUANTITIES[one.quantity],
    "runs": lambda one: str(one.jobs),
    "mean absolute error": lambda one: f"{one.mean_absolute:.1%}",
    "in 80 % interval": lambda one: _text(one.inside, ".0%"),
}


def _table(columns: Mapping[str, Callable[[_Item], str]], items: Sequence[_Item]) -> Table:
    """A row per item; `columns` maps the header of each column to what its cells say."""
    right = [place for place, name in enumerate(columns) if name in _NUMBERS]
    return Table(
        head=list(columns), rows=[[text(item) for text in columns.values()] for item in items], right=right
    ).filled()
