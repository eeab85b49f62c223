"""A table of estimates, as text, as CSV and as a picture."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paretune.commands.estimate.command import DIVISIONS
from paretune.core import pareto
from paretune.core.result import Result, Row, as_json, csv_text
from paretune.estimating.estimator import Estimate
from paretune.estimating.phases import Seconds
from paretune.presentation.numbers import duration, usd
from paretune.presentation.scale import tick_texts, tick_values
from paretune.pricing.prices import dates_of
from paretune.specification.job_phases import PHASES
from paretune.specification.parameters import spell

if TYPE_CHECKING:
    from pandas import DataFrame

_SECONDS = ("seconds", "seconds_low", "seconds_high")
PHASE_COLUMNS = tuple(f"{phase}_{name}" for phase in PHASES for name in _SECONDS)
COLUMNS = (
    *("instance_type", "instance_count", "per_device_train_batch_size", "seconds", "seconds_low", "seconds_high"),
    *("cost_usd", "memory_gib_per_device", "on_front", "basis"),
    *("cost_usd_low", "cost_usd_high", "memory_gib_low", "memory_gib_high", "memory_gib_usable", "fits"),
    *("gradient_accumulation_steps", "global_batch_size", "strategy", "precision", "fine_tuning", "model"),
    *("max_seq_length", "max_train_samples", "num_train_epochs", "steps", "seconds_per_step", "price_usd_per_hour"),
    *("dataset", "dataset_config_name", "task", "memory_basis"),
    *("tokens", "days", "usd_per_billion_tokens"),
    *DIVISIONS,
    *PHASE_COLUMNS,
    "largest_batch_that_fits",
)
"""Of estimate.csv. Seconds are billable seconds per instance; low and high bound 80 % intervals.

