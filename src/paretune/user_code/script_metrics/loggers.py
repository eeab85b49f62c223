"""The loggers of a training run: where MLflow and W&B write inside a job, and how the files of each logger are read.

MLflow's store is read with SQLite. W&B's history and TensorBoard's events are read with the packages that wrote them,
if these are installed where the job runs.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import sqlite3
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .printed_line import dictionary_in, flat, has_metric_word, is_setting, numbers_in, numbers_of

STORE = "paretune"  # folder in a job's results: mlflow.db and mlruns of MLflow, CURVES of all other loggers
CURVES = "curves.jsonl"
RESULT_FILES = (
    *("trainer_log.jsonl", "trainer_state.json", "train_results.json", "eval_results.json", "all_results.json"),
    *("results.yml", "results.yaml", "metrics.yml", "metrics.yaml", "scores.json", "results.json", "metrics.json"),
    "eval_results.txt",
)
"""Files to which Hugging Face's and AWS's example scripts, LLaMA-Factory, detectron2, DVC's and others write numbers.

If several have a number of the same name, the last one in this list counts. A JSON file holds one document, or one on
each line, as detectron2's metrics.json does. YAML files are read with PyYAML, if it is installed where the job runs.
Text files are read like printed lines.
"""
CSV_FILES = ("history.csv", "log.csv", "training_log.csv", "progress.csv", "results.csv", "summary.csv", "metrics.csv")
"""Tables of Keras, Ultralytics, timm, Lightning and others. They need a column step, epoch or iteration."""
EVENT_FILES, HISTORY_FILES, SUMMARY_FILES = ("*.tfevents.*",), ("run-*.wandb",), ("wandb-summary.json",)
LOG_FILES = (*RESULT_FILES, *CSV_FILES, *EVENT_FILES, *HISTORY_FILES, *SUMMARY_FILES)
LOGGERS = "MLflow, W&B, TensorBoard, Lightning's metrics.csv, JSON files such as all_results.json, printed lines"
"""Sources in their order of precedence."""
_LARGEST_FILE = 50_000_000  # limit in bytes of a file with results; 270,000 iterations of detectron2 take about 8 MB
_LARGEST_LOG = 200_000_000  # limit in bytes of a file with events
_DEEPEST = 4  # levels of folders that are searched
_NEVER_SEARCHED = {STORE, "mlruns", ".git", "site-packages"}
_WIDTHS = {"COLUMNS": "400", "TERMINAL_WIDTH": "100"}
"""Without a terminal, rich wraps progress bars and tables at 80 columns. A bar of Lightning with 20 metrics has about
400. Typer draws the boxes of its error messages as wide as TERMINAL_WIDTH."""
_STEPS = ("step", "iteration", "current_steps", "global_step", "epoch")  # the first that a record has is its step
_COUNTERS = {
    *(*_STEPS, "total_steps", "percentage", "total_flos", "hp_metric"),
    *("time", "data_time", "rank_data_time", "eta_seconds"),
}
_RESULTS = re.compile(r"^(?:metrics?|results?|scores?)$")
_SETTINGS = re.compile(r"^(?:args|arguments|config\w*|cfg|hparams|hyper_?param\w*|options|param\w*|settings)$")
_SCHEDULED = {"learning_rate", "lr", "grad_norm"}
_BLOCK, _HEADER = 32_768, 7  # bytes of a block of W&B's file; bytes of the file's header and of each record's header
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4  # kinds of records in W&B's file


class Point(NamedTuple):
    """One value of a curve."""

    step: int
    time_ms: int
    value: float


class Source(NamedTuple):
    """The metrics that one logger has recorded."""

    values: dict[str, tuple[float, str]]  # name to its last value, and the logger or file that the value comes from
    curves: dict[str, list[Point]]


def logging_environment(data: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that make MLflow and W&B write under `data`, a folder of the job.

    They also give the job the width of a terminal, so that rich does not wrap what it prints. Variables that `given`
    already sets are left out.
    """
    variables = {}
    if "MLFLOW_TRACKING_URI" not in given:
        store = data / STORE
        (store / "mlruns").mkdir(parents=True, exist_ok=True)
        variables = {
            "MLFLOW_TRACKING_URI": f"sqlite:///{store / 'mlflow.db'}",
            "_MLFLOW_SERVER_ARTIFACT_ROOT": str(store / "mlruns"),  # for MLflow 3.11 and newer
        }
    others = {"WANDB_MODE": "offline", "WANDB_DIR": str(data), **_WIDTHS}
    return {**variables, **{name: text for name, text in others.items() if name not in given}}


