"""A run that was read back from MLflow, and the job that it records."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from paretune.core.errors import BadInput
from paretune.core.reading import exists
from paretune.specification import catalog, metrics
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.launchers import known
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price
from paretune.tracking import schema

NO_PRICE: Mapping[str, str] = dict.fromkeys(
    (schema.PRICE_USD_PER_HOUR, schema.PRICE_REGION, schema.PRICE_AS_OF, schema.PRICE_SOURCE), ""
)
"""Tags that replace those of `price_tags` if the price is unknown."""
DATASET_SIZE = "dataset_size"  # parameter: rows before validation rows were split off; only imported tables have it


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it, and the job that it records, read from its parameters, tags and metrics.

    A number that is not recorded is None, and a string that is not recorded is empty, unless the property says
    otherwise. Anybody may have edited a tag, so no property raises an error because of a tag. Only the methods `spec`
    and `spec_as_run` do.

    Attributes:
        metrics: the latest value of each metric, and the facts that tags hold (`specification.metrics.FACTS`), by name.
        started: when the run started, in seconds since the epoch.
        ended_at: when the run ended, in seconds since the epoch; 0 while the run is open.
        is_deleted: whether the run, or its experiment, was deleted in MLflow; `mlflow gc` then removes it for good.
    """

    run_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    ended_at: float = 0.0
    is_deleted: bool = False

    @property
    def name(self) -> str:
        """The name of the run, as the user sees it."""
        return self.tags.get(schema.RUN_NAME, "")

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of the run and, if it continues the record of a removed run, the id of that run."""
        continued = self.tags.get(schema.CONTINUES, "")
        return (self.run_id, continued) if continued else (self.run_id,)

    @property
    def row_key(self) -> str:
        """The key of the table row that the run was imported from."""
        return self.tags.get(schema.ROW_KEY, "")

    @property
    def versions(self) -> str:
        """The software versions that the job trained with, such as `python 3.11.7, torch 2.13.0`."""
        return self.tags.get(schema.USED_VERSIONS, "")

    @property
    def used_precision(self) -> str:
        """The number format that the job trained in."""
        return self.tags.get(schema.USED_PRECISION, "")

    @property
    def state(self) -> str:
        """The state of the job, see `schema.STATE`; empty if the run has no job."""
        return self.tags.get(schema.STATE, "")

    @property
    def origin(self) -> str:
        """The origin of the job's figures, such as `simulated` or `published`; `measured` if none is recorded."""
        return self.tags.get(schema.ORIGIN) or "measured"

    @property
    def attempts(self) -> int:
        """The number of attempts of the job; 1 if it is not recorded."""
        number = self.tags.get(schema.JOB_NAME, "").rpartition("-")[2]  # see `specification.order.job_name`
        return int(number) if number.isdecimal() and len(number) < 6 else 1

    @property
    def was_retried(self) -> bool:
        """Whether the job ran out of memory and was retried with a smaller per-device batch."""
        return schema.OUT_OF_MEMORY_RETRIES in self.tags

    @property
    def is_completed(self) -> bool:
        """Whether the job has a result."""
        return self.state == "Completed"

    @property
    def has_job(self) -> bool:
        """Whether the job that the run names definitely belongs to this run.

        Before a job is created, several runs may name the same job.
        """
        was_seen = bool(self.tags.get(schema.SECONDARY_STATUS)) or self.state not in ("", "Running")
        return bool(self.tags.get(schema.JOB_NAME)) and was_seen

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the job failed because it ran out of memory."""
        return self.state == "Failed" and self.tags.get(schema.CAUSE) == Cause.OUT_OF_MEMORY.value

    @property
    def takes_seed(self) -> bool:
        """Whether the training gets the seed of its job; if not, the seed is not among the parameters."""
        return "seed" in self.params

    @property
    def launcher(self) -> str:
        """The name of the launcher; empty for published jobs."""
        return self.tags.get(schema.LAUNCHER, "")

    @property
    def machine(self) -> str:
        """The name of the machine that a local job ran on."""
        return self.tags.get(schema.MACHINE, "")

    def ran_elsewhere(self, machine: str) -> bool:
        """Return whether this is a local job that ran on another machine than the one with this name."""
        return self.param("instance_type") in {"", "local"} and (self.machine or machine) != machine

    @property
    def region(self) -> str:
        """The region of the recorded price, or else of the job."""
        return self.tags.get(schema.PRICE_REGION) or self.tags.get(schema.REGION, "")

    @property
    def instance_type(self) -> str:
        """The instance type of the last attempt."""
        return self.tags.get(schema.USED_INSTANCE_TYPE) or self.param("instance_type")

    @property
    def instance_count(self) -> int:
        """The number of instances of the last attempt; 1 if it is not recorded."""
        return int(number_in(self.tags.get(schema.USED_INSTANCE_COUNT) or self.param("instance_count")) or 1)

    @property
    def is_spot(self) -> bool:
        """Whether the job ran on spot instances."""
        return bool(number_in(self.param("spot"))) or schema.TRAINING_SECONDS in self.tags

    @property
    def billable_seconds(self) -> float | None:
        """Billed seconds of all attempts, per instance."""
        return self.metrics.get(metrics.BILLABLE_SECONDS)

    @property
    def warm_pool_seconds(self) -> float:
        """Seconds per instance for which instances were kept after the job; 0 if none are recorded."""
        return self.metrics.get(metrics.WARM_POOL_SECONDS, 0.0)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts; None if a price is unknown, even if the run has the cost so far of its job."""
        is_unpriced = self.tags.get(schema.PRICE_USD_PER_HOUR) == ""  # without a price, the tag is absent or empty
        return None if is_unpriced else self.metrics.get(metrics.COST_USD)

    @property
    def effective_usd(self) -> float | None:
        """The effective cost in dollars, with Savings Plans and reservations; None until the bill is complete."""
        is_billed = self.tags.get(schema.BILL) == schema.BILL_COMPLETE
        return self.metrics.get(metrics.EFFECTIVE_USD) if is_billed else None

    @property
    def price_usd_per_hour(self) -> float | None:
        """The hourly price of one instance with which `cost_usd` was computed."""
        return number_in(self.tags.get(schema.PRICE_USD_PER_HOUR, ""))

    @property
    def price_region(self) -> str:
        """The region of `price_usd_per_hour`."""
        return self.tags.get(schema.PRICE_REGION, "")

    @property
    def price_as_of(self) -> str:
        """The year, month or day of `price_usd_per_hour`."""
        return self.tags.get(schema.PRICE_AS_OF, "")

    @property
    def price_source(self) -> str:
        """The source of `price_usd_per_hour`."""
        return self.tags.get(schema.PRICE_SOURCE, "")

    def param(self, name: str) -> str:
        """Return a parameter as text; empty if it is not recorded."""
        return self.params.get(name, "")

    @property
    def budget(self) -> str | None:
        """The budget file that the job counts against: the recorded path, or the typed one if only that exists here.

        None if neither is recorded.
        """
        recorded = self.tags.get(schema.BUDGET, "")
        typed = str((schema.given_by(self.tags) or {}).get("budget", ""))
        return (typed if not exists(recorded) and exists(typed) else recorded or typed) or None

    def spec(self) -> JobSpec:
        """Return the specification that the job was launched with, in the region that its launcher used.

        Raises BadInput if none is recorded or it is invalid, as when another version of paretune recorded it.
        """
        given = schema.given_by(self.tags)
        if given is None:
            raise BadInput(["no specification of a job is recorded"])
        spec = JobSpec.read(given)
        spec = spec if self.budget == spec.budget else spec.replace(budget=self.budget)
        region = self.tags.get(schema.REGION)
        return spec.replace(region=region) if region and spec.runs_on.has_regions else spec

    @property
    def is_billed(self) -> bool:
        """Whether the dollars are billed, or would be if a simulated job were real; otherwise they are notional."""
        launcher = known().get(self.launcher)
        return (catalog.owner(self.instance_type) if launcher is None or launcher.is_simulated else launcher).is_billed

    def spec_as_run(self) -> JobSpec:
        """Return the specification with the batch sizes derived at launch, on the instances of the last attempt.

        A simulated job is returned as the real job that it simulates. Parameters that are not recorded have their
        defaults. Raises BadInput if the recorded parameters cannot be read.
        """
        names = JobSpec.model_fields.keys() - {*parameters_affecting("launcher")}
        spec = JobSpec.read({name: text for name, text in self.params.items() if name in names})
        used = self.tags.get(schema.USED_INSTANCE_TYPE, "")
        ran = spec.on_instance_type(used) if used not in ("", spec.instance_type) else spec
        return ran if ran.instance_count == self.instance_count else ran.replace(instance_count=self.instance_count)

    def used_plan(self, plan: BatchPlan) -> BatchPlan:
        """Return the plan with the batch sizes of the last attempt, if they are recorded."""
        size, steps = (number_in(self.tags.get(name, "")) for name in (schema.USED_BATCH, schema.USED_ACCUMULATION))
        if not size or not steps:
            return plan
        return replace(plan, per_device_train_batch_size=int(size), gradient_accumulation_steps=int(steps))


