"""The inputs of a job (the model to start from, and the data set), and cheap checks of both.

A launch checks local CSV, TSV and JSONL files before it imports large libraries, so a misspelled column is reported
within a second. Other files, and files larger than `_LARGEST` bytes, are checked when the data are prepared.
"""

import codecs
import csv
import io
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from paretune.core.errors import BadInput, collecting, did_you_mean
from paretune.core.hub import hub_fault
from paretune.core.reading import at_home, exists, is_file, is_folder
from paretune.core.shell import options
from paretune.specification import metrics
from paretune.specification.chats import COMPLETION, MESSAGES, PROMPT, document_faults
from paretune.specification.declaration import split_list

BUNDLED = "bundled:"  # prefix of the model and the data sets that are installed as Python packages
BUNDLED_MODEL = f"{BUNDLED}all-MiniLM-L6-v2"
BUNDLED_MODEL_ID = "sentence-transformers/all-MiniLM-L6-v2"
"""Hub id of the bundled model."""
BUNDLED_DATASET = f"{BUNDLED}rotten_tomatoes"
SCRIPT_CHANNELS = {"model": "model", "dataset": "train", "validation_file": "validation", "test_file": "test"}
"""Parameters that may name input files or folders on the launching machine, and the channel of each for a user's own
script. The channels have the names of SageMaker's examples, whose scripts read SM_CHANNEL_TRAIN and SM_CHANNEL_TEST."""
INPUT_FILES = tuple(SCRIPT_CHANNELS)
DATA_FILES = (".csv", ".tsv", ".jsonl", ".parquet")  # endings of a data set in one file
PATHS = (*INPUT_FILES, "entry_script", "budget")
"""Parameters of a job whose files or folders `find_path` looks up. It does so for `simulation.runs`, too."""
CHANNELS = "/opt/ml/input/data"  # folder of the channels in a job's container
IN_S3 = "s3://"  # prefix of a file or folder in S3, which scripts and projects on SageMaker can read
ROW_FILES = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}
"""Suffixes of files with rows, and the builder of the `datasets` library that reads each."""
_WITH_A_SCRIPT = (
    "paretune cannot train it itself; give a script such as transformers' run_qa.py or run_summarization.py "
    "with entry_script, and its arguments in training_arguments"
)
OTHER_TASKS = {
    **dict.fromkeys(("question-answering", "qa", "sequence-to-sequence"), _WITH_A_SCRIPT),
    **dict.fromkeys(("text2text-generation", "summarization", "translation"), _WITH_A_SCRIPT),
    "ner": f"set task={metrics.TOKEN_CLASSIFICATION}",
}
"""Tasks that paretune does not have, and what to use instead."""
_LARGEST = 20_000_000  # bytes of the largest file that is checked here, which takes half a second
_TEXT = (".csv", ".tsv", ".jsonl")
_NUMBER, _FRACTION = re.compile(r"-?\d+(?:\.\d*)?"), re.compile(r"-?\d+\.\d*[1-9]\d*")
NUMBERS_REMEDY = ": a script of your own (entry_script) can predict numbers"


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Which rows a training reads, and how: the parameters of a job with these names (`JobSpec.data_arguments`)."""

    dataset: str
    validation_file: str | None
    test_file: str | None
    text_column: str
    label_column: str
    task: str
    missing_rows: str
    max_train_samples: int | None
    max_eval_samples: int | None
    max_seq_length: int
    prefers_chats: bool  # whether columns of conversations come before text_column

    def text_columns(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the columns with the texts: text_column, or those of conversations.

        A language model for which text_column was not given reads the columns prompt and completion if there are both,
        and otherwise messages if there is such a column.
        """
        if self.prefers_chats and PROMPT in columns and COMPLETION in columns:
            return PROMPT, COMPLETION
        return (MESSAGES,) if self.prefers_chats and MESSAGES in columns else (self.text_column,)

    def label_columns(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the label columns: usually one, several if a multi-label job lists them, and none for causal-lm."""
        if self.task == metrics.CAUSAL_LM:
            return ()
        if self.task == metrics.MULTI_LABEL and "," in self.label_column and self.label_column not in columns:
            return split_list(self.label_column)
        return (self.label_column,)

    def used_columns(self, columns: Collection[str]) -> list[tuple[str, str]]:
        """Return pairs of a parameter and a column that it names: first the text columns, then the label columns."""
        texts = (("text_column", name) for name in self.text_columns(columns))
        return [*texts, *(("label_column", name) for name in self.label_columns(columns))]

    @property
    def looks_for_blanks(self) -> bool:
        """Whether blank cells count as missing: only in local data, and not for language models."""
        return self.task != metrics.CAUSAL_LM and exists(self.dataset)


def current_name(text: str) -> str:
    """Return the name of a model or data set unchanged, or the path in a file:// URI."""
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text


def split_configuration(dataset: str) -> tuple[str, str | None]:
    """Split a hub id with a configuration, such as nyu-mll/glue:sst2, into nyu-mll/glue and sst2.

    For any other data set, returns its name and None.
    """
    parts = re.fullmatch(r"(\w[\w.-]*(?:/[\w.-]+)?):([\w.-]+)", dataset)
    is_other = parts is None or dataset.startswith(BUNDLED) or exists(dataset) or exists(parts[1])
    return (dataset, None) if parts is None or is_other else (parts[1], parts[2])


def model_faults(model: str) -> list[str]:
    """Return a fault if a model is neither bundled, nor a folder, nor in S3, and the Hub does not provide it."""
    is_of_hub = not (model.startswith((BUNDLED, IN_S3)) or exists(model))
    return [fault] if is_of_hub and (fault := hub_fault(model)) else []


def missing_files(texts: Mapping[str, str]) -> list[str]:
    """Return a fault for each parameter whose path does not exist, or is not a file or folder that can be used."""
    faults = []
    project = texts.get("project", "").partition("#")[0]
    if project and not re.match(r"\w+://|git@|file:", project) and not exists(project):
        faults.append(
            f"project {project} does not exist (looked in {Path.cwd()}): give a folder, or a git URI such as "
            "https://github.com/mlflow/mlflow-example"
        )
    for name in (*INPUT_FILES, "entry_script"):
        text = current_name(texts.get(name, ""))
        is_web = text.lower().startswith(("http://", "https://"))  # `rules` checks these
        if is_web or (text.startswith(IN_S3) and name != "entry_script"):
            continue  # S3 is checked later, when there are no other faults
        is_path = name.endswith(("_file", "_script")) or text.startswith((".", "/", "~"))
        is_path = is_path or Path(text).suffix.lower() in ROW_FILES
        if text and is_path and not exists(text):
            folder = at_home(text).parent
            names = [path.name for path in folder.glob("*")] if is_folder(folder) else []
            near = did_you_mean(Path(text).name, names, lead=": ", most=1, cutoff=0.7)
            faults.append(f"{name} {text} does not exist (looked in {Path.cwd()}){near}")
        elif text and exists(text) and not is_file(text) and not is_folder(text):
            faults.append(f"{name} must be a file or a folder, and {text} is a device, a pipe or a socket")
        elif name == "dataset" and (path := text.rpartition(":")[0]) and exists(path) and not exists(text):
            right = f"a file or folder in {path}" if is_folder(path) else path
            faults.append(f"{name} {text}: only a hub id can have a configuration; name {right}")
        elif text and name == "entry_script" and is_folder(text):
            faults.append(f"{name} must be a file, and {text} is a folder: name the script in it")
    return faults


def in_channel(channel: str, source: Path | str) -> tuple[Path | str, str]:
    """Return the source of a channel, a file or folder on this machine or in S3, and the path where the job finds it.

    In S3, a name without a suffix is taken for a folder and gets a slash at its end, because S3 knows only prefixes.
    """
    folder = f"{CHANNELS}/{channel}"
    if isinstance(source, Path):
        return source, folder if source.is_dir() else f"{folder}/{source.name}"
    name = source.rpartition("/")[2]
    return (source, f"{folder}/{name}") if Path(name).suffix else (f"{source.rstrip('/')}/", folder)


def data_faults(data: DataArguments) -> list[str]:
    """Return the faults of local data files that can be found cheaply."""
    faults = list[str]()
    names = {"dataset": data.dataset, "validation_file": data.validation_file, "test_file": data.test_file}
    for parameter, name in names.items():
        if not name:
            continue
        try:
            with collecting(faults):
                faults += _file_faults(data, parameter, name)
        except OSError as error:
            way = "change its permissions, or name another file"
            faults.append(f"{parameter} {name} cannot be read ({error.strerror}): {way}")
    return faults


def texts_in(dataset: str, text_column: str) -> list[str]:
    """Return the text of each row in a local file; empty if `dataset` is none, or too large.

    The texts are in `text_column` or, if there is no such column, in those of conversations or in the longest one.
    """
    path = at_home(dataset)
    is_parquet = path.suffix.lower() == ".parquet"
    if not is_file(path) or not (is_parquet or path.suffix.lower() in _TEXT) or path.stat().st_size > _LARGEST:
        return []
    columns = _parquet_columns(path) if is_parquet else _columns(path, "dataset", drops=True)
    texts = {name: [str(cell or "") for cell in cells] for name, cells in columns.items()}
    chosen = [name for name in (text_column,) if name in texts] or [
        name for name in (PROMPT, COMPLETION, MESSAGES) if name in texts
    ]
    chosen = chosen or sorted(texts, key=lambda name: -sum(map(len, texts[name])))[:1]
    return ["".join(parts) for parts in zip(*(texts[name] for name in chosen), strict=True)]


def _parquet_columns(path: Path) -> dict[str, Sequence[object]]:
    """Read the columns of a Parquet file; empty if it cannot be read, which the preparation of the data reports."""
    from pyarrow import parquet

    with suppress(OSError, ValueError):  # the errors of pyarrow are ValueErrors
        return dict(parquet.read_table(path).to_pydict())
    return {}


def _file_faults(data: DataArguments, parameter: str, name: str) -> list[str]:
    """Return the faults of a data file or folder; none if `name` is neither.

    Raises OSError if it cannot be read, and BadInput like `_columns`.
    """
    path = at_home(name)
    if is_folder(path):
        return [] if any(path.iterdir()) else [f"{parameter} {name} has no rows: it is empty"]
    if not is_file(path):
        return []
    with path.open("rb") as file:
        if not file.read(1):
            return [f"{parameter} {name} has no rows: it is empty"]
    if path.suffix.lower() not in ROW_FILES:
        return [kind_fault(parameter, path)]
    if path.suffix.lower() not in _TEXT or path.stat().st_size > _LARGEST:
        return []
    columns = _columns(path, parameter, drops=data.missing_rows == "drop")
    split = SCRIPT_CHANNELS[parameter]
    found = column_faults(data, split, columns) if columns else []
    if not columns or found:
        return found
    if data.task == metrics.CAUSAL_LM:
        texts = {column: columns[column] for column in data.text_columns(columns)}
        return document_faults(f"{parameter} {name}", split, texts)
    return _class_faults(data, columns) if split == "train" and data.task == metrics.CLASSIFICATION else []


def kind_fault(parameter: str, path: Path) -> str:
    """Return the message for a file whose suffix is not in ROW_FILES."""
    is_sheet = path.suffix.lower() in (".xlsx", ".xls", ".ods", ".numbers")
    remedy = ": save the sheet as CSV in UTF-8" if is_sheet else ""
    return f"{parameter} must end in {', '.join(ROW_FILES)}, got {path}{remedy}"


def _class_faults(data: DataArguments, columns: Mapping[str, Sequence[object]]) -> list[str]:
    """Return a fault if the labels are numbers with fractions, or the fault that `class_faults` finds."""
    cells, texts = (columns[name] for name in (data.label_column, data.text_column))
    pairs = zip(cells, texts, strict=True)
    labels = [
        str(cell).strip() for cell, text in pairs if not (is_missing(cell) or _is_no_label(cell) or is_missing(text))
    ]
    if labels and any(_FRACTION.fullmatch(label) for label in labels) and all(map(_NUMBER.fullmatch, labels)):
        wrong = [number for number, cell in enumerate(cells) if _FRACTION.fullmatch(str(cell).strip())]
        examples = ", ".join(f"row {number + 1} has {str(cells[number]).strip()}" for number in wrong[:5])
        rule = f"label_column {data.label_column!r} must have one class per row, as text or a whole number"
        have = "rows have other values" if len(wrong) > 1 else "row has another value"
        return [f"{rule}; {len(wrong)} train {have}: {examples}{NUMBERS_REMEDY}"]
    return class_faults(data, {*labels}, {*labels}, len(labels))


def class_faults(data: DataArguments, used: Collection[str], names: Collection[str], rows: int) -> list[str]:
    """Return a fault if there is no label, a single class, or more classes than half the number of training rows.

    Two classes are never too many, and the task token-classification may have any number. `used` has the classes of the
    training rows, `names` all classes; `rows` is the number of training rows.
    """
    column = f"label_column {data.label_column!r}"
    if not used:
        return [f"{column} has no label in any training row: there is nothing to learn"]
    if len(used) < 2:
        remedy = "set task=classification, and give the other rows a class, too"
        way = remedy if data.task == metrics.MULTI_LABEL else "there is nothing to learn"
        return [f"{column} has only one class ({min(used)}): {way}"]
    if len(names) > max(2, rows / 2) and data.task != metrics.TOKEN_CLASSIFICATION:
        question = "is it the right column, and are several labels separated by | or commas?"
        return [f"{column} has {len(names)} classes in {rows} rows: {question}"]
    return []


def _columns(path: Path, parameter: str, *, drops: bool) -> dict[str, Sequence[object]]:
    """Read the columns of a file. The result is empty if only the slower `datasets` library may be able to read them.

    Raises BadInput if the file is not UTF-8, if a JSONL line after the first one is not JSON or, unless the job `drops`
    such rows, if a row has more fields than the header.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput([encoding_fault(parameter, str(path), content, error.start)]) from error
    try:
        if path.suffix.lower() == ".jsonl":
            rows = list(_json_rows(path, parameter, text))
            names = dict.fromkeys(name for row in rows for name, _ in row.items())  # AttributeError if not an object
            return {name: [row.get(name) for row in rows] for name in names}
        mark = separator(path, content)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        lines = [(reader.line_num, line) for line in reader]
    except (ValueError, csv.Error, AttributeError, RecursionError):
        return {}
    header, *cells = [line for _, line in lines if line] or [[]]
    if ragged := [number for number, line in lines if len(line) > len(header)]:
        if not drops:
            raise BadInput([_ragged_fault(parameter, path, mark, header, dict(lines), ragged)])
        cells = [line for line in cells if len(line) <= len(header)]
    return {name: [line[at] or None if at < len(line) else None for line in cells] for at, name in enumerate(header)}


def _json_rows(path: Path, parameter: str, text: str) -> Iterator[Any]:
    """Yield the value of each line that is not blank.

    If a line is not JSON, raises BadInput if the first line was an object or if the text does not begin with JSON.
    Otherwise raises the parser's ValueError, since `datasets` reads a list, and objects that take several lines.
    """
    first: object = None
    for number, line in enumerate(text.split("\n"), 1):  # a text in a row may contain other line separators
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if not isinstance(first, dict) and (first is not None or _begins_with_json(text)):
                raise
            reason = f"{parameter} {path}: line {number} is not a JSON object ({error})"
            example = "" if first is None else f", such as {json.dumps(first)[:80]}"
            raise BadInput([f"{reason}: each line must be one{example}"]) from error
        first = row if first is None else first
        yield row


def _begins_with_json(text: str) -> bool:
    """Return whether a text begins with a JSON value, which may take several lines."""
    try:
        json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return False
    return True


def _ragged_fault(
    parameter: str,
    path: Path,
    mark: str,
    header: Sequence[str],
    lines: Mapping[int, Sequence[str]],
    ragged: Sequence[int],
) -> str:
    """Return the message for rows with more fields than the header.

    `lines` has the fields of each row by the number of its last line; `ragged` has these numbers for the wrong rows.
    """
    counts = sorted({len(lines[number]) for number in ragged})
    fields = " or ".join(map(in_letters, counts[:3])) if len(counts) <= 3 else f"{counts[0]} to {counts[-1]}"
    marks = {",": "commas", ";": "semicolons", "\t": "tabs"}[mark]
    have = "rows have" if len(ragged) > 1 else "row has"
    some = f"{len(ragged)} {have} {fields} fields, the header {in_letters(len(header))}"
    first = f"line{'s' if len(ragged) > 1 else ''} {', '.join(map(str, ragged[:5]))}"
    shown = mark.join(lines[ragged[0]])[:80]
    return (
        f"{parameter} {path}: {some} ({first}, such as {shown!r}): quote texts that contain {marks}, or leave these "
        f"rows out with {options(missing_rows='drop')}"
    )


def ragged_lines(path: Path, mark: str) -> list[int]:
    """Return the numbers of lines in a CSV file that have more fields than the header; empty if it cannot be parsed."""
    with suppress(UnicodeDecodeError, csv.Error), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=mark)
        header = next(filter(None, reader), [])
        return [reader.line_num for line in reader if len(line) > len(header)]
    return []


def in_letters(number: int) -> str:
    """Write a number from 0 to 10 as a word, and any other in digits."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)


def separator(path: Path, content: bytes) -> str:
    """Return the separator of a CSV or TSV file. A CSV file without commas in its first line may use ; or tabs."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    first = content[: content.find(b"\n") + 1] or content
    others = [mark for mark in (";", "\t") if mark.encode() in first]
    return max(others, key=lambda mark: first.count(mark.encode())) if others and b"," not in first else ","


def encoding_fault(parameter: str, name: str, content: bytes, at: int) -> str:
    """Return the message for a file that is not UTF-8. `content` is its beginning, or all of it."""
    utf_16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if b"\0" in content and not utf_16:
        return f"{parameter} {name} is a binary file: give a CSV, TSV, JSONL or Parquet file"
    encoding = "UTF-16" if utf_16 else "LATIN1"
    fault = f"is not UTF-8 text (the byte at position {at} cannot be decoded) but probably {encoding}"
    copy = f"utf8{Path(name).suffix or '.csv'}"  # the suffix decides how a file is read
    way = f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(copy)}"
    return f"{parameter} {name} {fault}: `{way}` converts it"


def column_faults(data: DataArguments, split: str, columns: Mapping[str, Sequence[object]]) -> list[str]:
    """Return a fault for each required column that is missing or, with missing_rows=refuse, has missing cells.

    If a file of conversations has no text column, this is the only fault: the remedy is another task or column.
    """
    faults = []
    for parameter, column in data.used_columns(columns):
        if column not in columns:
            same = [name for name in columns if name.lower() == column.lower()]
            meant = f"did you mean {same[0]}? " if same else did_you_mean(column, columns, most=1) + " "
            source = {"validation": data.validation_file, "test": data.test_file}.get(split) or data.dataset
            absent = f"{parameter} {column!r} is not in the {split} rows of {source}"
            names, remedy = ", ".join(columns), f"set {parameter} to one of them"
            if parameter == "text_column" and (chats := {MESSAGES, PROMPT, COMPLETION} & {*columns}):
                return [f"{absent}: they have {names}; {_chat_remedy(data, chats)}"]
            if "," in names and len(columns) == 1:
                meant, remedy = "", "its columns are separated by commas: name it .csv"
            elif any(name in cells for name, cells in columns.items()):
                meant, remedy = "", f"the first line must name the columns: put {_header(data, columns)} above it"
            faults.append(f"{absent}: {meant.lstrip()}they have {names}; {remedy}")
        elif data.missing_rows == "refuse" and (rows := missing_rows(data, parameter, column, columns[column])):
            kind = "missing or blank" if data.looks_for_blanks else "missing"
            if parameter == "label_column" and any(_is_no_label(columns[column][row - 1]) for row in rows):
                kind += f" (such as {next(filter(_is_no_label, columns[column]))})"
            missing = f"{column!r} is {kind} in {len(rows)} of {len(columns[column])} {split} rows"
            first = f"row {rows[0]}" if len(rows) == 1 else f"first: rows {', '.join(map(str, rows[:5]))}"
            faults.append(f"{missing} ({first}): fill them, or leave them out with {options(missing_rows='drop')}")
    return faults


def _chat_remedy(data: DataArguments, columns: Collection[str]) -> str:
    """Return what to do with a file that has some of the columns of conversations, but no text column."""
    if data.task == metrics.CAUSAL_LM and MESSAGES not in columns and len(columns) == 1:
        missing = COMPLETION if PROMPT in columns else PROMPT
        return f"give each row a column {missing} too, or set text_column to one of them"
    way = f"set task={metrics.CAUSAL_LM}" if data.task != metrics.CAUSAL_LM else "leave out text_column"
    return f"{way} to train on their conversations"


def _header(data: DataArguments, columns: Collection[str]) -> str:
    """Return a header line for a file without one: the columns of the job, then made-up names for the others."""
    names = [name for _, name in data.used_columns(columns)]
    others = [f"column{number}" for number in range(len(names) + 1, len(columns) + 1)]
    return ",".join([*names, *others][: max(len(columns), len(names))])


def is_missing(cell: object) -> bool:
    """Return whether a cell has no value, or a blank one."""
    return cell is None or not str(cell).strip()


_NO_LABELS = {"nan", "<na>", "nat", "#n/a", "null"}
"""What programs write for a missing value, in lower case. NA, N/A and None may be the name of a class."""


def _is_no_label(cell: object) -> bool:
    """Return whether the cell of a label is what a program writes for a missing value, such as NaN."""
    return str(cell).strip().lower() in _NO_LABELS


def missing_rows(data: DataArguments, parameter: str, column: str, cells: Sequence[object]) -> list[int]:
    """Return the numbers (from 1) of the rows that have no value in a column. A label such as NaN is no value."""
    is_label, blanks = parameter == "label_column", data.looks_for_blanks
    if is_label and data.task == metrics.MULTI_LABEL and column == data.label_column:
        return [number for number, cell in enumerate(cells, 1) if _is_no_label(cell)]  # empty: a row without labels
    return [
        number
        for number, cell in enumerate(cells, 1)
        if cell is None or (blanks and is_missing(cell)) or (is_label and _is_no_label(cell))
    ]