def logged(
    data: Path, roots: Iterable[Path], began: float, written: Collection[Path] = (), settings: Collection[str] = ()
) -> list[Source]:
    """Return the metrics that the loggers of a training run have recorded since `began`, in seconds since the epoch.

    Later sources in the list override earlier ones. `data` is the folder of `logging_environment`. The files that are
    read are `written`, and the LOG_FILES up to four folders below `data` and `roots`. Counters are left out, and so are
    settings and learning rates whose value never changes. MLflow's store is read without any of these limits.
    """
    files = _files([data, *roots], began, written)
    readers = (
        _of_results(files),
        _of_tables(files),
        _of_tensorboard(files),
        _of_wandb(files),
    )
    sources = [_without_settings(source, {*settings, *_SCHEDULED}) for source in readers]
    values = {name: (value, "MLflow") for name, value in numbers_of(metrics_of_store(data / STORE)).items()}
    return [*sources, Source(values, {})]


def metrics_of_store(store: Path) -> dict[str, Any]:
    """Return the last value of each metric in MLflow's store, with NaN as the string "nan".

    If several runs have a metric, the run that started first in the store counts. If that run lacks the metric, the
    newest run that has it counts. The largest float, which MLflow stores for infinity, is returned as infinity.
    """
    path = store / "mlflow.db"
    if not path.is_file():
        return {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(str(path))) as database:
        query = (
            "SELECT m.key, CASE WHEN m.is_nan THEN 'nan' ELSE m.value END "
            "FROM latest_metrics m JOIN runs r ON r.run_uuid = m.run_uuid "
            "WHERE r.lifecycle_stage = 'active' ORDER BY r.start_time = "
            "(SELECT MIN(start_time) FROM runs WHERE lifecycle_stage = 'active'), r.start_time"
        )
        infinite = {sys.float_info.max: math.inf, -sys.float_info.max: -math.inf}
        return {name: infinite.get(value, value) for name, value in database.execute(query)}
    return {}


