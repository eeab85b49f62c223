"""A recorded run, and the job that it records, read back."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from paretune.core.errors import BadInput
from paretune.core.untrusted import exists
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting
from paretune.tracking import schema

DATASET_SIZE = "dataset_size"  # rows before validation rows were split off, where an imported table tells them


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


_Value = TypeVar("_Value")


class _Recorded(Generic[_Value]):
    """A property that `read` computes from the run."""

    def __init__(self, read: Callable[[RecordedRun], _Value]) -> None:
        self._read = read

    def __get__(self, section: "_Section", owner: type) -> _Value:
        return self._read(section.run)


def _text(tag: str) -> _Recorded[str]:
    return _Recorded(lambda run: run.tags.get(tag, ""))


def _number(tag: str) -> _Recorded[float | None]:
    return _Recorded(lambda run: _number_in(run.tags.get(tag, "")))


def _metric(name: str) -> _Recorded[float | None]:
    return _Recorded(lambda run: run.metrics.get(name))


def _is_tagged(tag: str) -> _Recorded[bool]:
    return _Recorded(lambda run: tag in run.tags)


@dataclass(frozen=True)
class _Section:
    """One side of a job, read from its run. A number that is not recorded is None, a text is empty."""

    run: RecordedRun

    def param(self, name: str) -> str:
        """A parameter, as text; empty if it is not recorded."""
        return self.run.params.get(name, "")

    def _tag(self, *names: str) -> str:
        """The first of these tags that is not empty."""
        return next((text for name in names if (text := self.run.tags.get(name))), "")


class RecordedCluster(_Section):
    """The place where a job ran."""

    launcher = _text(schema.LAUNCHER)  # name of the launcher; empty for published jobs
    machine = _text(schema.MACHINE)  # name of the machine that a local job ran on

    @property
    def region(self) -> str:
        """AWS region; the region of the price if the job's own is not recorded."""
        return self._tag(schema.PRICE_REGION, schema.REGION)

    @property
    def instance_type(self) -> str:
        """The type that the last attempt ran on."""
        return self._tag(schema.USED_INSTANCE_TYPE) or self.param("instance_type")

    @property
    def instance_count(self) -> int:
        """Instances that the last attempt ran on; 1 if nothing is recorded."""
        text = self._tag(schema.USED_INSTANCE_COUNT) or self.param("instance_count")
        return int(_number_in(text) or 1)

    @property
    def is_spot(self) -> bool:
        """Whether it ran on managed spot, by its parameter or because AWS reported training seconds."""
        return bool(_number_in(self.param("spot"))) or schema.TRAINING_SECONDS in self.run.tags


class RecordedBill(_Section):
    """The bill of a job over all its attempts, and the price that `cost_usd` was computed with."""

    billable_seconds = _metric(metrics.BILLABLE_SECONDS)  # seconds billed per instance
    training_seconds = _number(schema.TRAINING_SECONDS)  # per instance, of a spot job's last attempt, if on demand
    warm_pool_seconds = _Recorded(lambda run: run.metrics.get(metrics.WARM_POOL_SECONDS, 0.0))
    """Seconds billed per instance after the job; 0 if no instances were kept, or they are not booked yet."""
    cost_usd = _metric(metrics.COST_USD)  # dollars computed from billed seconds and list price
    price_usd_per_hour = _number(schema.PRICE_USD_PER_HOUR)  # hourly price of one instance
    price_region = _text(schema.PRICE_REGION)  # region of the price
    price_as_of = _text(schema.PRICE_AS_OF)  # year, month or day of the price
    price_source = _text(schema.PRICE_SOURCE)  # the source of the price

    @property
    def effective_usd(self) -> float | None:
        """Dollars paid in effect; None before `reconcile` has read a complete bill of the job."""
        is_complete = self._tag(schema.BILL) == schema.BILL_COMPLETE
        return self.run.metrics.get(metrics.EFFECTIVE_USD) if is_complete else None


