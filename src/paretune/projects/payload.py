"""Files, command and settings that a job needs to run an entry point of a project, for any launcher."""

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.projects._project_spec import Project

from paretune.core import script_metrics, watchdog
from paretune.core.errors import BadInput, collecting, refuse
from paretune.launchers import archive
from paretune.projects import container_entrypoint
from paretune.projects.environment import Environment, read_environment, scripts_with
from paretune.projects.packages import package_faults
from paretune.projects.project import Command, read_command, read_project
from paretune.specification.container import JobInputs, ProjectPayload
from paretune.specification.job import JobSpec
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.specification.parameters import spell, split_list
from paretune.specification.program import Program

_PROGRAM = "inside.py"  # the name that container_entrypoint.py has in a job
_NEVER_LINKED = {".git", ".paretune", "__pycache__", "mlruns", "mlartifacts", "mlflow.db"}
_SEED = "seed"


def project_inputs(spec: JobSpec, home: Path) -> JobInputs:
    """The inputs of the job of a `project`: its code, and the command that MLflow computes for the entry point.

    On this machine the command runs in a copy of the project's files, with links to what git ignores, and with
    paretune's own Python and packages; on SageMaker the packages of the project's environment file are installed.

    Raises:
        BadInput: all faults of the project and its parameters.
    """
    project, root = read_project(spec.project or "")
    faults: list[str] = []
    command, environment, files = None, Environment(), dict[str, Path]()
    with collecting(faults):
        command = _command(spec, home, project, root)
    with collecting(faults):
        files = archive.project_files(root, travels=spec.on_sagemaker)
    with collecting(faults):
        if spec.on_sagemaker:
            environment = read_environment(project, root)
    if not spec.on_sagemaker and command is not None:
        faults += _missing_packages(spec, project, root, command.text)
    if project.docker_env and spec.image_uri is None:
        faults.append("docker_env of the project is not used: give its image in ECR as image_uri, on SageMaker")
    if not files:
        faults.append(f"project {spec.project} has no files that git would not ignore: it needs a script at least")
    refuse(faults)
    assert command is not None  # else there was a fault
    stores = home / "stores"
    beside: dict[str, Path] = {}
    if not spec.on_sagemaker:
        stores.mkdir(parents=True, exist_ok=True)
        beside = {f"project/{name}": path for name, path in _ignored(root, root, files)}
    payload = project_payload(
        files,
        command,
        environment,
        document={
            "experiment": "Default",
            "collect": True,
            "max_silence_minutes": spec.max_silence_minutes,
            # MLflow refuses to continue a run if a script names another experiment than the run's.
            "resumes": not any(scripts_with("set_experiment", files.values())),
            "renamed": dict(SCRIPT_METRICS),
            "metric_definitions": spec.definitions(),
            "template": "" if spec.on_sagemaker else str(stores / f"mlflow-{mlflow.__version__}"),
        },
        beside=beside,
    )
    return JobInputs(project=payload)


def project_payload(
    files: Mapping[str, Path],
    command: Command,
    environment: Environment,
    *,
    document: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
    beside: Mapping[str, Path] | None = None,
) -> ProjectPayload:
    """A payload that runs `command` in the project's `files`, under the program `container_entrypoint`.

    `document` has the entries of job.json besides command, requirements and folder. `beside` are files and folders to
    link in a job on this machine.
    """
    programs = {_PROGRAM: container_entrypoint, "watchdog.py": watchdog, "script_metrics.py": script_metrics}
    return ProjectPayload(
        code={f"project/{name}": path for name, path in files.items()}
        | {name: Path(str(module.__file__)) for name, module in programs.items()},
        program=_PROGRAM,
        document={
            "command": command.text,
            "requirements": list(environment.requirements),
            "folder": environment.folder,
            **document,
        },
        inputs=command.inputs,
        variables=variables or {},
        beside=beside or {},
    )


def _command(spec: JobSpec, home: Path, project: Project, root: Path) -> Command:
    values = {name: spell(value) for name, value in spec.project_parameters.items()}
    _refuse_unknown_entry_point(spec, project._entry_points, root)
    try:
        entry = project.get_entry_point(spec.entry_point)  # type: ignore[no-untyped-call]  # MLflow
        if _SEED in entry.parameters and _SEED not in values and _SEED in spec.changed():
            values[_SEED] = str(spec.seed)  # a repeat of the same job differs in it
        names = {*spec.as_text(), *spec.training_arguments, *values, *entry.parameters}
        unknown = [name for name in split_list(spec.size) if name not in names]
        refuse([f"size names {name}, which is no parameter: name one of {', '.join(values)}" for name in unknown])
        downloads = Path(tempfile.mkdtemp(prefix="downloads-", dir=home))
        try:
            run_in = None if spec.on_sagemaker else root
            return read_command(project, spec.entry_point, values, downloads, run_in=run_in)
        finally:
            if not any(downloads.iterdir()):
                shutil.rmtree(downloads)
    except MlflowException as error:
        raise BadInput([f"project {spec.project}, entry_point {spec.entry_point}: {error.message}"]) from error


def _refuse_unknown_entry_point(spec: Program, declared: Collection[str], root: Path) -> None:
    """Raise BadInput if the entry point is neither declared nor a script: MLflow takes any name that ends like one."""
    if spec.entry_point in declared or (root / spec.entry_point).is_file():
        return
    scripts = [path.name for path in sorted(root.iterdir()) if path.suffix in {".py", ".sh"}]
    allowed = ", ".join([*declared, *scripts]) or "nothing, because it has neither an MLproject file nor a script"
    raise BadInput([f"entry_point {spec.entry_point} is not in project {spec.project}: it has {allowed}"])


def _missing_packages(spec: Program, project: Project, root: Path, command: str) -> list[str]:
    """Packages that the environment file, a requirements.txt or the scripts of the command need, and that lack here."""
    lines: list[str] = []
    with suppress(BadInput):  # of conda's other packages
        lines += read_environment(project, root).requirements
    scripts = [root / word for word in re.findall(r"[\w./-]+\.py\b", command)]
    return package_faults(str(spec.project), root, [path for path in scripts if path.is_file()], lines)


def _ignored(folder: Path, root: Path, files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Name and path of everything that does not travel, such as data that git ignores; whole folders if possible."""
    parents = {parent.as_posix() for name in files for parent in PurePath(name).parents}
    for child in sorted(folder.iterdir()):
        name = child.relative_to(root).as_posix()
        if child.name in _NEVER_LINKED or name in files:
            continue
        if child.is_dir() and name in parents:
            yield from _ignored(child, root, files)
        else:
            yield name, child
