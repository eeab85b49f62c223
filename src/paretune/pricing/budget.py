"""Costs of jobs, whether the worst case of one is within its limit, and what is left of a budget."""

from dataclasses import dataclass

from paretune.core.errors import BudgetRefused
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

ROUNDING_USD = 1e-9  # dollars by which sums of floating-point numbers may differ


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Dollars of several jobs together: spent by jobs that ended, and committed as worst cases of jobs that run."""

    spent_usd: float
    committed_usd: float

    def left_usd(self, budget_usd: float) -> float:
        """Dollars of a budget that are neither spent nor committed; negative if it was lowered below them."""
        return budget_usd - self.spent_usd - self.committed_usd

    def covers(self, worst_usd: float, budget_usd: float) -> bool:
        """Whether one more worst case fits into what is left of a budget."""
        return worst_usd <= self.left_usd(budget_usd) + ROUNDING_USD


def cost_usd(price: Price | None, cluster: JobSpec, seconds: float) -> float | None:
    """Dollars of so many billable seconds on every instance of a cluster, or None if the price is unknown."""
    return None if price is None else price.cost_usd(seconds, cluster.instance_count)


def admit(job: JobSpec, price: Price | None, billed_after_limit_s: float) -> float | None:
    """The worst case of a job in dollars, or None if its price is unknown.

    It is the cost of the maximum runtime, of `billed_after_limit_s` seconds to stop and upload, and of its warm pool.

    Raises:
        BudgetRefused: the worst case exceeds max_cost_usd, or there is such a limit and the price is unknown.
    """
    if price is None:
        if job.max_cost_usd is not None:
            raise BudgetRefused(
                f"max_cost_usd is {job.max_cost_usd:g} but the price of {job.instance_type} is not known "
                "in this region: leave max_cost_usd out, or take another type or region"
            )
        return None
    minutes = job.max_runtime_minutes + job.keep_alive_minutes  # a warm pool is billed like a job
    worst_usd = price.cost_usd(minutes * 60 + billed_after_limit_s, job.instance_count)
    if job.max_cost_usd is not None and worst_usd > job.max_cost_usd:
        raise BudgetRefused(
            f"worst case {worst_usd:.4g} USD ({minutes:g} minutes and {billed_after_limit_s:g} s to stop and upload, x "
            f"{job.instance_count} x {price.stated}) must be at most max_cost_usd, "
            f"{job.max_cost_usd:g}: lower max_runtime_minutes or raise max_cost_usd"
        )
    return worst_usd
