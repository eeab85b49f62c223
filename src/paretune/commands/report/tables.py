"""`Report`, a report as text, as a page and as CSV, and the functions that make the report of each view.

Recorded jobs are in a pandas frame: settings as strings, measurements as numbers. view=runs shows every run with its
cost, at other prices if requested, and totals of dollars. view=scaling and view=compare show means and deviations for
each value of a setting. If the values differ in the number of devices, they also show what each step to the next value
saves and costs. report.csv has the numbers, for example for tests of significance.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from paretune.commands.report import DEVICES, MOST_RUNS, NESTED, SHAPE, TOTAL_KEYS, ReportRequest
from paretune.commands.report.scaling import ABOUT_CHARTS, QUALITIES, Group, confidence, scaling_charts, title_of
from paretune.core import pareto
from paretune.core.errors import BadInput
from paretune.core.result import Row, csv_text, rows_of
from paretune.core.secrets import markdown, printable
from paretune.core.shell import command_line
from paretune.presentation.page import chart_html, new_nonce, template
from paretune.presentation.text import Columns, aligned, dollars, duration, plain, texts, without_empty_columns
from paretune.pricing import PriceList, price_remarks
from paretune.specification import catalog, metrics
from paretune.specification.declaration import COMPUTES, spell
from paretune.specification.job import DEFAULTS, parameters_affecting
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.studies.definition.objectives import OBJECTIVES, Objective, judged_by
from paretune.studies.results.trials import label
from paretune.tracking import schema
from paretune.tracking.recorded_run import DATASET_SIZE, RecordedRun

_MOST_SHOWN = 200  # limit on the rows of a table in a terminal and in report.md
ALL = "all runs"  # key of the totals over all runs


class Section(NamedTuple):
    """A table of strings with its heading, and sentences below the table."""

    heading: str
    table: pd.DataFrame
    sentences: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `report`."""

    title: str
    about: Sequence[str]  # sentences on the number, origin and dates of the runs
    sections: Sequence[Section]
    rows: Sequence[Row]  # the rows of report.csv, all with the same fields
    totals: Sequence[Row] = ()  # sums of dollars by study, month, ...; only of view=runs
    charts: Sequence[Group] = ()  # only of view=scaling

    @property
    def findings(self) -> list[str]:
        """The sentences of all sections."""
        return [text for section in self.sections for text in section.sentences]

    def csv(self) -> str:
        """Return the rows as CSV; unknown values are empty cells."""
        rows = [{name: printable(it) if isinstance(it, str) else it for name, it in row.items()} for row in self.rows]
        return csv_text(list(rows[0]), rows)

    def note(self) -> str:
        """Return the note of the report's run: the title, the runs, the first finding, and where to find the rest."""
        lines = [f"**{self.title}**: {self.about[0]}", *self.findings[:1], "Everything is in `report.html`."]
        return markdown("\n\n".join(lines))

    def markdown(self) -> str:
        """Return the title as a heading, and the text as a block of code that no name in the text can close."""
        return markdown(f"# {self.title}\n\n") + "".join(f"    {line}\n" for line in markdown(str(self)).splitlines())

    def html(self) -> str:
        """Return the report as an HTML page with its charts, and with tables that a click on a heading sorts."""
        nonce, drawn = new_nonce(), list[tuple[str, list[tuple[str, Markup]]]]()
        for heading, charts in self.charts:
            of_group = list[tuple[str, Markup]]()
            for title, figure in charts:
                about, is_first = f"{title}; the tables below have the same values", not drawn and not of_group
                name = f"plot{len(drawn)}-{len(of_group)}"
                of_group.append((title, chart_html(figure, about, nonce, name, with_script=is_first)))
            drawn.append((heading, of_group))
        page = template("paretune.commands.report", "report.html")
        return page.render(report=self, nonce=nonce, drawn=drawn, about_charts=ABOUT_CHARTS)

    def __str__(self) -> str:
        blocks = [" ".join(self.about)]
        for section in self.sections:
            more = len(section.table) - _MOST_SHOWN
            rest = [f"- {more:,} more rows are in report.csv and report.html"] if more > 0 else []
            table = aligned(section.table.head(_MOST_SHOWN))
            blocks += [f"{section.heading}:", table, *rest, *(f"- {text}" for text in section.sentences)]
        return "\n\n".join(blocks)


QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    metrics.THROUGHPUT_SAMPLES: ("samples/s", "{:,.1f}".format),
    metrics.TRAIN_SECONDS: ("training time", duration),
    metrics.BILLABLE_SECONDS: ("billed time", duration),
    metrics.COST_USD: ("cost (USD)", dollars),
    metrics.PEAK_MEMORY_GIB: ("memory per device (GiB)", "{:,.2f}".format),
    metrics.F1: ("F1", "{:.4f}".format),
    metrics.PERPLEXITY: ("perplexity", "{:,.2f}".format),
    metrics.ESTIMATED_SECONDS: ("estimated before", duration),
}
"""Metric to its heading and the function that formats a value."""
_ESTIMATES = (metrics.ESTIMATED_SECONDS, metrics.ESTIMATED_COST_USD, metrics.ESTIMATED_MEMORY_GIB)
ESTIMATED = [f"{name}{end}" for name in _ESTIMATES for end in ("", "_low", "_high")]
_PHASES = (metrics.STARTING_SECONDS, metrics.DOWNLOADING_SECONDS, metrics.UPLOADING_SECONDS)
_METRICS = list(dict.fromkeys([*QUANTITIES, *ESTIMATED, *metrics.OF_THE_BILL, *metrics.TIMES, *_PHASES]))
VERSIONS = "versions"
_LOGGED = "logged/"  # prefix of the columns of a script's own metrics
_PRICE = ("usd_per_hour", "region", "as_of", "source")


def frame_of(jobs: Iterable[RecordedRun], factor: str = SHAPE) -> pd.DataFrame:
    """Return a frame with a row per job; there must be at least one.

    Every parameter of a job is a column of strings, and so are `factor`, shape, devices, versions and the user's own
    `script`, which does not contain the factor. A parameter that is not recorded has its default, or an empty string if
    the job ran a user's script.

    These columns have numbers, or NaN for unknown values: `device_count`; `rows`, which counts the whole data set if an
    imported table has its size, else the rows trained on; `work`, which is rows times epochs; `rate`, the learning
    rate; and metrics. `logged` has the names of the metrics that the user's own script has logged. The column of such a
    metric has the prefix `logged/`, because a script may name a metric like any other column, such as `precision`.
    """
    frame = pd.DataFrame([_row(job, factor) for job in jobs])
    numbers = ["device_count", "rows", "rate", *_METRICS]
    frame[numbers] = frame[numbers].apply(pd.to_numeric, errors="coerce")
    return frame.assign(work=frame["rows"] * pd.to_numeric(frame.num_train_epochs, errors="coerce"))


