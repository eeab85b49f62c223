"""Duration, cost and memory before anything is paid for: the table of estimates, probed if asked for."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.commands.estimate.command import EstimateRequest
from paretune.commands.estimate.table import EstimateTable
from paretune.core.clock import SystemClock
from paretune.core.commands import command_line, options
from paretune.core.errors import collecting, refuse
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture, architecture_of
from paretune.estimating.estimator import Estimate
from paretune.estimating.forecast import Forecast
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS
from paretune.jobs.preparation import load_cached_inputs
from paretune.jobs.preview import ForeseenJob, disk_bytes, warnings_of
from paretune.jobs.workplace import home_of, open_tracking
from paretune.pricing.prices import Price, PriceList, usual_price
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting
from paretune.specification.profile import completed
from paretune.specification.regions import usual_region
from paretune.tracking import schema

if TYPE_CHECKING:
    from paretune.tracking import Tracking

# What decides which rows a job gets, and how they are prepared.
_OF_THE_DATA = affecting(JobSpec, "data")
_Facts = Mapping[str, float] | None


def estimate(
    specs: JobSpec | Iterable[JobSpec],
    *,
    record: bool = False,
    **choices: object,
) -> EstimateTable:
    """Seconds, dollars and memory of jobs before paying, with 80 % intervals; nothing is launched.

    Args:
        specs: the jobs; parameters that have their default are taken from `paretune.toml`.
        record: keep the table in an MLflow run.
        choices: parameters of a job, each with one value or a list; every combination makes a row per job.

    Of jobs with a project or an entry_script, the seconds and dollars that their finished runs tell.

    Raises:
        BadInput: all faults of all rows.
        TrackingUnavailable: the MLflow store, whose runs are evidence, does not answer.

    Examples:
        >>> import paretune
        >>> job = paretune.JobSpec(model="distilbert-base-uncased", max_train_samples=100_000, global_batch_size=64)
        >>> table = paretune.estimate(job, instance_type=["ml.g5.xlarge", "ml.p4d.24xlarge"], region="us-east-1")
        >>> frame = table.to_frame()
        >>> frame[["instance_type", "per_device_train_batch_size", "on_front", "fits"]].values.tolist()
        [['ml.g5.xlarge', 16, True, 'yes'], ['ml.p4d.24xlarge', 8, True, 'yes']]
    """
    jobs = [specs] if isinstance(specs, JobSpec) else list(specs)
    lists = {
        name: value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for name, value in choices.items()
    }
    request = EstimateRequest.of([spec.changed() for spec in jobs], lists, record)
    request = replace(request, specs=tuple(completed(spec, os.environ) for spec in request.specs))
    return run_estimate(request)


def run_estimate(request: EstimateRequest) -> EstimateTable:
    """The table of the request."""
    environment, first = dict(os.environ), request.specs[0]
    is_recorded = request.record or "MLFLOW_RUN_ID" in environment

    def opened() -> Forecast:
        is_there = is_recorded or has_store(environment)
        return Forecast(open_tracking(environment, SystemClock()) if is_there else None, simulated=first.is_simulated)

    prices = PriceList.read(environment)
    priced = [(spec, usual_price(spec, prices, environment)) for spec in request.specs]
    region = usual_region(first.region, environment)
    table = _own_table(priced, region, opened()) if first.runs_own_training else _our_table(priced, region, opened)
    if not is_recorded:
        return table
    run_id, open_command = _record(table, open_tracking(environment, SystemClock()))
    return replace(table, run_id=run_id, open_command=open_command)


def has_store(environment: Mapping[str, str]) -> bool:
    """Whether MLflow has a store already, as its settings say and without importing it."""
    address = environment.get("MLFLOW_TRACKING_URI", "")
    if "mlflow" in sys.modules or (address and not address.startswith("sqlite:///")):
        return True
    return Path(address.removeprefix("sqlite:///") or "mlflow.db").exists() or Path("mlruns").exists()


def _own_table(priced: Sequence[tuple[JobSpec, Price | None]], region: str, forecast: Forecast) -> EstimateTable:
    """What finished runs tell of a user's own training, and nothing before one has finished."""
    jobs = [(spec, forecast.own_training.predict(spec, price)) for spec, price in priced]
    remarks = ["seconds of a training of your own are learnt from its runs on each cluster: run one job, or a study"]
    return EstimateTable(
        jobs=jobs,
        region=region,
        remarks=remarks if any(item is None for _, item in jobs) else [],
    )


