"""Faults of a file with rows that can be told without the libraries that read it: encoding, columns, missing cells.

A launch checks them before it imports anything heavy, so that a misspelt column is answered in a second. Files of other
kinds, and those of more than LARGEST bytes, are checked when the data are prepared.
"""

import codecs
import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from paretune.core.errors import BadInput, collecting, did_you_mean
from paretune.core.untrusted import at_home, exists, is_file
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import split_list

LARGEST = 20_000_000  # bytes of a file that is checked here: half a second
_FILES = {"train": "dataset", "validation": "validation_file", "test": "test_file"}
_TEXT = (".csv", ".tsv", ".jsonl")


def data_faults(spec: JobSpec) -> list[str]:
    """The faults of local CSV, TSV and JSONL files of a job; empty if there is none, or none can be told cheaply."""
    faults = list[str]()
    for split, parameter in _FILES.items():
        path = at_home(getattr(spec, parameter) or "")
        is_text = path.suffix.lower() in _TEXT and is_file(path) and 0 < path.stat().st_size <= LARGEST
        if is_text and not spec.runs_own_training:
            with collecting(faults):
                columns = _columns(path, parameter)
                faults += column_faults(spec, split, columns) if columns else []
    return faults


def _columns(path: Path, parameter: str) -> dict[str, Sequence[object]]:
    """Column to its cells; empty if only the library that reads such files can tell. Raises BadInput."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput([encoding_fault(parameter, str(path), content, error.start)]) from error
    try:
        if path.suffix.lower() == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
            return {name: [row.get(name) for row in rows] for name in rows[0]} if rows else {}
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator(path, content)))
    except (ValueError, csv.Error, AttributeError, RecursionError):
        return {}
    header, *cells = [line for line in lines if line] or [[]]
    return {name: [line[at] or None if at < len(line) else None for line in cells] for at, name in enumerate(header)}


def separator(path: Path, content: bytes) -> str:
    """The separator of a CSV or TSV file: of a CSV file whose first line has no comma, a semicolon or a tab."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    first = content[: content.find(b"\n") + 1] or content
    others = [mark for mark in (";", "\t") if mark.encode() in first]
    return max(others, key=lambda mark: first.count(mark.encode())) if others and b"," not in first else ","


def encoding_fault(parameter: str, name: str, content: bytes, at: int) -> str:
    """The fault of a file that is not UTF-8; `content` is its beginning, or all of it."""
    utf_16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if b"\0" in content and not utf_16:
        return f"{parameter} {name} is a binary file: give a CSV, TSV, JSONL or Parquet file"
    encoding = "UTF-16" if utf_16 else "LATIN1"
    fault = f"is not UTF-8 text (byte {at} cannot be decoded) but probably {encoding}"
    return f"{parameter} {name} {fault}: `iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > utf8.csv` converts it"


def label_columns(spec: JobSpec, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns with labels: one, or those that a multi-label `label_column` lists; none for causal-lm."""
    if spec.task == metrics.CAUSAL_LM:
        return ()
    if spec.task == metrics.MULTI_LABEL and "," in spec.label_column and spec.label_column not in columns:
        return split_list(spec.label_column)
    return (spec.label_column,)


def used_columns(spec: JobSpec, columns: Sequence[str]) -> list[tuple[str, str]]:
    """The parameters that name columns, each with one column: the text, then the labels."""
    return [("text_column", spec.text_column), *(("label_column", name) for name in label_columns(spec, columns))]


def column_faults(spec: JobSpec, split: str, columns: Mapping[str, Sequence[object]]) -> list[str]:
    """One fault for each column that a split must have and has not, and for each one with missing cells."""
    faults = []
    for parameter, column in used_columns(spec, [*columns]):
        if column not in columns:
            same = [name for name in columns if name.lower() == column.lower()]
            meant = f"did you mean {same[0]}? " if same else did_you_mean(column, columns, most=1) + " "
            absent = f"{parameter} {column!r} is not in the {split} rows of {spec.dataset}"
            names = ", ".join(columns)
            faults.append(f"{absent}: {meant.lstrip()}they have {names}; set {parameter} to one of them")
        elif spec.missing_rows == "refuse" and (rows := missing_rows(spec, parameter, column, columns[column])):
            kind = "missing or blank" if looks_for_blanks(spec, parameter) else "missing"
            missing = f"{column!r} is {kind} in {len(rows)} of {len(columns[column])} {split} rows"
            first = ", ".join(map(str, rows[:5]))
            faults.append(f"{missing} (first: rows {first}): fill them, or set missing_rows=drop")
    return faults


def looks_for_blanks(spec: JobSpec, parameter: str) -> bool:
    """Whether blank texts count as missing: not those of language models, nor of the hub, which are not the user's."""
    return parameter == "text_column" and spec.task != metrics.CAUSAL_LM and exists(spec.dataset)


def missing_rows(spec: JobSpec, parameter: str, column: str, cells: Sequence[object]) -> list[int]:
    """Numbers of the rows, counted from 1, without a value in a column."""
    if parameter == "label_column" and spec.task == metrics.MULTI_LABEL and column == spec.label_column:
        return []  # an empty cell means that the row has no labels
    blanks = looks_for_blanks(spec, parameter)
    return [
        row
        for row, cell in enumerate(cells, 1)
        if cell is None or (blanks and isinstance(cell, str) and not cell.strip())
    ]
