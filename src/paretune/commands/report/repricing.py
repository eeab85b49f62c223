"""Costs of recorded runs in another region, on another day, on spot or as billed, without a new job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from paretune.core.pareto import front
from paretune.jobs.bill import recorded_price
from paretune.pricing.prices import Price, PriceList, price_remarks
from paretune.specification import metrics
from paretune.tracking import RecordedJob

_BILL_REMARK = "cost is the effective cost of its bill, storage included"
_NO_BILL = "no complete bill of it was read, so its effective cost is unknown (`paretune reconcile`)"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Terms to price runs on again; None leaves a term as it was."""

    region: str | None = None
    on: date | None = None
    spot_share: float | None = None
    """Share of the training seconds that managed spot would bill, above 0 and at most 1. AWS bills spot as the on-
    demand price times fewer seconds (DescribeTrainingJob, BillableTimeInSeconds; read 2026-11-20)."""
    is_effective: bool = False  # a run costs what its bill shows, with plans, reservations and private rates

    @property
    def are_new(self) -> bool:
        """Whether runs are priced again at all."""
        return self != Terms()


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """One job with its recorded cost and its cost on other terms; unknown values are None or empty.

    Attributes:
        seconds: of the new cost, per instance.
        cost_usd: on the new terms; None if it is unknown.
        basis: of an effective cost: `bill`.
        remark: why the cost is unknown, or another remark.
        unknown: instance type and region whose price is missing.
        was_on_front, is_on_front: whether no run of its kind is as cheap and as good, by recorded and by new costs;
            None without F1 or cost.
    """

    job: RecordedJob
    seconds: float | None = None
    price: Price | None = None
    cost_usd: float | None = None
    basis: str = ""
    remark: str = ""
    unknown: tuple[str, str] | None = None
    was_on_front: bool | None = None
    is_on_front: bool | None = None

    @property
    def difference_usd(self) -> float | None:
        """New cost minus recorded cost."""
        if self.cost_usd is None or self.job.bill.cost_usd is None:
            return None
        return self.cost_usd - self.job.bill.cost_usd

    @property
    def kind(self) -> tuple[str, ...]:
        """Runs with an equal kind may be compared: one origin, one data set, all dollars real or all notional."""
        data = [self.job.param(name) for name in ("dataset", "dataset_config_name")]
        return self.job.origin, "" if self.is_billed else "notional", *data

    @property
    def is_billed(self) -> bool:
        """Whether its instances are SageMaker's; a local run's dollars are notional."""
        return self.job.cluster.instance_type.startswith("ml.")


def reprice(jobs: Sequence[RecordedJob], prices: PriceList, terms: Terms) -> list[RunCost]:
    """Return every job on other terms, in the same order. The recorded runs do not change."""
    costs = [_cost(job, prices, terms) for job in jobs]
    before, after = _fronts(costs, repriced=False), _fronts(costs, repriced=True)
    return [
        replace(cost, was_on_front=was, is_on_front=is_best)
        for cost, was, is_best in zip(costs, before, after, strict=True)
    ]


def with_new_costs(costs: Sequence[RunCost]) -> list[RecordedJob]:
    """Return the jobs as if the new costs had been recorded; without a cost if it is unknown."""
    jobs = []
    for cost in costs:
        values = {name: value for name, value in cost.job.run.metrics.items() if name != metrics.COST_USD}
        new = {} if cost.cost_usd is None else {metrics.COST_USD: cost.cost_usd}
        jobs.append(RecordedJob(replace(cost.job.run, metrics={**values, **new})))
    return jobs


def _fronts(costs: Sequence[RunCost], *, repriced: bool) -> list[bool | None]:
    """Return for each run whether it is on the front of its kind in F1 and cost; None without F1 or cost."""
    on_front: list[bool | None] = [None] * len(costs)
    points: dict[tuple[str, ...], dict[int, tuple[float, float]]] = {}
    for index, cost in enumerate(costs):
        f1, usd = cost.job.f1, cost.cost_usd if repriced else cost.job.bill.cost_usd
        if f1 is not None and usd is not None:
            points.setdefault(cost.kind, {})[index] = (f1, usd)
    for kind in points.values():
        for index, is_best in zip(kind, front(list(kind.values()), (True, False)), strict=True):
            on_front[index] = is_best
    return on_front


def remarks(costs: Sequence[RunCost], terms: Terms, today: date) -> list[str]:
    """Return remarks on the new costs, each once."""
    sentences: dict[str, None] = {}  # a set that keeps its order
    for cost in costs:
        if cost.unknown is not None and terms.on is not None:
            name, region = cost.unknown
            sentences[f"price of {name} in {region} on {terms.on} or before is not known, so cost is absent"] = None
        elif cost.unknown is not None:
            sentences |= dict.fromkeys(price_remarks(None, *cost.unknown, today))
        elif cost.price is not None:
            sentences |= dict.fromkeys(cost.price.remarks(terms.on or today))
    for reason in dict.fromkeys(cost.remark for cost in costs if cost.remark and cost.unknown is None):
        count = sum(cost.remark == reason for cost in costs)
        sentences[f"{count} run{'s' if count > 1 else ''}: {reason}"] = None
    return list(sentences)


def _cost(job: RecordedJob, prices: PriceList, terms: Terms) -> RunCost:
    cost = RunCost(job=job)
    if not terms.are_new:
        return cost
    if not cost.is_billed:
        return replace(cost, cost_usd=job.bill.cost_usd, remark="local, its notional price is kept")
    if terms.is_effective:
        usd = job.bill.effective_usd
        return replace(
            cost, cost_usd=usd, basis="" if usd is None else "bill", remark=_NO_BILL if usd is None else _BILL_REMARK
        )
    seconds, why_not = _seconds(job, terms)
    if seconds is None:
        return replace(cost, remark=f"{why_not}: it cannot be priced again")
    cost = replace(cost, seconds=seconds)
    if terms.region is None and terms.on is None:
        price = recorded_price(job)
        if price is None:
            return replace(cost, remark="no price is recorded: set region")
    else:
        region = terms.region or job.cluster.region
        if not region:
            return replace(cost, remark="no region is recorded: set region")
        price = prices.price(job.cluster.instance_type, region, terms.on)
        if price is None:
            return replace(cost, remark=f"price unknown in {region}", unknown=(job.cluster.instance_type, region))
    return replace(cost, price=price, cost_usd=price.cost_usd(seconds, job.cluster.instance_count))


def _seconds(job: RecordedJob, terms: Terms) -> tuple[float | None, str]:
    """Return the seconds per instance that would be billed, or None and the reason why they are unknown."""
    billed = job.bill.billable_seconds
    if billed is None:
        return None, "no billable seconds are recorded"
    if terms.spot_share is None:
        return billed + job.bill.warm_pool_seconds, ""
    if job.cluster.is_spot:
        # AWS describes the undiscounted seconds of the last job only; those of earlier attempts are lost.
        if job.bill.training_seconds is None or not job.is_first_attempt:
            return None, "a spot run whose training seconds are not recorded"
        billed = job.bill.training_seconds
    return billed * terms.spot_share, ""  # AWS keeps no warm pool of spot instances
