"""Duration, cost and memory before anything is paid for: the table of estimates, probed if asked for."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.commands.estimate.command import EstimateRequest
from paretune.commands.estimate.own_trainings import OwnEstimates, estimate_own
from paretune.commands.estimate.probing import probes, require_limit, run_probes
from paretune.commands.estimate.table import EstimateTable, as_csv, figure, note
from paretune.commands.estimate.tracing import trace
from paretune.core.clock import SystemClock
from paretune.core.commands import command_line
from paretune.core.errors import BadInput, JobFailed, refuse
from paretune.core.packages import training_is_missing
from paretune.core.untrusted import markdown
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimate, Estimator, architecture_of
from paretune.estimating.evidence import collect
from paretune.estimating.hardware import machine_name, precision_faults, precision_faults_here, speed_remarks
from paretune.estimating.timing_features import step_setting
from paretune.estimating.traced_step import StepSetting, TracedSteps
from paretune.estimating.workload import BUNDLED_ROWS, training_rows, workload
from paretune.jobs.advice import ForeseenJob, disk_bytes, warnings_of, with_history
from paretune.jobs.preparation import load_cached_inputs
from paretune.jobs.progress import say_on_stderr, watched
from paretune.jobs.workplace import Workplaces, open_tracking
from paretune.pricing.prices import Price, PriceList, usual_price
from paretune.specification.container import JobInputs
from paretune.specification.inputs import BUNDLED, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.specification.profile import completed
from paretune.specification.regions import usual_region
from paretune.tracking import schema

if TYPE_CHECKING:
    from paretune.tracking import Tracking

# What decides which rows a job gets, and how they are prepared.
_OF_THE_DATA = affecting(JobSpec, "data")
# What a preparation for this machine has in common with one for a cluster.
_OF_ANY_MACHINE = {*affecting(JobSpec, "data", "quality", "seconds", "memory", without=("batch",))} - {
    *affecting(JobSpec, *COMPUTES)
}


def estimate(
    specs: JobSpec | Iterable[JobSpec], *, probe: bool = False, quiet: bool = False, **choices: object
) -> EstimateTable | OwnEstimates:
    """Seconds, dollars and memory of jobs before paying, with 80 % intervals; nothing is launched unless probed.

    Args:
        specs: the jobs; parameters that have their default are taken from `paretune.toml`.
        probe: run a short job on every cluster that was never measured, within max_cost_usd.
        quiet: show no progress of probes on standard error.
        choices: parameters of a job, each with one value or a list; every combination makes a row per job.

    Of jobs with a project or an entry_script, the seconds and dollars that their finished runs tell.

    Raises:
        BadInput: all faults of all rows.
        TrackingUnavailable: the MLflow store, whose runs are evidence, does not answer.
        BudgetRefused: probes do not fit max_cost_usd; none has run.

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
    request = EstimateRequest.of(jobs, lists, probe=probe)
    request = replace(request, specs=tuple(completed(spec, os.environ) for spec in request.specs))
    table = run_estimate(request, say=(lambda _: None) if quiet else say_on_stderr, quiet=quiet)
    table.run_id  # records it  # noqa: B018
    return table


def run_estimate(
    request: EstimateRequest, *, say: Callable[[str], None] = print, quiet: bool = False
) -> EstimateTable | OwnEstimates:
    """The table of the request, recorded; what was never measured is probed first, if asked for."""
    if request.specs[0].runs_own_training:
        refuse(list(dict.fromkeys(fault for spec in request.specs for fault in missing_files(spec.as_text()))))
        environment = dict(os.environ)
        prices = PriceList.read(environment)
        hourly = [usual_price(spec, prices, environment) for spec in request.specs]
        return estimate_own(request.specs, hourly, open_tracking(environment, SystemClock()), machine_name())
    return _estimate_ours(request, say=say, quiet=quiet)


