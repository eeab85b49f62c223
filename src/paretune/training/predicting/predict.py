"""Rows of a file in, the same rows with predictions out, piece by piece: memory does not grow with the file."""

import csv
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, refuse
from paretune.core.result import as_cell
from paretune.training import device
from paretune.training.predicting.classifier import Classifier
from paretune.training.predicting.predictions import KINDS, Answers
from paretune.training.rows.sources import stream

_PIECE = 4096
"""Rows that are read, tokenised and sorted by length together."""
_MOST_NAMED = 5  # rows that a fault names
_MOST_COUNTED = 20  # classes whose rows are counted
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; the launching wing sends it as JSON.

    Attributes:
        model: folder with the model, its tokenizer and its configuration.
        data: the file with the rows.
        output: where they are written; its ending says how.
        max_seq_length: tokens that are read of a text; None as the model was trained.
    """

    model: str
    data: str
    text_column: str
    label_column: str
    output: str
    batch_size: int
    max_seq_length: int | None


def predict(request: Request, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """Write the rows with their predictions; the figures. `tell` is called with the rows that are done, and all.

    The output is there only when it is complete.

    Raises:
        BadInput: the model or the rows cannot be used; nothing is written then.
    """
    data, output = Path(request.data), Path(request.output)
    classifier = Classifier.load(
        Path(request.model), batch_size=request.batch_size, max_seq_length=request.max_seq_length
    )
    answers = KINDS[classifier.kind](classifier.names)
    total, names = _checked(data, request.text_column, answers.columns)
    has_labels = request.label_column in names and request.label_column != request.text_column
    seconds, truncated, done = 0.0, 0, 0
    counts: Counter[str] = Counter()
    with _written(output, [*names, *answers.columns]) as write:
        for piece in stream(data, _PIECE):
            began = time.perf_counter()
            logits, cut = classifier.outputs(piece[request.text_column])
            added = answers.columns_of(logits)
            seconds += time.perf_counter() - began
            if has_labels:
                answers.compare(logits, piece[request.label_column])
            counts.update(_named(added["prediction"]) if classifier.names else ())
            write({**piece, **added})
            truncated, done = truncated + cut, done + len(logits)
            tell(done, total)
    return {
        "rows": done,
        "seconds": seconds,
        "metrics": answers.figures(),
        "labelled_rows": answers.labelled,
        "counts": dict(counts.most_common(_MOST_COUNTED)),
        "truncated_rows": truncated,
        "max_seq_length": classifier.limit,
        "kind": classifier.kind,
        "device": device.device_name(),
        "remarks": _remarks(answers, request.label_column) if has_labels else [],
    }


def _checked(data: Path, text_column: str, added: Sequence[str]) -> tuple[int, list[str]]:
    """Number of rows and names of columns; the whole file is read once, before the first prediction.

    Raises:
        BadInput: with all that is wrong with the columns, or with the rows.
    """
    total, missing, names = 0, 0, list[str]()
    first: list[int] = []
    for piece in stream(data, _PIECE):
        if not names:
            names = list(piece)
            _check_columns(data, names, text_column, added)
        texts = piece[text_column]
        strange = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if strange is not None:
            raise BadInput([f"text_column {text_column!r} of {data} holds no text but {type(strange).__name__}"])
        empty = [total + number for number, text in enumerate(texts, start=1) if text is None]
        missing += len(empty)
        first = [*first, *empty][:_MOST_NAMED]
        total += len(texts)
    if not total:
        raise BadInput([f"data {data} has no rows"])
    if missing:
        shown = ", ".join(map(str, first))
        rows = f"{missing} of {total} rows of {data} (first: rows {shown})"
        raise BadInput([f"{text_column!r} is missing in {rows}: fill or drop them"])
    return total, names


def _check_columns(data: Path, names: Sequence[str], text_column: str, added: Sequence[str]) -> None:
    faults = []
    if text_column not in names:
        there = ", ".join(names)
        faults.append(f"text_column {text_column!r} is not in {data}: it has {there}; set text_column to one of them")
    faults += [
        f"{data} has a column {name!r} already, which would be lost: rename it, or predict the original rows"
        for name in added
        if name in names
    ]
    refuse(faults)


def _named(predictions: Sequence[Any]) -> Iterator[str]:
    """Every class or label that was predicted, once for each row that has it."""
    for answer in predictions:
        yield from answer if isinstance(answer, list) else (answer,)


def _remarks(answers: Answers, label_column: str) -> list[str]:
    """What is to be known of the labels, in sentences."""
    said = []
    if answers.unknown:
        shown = ", ".join(repr(name) for name, _ in answers.unknown.most_common(3))
        count = sum(answers.unknown.values())
        said.append(
            f"{count:,} rows have values of {label_column!r} that the model does not know, such as {shown}: the "
            "figures are without them"
        )
    if answers.without_label and answers.labelled:
        said.append(f"{answers.without_label:,} rows have no {label_column!r}: the figures are without them")
    return said


@contextmanager
def _written(output: Path, names: Sequence[str]) -> Iterator[Callable[[Mapping[str, Sequence[Any]]], None]]:
    """What to call with the columns of each piece of rows; the file has its name when all are written."""
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            if output.suffix.lower() == ".jsonl":
                yield lambda piece: file.writelines(
                    json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in _rows(piece)
                )
            else:
                separator = "\t" if output.suffix.lower() == ".tsv" else ","
                table = csv.DictWriter(file, names, delimiter=separator, lineterminator="\n")
                table.writerow({name: as_cell(name) for name in names})
                yield lambda piece: table.writerows(
                    {name: _cell(value) for name, value in row.items()} for row in _rows(piece)
                )
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _rows(piece: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    for values in zip(*piece.values(), strict=True):
        yield dict(zip(piece, values, strict=True))


def _cell(value: Any) -> Any:
    """A value as a cell of CSV: lists and objects as JSON, and nothing that a spreadsheet would compute."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else as_cell(value)
