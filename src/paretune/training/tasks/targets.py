"""Labels as arrays: numbers (N,) float64 for regression, 0 and 1 (N, C) float32 for several labels a row.

Several labels a row are written as a list, as a list in JSON or Python text, or separated by |, or, where no row has
one, by commas; or as C columns of 0 and 1, named in `label_column` with commas between them.
"""

import ast
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import datasets
import numpy as np

from paretune.core.errors import BadInput, refuse
from paretune.specification import metrics
from paretune.specification.cluster import listed
from paretune.specification.job import JobSpec

Targets = tuple[dict[str, np.ndarray], tuple[str, ...]]
"""Split to labels, and the names of the C labels; none for regression."""
_BINS = 10
"""Groups of equal size, by the number to be predicted, that a split keeps in their proportions."""
_SHOWN = 5


def label_columns(spec: JobSpec, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns with labels: one, or those that a multi-label `label_column` lists; none for causal-lm."""
    if spec.task == metrics.CAUSAL_LM:
        return ()
    if spec.task == metrics.MULTI_LABEL and "," in spec.label_column and spec.label_column not in columns:
        return listed(spec.label_column)
    return (spec.label_column,)


def may_be_empty(spec: JobSpec, columns: Sequence[str]) -> bool:
    """Whether an empty cell of a label column has a meaning: that the row has no labels."""
    return spec.task == metrics.MULTI_LABEL and len(label_columns(spec, columns)) == 1


def read_targets(spec: JobSpec, tables: dict[str, datasets.Dataset]) -> Targets:
    """The labels of all splits; a test split whose labels are hidden (all -1) is taken out of `tables`.

    Raises:
        BadInput: everything that is wrong with them, each with the first rows.
    """
    if spec.task == metrics.REGRESSION:
        return _numbers(spec, tables), ()
    columns = label_columns(spec, tables["train"].column_names)
    if len(columns) > 1:
        return _flags(columns, tables), columns
    return _label_sets(spec, tables)


def strata(task: str, labels: np.ndarray | None) -> np.ndarray | None:
    """Group of each row (N,) int64, which a split keeps in their proportions; None where nothing tells groups.

    Classes; for regression tenths of the rows by their number, fewer where rows are few; of several labels a row the
    set of labels, those of one row only together.
    """
    if labels is None or task == metrics.CLASSIFICATION:
        return labels
    if task == metrics.REGRESSION:
        bins = min(_BINS, len(labels) // 20)
        if bins < 2:
            return None
        edges = np.unique(np.quantile(labels, np.linspace(0, 1, bins + 1)[1:-1]))
        return np.searchsorted(edges, labels, side="right")
    _, groups, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    groups = groups.reshape(-1)
    return np.where(counts[groups] < 2, -1, groups)


def _raw(table: datasets.Dataset, column: str) -> list[Any]:
    values: list[Any] = table.data.column(column).to_pylist()
    return values


def _numbers(spec: JobSpec, tables: dict[str, datasets.Dataset]) -> dict[str, np.ndarray]:
    rule = f"label_column {spec.label_column!r} must hold finite numbers (task=regression)"
    faults, found = [], {}
    for split, table in list(tables.items()):
        values = [_number(value) for value in _raw(table, spec.label_column)]
        wrong = [index for index, value in enumerate(values) if value is None]
        if wrong:
            shown = _rows(wrong, _raw(table, spec.label_column))
            faults.append(f"{rule}, and {len(wrong)} of {len(values)} {split} rows have others: {shown}")
            continue
        found[split] = np.array(values, dtype=np.float64)
    refuse(faults)
    if "test" in found and set(found["test"]) == {-1.0} and found["train"].min() > -1:  # a benchmark's hidden labels
        del found["test"], tables["test"]
    if np.ptp(found["train"]) == 0:
        same = f"label_column {spec.label_column!r} is {found['train'][0]:g} in all training rows"
        raise BadInput([f"{same}: there is nothing to learn"])
    return found


def _number(value: Any) -> float | None:
    """The finite number that a cell holds, also as text; None where it holds none."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _rows(wrong: Sequence[int], values: Sequence[Any]) -> str:
    """The first rows, counted from 1, with what they hold."""
    return ", ".join(f"row {index + 1} has {values[index]!r}" for index in wrong[:_SHOWN])


def _flags(columns: Sequence[str], tables: Mapping[str, datasets.Dataset]) -> dict[str, np.ndarray]:
    """Columns of 0 and 1, or false and true, beside each other."""
    faults, found = [], {}
    for split, table in tables.items():
        parts = []
        for column in columns:
            values = [_number(int(value) if isinstance(value, bool) else value) for value in _raw(table, column)]
            wrong = [index for index, value in enumerate(values) if value not in (0.0, 1.0)]
            if wrong:
                rule = f"label_column: {column!r} must hold 0 or 1"
                faults.append(f"{rule}, and {split} {_rows(wrong, _raw(table, column))}")
            parts.append(np.array([value or 0.0 for value in values], dtype=np.float32))
        found[split] = np.stack(parts, axis=1)
    refuse(faults + _unused(columns, found["train"]))
    return found


def _label_sets(spec: JobSpec, tables: Mapping[str, datasets.Dataset]) -> Targets:
    separator = _separator(value for table in tables.values() for value in _raw(table, spec.label_column))
    known = _declared(tables["train"].features[spec.label_column])
    sets: dict[str, list[tuple[str, ...]]] = {}
    faults: list[str] = []
    for split, table in tables.items():
        values = _raw(table, spec.label_column)
        read = [_labels_of(value, separator, known) for value in values]
        wrong = [index for index, labels in enumerate(read) if labels is None]
        if wrong:
            rule = f"label_column {spec.label_column!r} must hold lists of texts or whole numbers, or text such as a|b"
            faults.append(f"{rule}; {len(wrong)} {split} rows hold others: {_rows(wrong, values)}")
        sets[split] = [labels or () for labels in read]
    refuse(faults)
    names = known or tuple(sorted({label for labels in sets["train"] for label in labels}, key=_in_order))
    refuse(_set_faults(spec, names, sets))
    place = {name: number for number, name in enumerate(names)}
    return {split: _as_flags(rows, place) for split, rows in sets.items()}, names


def _set_faults(spec: JobSpec, names: Sequence[str], sets: Mapping[str, Sequence[tuple[str, ...]]]) -> list[str]:
    """What is wrong with the labels of all rows."""
    column, rows = f"label_column {spec.label_column!r}", len(sets["train"])
    if not names:
        return [f"{column} holds no label in any training row: there is nothing to learn"]
    if len(names) > max(2, rows / 2):
        how = "is it the right column, and are labels separated by | or commas?"
        return [f"{column} has {len(names)} labels in {rows} rows: {how}"]
    faults = []
    for split, labels in sets.items():
        unknown = Counter(label for row in labels for label in row if label not in set(names))
        if unknown:
            shown = ", ".join(map(repr, list(unknown)[:_SHOWN]))
            faults.append(f"{unknown.total()} labels of {split} rows occur in no training row: {shown}")
    flat = _as_flags(sets["train"], {name: number for number, name in enumerate(names)})
    return faults + _unused(names, flat)


def _unused(names: Sequence[str], flags: np.ndarray) -> list[str]:
    """Labels that no training row has."""
    lacking = [name for name, count in zip(names, flags.sum(axis=0), strict=True) if not count]
    shown = ", ".join(lacking[:_SHOWN])
    return (
        [f"{len(lacking)} of {len(names)} labels are in no training row ({shown}): leave them out"] if lacking else []
    )


def _as_flags(rows: Sequence[Iterable[str]], place: Mapping[str, int]) -> np.ndarray:
    flags = np.zeros((len(rows), len(place)), dtype=np.float32)
    for number, labels in enumerate(rows):
        flags[number, [place[label] for label in labels if label in place]] = 1.0
    return flags


def _separator(values: Iterable[Any]) -> str:
    """| where any text has one, else a comma."""
    return "|" if any(isinstance(value, str) and "|" in value for value in values) else ","


def _declared(feature: Any) -> tuple[str, ...]:
    """The names that the data set itself declares for the numbers in its lists; none for most."""
    inner = getattr(feature, "feature", None)
    return tuple(inner.names) if isinstance(inner, datasets.ClassLabel) else ()


def _labels_of(value: Any, separator: str, declared: Sequence[str]) -> tuple[str, ...] | None:
    """The labels of a row; None for what is neither a list nor text nor a whole number."""
    if value is None:
        return ()
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return tuple(part.strip() for part in text.split(separator) if part.strip())
        value = _list_in(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        return None
    if declared:
        inside = all(isinstance(item, int) and 0 <= item < len(declared) for item in value)
        return tuple(declared[int(item)] for item in value) if inside else None
    return tuple(str(item).strip() for item in value)


def _list_in(text: str) -> Any:
    """The list that a text means in JSON or, as pandas writes it, in Python; None where it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return None


def _in_order(name: str) -> tuple[bool, float, str]:
    """Numbers by their value, before texts."""
    number = _number(name)
    return number is None, number or 0.0, name
