"""Reads texts and labels from a data set on the Hugging Face Hub, a file or a folder.

The `datasets` library reads the rows; this module splits, samples and checks them. Each step reports all of its faults.
"""

import csv
import glob
import itertools
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from datasets.packaged_modules.csv.csv import CsvConfig
from sklearn.model_selection import train_test_split

from paretune.core.errors import BadInput, causes, collecting, first_line, refuse
from paretune.core.hub import explain
from paretune.core.reading import LARGEST_SETTINGS, at_home, is_file, is_folder
from paretune.specification import metrics
from paretune.specification.chats import MESSAGES, document_faults, read_document
from paretune.specification.inputs import (
    BUNDLED,
    ROW_FILES,
    DataArguments,
    column_faults,
    encoding_fault,
    kind_fault,
    missing_rows,
    ragged_lines,
    separator,
    split_configuration,
)
from paretune.training import downloads
from paretune.training.rows.tokenized import DroppedRows, Rows
from paretune.training.tasks import cells_of, missing_faults, read_targets, words_of

SPLIT_SEED = 0  # for the 90/10 split and for samples; fixed, so that all jobs are evaluated on the same rows
VALIDATION_SHARE = 0.1


def read_rows(data: DataArguments) -> tuple[dict[str, Rows], tuple[str, ...]]:
    """Read the rows of each split and the class names. Raises BadInput with all faults of the first step that fails.

    If there is no validation split, a tenth of the training rows, drawn with a fixed seed, becomes one. For
    classification, the split is stratified by class if possible. Then the training split is sampled down to
    max_train_samples rows, and each other split to max_eval_samples rows or, if only max_train_samples is set, to a
    ninth of max_train_samples.
    """
    ragged = dict[str, list[int]]()
    tables = _read_tables(data, ragged)
    refuse(_column_faults(data, tables))
    dropped = _drop(data, tables, ragged) if data.missing_rows == "drop" else {}
    ids, names = read_targets(data, tables)
    rows = {
        split: Rows(
            **_documents(data, tables[origin], index),
            labels=ids[origin][index] if ids else None,
            source=_source(data, origin),
            numbers=(dropped[origin].kept[index] if origin in dropped else index + 1).tolist(),
            dropped=dropped.get(split),
            is_limited=is_limited,
        )
        for split, (origin, index, is_limited) in _pick(data, tables, ids).items()
    }
    refuse(missing_faults(data, rows["train"].labels, names, is_limited=rows["train"].is_limited))
    return rows, names


def _drop(
    data: DataArguments, tables: dict[str, datasets.Dataset], ragged: Mapping[str, Sequence[int]]
) -> dict[str, DroppedRows]:
    """Remove rows without text or label from `tables`. Return a description of the rows that each split lost.

    The description includes the `ragged` lines, which were left out when the tables were read.
    """
    dropped, empty = dict[str, DroppedRows](), list[str]()
    for split, table in tables.items():
        columns = data.used_columns(table.column_names)
        missing = (missing_rows(data, parameter, name, cells_of(table, name)) for parameter, name in columns)
        numbers = sorted({number for part in missing for number in part})
        lines = ragged.get(split, [])
        if not (numbers or lines):
            continue
        kept = np.setdiff1d(np.arange(len(table)), np.array(numbers, dtype=int) - 1)
        counted = ", not counting the lines with more fields" if lines else ""  # the lines were removed before
        parts = [f"{len(numbers)} without text or label ({_first('row', numbers)}{counted})"] if numbers else []
        parts += [f"{len(lines)} with more fields than the header ({_first('line', lines)})"] if lines else []
        count, source = len(numbers) + len(lines), _source(data, split)
        sentence = f"{count} of {len(table) + len(lines)} rows of {source} are left out: {', '.join(parts)}"
        dropped[split] = DroppedRows(rows=count, sentence=sentence, kept=kept + 1)
        tables[split] = table.select(kept)
        empty += [] if len(kept) else [f"missing_rows=drop leaves no rows in {source}: {sentence}"]
    refuse(empty)
    return dropped


