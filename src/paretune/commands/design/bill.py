"""Estimated seconds and dollars of a design's rows, and their worst case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paretune.core.errors import BadInput, BudgetRefused, collecting
from paretune.jobs.advice import ForeseenJob, foreseen, limit_refusal, warnings_of, with_history
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.pricing.prices import COLUMNS
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from paretune.specification.regions import usual_region
from paretune.studies.search.worst_case import WorstCase


@dataclass(frozen=True, kw_only=True)
class RowBill:
    """The bill of one row; None for unknown values. `seconds` are billable, per instance, with an 80 % interval."""

    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    usd: float | None
    worst_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The bill of all rows, in their order. `remarks` name the prices, `warnings` concern the jobs.

    `no_estimate` is the reason why a row has no estimate; empty if all have one. `too_long` has the reasons to refuse
    rows that their limit would end, by the number of the row from 1.
    """

    rows: Sequence[RowBill]
    remarks: Sequence[str] = ()
    warnings: Sequence[str] = ()
    no_estimate: str = ""
    too_long: Mapping[int, str] = field(default_factory=dict)

    @property
    def usd(self) -> float | None:
        """Estimated dollars of all rows, or None if one is not known."""
        return _sum([row.usd for row in self.rows])

    @property
    def worst_usd(self) -> float | None:
        """The worst case of all rows, or None if a price is not known."""
        return _sum([row.worst_usd for row in self.rows])

    def refusal(self, budget_usd: float | None) -> str:
        """The reason why the limit of its rows or the budget does not allow the design; empty if they do."""
        if self.too_long:
            runs = (
                f"run{'s' if len(self.too_long) > 1 else ''} {', '.join(map(str, self.too_long))} of {len(self.rows)}"
            )
            return f"{runs} would be ended by max_runtime_minutes: {next(iter(self.too_long.values()))}"
        if budget_usd is None or self.worst_usd is None or self.worst_usd <= budget_usd:
            return ""
        estimated = "" if self.usd is None else f" (estimated {self.usd:.4g})"
        return (
            f"the design can cost {self.worst_usd:.4g} USD at worst{estimated}, budget_usd is {budget_usd:g}: raise "
            "it, lower max_runtime_minutes, or take fewer runs"
        )


def bill_of(specs: Sequence[JobSpec], workplace: Workplace, *, budget_usd: float | None) -> Bill:
    """The bill of these jobs. Under a budget each gets a maximum runtime close to its estimate, as in a study.

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
    return Bill(
        rows=rows,
        remarks=remarks,
        too_long={run: text for run, job in enumerate(jobs, start=1) if (text := limit_refusal(job))},
        warnings=warnings_of(with_history(jobs, workplace.tracking)),
        no_estimate=next((_why_no_estimate(job) for job, row in zip(jobs, rows, strict=True) if row.usd is None), ""),
    )


def _why_no_estimate(job: ForeseenJob) -> str:
    if job.spec.runs_own_training:
        return "nothing is known of a training of your own before it has run"
    if job.rows is None:
        return f"the rows of {job.spec.dataset} are unknown until they are read; set max_train_samples"
    if job.price is None:
        return f"the price of {job.spec.instance_type} is unknown"
    return f"the configuration of {job.spec.model} is unknown until it is read"


def _type_of(spec: Placement) -> str:
    return spec.instance_type


def _row(job: ForeseenJob, worst_case: WorstCase) -> RowBill:
    estimate = None
    with collecting([]):  # the launch reports why no estimate can be made
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
    return None if None in values else sum(value for value in values if value is not None)
