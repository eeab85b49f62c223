"""Reads MLflow projects, and binds jobs to their entry points."""

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with MLflow
from mlflow.exceptions import MlflowException
from mlflow.projects import env_type
from mlflow.projects._project_spec import Project
from mlflow.projects.utils import _fetch_project, load_project

from paretune.core.errors import BadInput, collecting, first_line, refuse
from paretune.core.reading import LARGEST_SCRIPT, at_home, exists
from paretune.launchers import archive
from paretune.specification.container import Command, Slot, slot_values
from paretune.specification.declaration import spell
from paretune.specification.inputs import IN_S3, in_channel, missing_files
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.specification.user_code import CodeRequest
from paretune.user_code import script_metrics
from paretune.user_code.binding import Bound, bind, kept_in_words
from paretune.user_code.code import RUNNER_FILES, Code, key_of
from paretune.user_code.reported import names_in_text
from paretune.user_code.script import Script

_RESERVED_CHANNELS = {"code", "job"}
_NEVER_LINKED = {".git", ".paretune", "__pycache__", "mlruns", "mlartifacts", "mlflow.db"}
_PROGRAMS = {".py", ".sh", ".ipynb", ".r", ".R", ".jl", ".js", ".pl", ".rb", ".m"}
"""Suffixes of files in which names of metrics are looked for."""
_BESIDE = re.compile(
    r"""["'\s=]\.\./(\w[\w.-]*)"""
)  # a file or folder beside the project's: `open("../data/rows.csv")`
_OF_A_JOB = {*(name.partition("/")[0] for name in RUNNER_FILES), "with_secrets.py", "job"}  # beside a project in a job
_SEED = "seed"
_OF_THE_IMAGE = re.compile(r"(python|pip)(?![\w.-]).*")  # conda packages that every training image has


def read_project(uri: str) -> tuple[Project, Path]:
    """Return the MLflow project in a folder or git repository, and the folder here that has the project's files.

    A repository is fetched only once per process. Raises BadInput if there is no project.
    """
    refuse(missing_files({"project": uri}))
    with _translated_errors(f"project {uri}"):
        is_local = exists(uri.partition("#")[0])
        root = _fetched(str(at_home(uri).absolute()) if is_local else uri)
        return load_project(root), Path(root)  # type: ignore[no-untyped-call]  # MLflow


_fetched = cache(_fetch_project)  # MLflow itself would fetch a repository again on each call


def declared_parameters(uri: str, entry_point: str) -> Mapping[str, str]:
    """Return the type of each parameter of an entry point: float, string, path or uri.

    A script that is not declared in MLproject has no parameters. Raises BadInput if there is no such entry point.
    """
    project, _ = _with_entry_point(uri, entry_point)
    with _translated_errors(f"entry_point {entry_point}"):
        entry = project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
    return {name: str(parameter.type) for name, parameter in entry.parameters.items()}


def _with_entry_point(uri: str, entry_point: str) -> tuple[Project, Path]:
    """Return the project that `read_project` reads. Raises BadInput if it has no such entry point or script."""
    project, root = read_project(uri)
    declared = project._entry_points
    if entry_point not in declared and not (root / entry_point).is_file():  # MLflow accepts any such name
        scripts = [path.name for path in sorted(root.iterdir()) if path.suffix in {".py", ".sh"}]
        nothing = "nothing, because it has neither an MLproject file nor a script"
        allowed = ", ".join([*declared, *scripts]) or nothing
        raise BadInput([f"entry_point {entry_point} is not in project {uri}: it has {allowed}"])
    return project, root


@contextmanager
def _translated_errors(subject: str) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = error.message if isinstance(error, MlflowException) else first_line(error)
        raise BadInput([f"{subject}: {reason}"]) from error


def read_environment(project: Project, root: Path) -> tuple[list[str], str]:
    """Return the requirements that a project in `root` declares, and the folder to which their paths are relative.

    The requirements come from python_env.yaml or the pip section of conda.yaml. Raises BadInput if that file cannot be
    used, for example because it lists conda packages other than python and pip: a job does not install these.
    """
    if project.docker_env or project.env_config_path is None:
        return [], "."
    path = Path(project.env_config_path)
    try:
        keys = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        lines, folder = [keys.get("build_dependencies") or [], keys.get("dependencies") or []], "."
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise BadInput([f"{path} is not an environment file ({first_line(error)})"]) from error
    if project.env_type == env_type.CONDA and isinstance(lines[1], list):
        folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(root))
        if folder.startswith(os.pardir):
            raise BadInput([f"{path.name} must be in the project's folder {root}, got {path}: copy it there"])
        if others := [item for item in lines[1] if isinstance(item, str) and not _OF_THE_IMAGE.fullmatch(item)]:
            rule = f"{path.name}: a job installs only its pip section, which lacks {', '.join(others)}"
            raise BadInput([f"{rule}: list them there, or use an image that has them (sagemaker.training_image)"])
        lines = [item.get("pip") for item in lines[1] if isinstance(item, dict)]
    if not all(isinstance(part, list) and all(isinstance(line, str) for line in part) for part in lines):
        raise BadInput([f"dependencies of {path.name} must be lists of strings, such as numpy==1.26.4"])
    return [line for part in lines for line in part], folder


