"""Numbers that somebody else's training prints or writes into files, each with where it comes from.

It lies beside container_entrypoint.py in a job, so it needs only the standard library of Python 3.8 or newer.

    printed line         `val_f1: 0.91`, `eval f1 = 0.91`, `[9] eval-rmse:0.2`, `{'eval_f1': 0.9}`, `│ test_acc │ 0.5 │`
    file                 RESULT_FILES below the folder of the script, of the model and of the results
    metric_definitions   the regular expressions of SageMaker's `metric_definitions`
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Numbers = dict[str, tuple[float, str]]
    """Name of a number to its value and where it comes from."""

RESULT_FILES = (
    *("metrics.csv", "trainer_state.json"),
    *("train_results.txt", "eval_results.txt"),
    *("train_results.json", "eval_results.json", "all_results.json", "results.json", "metrics.json"),
)
"""Files with numbers that a training may write; for equal names the last file wins."""
LONGEST_LINE = 2_000  # characters of a printed line that are read
_MOST_NAMES = 300  # of printed numbers; MLflow shows a chart for each
_MOST_LINES = 100_000  # kept for metric_definitions; of more, the newest count
_SEARCH_S = 5  # seconds that one regular expression may take for all lines
_LARGEST_FILE = 5_000_000  # bytes of a file with results
_DEEPEST = 4  # levels of folders that are searched for files with results
_NEVER_SEARCHED = {"paretune", "mlruns", ".git"}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LINE = re.compile(rf"\s*([A-Za-z_][\w./@-]{{0,99}})\s*[=:]\s*({_NUMBER})\s*")
_WORD = r"[A-Za-z_][\w./@-]{0,59}"
_IN_A_SENTENCE = re.compile(
    rf"(?<![\w./@-])((?:{_WORD} ){{0,2}}{_WORD}) {{0,30}}[=:] {{0,9}}({_NUMBER})(?=[\s,;)\]}}%]|\.?$)"
)
_SETTING = re.compile(r"\s*\w+=[^\s=]*,")  # a line of printed TrainingArguments
_TABLE_ROW = re.compile(rf"\s*[│┃|]\s*({_WORD})\s*[│┃|]\s*({_NUMBER})\s*[│┃|]")
_SENTENCE = re.compile(rf"\s*((?:{_WORD} ){{3,5}}{_WORD}) {{0,9}}[=:] {{0,9}}({_NUMBER})\s*")
_METRIC = re.compile(
    r"(?:^|[^a-z])(?:acc|accuracy|auc|bleu|cer|corr\w*|dev|dice|error|eval|f1|iou|logloss|loss|mae|map|mape|mcc|metric|"
    r"mrr|mse|ndcg|nll|perplexity|ppl|precision|pearson|r2|recall|rmse|rouge|score|spearmanr?|test|train|val|valid|"
    r"validation|wer)(?:[^a-z]|$|\d)",
    re.IGNORECASE,
)
_FILLERS = {"a", "and", "debug", "epoch", "final", "info", "is", "my", "our", "step", "the", "warning", "with"}
_NOT_METRICS = (
    *("step", "epoch", "total_flos", "learning_rate", "grad_norm"),
    *("length", "mode", "size", "split", "examples", "rows"),
)


class PrintedNumbers:
    """Collects the numbers of printed lines: the last value of each name.

    Args:
        definitions: SageMaker's `metric_definitions`, a list of {"Name": ..., "Regex": ...}.
    """

    def __init__(self, definitions: Iterable[Mapping[str, str]] = ()) -> None:
        self._definitions = list(definitions)
        self._values: dict[str, float] = {}
        self._lines: list[str] = []

    def read(self, line: str) -> None:
        """Take the numbers of one line; of a progress bar, those of its last state."""
        text = line.rstrip("\r\n").rpartition("\r")[2][:LONGEST_LINE]
        text = text.replace("#011", "\t")  # a tab, as SageMaker's XGBoost prints it
        for name, value in numbers_in(text).items():
            if name in self._values or len(self._values) < _MOST_NAMES:
                self._values[name] = value
        if self._definitions and text.strip():
            self._lines.append(text)
            if len(self._lines) > 2 * _MOST_LINES:
                del self._lines[:_MOST_LINES]

    def results(
        self, files: Numbers, logged: Mapping[str, float], renamed: Mapping[str, str], say: Callable[[str], None]
    ) -> tuple[dict[str, float], str]:
        """All metrics of the training, and their sources in one line. Call it in the main thread, after the training.

        Printed lines come first, then `files`, then `logged` to MLflow, then the metric definitions; later ones win.
        Metrics that are `renamed` appear under both names. `say` gets sentences about what could not be read.
        """
        numbers = {name: (value, "printed") for name, value in self._values.items()}
        numbers.update(files)
        numbers.update({name: (value, "MLflow") for name, value in finite_numbers(logged).items()})
        numbers.update(self._defined(say))
        metrics = {name: value for name, (value, _) in numbers.items()}
        names: dict[str, list[str]] = {}
        for name, (_, source) in sorted(numbers.items()):
            names.setdefault(source, []).append(renamed.get(name, name))
        sources = "; ".join(f"{source}: {', '.join(group)}" for source, group in names.items())
        return {**{renamed[name]: value for name, value in metrics.items() if name in renamed}, **metrics}, sources

    def _defined(self, say: Callable[[str], None]) -> Numbers:
        """The last match of each of the metric definitions, apart from those that take too long."""
        numbers: dict[str, tuple[float, str]] = {}
        for definition in self._definitions:
            name, expression = definition["Name"], re.compile(definition["Regex"])
            try:
                with _time_limit(_SEARCH_S):
                    matches = filter(None, map(expression.search, reversed(self._lines)))
                    values = (finite_numbers({name: match[1]}) for match in matches)
                    last = next(filter(None, values), {})
                    numbers.update({key: (value, "metric_definitions") for key, value in last.items()})
            except TimeoutError:
                say(f"metric_definitions: Regex of {name} took more than {_SEARCH_S} s: write it without nested * or +")
        return numbers


@contextlib.contextmanager
def _time_limit(seconds: float) -> Any:
    """Raise TimeoutError in the block after so many seconds; Python's `re` looks for signals while it searches."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def numbers_in(line: str) -> dict[str, float]:
    """Name to value of the numbers in a printed line: of a dictionary, a line `name=number`, a table or a sentence.

    In a sentence only names that look like those of metrics count, such as `val_f1` or `eval loss`, which becomes
    `eval_loss`. A sentence that begins with a metric is a name: `RMSE average across folds: 3.1`.
    """
    match = _LINE.fullmatch(line)
    if match:
        return {match[1]: float(match[2])}
    if _SETTING.fullmatch(line):
        return {}
    begin, end = line.find("{"), line.rfind("}") + 1
    if 0 <= begin < end:
        is_all = not (line[:begin] + line[end:]).strip()
        values = _numbers_of_literal(line[begin:end])
        return {
            name: value for name, value in values.items() if name not in _NOT_METRICS and (is_all or _is_metric(name))
        }
    sentence = _SENTENCE.fullmatch(line)
    if sentence and _is_metric(sentence[1].partition(" ")[0]):
        return {_joined(sentence[1]): float(sentence[2])}
    row = _TABLE_ROW.match(line)
    pairs = [*([row.groups()] if row else ()), *_IN_A_SENTENCE.findall(line)]
    named = {_joined(words): float(number) for words, number in pairs}
    return {name: value for name, value in named.items() if _is_metric(name) and math.isfinite(value)}