def _estimate_ours(request: EstimateRequest, *, say: Callable[[str], None], quiet: bool) -> EstimateTable:
    """The table of paretune's own trainings."""
    workplaces = Workplaces.of_process()
    environment, home = workplaces.environment, workplaces.home
    prices = PriceList.read(environment)
    region = usual_region(request.specs[0].region, environment)
    built = _architectures({spec.model: spec.task for spec in request.specs}, environment)
    facts = _facts(request.specs, home)
    refuse([*_precision_faults(request.specs, environment), *_unknown_data(request, facts)])
    steps = TracedSteps(home)
    trace(step_settings(request.specs, built, facts), steps, environment)
    if (missing := training_is_missing()) and not quiet:
        say(f"memory by formula, and not traced: {missing}")
    tracking = open_tracking(environment, SystemClock())

    def table() -> tuple[list[ForeseenJob], list[Estimate]]:
        simulated = request.specs[0].is_simulated
        estimator = Estimator(collect(tracking, simulated=simulated, machine=machine_name(), steps=steps), steps)
        jobs = [
            _foreseen(spec, data, built[spec.model], usual_price(spec, prices, environment), region, estimator)
            for spec, data in zip(request.specs, facts, strict=True)
        ]
        made = [
            replace(item, largest_batch=estimator.largest_batch(item, built[job.spec.model], data))
            for job, data in zip(jobs, facts, strict=True)
            if (item := job.estimate) is not None
        ]
        return jobs, made

    jobs, estimates = table()
    if request.probe and (chosen := probes(estimates)):
        probing = workplaces.without_opened_run()
        run_probes(
            chosen,
            require_limit(chosen),
            probing.of(chosen[0].spec).launcher.billed_after_limit_s,
            lambda spec: _run_probe(spec, probing, say, quiet=quiet),
            say,
        )
        jobs, estimates = table()
    return EstimateTable(
        estimates=estimates,
        region=region,
        remarks=[*_left_out(request.specs), *_remarks(estimates)],
        warnings=warnings_of(with_history(jobs, tracking)),
        record=lambda: _record(estimates, tracking.for_estimates()),
    )


def _architectures(tasks: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Architecture]:
    """The architecture of each model; raises BadInput with the faults of all models."""
    built: dict[str, Architecture] = {}
    faults: list[str] = []
    for model, task in tasks.items():
        try:
            built[model] = architecture_of(model, task, environment)
        except BadInput as error:
            faults += error.faults
    refuse(faults)
    return built


def _foreseen(
    spec: JobSpec,
    facts: Mapping[str, float] | None,
    built: Architecture,
    price: Price | None,
    region: str,
    estimator: Estimator,
) -> ForeseenJob:
    return ForeseenJob(
        spec=spec,
        plan=spec.plan(),
        region=region,
        rows=training_rows(spec, facts),
        disk_bytes=disk_bytes(spec, JobInputs(), built),
        price=price,
        estimate_of=lambda similar, plan: estimator.estimate(similar, built, price, plan=plan, facts=facts),
    )


def step_settings(
    specs: Sequence[JobSpec],
    built: Mapping[str, Architecture],
    facts: Sequence[Mapping[str, float] | None],
) -> list[StepSetting]:
    """The settings to trace for the memory of these jobs."""
    settings = []
    for spec, facts_of_job in zip(specs, facts, strict=True):
        work = workload(spec, spec.plan(), built[spec.model], facts_of_job)
        setting = None if work is None else step_setting(spec, built[spec.model], work.tokens)
        settings += [] if setting is None else [setting]
    return settings


def _facts_of(spec: JobSpec, home: Path, missing: set[str]) -> Mapping[str, float] | None:
    """Facts about the rows from an earlier preparation, for this cluster or for this machine; None without one.

    Preparations for this machine that do not exist are added to `missing`, and not looked up again.
    """
    inputs = load_cached_inputs(spec, home)
    for names in (_OF_ANY_MACHINE, _OF_THE_DATA):
        texts = {name: text for name, text in spec.as_text().items() if name in names}
        if inputs is None and (key := json.dumps(texts)) not in missing:
            inputs = load_cached_inputs(JobSpec.read(texts), home)
            missing.add(key)
    return inputs.dataset.facts if inputs is not None and inputs.dataset is not None else None


def _facts(specs: Sequence[JobSpec], home: Path) -> list[Mapping[str, float] | None]:
    """For each job what is known of its rows; jobs that prepare alike are looked up once."""
    facts: dict[str, Mapping[str, float] | None] = {}
    missing: set[str] = set()
    names = [json.dumps([text for name, text in spec.as_text().items() if name in _OF_THE_DATA]) for spec in specs]
    for name, spec in zip(names, specs, strict=True):
        if facts.get(name) is None:
            facts[name] = _facts_of(spec, home, missing)
    return [facts[name] for name in names]