def _row(job: RecordedRun, factor: str) -> Row:
    try:
        spec = job.spec_as_run()
    except BadInput:
        spec = None
    parts = {name: job.param(name) for name in ("project", "entry_point", "entry_script")}
    script = any(parts.values())
    values = {name: job.param(name) or ("" if script else text) for name, text in DEFAULTS.items()}
    values |= {"instance_type": job.instance_type, "instance_count": str(job.instance_count)}
    values["precision"] = job.used_precision or values["precision"]
    devices = _devices(job) if spec is None else spec.degrees.devices
    tags = {} if spec is None else spec.tags
    if spec is not None and (job.was_retried or not script):
        plan = job.used_plan(spec.plan())
        values |= {name: str(getattr(plan, name)) for name in OF_THE_BATCH[:2]}
    outer, _, inner = factor.partition(".")
    if outer in NESTED and inner:
        values[factor] = "" if spec is None else spell(spec.model_dump(mode="json")[outer].get(inner, "not set"))
    is_notional = not job.is_billed
    shape, has_date = f"{job.instance_count} x {job.instance_type or 'local'}", job.started and not job.row_key
    day = f"{datetime.fromtimestamp(job.started, UTC):%Y-%m-%d}" if has_date else ""
    row = {
        **values,
        "script": " ".join(text for name, text in parts.items() if text and name != factor),
        "run_id": job.run_id,
        "run_name": job.name,
        "date": day,
        "origin": job.origin,
        "is_notional": is_notional,
        "kind": f"{job.origin}, notional dollars" if is_notional else job.origin,
        "launcher": job.launcher,
        "state": job.state,
        SHAPE: shape,
        DEVICES: "" if devices is None else str(devices),
        VERSIONS: job.versions,
        "device_count": devices,
        "rows": job.param(DATASET_SIZE) or job.metrics.get("train_rows") or job.param("max_train_samples"),
        "rate": job.param("scaled_learning_rate") or job.param("learning_rate"),
        **{name: job.metrics.get(name) for name in _METRICS},
        metrics.COST_USD: job.cost_usd,
        **{f"price_{name}": getattr(job, f"price_{name}") for name in _PRICE},
        "study": job.tags.get(schema.STUDY, ""),
        "month": day[:7],
        "user": job.tags.get(schema.USER, ""),
        "team": job.tags.get(schema.TEAM) or tags.get("team", ""),
        "tag": [f"{name}={value}" for name, value in sorted(tags.items())],
    }
    own = {name: value for name, value in job.metrics.items() if script and name not in _METRICS and "/" not in name}
    return row | {f"{_LOGGED}{name}": value for name, value in own.items()} | {"logged": [*own]}


def _devices(job: RecordedRun) -> int | None:
    """Return the number of accelerators of the whole cluster, or of processes on CPUs; None if unknown."""
    instance = catalog.instances().get(job.instance_type)
    return None if instance is None else max(1, instance.accelerator_count) * job.instance_count