def _our_table(
    priced: Sequence[tuple[JobSpec, Price | None]],
    region: str,
    opened: Callable[[], Forecast],
) -> EstimateTable:
    """The table of paretune's own training; BadInput with the faults of all models, data sets and number formats."""
    specs, environment, faults = [spec for spec, _ in priced], dict(os.environ), list[str]()
    built: dict[str, Architecture] = {}
    for model, task in {spec.model: spec.task for spec in specs}.items():
        with collecting(faults):
            built[model] = architecture_of(model, task, environment)
    refuse(faults)
    facts = _facts(specs, home_of(environment))
    refuse(list(dict.fromkeys(_faults(specs, facts))))
    estimator, jobs, estimates = opened().estimator, [], []
    for (spec, price), facts_of_rows in zip(priced, facts, strict=True):
        architecture = built[spec.model]
        item = estimator.estimate(spec, architecture, price, facts=facts_of_rows)
        if item is not None:
            item = replace(item, largest_batch=estimator.largest_batch(item, architecture, facts_of_rows))
            estimates.append(item)
        disk = disk_bytes(spec, JobInputs(), architecture)
        jobs.append(ForeseenJob(spec=spec, region=region, disk_bytes=disk, price=price, estimate=item))
    return EstimateTable(
        jobs=[(item.spec, item) for item in estimates],
        region=region,
        remarks=_remarks(estimates),
        warnings=warnings_of(jobs),
    )


def _facts(specs: Sequence[JobSpec], home: Path) -> list[_Facts]:
    """What earlier preparations, for this cluster or for this machine, tell of the rows of each job."""

    def look_up(spec: JobSpec) -> _Facts:
        inputs = load_cached_inputs(spec, home)
        return None if inputs is None or inputs.dataset is None else inputs.dataset.facts

    of_data = [JobSpec.read({name: spec.as_text()[name] for name in _OF_THE_DATA}) for spec in specs]
    return [look_up(spec) or look_up(local) for spec, local in zip(specs, of_data, strict=True)]


def _faults(specs: Sequence[JobSpec], facts: Sequence[_Facts]) -> Iterator[str]:
    """The reasons why the launch would refuse the number format, and why the rows of a data set cannot be known."""
    for spec, known in zip(specs, facts, strict=True):
        for instance in map(spec.instance, spec.instance_types() if spec.has_instances else ()):
            yield from hardware.precision_faults(spec.precision, instance)
        if known is None and spec.dataset not in BUNDLED_ROWS and spec.max_train_samples is None:
            yield (
                f"dataset {spec.dataset}: nobody knows its rows yet: give max_train_samples (and max_seq_length), or "
                f"prepare it once with `{command_line('train', {'dataset': spec.dataset, 'dry_run': 'true'})}`"
            )


def _remarks(estimates: Sequence[Estimate]) -> list[str]:
    remarks = []
    if any(item.spec.spot for item in estimates):
        remarks.append(
            "spot: dollars and seconds are those of a job on demand; AWS bills less, and interruptions make it longer"
        )
    if any(not item.measured_here for item in estimates):
        remarks.append(
            "rows whose basis is not this cluster have wide intervals: a short job there, "
            f"`paretune train {options(probe_steps=PROBE_STEPS)}`, narrows them"
        )
    load, cores = os.getloadavg()[0], hardware.usable_cores()
    if load > cores and any(not item.spec.has_instances for item in estimates):
        remarks.append(f"this machine is busy (load {load:.1f} on {cores} processors): a job here may take longer")
    return remarks


def _record(table: EstimateTable, tracking: "Tracking") -> tuple[str, str]:
    """Keep the table in a run; its id, and the command that opens it."""
    from paretune.tracking import RunStatus

    run = tracking.begin("estimate")
    note = f"**{table.title.capitalize()}.** Seconds, dollars and memory with their intervals: `estimate.csv`."
    run.set_tags({schema.KIND: "estimate", schema.ORIGIN: schema.ESTIMATED, schema.NOTE: note})
    run.log_text(table.csv(), "estimate.csv")
    run.end(RunStatus.FINISHED)
    return run.run_id, tracking.open_command(run.run_id)
