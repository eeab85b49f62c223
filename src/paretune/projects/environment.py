"""A project's environment file as pip requirements and a container image.

python_env.yaml is nearly pip's own language. The pip section of conda.yaml is used unchanged, and conda's packages are
translated; channels mean nothing to pip. A Docker environment is an image.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.projects import env_type
from mlflow.projects._project_spec import Project

from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.untrusted import LARGEST_SCRIPT, read_bytes
from paretune.storage.yaml import FileKind, Node, read_yaml

_CONDA_FILE = FileKind("conda environment", "dependencies", "dependencies: [python=3.11, numpy=1.26]")
_PYTHON_FILE = FileKind("Python environment", "dependencies", "dependencies: [numpy==1.26.4]")
_ECR = re.compile(r"\d{12}\.dkr\.ecr(-fips)?\.[\w-]+\.amazonaws\.com(\.cn)?/.+")
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
_IN_THE_IMAGE = re.compile(r"cudatoolkit|cudnn|nccl|pytorch-cuda|cuda(-.*)?|mkl|openmp|cpuonly|ca-certificates|openssl")
_NOT_PYTHON = re.compile(r"r-.*|_.*|lib.*|g?cc.*|gxx.*|openjdk|nodejs|ffmpeg|git|make|perl|nccl|compilers|sqlite")
_CONDA = re.compile(r"(?:[\w./-]+::)?(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<rest>.*)")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment that a command needs in its job."""

    requirements: tuple[str, ...] = ()  # lines of a requirements file
    folder: str = "."  # folder inside the project from which relative paths in them start
    image_uri: str | None = None
    python: str | None = None  # version the project asks for, such as 3.10
    variables: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # sentences for the user: what is left out, and why


def read_environment(project: Project, root: Path) -> Environment:
    """The environment that a project in `root` declares; raises BadInput with all that SageMaker cannot have."""
    if project.docker_env:
        return _docker_environment(project.docker_env)
    if project.env_config_path is None:
        return Environment()
    path = Path(project.env_config_path)
    if project.env_type == env_type.CONDA:
        folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(root))
        if folder.startswith(os.pardir):
            raise BadInput([f"{path.name} must lie in the project's folder {root}, got {path}: copy it there"])
        return _conda_environment(_read(path, _CONDA_FILE), folder, path.name)
    return _python_environment(_read(path, _PYTHON_FILE), path.name)


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


def _python_environment(keys: Mapping[str, Node], file: str) -> Environment:
    faults: list[str] = []
    lines: list[str] = []
    for name in ("build_dependencies", "dependencies"):
        with collecting(faults):
            lines += _texts(name, keys.get(name), file)
    python = keys.get("python")
    if python is not None and not isinstance(python.value, str):
        faults.append(f"python of {file} must be a version such as 3.11, got {python.described()}")
    refuse(faults)
    version = None if python is None or python.is_nothing else str(python.value)
    return Environment(requirements=tuple(lines), python=version)


def _conda_environment(keys: Mapping[str, Node], folder: str, file: str) -> Environment:
    packages = keys.get("dependencies", Node(1, ""))
    if not packages.is_nothing and not isinstance(packages.value, list):
        raise BadInput([f"dependencies of {file} must be a list of packages, got {packages.described()}"])
    lines: list[str] = []
    notes: list[str] = []
    faults: list[str] = []
    python = None
    for node in packages.value if isinstance(packages.value, list) else ():
        if isinstance(node.value, dict) and set(node.value) == {"pip"}:
            with collecting(faults):
                lines += _texts("pip", node.value["pip"], file)
            continue
        package = node.as_json()
        if not isinstance(package, str):
            got = node.described()
            faults.append(f"{file}:{node.line}: a dependency must be a text or a pip section, got {got}")
            continue
        match = _CONDA.fullmatch(package.strip())
        name = match["name"].lower() if match else ""
        if name == "python" and match:
            python = match["rest"].strip(" =") or None
        elif _IN_THE_IMAGE.fullmatch(name):
            notes.append(f"{package} is not installed: the image has its own")
        elif name != "pip":
            try:
                lines.append(pip_requirement(package))
            except ValueError as error:
                faults.append(str(error))
    refuse(faults)
    return Environment(requirements=tuple(lines), folder=folder, python=python, notes=tuple(notes))


def pip_requirement(package: str) -> str:
    """A conda package as a pip requirement: `numpy=1.26` is `numpy==1.26.*`.

    Raises:
        ValueError: pip has no such package; the message is a whole sentence.
    """
    match = _CONDA.fullmatch(package.strip())
    if match is None:
        raise ValueError(f"conda package {package!r} cannot be read")
    name, rest = match["name"].lower(), match["rest"].strip()
    if _NOT_PYTHON.fullmatch(name):
        raise ValueError(
            f"conda package {package!r} is no Python package: leave it out, or use an image "
            "that holds it (sagemaker.training_image)"
        )
    name = _PIP_NAMES.get(name, name)
    plain = rest if rest.startswith("==") else rest.removeprefix("=")
    version, *build = re.split(r"(?<![=<>!~])=(?!=)|\s+", plain)
    if "|" in rest:
        raise ValueError(f"conda package {package!r} names alternatives, which pip cannot: choose one")
    if not version or version == "*":
        return name
    if not re.match(r"[=<>!~]", version):
        exact = build and build != ["*"]
        version = f"=={version}" if exact or version.endswith("*") else f"=={version}.*"
    return f"{name}{version}"


def _docker_environment(raw: dict[str, Any]) -> Environment:
    image = raw["image"]
    if not isinstance(image, str):
        raise BadInput(["docker_env: image must be a text, the name of an image in ECR"])
    if not _ECR.fullmatch(image):
        raise BadInput(
            [
                f"docker_env: SageMaker takes images from ECR only, got {image}: push it there "
                "(ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG), or give sagemaker.training_image"
            ]
        )
    entries = raw.get("environment") or []
    copied = [entry for entry in entries if isinstance(entry, str)]
    notes = []
    if copied:
        notes.append(f"{', '.join(copied)} stay on this machine, because their values might be secrets")
    if raw.get("volumes"):
        notes.append("docker_env's volumes are not mounted: pass files as parameters of type path")
    pairs = [entry for entry in entries if not isinstance(entry, str)]
    if any(len(pair) != 2 or isinstance(value, (list, dict)) for pair in pairs for value in pair or [[]]):
        raise BadInput(["docker_env: environment must hold names, and pairs of a name and a text: [COLOUR, blue]"])
    variables = tuple((str(pair[0]), str(pair[1])) for pair in pairs)
    return Environment(image_uri=image, variables=variables, notes=tuple(notes))


def scripts_with(word: str, files: Iterable[Path]) -> Iterator[Path]:
    """The scripts and notebooks among the files that contain a word; too large and unreadable ones are skipped."""
    for path in files:
        if path.suffix in {".py", ".ipynb"}:
            with suppress(BadInput):
                if word.encode() in read_bytes(path, LARGEST_SCRIPT):
                    yield path