def dates(frame: pd.DataFrame) -> str:
    """Return the number, dates and origins of jobs: 230 jobs from 2026-10-01 to 2026-11-21 (200 measured, ...)."""
    days = sorted(filter(None, frame.date))
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(Counter(frame.origin).items()))
    when = "" if not days else f" of {days[0]}" if days[0] == days[-1] else f" from {days[0]} to {days[-1]}"
    return f"{len(frame)} job{'s' if len(frame) > 1 else ''}{when} ({origins})."


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame; unknown values are None."""
    return rows_of(frame.astype(object).where(frame.notna(), None))


NONE = "(none)"
_COMPARED = ["kind", "script", "dataset", "judged_by"]  # runs that may be compared have the same values of these
_NEW = (*(f"new_price_{name}" for name in _PRICE), "new_cost_usd", "remark")
_STAR = {True: "*", False: ""}.__getitem__
_RUNS: Columns = {
    "run": ("run_id", lambda run_id: run_id[:8]),
    "date": "date",
    "origin": "origin",
    "state": ("state", lambda state: "" if state == "Completed" else state),
    "script": ("script", lambda script: script.rpartition("/")[2]),
    "instances": "instance_count",
    "instance type": "instance_type",
    "global batch": "global_batch_size",
    "learning rate": ("learning_rate", "g"),
    "judged by": ("judged_by", lambda name: name and label(name)),
    "quality": ("quality", lambda value: plain(value, 4)),
    "seconds": ("billable_seconds", ",.0f"),
    "cost USD": ("cost_usd", dollars),
    "USD/hour": ("price_usd_per_hour", "g"),
    "region": "price_region",
    "price as of": "price_as_of",
    "front": ("on_front", _STAR),
    "new USD/hour": ("new_price_usd_per_hour", "g"),
    "new region": "new_price_region",
    "new price as of": "new_price_as_of",
    "new cost USD": ("new_cost_usd", dollars),
    "difference": ("difference_usd", lambda usd: f"{'+' * (usd > 0)}{dollars(round(usd, 6) or 0.0)}"),
    "new front": ("on_new_front", _STAR),
}
_ROWS = (
    *(column if isinstance(column, str) else column[0] for column in _RUNS.values()),
    *("f1", "run_name", "launcher", "dataset", "spot", "price_source", "new_price_source", "remark"),
)
"""Columns of report.csv with view=runs; those of the estimates follow."""
_TOTALS: Columns = {
    "origin": "origin",
    "runs": ("jobs", ","),
    "cost (USD)": ("cost_usd", dollars),
    "billed (USD)": ("billed_usd", dollars),
    "of failed jobs (USD)": ("failed_usd", dollars),
    "instance hours": ("instance_hours", lambda hours: plain(hours, 3)),
    "best F1": ("best_f1", ".4f"),
    "runs without a cost": ("without_cost", lambda count: f"{count:,}" if count else ""),
}


def costs_report(
    request: ReportRequest,
    jobs: Sequence[RecordedRun],
    prices: PriceList,
    today: date,
    goals: Mapping[str, Mapping[str, str]],
) -> Report:
    """Return the report of view=runs: a row per run, with new prices if requested, and totals of dollars.

    `jobs` are the newest first. Those beyond `MOST_RUNS` are left out, and the report says so. `goals` maps the id of a
    study's run to its objectives, whose quality metric judges its trials.
    """
    jobs, has_more = jobs[:MOST_RUNS], len(jobs) > MOST_RUNS
    frame = frame_of(jobs)
    is_new = bool(request.region or request.on or request.rate != "list")
    new = [new_cost(job, prices, request, today) if is_new else {} for job in jobs]
    judges = [_judge(job, goals.get(job.tags.get(schema.PARENT, ""), {})) for job in jobs]
    rows = frame.assign(
        learning_rate=frame.rate,
        judged_by=["" if judge is None else judge.metric for judge in judges],
        sign=[1.0 if judge is None else judge.sign for judge in judges],
    )
    measured = [None if judge is None else job.metrics[judge.metric] for job, judge in zip(jobs, judges, strict=True)]
    rows["quality"] = pd.Series(measured, rows.index, dtype=float)
    rows[[*_NEW]] = pd.DataFrame(new, columns=_NEW, dtype=object)
    rows["new_cost_usd"] = rows.new_cost_usd.astype(float)
    rows["difference_usd"] = rows.new_cost_usd - rows.cost_usd
    rows["on_front"], rows["on_new_front"] = _fronts(rows, metrics.COST_USD), _fronts(rows, "new_cost_usd")
    marks = bool(rows[["on_front", "on_new_front"]].eq(True).to_numpy().any())
    remarks = rows.remark[rows.remark.fillna("") != ""].value_counts(sort=False)
    sums = totals(frame, request.by)
    sums_by = {str(by): group for by, group in sums.groupby("by", sort=False)}
    remarked = [f"{count} run{'s' * (count > 1)}: {remark}" for remark, count in remarks.items()]
    sections = [
        Section(
            "Newest first",
            texts(rows, _RUNS),
            [
                *(
                    [
                        "front *: no other completed run of its origin, script, data set, metric and kind of dollars "
                        "(billed or notional) is cheaper and as good, or better and as cheap"
                    ]
                    if marks
                    else []
                ),
                "cost = seconds x instances x price, except with kept instances, fallback types or imported dollars",
                *remarked,
            ],
        ),
        *(
            Section(
                f"{_of_these(has_more)}, by {by.replace('_', ' ')}",
                texts(group, {by.replace("_", " "): "key", **_TOTALS}),
            )
            for by, group in sums_by.items()
            if (group.key != NONE).any()
        ),
    ]
    return Report(
        title="Report on recorded runs",
        about=[dates(frame), *([_older(frame, jobs[-1])] if has_more else [])],
        sections=sections,
        rows=records(rows[[*_ROWS, *ESTIMATED]]),
        totals=records(sums),
    )


def _of_these(has_more: bool) -> str:
    return "Recorded dollars of these jobs only" if has_more else "Recorded dollars"


def _older(frame: pd.DataFrame, oldest: RecordedRun) -> str:
    """Return a sentence on the jobs that a report leaves out, with the filter that selects them."""
    before = command_line("report", {"filter": f"attributes.start_time < {oldest.started * 1000:.0f}"})
    return f"These are the newest {len(frame):,} jobs; older ones are left out, and in no sum: `{before}` shows them."


def _fronts(frame: pd.DataFrame, cost: str) -> pd.Series:
    """Return whether each completed run is on the front of those it is compared with; None for all other runs."""
    marks = pd.Series(None, frame.index, dtype=object)
    completed = frame[frame.state == "Completed"]
    judged = completed.assign(quality=completed.quality * completed.sign)
    for _, points in judged[[*_COMPARED, cost, "quality"]].dropna().groupby(_COMPARED):
        marks[points.index] = pareto.front(points[[cost, "quality"]].to_numpy().tolist(), maximize=(False, True))
    return marks


def _judge(job: RecordedRun, goals: Mapping[str, str]) -> Objective | None:
    """Return the metric that judges a run, or None if it has no value of it: that of its study, else of its task.

    A user's own training outside of a study is judged by F1.
    """
    task = metrics.TASKS.get(job.param("task") or metrics.CLASSIFICATION)
    judge = judged_by(goals) or OBJECTIVES[metrics.F1 if task is None else task.quality]
    return judge if judge.metric in job.metrics else None


def new_cost(job: RecordedRun, prices: PriceList, request: ReportRequest, today: date) -> Row:
    """Return the cost of a job in another region, on another day or as billed.

    A remark says why that cost is unknown or doubtful, or that it is a notional or an effective cost.
    """
    if not job.is_billed:
        return {"new_cost_usd": job.cost_usd, "remark": "not billed: its notional cost is kept"}
    if request.rate == "effective":
        usd = job.effective_usd
        unknown = "no complete bill of it was read, so its effective cost is unknown (`paretune reconcile`)"
        return {"new_cost_usd": usd, "remark": unknown if usd is None else "cost is the effective cost of its bill"}
    kind, region = job.instance_type, request.region or job.region
    if job.billable_seconds is None:
        return {"remark": "no billable seconds are recorded: it cannot be priced again"}
    if not region:
        if catalog.owner(kind).has_regions:
            return {"remark": "no region is recorded: set region"}
        return {"remark": "its launcher has no regions: it cannot be priced again"}
    price = prices.price(kind, region, request.on)
    remarks = price_remarks(price, kind, region, request.on or today)
    if price is None and request.on is not None:
        remarks = [f"price of {kind} in {region} on {request.on} or before is not known, so no cost is shown"]
    row: Row = {"remark": "; ".join(remarks)}
    if price is not None:
        row["new_cost_usd"] = price.cost_usd(job.billable_seconds + job.warm_pool_seconds, job.instance_count)
        row |= {f"new_price_{name}": getattr(price, name) for name in _PRICE}
    return row


def totals(frame: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """Return sums over all jobs, and then sums by each of TOTAL_KEYS or, if `by` is given, by this key alone.

    Each origin has its own rows, and so have notional dollars. A job with several tags counts for each of them. The
    sums are dollars at list prices, dollars on AWS's bill if `reconcile` has recorded them, dollars of failed jobs, and
    hours times instances; a sum is NaN if no job has a value. `best_f1` is the highest F1 of the completed jobs, on any
    data. `without_cost` counts the jobs whose cost is unknown.
    """
    seconds = frame.billable_seconds + frame[metrics.WARM_POOL_SECONDS].fillna(0.0)
    frame = frame.assign(
        origin=frame.kind,
        failed_usd=frame.cost_usd.where(frame.state == "Failed"),
        instance_hours=seconds * frame.instance_count.astype(int) / 3600,
        best_f1=frame.f1.where(frame.state == "Completed"),
        without_cost=frame.cost_usd.isna(),
        instance_type=frame.instance_type.replace("", "local"),
        **{ALL: ALL},
    )
    sums = ["cost_usd", "billed_usd", "failed_usd", "instance_hours"]
    values = frame[["origin", *sums, "best_f1", "without_cost"]]
    tables = list[pd.DataFrame]()
    for name in (ALL, *([by] if by else TOTAL_KEYS)):
        keyed = values.assign(by=name, key=frame[name]).explode("key")
        keyed["key"] = keyed.key.fillna("").replace("", NONE)
        groups = keyed.groupby(["by", "key", "origin"])
        table = groups[sums].sum(min_count=1)
        table.insert(0, "jobs", groups.size())
        table["best_f1"], table["without_cost"] = groups.best_f1.max(), groups.without_cost.sum()
        tables.append(table.reset_index())
    return pd.concat(tables, ignore_index=True)


_OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster. They are compared among runs with the same work (rows and epochs).

Other factors are compared among runs with the same shape."""
_SETTINGS = {*parameters_affecting(*COMPUTES, "evaluation"), VERSIONS} - {
    *("seed", "dataset", "model", "instance_type", "instance_count")
}
"""Settings that should not differ between the runs of a table."""
_KIND = ["origin", "kind", "script", "model", "dataset", "task", "apart"]
"""Columns that are the same in runs that may be compared, unless the factor is one of them."""
_APART = {"origin": "origin", "dataset": "data set", "model": "model"}
_RATIOS: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_saves_seconds": ("saved by this step", duration),
    "step_costs_usd": ("dollars of this step", "{:+,.2f}".format),
    "efficiency": ("efficiency", "{:.0%}".format),
    "time_ratio": ("billed time / first", "{:.3f}".format),
    "cost_ratio": ("cost / first", "{:.3f}".format),
    "f1_difference": ("F1 - first", "{:+.4f}".format),
}
"""Columns that compare a row with the previous or the first one: name in report.csv to heading and format."""


