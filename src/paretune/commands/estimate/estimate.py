"""The table of estimates, as text and as CSV.

Estimates of paretune's own training are computed from the work of a job and from earlier jobs. Estimates of a user's
own training come only from its earlier runs.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.commands.estimate import OF_THE_DATA, EstimateRequest
from paretune.core import pareto
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.machine import busy_sentence
from paretune.core.result import Result, Row, as_json, csv_text
from paretune.core.shell import command_line, options
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture, architecture_of, length_faults
from paretune.estimating.estimator import Estimate, Estimator, Forecast, estimate_user_code
from paretune.estimating.phases import PHASES
from paretune.estimating.timing import PARTS, Measurement
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS, data_of
from paretune.jobs.preparation import load_cached_inputs
from paretune.jobs.warnings import ForeseenJob, warnings_of
from paretune.jobs.workplace import has_store, home_of, open_tracking
from paretune.launchers.disk import bytes_on_disk
from paretune.presentation.text import aligned, duration
from paretune.pricing import PriceList, dates_of, usual_price
from paretune.specification.catalog import usual_region
from paretune.specification.container import JobInputs
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DIVISIONS, OF_THE_BATCH
from paretune.specification.price import Price
from paretune.specification.profile import completed
from paretune.specification.program import TRAINER
from paretune.specification.rules import launch_faults
from paretune.tracking import schema
from paretune.user_code.code import training_in_script

if TYPE_CHECKING:
    from pandas import DataFrame

_Facts = Mapping[str, float] | None
_SECONDS = ("seconds", "seconds_low", "seconds_high")
PART_COLUMNS = tuple(f"seconds_{part}" for part in PARTS)
PHASE_COLUMNS = tuple(f"{phase}_{name}" for phase in PHASES for name in _SECONDS)
COLUMNS = (
    *("instance_type", "instance_count", "per_device_train_batch_size", "seconds", "seconds_low", "seconds_high"),
    *("cost_usd", "memory_gib_per_device", "on_front", "basis"),
    *("cost_usd_low", "cost_usd_high", "memory_gib_low", "memory_gib_high", "memory_gib_usable", "fits"),
    *("gradient_accumulation_steps", "global_batch_size", "strategy", "program", "precision", "fine_tuning", "model"),
    *("max_seq_length", "max_train_samples", "num_train_epochs", "steps", "seconds_per_step", "price_usd_per_hour"),
    *("dataset", "task", "tokens", "days", "usd_per_billion_tokens"),
    *DIVISIONS,
    *PHASE_COLUMNS,
    *PART_COLUMNS,
    *("largest_batch_that_fits", "fits_instead", "region"),
    *("project", "entry_point", "entry_script"),
    *("other_program", "other_seconds"),
)
"""The columns of estimate.csv. Seconds are per instance; low and high are the ends of 80 % intervals.

