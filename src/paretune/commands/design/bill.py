"""What the rows of a design are estimated to take and to cost, and what they can cost at worst."""

from collections.abc import Sequence
from dataclasses import dataclass

from paretune.core.errors import BadInput, BudgetRefused, collecting
from paretune.jobs.advice import ForeseenJob, foreseen, warnings_of, with_history
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.pricing.prices import COLUMNS
from paretune.specification.job import JobSpec
from paretune.specification.regions import usual_region
from paretune.studies.search.worst_case import WorstCase


@dataclass(frozen=True, kw_only=True)
class RowBill:
    """Of one row; None where it is not known. `seconds` are billable ones per instance, with an 80 % interval."""

    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    usd: float | None
    worst_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Of all rows, in their order.

    Attributes:
        remarks: whose prices these are.
        warnings: what to know of the jobs before they are paid for.
    """

    rows: Sequence[RowBill]
    remarks: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def usd(self) -> float | None:
        """Estimated dollars of all rows; None where one is not known."""
        return _sum([row.usd for row in self.rows])

    @property
    def worst_usd(self) -> float | None:
        """The most that all rows can cost; None where a price is not known."""
        return _sum([row.worst_usd for row in self.rows])

    def refusal(self, budget_usd: float | None) -> str:
        """Why the budget does not allow the design, in words; empty where it does."""
        if budget_usd is None or self.worst_usd is None or self.worst_usd <= budget_usd:
            return ""
        estimated = "" if self.usd is None else f" (estimated {self.usd:.4g})"
        return (
            f"the design can cost {self.worst_usd:.4g} USD at worst{estimated}, budget_usd is {budget_usd:g}: raise "
            "it, lower max_runtime_minutes, or take fewer runs"
        )


def bill_of(specs: Sequence[JobSpec], workplace: Workplace, *, budget_usd: float | None) -> Bill:
    """The bill of these jobs; under a budget each gets a maximum runtime not far above its estimate, as in a study.

    Raises:
        BadInput: there is a budget, and the price of an instance type is not known.
        BudgetRefused: one job alone exceeds max_cost_usd.
    """
    worst_case = WorstCase(workplace, {}, has_budget=budget_usd is not None)
    prices = {spec.instance_type: workplace.launcher.price(spec) for spec in sorted(specs, key=_type_of)}
    unpriced = [name for name, price in prices.items() if price is None]
    region = next((price.region for price in prices.values() if price is not None), "")
    region = region or usual_region(specs[0].region, workplace.environment)
    if budget_usd is not None and unpriced:
        text = f"budget_usd needs a price, and that of {' and '.join(unpriced)} in {region} is not known: give it with "
        read = f"`paretune prices --refresh true --region {region}` reads what AWS lists"
        raise BadInput([f"{text}prices: FILE.csv ({', '.join(COLUMNS)}), or leave the type out; {read}"])
    refused: list[str] = []
    jobs = [foreseen(spec, known_inputs(spec, workplace), workplace) for spec in specs]
    rows = []
    for job in jobs:
        try:
            rows.append(_row(job, worst_case))
        except BudgetRefused as error:
            refused.append(str(error))
    if refused:
        raise BudgetRefused(refused[0])
    remarks = [f"prices of {region}, SageMaker Training, on demand"] if specs[0].has_instances else []
    return Bill(rows=rows, remarks=remarks, warnings=warnings_of(with_history(jobs, workplace.tracking)))


def _type_of(spec: JobSpec) -> str:
    return spec.instance_type


def _row(job: ForeseenJob, worst_case: WorstCase) -> RowBill:
    estimate = None
    with collecting([]):  # an estimate is an addition, and what keeps it from being made is said at the launch
        estimate = job.estimate
    worst = worst_case.usd(worst_case.limited(job.spec))
    if estimate is None:
        return RowBill(seconds=None, seconds_low=None, seconds_high=None, usd=None, worst_usd=worst)
    time = estimate.time
    return RowBill(
        seconds=time.seconds,
        seconds_low=time.seconds_low,
        seconds_high=time.seconds_high,
        usd=estimate.cost_usd,
        worst_usd=worst,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