@dataclass(frozen=True, kw_only=True)
class ProjectCode(Code):
    """The code of an entry point of an MLflow project: a command that MLproject declares, or a script of its folder."""

    project: Project
    is_here: bool  # whether its folder is the user's own, and not a copy of a repository
    has_image: bool  # whether the job names an image, in place of the project's
    folder: str = "project"

    @classmethod
    def of(cls, request: CodeRequest) -> "ProjectCode":
        """Read the project of a job. Raises BadInput if there is no such project, or no such entry point in it.

        A Python script that MLproject does not declare is read as an `entry_script` is.
        """
        address, entry_point = request.source.project or "", request.source.entry_point
        project, root = _with_entry_point(address, entry_point)
        script = None
        if entry_point not in project._entry_points and entry_point.endswith(".py"):
            script = Script.read(root / entry_point, may_ask=request.source.may_ask, command=request.source.command)
        is_here = exists(address.partition("#")[0])
        return cls(root=root, script=script, project=project, is_here=is_here, has_image=request.has_image)

    def bind(self, request: CodeRequest, home: Path) -> Bound:
        """Return what a job runs and reads. Raises BadInput with all faults of a declared command."""
        entry_point = request.source.entry_point
        if self.script is not None:
            bound = bind(request, self.script, place=entry_point)
            command = replace(
                bound.command,
                recorded={**_recorded(request.options), **bound.command.recorded},
                leaves_model=False,
            )
            return replace(
                bound, command=command, described={"command": command.shown(request.batch), **bound.described}
            )
        with _translated_errors(f"project {request.source.project}, entry_point {entry_point}"):
            entry = self.project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
            if entry_point not in self.project._entry_points and entry_point.endswith(".sh"):
                entry.command = shlex.join(["bash", entry_point])  # MLflow uses $SHELL, which an image may lack
            return _declared_command(request, entry, home, self.root)

    def files(self, *, travels: bool) -> dict[str, Path]:
        """Return the project's files that the job gets, by name. Raises BadInput if there are none."""
        files = archive.project_files(self.root, travels=travels)
        if not files:
            rule = "has no files, or git ignores all of them: it needs at least a script"
            raise BadInput([f"project {self.root} {rule}"])
        return files

    def linked(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return what git ignores in the project, such as data, and what its sources name beside it: `../data`."""
        linked = dict(_ignored(self.root, self.root, files))
        for name in self._named_beside(files) if self.is_here else ():
            if name not in {self.folder, *_OF_A_JOB} and (self.root.parent / name).exists():
                linked[f"../{name}"] = self.root.parent / name
        return linked

    def _named_beside(self, files: Mapping[str, Path]) -> Iterator[str]:
        for path in self.texts(files).values():
            with suppress(OSError):
                if path.stat().st_size < LARGEST_SCRIPT:
                    yield from _BESIDE.findall(path.read_text(errors="replace"))

    def requirements(self, files: Mapping[str, Path], *, travels: bool) -> tuple[tuple[str, ...], str]:
        """Return what a job installs, if its files travel. Raises BadInput if the environment cannot be used."""
        faults, lines, folder = list[str](), list[str](), "."
        if travels:
            with collecting(faults):
                lines, folder = read_environment(self.project, self.root)
        if self.project.docker_env and not self.has_image:
            faults.append("docker_env of the project is not used: give its image in ECR as sagemaker.training_image")
        refuse(faults)
        return tuple(lines), folder

    def key(self, files: Mapping[str, Path]) -> str:
        """Return a digest that is the same for jobs that run the same code."""
        return key_of(files)

    def texts(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return the source files that the job's run keeps, by name."""
        return {name: path for name, path in files.items() if _is_source(name)}


def _is_source(name: str) -> bool:
    return PurePath(name).suffix in {*_PROGRAMS, ".yaml", ".yml", ".toml"} or PurePath(name).name == "MLproject"


def _declared_command(request: CodeRequest, entry: Any, home: Path, root: Path) -> Bound:
    """Bind a job to an entry point of MLproject: its parameters with the names of the batch are slots."""
    values = {name: spell(value) for name, value in request.options.items()}
    given = dict[str, str]()
    if _SEED in entry.parameters and _SEED not in values and _SEED in request.given:
        given[_SEED] = str(request.seed)  # a repeat of the same job has a different seed
    slots = dict(zip(OF_THE_BATCH, (Slot.BATCH, Slot.STEPS, Slot.TOTAL), strict=True))
    if request.given_batch:
        given |= {name: slot for name, slot in slots.items() if name in entry.parameters and name not in values}
        if not given.keys() & {*OF_THE_BATCH}:
            lost = ", ".join(request.given_batch)
            rule = f"entry point {request.source.entry_point} declares no parameter {' or '.join(OF_THE_BATCH)}"
            raise BadInput([f"{rule}, so it cannot train with {lost}: leave it out, or declare one in MLproject"])
    command, inputs = _entry_command(request, entry, values | given, home, root)
    numbers = slot_values(request.batch, "")
    used = {slot for slot in numbers if slot in command}
    names, scripts = _names(entry, root)
    settings = [set(script.reported.settings) for script in scripts]
    settings += [{*script_metrics.setting_names(each)} for each in (entry.parameters, request.options)]
    recorded = {name: numbers.get(text, text) for name, text in given.items()}
    bound = Command(
        words=(command,),
        recorded=_recorded(request.options) | recorded,
        takes_seed=_SEED in entry.parameters and _SEED not in values,
        takes_batch=bool(used),
        accumulates=Slot.STEPS in used and bool(used & {Slot.BATCH, Slot.TOTAL}),
        settings=tuple(sorted(set.union(*settings))),
        named=tuple(sorted({*request.metric, *names, *(name for script in scripts for name in script.reported.named)})),
        renamed=dict(SCRIPT_METRICS),
        metric_definitions=request.metric_definitions,
        keeps_models=request.keeps_models,
        totals=script_metrics.totals_in(given),
    )
    return Bound(
        command=bound, inputs=inputs, described={"command": bound.shown(request.batch), "keeps": kept_in_words(request)}
    )


def _recorded(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {f"training_arguments.{name}": spell(value) for name, value in arguments.items()}


def _names(entry: Any, root: Path) -> tuple[set[str], list[Script]]:
    """Return names in the programs that a command runs, and its Python scripts."""
    named, scripts = set[str](), dict[Path, Script]()
    for word in str(entry.command).split():
        path = root / word.strip("\"'")
        with suppress(OSError, ValueError):
            if path.suffix in _PROGRAMS and path.is_file() and path.stat().st_size < LARGEST_SCRIPT:
                text = path.read_text(errors="replace") if path.suffix != ".py" else ""
                inner = text.split() if path.suffix == ".sh" else [word]
                for script in {root / each.strip("\"'") for each in inner if each.strip("\"'").endswith(".py")}:
                    if script.is_file():
                        scripts[script] = Script.read(script)
                named |= names_in_text("\n".join([text, *(script.text for script in scripts.values())]))
    return named, list(scripts.values())


def _entry_command(
    request: CodeRequest, entry: Any, values: dict[str, str], home: Path, root: Path
) -> tuple[str, dict[str, Path | str]]:
    """Return an entry point's command for `bash -c`, as MLflow computes it, and the files that it reads, by channel.

    The command contains the paths that these files have inside the job. For a job on SageMaker, files in S3 stay there.
    Other remote files are fetched into a new folder in `home`. A job on this machine reads local files where they are,
    and has no channels. A relative path that does not exist in the current folder is relative to the project's.
    """
    if not isinstance(entry.command, str):
        raise BadInput([f"entry point {request.source.entry_point} has no command: add one to MLproject, as a string"])
    inputs = dict[str, Path | str]()
    for position, (name, parameter) in enumerate(entry.parameters.items()):
        value = values.get(name, parameter.default)
        if parameter.type != "path" or value is None:
            continue
        channel = re.sub(r"[^A-Za-z0-9_]", "_", name)[:48]  # it becomes part of names of environment variables
        if channel in _RESERVED_CHANNELS or channel in inputs:
            channel = f"{channel}_{position}"
        if request.files_travel and value.startswith(IN_S3):
            inputs[channel], values[name] = in_channel(channel, value)
            continue
        if not Path(value).exists() and (root / value).exists():
            value = str(root / value)
        downloads = str(home)
        if "://" in value and not value.startswith("file:"):
            home.mkdir(parents=True, exist_ok=True)
            downloads = tempfile.mkdtemp(prefix="downloads-", dir=home)
        path = Path(parameter.compute_value(value, downloads, position))
        if not request.files_travel:
            values[name] = str(path)
            continue
        inputs[channel], values[name] = in_channel(channel, path)
    try:
        return str(entry.compute_command(values, None)), inputs
    except (KeyError, IndexError, ValueError, AttributeError) as error:  # raised by str.format
        fault = (
            f"entry point {request.source.entry_point}: its command must name declared parameters in braces ({error})"
        )
        raise BadInput([fault]) from error


def _ignored(folder: Path, root: Path, files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of everything in `folder` that is not in `files`, such as data that git ignores.

    A folder without any of `files` is yielded as a whole. Files and folders in `_NEVER_LINKED` are left out.
    """
    parents = {parent.as_posix() for name in files for parent in PurePath(name).parents}
    for child in sorted(folder.iterdir()):
        name = child.relative_to(root).as_posix()
        if child.name in _NEVER_LINKED or name in files:
            continue
        if child.is_dir() and name in parents:
            yield from _ignored(child, root, files)
        else:
            yield name, child
