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
from paretune.training.predicting.classifier import WORD_CLASSES, Classifier
from paretune.training.predicting.predictions import KINDS, PREDICTION, Predictions
from paretune.training.rows.sources import stream

_PIECE = 4096
"""Rows that are read, tokenised and sorted by length together."""
_EXAMPLES = 5  # rows that a fault names
_MOST_COUNTED = 20  # classes whose rows are counted


@dataclass(frozen=True, kw_only=True)
class Request:
    """A file to predict; the launching wing sends it as JSON.

    Attributes:
        model: folder with the model, its tokenizer and its configuration.
        data: file with the rows.
        output: file for the rows with predictions; its suffix chooses the format.
        max_seq_length: largest number of tokens of a text; None means as in the model's training.
    """

    model: str
    data: str
    text_column: str
    label_column: str
    output: str
    batch_size: int
    max_seq_length: int | None


def predict(request: Request, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Write the rows with their predictions and return the metrics, as JSON values.

    `progress` is called with the number of rows done and the number of all rows. The output file exists only when it is
    complete.

    Raises:
        BadInput: the model or the rows cannot be used; nothing is written then.
    """
    data, output = Path(request.data), Path(request.output)
    classifier = Classifier.load(
        Path(request.model), batch_size=request.batch_size, max_seq_length=request.max_seq_length
    )
    predictions = KINDS[classifier.kind](classifier.names)
    total, names = _checked_rows(data, request.text_column, predictions.columns)
    has_labels = request.label_column in names and request.label_column != request.text_column
    seconds, truncated, done = 0.0, 0, 0
    counts: Counter[str] = Counter()
    with _output_file(output, [*names, *predictions.columns]) as write:
        for piece in stream(data, _PIECE):
            began = time.perf_counter()
            logits, cut = classifier.outputs(piece[request.text_column])
            columns = predictions.columns_of(logits)
            seconds += time.perf_counter() - began
            if has_labels:
                predictions.compare(logits, piece[request.label_column])
            if classifier.names and classifier.kind != WORD_CLASSES:
                for prediction in columns[PREDICTION]:
                    counts.update(prediction if isinstance(prediction, list) else [prediction])
            write({**piece, **columns})
            truncated, done = truncated + cut, done + len(logits)
            progress(done, total)
    return {
        "rows": done,
        "seconds": seconds,
        "metrics": predictions.metrics(),
        "labelled_rows": predictions.labelled,
        "counts": dict(counts.most_common(_MOST_COUNTED)),
        "truncated_rows": truncated,
        "max_seq_length": classifier.limit,
        "kind": classifier.kind,
        "device": device.device_name(),
        "remarks": _label_remarks(predictions, request.label_column) if has_labels else [],
    }


def _checked_rows(data: Path, text_column: str, new_columns: Sequence[str]) -> tuple[int, list[str]]:
    """Number of rows and names of columns; reads the whole file once, before the first prediction.

    Raises:
        BadInput: all faults of the columns, or of the rows.
    """
    total, missing, names = 0, 0, list[str]()
    examples: list[int] = []
    for piece in stream(data, _PIECE):
        if not names:
            names = list(piece)
            _check_columns(data, names, text_column, new_columns)
        texts = piece[text_column]
        other = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if other is not None:
            raise BadInput([f"text_column {text_column!r} of {data} must hold text, and holds {type(other).__name__}"])
        empty = [total + number for number, text in enumerate(texts, start=1) if text is None]
        missing += len(empty)
        examples = [*examples, *empty][:_EXAMPLES]
        total += len(texts)
    if not total:
        raise BadInput([f"data {data} has no rows"])
    if missing:
        rows = f"{missing} of {total} rows of {data} (first: rows {', '.join(map(str, examples))})"
        raise BadInput([f"{text_column!r} is missing in {rows}: fill or drop them"])
    return total, names


def _check_columns(data: Path, names: Sequence[str], text_column: str, new_columns: Sequence[str]) -> None:
    faults = []
    if text_column not in names:
        columns = ", ".join(names)
        faults.append(f"text_column {text_column!r} is not in {data}: it has {columns}; set text_column to one of them")
    faults += [
        f"{data} has a column {name!r} already, which would be lost: rename it, or predict the original rows"
        for name in new_columns
        if name in names
    ]
    refuse(faults)


def _label_remarks(predictions: Predictions, label_column: str) -> list[str]:
    """Remarks on labels that the metrics leave out."""
    remarks = []
    if predictions.unknown:
        examples = ", ".join(repr(name) for name, _ in predictions.unknown.most_common(3))
        remarks.append(
            f"{predictions.unknown.total():,} rows have values of {label_column!r} that the model does not know, such "
            f"as {examples}: the figures are without them"
        )
    if predictions.without_label and predictions.labelled:
        remarks.append(f"{predictions.without_label:,} rows have no {label_column!r}: the figures are without them")
    return remarks


@contextmanager
def _output_file(output: Path, names: Sequence[str]) -> Iterator[Callable[[Mapping[str, Sequence[Any]]], None]]:
    """A function that writes the columns of a piece of rows; the file gets its name when all are written."""
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
                    {name: _csv_cell(value) for name, value in row.items()} for row in _rows(piece)
                )
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _rows(piece: Mapping[str, Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
    for values in zip(*piece.values(), strict=True):
        yield dict(zip(piece, values, strict=True))


def _csv_cell(value: Any) -> Any:
    """A value as a cell of CSV: lists and objects as JSON, and no formula that a spreadsheet would compute."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else as_cell(value)
