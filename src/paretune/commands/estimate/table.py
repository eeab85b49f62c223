"""The table of estimates: its rows, its CSV, and how a terminal and a notebook show it."""

import json
import math
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from paretune.core.result import Result, Row, as_json, csv_text
from paretune.core.shell import options
from paretune.estimating.estimator import Estimate
from paretune.estimating.memory import MemoryPrediction
from paretune.estimating.phases import PHASES
from paretune.estimating.timing import PARTS
from paretune.presentation.text import aligned, dollars, duration, plain, usd
from paretune.pricing import dates_of
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DIVISIONS, OF_THE_BATCH

if TYPE_CHECKING:
    from pandas import DataFrame

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
_MARK = "* = on the predicted Pareto front of seconds and dollars, as far as the estimate can tell types apart"
_TOLD_APART = 1 / 8
"""Power of an interval's width by which one type must be faster than a cheaper one: a quarter of the interval on either
side, because types share most of what is unknown. A guess."""
_MUCH, _MOST = 0.1, 0.5  # shares of a job: of checkpoints that are worth a line, and of what is no training
_DAY_S = 24 * 3600.0
_LEAST_WIDTH = 80  # columns of the narrowest terminal; also assumed if the output is not a terminal
_NO_TERMINAL = 100_000  # columns of what is no terminal
_INDENT = "     "
_HARD_SPACE = "\u00a0"
_OPTION = re.compile(r"--\S+ [^\s-]\S*")
UNKNOWN = "no run of this job yet: run it once"
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
        parts = [
            item.plan for _, item in self.jobs if item and item.plan.gradient_accumulation_steps > 1 and item.memory
        ]
        sentences = [
            f"batch {rows} x {plan.gradient_accumulation_steps}: each device computes {rows} row{'s' * (rows > 1)} at "
            f"once, {plan.gradient_accumulation_steps} times in a step"
            for plan in parts[:1]
            for rows in [plan.per_device_train_batch_size]
        ]
        around = [_share_around(item) for _, item in self.jobs]
        if around and min(around) > _MOST:
            share = f"{min(around):.0%} or more of the time"
            sentences.append(f"start-up and transfer are {share}: a faster type gains little")
        sentences += [*self.remarks, *(f"warning: {text}" for text in self.warnings)]
        sentences += [self.open_command] if self.open_command else []
        if not any(spec.has_instances for spec, _ in self.jobs):
            return sentences
        dates = dates_of(item.price for _, item in self.jobs if item is not None)
        prices = f"prices of {self.region}, SageMaker Training, on demand{dates and f', {dates}'}"
        return [f"{prices}; the seconds to transfer data and model are included, storage is not", *sentences]

    def __str__(self) -> str:
        columns, width = self._columns(), max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns)
        main, *others = _blocks(columns, len(self._varying()), width)
        header, *lines = main
        for (_, item), line in zip(self.jobs, lines, strict=True):
            header += "\n" + "\n".join([line, *_under_row(item, width)])
        ending = f"{self.title}; {_MARK}" if any(columns.get("", ())) else self.title
        blocks = ["\n".join(block) for block in others]
        of_words = shutil.get_terminal_size((_NO_TERMINAL, 24)).columns  # a file or pipe gets whole sentences
        first = _wrapped(line, of_words, "") if (line := self.program()) else []
        last = [line for text in (ending, *self._bases(), *self.notes()) for line in _wrapped(text, of_words, "")]
        return "\n\n".join(["\n".join([*first, header]), *blocks, "\n".join(last)])

    def _varying(self) -> list[str]:
        """Return the names of the settings that differ between rows."""
        typed = [spec.as_text() for spec, _ in self.jobs]
        settings = [name for name in COLUMNS[COLUMNS.index("strategy") :] if typed and name in typed[0]]
        return [name for name in settings if len({texts[name] for texts in typed}) > 1]

    def _columns(self) -> dict[str, list[str]]:
        """Return the columns of the printed table: the mark * of the front, the cluster, what differs, and the rest."""
        marks, others = on_front([item for _, item in self.jobs]), self._others()
        lines = []
        for (spec, item), is_best, other in zip(self.jobs, marks, others, strict=True):
            texts = spec.as_text()
            lines.append(
                {"": "*" if is_best else "", "cluster": f"{spec.instance_count} x {spec.instance_type}"}
                | {name: texts[name] or "-" for name in self._varying()}
                | {"batch": "", "time (80 % interval)": printed_time(item), "USD (80 % interval)": _dollars(item)}
                | ({} if item is None else _of_ours(item))
                | self._beside(item, other)
            )
        names = dict.fromkeys(name for line in lines for name in line)
        columns = {name: [line.get(name, "") for line in lines] for name in names}
        return {name: column for name, column in columns.items() if any(column)}

    def _bases(self) -> list[str]:
        """Return sentences that name the evidence for each row."""
        rows: dict[str, list[str]] = {}
        for spec, item in self.jobs:
            cluster = f"{spec.instance_count} x {spec.instance_type}"
            rows.setdefault(UNKNOWN if item is None else item.basis, []).append(cluster)
        if len(rows) == 1:
            return [f"basis: {basis}" for basis in rows]
        return [f"basis of {', '.join(dict.fromkeys(clusters))}: {basis}" for basis, clusters in rows.items()]

    def _beside(self, item: Estimate | None, other: Estimate | None) -> dict[str, str]:
        """Return the time of the other program, under its name, if any row differs by more than a third."""
        programs = {each.spec.trained_by.name for each in self.others if each is not None}
        if len(programs) != 1:
            return {}
        text = ""
        if item is not None and other is not None:
            ratio = other.time.seconds / item.time.seconds
            if max(ratio, 1 / ratio) > _DIFFERENT:
                text = "does not fit" if other.fits == "no" else duration(other.time.seconds)
        return {f"with {programs.pop()}": text}

    def _shown(self) -> "DataFrame":
        frame = self.to_frame()
        shown = (*_SHOWN, "region") if len({spec.region for spec, _ in self.jobs}) > 1 else _SHOWN
        return frame[[name for name in shown if name in frame]]