def groups_report(jobs: Sequence[RecordedRun], factor: str, *, is_drawn: bool = False) -> Report:
    """Return the report of view=scaling or view=compare: completed jobs by the factor's values, charts if `is_drawn`.

    Probes are left out. Each kind of jobs has its own table, and runs of one kind may differ in the factor. If
    the factor describes the cluster, its values are compared among jobs with the same rows and epochs, because F1 is
    comparable only on the same validation rows. The values of any other factor are compared among jobs with the same
    shape, such as 2 x ml.g5.xlarge. Raises BadInput if no kind has two values of the factor.
    """
    frame = frame_of(jobs, factor)
    runs = frame[(frame.state == "Completed") & (frame.probe_steps == "")]
    work = runs.apply(_work, axis="columns") if factor in _OF_THE_CLUSTER else runs[SHAPE]
    runs = runs.assign(apart=work)
    kinds = runs.assign(**{factor: ""})[_KIND]
    groups = {title_of(*map(str, kind[1:])): group for kind, group in runs.groupby([kinds[name] for name in _KIND])}
    several = {title: group for title, group in groups.items() if group[factor].nunique() > 1}
    if not several:
        alone = [f"{title}: all with {factor} {group[factor].iloc[0] or 'unknown'}" for title, group in groups.items()]
        got = "; ".join(alone) or "no completed run"
        raise BadInput([f"by={factor} needs runs with at least two values, got {got}: use more runs or another factor"])
    tables = {title: numbers_of(group, factor) for title, group in several.items()}
    numbers = pd.concat(tables.values())
    *others, last = (text for name, text in _APART.items() if name != factor)
    about = [dates(frame), f"Each {', '.join(others)} and {last} has its own table: compare only within one."]
    if left := len(frame) - len(runs):
        about.append(f"Left out: {left} (jobs that did not complete, and probes).")
    return Report(
        title=f"Report by {factor}",
        about=about,
        sections=[section_of(title, factor, several[title], table) for title, table in tables.items()],
        rows=records(numbers),
        charts=scaling_charts(numbers) if is_drawn else (),
    )