def _first(kind: str, numbers: Sequence[int]) -> str:
    return f"{kind}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:5]))}{', ...' * (len(numbers) > 5)}"


def _source(data: DataArguments, split: str) -> str:
    """Return the file of a split, or the data set with the split in parentheses."""
    named = {"train": data.dataset, "validation": data.validation_file, "test": data.test_file}.get(split)
    is_own = split == "train" and at_home(data.dataset).suffix.lower() in ROW_FILES
    return str(named) if named is not None and (is_own or split != "train") else f"{data.dataset} ({split})"


def _documents(data: DataArguments, table: datasets.Dataset, index: np.ndarray) -> dict[str, Any]:
    """Return the field `texts` or `chats` of `Rows`."""
    names = data.text_columns(table.column_names)
    columns = [cells_of(table.select(index), name) for name in names]
    if data.task == metrics.CAUSAL_LM and not _is_plain(table, names):
        return {"chats": [read_document(names, cells) for cells in zip(*columns, strict=True)]}
    (cells,) = columns
    if data.task != metrics.TOKEN_CLASSIFICATION:
        return {"texts": cells}
    return {"texts": [" ".join("_".join(word.split()) or "_" for word in words_of(cell)) for cell in cells]}


def _read_tables(data: DataArguments, ragged: dict[str, list[int]]) -> dict[str, datasets.Dataset]:
    """Read the table of each split. `ragged` receives, by split, the numbers of lines that are left out."""
    tables: dict[str, datasets.Dataset] = {}
    faults: list[str] = []
    with collecting(faults):
        tables = _read_bundled(data.dataset) if data.dataset.startswith(BUNDLED) else _read_named(data, ragged)
    for split, path in (("validation", data.validation_file), ("test", data.test_file)):
        if path is not None:
            with collecting(faults):
                tables[split] = _read_file(data, at_home(path), f"{split}_file", split, ragged)
    refuse(faults)
    if "train" not in tables:
        others = f", only {' and '.join(tables)}" if tables else ""
        raise BadInput([f"dataset {data.dataset} has no train split{others}"])
    refuse([f"{_source(data, split)} has no rows" for split, table in tables.items() if len(table) == 0])
    return tables


def _read_bundled(name: str) -> dict[str, datasets.Dataset]:
    path, source = downloads.bundled_dataset(name)
    frame = pd.read_csv(path, keep_default_na=False)
    frame = frame.loc[frame["source"] == source, ["text", "label"]]
    frame["label"] = frame["label"].astype(int).map({0: "negative", 1: "positive"})
    return {"train": datasets.Dataset.from_pandas(frame, preserve_index=False)}


def _read_named(data: DataArguments, ragged: dict[str, list[int]]) -> dict[str, datasets.Dataset]:
    dataset, configuration = split_configuration(data.dataset)
    path = at_home(dataset)
    is_local = is_folder(path)  # Spark and Dask write folders with names such as rows.csv
    if not is_local and (path.suffix.lower() in ROW_FILES or is_file(path)):
        return {"train": _read_file(data, path, "dataset", "train", ragged)}
    name = str(path.resolve()) if is_local else downloads.MOVED_DATASETS.get(dataset, dataset)
    try:
        # Data sets on the hub get no options: offline, `datasets` finds only data fetched with the same options.
        builder = datasets.load_dataset_builder(name) if is_local else None
        is_csv = builder is not None and isinstance(builder.config, CsvConfig)
        options = {**_csv_options(data), **_separator_of(builder)} if is_csv else {}
        tables = dict(datasets.load_dataset(name, configuration, **options))
    except Exception as error:
        raise BadInput([_load_fault("dataset", dataset, error, is_local=is_local)]) from error
    if "valid" in tables:
        tables.setdefault("validation", tables["valid"])
    splits = [split for split in ("train", "validation", "test") if split in tables]
    return {split: _with_numbers(data, tables[split]) if options else tables[split] for split in splits}