def on_front(estimates: Sequence[Estimate | None]) -> list[bool]:
    """Return whether each estimate is on the front of seconds and dollars.

    Estimates that may not fit in memory or have no price are not on it, and neither is one that is dearer than another
    and faster by less than the estimate can tell.
    """
    able = [
        (item.cost_usd, item.time.seconds, index)
        for index, item in enumerate(estimates)
        if item is not None and item.cost_usd is not None and (item.memory is None or item.fits == "yes")
    ]
    marks, fastest_s = set[int](), math.inf
    for _, seconds, index in sorted(able):
        time = estimates[index].time  # type: ignore[union-attr]  # the able ones exist
        if not marks or seconds * (time.seconds_high / time.seconds_low) ** _TOLD_APART < fastest_s:
            marks.add(index)
            fastest_s = min(fastest_s, seconds)
    return [index in marks for index in range(len(estimates))]


def _row(spec: JobSpec, item: Estimate | None, is_best: bool, other: Estimate | None) -> Row:
    columns = {*spec.given(), "instance_type", "instance_count"} if spec.runs_user_code else {*COLUMNS}
    row: Row = {name: getattr(spec, name, None) if name in columns else None for name in COLUMNS}
    if "dataset" not in spec.model_fields_set and spec.max_train_samples is not None:
        row["dataset"] = None  # rows of any data
    row |= {"on_front": is_best, "basis": UNKNOWN}
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


def printed_time(item: Estimate | None) -> str:
    """Return the time of a row with its interval, as the table prints it."""
    if item is None:
        return "-"
    low, high = (_end(getattr(item.time, name)) for name in _SECONDS[1:])
    return f"{duration(item.time.seconds)} ({low} to {high})"


def _end(seconds: float) -> str:
    """Format the end of an interval, rounded to an hour, ten minutes, a minute, ten seconds or a second."""
    steps = ((36_000, 3600), (7200, 600), (600, 60), (60, 10))
    step = next((step for least, step in steps if seconds >= least), 1)
    return duration(round(seconds / step) * step)


def _dollars(item: Estimate | None) -> str:
    if item is None or item.price is None:
        return "-" if item is None else "no price"
    low, high = (plain(item.usd(getattr(item.time, name)) or 0.0, 2) for name in _SECONDS[1:])
    return f"{dollars(item.cost_usd or 0.0)} ({low} to {high})"


