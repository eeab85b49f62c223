"""Numbers that somebody else's training prints or writes into files, each with where it comes from.

It lies beside container_entrypoint.py in a job, so it needs only the standard library of Python 3.8 or newer.

    printed line         `val_f1: 0.91`, `eval f1 = 0.91`, `{'eval_f1': 0.9}`, `Epoch 1/3 | loss: 0.4 | acc: 0.9`,
                         `| End of training | test loss 6.18`; of a training that prints steps, not what stands before
    file                 RESULT_FILES below the folder of the script, of the model and of the results
    metric_definitions   the regular expressions of SageMaker's `metric_definitions`, for all else
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Numbers = dict[str, tuple[float, str]]
    """Name of a number to its value and where it comes from."""

RESULT_FILES = (
    *("trainer_state.json", "train_results.json", "eval_results.json", "all_results.json"),
    *("results.json", "metrics.json", "eval_results.txt"),
)
"""Files with numbers that Hugging Face's and AWS's example scripts and others write; of equal names the last file wins.

A text has lines like printed ones."""
LONGEST_LINE = 2_000  # characters of a printed line that are read
_MOST_NAMES = 300  # of printed numbers; MLflow shows a chart for each
_MOST_LINES = 100_000  # kept for metric_definitions; of more, the newest count
_LARGEST_FILE = 5_000_000  # bytes of a file with results
_DEEPEST = 4  # levels of folders that are searched for files with results
_NEVER_SEARCHED = {"paretune", "mlruns", ".git"}
_NAME, _NUMBER = r"[A-Za-z_][\w./@-]{0,99}", r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
_PAIR = re.compile(rf"({_NAME}(?: {_NAME})?)\s*[=:]\s*({_NUMBER})")
_PAIR_AFTER_COUNTER = re.compile(rf"({_NAME}(?: {_NAME})?)(?:\s*[=:]\s*|\s+)({_NUMBER})")  # `step 5: val loss 0.4`
_NOT_FINITE = re.compile(r"(:\s*-?)(?:nan|inf(?:inity)?)\b", re.I)  # in a printed dictionary
_COUNTER = re.compile(r"(?:(?:epoch|step|iter|iteration|round)\W{0,2})?\[?\d+(?:/\d+)?\]?(?:[:,]|(?=\s|$))\s*", re.I)
_DURATION = re.compile(r"[\d.]+(?:m|u|µ)?s(?:/\w+)?")  # `2ms/step` of Keras
_BETWEEN = re.compile(r"\s*[\t|;,]\s*|\s+-+\s+")  # the numbers of one line
_BEFORE_NAME = re.compile(r"\s+(?=[A-Za-z_][\w./@-]*\s*[=:])")
_NOT_METRICS = {"step", "epoch", "total_flos", "learning_rate", "lr", "grad_norm"}
_STEP = re.compile(r"^\W*(?:end of )?(?:epoch|step|iter|iteration|round)\W{0,4}\d|['\"](?:epoch|step)['\"]:", re.I)


class PrintedNumbers:
    """Collects the numbers of printed lines: the last value of each name; `definitions` as in SageMaker."""

    def __init__(self, definitions: Iterable[Mapping[str, str]] = ()) -> None:
        self._definitions = list(definitions)
        self._values: dict[str, float] = {}
        self._has_begun = False  # whether a step was printed
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)

    def read(self, line: str) -> None:
        """Take the numbers of one line; of a progress bar, those of its last state."""
        text = line.rstrip("\r\n").rpartition("\r")[2][:LONGEST_LINE]
        numbers = numbers_in(text)
        if numbers and not self._has_begun and _STEP.search(text):
            self._has_begun = True
            self._values.clear()  # what stands before the first step are settings
        for name, value in numbers.items():
            if name in self._values or len(self._values) < _MOST_NAMES:
                self._values[name] = value
        if self._definitions and text.strip():
            self._lines.append(text)

    def results(
        self, files: Numbers, logged: Mapping[str, float], renamed: Mapping[str, str]
    ) -> tuple[dict[str, float], list[str], str]:
        """All metrics of the training, the names of those that ended NaN or infinite, and the sources in one line.

        Printed lines come first, then `files`, then `logged` to MLflow, then the metric definitions; later ones win.
        Metrics that are `renamed` appear under both names.
        """
        numbers = {name: (value, "printed") for name, value in self._values.items()}
        numbers.update(files)
        numbers.update({name: (value, "MLflow") for name, value in numbers_of(logged).items()})
        numbers.update(self._defined())
        values = {name: value for name, (value, _) in numbers.items()}
        values = {**{renamed[name]: value for name, value in values.items() if name in renamed}, **values}
        metrics = finite_numbers(values)
        names: dict[str, list[str]] = {}
        for name, (_, source) in sorted(numbers.items()):
            if name in metrics:
                names.setdefault(source, []).append(renamed.get(name, name))
        sources = "; ".join(f"{source}: {', '.join(group)}" for source, group in names.items())
        return metrics, sorted(set(values) - set(metrics)), sources

    def _defined(self) -> Numbers:
        numbers: dict[str, tuple[float, str]] = {}
        for definition in self._definitions:
            name, expression = definition["Name"], re.compile(definition["Regex"])
            matches = filter(None, map(expression.search, reversed(self._lines)))
            last = next(filter(None, (numbers_of({name: match[1]}) for match in matches)), {})
            numbers.update({key: (value, "metric_definitions") for key, value in last.items()})
        return numbers


def numbers_in(line: str) -> dict[str, float]:
    """Name to value of a printed line of `name: number`, one or several, or one dictionary; a counter may begin it.

    A name may have two words. A line with any other word gives nothing.
    """
    text = line.strip()
    if match := _PAIR.fullmatch(text):
        return numbers_of({match[1].replace(" ", "_"): match[2]})
    if text.startswith("|"):  # cells of words beside those of a name and a number
        cells = filter(None, (_PAIR_AFTER_COUNTER.fullmatch(cell.strip()) for cell in text.split("|")))
        return _metrics_of({match[1].replace(" ", "_"): match[2] for match in cells})
    counter = _COUNTER.match(text)
    text = text[counter.end() :] if counter else text
    if text.startswith("{"):
        return _metrics_of(dictionary_in(text))
    pair = _PAIR_AFTER_COUNTER if counter else _PAIR
    parts = _BETWEEN.split(text.lstrip("|-, "))
    pieces = [piece for part in parts for piece in ([part] if pair.fullmatch(part) else _BEFORE_NAME.split(part))]
    matches = [pair.fullmatch(piece) for piece in pieces if not _DURATION.fullmatch(piece)]
    return _metrics_of({match[1].replace(" ", "_"): match[2] for match in matches if match}) if all(matches) else {}


def dictionary_in(text: str) -> dict[Any, Any]:
    """A printed dictionary, with an infinite number for NaN, of which Python reads none; empty for other text."""
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        values = ast.literal_eval(_NOT_FINITE.sub(r"\g<1>1e999", text))
        return values if isinstance(values, dict) else {}
    return {}


def _metrics_of(values: Any) -> dict[str, float]:
    return {name: number for name, number in numbers_of(values).items() if name not in _NOT_METRICS}


def finite_numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """The entries that are numbers, also as text, and neither NaN nor infinite."""
    return {name: number for name, number in numbers_of(values).items() if math.isfinite(number)}


def numbers_of(values: Mapping[Any, Any]) -> dict[str, float]:
    """The entries that are numbers, including numbers as text, which transformers 5 writes."""
    numbers = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool):
                numbers[str(name)] = float(value)
    return numbers


def numbers_of_files(roots: Iterable[Path], began: float) -> Numbers:
    """The numbers in RESULT_FILES that were written since `began` (seconds since 1970) in `roots` or below them.

    The file that comes later in RESULT_FILES wins, and of equal names the newer one.
    """
    files: dict[Path, tuple[int, float, str]] = {}
    patterns = ["*/" * depth + name for depth in range(_DEEPEST + 1) for name in RESULT_FILES]
    for root in roots:
        for path in (path for pattern in patterns for path in root.glob(pattern)):
            source = path.relative_to(root)
            with contextlib.suppress(OSError):
                status = path.stat()
                is_new = status.st_mtime >= began - 2 and status.st_size <= _LARGEST_FILE
                if is_new and not _NEVER_SEARCHED.intersection(source.parts):
                    order = (RESULT_FILES.index(path.name), status.st_mtime, source.as_posix())
                    files.setdefault(path.resolve(), order)
    numbers: dict[str, tuple[float, str]] = {}
    for path, (_, _, name) in sorted(files.items(), key=lambda item: item[1][:2]):
        with contextlib.suppress(ValueError, OSError, RecursionError, AttributeError):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".txt":
                entries = [numbers_in(line) for line in text.splitlines()]
            else:
                content = json.loads(text)
                entries = content.get("log_history", [content])  # of trainer_state.json, an entry for each log
            for values in entries:
                numbers.update({key: (value, name) for key, value in _metrics_of(values).items()})
    return numbers
