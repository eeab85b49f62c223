"""Reads a recorded run and its job back from MLflow."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from paretune.core.errors import BadInput
from paretune.core.untrusted import exists
from paretune.specification import catalog, metrics
from paretune.specification.job import JobSpec
from paretune.specification.launchers import known
from paretune.specification.parallelism import BatchPlan
from paretune.specification.parameters import affecting
from paretune.tracking import schema

DATASET_SIZE = "dataset_size"  # rows before validation rows were split off, if an imported table has them


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it: parameters, tags and the latest value of each metric.

    `started` and `ended_at` are in seconds since the epoch; `ended_at` is 0 while the run is open.
    """

    run_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    ended_at: float = 0.0


class RecordedJob:
    """A job as recorded by its run. Numbers that are not recorded are None, and texts are empty."""

    def __init__(self, run: RecordedRun) -> None:
        tags, measured = run.tags, run.metrics
        self.run = run
        self.run_id = run.run_id
        self.name = tags.get(schema.RUN_NAME, "")
        self.row_key = tags.get(schema.ROW_KEY, "")  # key of the row of a table that it was imported from
        self.versions = tags.get(schema.USED_VERSIONS, "")  # such as `python 3.11.7, torch 2.13.0`
        self.state = tags.get(schema.STATE, "")  # see there; empty before the job is created
        self.origin = tags.get(schema.ORIGIN) or "measured"  # or `simulated`, `published`
        self.was_retried = schema.OUT_OF_MEMORY_RETRIES in tags  # with a smaller batch
        self.is_completed = self.state == "Completed"
        # Several runs may name a job before it is created; it has been seen to be this one's if one of these is there.
        self.has_job = bool(tags.get(schema.JOB_NAME)) and bool(
            tags.get(schema.SECONDARY_STATUS) or self.state not in ("", "Running")
        )
        reason = tags.get(schema.FAILURE_REASON, "")
        self.ran_out_of_memory = self.state == "Failed" and reason.startswith("out of memory")
        # Where it ran in the last attempt
        self.launcher = tags.get(schema.LAUNCHER, "")  # empty for published jobs
        self.machine = tags.get(schema.MACHINE, "")  # name of the machine that a local job ran on
        self.region = tags.get(schema.PRICE_REGION) or tags.get(schema.REGION, "")
        self.instance_type = tags.get(schema.USED_INSTANCE_TYPE) or self.param("instance_type")
        self.instance_count = int(number_in(tags.get(schema.USED_INSTANCE_COUNT) or self.param("instance_count")) or 1)
        self.is_spot = bool(number_in(self.param("spot"))) or schema.TRAINING_SECONDS in tags
        self.used_precision = tags.get(schema.USED_PRECISION, "")  # number format of the training
        # The bill of all attempts, and the price used for `cost_usd`
        self.billable_seconds = measured.get(metrics.BILLABLE_SECONDS)  # per instance
        self.warm_pool_seconds = measured.get(metrics.WARM_POOL_SECONDS, 0.0)  # per instance, recorded after the job
        self.cost_usd = measured.get(metrics.COST_USD)
        is_billed = tags.get(schema.BILL) == schema.BILL_COMPLETE
        self.effective_usd = measured.get(metrics.EFFECTIVE_USD) if is_billed else None  # from a complete bill
        self.price_usd_per_hour = number_in(tags.get(schema.PRICE_USD_PER_HOUR, ""))  # of one instance
        self.price_region = tags.get(schema.PRICE_REGION, "")
        self.price_as_of = tags.get(schema.PRICE_AS_OF, "")  # year, month or day
        self.price_source = tags.get(schema.PRICE_SOURCE, "")

    def param(self, name: str) -> str:
        """Return a parameter as text; empty if it is not recorded."""
        return self.run.params.get(name, "")

    def metric(self, name: str) -> float | None:
        """Return the latest value of a metric, or None if it is not recorded."""
        return self.run.metrics.get(name)

    @property
    def budget(self) -> str | None:
        """File of the budgets that it counts against; as it was typed if the recorded path does not exist here."""
        recorded = self.run.tags.get(schema.BUDGET, "")
        typed = str((schema.given_by(self.run.tags) or {}).get("budget", ""))
        return (typed if not exists(recorded) and exists(typed) else recorded or typed) or None

    def spec(self) -> JobSpec:
        """Return the specification that the job was launched with, in the region that its launcher used.

        Raises BadInput if none is recorded, or another version has recorded parameters that are unknown here.
        """
        given = schema.given_by(self.run.tags)
        if given is None:
            raise BadInput(["no specification of a job is recorded"])
        spec = JobSpec.read(given)
        spec = spec if self.budget == spec.budget else spec.replace(budget=self.budget)
        region = self.run.tags.get(schema.REGION)
        return spec.replace(region=region) if region and spec.runs_on.has_regions else spec

    @property
    def is_billed(self) -> bool:
        """Whether somebody bills its dollars, or would bill those of the job that it simulates; else notional."""
        launcher = known().get(self.launcher)
        return (catalog.owner(self.instance_type) if launcher is None or launcher.is_simulated else launcher).is_billed

    def spec_as_run(self) -> JobSpec:
        """Return the specification with derived batch sizes, on the instances of the last attempt.

        A simulated job is returned as the real job that it stands for. What is not recorded has its default. Raises
        BadInput if its parameters cannot be read.
        """
        names = JobSpec.model_fields.keys() - {*affecting(JobSpec, "launcher")}
        spec = JobSpec.read({name: text for name, text in self.run.params.items() if name in names})
        used = self.run.tags.get(schema.USED_INSTANCE_TYPE, "")
        ran = spec.on_instance_type(used) if used not in ("", spec.instance_type) else spec
        return ran if ran.instance_count == self.instance_count else ran.replace(instance_count=self.instance_count)

    def used_plan(self, spec: JobSpec) -> BatchPlan:
        """Return the batch sizes of the last attempt, or those of `spec` if none are recorded."""
        plan = spec.plan()
        size, steps = (number_in(self.run.tags.get(name, "")) for name in (schema.USED_BATCH, schema.USED_ACCUMULATION))
        if not size or not steps:
            return plan
        return replace(plan, per_device_train_batch_size=int(size), gradient_accumulation_steps=int(steps))


def number_in(text: str) -> float | None:
    """Return the nonnegative number that a parameter or tag holds, 1 for `true`; None if it holds none."""
    with suppress(ValueError):
        number = 1.0 if text.lower() == "true" else float(text)
        return number if math.isfinite(number) and number >= 0 else None
    return None
