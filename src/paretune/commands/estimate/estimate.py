"""Estimates the jobs of a request.

Estimates of paretune's own training are computed from the work of a job and from earlier jobs. Estimates of a user's
own training come only from its earlier runs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from paretune.commands.estimate import OF_THE_DATA, EstimateRequest
from paretune.commands.estimate.table import EstimateTable
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.machine import busy_sentence
from paretune.core.shell import command_line, options
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture, architecture_of, length_faults
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.forecast import Forecast, described_by, estimate_user_code
from paretune.estimating.local_rows import CountedRows, count_rows, padded_tokens
from paretune.estimating.remedy import with_remedy
from paretune.estimating.timing import Measurement
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS, data_of
from paretune.jobs.preparation import load_cached_inputs
from paretune.jobs.warnings import ForeseenJob, warnings_of
from paretune.jobs.workplace import home_of, open_tracking, runs_of
from paretune.launchers.disk import bytes_on_disk
from paretune.launchers.offers import usual_price
from paretune.presentation.text import usd
from paretune.pricing import PriceList
from paretune.specification.catalog import rows, usual_region
from paretune.specification.container import JobInputs
from paretune.specification.inputs import DataArguments
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM
from paretune.specification.price import Price
from paretune.specification.profile import completed
from paretune.specification.program import TRAINER
from paretune.specification.rules import launch_faults
from paretune.tracking import schema
from paretune.user_code.inputs import training_in_script

_Facts = Mapping[str, float] | None


@dataclass(frozen=True, kw_only=True)
class _Known:
    """The known facts of a job's model and rows."""

    built: Architecture
    facts: _Facts  # such as the number of rows, or None
    cuts: Sequence[str] = ()  # sentences about texts that are cut
    counted_by: str = ""  # how the tokens of a file's rows were counted, if these are not prepared


def estimate(specs: JobSpec | Iterable[JobSpec], **choices: object) -> EstimateTable:
    """Estimate seconds, dollars and memory of jobs before paying, with 80 % intervals. Nothing is launched.

    Args:
        specs: the jobs; a parameter that was not given is taken from `paretune.toml`, if that file sets it.
        choices: parameters of a job, each with one value or a list; every combination makes a row per job.

    For jobs with a project or an entry_script, the seconds and dollars come from their finished runs.

    Raises:
        BadInput: a job is not possible; the error has all faults of the first check that fails.
        TrackingUnavailable: the MLflow store, whose runs are evidence, does not answer.

    Examples:
        >>> import paretune
        >>> job = paretune.JobSpec(model="distilbert-base-uncased", max_train_samples=100_000, global_batch_size=64)
        >>> table = paretune.estimate(job, instance_type=["ml.g5.xlarge", "ml.p4d.24xlarge"], region="us-east-1")
        >>> frame = table.to_frame()
        >>> frame[["instance_type", "per_device_train_batch_size", "on_front", "fits"]].values.tolist()
        [['ml.g5.xlarge', 64, True, 'yes'], ['ml.p4d.24xlarge', 8, True, 'yes']]
    """
    jobs = [specs] if isinstance(specs, JobSpec) else list(specs)
    lists = {
        name: value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for name, value in choices.items()
    }
    request = EstimateRequest.of([spec.given_text() for spec in jobs], lists)
    request = replace(request, specs=tuple(completed(spec, os.environ) for spec in request.specs))
    return run_estimate(request)


def run_estimate(request: EstimateRequest, probe: Measurement | None = None) -> EstimateTable:
    """Return the estimates of the requested jobs. `probe` is what a probe of a user's script has measured.

    If `mlflow run` has opened a run for the command, the table is also recorded there.
    """
    environment = dict(os.environ)
    is_recorded = "MLFLOW_RUN_ID" in environment
    if request.like:
        from paretune.commands.estimate.like import compare

        table = compare(request)
    else:
        table = estimated(request, is_recorded, probe)
    if not is_recorded:
        return table
    note = f"**{table.title.capitalize()}.** Seconds, dollars and memory with their intervals: `estimate.csv`."
    tracking, files = open_tracking(environment, SystemClock()), {"estimate.csv": table.csv()}
    run_id, open_command = tracking.keep("estimate", note, files, origin=schema.ESTIMATED)
    return replace(table, run_id=run_id, open_command=open_command)


