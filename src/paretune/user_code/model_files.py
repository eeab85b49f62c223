"""Keeps the model files that a training has saved: copies of them are artifacts of its run, up to a limit.

A job must take no file that another program wrote. So this looks for files of usual formats in three places:

- folders that only the job writes: its own copy of a project, SageMaker's container, the model folder;
- folders that the script has made, or that an option such as `--save_dir` names;
- elsewhere, such as in the folder where a script runs, only the files that the script has opened for writing (`child`
  notes them), and those whose names stand in its text or in its words, because libraries in C++ open files unnoticed.

Of a file that two jobs wrote at the same time, nobody knows whose it is: neither run gets it. This file is copied into
jobs, so it needs only the standard library of Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "models"  # of the copies, in the store of a job and among the artifacts of its run
LARGEST = 200 * 2**20  # bytes of all copies of a job together
WRITTEN = "written.txt"  # what `child` notes: a path on each line; that of a folder ends with /
_WORKING, _OTHERS = "working.json", "others.jsonl"  # when and where a job runs; the notes of others that have ended
_SUFFIXES = {
    *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".keras", ".h5", ".onnx"),
    *(".pkl", ".pickle", ".joblib", ".cbm", ".ubj"),
}
_BOOSTERS = {".txt": b"tree\n", ".json": b'{"learner"'}  # how files of LightGBM and XGBoost begin
_OF_ZIP = {"policy.pth", "_stable_baselines3_version"}  # members of a model of Stable-Baselines3
_WEIGHTS = re.compile(r"model|weight|param|checkpoint|ckpt|state|policy", re.IGNORECASE)  # in the name of an .npz file
_OUTPUT = re.compile(r"out|save|ckpt|checkpoint|model_?dir|log|result|export|work_?dir|run_?dir", re.IGNORECASE)
_NEVER = {"venv", "env", "node_modules", "site-packages", "__pycache__", "mlruns", "mlartifacts", "wandb"}
_DEEPEST = 4  # folders below each folder that is searched
_MOST_NAMED = 5  # files that a message names
_MOST = 20_000  # files and folders that are looked at


class Note(NamedTuple):
    """What a job writes, as real paths."""

    files: frozenset[str]  # that it has opened for writing
    folders: frozenset[str]  # in which it runs, and which it has made


class Notes:
    """The notes of one job, in its folder JOB/output/data. Jobs on one machine have their folders side by side."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._earlier: set[Path] = set()  # notes of jobs that had ended before this one began

    def begin(self, folders: Iterable[Path]) -> None:
        """Note that the job begins, and runs in `folders`."""
        for name in (WRITTEN, _OTHERS):
            with contextlib.suppress(OSError):
                (self._data / name).unlink()
        working = {
            "pid": os.getpid(),
            "began": time.time(),
            "folders": [os.path.realpath(str(each)) for each in folders],
        }
        with contextlib.suppress(OSError):
            (self._data / _WORKING).write_text(json.dumps(working), encoding="utf-8")

    def end(self) -> None:
        """Leave what the job has written with the jobs that still run, as its folder may be removed before they end."""
        own = self.own()
        line = json.dumps({"files": sorted(own.files), "folders": sorted(own.folders)}) + "\n"
        for data, is_running in self._at_the_same_time():
            if is_running:
                with contextlib.suppress(OSError), (data / _OTHERS).open("a", encoding="utf-8") as file:
                    file.write(line)
        working = {**_read(self._data / _WORKING), "ended": time.time()}
        with contextlib.suppress(OSError):
            (self._data / _WORKING).write_text(json.dumps(working), encoding="utf-8")

    @property
    def began(self) -> float:
        """When the job began, in seconds since the epoch."""
        return float(_read(self._data / _WORKING).get("began", 0.0))

    def own(self) -> Note:
        """Return what the job itself writes."""
        return _note(self._data)

    def others(self) -> list[Note]:
        """Return what each job writes that has run at the same time."""
        ended = [Note(frozenset(each["files"]), frozenset(each["folders"])) for each in _lines(self._data / _OTHERS)]
        return [*ended, *(_note(data) for data, _ in self._at_the_same_time())]

    def _at_the_same_time(self) -> Iterator[tuple[Path, bool]]:
        """Yield the folder of each job that has run at the same time, and whether it still runs."""
        began = self.began
        for path in self._data.parents[2].glob(f"*/output/data/{_WORKING}"):
            if path.parent == self._data or path in self._earlier or not (other := _read(path)):
                continue
            is_running = "ended" not in other and _is_alive(other.get("pid"))
            if is_running or float(other.get("ended", _last_written(path.parent))) >= began:
                yield path.parent, is_running
            else:
                self._earlier.add(path)