def _separator_of(builder: datasets.DatasetBuilder) -> dict[str, str]:
    """Return pandas' option for the separator of a folder's CSV files; empty if it is not the same in all of them."""
    marks = set[str]()
    for name in itertools.chain.from_iterable((builder.config.data_files or {}).values()):
        with Path(name).open("rb") as file:
            marks.add(separator(Path(name), file.readline(LARGEST_SETTINGS)))
    return {"sep": marks.pop()} if len(marks) == 1 else {}


def _csv_options(data: DataArguments) -> dict[str, Any]:
    """Return pandas' options for a CSV file: only empty cells are missing ("NA" may be text), and labels are text."""
    options: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
    return options if data.task == metrics.CAUSAL_LM else options | {"converters": {data.label_column: _label}}


def _label(cell: str) -> str | None:
    return cell.strip() or None  # not as a number: 01 would become 1


def _with_numbers(data: DataArguments, table: datasets.Dataset) -> datasets.Dataset:
    """Convert a CSV file's labels to floats if all are numbers and some have fractions. A later check refuses them."""
    column = data.label_column
    texts = cells_of(table, column) if column in table.column_names else []
    numbers = pd.to_numeric(pd.Series(texts), errors="coerce")
    has_fractions = numbers.notna().all() and (numbers % 1).any()
    return table.cast_column(column, datasets.Value("float64")) if has_fractions else table


def _read_file(
    data: DataArguments, path: Path, parameter: str, split: str, ragged: dict[str, list[int]]
) -> datasets.Dataset:
    suffix = path.suffix.lower()
    if is_folder(path):
        raise BadInput([f"{parameter} must be a file, and {path} is a folder: name a file in it"])
    if suffix not in ROW_FILES:
        raise BadInput([kind_fault(parameter, path)])
    options = _csv_options(data) if ROW_FILES[suffix] == "csv" else {}
    if options:  # the separator may also be a semicolon or a tab
        with path.open("rb") as file:
            options["sep"] = separator(path, file.readline(LARGEST_SETTINGS))
        if data.missing_rows == "drop" and (lines := ragged_lines(path, options["sep"])):
            ragged[split] = lines
    try:
        with _without_lines(path, options.get("sep", ""), ragged.get(split, ())) as file:
            files = {"train": glob.escape(str(file.absolute()))}  # `datasets` takes names for patterns
            table = datasets.load_dataset(ROW_FILES[suffix], data_files=files, split="train", **options)
    except Exception as error:
        raise BadInput([_load_fault(parameter, str(path), error, is_local=True)]) from error
    return _with_numbers(data, table) if options else table


@contextmanager
def _without_lines(path: Path, mark: str, lines: Collection[int]) -> Iterator[Path]:
    """Yield the path of a copy of a CSV file without these lines, or of the file itself if `lines` is empty.

    pandas cannot skip all such lines: if the first row has more fields than the header, pandas takes the first column
    as an index.
    """
    if not lines:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        copy = Path(folder) / path.name
        with path.open(encoding="utf-8-sig", newline="") as file, copy.open("w", encoding="utf-8", newline="") as made:
            reader, writer = csv.reader(file, delimiter=mark), csv.writer(made, delimiter=mark)
            writer.writerows(row for row in reader if reader.line_num not in lines)
        yield copy


def _load_fault(parameter: str, name: str, error: BaseException, *, is_local: bool) -> str:
    links = causes(error)
    for link in links:
        if isinstance(link, UnicodeDecodeError):
            return encoding_fault(parameter, name, link.object, link.start)
    reason = " ".join(str(links[-1]).split())
    is_empty = "corresponds to no data" in reason or "at least one example" in reason  # as datasets 5 and 4.5 say it
    if is_empty or isinstance(links[-1], pd.errors.EmptyDataError | StopIteration):
        return f"{parameter} {name} has no rows"
    if "Config name is missing" in reason or "BuilderConfig" in reason:
        fix = f"name a file or folder in {name}" if is_local else f"choose one with {name}:NAME"
        return f"{parameter} {name} has several configurations: {fix} ({reason})"
    if is_local:
        return f"{parameter} {name} cannot be loaded: {first_line(links[-1])}"
    return explain(parameter, name, error)


