"""Keeps the model files that a training has saved: copies of them are artifacts of its run, up to a limit.

A training writes its model where it likes, often beside the script, where the next training overwrites it. So this
looks for files of usual formats that have changed since the training began, in the folders where it runs, and copies
them. Those that another job, which ran there at the same time, has noted as its own (`child`) are left out. This file
is copied into jobs, so it needs only the standard library of Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

FOLDER = "models"  # of the copies, in the store of a job and among the artifacts of its run
LARGEST = 200 * 2**20  # bytes of all copies of a job together
_SUFFIXES = {
    *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".keras", ".h5", ".onnx"),
    *(".pkl", ".pickle", ".joblib", ".cbm", ".ubj", ".npy", ".npz"),
}
_BOOSTERS = {".txt": b"tree\n", ".json": b'{"learner"'}  # how files of LightGBM and XGBoost begin
_NEVER = {"venv", "env", "node_modules", "site-packages", "__pycache__", "mlruns", "mlartifacts", "wandb"}
_DEEPEST = 4  # folders below each root
_MOST_NAMED = 5  # files that a message names
_MOST = 20_000  # files and folders that are looked at


def keep(
    roots: Iterable[Path],
    began: float,
    store: Path,
    hidden: Iterable[Path] = (),
    of_others: Container[str] = (),
) -> dict[str, str]:
    """Copy the model files below `roots` that have changed since `began`, in seconds since the epoch, into `store`.

    The newest come first. Folders in `hidden` and the files `of_others`, with their real paths, are left out. Returns
    which were kept, as `models`, and which were too large, as `models_left_out`, each with its size; empty texts are
    left out.
    """
    kept: list[str] = []
    left_out: list[str] = []
    names: set[str] = set()
    room = LARGEST
    for name, path in sorted(_saved(roots, began, set(hidden), of_others), key=lambda each: -each[1].stat().st_mtime):
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            shown = f"{name} ({max(size / 2**20, 0.1):.1f} MiB)"
            if size > room or name in names:
                left_out.append(f"{path}{shown[len(name) :]}")
                continue
            target = store / FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path), str(target))
            room -= size
            names.add(name)
            kept.append(shown)
    return {name: _listed(each) for name, each in (("models", kept), ("models_left_out", left_out)) if each}


def _listed(files: list[str]) -> str:
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return ", ".join(files[:_MOST_NAMED]) + more


def _saved(
    roots: Iterable[Path], began: float, hidden: set[Path], of_others: Container[str]
) -> Iterator[tuple[str, Path]]:
    """Yield the name below its root, and the path, of each model file that has changed since `began`."""
    seen: set[Path] = set()
    looked_at = 0
    for root in roots:
        for folder, folders, files in os.walk(str(root)):
            here = Path(folder)
            depth = len(here.relative_to(root).parts)
            looked_at += len(folders) + len(files)
            folders[:] = [
                each
                for each in folders
                if each not in _NEVER and not each.startswith(".") and here / each not in hidden and depth < _DEEPEST
            ]
            for path in (here / file for file in files):
                with contextlib.suppress(OSError):
                    is_new = path not in seen and not path.is_symlink() and path.stat().st_mtime >= began
                    if is_new and _is_model(path) and os.path.realpath(str(path)) not in of_others:
                        seen.add(path)
                        yield path.relative_to(root).as_posix(), path
            if looked_at > _MOST:
                return


def written_by_others(written: Path) -> set[str]:
    """Return the real paths of the files that other jobs have noted, and the job with the note `written` has not.

    The notes of jobs on one machine are in folders side by side, JOB/output/data/NAME.
    """
    noted: dict[bool, set[str]] = {True: set(), False: set()}
    for note in written.parents[3].glob("/".join(("*", *written.parts[-3:]))):
        with contextlib.suppress(OSError):
            noted[note == written].update(map(os.path.realpath, note.read_text(encoding="utf-8").splitlines()))
    return noted[False] - noted[True]


def may_be_model(path: str) -> bool:
    """Return whether a file has the name of a model file."""
    suffix = os.path.splitext(path)[1]
    return suffix in _SUFFIXES or suffix in _BOOSTERS


def _is_model(path: Path) -> bool:
    begin = _BOOSTERS.get(path.suffix)
    if begin is None:
        return path.suffix in _SUFFIXES
    with path.open("rb") as file:
        return file.read(len(begin)) == begin