def _note(data: Path) -> Note:
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (data / WRITTEN).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    files = frozenset(os.path.realpath(line) for line in lines if not line.endswith("/"))
    made = frozenset(os.path.realpath(line) for line in lines if line.endswith("/"))
    return Note(files, made | frozenset(map(str, _read(data / _WORKING).get("folders", ()))))


def _read(path: Path) -> dict[str, Any]:
    return next(iter(_lines(path)), {})


def _lines(path: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        contents = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [each for each in contents if isinstance(each, dict)]
    return []


def _is_alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _last_written(data: Path) -> float:
    """Return when a job that was killed before it could note its end last wrote one of its files."""
    times = [0.0]
    for path in (data / _WORKING, data / WRITTEN, data / "events.jsonl"):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


class Places(NamedTuple):
    """Where a job may have saved its model."""

    own: Sequence[Path]  # folders that only the job writes
    shared: Sequence[Path]  # folders where the script runs, and where other programs may write
    names: Sequence[str] = ()  # names of model files in the script's text; * stands for a value
    words: Sequence[str] = ()  # of the script's command line


def keep(places: Places, notes: Notes, store: Path) -> dict[str, str]:
    """Copy the model files that the job of `notes` has written since it began into `store`; the newest come first.

    Returns which were kept, as `models`; which were too large, as `models_left_out`; and which another job may have
    written, as `models_shared`, each with its size. Empty texts are left out. A file that vanishes meanwhile is left
    out, too.
    """
    began, job = notes.began, store.parents[2]
    found: dict[Path, tuple[float, str]] = {}
    for name, path in _candidates(places, notes.own(), job):
        with contextlib.suppress(OSError):
            status = path.stat()
            if path not in found and not path.is_symlink() and status.st_mtime >= began and _is_model(path):
                found[path] = (status.st_mtime, name)
    kept: dict[str, list[str]] = {"models": [], "models_left_out": [], "models_shared": []}
    names: set[str] = set()
    room = LARGEST
    for path in sorted(found, key=lambda each: -found[each][0]):
        with contextlib.suppress(OSError):
            name, size = found[path][1], path.stat().st_size
            if name in names:
                name = path.as_posix().lstrip("/")
            if size > room:
                kept["models_left_out"].append(f"{path} ({_size(size)})")
                continue
            target = store / FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path), str(target))
            if _may_be_anothers(path, notes):  # asked after the copy, so that nothing was written in between
                target.unlink()
                kept["models_shared"].append(f"{path} ({_size(size)})")
                continue
            room -= size
            names.add(name)
            kept["models"].append(f"{name} ({_size(size)})")
    return {kind: _listed(each) for kind, each in kept.items() if each}


def shared_with_others(notes: Notes) -> set[str]:
    """Return the real paths of the files that this job and another one wrote at the same time."""
    own, others = notes.own(), notes.others()
    return {path for path in own.files if any(path in other.files for other in others)}


def _may_be_anothers(path: Path, notes: Notes) -> bool:
    """Return whether a job that ran at the same time has written a file, or may have done so unnoticed."""
    real, own = os.path.realpath(str(path)), notes.own()
    folder = _nearest(real, own.folders)
    for other in notes.others():
        if real in other.files or (real not in own.files and folder and folder == _nearest(real, other.folders)):
            return True
    return False


def _nearest(path: str, folders: Iterable[str]) -> str:
    """Return the innermost of the folders that has a file, or ""."""
    return max((each for each in folders if path.startswith(each.rstrip("/") + "/")), key=len, default="")


