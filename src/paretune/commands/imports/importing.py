"""Runs of other teams, brought from a table into MLflow: marked `published`, each once."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from paretune.commands.command import describe_opened_run
from paretune.commands.imports.command import ImportRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import TrackingUnavailable
from paretune.core.result import CommandOutput
from paretune.estimating.architecture import config_in, of_config, well_known
from paretune.estimating.recorded_runs import COMPLETED, OUT_OF_MEMORY, RecordedRow
from paretune.estimating.workload import training_rows
from paretune.jobs.bill import price_tags
from paretune.jobs.record import params_of, run_name
from paretune.launchers.base import JobState
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price, PriceList, usual_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, Run, RunStatus, Tracking, schema
from paretune.tracking.recorded_job import DATASET_SIZE

ORIGIN = "published"


def run_import(request: ImportRequest) -> CommandOutput:
    """Create a run for every row that has none yet."""
    environment = dict(os.environ)
    price_of = partial(usual_price, prices=PriceList.read(environment), environment=environment)
    output = import_runs(request, Tracking(environment, SystemClock()), price_of)
    describe_opened_run("import", output.text)
    return output


def import_runs(
    request: ImportRequest, tracking: Tracking, price_of: Callable[[JobSpec], Price | None]
) -> CommandOutput:
    """Create a run for each row that has none; a run that an interrupted import has left is completed.

    Raises:
        TrackingUnavailable: MLflow does not answer; the same command imports the rest.
    """
    table = request.table
    imported = {
        job.row_key: None if job.state else job.run_id
        for job in map(RecordedJob, tracking.runs(f"tags.`{schema.ORIGIN}` = '{ORIGIN}'"))
        if job.row_key
    }
    added: list[str] = []
    remarks, counts = Counter[str](), Counter[str]()
    for row in table.rows:
        counts[row.digest()] += 1  # equal rows are repeats
        identity = json.dumps([row.digest(), counts[row.digest()], sorted(request.typed.items())])
        key = hashlib.sha256(identity.encode()).hexdigest()[:24]
        unfinished = imported.get(key)
        if key in imported and unfinished is None:
            continue
        spec = row.spec
        price = price_of(spec) if row.cost_usd is None else None
        if row.hourly_price_usd is not None:
            price = Price(
                usd_per_hour=row.hourly_price_usd,
                region=spec.region or "",
                as_of=row.price_as_of,
                source=f"{table.name}: hourly_price_usd",
                instance_type=spec.instance_type,
                confidence="user",
            )
        if price is None and row.cost_usd is None:
            remarks[f"no price of {spec.instance_type} is known: the cost is absent"] += 1
        sizes = _sizes(spec)
        if not sizes and well_known(spec.model) is None:
            why = f"{spec.model} is not well known, give model=FOLDER with config.json"
            remarks[f"estimates learn nothing: {why}"] += 1
        if training_rows(spec, row.measured) is None:
            why = "give a column num_steps or train_rows, or set max_train_samples"
            remarks[f"estimates learn nothing: the training rows of {spec.dataset} are not known, {why}"] += 1
        tags = {schema.ORIGIN: ORIGIN, schema.ROW_KEY: key}
        run = tracking.run(unfinished) if unfinished else tracking.create(run_name(spec), tags)
        _fill(run, row, price, table.name, sizes)
        if run.has_gap:
            gap = f"MLflow went away after {len(added)} runs: the same command imports what is missing"
            raise TrackingUnavailable(gap)
        added.append(run.run_id)
    known = len(table.rows) - len(added)
    lines = [f"{table.name}: {len(added)} runs imported as published, {known} were there already"]
    if table.ignored:
        lines.append(f"columns that mean nothing here were left out: {', '.join(table.ignored)}")
    lines += [f"{count} run{'s' * (count > 1)}: {remark}" for remark, count in remarks.items()]
    return CommandOutput(
        text="\n".join(lines),
        document={
            "table": table.name,
            "run_ids": added,
            "known": known,
            "ignored_columns": list(table.ignored),
            "remarks": lines[1:],
        },
    )


def _sizes(spec: JobSpec) -> dict[str, float]:
    """Return the sizes of a model in a folder, as jobs of it record them: the run is evidence without the folder."""
    config = None if well_known(spec.model) else config_in(spec.model)
    built = None if config is None else of_config(config, spec.task)
    if built is None:
        return {}
    return {
        "total_parameters": built.parameters,
        "matrix_parameters": built.matrices,
        "layers": built.layers,
        "hidden_size": built.hidden_size,
        "vocabulary": built.vocabulary,
    }


def _fill(run: Run, row: RecordedRow, price: Price | None, source: str, sizes: Mapping[str, float]) -> None:
    """Record everything in a row, and mark the run as complete."""
    spec, state = row.spec, JobState.COMPLETED if row.status == COMPLETED else JobState.FAILED
    usd = row.cost_usd
    if usd is None and row.billable_seconds is not None:
        usd = cost_usd(price, spec, row.billable_seconds)
    values = {metrics.F1: row.f1, metrics.BILLABLE_SECONDS: row.billable_seconds, metrics.COST_USD: usd}
    measured = {**sizes, **row.measured} | {name: value for name, value in values.items() if value is not None}
    reason = {COMPLETED: None, OUT_OF_MEMORY: "out of memory, as it was published"}
    with run.later():
        run.log_params(params_of(spec))
        if row.dataset_size is not None:
            run.log_params({DATASET_SIZE: str(row.dataset_size)})
        run.log_metrics(measured)
        run.set_tags(
            {
                schema.SOURCE: source,
                schema.SOURCE_LINE: str(row.line),
                schema.SPEC_HASH: spec.spec_hash(),
                schema.COMMAND: spec.command(),
                schema.FAILURE_REASON: reason.get(row.status, "failed, as it was published"),
                schema.MACHINE: None if spec.has_instances else "another",
                **price_tags(price),
                schema.STATE: state.value,
            }
        )
    run.flush()
    run.end(RunStatus.FINISHED if state is JobState.COMPLETED else RunStatus.FAILED)
