"""What recorded runs would cost elsewhere, on another day or on spot: from their seconds, without a new job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from paretune.core.pareto import front
from paretune.pricing.prices import Price, PriceList, price_remarks
from paretune.spec import metrics
from paretune.tracking import RecordedRun, schema

_SPOT_UNKNOWN = "a spot run whose training seconds are not recorded"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On which terms to price again; what is None stays as it was.

    Attributes:
        region: whose prices.
        on: the day whose prices.
        spot_share: share of the training seconds that managed spot would bill, above 0 and at most 1. AWS bills spot
            as the on-demand price times fewer seconds (DescribeTrainingJob, BillableTimeInSeconds; read 2026-11-20).
    """

    region: str | None = None
    on: date | None = None
    spot_share: float | None = None

    @property
    def are_new(self) -> bool:
        """Whether anything is to be priced again at all."""
        return self != Terms()


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """One run with its recorded cost and the one on other terms; what is not known is None or empty.

    Attributes:
        run: as MLflow has it.
        instance_type: the one it ran on in the end.
        seconds: that the new cost counts, per instance.
        price: row of the new cost.
        cost_usd: on the terms asked for; None where it cannot be known.
        remark: why not, or what else is to be said.
        unknown: instance type and region whose price is missing.
    """

    run: RecordedRun
    instance_type: str
    seconds: float | None = None
    price: Price | None = None
    cost_usd: float | None = None
    remark: str = ""
    unknown: tuple[str, str] | None = None

    @property
    def origin(self) -> str:
        """Measured, simulated or published."""
        return self.run.tags.get("paretune.origin", "")

    @property
    def recorded_cost_usd(self) -> float | None:
        """What the run says it cost."""
        return self.run.metrics.get(metrics.COST_USD)

    @property
    def difference_usd(self) -> float | None:
        """New cost less recorded cost."""
        if self.cost_usd is None or self.recorded_cost_usd is None:
            return None
        return self.cost_usd - self.recorded_cost_usd

    @property
    def kind(self) -> tuple[str, ...]:
        """What may be compared with each other: runs of one origin on one data set, with real or notional dollars."""
        data = [self.run.params.get(name, "") for name in ("dataset", "dataset_config_name")]
        return self.origin, "" if self.is_billed else "notional", *data

    @property
    def is_billed(self) -> bool:
        """Whether its instances are SageMaker's; a local run's dollars are notional."""
        return self.instance_type.startswith("ml.")


def reprice(runs: Sequence[RecordedRun], prices: PriceList, terms: Terms) -> list[RunCost]:
    """Every run on other terms, in the same order. The recorded runs stay as they are."""
    return [_cost(run, prices, terms) for run in runs]


def fronts(costs: Sequence[RunCost], *, again: bool) -> list[bool | None]:
    """For each run whether it is on the front of F1 against cost of its kind; None without F1 or cost.

    Args:
        costs: the runs.
        again: by the new cost, else by the recorded one.
    """
    on_front: list[bool | None] = [None] * len(costs)
    points: dict[tuple[str, ...], dict[int, tuple[float, float]]] = {}
    for place, cost in enumerate(costs):
        f1 = cost.run.metrics.get(metrics.F1)
        usd = cost.cost_usd if again else cost.recorded_cost_usd
        if f1 is not None and usd is not None:
            points.setdefault(cost.kind, {})[place] = (f1, usd)
    for kind in points.values():
        for place, best in zip(kind, front(list(kind.values()), (True, False)), strict=True):
            on_front[place] = best
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


def instance_count(run: RecordedRun) -> int:
    """Instances that the run says it was on; 1 where it says nothing."""
    text = run.tags.get(schema.INSTANCE_COUNT) or run.params.get("instance_count", "1")  # of a project, or ours
    return int(text) if text.isdigit() else 1


def _cost(run: RecordedRun, prices: PriceList, terms: Terms) -> RunCost:
    names = (run.tags.get(schema.USED_INSTANCE_TYPE), run.tags.get(schema.INSTANCE_TYPE))
    name = next(filter(None, names), run.params.get("instance_type", ""))
    cost = RunCost(run=run, instance_type=name)
    if not terms.are_new:
        return cost
    if not cost.is_billed:
        return replace(cost, cost_usd=cost.recorded_cost_usd, remark="local, its notional price is kept")
    seconds, why_not = _seconds(run, terms)
    if seconds is None:
        return replace(cost, remark=f"{why_not}: it cannot be priced again")
    cost = replace(cost, seconds=seconds)
    if terms.region is None and terms.on is None:
        price = _recorded_price(run, name)
        if price is None:
            return replace(cost, remark="no price is recorded: set region")
    else:
        region = terms.region or run.tags.get("paretune.price_region") or run.tags.get("paretune.region")
        if not region:
            return replace(cost, remark="no region is recorded: set region")
        price = prices.price(name, region, terms.on)
        if price is None:
            return replace(cost, remark=f"price unknown in {region}", unknown=(name, region))
    usd = price.cost_usd(seconds, instance_count(run))
    return replace(cost, price=price, cost_usd=usd)


def _seconds(run: RecordedRun, terms: Terms) -> tuple[float | None, str]:
    """Seconds per instance that would be billed, or why they cannot be told."""
    billed = run.metrics.get(metrics.BILLABLE_SECONDS)
    if billed is None:
        return None, "no billable seconds are recorded"
    if terms.spot_share is None:
        return billed, ""
    if run.params.get("spot") == "true":
        # AWS tells the undiscounted seconds of one job; those of earlier attempts are in no description any more.
        trained, attempt = run.tags.get("paretune.training_seconds"), run.tags.get("paretune.job_name", "-1")
        if trained is None or not attempt.endswith("-1"):
            return None, _SPOT_UNKNOWN
        billed = float(trained)
    return billed * terms.spot_share, ""


def _recorded_price(run: RecordedRun, name: str) -> Price | None:
    text = run.tags.get("paretune.price_usd_per_hour")
    if text is None:
        return None
    return Price(
        usd_per_hour=float(text),
        region=run.tags.get("paretune.price_region", ""),
        as_of=run.tags.get("paretune.price_as_of", ""),
        source=run.tags.get("paretune.price_source", ""),
        instance_type=name,
        confidence="notional",  # nothing is to be said of it: the job's own launch has said it
    )
