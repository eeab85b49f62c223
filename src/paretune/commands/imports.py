"""The command `import`: records the finished runs of a table in MLflow, each run once, with the origin `published`."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.commands.command import Command, describe_opened_run
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, TrackingUnavailable, refuse
from paretune.core.reading import config_in
from paretune.core.result import CommandOutput
from paretune.core.shell import options
from paretune.estimating.architecture import of_config, well_known
from paretune.estimating.workload import training_rows
from paretune.launchers.offers import usual_price
from paretune.launchers.simulated.recorded_runs import (
    COMPLETED,
    OF_A_ROW,
    OUT_OF_MEMORY,
    RecordedRow,
    RunTable,
    located,
)
from paretune.pricing import PriceList, cost_usd
from paretune.specification import metrics
from paretune.specification.declaration import Parameters, parameter
from paretune.specification.ending import Cause, JobState
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from paretune.tracking import schema
from paretune.tracking.recorded_run import DATASET_SIZE

if TYPE_CHECKING:
    from paretune.tracking.run_writer import Run
    from paretune.tracking.store import Tracking

_REQUIRED = {
    "model": "distilbert-base-uncased",
    "dataset": "fancyzhx/amazon_polarity",
    "num_train_epochs": "3",
    "max_seq_length": "512",
    "precision": "fp32",
}
"""Parameters that decide seconds and F1, each with an example. They are required, because a default is not a fact."""
_ORIGIN = "published"


class ImportOptions(Parameters):
    """The command's own options. The other options are parameters of a job."""

    recorded_runs: str | None = parameter(None)
    """CSV table of finished runs, whose columns have the names of parameters"""
    columns: dict[str, str] = parameter({}, example={"seconds": "billable_seconds"})
    """column names in the file, each with the parameter that it contains"""
    dataset_size: int | None = parameter(None, ge=1)
    """rows before validation rows were split off"""
    hourly_price_usd: float | None = parameter(None, gt=0)
    """dollars per hour of one instance at that time; without a column cost_usd, the cost is computed from it"""
    price_as_of: str | None = parameter(None)
    """day, month or year of that price, such as 2021-08"""


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """A table of runs; `typed` has the parameters that were given as options and hold for all rows."""

    table: RunTable
    typed: Mapping[str, str]

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "ImportRequest":
        """Return the request that the options describe.

        Raises BadInput with all faults of the first step that fails.
        """
        typed = {name: text for name, text in texts.items() if text.strip()}
        of_import: dict[str, str] = {name: typed.pop(name) for name in ("recorded_runs", "columns") if name in typed}
        of_table = ImportOptions.read(of_import)
        if of_table.recorded_runs is None:
            raise BadInput(["import needs a table: set recorded_runs to a CSV file"])
        table = RunTable.read(Path(of_table.recorded_runs), of_table.columns, typed, option="recorded_runs")
        faults = [
            f"{name} is a column of {table.name} already: leave it out" for name in typed if name in table.columns
        ]
        if "billable_seconds" not in table.columns:
            faults.append(f"{table.name}: column billable_seconds is missing")
        for name, example in _REQUIRED.items():
            lines = [row.line for row in table.rows if name not in typed and name not in row.texts]
            typing, naming = options(**{name: example}), options(columns=json.dumps({"theirs": name}))
            text = f"{name} must be known: fill it in, type it as in {typing}, or name its column: {naming}"
            faults += [f"{table.name}: {located(text, lines)}"] if lines else []
        refuse(faults)
        return cls(table=table, typed=typed)


def run_import(request: ImportRequest) -> CommandOutput:
    """Create a run for every row that has no run yet."""
    from paretune.tracking.store import Tracking

    environment = dict(os.environ)
    price_of = partial(usual_price, prices=PriceList.read(environment), environment=environment)
    output = import_runs(request, Tracking(environment, SystemClock()), price_of)
    describe_opened_run("import", output.text)
    return output


