"""The folder of a job that reads files in place: on this machine, or on the shared file system of a cluster.

`fill` puts the same files into the folder as a SageMaker container has under /opt/ml, and returns the training command.
`FolderJob` implements the methods of a `Job` that need only this folder.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.launchers.base import Job
from paretune.specification.container import (
    RUNNER,
    Event,
    EventReader,
    JobFolder,
    JobReport,
    UserCode,
    measurements_of,
    read_event,
    write_json,
)
from paretune.specification.order import Order

_LOG_TAIL = 2**18  # bytes that are read from the end of a log
_LARGEST_COPY = 2**20  # bytes; larger files of a project are linked into the job's folder instead of copied
_WITH_SECRETS = Path(__file__).parent / "sagemaker" / "with_secrets.py"


@dataclass(frozen=True, kw_only=True)
class JobCommand:
    """The command that runs a job."""

    words: tuple[str, ...]
    variables: Mapping[str, str]  # environment variables in addition to the launcher's own


class FolderJob(Job):
    """A job whose folder this machine can read. Events, log, report and profile come from the folder."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.folder = name, JobFolder(root)
        self._reader = EventReader(self.folder.events)
        self._shown = -1  # bytes of the log that `new_lines` has returned; -1 before its first call

    def events(self) -> list[Event]:
        return list(self._reader.new())

    def log_tail(self, lines: int = 15) -> list[str]:
        if not self.folder.log.is_file():
            return []
        with self.folder.log.open("rb") as file:
            start = file.seek(max(0, self.folder.log.stat().st_size - _LOG_TAIL))
            printed = file.read()
        return self._lines_in(printed, is_cut=start > 0)[-lines:]

    def new_lines(self) -> list[str]:
        has_ended = self.state().is_terminal
        if not self.folder.log.is_file():
            return []
        with self.folder.log.open("rb") as file:
            size = self.folder.log.stat().st_size
            is_first = self._shown < 0 or self._shown > size  # a log that is shorter than before is another one
            start = file.seek(max(0, size - _LOG_TAIL) if is_first else self._shown)
            printed = file.read()
        if not has_ended and len(printed) <= _LOG_TAIL:
            printed = printed[: printed.rfind(b"\n") + 1]  # a line that is not whole is returned by a later call
        self._shown = start + len(printed)
        return self._lines_in(printed, is_cut=is_first and start > 0)

    def _lines_in(self, printed: bytes, *, is_cut: bool) -> list[str]:
        """Return the lines of a part of the log, without events; `is_cut` if it may begin in the middle of a line."""
        lines = printed.decode(errors="replace").splitlines()[is_cut:]
        return [line for line in lines if line.strip() and not self._is_event(line)]

    def _is_event(self, line: str) -> bool:
        """Return whether paretune printed the line as an event, and not the user's own training."""
        event, runs_user_code = read_event(line), (code_folder(self.folder) / RUNNER).exists()
        return event is not None and (not runs_user_code or bool(measurements_of([event], self.name)))

    def log_location(self) -> str:
        return str(self.folder.log)

    def fetch_output(self, name: str, folder: Path) -> Path:
        return self.folder.report.parent / name

    def profile(self) -> Mapping[str, bytes]:
        files = self.folder.profile.iterdir() if self.folder.profile.is_dir() else ()
        return {path.name: path.read_bytes() for path in files}

    def clean_up(self) -> None:
        shutil.rmtree(self.folder.checkpoints.resolve(), ignore_errors=True)

    def partial_report(self) -> JobReport | None:
        """Return what a user's own training has measured that has not finished, or None."""
        return JobReport.read_json(self.folder.partial.read_bytes()) if self.folder.partial.is_file() else None

    def report(self) -> JobReport | None:
        """Return the job's result, or None if the job has not written one that can be read."""
        return JobReport.read_json(self.folder.report.read_bytes()) if self.folder.report.is_file() else None


def fill(folder: JobFolder, order: Order, *, checkpoints: Path, gpus: int, cores: int, path: str) -> JobCommand:
    """Write the document of an order, link or copy its inputs, and return its command.

    `checkpoints` is the folder of checkpoints that all attempts share. `path` is the PATH of the launching command.
    `gpus` and `cores` are the numbers of GPUs and CPU cores of one instance.
    """
    folder.make()
    inputs, code = order.inputs, order.inputs.code
    write_json(folder.document, order.as_json())
    variables = {} if code is None else _code_variables(folder, code, gpus, cores)
    if code is not None:
        _copy_code(code_folder(folder), code)
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
        words = [sys.executable, str(code_folder(folder) / RUNNER), str(folder.root)]
    else:
        if inputs.dataset is not None:
            _link(folder.dataset, inputs.dataset.folder.resolve())
        if inputs.model is not None:
            _link(folder.model_source, inputs.model.resolve())
        checkpoints.mkdir(parents=True, exist_ok=True)
        _link(folder.checkpoints, checkpoints)
        variables["PYTHONSAFEPATH"] = "1"  # otherwise a datasets.py in the current folder shadows the library
        words = [sys.executable, "-m", "paretune.training", str(folder.root)]
    if order.payload.reads_secrets:
        words = [sys.executable, str(_WITH_SECRETS), *words]
    return JobCommand(words=tuple(words), variables={**variables, **order.payload.environment})


def code_folder(folder: JobFolder) -> Path:
    """Return the folder with a job's copy of the user's code, and of the programs that run it."""
    return folder.document.parent.with_name("code")


def _copy_code(target: Path, code: UserCode) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, path in {**code.files, **code.linked, _WITH_SECRETS.name: _WITH_SECRETS}.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name in code.linked or path.stat().st_size > _LARGEST_COPY:
            _link(target / name, path.resolve())
        else:
            shutil.copy2(path, target / name)


def _code_variables(folder: JobFolder, code: UserCode, gpus: int, cores: int) -> dict[str, str]:
    variables = {
        "SM_MODEL_DIR": str(folder.model),
        "SM_OUTPUT_DIR": str(folder.report.parents[1]),
        "SM_OUTPUT_DATA_DIR": str(folder.report.parent),
        "SM_NUM_GPUS": str(gpus),
        "SM_NUM_CPUS": str(cores),
        "SM_HOSTS": '["algo-1"]',
        "SM_CURRENT_HOST": "algo-1",
    }
    paths = {name: path for name, path in code.inputs.items() if isinstance(path, Path)}
    folders = {name: path if path.is_dir() else path.parent for name, path in paths.items()}
    return variables | {f"SM_CHANNEL_{name.upper()}": str(folder) for name, folder in folders.items()}


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