All phases are billed except `waiting` and `starting`. For a job on this machine, `training` is the only phase whose
columns are filled. PART_COLUMNS divide the seconds among the parts of the work (`paretune.estimating.timing.PARTS`).
Tokens are given only for the task causal-lm; a token counts once per epoch. Days are the seconds divided by 86,400, and
dollars are those of all instances together. The largest batch is a power of two, in rows per device; it is 0 if not
even one row fits. For a job that may not fit, `fits_instead` has options with which it fits. `other_seconds` are those
of the same job with `other_program`: Hugging Face's Trainer with its defaults, or, for a job of the Trainer, paretune's
own training.
"""
MAIN_COLUMNS = COLUMNS[: COLUMNS.index("fits") + 1]
_SHOWN = (*COLUMNS[:10], "fits")  # in a notebook
_MARK = "* = on the predicted Pareto front of seconds and dollars"
_DAY_S = 24 * 3600.0
_UNKNOWN = "no run of this job yet: run it once"
_DIFFERENT = 4 / 3  # ratio of two programs' seconds from which on the table shows both


@dataclass(frozen=True, kw_only=True)
class EstimateTable(Result):
    """Estimates of jobs, one row each. With `--like`, the first row is a job that has run."""

    jobs: Sequence[tuple[JobSpec, Estimate | None]]
    """Each job with its estimate, or None for the user's own training if the same job (with any seed) has no run."""
    region: str
    """The region of the prices, or several, separated by commas."""
    remarks: Sequence[str] = ()  # sentences about data, dollars and intervals
    warnings: Sequence[str] = ()  # sentences to read before paying for such a job
    run_id: str | None = None  # id of the MLflow run that has the table, if it was recorded
    open_command: str | None = None  # command or address that shows the run
    like: str = ""  # with `--like`, the name of the finished training in the first row
    others: Sequence[Estimate | None] = ()
    """Estimates of the same jobs with another program, one for each row; empty if none were made."""

    @property
    def title(self) -> str:
        """A line that says from which run the rows are estimated, or that no job was run."""
        if self.like:
            return f"estimated from {self.like}, which ran on the cluster of the first row"
        return "estimated, no job was run for this table"

    def rows(self) -> list[Row]:
        """Return the rows of estimate.csv, with `on_front` as a boolean; seconds are billable seconds per instance."""
        marks = zip(self.jobs, on_front([item for _, item in self.jobs]), self._others(), strict=True)
        return [_row(spec, item, is_best, other) for (spec, item), is_best, other in marks]

    def _others(self) -> Sequence[Estimate | None]:
        return self.others or [None] * len(self.jobs)

    def program(self) -> str:
        """Return a sentence that says which program the estimates assume, and how to name another; or "".

        A script of which nothing is known has no program.
        """
        titles = {
            (spec.trained_by if item is None else item.program).title: None
            for spec, item in self.jobs
            if item or not spec.runs_user_code
        }
        if not titles:
            return ""
        text = f"assumes {' and '.join(titles)}"
        if any(spec.program or spec.runs_user_code or self.like for spec, _ in self.jobs):
            return text
        return f"{text}; for a script with Hugging Face's Trainer: {options(program='trainer')}"

    def csv(self) -> str:
        """Return the table as CSV with the columns COLUMNS; an empty field means unknown."""
        return csv_text(COLUMNS, [{name: _cell(value) for name, value in row.items()} for row in self.rows()])

    def to_dict(self) -> dict[str, object]:
        """Return the run, region, rows, remarks and warnings."""
        return {
            "run_id": self.run_id,
            "region": self.region,
            "rows": as_json(self.rows()),
            "remarks": list(self.remarks),
            "warnings": list(self.warnings),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """Return the regions of the prices, remarks, warnings, and how to open the run that has the table."""
        sentences = [*self.remarks, *(f"warning: {text}" for text in self.warnings)]
        sentences += [self.open_command] if self.open_command else []
        if not any(spec.has_instances for spec, _ in self.jobs):
            return sentences
        dates = dates_of(item.price for _, item in self.jobs if item is not None)
        prices = f"prices of {self.region}, SageMaker Training, on demand{dates and f', {dates}'}"
        return [f"{prices}; the seconds to transfer data and model are included, storage is not", *sentences]

    def __str__(self) -> str:
        first = [line] if (line := self.program()) else []
        return "\n".join([*first, aligned(self._columns()), "", f"{self.title}; {_MARK}", *self.notes()])

    def _columns(self) -> dict[str, list[str]]:
        """Return the columns of the printed table: first a * for rows on the front, last the basis of each estimate."""
        typed = [spec.as_text() for spec, _ in self.jobs]
        settings = [name for name in COLUMNS[COLUMNS.index("strategy") :] if typed and name in typed[0]]
        varying = [name for name in settings if len({texts[name] for texts in typed}) > 1]
        marks, others = on_front([item for _, item in self.jobs]), self._others()
        lines = []
        for (spec, item), texts, is_best, other in zip(self.jobs, typed, marks, others, strict=True):
            lines.append(
                {"": "*" if is_best else "", "cluster": f"{spec.instance_count} x {spec.instance_type}", "batch": ""}
                | {name: texts[name] or "-" for name in varying}
                | {"time (80 % interval)": _time(item), **self._beside(item, other)}
                | {"USD (80 % interval)": _dollars(item)}
                | ({} if item is None else _of_ours(item))
                | {"basis": _UNKNOWN if item is None else item.basis}
            )
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        return {name: column for name, column in columns.items() if any(column)}

    def _beside(self, item: Estimate | None, other: Estimate | None) -> dict[str, str]:
        """Return the time of the other program, under its name, if any row differs by more than a third."""
        programs = {each.spec.trained_by.name for each in self.others if each is not None}
        if len(programs) != 1:
            return {}
        text = ""
        if item is not None and other is not None:
            ratio = other.time.seconds / item.time.seconds
            text = duration(other.time.seconds) if max(ratio, 1 / ratio) > _DIFFERENT else ""
        return {f"with {programs.pop()}": text}

    def _shown(self) -> "DataFrame":
        frame = self.to_frame()
        shown = (*_SHOWN, "region") if len({spec.region for spec, _ in self.jobs}) > 1 else _SHOWN
        return frame[[name for name in shown if name in frame]]


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
    known = [] if first.runs_user_code else _known(request.specs, environment)
    is_there = is_recorded or has_store(environment)
    forecast = Forecast(open_tracking(environment, SystemClock()) if is_there else None, simulated=first.is_simulated)
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
    for (spec, price), region, (built, facts) in zip(priced, regions, known, strict=True):
        item = estimator.estimate(spec, built, price, facts=facts)
        if item is not None:
            item = estimator.with_remedy(item, built, facts, price_of)
        disk = bytes_on_disk(spec, JobInputs(), built)
        jobs.append(ForeseenJob(spec=spec, region=region, disk_bytes=disk, price=price, estimate=item))
    estimates = [job.estimate for job in jobs if job.estimate is not None]
    pairs = [(item.spec, item) for item in estimates]
    others = [_with_other_program(item, estimator, *of_model) for item, of_model in zip(estimates, known, strict=True)]
    data = [_data(spec, facts) for spec, (_, facts) in zip(request.specs, known, strict=True)]
    remarks = [f"data: {'; '.join(dict.fromkeys(data))}", *_remarks(estimates)]
    return EstimateTable(jobs=pairs, region=all_regions, remarks=remarks, warnings=warnings_of(jobs), others=others)


def _with_other_program(item: Estimate, estimator: Estimator, built: Architecture, facts: _Facts) -> Estimate | None:
    """Estimate the same job with another program: the Trainer with its defaults or, instead of it, paretune's training.

    None if that is not possible, as for a strategy of the Trainer only.
    """
    changes = {"program": TRAINER} if item.spec.trained_by.is_paretune else {"program": None, "test_rows": None}
    with suppress(BadInput):
        other = item.spec.replace(**changes)
        return None if launch_faults(other) else estimator.estimate(other, built, item.price, facts=facts)
    return None


def _of_script(
    spec: JobSpec, price: Price | None, forecast: Forecast, environment: Mapping[str, str], probe: Measurement | None
) -> Estimate | None:
    """Estimate a job that runs the user's own code from its runs, or else from what its script says and its probe."""
    known = estimate_user_code(spec, price, forecast.evidence.of_user_code)
    if known is not None or (training := training_in_script(spec)) is None:
        return known
    with suppress(BadInput):  # the model's architecture is unknown
        built = architecture_of(training.model, training.task, environment)
        return forecast.of_script(spec, training, built, price, probe)
    return None


def _known(specs: Sequence[JobSpec], environment: Mapping[str, str]) -> list[tuple[Architecture, _Facts]]:
    """Return the architecture of each job's model, and the facts of its rows.

    Raises BadInput with a fault for each model that cannot be read or, if all can be read, with all other faults.
    """
    built, faults = dict[tuple[str, str], Architecture](), list[str]()
    for model, task in dict.fromkeys((spec.model, spec.task) for spec in specs):
        with collecting(faults):
            built[model, task] = architecture_of(model, task, environment)
    refuse(list(dict.fromkeys(faults)))
    facts = _facts(specs, home_of(environment))
    faults += [*_faults(specs, facts)]
    for spec in specs:
        faults += length_faults(spec.model, built[spec.model, spec.task].positions, spec.max_seq_length)
    refuse(list(dict.fromkeys(faults)))
    return [(built[spec.model, spec.task], of_rows) for spec, of_rows in zip(specs, facts, strict=True)]


def _facts(specs: Sequence[JobSpec], home: Path) -> list[_Facts]:
    """Return the facts of each job's rows, such as their number, or None if they are unknown.

    If a number of rows was given without a data set, each row is assumed to have `max_seq_length` tokens. Otherwise,
    the facts come from an earlier preparation of the data set for the job's cluster or for this machine.
    """

    def look_up(spec: JobSpec) -> _Facts:
        inputs = load_cached_inputs(spec, home)
        return inputs.dataset.facts if inputs and inputs.dataset else None

    of_data = [JobSpec.read({name: spec.as_text()[name] for name in OF_THE_DATA}) for spec in specs]
    pairs = zip(specs, of_data, strict=True)
    return [_imagined(spec) or look_up(spec) or look_up(local) for spec, local in pairs]


def _imagined(spec: JobSpec) -> _Facts:
    """Return facts of rows with the given number and length; None if a data set or no row count was given."""
    rows = spec.max_train_samples
    if rows is None or "dataset" in spec.model_fields_set:
        return None
    evaluated = {} if spec.max_eval_samples is None else {"validation_rows": float(spec.max_eval_samples)}
    tokens = float(rows * spec.max_seq_length)
    return {"train_rows": float(rows), "train_tokens": tokens, "validation_rows": rows / 9} | evaluated


def _data(spec: JobSpec, facts: _Facts) -> str:
    """Return the rows that an estimate is for, in words."""
    data = data_of(spec, facts)
    assert data is not None  # `_faults` has refused jobs with an unknown number of rows
    counts = f"{data.rows:,.0f} rows of {data.tokens:,.0f} tokens"
    if "dataset" in spec.model_fields_set:
        return f"{spec.dataset}, {counts}" + ("" if facts or spec.dataset in BUNDLED_ROWS else " (not prepared yet)")
    if spec.max_train_samples is not None:
        return f"{counts}, assumed because dataset is not given"
    return f"{spec.dataset}, {counts}, because neither dataset nor max_train_samples is given"


def _faults(specs: Sequence[JobSpec], facts: Sequence[_Facts]) -> Iterator[str]:
    """Yield a fault for each number format that a launch would refuse, and for each data set of unknown size."""
    for spec, rows in zip(specs, facts, strict=True):
        for instance in map(spec.instance, spec.instance_types() if spec.has_instances else ()):
            yield from hardware.precision_faults(spec.precision, instance)
        if rows is None and spec.dataset not in BUNDLED_ROWS and spec.max_train_samples is None:
            of_data = {name: text for name, text in spec.given_text().items() if name in OF_THE_DATA}
            yield (
                f"the number of rows of dataset {spec.dataset} is not known yet: give max_train_samples (and "
                f"max_seq_length), or prepare it once with `{command_line('train', of_data | {'dry_run': 'true'})}`"
            )


def _remarks(estimates: Sequence[Estimate]) -> list[str]:
    remarks = []
    if any(item.plan != item.spec.plan() for item in estimates if item.spec.leaves_batch_open):
        remarks.append(
            "no per-device batch is given, and the usual one may not fit in memory: the job computes as many rows at "
            "once as fit (batch: rows x accumulation), and a step keeps its rows"
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


def on_front(estimates: Sequence[Estimate | None]) -> list[bool]:
    """Return whether each estimate is on the front of seconds and dollars.

    Estimates that do not fit in memory or have no price are not on it.
    """
    points = {
        index: (item.time.seconds, item.cost_usd)
        for index, item in enumerate(estimates)
        if item is not None and item.cost_usd is not None and item.fits != "no"
    }
    marks = dict(zip(points, pareto.front(list(points.values()), maximize=(False, False)), strict=True))
    return [marks.get(index, False) for index in range(len(estimates))]


def _row(spec: JobSpec, item: Estimate | None, is_best: bool, other: Estimate | None) -> Row:
    columns = {*spec.given(), "instance_type", "instance_count"} if spec.runs_user_code else {*COLUMNS}
    row: Row = {name: getattr(spec, name, None) if name in columns else None for name in COLUMNS}
    if "dataset" not in spec.model_fields_set and spec.max_train_samples is not None:
        row["dataset"] = None  # rows of any data
    row |= {"on_front": is_best, "basis": _UNKNOWN}
    if item is not None or not spec.runs_user_code:
        row["program"] = (spec.trained_by if item is None else item.program).name
    if other is not None:
        row |= {"other_program": other.spec.trained_by.name, "other_seconds": round(other.time.seconds, 1)}
    if item is None:
        return row
    row |= {name: round(getattr(item.time, name), 1) for name in _SECONDS}
    row |= {f"cost_usd_{end}": item.usd(getattr(item.time, f"seconds_{end}")) for end in ("low", "high")}
    row |= {"cost_usd": item.cost_usd, "basis": item.basis}
    for phase, seconds in item.phases.items():
        row |= {f"{phase}_{name}": round(getattr(seconds, name), 1) for name in _SECONDS}
    row |= {f"seconds_{part}": round(seconds, 1) for part, seconds in item.time.parts.items()}
    if (memory := item.memory) is not None:
        row |= {name: getattr(item.plan, name) for name in OF_THE_BATCH}
        row |= {f"memory_gib_{end}": round(getattr(memory, f"gib_{end}"), 3) for end in ("low", "high")}
        row |= {
            "memory_gib_per_device": round(memory.gib, 3),
            "memory_gib_usable": round(memory.usable_gib, 3),
            "fits": item.fits,
            "steps": item.time.steps,
            "seconds_per_step": round(item.time.step_seconds, 6),
            "price_usd_per_hour": item.price.usd_per_hour if item.price is not None else None,
            "tokens": item.tokens,
            "days": item.time.seconds / _DAY_S,
            "usd_per_billion_tokens": item.usd_per_billion_tokens,
            "largest_batch_that_fits": item.largest_batch,
            "fits_instead": item.remedy_in_words() or None,
        }
    return row


def _cell(value: object) -> object:
    return spell(value) if isinstance(value, bool) else value


def _time(item: Estimate | None) -> str:
    if item is None:
        return "-"
    middle, low, high = (duration(getattr(item.time, name)) for name in _SECONDS)
    return f"{middle} ({low} to {high})"


def _dollars(item: Estimate | None) -> str:
    if item is None or item.price is None:
        return "-" if item is None else "no price"
    middle, low, high = (_usd(item.usd(getattr(item.time, name)) or 0.0) for name in _SECONDS)
    doubts = item.price.doubts(date.today())
    return ", ".join([f"{middle} ({low} to {high})", *(f"price {doubt}" for doubt in doubts)])


def _usd(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _of_ours(item: Estimate) -> dict[str, str]:
    if (memory := item.memory) is None:
        return {}
    steps = item.plan.gradient_accumulation_steps
    suffix = {"yes": "", "no": ": does NOT fit", "unsure": ": may not fit"}[item.fits]
    if item.did_not_fit is not None:
        suffix += f" (batch {item.did_not_fit.rows} ran out of memory before)"
    usable = "unknown" if math.isnan(memory.usable_gib) else f"{memory.usable_gib:.1f}"
    usable += f" or {memory.usable_gib + memory.unsure_gib:.1f}" if memory.unsure_gib else ""
    usd, gib = item.usd_per_billion_tokens, f"{memory.gib:.1f} ({memory.gib_low:.1f} to {memory.gib_high:.1f})"
    return {
        "batch": f"{item.plan.per_device_train_batch_size}{f' x {steps}' if steps > 1 else ''}",
        "USD per billion tokens": "" if not item.tokens else "-" if usd is None else _usd(usd),
        "GiB per device": f"{gib} of {usable}{suffix}",
        "largest batch": "-" if item.largest_batch is None else str(item.largest_batch),
        "instead": item.remedy_in_words(),
    }