def _size(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _listed(files: list[str]) -> str:
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return ", ".join(files[:_MOST_NAMED]) + more


def _candidates(places: Places, own: Note, job: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name for a copy, and the path, of each file that the job in the folder `job` may have written."""
    for root in places.own:
        yield from ((path.relative_to(root).as_posix(), path) for path in _below(root, job))
    shared = [Path(os.path.realpath(str(each))) for each in places.shared]
    for text in sorted(own.files):
        if may_be_model(text) and not _is_of_a_tool(Path(text), shared):
            yield _named(Path(text), shared), Path(text)
    made = own.folders - {str(each) for each in shared}
    for folder in sorted({Path(each) for each in made} | {*_told(places.words)}):
        holds_others = any(folder == each or folder in each.parents for each in (*shared, Path.home()))
        if not holds_others and not _is_of_a_tool(folder, shared):
            yield from ((_named(path, shared), path) for path in _below(folder, job))
    values = [word.partition("=")[2] or word for word in places.words]
    for root, pattern in ((root, each) for root in shared for each in (*places.names, *map(glob.escape, values))):
        if may_be_model(pattern) and ".." not in Path(pattern).parts:
            paths = (Path(each) for each in sorted(glob.glob(os.path.join(glob.escape(str(root)), pattern))))
            yield from ((_named(path, shared), path) for path in paths)


def _told(words: Sequence[str]) -> Iterator[Path]:
    """Yield the folders that the options for output name."""
    for word, after in zip(words, [*words[1:], ""]):
        option, is_set, value = word.partition("=")
        path = value if is_set else after if word.startswith("-") else ""
        with contextlib.suppress(OSError, ValueError):
            if path and _OUTPUT.search(option) and os.path.isdir(path):
                yield Path(os.path.realpath(path))


def _named(path: Path, roots: Sequence[Path]) -> str:
    """Return the path of a file below one of the roots; for a file elsewhere, its folder's name and its own."""
    for root in roots:
        with contextlib.suppress(ValueError):
            return path.relative_to(root).as_posix()
    return "/".join(path.parts[-2:]).lstrip("/")


def _is_of_a_tool(path: Path, roots: Sequence[Path]) -> bool:
    """Return whether a path is in a cache, an environment or a hidden folder, or temporary."""
    inside = next((root for root in roots if root in path.parents), None)
    parts = path.parts if inside is None else path.relative_to(inside).parts
    temporary = Path(os.path.realpath(tempfile.gettempdir()))
    is_temporary = inside is None and temporary in path.parents and not any(temporary in each.parents for each in roots)
    return is_temporary or any(part in _NEVER or part.startswith(".") for part in parts)


def _below(root: Path, job: Path) -> Iterator[Path]:
    """Yield each file below a folder; links, hidden folders, those in `_NEVER` and the job's own are left out."""
    looked_at = 0
    for folder, folders, files in os.walk(str(root)):
        here = Path(folder)
        looked_at += len(folders) + len(files)
        usual = [each for each in folders if each not in _NEVER and not each.startswith(".") and here / each != job]
        folders[:] = usual if len(here.relative_to(root).parts) < _DEEPEST else []
        yield from (here / file for file in files)
        if looked_at > _MOST:
            return


def may_be_model(path: str) -> bool:
    """Return whether a file has the name of a model file."""
    name, suffix = os.path.splitext(os.path.basename(path))
    if suffix == ".npz":  # tables of numbers, too, such as the evaluations of Stable-Baselines3
        return _WEIGHTS.search(name) is not None
    return suffix in _SUFFIXES or suffix in _BOOSTERS or suffix == ".zip"


def _is_model(path: Path) -> bool:
    """Return whether a file is a model by its name and, if that says too little, by its content. Raises OSError."""
    if not may_be_model(path.name):
        return False
    if path.suffix == ".zip":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(str(path)) as archive:
            return not _OF_ZIP.isdisjoint(archive.namelist())
        return False
    begin = _BOOSTERS.get(path.suffix)
    if begin is None:
        return True
    with path.open("rb") as file:
        return file.read(len(begin)) == begin