def estimated(request: EstimateRequest, is_recorded: bool = False, probe: Measurement | None = None) -> EstimateTable:
    """Return the table of jobs that have not run. Raises BadInput if they cannot be estimated."""
    environment, first = dict(os.environ), request.specs[0]
    prices, regions = PriceList.read(environment), [usual_region(spec.region, environment) for spec in request.specs]
    all_regions = ", ".join(dict.fromkeys(regions))

    def price_of(spec: JobSpec) -> Price | None:
        return usual_price(spec, prices, environment)

    priced = [(spec, price_of(spec)) for spec in request.specs]
    known = [] if first.runs_user_code else _known(request.specs, environment, request.row_tokens)
    runs = open_tracking(environment, SystemClock()) if is_recorded else runs_of(environment)
    forecast = Forecast(runs, simulated=first.is_simulated)
    if first.runs_user_code:
        own = [(spec, _of_script(spec, price, forecast, environment, probe)) for spec, price in priced]
        remark = (
            "your own training code is estimated from runs of the same job (cluster and parameters, any seed), or from "
            "a script with Hugging Face's Trainer if it shows its model and max_train_samples is given: run it once, "
            "or run a study"
        )
        remarks = [remark] if any(item is None for _, item in own) else []
        return EstimateTable(jobs=own, region=all_regions, remarks=remarks)
    estimator, jobs = forecast.estimator, []
    for (spec, price), region, of_job in zip(priced, regions, known, strict=True):
        item = estimator.estimate(spec, of_job.built, price, facts=of_job.facts)
        if item is not None:
            item = with_remedy(item, estimator, of_job.built, of_job.facts, price_of)
            item = replace(item, find_unsaved=partial(_without_checkpoints, item, estimator, of_job))
        disk = bytes_on_disk(spec, JobInputs(), of_job.built)
        jobs.append(ForeseenJob(spec=spec, region=region, disk_bytes=disk, price=price, estimate=item))
    estimates = [job.estimate for job in jobs if job.estimate is not None]
    pairs = [(item.spec, item) for item in estimates]
    others = [_with_other_program(item, estimator, of_job) for item, of_job in zip(estimates, known, strict=True)]
    data = [_data(spec, of_job) for spec, of_job in zip(request.specs, known, strict=True)]
    remarks = [f"data: {'; '.join(dict.fromkeys(data))}", *_remarks(estimates), *_without_region(estimates)]
    warnings = [*warnings_of(jobs), *dict.fromkeys(cut for of_job in known for cut in of_job.cuts)]
    return EstimateTable(jobs=pairs, region=all_regions, remarks=remarks, warnings=warnings, others=others)


def _without_checkpoints(item: Estimate, estimator: Estimator, known: _Known) -> Estimate | None:
    """Estimate a Trainer's job that saves no checkpoint; None if it saves none anyway."""
    spec = item.spec
    if spec.trained_by.is_paretune or spec.training_arguments.get("save_strategy") == "no":
        return None
    other = spec.replace(training_arguments={**spec.training_arguments, "save_strategy": "no"})
    return estimator.estimate(other, known.built, item.price, facts=known.facts)


def _with_other_program(item: Estimate, estimator: Estimator, known: _Known) -> Estimate | None:
    """Estimate the same job with another program: the Trainer with its defaults or, instead of it, paretune's training.

    None if that is not possible, as for a strategy of the Trainer only.
    """
    changes = {"program": TRAINER} if item.spec.trained_by.is_paretune else {"program": None, "test_rows": None}
    with suppress(BadInput):
        other = item.spec.replace(**changes)
        return None if launch_faults(other) else estimator.estimate(other, known.built, item.price, facts=known.facts)
    return None