def import_runs(
    request: ImportRequest, tracking: "Tracking", price_of: Callable[[JobSpec], Price | None]
) -> CommandOutput:
    """Create a run for each row that has no run, and complete the runs that an interrupted import left unfinished.

    Raises TrackingUnavailable if MLflow becomes unavailable. The same command then imports the rest.
    """
    from paretune.jobs.card import opening_card
    from paretune.jobs.run_names import run_name

    table = request.table
    published = tracking.runs(f"tags.`{schema.ORIGIN}` = '{_ORIGIN}'")
    imported = {job.row_key: job for job in published}
    added, remarks, counts = list[str](), Counter[str](), Counter[str]()
    for row in table.rows:
        counts[row.digest()] += 1  # identical rows are repeats
        identity = json.dumps([row.digest(), counts[row.digest()], sorted(request.typed.items())])
        key = hashlib.sha256(identity.encode()).hexdigest()[:24]
        before = imported.pop(key, None)
        if before is not None and before.state:
            continue
        spec, price = row.spec, _price_of(row, table.name)
        if price is None and row.cells.cost_usd is None and (price := price_of(spec)) is None:
            remarks[f"no price of {spec.instance_type} is known: no cost is recorded"] += 1
        sizes = _sizes(spec)
        if not sizes and well_known(spec.model) is None:
            remarks[f"estimates learn nothing: {spec.model} is not well known, give model=FOLDER with config.json"] += 1
        if training_rows(spec.data_arguments, row.measured) is None:
            why = "give a column num_steps or train_rows, or set max_train_samples"
            remarks[f"estimates learn nothing: the training rows of {spec.dataset} are not known, {why}"] += 1
        tags = {schema.ORIGIN: _ORIGIN, schema.ROW_KEY: key}
        name = run_name(opening_card(spec), spec.instance_type)
        run = tracking.run(before.run_id) if before is not None else tracking.create(name, tags)
        _fill(run, row, price, table.name, sizes)
        if run.has_gap:
            gap = f"MLflow became unavailable after {len(added)} runs: the same command imports the rest"
            raise TrackingUnavailable(gap)
        added.append(run.run_id)
    there = len(table.rows) - len(added)
    lines = [f"{table.name}: {len(added)} runs imported as published, {there} already existed"]
    if table.ignored:
        lines.append(f"ignored columns with unknown names: {', '.join(table.ignored)}")
    lines += [f"{count} run{'s' * (count > 1)}: {remark}" for remark, count in remarks.items()]
    if others := sum(job.tags.get(schema.SOURCE) == table.name for job in imported.values()):
        others_text = f"runs imported earlier from a table {table.name}, with other rows or other options: {others}"
        lines.append(f"{others_text}; if they are the same training runs, delete them in MLflow, or they count twice")
    document = {"table": table.name, "run_ids": added, "known": there, "ignored_columns": list(table.ignored)}
    return CommandOutput(text="\n".join(lines), document=document | {"remarks": lines[1:]})


def _price_of(row: RecordedRow, table: str) -> Price | None:
    if row.cells.hourly_price_usd is None:
        return None
    return Price(
        usd_per_hour=row.cells.hourly_price_usd,
        region=row.spec.region or "",
        as_of=row.cells.price_as_of,
        source=f"{table}: hourly_price_usd",
        instance_type=row.spec.instance_type,
        confidence="user",
    )


def _sizes(spec: JobSpec) -> Mapping[str, float]:
    """Return the sizes of a model in a folder; empty for well-known models, and if no config.json is found.

    Jobs record these sizes too, so that estimates can use a run without the model's folder.
    """
    config = None if well_known(spec.model) else config_in(spec.model)
    built = None if config is None else of_config(config, spec.task)
    if built is None:
        return {}
    sizes = {metrics.TOTAL_PARAMETERS: built.parameters, metrics.MATRIX_PARAMETERS: built.matrices}
    return sizes | {
        metrics.LAYERS: built.layers,
        metrics.HIDDEN_SIZE: built.hidden_size,
        metrics.VOCABULARY: built.vocabulary,
    }


def _fill(run: "Run", row: RecordedRow, price: Price | None, source: str, sizes: Mapping[str, float]) -> None:
    from paretune.jobs.card import params_of
    from paretune.tracking.recorded_run import price_tags

    spec, state = row.spec, JobState.COMPLETED if row.cells.status == COMPLETED else JobState.FAILED
    usd = row.cells.cost_usd
    if usd is None and row.cells.billable_seconds is not None:
        usd = cost_usd(price, row.cells.billable_seconds, spec.instance_count)
    values = {metrics.F1: row.cells.f1, metrics.BILLABLE_SECONDS: row.cells.billable_seconds, metrics.COST_USD: usd}
    measured = {**sizes, **row.measured} | {name: value for name, value in values.items() if value is not None}
    reason = {COMPLETED: None, OUT_OF_MEMORY: "out of memory, as published"}
    cause = {COMPLETED: None, OUT_OF_MEMORY: Cause.OUT_OF_MEMORY.value}
    # The run is ended before its state is set, because an import skips runs that have a state.
    is_closed = run.end("FINISHED" if state is JobState.COMPLETED else "FAILED")
    with run.later():
        run.log_params(params_of(spec))
        if row.cells.dataset_size is not None:
            run.log_params({DATASET_SIZE: str(row.cells.dataset_size)})
        run.log_results(measured)
        run.set_tags(
            {
                schema.SOURCE: source,
                schema.SOURCE_LINE: str(row.line),
                schema.SPEC_HASH: spec.spec_hash(),
                schema.COMMAND: spec.command(),
                schema.FAILURE_REASON: reason.get(row.cells.status, "failed, as published"),
                schema.CAUSE: cause.get(row.cells.status, Cause.ERROR.value),
                schema.MACHINE: None if spec.has_instances else "another",
                **price_tags(price),
                schema.STATE: state.value if is_closed else None,
            }
        )
    run.flush()


IMPORT = Command(
    read=ImportRequest.from_text,
    run=run_import,
    options=ImportOptions,
    takes_jobs=True,
    excluded=tuple(name for name in JobSpec.model_fields if name not in OF_A_ROW),
)
