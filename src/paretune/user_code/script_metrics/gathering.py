"""The metrics of a user's own training run, from its loggers, its files and its printed lines."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .loggers import Point, Source
from .printed_line import (
    Line,
    begins_wrapped,
    block_of,
    continues,
    finite_numbers,
    has_metric_word,
    header_in,
    is_other_header,
    is_rounded,
    is_row,
    is_usual_metric,
    lone_number,
    numbers_of,
    pair_in,
    read_line,
    row_in,
    shortened,
)

_MOST_NAMES = 300  # names of printed numbers that are reported; MLflow shows a chart for each
_MOST_READ = 20_000  # names of printed numbers that are kept while a script runs
_MOST_POINTS = 10_000  # points that are kept of a printed curve
_MOST_POINTS_IN_ALL = 1_000_000  # points that are kept of all printed curves
_MOST_STATES = 3  # newest states of a line that carriage returns redraw, which are read
_LONGEST_BLOCK = 200  # rows of a printed table of names and values
_MOST_LINES = 100_000  # newest lines that are kept for metric_definitions
_NO_STEP = -1  # of a value before which no step was printed
_DIGITS = re.compile(r"\d+")
_OF_A_RANK = re.compile(r"(?<=\S)(?=\[(?:rank|RANK) ?\d+\])")  # where a line of another process begins in a line
_TRACEBACK = "Traceback (most recent call last):"  # its first line
PRINTED, IN_PER_CENT = "printed", "printed in percent and recorded as a share"


class Gathered(NamedTuple):
    """All metrics of a training run."""

    metrics: dict[str, float]  # finite values; renamed metrics appear under both names
    not_finite: list[str]  # names of metrics whose last value is NaN or infinite
    sources: str  # where the metrics come from, in one line
    curves: dict[str, list[Point]]  # curves of all sources except MLflow, whose store already has them
    left_out: int = 0  # number of further printed names, which are not among the metrics
    passes: Mapping[str, str] = {}  # name to a phrase such as `9 values in 3 passes`, if its steps go back
    thinned: Sequence[str] = ()  # names of curves that have only some of the values, because these were too many


def _reported(names: Collection[str], named: Collection[str]) -> list[str]:
    """Return at most _MOST_NAMES of these names, in their order.

    Names that are not in `named` are left out first: of these, names that differ from others only in numbers, such as
    a line for each class or layer, and then those without a word that names a metric.
    """
    if len(names) <= _MOST_NAMES:
        return list(names)
    families = Counter(_DIGITS.sub("0", name) for name in names)

    def place(name: str) -> tuple[bool, bool, bool]:
        return name not in named, families[_DIGITS.sub("0", name)] > 1, not has_metric_word(name)

    kept = set(sorted(names, key=place)[:_MOST_NAMES])
    return [name for name in names if name in kept]


class _Series:
    """Every value of one name, in the order in which they were printed."""

    def __init__(self) -> None:
        self.value = math.nan  # the last one
        self.source = PRINTED
        self.count, self.passes, self.stride = 0, 1, 1
        self._points: list[Point] = []
        self._last = Point(_NO_STEP, 0, math.nan)

    def add(self, step: int, value: float, source: str) -> None:
        """Add a value at a step, or at _NO_STEP. The same number with fewer digits, as reports repeat it, is none."""
        if self.count and step == self._last.step and is_rounded(value, self._last.value):
            return
        if step < self._last.step:
            self.passes += 1
        self._last = Point(step, max(int(time.time() * 1000), self._last.time_ms + 1), value)
        if self.count % self.stride == 0:
            self._points.append(self._last)
        self.count, self.value, self.source = self.count + 1, float(value), source
        if len(self._points) > _MOST_POINTS:
            self.thin()

    def thin(self) -> None:
        """Keep every second point."""
        self._points, self.stride = self._points[::2], self.stride * 2

    def __len__(self) -> int:
        return len(self._points)

    def curve(self) -> list[Point]:
        """Return the points, of which the last one is that of the last value.

        Values before the first step are at step 0. If no step was ever printed, the steps count the values.
        """
        points = self._points if self._points[-1:] == [self._last] else [*self._points, self._last]
        if self._last.step == _NO_STEP:
            numbers = [min(at * self.stride, self.count - 1) for at in range(len(points))]
            return [point._replace(step=number) for number, point in zip(numbers, points)]
        return [point._replace(step=max(point.step, 0), value=float(point.value)) for point in points]

    @property
    def is_curve(self) -> bool:
        """Whether there is more than a single value without a step."""
        return self.count > 1 or (self.count == 1 and self._last.step != _NO_STEP)


class PrintedNumbers:
    """Collects the numbers of printed lines: every value of each name in its order, at the step printed with it.

    Nothing is chosen: if the steps begin again, as those of folds, ranks and restarts do, all values stay. The last one
    is the value of the metric.

    A number becomes a metric only on evidence: its name is in `named`, such as the names in the script's own text, or
    it has a usual metric word (`is_usual_metric`), or it stands in a dictionary or table with such a name. Numbers
    whose names are in `settings`, such as the arguments of the script, never count. A whole number alone on a line is a
    step if these numbers count up by one from 0 or 1, and no line names its step. `definitions` are SageMaker's
    `metric_definitions`, whose regular expressions find numbers in lines of any other form.

    Nothing is read from rows and progress bars that were wrapped at the width of a terminal, because their pieces would
    give values to their neighbors' names. Nor is anything read from a traceback, which repeats lines of the script.
    """

    def __init__(
        self,
        definitions: Iterable[Mapping[str, str]] = (),
        settings: Collection[str] = (),
        named: Collection[str] = (),
    ) -> None:
        self._definitions, self._settings, self._named = list(definitions), frozenset(settings), frozenset(named)
        self._series: dict[str, _Series] = {}
        self._points = 0  # number of points of all series, or somewhat more
        self._with_curves: set[str] = set()  # names whose curves are recorded by events
        self._left_out: set[str] = set()  # names beyond _MOST_READ
        self._step = _NO_STEP
        self._has_begun = False  # whether a step was printed with a word, such as `epoch 1`
        self._lone: int | None = None  # the last step that was printed as a lone number
        self._header: list[str] = []  # header of the table whose rows are printed
        self._is_other_table = False  # whether rows of a table that is not about metrics are printed
        self._block: list[tuple[str, str]] = []  # rows of a table of names and values, which has no header
        self._held = ""  # the last line, if the next one may continue its cells
        self._is_wrapped = False  # whether a line has continued the cells of the held one
        self._before_traceback: str | None = None  # begins each line of the current traceback, such as `[rank0]: `
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)

    def read(self, line: str, *, has_curve: bool = False) -> None:
        """Read the numbers of one line. If carriage returns redraw it, the last state that has numbers counts.

        With `has_curve`, only the last value of each number is kept, because events already record its curve.
        """
        for part in _OF_A_RANK.split(line) if line.count("[") > 1 else (line,):  # processes print into one line
            self._read_line(part, has_curve=has_curve)

    def _read_line(self, line: str, *, has_curve: bool) -> None:
        states = line.rstrip("\r\n").split("\r")[-_MOST_STATES:]
        text = "\r".join(map(shortened, states))
        if self._definitions and text.strip():
            self._lines.append(text.rpartition("\r")[2])
        if self._is_in_traceback(text):
            return
        if self._held and continues(self._held, text):
            self._is_wrapped = True
            return
        self._release()
        if begins_wrapped(text):
            self._held = text
        else:
            self._read(text, has_curve=has_curve)

    def _is_in_traceback(self, text: str) -> bool:
        """Return whether a line is part of a traceback: its head, its indented lines, or the exception at its end."""
        if _TRACEBACK in text:
            self._before_traceback = text.partition(_TRACEBACK)[0]
            return True
        before = self._before_traceback
        if before is None or not text.startswith(before):
            return False
        if not text.startswith(f"{before} "):
            self._before_traceback = None
        return True

    def _release(self) -> None:
        """Read the line that was held until it was known whether the next one continues it."""
        held, is_wrapped, self._held, self._is_wrapped = self._held, self._is_wrapped, "", False
        if is_wrapped:
            self._take(read_line(held)._replace(numbers={}), has_curve=False)
        elif held:
            self._read(held)

    def _end_block(self) -> None:
        if self._block:
            self._take(block_of(self._block, self._settings), has_curve=False)
            self._block = []

    def _read(self, text: str, *, has_curve: bool = False) -> None:
        if not self._header and len(self._block) < _LONGEST_BLOCK and (pair := pair_in(text)):
            self._block.append(pair)
            return
        self._end_block()
        if (number := lone_number(text)) is not None and not self._has_begun:
            if number in (0, 1) or (self._lone is not None and number == self._lone + 1):
                self._step = self._lone = number
            return
        if header := header_in(text, self._named):
            self._header, self._is_other_table = header, False
            self._take(read_line(text)._replace(numbers={}), has_curve=False)
            return
        if is_other_header(text):
            self._header, self._is_other_table = [], True
            return
        if self._is_other_table and (is_row(text) or not any(map(str.isalnum, text))):
            return
        self._is_other_table = False
        states: list[Line] = []  # the newest first
        for state in reversed(text.split("\r")):
            states.append(read_line(state, self._settings))
            if states[-1].numbers:
                break
        if self._header and (row := row_in(text, self._header, self._settings)):
            states = [row]
        for found in reversed(states):
            self._take(found, has_curve=has_curve)

    def _take(self, found: Line, *, has_curve: bool) -> None:
        self._has_begun = self._has_begun or found.is_step
        self._step = found.step if found.step is not None else self._step
        evident = {name for name in found.numbers if name in self._named or is_usual_metric(name)}
        for name, value in found.numbers.items():
            if name not in evident and not (found.is_record and evident):
                continue
            if name not in self._series and len(self._series) >= _MOST_READ:
                self._left_out.add(name)
                continue
            if has_curve:
                self._with_curves.add(name)
            series = self._series.setdefault(name, _Series())
            series.add(self._step, value, IN_PER_CENT if name in found.in_per_cent else PRINTED)
            self._points += 1
            if self._points > _MOST_POINTS_IN_ALL:
                for each in self._series.values():
                    each.thin() if len(each) > 1 else None
                self._points = sum(map(len, self._series.values()))

    def results(self, sources: Iterable[Source], renamed: Mapping[str, str]) -> Gathered:
        """Return all metrics from printed lines, `sources` and metric definitions.

        If several of these have a metric of the same name, the last one in this order counts. `renamed` maps names to
        new names; the metrics in it appear under both.
        """
        self._release()
        self._end_block()
        printed = {name: self._series[name] for name in _reported(self._series, self._named)}
        numbers = {name: (series.value, series.source) for name, series in printed.items()}
        left_out = len(self._series) - len(numbers) + len(self._left_out)
        own = {name: series for name, series in printed.items() if name not in self._with_curves and series.is_curve}
        curves = {name: series.curve() for name, series in own.items()}
        for source in sources:
            curves = {name: points for name, points in curves.items() if name not in source.values}
            own = {name: series for name, series in own.items() if name not in source.values}
            curves.update(source.curves)
            numbers.update(source.values)
        defined = self._defined()
        numbers.update(defined)
        values = {name: value for name, (value, _) in numbers.items()}
        values = {**{renamed[name]: value for name, value in values.items() if name in renamed}, **values}
        metrics = finite_numbers(values)
        names: dict[str, list[str]] = {}
        for name, (_, source_name) in sorted(numbers.items()):
            if name in metrics:
                names.setdefault(source_name, []).append(renamed.get(name, name))
        finite = {
            name: [point for point in points if math.isfinite(point.value)]
            for name, points in curves.items()
            if name not in defined
        }
        return Gathered(
            metrics,
            sorted(set(values) - set(metrics)),
            "; ".join(f"{source}: {', '.join(group)}" for source, group in names.items()),
            {name: points for name, points in finite.items() if points},
            left_out,
            {name: f"{each.count:,} values in {each.passes:,} passes" for name, each in own.items() if each.passes > 1},
            [name for name, each in own.items() if each.stride > 1],
        )

    def _defined(self) -> dict[str, tuple[float, str]]:
        numbers: dict[str, tuple[float, str]] = {}
        for definition in self._definitions:
            name, expression = definition["Name"], re.compile(definition["Regex"])
            matches = filter(None, map(expression.search, reversed(self._lines)))
            with contextlib.suppress(IndexError):
                last = next(filter(None, (numbers_of({name: match[1]}) for match in matches)), {})
                numbers.update({key: (value, "metric_definitions") for key, value in last.items()})
        return numbers