def _of_ours(item: Estimate) -> dict[str, str]:
    """Return the batch, the memory and the price of tokens of paretune's own training, or of the Trainer's."""
    if (memory := item.memory) is None:
        return {}
    steps, usd_of_tokens = item.plan.gradient_accumulation_steps, item.usd_per_billion_tokens
    return {
        "batch": f"{item.plan.per_device_train_batch_size}{f' x {steps}' if steps > 1 else ''}",
        "samples/s": plain(item.samples_per_second, 2),
        "GiB per device": f"{memory.gib:.1f} of {_usable(memory)}",
        "largest batch": {None: "-", 0: "none surely"}.get(item.largest_batch, str(item.largest_batch)),
        "USD per billion tokens": "" if not item.tokens else "-" if usd_of_tokens is None else dollars(usd_of_tokens),
    }


def _usable(memory: MemoryPrediction) -> str:
    usable = "unknown" if math.isnan(memory.usable_gib) else f"{memory.usable_gib:.1f}"
    return f"{usable} or {memory.usable_gib + memory.unsure_gib:.1f}" if memory.unsure_gib else usable


def _under_row(item: Estimate | None, width: int) -> list[str]:
    """Return the lines below a row: that it may not fit in memory, what fits instead, and doubts of its price."""
    if item is None:
        return []
    sentences = []
    if (memory := item.memory) is not None and item.fits != "yes":
        verdict = "does not fit" if item.fits == "no" else "may not fit"
        between = f"{memory.gib_low:.1f} to {memory.gib_high:.1f}"
        sentence = f"{verdict}: {memory.gib:.1f} GiB per device ({between}) of {_usable(memory)}"
        if item.did_not_fit is not None:
            sentence += f" (batch {item.did_not_fit.rows} ran out of memory before)"
        sentences.append("; ".join(filter(None, [sentence, item.remedy_in_words()])))
    sentences += _of_checkpoints(item)
    if item.price and (doubts := item.price.doubts(date.today())):
        sentences.append(f"price {', '.join(doubts)}")
    return [line for sentence in sentences for line in _wrapped(sentence, width)]


def _of_checkpoints(item: Estimate) -> list[str]:
    """Return what checkpoints take, and how to save that, if it is more than a tenth of the job."""
    without = item.unsaved
    if without is None or (saved_s := item.time.seconds - without.time.seconds) <= _MUCH * item.time.seconds:
        return []
    given = options(training_arguments=json.dumps({"save_strategy": "no"}))
    saved = "" if item.cost_usd is None else f" and {usd(item.cost_usd - (without.cost_usd or 0.0))}"
    return [f"checkpoints and their upload are {duration(saved_s)} of it: {given} saves that{saved}"]


def _share_around(item: Estimate | None) -> float:
    """Return the share of a job's time before its first step and after its last one; 0 on this machine."""
    if item is None or not item.spec.has_instances:
        return 0.0
    return (item.time.parts.get("start", 0.0) + item.time.parts.get("upload", 0.0)) / item.time.seconds


def _wrapped(text: str, width: int, indent: str = _INDENT) -> list[str]:
    """Return a text as indented lines. An option stays on one line with its value, so that it can be copied."""
    kept = _OPTION.sub(lambda match: match[0].replace(" ", _HARD_SPACE), text)
    lines = textwrap.wrap(
        kept,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_HARD_SPACE, " ") for line in lines]


def _blocks(columns: Mapping[str, Sequence[str]], varying: int, width: int) -> list[list[str]]:
    """Return tables that are at most `width` wide and together have all columns, each as its header and its rows.

    The first has the columns that decide: what differs between the rows, time, dollars and, if there is room, more. All
    tables have the cluster. A column that is wider than a table is in a table of its own.
    """
    names, widths = [*columns], {name: max(map(len, [name, *columns[name]])) + 2 for name in columns}
    keys = [name for name in ("", "cluster") if name in columns]
    left = [name for name in names if name not in keys]
    deciding = [*left[:varying], *(name for name in left[varying:] if "(80 %" in name)]
    left = [*deciding, *(name for name in left if name not in deciding)]
    blocks = list[list[str]]()
    while left or not blocks:
        used, taken = sum(widths[name] for name in keys) - 2, list[str]()
        for name in left:
            if not taken or used + widths[name] <= width:
                used += widths[name]
                taken.append(name)
        chosen = [name for name in names if name in {*keys, *taken}]
        blocks.append(aligned({name: columns[name] for name in chosen}).splitlines())
        left = [name for name in left if name not in taken]
        keys = [name for name in keys if name]
    return blocks