def _precision_faults(specs: Sequence[JobSpec], environment: Mapping[str, str]) -> list[str]:
    """The reasons why the launch would refuse the number format on an instance type, or on this machine."""
    requested = dict.fromkeys(
        (spec.precision, spec.instance(name)) for spec in specs if spec.has_instances for name in spec.instance_types()
    )
    here = dict.fromkeys(spec.precision for spec in specs if not spec.has_instances and not spec.is_simulated)
    faults = [fault for precision in here for fault in precision_faults_of_this_machine(precision, environment)]
    return faults + [fault for precision, instance in requested for fault in precision_faults(precision, instance)]


def precision_faults_of_this_machine(precision: str, environment: Mapping[str, str]) -> list[str]:
    """The same for this machine, from kernel and driver alone, without PyTorch; empty for a GPU that is not listed."""
    models = hardware.gpu_models(hidden=environment.get("CUDA_VISIBLE_DEVICES"))
    accelerator = hardware.named(models[0]) if models else None
    if models and accelerator is None:
        return []
    return precision_faults_here(
        precision,
        has_bf16=(
            hardware.multiplies_bf16(hardware.processor_flags()) if accelerator is None else accelerator.has_bf16
        ),
        has_gpu=accelerator is not None,
        device=models[0] if models else hardware.processor_name(),
    )


def _unknown_data(request: EstimateRequest, facts: list[Mapping[str, float] | None]) -> list[str]:
    """The reasons why the rows of a data set cannot be known."""
    unknown = {
        spec.dataset
        for spec, data in zip(request.specs, facts, strict=True)
        if data is None
        and spec.dataset not in BUNDLED_ROWS
        and (spec.max_train_samples is None or spec.dataset.startswith(BUNDLED))
    }
    return [
        f"dataset must be {' or '.join(BUNDLED_ROWS)} where it begins with {BUNDLED}, got {name}"
        if name.startswith(BUNDLED)
        else f"dataset {name}: nobody knows its rows yet: give max_train_samples (and max_seq_length), or "
        f"prepare it once with `{command_line('main', {'dataset': name, 'dry_run': 'true'})}`"
        for name in sorted(unknown)
    ]


def _run_probe(spec: JobSpec, workplaces: Workplaces, say: Callable[[str], None], *, quiet: bool) -> float | None:
    """One probe, as a job with a run of its own; its dollars. One that fails has shown something, too."""
    from paretune.jobs.launch import run_job  # imports MLflow

    with watched(workplaces.interruption, quiet=quiet) as on_events:
        try:
            return run_job(spec, workplaces.of(spec), on_events).metrics.get("cost_usd")
        except JobFailed as error:
            say(f"the probe has failed: {error}")
            return None


def _left_out(specs: Sequence[JobSpec]) -> list[str]:
    """The reasons why instance types are not in the table."""
    types = {spec.instance_type: spec.instance() for spec in specs if spec.has_instances}
    return [remark for instance in types.values() for remark in speed_remarks(instance)]


def _remarks(estimates: Sequence[Estimate]) -> list[str]:
    remarks = []
    if any(item.spec.spot for item in estimates):
        remarks.append(
            "spot: dollars and seconds are those of a job on demand; AWS bills less, and interruptions make it longer"
        )
    if any(not item.measured_here for item in estimates):
        remarks.append(
            "rows whose basis is not this cluster have wide intervals: probe=true (with max_cost_usd) measures them "
            "with short jobs"
        )
    formulas = sum(not item.is_traced for item in estimates)
    if formulas:
        rows = "" if formulas == len(estimates) else f" of {formulas} of {len(estimates)} rows"
        remarks.append(f"memory{rows} is by formula; of others it is what the model's own code holds")
    return remarks


def _record(estimates: list[Estimate], tracking: "Tracking") -> tuple[str, str]:
    """Keep table and picture in a run; its id, and the command that opens it."""
    from paretune.tracking import RunStatus

    run = tracking.begin("estimate")
    run.set_tags({schema.KIND: "estimate", schema.ORIGIN: schema.ESTIMATED, schema.NOTE: markdown(note(estimates))})
    run.log_text(as_csv(estimates), "estimate.csv")
    picture = figure(estimates)
    if picture is not None:
        run.log_figure(picture, "estimate.png")
    run.end(RunStatus.FINISHED)
    return run.run_id, tracking.open_command(run.run_id)
