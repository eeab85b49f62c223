"""What a job needs to run an entry point of a project: files, command and settings, for any launcher."""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.projects._project_spec import Project

from paretune.core import watchdog
from paretune.core.errors import BadInput, collecting, refuse
from paretune.launchers.sagemaker import archive
from paretune.projects import container_entrypoint
from paretune.projects.command import Command, read_command
from paretune.projects.environment import Environment, read_environment, scripts_with
from paretune.projects.fetching import read_project
from paretune.specification.container import JobInputs, ProjectPayload
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell, split_list
from paretune.specification.script import RENAMED

INSIDE = "inside.py"
"""The program of a project's job: `container_entrypoint`."""
_NEVER_LINKED = {".git", ".paretune", "__pycache__", "mlruns", "mlartifacts", "mlflow.db"}
_SEED = "seed"


def inside_files() -> dict[str, Path]:
    """The program that supervises the command, and what it imports, by their names in the job."""
    return {INSIDE: Path(container_entrypoint.__file__), "watchdog.py": Path(watchdog.__file__)}


def project_inputs(spec: JobSpec, home: Path) -> JobInputs:
    """What the job of a `project` reads: its code, and the command that MLflow computes for the entry point.

    On this machine the command runs in a copy of the project's files, where links lead to what git ignores, with the
    Python and the packages that paretune has; on SageMaker, what the project's environment file lists is installed.

    Raises:
        BadInput: everything that is wrong with the project or its parameters, at once.
    """
    project, root = read_project(spec.project or "")
    faults: list[str] = []
    command, needs, files = None, Environment(), dict[str, Path]()
    with collecting(faults):
        command = _command(spec, home, project, root)
    with collecting(faults):
        files = archive.project_files(root, travels=spec.on_sagemaker)
    with collecting(faults):
        if spec.on_sagemaker:
            needs = read_environment(project, root)
    if project.docker_env and spec.image_uri is None:
        faults.append("docker_env of the project is not used: give its image in ECR as image_uri, on SageMaker")
    if not files:
        faults.append(f"project {spec.project} has no files that git would not ignore: it needs a script at least")
    refuse(faults)
    assert command is not None  # else there was a fault
    stores = home / "stores"
    if not spec.on_sagemaker:
        stores.mkdir(parents=True, exist_ok=True)
    payload = ProjectPayload(
        code={f"project/{name}": path for name, path in files.items()} | inside_files(),
        program=INSIDE,
        document={
            "command": command.text,
            "requirements": list(needs.requirements),
            "folder": needs.folder,
            "experiment": "Default",
            "collect": True,
            "max_silence_minutes": spec.max_silence_minutes,
            "resumes": not _chooses_experiment(files),
            "renamed": dict(RENAMED),
            "template": "" if spec.on_sagemaker else str(stores / f"mlflow-{mlflow.__version__}"),
        },
        inputs=command.inputs,
        beside={} if spec.on_sagemaker else {f"project/{name}": path for name, path in _ignored(root, root, files)},
    )
    return JobInputs(project=payload)


def _command(spec: JobSpec, home: Path, project: Project, root: Path) -> Command:
    given = {name: spell(value) for name, value in spec.project_parameters.items()}
    _refuse_unknown_entry_point(spec, project._entry_points, root)
    try:
        entry = project.get_entry_point(spec.entry_point)  # type: ignore[no-untyped-call]  # MLflow
        if _SEED in entry.parameters and _SEED not in given and _SEED in spec.changed():
            given[_SEED] = str(spec.seed)  # a repeat of the same job differs in it
        names = {*spec.as_text(), *spec.training_arguments, *given, *entry.parameters}
        unknown = [name for name in split_list(spec.size) if name not in names]
        refuse([f"size names {name}, which is no parameter: name one of {', '.join(given)}" for name in unknown])
        downloads = Path(tempfile.mkdtemp(prefix="downloads-", dir=home))
        try:
            there = None if spec.on_sagemaker else root
            return read_command(project, spec.entry_point, given, downloads, run_in=there)
        finally:
            if not any(downloads.iterdir()):
                shutil.rmtree(downloads)
    except MlflowException as error:
        raise BadInput([f"project {spec.project}, entry_point {spec.entry_point}: {error.message}"]) from error


def _refuse_unknown_entry_point(spec: JobSpec, declared: Collection[str], root: Path) -> None:
    """MLflow takes any name that ends like a script for one, whether it is there or not."""
    if spec.entry_point in declared or (root / spec.entry_point).is_file():
        return
    scripts = [path.name for path in sorted(root.iterdir()) if path.suffix in {".py", ".sh"}]
    known = ", ".join([*declared, *scripts]) or "none, for it has neither an MLproject file nor a script"
    raise BadInput([f"entry_point {spec.entry_point} is not in project {spec.project}: there is {known}"])


def _chooses_experiment(files: Mapping[str, Path]) -> bool:
    """Whether a script names an experiment of its own: MLflow refuses to go on with a run of another one then."""
    return any(scripts_with("set_experiment", files.values()))


def _ignored(folder: Path, root: Path, files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Name and path of what does not travel, such as data that git ignores; of a whole folder the folder."""
    kept = {parent.as_posix() for name in files for parent in PurePath(name).parents}
    for child in sorted(folder.iterdir()):
        name = child.relative_to(root).as_posix()
        if child.name in _NEVER_LINKED or name in files:
            continue
        if child.is_dir() and name in kept:
            yield from _ignored(child, root, files)
        else:
            yield name, child
