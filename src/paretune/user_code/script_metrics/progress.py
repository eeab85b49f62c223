"""Reads how far a training has come from the lines that it prints while it runs, whichever library prints them.

A *counter* is a number that a training counts up: an epoch, a step, an iteration, the state of a progress bar. Its
total stands in the line (`Epoch 3/52`, `9/20`), or in an argument of the training (`--epochs 50`).

    Epoch 3/52        a counter of epochs; with `[640/60000]`, or with a bar, it also counts inside the epoch
    45%|##  | 9/20    a bar of tqdm; Keras and Lightning print similar ones
    step 120/400      a counter of steps; `iter 200` and `[99]` have no total
    {'epoch': 1.5}    an entry of a dictionary or of a line of JSON, as Hugging Face's Trainer and others print it

Bars that begin again, such as those of evaluations, are no counters of the whole training, unless epochs are counted,
too. If a counter of the whole training falls, the training has restarted, and all begins anew.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from .printed_line import COLOR, dictionary_in, finite_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST = 2_000  # characters of a line that are read
_STALLED = 3.0  # a counter stands still if it has not moved for so many times the longest wait before
_NEAR = 0.5  # a counter that falls to this share of its number has not restarted
_COUNT = r"\d{1,15}(?:\.\d+)?[kM]?"
_BAR = re.compile(rf"\d{{1,3}}%\s*\|[^|]*\|\s*(?P<done>{_COUNT})/(?P<total>{_COUNT})")
_OF_KERAS = re.compile(r"^\s*(?P<done>\d{1,15})/(?P<total>\d{1,15})\s+(?:[━\u2500-\u259f]|\[[=>.\s]|-\s)")
_WORDS = {"epoch": r"epochs?", "step": r"(?:global[ _])?steps?|iter(?:ation)?s?|rounds?|updates?"}
_NAMED = re.compile(
    rf"(?<![\w/.-])(?:(?P<epoch>{_WORDS['epoch']})|(?P<step>{_WORDS['step']}))\b[\s:=#]{{0,3}}\[?\s{{0,4}}"
    r"(?P<done>\d{1,15})(?:\s*(?:/|of)\s*(?P<total>\d{1,15}))?(?![\w%]|\.\d|/)",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\[\s*(?P<done>\d{1,15})\s*/\s*(?P<total>\d{1,15})\s*(?:\(\d+(?:\.\d+)?%\))?\s*\]")
_LEADING = re.compile(r"^\[(?P<done>\d{1,15})\]\s")  # XGBoost and LightGBM: `[99]  validation-logloss:0.21`
# Names of bars that do not count the training: evaluations, and what prepares data and files.
_OTHER = re.compile(
    r"\.\w|eval|valid|sanity|test|predict|infer|generat|sav(?:e|ing)|load|fetch|map|filter|token|pack|preproc|split|shard|"
    r"cach|batches",
    re.IGNORECASE,
)
_VALUE = re.compile(r"\d\.\d|\d[eE]-?\d|\bnan\b", re.IGNORECASE)
_TOTALS = {
    "epoch": ("epochs", "num_epochs", "n_epochs", "nepochs", "num_train_epochs", "max_epochs", "epoch"),
    "step": (
        *("max_steps", "steps", "num_steps", "n_steps", "total_steps", "train_steps", "max_train_steps", "max_iter"),
        *("max_iters", "iterations", "num_iterations", "n_iter", "iters", "num_boost_round", "num_round", "num_rounds"),
        *("n_estimators", "rounds"),
    ),
}
"""Arguments that state the total of a counter, by its kind."""
_ENTRIES = {
    "epoch": ("epoch",),
    "step": ("current_steps", "global_step", "step", "iteration", "iter"),
}
_TOTAL_ENTRIES = ("total_steps", "max_steps")


class Counted(NamedTuple):
    """How far a training has come, by one of its counters.

    Attributes:
        unit: what the counter counts: `epoch` or `step`.
        done: what is done, in units, from 0 on.
        total: all of it; None if nothing says so.
        seconds: what `done` has taken, without the start of the program.
        stands_still: whether the counter has not moved for much longer than ever before.
    """

    unit: str
    done: float
    total: float | None
    seconds: float
    stands_still: bool = False


class _Counter:
    """One counter: its newest number and total, and when it was read."""

    def __init__(self, kind: str, done: float, total: float | None, at_s: float) -> None:
        self.kind, self.done, self.total = kind, done, total
        self.first = self.usual = (at_s, done)
        self.last_s, self.longest_s, self.readings = at_s, 0.0, 1
        self.is_inner = False  # whether it has begun again after an end

    @property
    def is_full(self) -> bool:
        """Whether it has reached its total."""
        return self.total is not None and self.done >= self.total

    def move(self, done: float, total: float | None, at_s: float) -> None:
        """Record a number that is not below the last one."""
        self.total = total or self.total
        if done > self.done:
            self.longest_s = max(self.longest_s, at_s - self.last_s)
            self.readings += 1
            if self.readings == 3:  # the first unit also has compiled and filled caches
                self.usual = (self.last_s, self.done)
            self.done, self.last_s = done, at_s

    def begin_again(self, done: float, total: float | None, at_s: float) -> None:
        """Record that it has begun again."""
        self.is_inner, self.done, self.total, self.last_s = True, done, total or self.total, at_s

    def seconds_per_unit(self) -> float | None:
        """Return the seconds of a unit since the first or second reading; None before it has moved."""
        at_s, done = self.usual if self.readings > 3 else self.first
        return (self.last_s - at_s) / (self.done - done) if self.done > done else None


class ProgressReader:
    """Reads the lines of one training as they are printed.

    Args:
        totals: the totals of counters that the arguments of the training state, by their unit; see `totals_in`.
    """

    def __init__(self, totals: Mapping[str, float] | None = None) -> None:
        self._totals = {unit: (totals or {}).get(unit) for unit in _TOTALS}
        self._counters: dict[str, _Counter] = {}
        self._base = 1  # the number of the first epoch
        self._starts_at_0 = False  # whether `[0]` was printed
        self._epochs = 0.0  # that are over, without what a bar counts inside the current one

    def read(self, line: str, at_s: float) -> None:
        """Read a line, or a state of a line that is redrawn, which was printed at a time in seconds."""
        if plain := COLOR.sub("", line[:_LONGEST]).strip():
            self._read(plain, at_s)

    def progress(self, now_s: float | None = None) -> Counted | None:
        """Return how far the training has come, at a time in seconds; None if no counter says so.

        A counter that stands still takes time, too: then `seconds` grows although `done` does not.
        """
        counters = [
            each for each in self._counters.values() if not each.is_inner and each.seconds_per_unit() is not None
        ]
        # The whole training is counted from the beginning, so outer counters come before those inside them.
        counters.sort(key=lambda each: (each.total is None, each.is_full, each.kind != "epoch", each.first[0]))
        if not counters:
            return None
        chosen = counters[0]
        unit_s = chosen.seconds_per_unit() or 0.0
        waited_s = 0.0 if now_s is None else now_s - chosen.last_s
        is_stalled = waited_s > max(_STALLED * chosen.longest_s, 1.0) and not chosen.is_full
        total = chosen.total if chosen.total is None or chosen.done <= chosen.total else None
        return Counted(chosen.kind, chosen.done, total, chosen.done * unit_s + waited_s * is_stalled, is_stalled)

    def _read(self, line: str, at_s: float) -> None:
        if line.lstrip()[:1] == "{" and (entries := finite_numbers(dictionary_in(line.strip()))):
            self._read_entries(entries, at_s)
            return
        bar, named = _BAR.search(line), _NAMED.search(line)
        inner = bar or _OF_KERAS.search(line) or (_PLACE.search(line, named.end()) if named else None)
        kind = "epoch" if named and named["epoch"] else "step"
        if named and kind == "epoch":
            self._read_epoch(line, named, inner, at_s)
        elif inner:
            name = line[: bar.start()].rpartition("|")[2].strip(" :") if bar else ""
            done, whole = _number(inner["done"]), _number(inner["total"])
            if re.search(rf"\b{_WORDS['epoch']}$", name, re.IGNORECASE):
                self._epochs = done
                self.count("epoch", done, whole, at_s)
            elif not _OTHER.search(name):
                self._count_inside(done, whole, at_s)
        elif named:
            total = _number(named["total"]) if named["total"] else self._totals["step"]
            self.count("step", _number(named["done"]), total, at_s)
        elif leading := _LEADING.search(line):
            number = _number(leading["done"])  # XGBoost counts from 0 on, LightGBM from 1 on
            self._starts_at_0 |= number == 0
            self.count("step", number + self._starts_at_0, self._totals["step"], at_s)

    def _read_epoch(self, line: str, named: re.Match[str], inner: re.Match[str] | None, at_s: float) -> None:
        """Read a line with the number of an epoch, which begins there, is under way or ends."""
        number = int(named["done"])
        if "epoch" not in self._counters:
            self._base = min(number, 1)
        done = self._epochs = float(number - self._base)
        if inner:
            done += min(_number(inner["done"]) / max(_number(inner["total"]), 1.0), 1.0)
        elif _VALUE.search(line, named.end()):  # it has results, so the epoch is over
            done = self._epochs = done + 1.0
        total = _number(named["total"]) if named["total"] else self._totals["epoch"]
        self.count("epoch", done, total, at_s)

    def _read_entries(self, entries: Mapping[str, float], at_s: float) -> None:
        total = next((entries[name] for name in _TOTAL_ENTRIES if entries.get(name, 0) > 0), self._totals["step"])
        if (epoch := entries.get("epoch")) is not None and self._totals["epoch"]:
            self.count("epoch", epoch, self._totals["epoch"], at_s)
        for name in _ENTRIES["step"]:
            if name in entries:
                self.count("step", entries[name], total, at_s)
                break

    def _count_inside(self, done: float, total: float, at_s: float) -> None:
        """Record steps of a bar, which also counts inside the current epoch if it begins again in each."""
        self.count("step", done, total, at_s)
        epoch, bar = self._counters.get("epoch"), self._counters["step"]
        if epoch is not None and bar.first[0] >= epoch.first[0] and total > 0:
            whole = self._epochs + min(done / total, 1.0)
            if epoch.done < whole <= (epoch.total or math.inf):
                self.count("epoch", whole, None, at_s)

    def count_step(self, step: float, at_s: float) -> None:
        """Record a step that no line has, at a time in seconds, if the total is known."""
        if self._totals["step"]:
            self.count("step", step, self._totals["step"], at_s)

    def count(self, kind: str, done: float, total: float | None, at_s: float) -> None:
        """Record the number of a counter, and its total if it is known, at a time in seconds."""
        counter = self._counters.get(kind)
        if counter is None:
            self._counters[kind] = _Counter(kind, done, total, at_s)
        elif done >= counter.done:
            counter.move(done, total, at_s)
        elif not counter.is_full and done >= min(counter.done - 1.0, _NEAR * counter.done):
            return  # a line of another process, or a training that continues from its last checkpoint
        elif counter.is_inner or counter.is_full or (kind != "epoch" and "epoch" in self._counters):
            counter.begin_again(done, total, at_s)
        else:  # the training has restarted
            self._counters = {kind: _Counter(kind, done, total, at_s)}


def totals_in(defaults: Mapping[str, object], words: Sequence[str] = ()) -> dict[str, float]:
    """Return the totals of counters that a command line states, by their unit.

    `defaults` has the values of arguments that stand nowhere in the words of the command line.
    """
    values = {_plain(name): value for name, value in defaults.items()}
    for word, following in zip(words, [*words[1:], ""]):
        name, is_set, value = word.partition("=")
        if word.startswith("-") or is_set:
            values[_plain(name)] = value if is_set else following
    totals = {unit: _first_number(values, names) for unit, names in _TOTALS.items()}
    if _first_number(values, ("max_steps",)):  # it ends a training of Hugging Face and others before the last epoch
        totals["epoch"] = None
    return {unit: total for unit, total in totals.items() if total is not None}


def _plain(name: str) -> str:
    return name.lstrip("-+").replace("-", "_").rpartition(".")[2]


def _first_number(values: Mapping[str, object], names: Sequence[str]) -> float | None:
    numbers = finite_numbers({name: values[name] for name in names if name in values})
    return next((number for number in numbers.values() if number > 0), None)


def _number(text: str) -> float:
    factor = {"k": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    return float(text.rstrip("kM")) * factor