def described_script(spec: JobSpec) -> JobSpec | None:
    """Return a job with what its script says of its training (`described_by`); None if that is unknown."""
    return described_by(spec, training_in_script(spec.code_request))


def _of_script(
    spec: JobSpec, price: Price | None, forecast: Forecast, environment: Mapping[str, str], probe: Measurement | None
) -> Estimate | None:
    """Estimate a job that runs the user's own code from its runs, or else from what its script says and its probe."""
    known = estimate_user_code(spec, price, forecast.evidence.of_user_code)
    if known is not None or (training := described_script(spec)) is None:
        return known
    with suppress(BadInput):  # the model's architecture is unknown
        built = architecture_of(training.model, training.task, environment)
        is_open = training.max_train_samples is None and "dataset" in training.model_fields_set
        counted = _counted(training.data_arguments, training.model) if is_open else None
        item = forecast.of_script(spec, training, built, price, probe, None if counted is None else counted.facts)
        if item is None or counted is None:
            return item
        rows = f"{counted.facts['train_rows']:,.0f} rows counted in {spec.dataset}, whose {counted.by}"
        return replace(item, basis=f"{item.basis}; {rows}")
    return None


def _counted(data: DataArguments, model: str) -> CountedRows | None:
    """Return the rows of a job's data file, counted for the tokenizer of a model if that is here."""
    return count_rows(
        data.dataset,
        text_column=data.text_column,
        max_seq_length=data.max_seq_length,
        most_rows=data.max_train_samples,
        joins_rows=data.task == CAUSAL_LM,
        validates=data.validation_file is None,
        model=model,
    )


def _known(specs: Sequence[JobSpec], environment: Mapping[str, str], row_tokens: float | None) -> list[_Known]:
    """Return what is known of each job's model and rows.

    Raises BadInput with a fault for each model that cannot be read or, if all can be read, with all other faults.
    """
    built, faults = dict[tuple[str, str], Architecture](), list[str]()
    for model, task in dict.fromkeys((spec.model, spec.task) for spec in specs):
        with collecting(faults):
            built[model, task] = architecture_of(model, task, environment)
    refuse(list(dict.fromkeys(faults)))
    known, home = list[_Known](), home_of(environment)
    of_data = [JobSpec.read({name: spec.as_text()[name] for name in OF_THE_DATA}) for spec in specs]
    for spec, local in zip(specs, of_data, strict=True):
        inputs = load_cached_inputs(spec, home) or load_cached_inputs(local, home)  # for the cluster, or this machine
        prepared = None if inputs is None or inputs.dataset is None else inputs.dataset.facts
        is_open = not prepared and "dataset" in spec.model_fields_set
        counted = _counted(spec.data_arguments, spec.model) if is_open else None
        facts = _imagined(spec, row_tokens) or prepared or (None if counted is None else counted.facts)
        cuts = inputs.findings.warnings if inputs and prepared else counted.cuts if counted else ()
        known.append(
            _Known(
                built=built[spec.model, spec.task],
                facts=facts,
                cuts=cuts,
                counted_by="" if counted is None else counted.by,
            )
        )
    for spec, item in zip(specs, known, strict=True):
        faults += [*_faults(spec, item), *length_faults(spec.model, item.built.positions, spec.max_seq_length)]
    refuse(list(dict.fromkeys(faults)))
    return known


def _imagined(spec: JobSpec, row_tokens: float | None) -> _Facts:
    """Return facts of rows with the given number and length; None if a data set or no row count was given.

    row_tokens: the mean tokens of a row; None for rows of max_seq_length tokens, unless a data set says more.
    """
    rows = spec.max_train_samples
    if rows is None or ("dataset" in spec.model_fields_set and row_tokens is None):
        return None
    evaluated = {} if spec.max_eval_samples is None else {"validation_rows": float(spec.max_eval_samples)}
    mean = float(min(row_tokens or spec.max_seq_length, spec.max_seq_length))
    facts = {"train_rows": float(rows), "train_tokens": rows * mean, "validation_rows": rows / 9} | evaluated
    if spec.task == CAUSAL_LM and spec.trained_by.is_paretune:  # its rows are cut from the joined texts
        joined = max(1.0, round(rows * mean / spec.max_seq_length))
        return facts | {"train_rows": joined, "train_tokens": joined * spec.max_seq_length}
    padded = padded_tokens(mean, spec.max_seq_length, spec.plan().per_device_train_batch_size)
    return facts | {"train_padded_tokens": rows * padded}