def number_in(text: str) -> float | None:
    """Return the nonnegative number in the text of a parameter or tag, 1 for `true`; None for any other text."""
    with suppress(ValueError):
        number = 1.0 if text.lower() == "true" else float(text)
        return number if math.isfinite(number) and number >= 0 else None
    return None


def facts_by(tags: Mapping[str, str]) -> dict[str, float]:
    """Return the facts in a run's tags, see `metrics.FACTS`, and the baselines; a tag that is no number is ignored."""
    names = sorted(metrics.FACTS | metrics.BASELINES)
    numbers = {name: number_in(tags.get(f"{schema.PREFIX}{name}", "")) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}


def price_tags(price: Price | None) -> dict[str, str]:
    """Return tags with the price, in full precision because AWS's bill is compared with it; empty if it is unknown."""
    if price is None:
        return {}
    tags = {
        schema.PRICE_USD_PER_HOUR: repr(price.usd_per_hour).removesuffix(".0"),
        schema.PRICE_REGION: price.region,
        schema.PRICE_AS_OF: price.as_of,
        schema.PRICE_SOURCE: price.source,
    }
    return {name: text for name, text in tags.items() if text}


def recorded_price(tags: Mapping[str, str], today: Price | None) -> Price | None:
    """Return the price that `price_tags` recorded, with the type and confidence of `today`, or None."""
    if (usd := number_in(tags.get(schema.PRICE_USD_PER_HOUR, ""))) is None:
        return None
    return Price(
        usd_per_hour=usd,
        region=tags.get(schema.PRICE_REGION, ""),
        as_of=tags.get(schema.PRICE_AS_OF, ""),
        source=tags.get(schema.PRICE_SOURCE, ""),
        instance_type="" if today is None else today.instance_type,
        confidence="confirmed" if today is None else today.confidence,
    )
