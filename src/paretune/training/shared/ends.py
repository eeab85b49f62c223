"""Ends of the trials of a shared job, kept beside their checkpoints.

A job that is started again after an interruption trains no trial twice.

    ROOT/checkpoints/members/KEY/end.json    the end, and the size of every file of the model
    ROOT/checkpoints/members/KEY/model/      the trained model, on SageMaker: its model folder begins empty again

Checkpoints are shared by all jobs of the same specification, so an end counts for the trial and the job that it names.
"""

import json
import shutil
from pathlib import Path

from paretune.specification.container import JobFolder, MemberEnd, write_json

_END = "end.json"


def keep_end(folder: JobFolder, end: MemberEnd, *, name: str, with_model: bool) -> None:
    """Keep how the trial `name` has ended, and its model where `with_model`; the end is written last."""
    files = {}
    if with_model and end.report is not None:
        shutil.rmtree(_model(folder), ignore_errors=True)
        shutil.copytree(folder.model, _model(folder))
        found = [path for path in sorted(_model(folder).rglob("*")) if path.is_file()]
        files = {str(path.relative_to(_model(folder))): path.stat().st_size for path in found}
    write_json(folder.checkpoints / _END, {"name": name, "end": end.as_json(), "files": files})


def kept_end(folder: JobFolder, *, name: str, with_model: bool) -> MemberEnd | None:
    """How the trial `name` has ended; None when it is to be trained: not ended, or its model is incomplete.

    A model that was kept is copied back where `with_model`, which one of several processes does.
    """
    try:
        raw = json.loads((folder.checkpoints / _END).read_text())
        is_whole = all((_model(folder) / file).stat().st_size == size for file, size in raw["files"].items())
        end = MemberEnd.read(raw["end"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if end is None or not is_whole or raw.get("name") != name:
        return None
    if raw["files"] and with_model:
        shutil.copytree(_model(folder), folder.model, dirs_exist_ok=True)
    return end


def _model(folder: JobFolder) -> Path:
    return folder.checkpoints / "model"
