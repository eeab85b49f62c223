"""The folder of a job that reads files in place: on this machine, or on the shared file system of a cluster.

`fill` creates in it what a SageMaker container finds below /opt/ml, and returns the training command.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paretune.specification.container import JobDocument, JobFolder, JobInputs, ProjectPayload, write_json
from paretune.specification.inputs import script_inputs
from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import asked_options

_LARGEST_COPY = 2**20  # bytes; larger files of a project are linked into the folder of its job
_WITH_SECRETS = Path(__file__).parent / "sagemaker" / "with_secrets.py"


@dataclass(frozen=True, kw_only=True)
class JobCommand:
    """The process of a job: the words of its command, additional variables, and its folder if it has one."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    cwd: Path | None = None


def fill(
    folder: JobFolder, document: JobDocument, inputs: JobInputs, *, checkpoints: Path, gpus: int, cores: int, path: str
) -> JobCommand:
    """Write the document, link or copy the inputs, and return the command of the job.

    `checkpoints` is the folder that all attempts share, `path` the PATH of the launching command. `gpus` and `cores`
    are those of one instance.
    """
    folder.make()
    variables = _script_variables(folder, document.spec, gpus, cores) if document.spec.runs_user_code else {}
    if inputs.project is not None:
        _copy_project(project_folder(folder), inputs.project)
        write_json(folder.document, dict(inputs.project.document))
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
        words = [sys.executable, inputs.project.program, str(folder.root)]
    else:
        write_json(folder.document, replace(document, script_options=asked_options(document.spec)).as_json())
        if inputs.dataset is not None:
            _link(folder.dataset, inputs.dataset.folder.resolve())
        if inputs.model is not None:
            _link(folder.model_source, inputs.model.resolve())
        checkpoints.mkdir(parents=True, exist_ok=True)
        _link(folder.checkpoints, checkpoints)
        variables["PYTHONSAFEPATH"] = "1"  # otherwise a datasets.py in the current folder hides the library
        words = [sys.executable, "-m", "paretune.training", str(folder.root)]
    if document.spec.reads_secrets:
        words = [sys.executable, str(_WITH_SECRETS), *words]
    cwd = None if inputs.project is None else project_folder(folder)
    return JobCommand(words=tuple(words), variables={**variables, **document.spec.environment}, cwd=cwd)


def project_folder(folder: JobFolder) -> Path:
    """Return the folder in which a project's command runs, with a copy of its files."""
    return folder.document.parent.with_name("code")


def _copy_project(code: Path, project: ProjectPayload) -> None:
    for name, path in {**project.code, **project.beside}.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        if name in project.beside or path.stat().st_size > _LARGEST_COPY:
            _link(code / name, path.resolve())
        else:
            shutil.copy2(path, code / name)


def _script_variables(folder: JobFolder, spec: JobSpec, gpus: int, cores: int) -> dict[str, str]:
    variables = {
        "SM_MODEL_DIR": str(folder.model),
        "SM_OUTPUT_DIR": str(folder.report.parents[1]),
        "SM_OUTPUT_DATA_DIR": str(folder.report.parent),
        "SM_NUM_GPUS": str(gpus),
        "SM_NUM_CPUS": str(cores),
        "SM_HOSTS": '["algo-1"]',
        "SM_CURRENT_HOST": "algo-1",
    }
    folders = {name: path if path.is_dir() else path.parent for _, name, path in script_inputs(spec)}
    return variables | {f"SM_CHANNEL_{name.upper()}": str(folder) for name, folder in folders.items()}


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
