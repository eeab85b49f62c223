"""What jobs cost, whether one may be paid for (its worst case against a limit), and what of a budget is left."""

from dataclasses import dataclass

from paretune.core.errors import BudgetRefused
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement

_ROUNDING_USD = 1e-9


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Dollars of several jobs together: spent for those that have ended, committed as worst cases of those that run."""

    spent_usd: float
    committed_usd: float

    def left_usd(self, budget_usd: float) -> float:
        """Dollars of a budget that are neither spent nor committed; negative where it has been lowered below them."""
        return budget_usd - self.spent_usd - self.committed_usd

    def covers(self, worst_usd: float, budget_usd: float) -> bool:
        """Whether a further worst case fits what is left of a budget."""
        return worst_usd <= self.left_usd(budget_usd) + _ROUNDING_USD


def cost_usd(price: Price | None, cluster: Placement, seconds: float) -> float | None:
    """Dollars of so many billable seconds on every instance of a cluster; None where the price is not known."""
    return None if price is None else price.cost_usd(seconds, cluster.instance_count)


def admit(spec: JobSpec, price: Price | None, billed_after_limit_s: float) -> float | None:
    """The most dollars that the job can be billed, None when its price is unknown.

    That is its maximum runtime, the `billed_after_limit_s` seconds that it may go on after it, and its warm pool.

    Raises:
        BudgetRefused: they exceed max_cost_usd, or the price is unknown and a limit is set.
    """
    if price is None:
        if spec.max_cost_usd is not None:
            raise BudgetRefused(
                f"max_cost_usd is {spec.max_cost_usd:g} but the price of {spec.instance_type} is not known "
                "in this region: leave max_cost_usd out, or take another type or region"
            )
        return None
    minutes = spec.max_runtime_minutes + spec.keep_alive_minutes  # a warm pool is billed like a job
    worst = price.cost_usd(minutes * 60 + billed_after_limit_s, spec.instance_count)
    if spec.max_cost_usd is not None and worst > spec.max_cost_usd:
        raise BudgetRefused(
            f"worst case {worst:.4g} USD ({minutes:g} minutes and {billed_after_limit_s:g} s to stop and upload, x "
            f"{spec.instance_count} x {price.usd_per_hour:g} USD per hour) must be at most max_cost_usd, "
            f"{spec.max_cost_usd:g}: lower max_runtime_minutes or raise max_cost_usd"
        )
    return worst
