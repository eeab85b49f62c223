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
# Conda's name to pip's, where they differ and the package is the same. Source: conda-forge, names read 2026-11-20.
_PIP_NAMES = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-gpu": "tensorflow",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "ruamel_yaml": "ruamel.yaml",
}
_IN_THE_IMAGE = re.compile(
    r"python|pip|cudatoolkit|cudnn|nccl|pytorch-cuda|cuda(-.*)?|mkl|openmp|cpuonly|ca-certificates|openssl"
)
_NOT_PYTHON = re.compile(r"r-.*|_.*|lib.*|g?cc.*|gxx.*|openjdk|nodejs|ffmpeg|git|make|perl|compilers|sqlite")
_CONDA = re.compile(r"(?:[\w./-]+::)?(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<rest>.*)")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The packages that a command needs in its job."""

    requirements: tuple[str, ...] = ()  # lines of a requirements file
    folder: str = "."  # folder inside the project from which relative paths in them start


def read_environment(project: Project, root: Path) -> Environment:
    """The environment that a project in `root` declares; raises BadInput with all that SageMaker cannot have."""
    if project.docker_env or project.env_config_path is None:
        return Environment()
    path, faults = Path(project.env_config_path), list[str]()
    lines: list[str] = []
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
    packages = _read(path, _CONDA_FILE).get("dependencies", Node(1, ""))
    if not packages.is_nothing and not isinstance(packages.value, list):
        raise BadInput([f"dependencies of {path.name} must be a list of packages, got {packages.described()}"])
    for node in packages.value if isinstance(packages.value, list) else ():
        with collecting(faults):
            lines += _conda_lines(node, path.name)
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


def _conda_lines(node: Node, file: str) -> list[str]:
    """The pip requirements of one entry of conda's dependencies: its pip section, or a package."""
    if isinstance(node.value, dict) and set(node.value) == {"pip"}:
        return _texts("pip", node.value["pip"], file)
    package = node.as_json()
    if not isinstance(package, str):
        text = f"{file}:{node.line}: a dependency must be a text or a pip section, got {node.described()}"
        raise BadInput([text])
    requirement = pip_requirement(package)
    return [] if requirement is None else [requirement]


def pip_requirement(package: str) -> str | None:
    """A conda package as a pip requirement: `numpy=1.26` is `numpy==1.26.*`; None if a training image has it.

    Raises:
        BadInput: pip has no such package.
    """
    match = _CONDA.fullmatch(package.strip())
    if match is None:
        raise BadInput([f"conda package {package!r} cannot be read"])
    name, rest = match["name"].lower(), match["rest"].strip()
    if _IN_THE_IMAGE.fullmatch(name):
        return None
    if _NOT_PYTHON.fullmatch(name):
        rule = f"conda package {package!r} is no Python package"
        raise BadInput([f"{rule}: leave it out, or use an image that holds it (sagemaker.training_image)"])
    if "|" in rest:
        raise BadInput([f"conda package {package!r} names alternatives, which pip cannot: choose one"])
    name = _PIP_NAMES.get(name, name)
    plain = rest if rest.startswith("==") else rest.removeprefix("=")
    version, *build = re.split(r"(?<![=<>!~])=(?!=)|\s+", plain)
    if not version or version == "*":
        return name
    if not re.match(r"[=<>!~]", version):
        exact = build and build != ["*"]
        version = f"=={version}" if exact or version.endswith("*") else f"=={version}.*"
    return f"{name}{version}"