def write_curves(curves: Mapping[str, list[Point]], store: Path) -> None:
    """Write curves, one per line, to CURVES in `store`, the folder that the launching machine collects."""
    if curves:
        store.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"name": name, "points": points}) for name, points in sorted(curves.items()))
        (store / CURVES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_curves(store: Path) -> dict[str, list[Point]]:
    """Read the curves that a job has written. Raises ValueError if the file has another format."""
    path, curves = store / CURVES, {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    try:
        for line in lines:
            entry = json.loads(line)
            points = [Point(int(step), int(time_ms), float(value)) for step, time_ms, value in entry["points"]]
            curves[str(entry["name"])] = points
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{CURVES} is not as paretune writes it") from error
    return curves


class _File(NamedTuple):
    path: Path
    name: str  # the path as users see it
    modified: float


def _files(roots: Iterable[Path], began: float, written: Collection[Path]) -> list[_File]:
    """Return the files that match LOG_FILES or are in `written`, were written since `began` and are not too large."""
    candidates = {path: _shown(path) for path in written}
    for root in roots:
        for depth in range(_DEEPEST + 1):
            for pattern in LOG_FILES:
                for path in root.glob("*/" * depth + pattern):
                    candidates.setdefault(path, path.relative_to(root).as_posix())
    files: dict[Path, _File] = {}
    for path, name in candidates.items():
        with contextlib.suppress(OSError):
            status, is_log = path.stat(), not path.name.endswith((".json", ".csv", ".txt", ".yaml", ".yml"))
            is_new = status.st_mtime >= began - 2 and status.st_size <= (_LARGEST_LOG if is_log else _LARGEST_FILE)
            if is_new and path.is_file() and not _NEVER_SEARCHED.intersection(Path(name).parts):
                files.setdefault(path.resolve(), _File(path, name, status.st_mtime))
    return list(files.values())


def _shown(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd()).as_posix()
    return path.name


def _of_kind(files: Iterable[_File], patterns: tuple[str, ...]) -> list[_File]:
    """Return the files that match `patterns`, sorted by the pattern that they match, then by age, the newest last."""
    places = ((place, file) for place, name in enumerate(patterns) for file in files if fnmatch(file.path.name, name))
    return [file for _, file in sorted(places, key=lambda item: (item[0], item[1].modified, item[1].name))]


def _without_settings(source: Source, settings: Collection[str]) -> Source:
    """Return the source without counters, and without settings whose value never changes."""
    names = {name for name in source.values if name.rpartition("/")[2] in _COUNTERS or name.startswith("_")}
    for name in source.values.keys() & set(settings) - names:
        if len({point.value for point in source.curves.get(name, ())}) < 2:
            names.add(name)
    return Source(
        {name: value for name, value in source.values.items() if name not in names},
        {name: points for name, points in source.curves.items() if name in source.values and name not in names},
    )


def _of_results(files: list[_File]) -> Source:
    """Return the numbers in files. Checkpoints repeat the log of earlier ones, so each curve is that of one file."""
    values: dict[str, tuple[float, str]] = {}
    curves: dict[str, list[Point]] = {}
    for file in _of_kind(files, RESULT_FILES):
        own: dict[str, dict[int, Point]] = {}
        with contextlib.suppress(ValueError, OSError, RecursionError):
            records = _records_of(file.path)
            for step, numbers in _of_one_training(records):
                values.update({name: (value, file.name) for name, value in numbers.items()})
                if step is not None and (len(records) > 1 or file.path.name == "trainer_state.json"):
                    for name, value in numbers.items():
                        own.setdefault(name, {})[step] = Point(max(0, step), int(file.modified * 1000), value)
        curves.update({name: list(points.values()) for name, points in own.items()})
    return Source(values, curves)


def _records_of(path: Path) -> list[dict[str, float]]:
    """Return the numbers of each record in a file: its lines, its one document, or the entries of a document's list."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return [numbers_in(line) for line in text.splitlines()]
    if path.suffix in (".yaml", ".yml"):
        content = _from_yaml(text)
    else:
        try:
            content = json.loads(text)
        except ValueError:
            content = list(filter(None, map(dictionary_in, text.splitlines())))
    if isinstance(content, dict) and isinstance(content.get("log_history"), list):
        content = content["log_history"]  # trainer_state.json has an entry for each log
    records = content if isinstance(content, list) else [content]
    return [_numbers_of_record(record) for record in records if isinstance(record, dict)]


def _from_yaml(text: str) -> Any:
    """Return the content of a YAML document; None if it is not valid, or if the package PyYAML is missing."""
    with contextlib.suppress(Exception):  # a damaged file or package
        return import_module("yaml").safe_load(text)
    return None


def _numbers_of_record(record: Mapping[str, Any]) -> dict[str, float]:
    """Return a record's numbers. Those in nested dictionaries need evidence, as they may be settings or counts.

    A metric word anywhere in the path of keys is evidence: DVC's example writes {"roc_auc": {"test": 0.9}}.
    """
    own = {name: value for name, value in record.items() if not isinstance(value, dict)}
    nested = {}
    for name, value in flat({name: value for name, value in record.items() if name not in own}).items():
        *parents, last = name.split("/")
        is_result = has_metric_word(name) or any(map(_RESULTS.match, parents))
        if is_result and not is_setting(last) and not any(map(_SETTINGS.match, parents)):
            nested[name] = value
    return numbers_of({**own, **nested})


def _of_one_training(records: list[dict[str, float]]) -> list[tuple[int | None, dict[str, float]]]:
    """Return the records with their steps, without those of an earlier training that wrote to the same file.

    Where the steps go back, a training began again or resumed from a checkpoint, so later steps before that do not
    count.
    """
    counter = next((name for name in _STEPS if any(name in numbers for numbers in records)), "")
    kept: list[tuple[float, int | None, dict[str, float]]] = []  # the first is the newest step so far
    for numbers in records:
        has_step = math.isfinite(numbers.get(counter, math.nan))
        newest = numbers[counter] if has_step else kept[-1][0] if kept else -math.inf
        while kept and kept[-1][0] > newest:
            kept.pop()
        kept.append((newest, int(newest) if has_step else None, numbers))
    return [(step, numbers) for _, step, numbers in kept]


def _of_tables(files: list[_File]) -> Source:
    """Return the columns of tables. Blank cells are skipped: Lightning writes them for metrics of other steps."""
    values: dict[str, tuple[float, str]] = {}
    curves: dict[str, list[Point]] = {}
    for file in _of_kind(files, CSV_FILES):
        with contextlib.suppress(ValueError, OSError, csv.Error), file.path.open(newline="", encoding="utf-8") as text:
            own: dict[str, list[Point]] = {}
            for row in csv.DictReader(line for line in text if not line.startswith("#")):
                numbers = numbers_of({str(name).strip(): cell for name, cell in row.items()})
                counters = [numbers[name] for name in ("step", "epoch", "iteration") if name in numbers]
                if counters and math.isfinite(counters[0]):
                    _add(own, numbers, int(counters[0]), int(file.modified * 1000))
            curves.update(own)
            values.update({name: (points[-1].value, file.name) for name, points in own.items()})
    return Source(values, curves)


def _of_tensorboard(files: list[_File]) -> Source:
    """Read the scalars of event files with the package `tensorboard`, if it is installed.

    If several folders have the same tag, as with Keras's `train` and `validation`, the folder's name precedes the tag.
    """
    events = _of_kind(files, EVENT_FILES)
    try:
        if not events:
            raise ImportError
        loader = import_module("tensorboard.backend.event_processing.event_file_loader")
        make_ndarray = import_module("tensorboard.util.tensor_util").make_ndarray
    except Exception:  # an installation with mismatched versions may raise anything
        return Source({}, {})
    tags: dict[str, dict[Path, list[Point]]] = {}
    for file in events:
        with contextlib.suppress(Exception):  # a damaged file: use what could be read
            for event in loader.EventFileLoader(str(file.path)).Load():
                for value in event.summary.value:
                    kind = value.metadata.plugin_data.plugin_name
                    number = (
                        make_ndarray(value.tensor) if value.HasField("tensor") and kind in ("scalars", "") else None
                    )
                    if number is not None and number.size == 1 and number.dtype.kind in "fiu":
                        point = Point(int(event.step), int(event.wall_time * 1000), float(number.item()))
                        tags.setdefault(value.tag, {}).setdefault(file.path.parent, []).append(point)
    curves = {}
    for tag, folders in tags.items():
        for folder, points in folders.items():
            name = f"{folder.name}/{tag}" if len(folders) > 1 else tag
            curves[name] = sorted(points, key=lambda point: (point.step, point.time_ms))
    return Source({name: (points[-1].value, "TensorBoard") for name, points in curves.items()}, curves)


def _of_wandb(files: list[_File]) -> Source:
    """Read the summary and history of W&B runs with the package `wandb`; without it, read the summary files alone."""
    values: dict[str, tuple[float, str]] = {}
    curves: dict[str, list[Point]] = {}
    for file in _of_kind(files, SUMMARY_FILES):
        with contextlib.suppress(ValueError, OSError, RecursionError, AttributeError):
            summary = numbers_of(flat(json.loads(file.path.read_text(encoding="utf-8"))))
            values.update({name: (value, "W&B") for name, value in summary.items()})
    histories = _of_kind(files, HISTORY_FILES)
    try:
        if not histories:
            raise ImportError
        protocol = import_module("wandb.proto.wandb_internal_pb2")
    except Exception:  # its protocol needs a version of protobuf that may be missing
        return Source(values, curves)
    for file in histories:
        with contextlib.suppress(Exception):  # a truncated file: use what could be read
            for data in _records(file.path.read_bytes()):
                record = protocol.Record.FromString(data)
                updates = numbers_of(_entries(record.summary.update))
                values.update({name: (value, "W&B") for name, value in updates.items()})
                numbers = _entries(record.history.item)
                if "_step" in numbers:
                    time_ms = int(float(numbers.get("_timestamp", file.modified)) * 1000)
                    _add(curves, numbers_of(numbers), int(numbers["_step"]), time_ms)
    return Source(values, curves)


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a W&B file. It consists of blocks of records.

    Each record begins with a header: checksum, length and kind. A record that does not fit into its block is split into
    parts of the kinds first, middle and last.
    """
    position, parts = _HEADER, b""
    while position + _HEADER <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:  # padding at the end of a block
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += _HEADER
        parts = (parts if kind in (_MIDDLE, _LAST) else b"") + data[position : position + length]
        position += length
        if kind in (_WHOLE, _LAST):
            yield parts


def _entries(items: Any) -> dict[str, Any]:
    """Return the values of W&B's items by name. Nested names are joined by /."""
    entries = {}
    for item in items:
        with contextlib.suppress(ValueError):
            name = "/".join(item.nested_key) or item.key
            entries.update(flat({name: json.loads(item.value_json)}))
    return entries


def _add(curves: dict[str, list[Point]], numbers: Mapping[str, float], step: int, time_ms: int) -> None:
    for name, value in numbers.items():
        curves.setdefault(name, []).append(Point(max(0, step), time_ms, value))


def is_log_file(path: str) -> bool:
    """Return whether a file has the name of one of LOG_FILES."""
    return any(fnmatch(os.path.basename(path), name) for name in LOG_FILES)


def written_file(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the path of the file if an audit event reports a write to one, or of a new folder with /, else None.

    `event` and `arguments` are what a hook of sys.addaudithook gets.
    """
    if event == "open" and len(arguments) == 3:
        path, mode, flags = arguments
        is_written = bool(re.search("[wax+]", mode)) if isinstance(mode, str) else bool((flags or 0) & _WRITES)
    elif event == "os.rename" and len(arguments) >= 2:
        path, is_written = arguments[1], True
    elif event == "os.mkdir" and arguments:
        path, is_written = arguments[0], True
    else:
        return None
    if not is_written or not isinstance(path, (str, bytes, os.PathLike)):
        return None
    return os.path.abspath(os.fsdecode(path)) + "/" * (event == "os.mkdir")


_WRITES = os.O_WRONLY | os.O_RDWR