def _work(run: pd.Series) -> str:
    """Return on how many rows and epochs a run has trained, in words; empty if either number is unknown."""
    epochs = f"{run.work / run.rows:.3g}"
    return "" if np.isnan(run.work) else f"{run.rows:,.0f} rows x {epochs} epoch{'s' * (epochs != '1')}"


def _quantities(runs: pd.DataFrame) -> dict[str, tuple[str, Callable[[float], str]]]:
    return QUANTITIES | {f"{_LOGGED}{name}": (name, partial(plain, digits=5)) for name in chain(*runs.logged)}


def _sorted(names: Iterable[str]) -> list[str]:
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def numbers_of(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Return a row for each value of the factor: means and deviations, and ratios to the first row.

    Times are in seconds, costs in USD, and ratios are shares. Clusters are ordered by their number of devices. For any
    other factor, the default comes first.
    """
    names, levels = _sorted(runs[factor].unique()), runs.groupby(factor)
    names.sort(key=lambda name: name != DEFAULTS.get(factor))
    if factor in _OF_THE_CLUSTER:
        names.sort(key=lambda name: levels.device_count.min()[name])
    kind = runs[_KIND].iloc[0].to_dict() | ({factor: names} if factor in _KIND else {})
    numbers = pd.DataFrame({**kind, "factor": factor, "level": names}, index=names)
    counts = levels.device_count.agg(["min", "max"])
    numbers["devices"] = counts["min"].where(counts["min"] == counts["max"]).astype("Int64")
    numbers["n"] = levels.size()
    for column in _quantities(runs):
        name = column.removeprefix(_LOGGED)
        numbers[f"{name}_mean"], numbers[f"{name}_deviation"] = levels[column].mean(), levels[column].std()
    for name in QUALITIES:
        numbers[[f"{name}_low", f"{name}_high"]] = confidence(runs[name], runs[factor])
    seconds, usd, f1 = (numbers[f"{name}_mean"] for name in (metrics.BILLABLE_SECONDS, metrics.COST_USD, metrics.F1))
    numbers["time_ratio"], numbers["cost_ratio"] = seconds / seconds.iloc[0], usd / usd.iloc[0]
    numbers["f1_difference"] = f1 - f1.iloc[0]
    if numbers.devices.nunique() > 1:
        numbers["efficiency"] = numbers.devices.iloc[0] / numbers.devices / numbers.time_ratio
        numbers["step_saves_seconds"], numbers["step_costs_usd"] = -seconds.diff(), usd.diff()
    return numbers


def section_of(title: str, factor: str, runs: pd.DataFrame, numbers: pd.DataFrame) -> Section:
    """Return the table of one kind of runs, and a sentence on the other settings in which the runs differ."""
    table = pd.DataFrame({factor: numbers.level, "devices": numbers.devices.astype("string").fillna("")})
    headers = {factor, "devices", "n", *(header for header, _ in (*QUANTITIES.values(), *_RATIOS.values()))}
    for column, (header, written) in _quantities(runs).items():
        name = column.removeprefix(_LOGGED)
        heading = f"{header} (logged)" if name != column and header in headers else header
        table[heading] = list(map(partial(_mean, written), numbers[f"{name}_mean"], numbers[f"{name}_deviation"]))
    table["n"] = numbers.n.astype(str)
    for name, (header, written) in _RATIOS.items():
        if name in numbers:
            table[header] = ["" if pd.isna(value) else written(value) for value in numbers[name]]
    # More devices mean a larger global batch unless it is fixed, so this difference is expected.
    settings = _SETTINGS - {factor} - ({"global_batch_size"} if factor in _OF_THE_CLUSTER else set())
    values = {name: _sorted(set(runs[name]) - {""}) for name in sorted(settings)}
    varying = "; ".join(f"{name} ({', '.join(several)})" for name, several in values.items() if len(several) > 1)
    return Section(
        f"{title}, by {factor}: means ± sample standard deviations",
        without_empty_columns(table),
        [f"These runs differ not only in {factor}, but also in {varying}."] if varying else [],
    )


def _mean(written: Callable[[float], str], mean: float, deviation: float) -> str:
    """Format a mean ± the sample standard deviation, with the same number of decimals."""
    if np.isnan(mean) or np.isnan(deviation):
        return "" if np.isnan(mean) else written(mean)
    text = written(mean)
    error = duration(deviation) if written is duration else f"{deviation:,.{len(text.partition('.')[2])}f}"
    return f"{text} ± {error}"
