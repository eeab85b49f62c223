"""A recorded run, and the job that it records, read back."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from paretune.core.commands import parameters_of
from paretune.core.errors import BadInput
from paretune.core.untrusted import exists
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting, parse
from paretune.specification.program import PROJECT
from paretune.tracking import schema

DATASET_SIZE = "dataset_size"
"""Parameter of a run: rows before validation rows were split off, where an imported table tells them."""
_STATES = {"InProgress": "Running"}
"""SageMaker's word for a state, which runs of other projects had until 2026-11, to ours."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it: parameters, tags, the latest value of each metric, start in seconds since the epoch.

    `ended` likewise; 0 while it is open.
    """

    run_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0


class _Tag:
    """A tag of a job's run as an attribute of the job."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, job: "RecordedJob", _: type) -> str:
        return job.run.tags.get(self._name, "")


@dataclass(frozen=True)
class RecordedJob:
    """A job as its run tells it. A number that the run does not tell is None, a text is empty."""

    run: RecordedRun

    name = _Tag(MLFLOW_RUN_NAME)  # MLflow's name of the run
    launcher = _Tag(schema.LAUNCHER)  # name of the launcher; empty for published jobs
    machine = _Tag(schema.MACHINE)  # name of the machine that a local job ran on
    command = _Tag(schema.COMMAND)  # the line that repeats it
    row_key = _Tag(schema.ROW_KEY)  # of the row that it was imported from
    versions = _Tag(schema.USED_VERSIONS)  # of what trained, in words
    parent_run_id = _Tag(MLFLOW_PARENT_RUN_ID)  # of the study's run
    price_region = _Tag(schema.PRICE_REGION)  # whose price `cost_usd` was computed with
    price_as_of = _Tag(schema.PRICE_AS_OF)  # year, month or day of that price
    price_source = _Tag(schema.PRICE_SOURCE)  # where that price was read

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self.run.run_id

    @property
    def is_foreign(self) -> bool:
        """Whether it ran the command of another project, which has no parameters and no F1 of ours."""
        return schema.LOGGING in self.run.tags

    @property
    def origin(self) -> str:
        """`measured`, `simulated` or `published`. Runs of other projects had none until 2026-11: they are measured."""
        return self._tag(schema.ORIGIN) or "measured"

    @property
    def state(self) -> str:
        """`Running`, `Stopping`, `Completed`, `Failed` or `Stopped`; empty before the job is created."""
        return _STATES.get(self._tag(schema.STATE), self._tag(schema.STATE))

    @property
    def is_completed(self) -> bool:
        """Whether it has ended well."""
        return self.state == "Completed"

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether it failed for lack of memory, with the smallest batch that it was tried with."""
        return self.state == "Failed" and self._tag(schema.FAILURE_REASON).startswith("out of memory")

    @property
    def is_of_shared_job(self) -> bool:
        """Whether it was one of several trials that one job has trained."""
        return schema.SHARED_JOB in self.run.tags

    @property
    def was_retried(self) -> bool:
        """Whether it ran out of memory and was tried again with a smaller per-device batch."""
        return schema.OUT_OF_MEMORY_RETRIES in self.run.tags

    @property
    def is_first_attempt(self) -> bool:
        """Whether the job that its name names is the first one of the run."""
        return self._tag(schema.JOB_NAME).endswith("-1") or schema.JOB_NAME not in self.run.tags

    @property
    def region(self) -> str:
        """Where it ran in AWS; where that is not recorded, whose price it was billed at."""
        return self._tag(schema.PRICE_REGION) or self._tag(schema.REGION)

    @property
    def instance_type(self) -> str:
        """The type that it ran on in the end."""
        asked = self.param("instance_type") or self._tag(schema.INSTANCE_TYPE)
        return self._tag(schema.USED_INSTANCE_TYPE) or asked

    @property
    def instance_count(self) -> int:
        """Instances that it ran on; 1 where nothing is recorded."""
        asked = self.param("instance_count") or self._tag(schema.INSTANCE_COUNT)
        text = self._tag(schema.USED_INSTANCE_COUNT) or asked
        return int(_parsed("instance_count", text, int) or 1)

    @property
    def is_spot(self) -> bool:
        """Whether it ran on managed spot: its parameter says so, or AWS, which tells training seconds of such jobs."""
        return bool(_parsed("spot", self.param("spot"), bool)) or schema.TRAINING_SECONDS in self.run.tags

    @property
    def f1(self) -> float | None:
        """Macro F1 on the validation split."""
        return self.metric(metrics.F1)

    @property
    def billable_seconds(self) -> float | None:
        """Seconds billed per instance, of all attempts."""
        return self.run.metrics.get(metrics.BILLABLE_SECONDS)

    @property
    def warm_pool_seconds(self) -> float:
        """Seconds billed per instance after the job; 0 where its instances were not kept, or are not booked yet."""
        return self.run.metrics.get(metrics.WARM_POOL_SECONDS, 0.0)

    @property
    def training_seconds(self) -> float | None:
        """Seconds per instance that the last attempt of a spot job would have been billed on demand."""
        return self._number(schema.TRAINING_SECONDS)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts."""
        return self.run.metrics.get(metrics.COST_USD)

    @property
    def effective_usd(self) -> float | None:
        """Dollars that are paid for it in effect; None before `reconcile` has read a bill that tells all of them."""
        is_told = self._tag(schema.BILL) == schema.BILL_COMPLETE
        return self.run.metrics.get(metrics.EFFECTIVE_USD) if is_told else None

    @property
    def is_on_plan(self) -> bool:
        """Whether it has run on a training plan: its hours cost nothing more."""
        usd_per_hour = self.price_usd_per_hour
        return bool(self.param("training_plan")) if usd_per_hour is None else usd_per_hour == 0

    @property
    def plan_share_usd(self) -> float | None:
        """Dollars of a training plan's upfront fee that it has used up, in no cost; None of most jobs."""
        return self.run.metrics.get(metrics.PLAN_SHARE_USD)

    @property
    def price_usd_per_hour(self) -> float | None:
        """Of one instance, as `cost_usd` was computed."""
        return self._number(schema.PRICE_USD_PER_HOUR)

    def param(self, name: str) -> str:
        """A parameter of ours, as text; empty for a job of another project, which may call its own the same."""
        return "" if self.is_foreign else self.run.params.get(name, "")

    def metric(self, name: str) -> float | None:
        """The latest value of a metric of ours that the training recorded; None for a job of another project."""
        return None if self.is_foreign else self.run.metrics.get(name)

    def spec(self) -> JobSpec:
        """The specification that it was launched with, in the region, bucket and queue that its launcher found.

        Raises:
            BadInput: none is recorded, or another version has recorded parameters that are unknown here.
        """
        names = {"region": schema.REGION, "bucket": schema.BUCKET, "queue": schema.QUEUE}
        tags = {name: self._tag(tag) for name, tag in names.items()}
        location = {name: text for name, text in tags.items() if text}
        if self.is_foreign:
            cluster = {"instance_type": self.instance_type, "instance_count": self.instance_count}
            return JobSpec(launcher="sagemaker", entry_script=PROJECT, budget=self.budget, **cluster, **location)  # type: ignore[arg-type]
        if not self.command:
            raise BadInput(["no command of paretune is recorded"])
        spec = JobSpec.from_text(parameters_of(self.command))
        spec = spec if self.budget == spec.budget else spec.replace(budget=self.budget)
        return spec.replace(**location) if spec.on_sagemaker else spec

    @property
    def budget(self) -> str | None:
        """File of the budgets that it counts against; as it was typed where the recorded path leads nowhere here."""
        recorded, typed = self._tag(schema.BUDGET), ""
        if self.command and not self.is_foreign:
            with suppress(ValueError):
                typed = parameters_of(self.command).get("budget", "")
        return (typed if not exists(recorded) and exists(typed) else recorded or typed) or None

    def spec_from_params(self) -> JobSpec:
        """The specification with derived batch sizes; a simulated job is given as the real one that it stands for.

        A parameter that is not recorded, because it was added later, has its default.

        Raises:
            BadInput: it is no job of ours, or its parameters cannot be read.
        """
        if self.is_foreign:
            raise BadInput(["it ran the command of another project"])
        known = {item.name for item in fields(JobSpec)} - {*affecting(JobSpec, "launcher")}
        return JobSpec.from_text({name: text for name, text in self.run.params.items() if name in known})

    def spec_as_run(self) -> JobSpec:
        """The same on the instances that it ran on in the end.

        Raises:
            BadInput: it is no job of ours, or its parameters cannot be read.
        """
        spec, used = self.spec_from_params(), self._tag(schema.USED_INSTANCE_TYPE)
        ran = spec.on_instance_type(used) if used not in ("", spec.instance_type) else spec
        return ran if ran.instance_count == self.instance_count else ran.replace(instance_count=self.instance_count)

    @property
    def used_precision(self) -> str:
        """The number format that it trained in; empty where it has not said so."""
        return self._tag(schema.USED_PRECISION)

    def used_plan(self, spec: JobSpec) -> BatchPlan:
        """The batch sizes that its last attempt ran with; those of `spec` where none are recorded."""
        return _plan(spec, self.run.tags, schema.USED_BATCH, schema.USED_ACCUMULATION)

    def _tag(self, name: str) -> str:
        return self.run.tags.get(name, "")

    def _number(self, name: str) -> float | None:
        return _parsed(name, self._tag(name), float)


def first_plan(spec: JobSpec, tags: Mapping[str, str]) -> BatchPlan:
    """The batch sizes that the first attempt of a job began with, from its run's tags; else those of `spec`."""
    return _plan(spec, tags, schema.FIRST_BATCH, schema.FIRST_ACCUMULATION)


def _plan(spec: JobSpec, tags: Mapping[str, str], batch: str, accumulation: str) -> BatchPlan:
    if batch not in tags:
        return spec.plan()
    size, steps = int(tags[batch]), int(tags[accumulation])
    return replace(spec.plan(), per_device_train_batch_size=size, gradient_accumulation_steps=steps)


def _parsed(name: str, text: str, kind: type) -> float | None:
    """The number or truth value that a text means, in a user's own spelling too; None where it means none."""
    try:
        return float(parse(name, text, kind))
    except ValueError:
        return None