The columns of a phase are empty for a job on this machine; waiting and starting are not billed. Tokens are those of a
causal-lm, counted as often as they are trained on; days and dollars those of the whole job. The largest batch is a
power of two of rows per device, 0 if not even one row fits.
"""
_SHOWN = (*COLUMNS[:10], "fits")  # in a notebook
_OF_THE_PLAN = ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size")
_MARK = "* = on the predicted Pareto front of seconds and dollars"
_DAY_S = 24 * 3600.0
MOST_LABELS = 40  # points of the picture that are labelled; with more there are no labels


@dataclass(frozen=True, kw_only=True)
class EstimateTable(Result):
    """Estimates of jobs that have not run, one row each."""

    estimates: Sequence[Estimate]
    region: str
    remarks: Sequence[str]  # what is to be said of dollars and intervals, a sentence each
    record: Callable[[], tuple[str, str]]
    """Keeps the table in a run; its id, and the command that opens it. Called once, when one of them is read."""
    warnings: Sequence[str] = ()  # what is to be known before such a job is paid for, a sentence each

    @cached_property
    def _recorded(self) -> tuple[str, str]:
        return self.record()

    @property
    def run_id(self) -> str:
        """The MLflow run that holds the table."""
        return self._recorded[0]

    @property
    def open_command(self) -> str:
        """The command or address that shows the run."""
        return self._recorded[1]

    @property
    def title(self) -> str:
        """Says that nothing of it has run."""
        return "estimated, none of these has run"

    def rows(self) -> list[Row]:
        """The rows of estimate.csv, `on_front` as a truth; seconds are billable seconds per instance."""
        return rows(self.estimates)

    def to_dict(self) -> dict[str, object]:
        """Run, region, rows, remarks and warnings."""
        return {
            "run_id": self.run_id,
            "region": self.region,
            "rows": as_json(self.rows()),
            "remarks": list(self.remarks),
            "warnings": list(self.warnings),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """The region of the prices, remarks, warnings, and where to look."""
        return [*self._remarks(), self.open_command]

    def __str__(self) -> str:
        """The table for a terminal with remarks and warnings."""
        return "\n".join(self.parts())

    def parts(self) -> Iterator[str]:
        """The table, and then where to look: recording it takes longer than the estimate."""
        yield "\n".join([as_text(self.estimates), "", f"{self.title}; {_MARK}", *self._remarks(), ""])
        yield f"  {self.open_command}"

    def _shown(self) -> "DataFrame":
        return self.to_frame()[list(_SHOWN)]

    def _remarks(self) -> list[str]:
        sentences = [*self.remarks, *(f"warning: {text}" for text in self.warnings)]
        if not any(item.spec.has_instances for item in self.estimates):
            return sentences
        dates = dates_of(item.price for item in self.estimates)
        of = f"prices of {self.region}, SageMaker Training, on demand{dates and f', {dates}'}"
        of += "; data and model are counted, storage is not"
        return [of, *sentences]


def rows(estimates: Sequence[Estimate]) -> list[Row]:
    """One row per estimate; what is not known is None."""
    return [_row(item, is_best) for item, is_best in zip(estimates, on_front(estimates), strict=True)]


def _row(item: Estimate, is_best: bool) -> Row:
    time, memory = item.time, item.memory
    computed: Row = {
        "seconds": round(time.seconds, 1),
        "seconds_low": round(time.seconds_low, 1),
        "seconds_high": round(time.seconds_high, 1),
        "cost_usd": item.cost_usd,
        "memory_gib_per_device": round(memory.gib, 3),
        "on_front": is_best,
        "basis": item.basis,
        "cost_usd_low": item.usd(time.seconds_low),
        "cost_usd_high": item.usd(time.seconds_high),
        "memory_gib_low": round(memory.gib_low, 3),
        "memory_gib_high": round(memory.gib_high, 3),
        "memory_gib_usable": round(item.usable_gib, 3),
        "memory_basis": "traced" if item.is_traced else "formula",
        "fits": item.fits,
        "steps": time.steps,
        "seconds_per_step": round(time.step_seconds, 6),
        "price_usd_per_hour": item.price.usd_per_hour if item.price is not None else None,
        "tokens": item.tokens,
        "days": time.seconds / _DAY_S,
        "usd_per_billion_tokens": item.usd_per_billion_tokens,
        "largest_batch_that_fits": item.largest_batch,
    }
    computed |= dict.fromkeys(PHASE_COLUMNS) | phase_columns(item.phases)
    computed |= {name: getattr(item.plan, name) for name in _OF_THE_PLAN}
    return {name: computed[name] if name in computed else getattr(item.spec, name) for name in COLUMNS}


def phase_columns(phases: Mapping[str, Seconds]) -> Row:
    """Seconds of each phase, with their interval, by the names of PHASE_COLUMNS."""
    return {
        f"{phase}_{name}": round(getattr(seconds, name), 1) for phase, seconds in phases.items() for name in _SECONDS
    }


def as_csv(estimates: Sequence[Estimate]) -> str:
    """The table as CSV with the columns COLUMNS; an empty field means unknown."""
    table = rows(estimates)
    return csv_text(
        COLUMNS,
        ({name: spell(value) if isinstance(value, bool) else value for name, value in row.items()} for row in table),
    )


def as_text(estimates: Sequence[Estimate]) -> str:
    """The table for a terminal: front marked with *, 80 % intervals in brackets, then what the rows stand on."""
    typed = [item.spec.as_text() for item in estimates]
    settings = [name for name in COLUMNS[COLUMNS.index("strategy") :] if name in typed[0]]
    varying = [name for name in settings if len({texts[name] for texts in typed}) > 1]
    counts_tokens = any(item.tokens for item in estimates)
    per_tokens = ["USD per billion tokens"] if counts_tokens else []
    head = ["", "cluster", "batch", *varying, "time (80 % interval)", "USD (80 % interval)", *per_tokens]
    cells = [[*head, "GiB per device", "largest batch", "basis"]]
    for item, texts, is_best in zip(estimates, typed, on_front(estimates), strict=True):
        plan = item.plan
        accumulation = f" x {plan.gradient_accumulation_steps}" if plan.gradient_accumulation_steps > 1 else ""
        cells.append(
            [
                "*" if is_best else "",
                f"{item.spec.instance_count} x {item.spec.instance_type}",
                f"{plan.per_device_train_batch_size}{accumulation}",
                *(texts[name] or "-" for name in varying),
                f"{_time(item.time.seconds)} ({_time(item.time.seconds_low)} to {_time(item.time.seconds_high)})",
                _dollars(item),
                *([_of_tokens(item)] if counts_tokens else []),
                _memory(item),
                "-" if item.largest_batch is None else str(item.largest_batch),
                item.basis,
            ]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def figure(estimates: Sequence[Estimate]) -> Any:
    """Dollars over time with 80 % intervals, the predicted front joined; None when no row has a price."""
    from matplotlib.figure import Figure

    marked = zip(estimates, on_front(estimates), strict=True)
    priced = [(item, best) for item, best in marked if item.cost_usd is not None]
    if not priced:
        return None
    longest = max(item.time.seconds for item, _ in priced)
    unit, seconds = ("hours", 3600.0) if longest > 4 * 3600 else ("minutes", 60.0)
    drawing = Figure(figsize=(8, 5.5), layout="constrained")
    axes = drawing.add_subplot()
    for name in dict.fromkeys(item.spec.instance_type for item, _ in priced):
        group = [item for item, _ in priced if item.spec.instance_type == name]
        times = [item.time.seconds / seconds for item in group]
        usd = [item.cost_usd or 0.0 for item in group]
        below = [(item.time.seconds - item.time.seconds_low) / seconds for item in group]
        above = [(item.time.seconds_high - item.time.seconds) / seconds for item in group]
        axes.errorbar(times, usd, xerr=[below, above], fmt="o", label=name, capsize=3)
        for item, x, y in zip(group, times, usd, strict=True):
            if len(priced) > MOST_LABELS:  # nobody could read them
                break
            fits = "" if item.fits == "yes" else f", fits: {item.fits}"
            label = f"{item.spec.instance_count} x, batch {item.plan.per_device_train_batch_size}{fits}"
            axes.annotate(label, (x, y), textcoords="offset points", xytext=(6, 5), fontsize=8)
    best = sorted((item.time.seconds / seconds, item.cost_usd or 0.0) for item, is_best in priced if is_best)
    if best:
        axes.plot(*zip(*best, strict=True), drawstyle="steps-post", color="grey", linewidth=1, label="predicted front")
    axes.set(xlabel=f"{unit} (billable)", ylabel="USD", title="Estimated, nothing has run; bars: 80 % intervals")
    axes.set_xscale("log")
    ticks = tick_values(*axes.get_xlim(), is_log=True)
    axes.set_xticks(ticks, tick_texts(ticks))
    axes.minorticks_off()
    axes.legend()
    return drawing


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 4 * _DAY_S else f"{seconds / _DAY_S:.1f} days"


def _dollars(item: Estimate) -> str:
    low, middle, high = map(item.usd, (item.time.seconds_low, item.time.seconds, item.time.seconds_high))
    if low is None or middle is None or high is None:
        return "no price"
    return f"{_usd(middle)} ({_usd(low)} to {_usd(high)})"


def _of_tokens(item: Estimate) -> str:
    usd = item.usd_per_billion_tokens
    return "-" if usd is None else f"{usd:,.0f}" if usd >= 100 else _usd(usd)


def _usd(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _memory(item: Estimate) -> str:
    memory = item.memory
    suffix = {"yes": "", "no": ": does NOT fit", "unsure": ": may not fit"}[item.fits]
    if item.did_not_fit is not None:
        suffix += f" (batch {item.did_not_fit.rows} ran out of memory before)"
    return f"{memory.gib:.1f} ({memory.gib_low:.1f} to {memory.gib_high:.1f}) of {item.usable_gib:.1f}{suffix}"


def note(estimates: Sequence[Estimate]) -> str:
    """The note of an estimate's run: the cheapest and the fastest job that may fit, with their 80 % intervals."""
    fitting = [item for item in estimates if item.fits != "no"]
    priced = [item for item in fitting if item.cost_usd is not None]
    best = {
        "cheapest": min(priced, key=lambda item: item.cost_usd or 0.0, default=None),
        "fastest": min(fitting, key=lambda item: item.time.seconds, default=None),
    }
    lines = []
    for kind, item in best.items():
        if item is not None:
            low, high = duration(item.time.seconds_low), duration(item.time.seconds_high)
            cost = "" if item.cost_usd is None else f", {usd(item.cost_usd)}"
            cluster = f"{item.spec.instance_count} x {item.spec.instance_type}"
            batch = f"batch per device {item.plan.per_device_train_batch_size}"
            time = f"{duration(item.time.seconds)} ({low} to {high})"
            lines.append(f"Estimated {kind}: **{cluster}**, {batch}: **{time}{cost}**")
    return "\n\n".join([*(lines or ["No job fits into memory."]), "Nothing has run. All rows are in `estimate.csv`."])


def on_front(estimates: Sequence[Estimate]) -> list[bool]:
    """The estimates that are on the front of seconds and dollars; none that does not fit or lacks a price."""
    points = {
        index: (item.time.seconds, item.cost_usd)
        for index, item in enumerate(estimates)
        if item.fits != "no" and item.cost_usd is not None
    }
    marks = dict(zip(points, pareto.front(list(points.values()), maximise=(False, False)), strict=True))
    return [marks.get(index, False) for index in range(len(estimates))]