def _column_faults(data: DataArguments, tables: Mapping[str, datasets.Dataset]) -> list[str]:
    faults, of_train = list[str](), data.text_columns(tables["train"].column_names)
    for split, table in tables.items():
        used = {column for _, column in data.used_columns(table.column_names)}
        try:
            columns = {name: cells_of(table, name) if name in used else () for name in table.column_names}
        except UnicodeDecodeError:  # the JSON reader accepts any bytes as text
            faults.append(
                f"dataset {data.dataset} has {split} rows that are not UTF-8 text: convert them, e.g. with iconv"
            )
            continue
        faults += (own := column_faults(data, split, columns))
        texts = data.text_columns(table.column_names)
        if texts != of_train:
            both = f"{_named(of_train)} in the train rows, and {_named(texts)} in the {split} rows"
            faults.append(f"the rows of all splits must have the same columns of texts, got {both}")
        elif data.task != metrics.CAUSAL_LM or _is_plain(table, texts):
            faults += _type_faults(data, table)
        elif not own:
            faults += document_faults(_source(data, split), split, {name: columns[name] for name in texts})
    return faults


def _is_plain(table: datasets.Dataset, texts: Sequence[str]) -> bool:
    """Return whether rows are texts rather than conversations, or prompts with completions."""
    return len(texts) == 1 and texts[0] != MESSAGES and isinstance(table.features.get(texts[0]), datasets.Value | None)


def _named(columns: Sequence[str]) -> str:
    return " and ".join(map(repr, columns))


def _type_faults(data: DataArguments, table: datasets.Dataset) -> list[str]:
    """Return a fault if the text column has something other than texts, or lists of them for token-classification."""
    kind = table.features.get(data.text_column)
    inner = getattr(kind, "feature", kind) if data.task == metrics.TOKEN_CLASSIFICATION else kind
    is_text = isinstance(inner, datasets.Value) and inner.dtype in {"string", "large_string", "null"}
    if kind is None or is_text:
        return []
    content = getattr(kind, "dtype", kind)
    return [f"text_column {data.text_column!r} must contain text, but contains {content}"]


def _pick(
    data: DataArguments, tables: Mapping[str, datasets.Dataset], ids: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, np.ndarray, bool]]:
    """Return, for each split of the job, a split of the data set and the indices of the rows to take from it.

    The third value says whether a limit has left rows out.
    """
    picked = {split: (split, np.arange(len(table)), False) for split, table in tables.items()}
    if "validation" not in picked:
        classes = ids["train"] if data.task == metrics.CLASSIFICATION else None
        train, validation = _split(len(tables["train"]), classes)
        picked |= {"train": ("train", train, False), "validation": ("train", validation, False)}
    generator = np.random.default_rng(SPLIT_SEED)
    ninth = VALIDATION_SHARE / (1 - VALIDATION_SHARE)
    default = None if data.max_train_samples is None else max(1, round(data.max_train_samples * ninth))
    for split, (origin, index, _) in picked.items():
        limit = data.max_train_samples if split == "train" else data.max_eval_samples or default
        order = generator.permutation(index)  # always drawn, so that a limit does not change later splits
        if limit is not None and limit < len(index):
            picked[split] = (origin, np.sort(order[:limit]), True)
    return picked


def _split(size: int, ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of training and validation rows, stratified by the classes `ids` if there are enough rows."""
    if size < 2:
        raise BadInput([f"the data set has {size} row: at least 2 are needed to train and validate"])
    held_out = max(1, round(size * VALIDATION_SHARE))
    if ids is not None:
        counts = np.unique(ids, return_counts=True)[1]
        if counts.min() < 2 or min(held_out, size - held_out) < len(counts):
            ids = None
    parts = train_test_split(np.arange(size), test_size=held_out, random_state=SPLIT_SEED, stratify=ids)
    return np.sort(parts[0]), np.sort(parts[1])