class RecordedRequest(_Section):
    """The request of a job: its specification, and the settings of its last attempt."""

    command = _text(schema.COMMAND)  # the line that repeats the job
    used_precision = _text(schema.USED_PRECISION)  # number format that it trained in; empty if not reported

    @property
    def budget(self) -> str | None:
        """File of the budgets that it counts against; as it was typed if the recorded path does not exist here."""
        recorded = self._tag(schema.BUDGET)
        typed = str((schema.given_by(self.run.tags) or {}).get("budget", ""))
        return (typed if not exists(recorded) and exists(typed) else recorded or typed) or None

    def spec(self) -> JobSpec:
        """The specification that it was launched with, in the region and bucket that its launcher used.

        Raises:
            BadInput: none is recorded, or another version has recorded parameters that are unknown here.
        """
        names = {"region": schema.REGION, "sagemaker.s3_bucket": schema.BUCKET}
        location = {name: text for name, tag in names.items() if (text := self._tag(tag))}
        given = schema.given_by(self.run.tags)
        if given is None:
            raise BadInput(["no specification of a job is recorded"])
        spec = JobSpec.read(given)
        spec = spec if self.budget == spec.budget else spec.replace(budget=self.budget)
        return spec.replace(**location) if spec.on_sagemaker else spec

    def spec_from_params(self) -> JobSpec:
        """The specification with derived batch sizes; a simulated job is returned as the real job it stands for.

        A parameter that is not recorded, because it was added later, has its default.

        Raises:
            BadInput: its parameters cannot be read.
        """
        names = JobSpec.model_fields.keys() - {*affecting(JobSpec, "launcher")}
        return JobSpec.read({name: text for name, text in self.run.params.items() if name in names})

    def spec_as_run(self) -> JobSpec:
        """`spec_from_params` on the instances that the last attempt ran on.

        Raises:
            BadInput: its parameters cannot be read.
        """
        spec, used = self.spec_from_params(), self._tag(schema.USED_INSTANCE_TYPE)
        count = RecordedCluster(self.run).instance_count
        ran = spec.on_instance_type(used) if used not in ("", spec.instance_type) else spec
        return ran if ran.instance_count == count else ran.replace(instance_count=count)

    def used_plan(self, spec: JobSpec) -> BatchPlan:
        """The batch sizes of the last attempt; those of `spec` if none are recorded."""
        tags, plan = self.run.tags, spec.plan()
        if schema.USED_BATCH not in tags:
            return plan
        size, steps = int(tags[schema.USED_BATCH]), int(tags[schema.USED_ACCUMULATION])
        return replace(plan, per_device_train_batch_size=size, gradient_accumulation_steps=steps)


class RecordedJob(_Section):
    """A job as its run records it."""

    cluster = _Recorded(RecordedCluster)  # the place where it ran
    bill = _Recorded(RecordedBill)  # its billed seconds and dollars, and the price
    request = _Recorded(RecordedRequest)  # its specification, and the settings of its last attempt
    run_id = _Recorded(lambda run: run.run_id)  # MLflow's id of the run
    name = _text("mlflow.runName")  # MLflow's name of the run
    parent_run_id = _text(schema.PARENT)  # MLflow's id of the study's run; empty if the job is part of no study
    row_key = _text(schema.ROW_KEY)  # key of the row of a table that it was imported from
    versions = _text(schema.USED_VERSIONS)  # packages that trained, such as `python 3.11.7, torch 2.13.0`
    state = _text(schema.STATE)  # `Running`, `Stopping`, `Completed`, `Failed` or `Stopped`; empty before it is created
    origin = _Recorded(lambda run: run.tags.get(schema.ORIGIN) or "measured")
    """`measured`, `simulated` or `published`; `measured` for runs that say nothing."""
    was_retried = _is_tagged(schema.OUT_OF_MEMORY_RETRIES)  # whether it ran out of memory and got a smaller batch
    is_first_attempt = _Recorded(lambda run: run.tags.get(schema.JOB_NAME, "-1").endswith("-1"))
    """Whether its recorded job name is that of the first attempt."""

    @property
    def f1(self) -> float | None:
        """Macro F1 on the validation split."""
        return self.metric(metrics.F1)

    @property
    def is_completed(self) -> bool:
        """Whether it completed."""
        return self.state == "Completed"

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether it failed for lack of memory, with the smallest batch that it was tried with."""
        reason = self.run.tags.get(schema.FAILURE_REASON, "")
        return self.state == "Failed" and reason.startswith("out of memory")

    def metric(self, name: str) -> float | None:
        """The latest value of a metric; None if it is not recorded."""
        return self.run.metrics.get(name)


def _number_in(text: str) -> float | None:
    """The number of a text, 1 for true; None if it is none."""
    with suppress(ValueError):
        return 1.0 if text.lower() == "true" else float(text)
    return None
