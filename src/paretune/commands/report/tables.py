"""Tables of `report`: recorded runs with old and new costs, and the errors of their estimates."""

from collections.abc import Sequence

from paretune.commands.report.accuracy import Accuracy, EstimateError
from paretune.commands.report.observations import day
from paretune.commands.report.repricing import RunCost, Terms
from paretune.core.result import value_of
from paretune.presentation.table import Cell, Column, Table
from paretune.tracking import RecordedJob

_SHORT = 8  # characters of a run id: enough to name the run in `runs`
_OF_A_PRICE = ("usd_per_hour", "region", "as_of", "source")
_QUANTITIES = {"seconds": "billable seconds", "cost_usd": "cost, USD", "memory_gib": "memory per device, GiB"}


def cost_table(costs: Sequence[RunCost], terms: Terms) -> Table:
    """Return a row per run: its settings, results and cost, and its cost on other terms."""
    columns = _RECORDED + (_REPRICED if terms.are_new else [])
    return Table.of(columns, costs).without_empty_columns()


def cost_rows(costs: Sequence[RunCost], errors: Sequence[EstimateError]) -> list[dict[str, object]]:
    """Return all fields of every run; unknown values are None."""
    errors_by_run = {(error.job.run_id, error.quantity): error for error in errors}
    rows: list[dict[str, object]] = []
    for cost in costs:
        job, price = cost.job, cost.price
        row: dict[str, object] = {
            "run_id": job.run_id,
            "run_name": job.name,
            "date": day(job),
            "origin": job.origin,
            "launcher": job.cluster.launcher,
            "state": job.state,
            "dataset": job.param("dataset"),
            "instance_type": job.cluster.instance_type,
            "instance_count": job.cluster.instance_count,
            "spot": job.param("spot"),
            "global_batch_size": job.param("global_batch_size"),
            "learning_rate": _learning_rate(job),
            "f1": job.f1,
            "billable_seconds": job.bill.billable_seconds,
            "cost_usd": job.bill.cost_usd,
            "price_usd_per_hour": _text(job.bill.price_usd_per_hour, "g"),
            **{f"price_{name}": getattr(job.bill, f"price_{name}") for name in _OF_A_PRICE[1:]},
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
            error = errors_by_run.get((job.run_id, quantity))
            row[f"estimated_{quantity}"] = error.predicted if error else None
            row |= {f"estimated_{quantity}_{name}": getattr(error, name, None) for name in ("low", "high", "error")}
        rows.append(row)
    return rows


def error_tables(errors: Sequence[EstimateError], accuracies: Sequence[Accuracy]) -> tuple[Table, Table]:
    """Return predicted against measured, a row per run and quantity, and the mean errors."""
    tables = Table.of(_ERRORS, errors), Table.of(_MEANS, accuracies)
    return tables[0].without_empty_columns(), tables[1].without_empty_columns()


def front_changes(costs: Sequence[RunCost]) -> list[str]:
    """Return sentences on the runs that join or leave the front of F1 against cost."""
    fates = [(cost.job.run_id[:_SHORT], cost.was_on_front, cost.is_on_front) for cost in costs]
    changed = {
        "on the front only by the new costs": [name for name, was, now in fates if now and not was],
        "no longer on the front": [name for name, was, now in fates if was and now is False],
        "on the front before, and without a new cost": [name for name, was, now in fates if was and now is None],
    }
    sentences = [f"{change}: {', '.join(names)}" for change, names in changed.items() if names]
    return sentences or ["the front of F1 against cost is the same"]


def about_kinds(costs: Sequence[RunCost]) -> list[str]:
    """Return sentences that warn of different origins or data in one table."""
    origins = sorted({cost.job.origin for cost in costs})
    sentences = []
    if len(origins) > 1:
        sentences.append(f"the table mixes {' and '.join(origins)} runs: compare within one origin only")
    if len({cost.kind for cost in costs}) > 1:
        sentences.append(
            "each origin and data set has a front of its own, and so have the notional dollars of local runs"
        )
    return sentences


def _learning_rate(job: RecordedJob) -> str:
    """Return the peak rate that was used, after scaling."""
    text = job.param("scaled_learning_rate") or job.param("learning_rate")
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _text(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _difference(cost: RunCost) -> float | None:
    return None if cost.difference_usd is None else round(cost.difference_usd, 6) or 0.0


def _parsed(text: str) -> Cell:
    """The cell of a recorded parameter, with its number if it spells one."""
    value = value_of(text)
    return Cell(text, value if isinstance(value, (int, float)) else text)


def _price_of(region: str, as_of: str) -> str:
    return f"{region} {as_of}".strip()


_RECORDED: list[Column[RunCost]] = [
    Column("run", lambda cost: cost.job.run_id[:_SHORT]),
    Column("date", lambda cost: day(cost.job)),
    Column("origin", lambda cost: cost.job.origin),
    Column("state", lambda cost: "" if cost.job.is_completed else cost.job.state),
    Column("instances", lambda cost: cost.job.cluster.instance_count),
    Column("instance type", lambda cost: cost.job.cluster.instance_type),
    Column("global batch", lambda cost: _parsed(cost.job.param("global_batch_size"))),
    Column("learning rate", lambda cost: _parsed(_learning_rate(cost.job))),
    Column("F1", lambda cost: cost.job.f1, ".4f"),
    Column("seconds", lambda cost: cost.job.bill.billable_seconds, ",.0f"),
    Column("cost USD", lambda cost: cost.job.bill.cost_usd, ".5g"),
    Column("USD/hour", lambda cost: cost.job.bill.price_usd_per_hour, "g"),
    Column("price of", lambda cost: _price_of(cost.job.bill.price_region, cost.job.bill.price_as_of)),
    Column("front", lambda cost: "*" if cost.was_on_front else ""),
]
_REPRICED: list[Column[RunCost]] = [
    Column("new seconds", lambda cost: cost.seconds, ",.0f"),
    Column("new USD/hour", lambda cost: None if cost.price is None else cost.price.usd_per_hour, "g"),
    Column("new price of", lambda cost: "" if cost.price is None else _price_of(cost.price.region, cost.price.as_of)),
    Column("new cost USD", lambda cost: cost.cost_usd, ".5g"),
    Column("cost by", lambda cost: cost.basis),
    Column("difference", _difference, "+.5g"),
    Column("new front", lambda cost: "*" if cost.is_on_front else ""),
]
_ERRORS: list[Column[EstimateError]] = [
    Column("run", lambda error: error.job.run_id[:_SHORT]),
    Column("origin", lambda error: error.job.origin),
    Column("quantity", lambda error: _QUANTITIES[error.quantity]),
    Column("predicted", lambda error: error.predicted, ".4g"),
    Column("80 % interval", lambda error: None if error.is_inside is None else f"{error.low:.4g} to {error.high:.4g}"),
    Column("measured", lambda error: error.measured, ".4g"),
    Column("error", lambda error: error.error, "+.1%"),
]
_MEANS: list[Column[Accuracy]] = [
    Column("origin", lambda accuracy: accuracy.origin),
    Column("quantity", lambda accuracy: _QUANTITIES[accuracy.quantity]),
    Column("runs", lambda accuracy: accuracy.jobs),
    Column("mean absolute error", lambda accuracy: accuracy.mean_absolute, ".1%"),
    Column("in 80 % interval", lambda accuracy: accuracy.inside, ".0%"),
]