def _data(spec: JobSpec, known: _Known) -> str:
    """Return the rows that an estimate is for, in words."""
    on_gpu = spec.has_instances and spec.instance().has_gpu
    data = data_of(spec.data_arguments, known.facts, counts_padding=on_gpu)
    assert data is not None  # `_faults` has refused jobs with an unknown number of rows
    counts = f"{data.rows:,.0f} rows of {data.tokens:,.0f} tokens"
    if "dataset" in spec.model_fields_set:
        if known.counted_by:
            return f"{spec.dataset}, {counts}, counted in the file; {known.counted_by}"
        return f"{spec.dataset}, {counts}" + (
            "" if known.facts or spec.dataset in BUNDLED_ROWS else " (not prepared yet)"
        )
    if known.facts and known.facts.get("train_padded_tokens", 0.0) > 1.01 * known.facts["train_tokens"]:
        mean = known.facts["train_tokens"] / known.facts["train_rows"]
        return f"{data.rows:,.0f} rows of {mean:,.0f} tokens, assumed to be padded to {data.tokens:,.0f} in a batch"
    if spec.max_train_samples is not None:
        return f"{counts}, assumed because dataset is not given"
    return f"{spec.dataset}, {counts}, because neither dataset nor max_train_samples is given"


def _faults(spec: JobSpec, known: _Known) -> Iterator[str]:
    """Yield a fault for each number format that a launch would refuse, and for a data set of unknown size."""
    for instance in map(spec.instance, spec.instance_types() if spec.has_instances else ()):
        yield from hardware.precision_faults(spec.precision, instance)
    if known.facts is None and spec.dataset not in BUNDLED_ROWS and spec.max_train_samples is None:
        of_data = {name: text for name, text in spec.given_text().items() if name in OF_THE_DATA}
        yield (
            f"the number of rows of dataset {spec.dataset} is not known yet: give max_train_samples (and "
            f"max_seq_length), or prepare it once with `{command_line('train', of_data | {'dry_run': 'true'})}`"
        )


def _without_region(estimates: Sequence[Estimate]) -> list[str]:
    """Return why types have no price although a list has one: it names no region."""
    listed = {row["instance_type"]: row for row in rows() if row.get("price_usd_per_hour")}
    unpriced = dict.fromkeys(item.spec.instance_type for item in estimates if item.price is None)
    return [
        f"{name} has no price: the only list that has one, of {row.get('as_of')}, names no region "
        f"({usd(float(row['price_usd_per_hour']))} per hour)"
        for name in unpriced
        if (row := listed.get(name)) is not None and row.get("region") == "unspecified"
    ]


def _remarks(estimates: Sequence[Estimate]) -> list[str]:
    remarks = []
    if any(item.plan != item.spec.plan() for item in estimates if item.spec.leaves_batch_open):
        remarks.append(
            "no per-device batch is given, and the usual one may not fit in memory: the job computes as many rows at "
            "once as fit, and a step keeps its rows"
        )
    if any(item.spec.spot for item in estimates):
        remarks.append(
            "spot: estimates assume an on-demand job; spot costs less, but interruptions can make it take longer"
        )
    if any(not item.measured_here for item in estimates):
        remarks.append(
            "rows without a run on their own cluster have wide intervals: a short job on that cluster, "
            f"`paretune train {options(probe_steps=PROBE_STEPS)}`, narrows them"
        )
    if any(not item.spec.has_instances for item in estimates) and (busy := busy_sentence()):
        remarks.append(busy)
    return remarks
