"""What recorded runs would cost elsewhere, on another day, on spot or by a bill's rates: without a new job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from paretune.commands.bill.rates import EffectiveRate
from paretune.core.pareto import front
from paretune.jobs.bill import recorded_price
from paretune.pricing.prices import Price, PriceList, price_remarks
from paretune.specification import metrics
from paretune.tracking import RecordedJob

_OF_BILL = "cost is what its bill says is paid, storage included"
_OF_RATE = "cost is seconds x the effective rate of a bill, without storage: a little less than its bill will say"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On which terms to price again; what is None stays as it was.

    Attributes:
        spot_share: share of the training seconds that managed spot would bill, above 0 and at most 1. AWS bills spot
            as the on-demand price times fewer seconds (DescribeTrainingJob, BillableTimeInSeconds; read 2026-11-20).
        rates: what an hour costs in effect, by instance type and region. Then a run costs what its bill says is paid
            for it, and one that has no complete bill its seconds at the rate.
    """

    region: str | None = None
    on: date | None = None
    spot_share: float | None = None
    rates: Mapping[tuple[str, str], EffectiveRate] | None = None

    @property
    def are_new(self) -> bool:
        """Whether anything is to be priced again at all."""
        return self != Terms()


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """One job with its recorded cost and the one on other terms; what is not known is None or empty.

    Attributes:
        seconds: that the new cost counts, per instance.
        cost_usd: on the terms asked for; None where it cannot be known.
        basis: of an effective cost: `bill`, `rate` of the instance type, or `plan`: it is the recorded one.
        remark: why not, or what else is to be said.
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
        """New cost less recorded cost."""
        if self.cost_usd is None or self.job.bill.cost_usd is None:
            return None
        return self.cost_usd - self.job.bill.cost_usd

    @property
    def kind(self) -> tuple[str, ...]:
        """What may be compared with each other: runs of one origin on one data set, with real or notional dollars."""
        data = [self.job.param(name) for name in ("dataset", "dataset_config_name")]
        return self.job.origin, "" if self.is_billed else "notional", *data

    @property
    def is_billed(self) -> bool:
        """Whether its instances are SageMaker's; a local run's dollars are notional."""
        return self.job.cluster.instance_type.startswith("ml.")


def reprice(jobs: Sequence[RecordedJob], prices: PriceList, terms: Terms) -> list[RunCost]:
    """Every job on other terms, in the same order. The recorded runs stay as they are."""
    costs = [_cost(job, prices, terms) for job in jobs]
    before, now = _fronts(costs, repriced=False), _fronts(costs, repriced=True)
    return [
        replace(cost, was_on_front=was, is_on_front=is_best)
        for cost, was, is_best in zip(costs, before, now, strict=True)
    ]


def with_new_costs(costs: Sequence[RunCost]) -> list[RecordedJob]:
    """The jobs as if the new costs had been recorded; without a cost where that is not known."""
    jobs = []
    for cost in costs:
        told = {name: value for name, value in cost.job.run.metrics.items() if name != metrics.COST_USD}
        new = {} if cost.cost_usd is None else {metrics.COST_USD: cost.cost_usd}
        jobs.append(RecordedJob(replace(cost.job.run, metrics={**told, **new})))
    return jobs


def _fronts(costs: Sequence[RunCost], *, repriced: bool) -> list[bool | None]:
    """For each run whether it is on the front of F1 against cost of its kind; None without F1 or cost."""
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
    """What is to be said of the new costs, each thing once."""
    said: dict[str, None] = {}  # a set that keeps its order
    for cost in costs:
        if cost.unknown is not None and terms.on is not None:
            name, region = cost.unknown
            said[f"price of {name} in {region} on {terms.on} or before is not known, so cost is absent"] = None
        elif cost.unknown is not None:
            said |= dict.fromkeys(price_remarks(None, *cost.unknown, today))
        elif cost.price is not None:
            said |= dict.fromkeys(cost.price.remarks(terms.on or today))
    for reason in dict.fromkeys(cost.remark for cost in costs if cost.remark and cost.unknown is None):
        count = sum(cost.remark == reason for cost in costs)
        said[f"{count} run{'s' if count > 1 else ''}: {reason}"] = None
    return list(said)


def _cost(job: RecordedJob, prices: PriceList, terms: Terms) -> RunCost:
    cost = RunCost(job=job)
    if not terms.are_new:
        return cost
    if not cost.is_billed:
        return replace(cost, cost_usd=job.bill.cost_usd, remark="local, its notional price is kept")
    if terms.rates is not None and job.bill.effective_usd is not None:
        return replace(cost, cost_usd=job.bill.effective_usd, basis="bill", remark=_OF_BILL)
    if terms.rates is not None and job.bill.is_on_plan:
        kept = "on a training plan, which is paid in advance: the recorded cost, and the share of its fee beside it"
        return replace(cost, cost_usd=job.bill.cost_usd, basis="plan", remark=kept)
    seconds, why_not = _seconds(job, terms)
    if seconds is None:
        return replace(cost, remark=f"{why_not}: it cannot be priced again")
    cost = replace(cost, seconds=seconds)
    if terms.rates is not None:
        return _at_rate(cost, terms.rates)
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


def _at_rate(cost: RunCost, rates: Mapping[tuple[str, str], EffectiveRate]) -> RunCost:
    """The seconds of a job without a complete bill at the effective rate of its instance type."""
    job = cost.job
    rate = rates.get((job.cluster.instance_type, job.cluster.region))
    if rate is None:
        where = f"{job.cluster.instance_type} in {job.cluster.region or 'a region that is not recorded'}"
        return replace(cost, remark=f"no bill tells an effective rate of {where}, so cost is absent")
    price = Price(
        usd_per_hour=float(rate.usd_per_hour),
        region=rate.region,
        as_of=rate.as_of,
        source="effective rate of a bill",
        instance_type=rate.instance_type,
        confidence="notional",  # of a bill, there is no doubt to be told
    )
    usd = price.cost_usd(cost.seconds or 0.0, job.cluster.instance_count)
    return replace(cost, price=price, cost_usd=usd, basis="rate", remark=_OF_RATE)


def _seconds(job: RecordedJob, terms: Terms) -> tuple[float | None, str]:
    """Seconds per instance that would be billed, or why they cannot be told."""
    billed = job.bill.billable_seconds
    if billed is None:
        return None, "no billable seconds are recorded"
    if terms.spot_share is None:
        return billed + job.bill.warm_pool_seconds, ""
    if job.cluster.is_spot:
        # AWS tells the undiscounted seconds of one job; those of earlier attempts are in no description any more.
        if job.bill.training_seconds is None or not job.is_first_attempt:
            return None, "a spot run whose training seconds are not recorded"
        billed = job.bill.training_seconds
    return billed * terms.spot_share, ""  # AWS keeps no warm pool of spot instances
