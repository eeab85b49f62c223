"""A project's environment file as pip requirements.

python_env.yaml is nearly pip's own language. The pip section of conda.yaml is used unchanged, and conda's packages are
translated; channels mean nothing to pip.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow.projects import env_type
from mlflow.projects._project_spec import Project

from paretune.core.errors import BadInput, collecting, refuse
from paretune.storage.yaml import FileKind, Node, read_yaml

_CONDA_FILE = FileKind("conda environment", "dependencies", "dependencies: [python=3.11, numpy=1.26]")
_PYTHON_FILE = FileKind("Python environment", "dependencies", "dependencies: [numpy==1.26.4]")
_PIP_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch", "opencv": "opencv-python-headless"}
_IN_THE_IMAGE = re.compile(
    r"python|pip|cudatoolkit|cudnn|nccl|pytorch-cuda|cuda(-.*)?|mkl|openmp|cpuonly|ca-certificates|openssl"
)
_NOT_PYTHON = re.compile(r"r-.*|_.*|lib.*|g?cc.*|gxx.*|openjdk|nodejs|ffmpeg|git|make|perl|compilers|sqlite")
_CONDA = re.compile(
    r"(?:[\w./-]+::)?(?P<name>[\w.-]+)\s*"  # channel and name
    r"(?:(?P<equal>==|=|(?=[<>!~]))?(?P<version>[\w.*+<>=!~,-]+?)(?:=(?P<build>\w+))?(?:=\*)?)?"
)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The packages that a command needs in its job."""

    requirements: tuple[str, ...] = ()  # lines of a requirements file
    folder: str = "."  # folder inside the project from which relative paths in them start


def read_environment(project: Project, root: Path) -> Environment:
    """The environment that a project in `root` declares; raises BadInput with all that SageMaker cannot have."""
    if project.docker_env or project.env_config_path is None:
        return Environment()
    path, faults, lines = Path(project.env_config_path), list[str](), list[str]()
    if project.env_type != env_type.CONDA:
        keys = _read(path, _PYTHON_FILE)
        for name in ("build_dependencies", "dependencies"):
            with collecting(faults):
                lines += _texts(name, keys.get(name), path.name)
        refuse(faults)
        return Environment(requirements=tuple(lines))
    folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(root))
    if folder.startswith(os.pardir):
        raise BadInput([f"{path.name} must lie in the project's folder {root}, got {path}: copy it there"])
    packages = _read(path, _CONDA_FILE).get("dependencies", Node(1, []))
    if not isinstance(packages.value, list):
        raise BadInput([f"dependencies of {path.name} must be a list of packages, got {packages.described()}"])
    for node in packages.value:
        with collecting(faults):
            if isinstance(node.value, dict):  # its only key is pip
                lines += _texts("pip", node.value.get("pip", node), path.name)
            else:
                lines += pip_requirement(str(node.as_json()))
    refuse(faults)
    return Environment(requirements=tuple(lines), folder=folder)


def _read(path: Path, kind: FileKind) -> Mapping[str, Node]:
    keys, faults = read_yaml(str(path), kind)
    refuse([f"{path.name}:{line}: {fault}" for line, fault in faults])
    return keys


def _texts(name: str, node: Node | None, file: str) -> list[str]:
    if node is None or node.is_nothing:
        return []
    if not isinstance(node.value, list) or not all(isinstance(item.as_json(), str) for item in node.value):
        raise BadInput([f"{name} of {file} must be a list of texts, got {node.described()}"])
    return [str(item.value) for item in node.value]


def pip_requirement(package: str) -> list[str]:
    """A conda package as a pip requirement: `numpy=1.26` is `numpy==1.26.*`; none if a training image has it.

    Raises:
        BadInput: pip has no such package, or cannot express which version is meant.
    """
    match = _CONDA.fullmatch(package.strip())
    name = match["name"].lower() if match else ""
    if match is None or _NOT_PYTHON.fullmatch(name):
        rule = f"conda package {package!r} is not one that pip can install"
        raise BadInput([f"{rule}: leave it out, or use an image that holds it (sagemaker.training_image)"])
    if _IN_THE_IMAGE.fullmatch(name):
        return []
    version = match["version"] or ""
    if version and match["equal"] in {None, "="}:
        is_exact = match["build"] or version.endswith("*")
        version = f"=={version}" if is_exact else f"=={version}.*"
    else:
        version = f"{match['equal'] or ''}{version}"
    return [f"{_PIP_NAMES.get(name, name)}{version}"]
