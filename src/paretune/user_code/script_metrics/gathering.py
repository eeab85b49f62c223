"""The metrics of a user's own training run, from its loggers, its files and its printed lines."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .loggers import Point, Source
from .printed_line import (
    Line,
    begins_wrapped,
    continues,
    finite_numbers,
    has_metric_word,
    header_in,
    is_other_header,
    is_row,
    is_usual_metric,
    lone_number,
    numbers_of,
    read_line,
    row_in,
)

_MOST_NAMES = 300  # names of printed numbers that are reported; MLflow shows a chart for each
_MOST_READ = 20_000  # names of printed numbers that are kept while a script runs
_MOST_POINTS = 20_000  # points that are kept of a printed curve
_MOST_POINTS_IN_ALL = _MOST_NAMES * _MOST_POINTS  # points that are kept of all printed curves
_MOST_LINES = 100_000  # newest lines that are kept for metric_definitions
_DIGITS = re.compile(r"\d+")
_TRACEBACK = "Traceback (most recent call last):"  # its first line
PRINTED, IN_PER_CENT = "printed", "printed in percent and recorded as a share"


class Gathered(NamedTuple):
    """All metrics of a training run."""

    metrics: dict[str, float]  # finite values; renamed metrics appear under both names
    not_finite: list[str]  # names of metrics whose last value is NaN or infinite
    sources: str  # where the metrics come from, in one line
    curves: dict[str, list[Point]]  # curves of all sources except MLflow, whose store already has them
    left_out: int = 0  # number of further printed names, which are not among the metrics


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


class PrintedNumbers:
    """Collects the numbers of printed lines: the last value of each name, and its curve over the steps.

    A number becomes a metric only on evidence: its name is in `named`, such as the names in the script's own text, or
    it has a usual metric word (`is_usual_metric`), or it stands in a dictionary or table row with such a name. Numbers
    whose names are in `settings`, such as the arguments of the script, never count. If steps are printed, numbers
    before the first step are left out. A whole number alone on a line is a step if these numbers count up by one from
    0 or 1, and no line names its step. `definitions` are SageMaker's `metric_definitions`, whose regular expressions
    find numbers in lines of any other form.

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
        self._values: dict[str, tuple[float, str]] = {}
        self._curves: dict[str, dict[int, Point]] = {}
        self._points = 0  # number of points of all curves
        self._left_out: set[str] = set()  # names beyond _MOST_READ
        self._step: int | None = None
        self._has_begun = False  # whether a step was printed with a word, such as `epoch 1`
        self._lone: int | None = None  # the last step that was printed as a lone number
        self._header: list[str] = []  # header of the table whose rows are printed
        self._is_other_table = False  # whether rows of a table that is not about metrics are printed
        self._held = ""  # the last line, if the next one may continue its cells
        self._is_wrapped = False  # whether a line has continued the cells of the held one
        self._before_traceback: str | None = None  # begins each line of the current traceback, such as `[rank0]: `
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)

    def read(self, line: str, *, has_curve: bool = False) -> None:
        """Read the numbers of one line. If carriage returns redraw it, the last state that has numbers counts.

        With `has_curve`, only the last value of each number is kept, because events already record its curve.
        """
        text = line.rstrip("\r\n")
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

    def _read(self, text: str, *, has_curve: bool = False) -> None:
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
        if found.is_step and not self._has_begun:
            self._has_begun = True
            self._values.clear()  # numbers before the first step are settings
            self._curves.clear()
            self._points = 0
            self._left_out.clear()
        self._step = found.step if found.step is not None else self._step
        evident = {name for name in found.numbers if name in self._named or is_usual_metric(name)}
        for name, value in found.numbers.items():
            if name not in evident and not (found.is_record and evident):
                continue
            if name not in self._values and len(self._values) >= _MOST_READ:
                self._left_out.add(name)
                continue
            self._values[name] = (value, IN_PER_CENT if name in found.in_per_cent else PRINTED)
            curve = self._curves.setdefault(name, {})
            has_room = len(curve) < _MOST_POINTS and self._points < _MOST_POINTS_IN_ALL
            if self._step is not None and not has_curve and (self._step in curve or has_room):
                self._points += self._step not in curve
                curve[self._step] = Point(self._step, int(time.time() * 1000), value)

    def results(self, sources: Iterable[Source], renamed: Mapping[str, str]) -> Gathered:
        """Return all metrics from printed lines, `sources` and metric definitions.

        If several of these have a metric of the same name, the last one in this order counts. `renamed` maps names to
        new names; the metrics in it appear under both.
        """
        self._release()
        numbers = {name: self._values[name] for name in _reported(self._values, self._named)}
        left_out = len(self._values) - len(numbers) + len(self._left_out)
        curves = {name: list(self._curves[name].values()) for name in numbers if len(self._curves[name]) > 1}
        for source in sources:
            curves = {name: points for name, points in curves.items() if name not in source.values}
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