def _is_metric(name: str) -> bool:
    return bool(_METRIC.search(name)) and not name.lower().endswith(_NOT_METRICS)


def _joined(words: str) -> str:
    """The words of a name with underscores between them, without words like `the` at its begin."""
    parts = words.split()
    while len(parts) > 1 and parts[0].lower() in _FILLERS:
        parts.pop(0)
    if len(parts) > 1 and parts[-1] == "is":
        parts.pop()
    return "_".join(parts)


def _numbers_of_literal(text: str) -> dict[str, float]:
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError, AttributeError):
        value = ast.literal_eval(text)
        return finite_numbers(value if isinstance(value, dict) else {})
    return {}


def finite_numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """The entries that are finite numbers, including numbers as text, which transformers 5 writes."""
    numbers = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool):
                numbers[str(name)] = float(value)
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def numbers_of_files(roots: Iterable[Path], began: float) -> Numbers:
    """The numbers in RESULT_FILES that were written since `began` (seconds since 1970) in `roots` or below them.

    The file that comes later in RESULT_FILES wins, and of equal names the newer one.
    """
    files: dict[Path, tuple[int, float, str]] = {}
    for root in roots:
        for folder, children, names in os.walk(str(root)):
            if len(Path(folder).relative_to(root).parts) >= _DEEPEST:
                children.clear()
            children[:] = [name for name in children if name not in _NEVER_SEARCHED]
            for name in set(names).intersection(RESULT_FILES):
                path = Path(folder) / name
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if status.st_mtime >= began - 2 and status.st_size <= _LARGEST_FILE:
                        source = path.relative_to(root).as_posix()
                        files.setdefault(path.resolve(), (RESULT_FILES.index(name), status.st_mtime, source))
    numbers: dict[str, tuple[float, str]] = {}
    for path, (_, _, source) in sorted(files.items(), key=lambda item: item[1][:2]):
        with contextlib.suppress(ValueError, OSError, RecursionError):
            values = _content(path.name, path.read_text(encoding="utf-8"))
            numbers.update({name: (value, source) for name, value in values.items()})
    return numbers


def _content(name: str, text: str) -> dict[str, float]:
    if name.endswith(".txt"):
        lines = (_LINE.fullmatch(line[:LONGEST_LINE]) for line in text.splitlines())
        return finite_numbers({match[1]: match[2] for match in lines if match})
    if name.endswith(".csv"):
        return _last_of_columns(text)
    content = json.loads(text)
    if not isinstance(content, dict):
        return {}
    if name != "trainer_state.json":
        return finite_numbers(content)
    last: dict[str, Any] = {}
    for entry in content.get("log_history", ()):
        last.update(entry)
    return finite_numbers({key: value for key, value in last.items() if key not in _NOT_METRICS})


def _last_of_columns(text: str) -> dict[str, float]:
    """The last value of each column of a table by steps, as Lightning's CSVLogger writes; of others, nothing."""
    rows = csv.DictReader(io.StringIO(text))
    if not {"epoch", "step"} <= set(rows.fieldnames or ()):
        return {}
    last: dict[str, Any] = {}
    for row in rows:
        last.update({name: value for name, value in row.items() if value})
    return finite_numbers({name: value for name, value in last.items() if name not in _NOT_METRICS})
