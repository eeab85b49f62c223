"""What a project's environment file means to pip and to a training image.

python_env.yaml is nearly pip's own language. Of conda.yaml the pip section is taken as it is, and conda's packages are
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
_OF_THE_IMAGE = re.compile(r"cudatoolkit|cudnn|nccl|pytorch-cuda|cuda(-.*)?|mkl|openmp|cpuonly|ca-certificates|openssl")
_NO_PYTHON = re.compile(r"r-.*|_.*|lib.*|g?cc.*|gxx.*|openjdk|nodejs|ffmpeg|git|make|perl|nccl|compilers|sqlite")
_CONDA = re.compile(r"(?:[\w./-]+::)?(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<rest>.*)")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a job must have before the command starts.

    Attributes:
        requirements: lines of a requirements file.
        folder: where relative paths in them begin, inside the project.
        python: version the project asks for, such as 3.10.
        notes: sentences for the user: what was left out, and why.
    """

    requirements: tuple[str, ...] = ()
    folder: str = "."
    image_uri: str | None = None
    python: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def read_environment(project: Project, root: Path) -> Environment:
    """The environment that a project in the folder `root` asks for.

    Raises:
        BadInput: all of it that has no meaning on SageMaker, at once.
    """
    if project.docker_env:
        return _docker(project.docker_env)
    if project.env_config_path is None:
        return Environment()
    path = Path(project.env_config_path)
    if project.env_type == env_type.CONDA:
        folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(root))
        if folder.startswith(os.pardir):
            raise BadInput([f"{path.name} must lie in the project's folder {root}, got {path}: copy it there"])
        return _conda(_read(path, _CONDA_FILE), folder, path.name)
    keys = _read(path, _PYTHON_FILE)
    faults: list[str] = []
    lines: list[str] = []
    for name in ("build_dependencies", "dependencies"):
        with collecting(faults):
            lines += _texts(name, keys.get(name), path.name)
    python = keys.get("python")
    if python is not None and not isinstance(python.value, str):
        faults.append(f"python of {path.name} must be a version such as 3.11, got {python.described()}")
    refuse(faults)
    asked = None if python is None or python.is_nothing else str(python.value)
    return Environment(requirements=tuple(lines), python=asked)


def _read(path: Path, kind: FileKind) -> Mapping[str, Node]:
    """What an environment file holds; BadInput where that cannot be read."""
    keys, faults = read_yaml(str(path), kind)
    refuse([f"{path.name}:{line}: {fault}" for line, fault in faults])
    return keys


def _texts(name: str, node: Node | None, file: str) -> list[str]:
    """The texts of a list; none where there is no list."""
    if node is None or node.is_nothing:
        return []
    if not isinstance(node.value, list) or not all(isinstance(item.as_json(), str) for item in node.value):
        raise BadInput([f"{name} of {file} must be a list of texts, got {node.described()}"])
    return [str(item.value) for item in node.value]


def pip_requirement(package: str) -> str:
    """A conda package as pip calls it: `numpy=1.26` is `numpy==1.26.*`.

    Raises:
        ValueError: it has no meaning to pip; the message is a whole sentence.
    """
    found = _CONDA.fullmatch(package.strip())
    if found is None:
        raise ValueError(f"conda package {package!r} cannot be read")
    name, rest = found["name"].lower(), found["rest"].strip()
    name = _PIP_NAMES.get(name, name)
    if _NO_PYTHON.fullmatch(found["name"].lower()):
        raise ValueError(
            f"conda package {package!r} is no Python package: use an image that holds it (image_uri), or leave it out"
        )
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


def _conda(keys: Mapping[str, Node], folder: str, file: str) -> Environment:
    listed = keys.get("dependencies", Node(1, ""))
    if not listed.is_nothing and not isinstance(listed.value, list):
        raise BadInput([f"dependencies of {file} must be a list of packages, got {listed.described()}"])
    lines: list[str] = []
    notes: list[str] = []
    faults: list[str] = []
    python = None
    for node in listed.value if isinstance(listed.value, list) else ():
        if isinstance(node.value, dict) and set(node.value) == {"pip"}:
            with collecting(faults):
                lines += _texts("pip", node.value["pip"], file)
            continue
        item = node.as_json()
        if not isinstance(item, str):
            got = node.described()
            faults.append(f"{file}:{node.line}: a dependency must be a text or a pip section, got {got}")
            continue
        found = _CONDA.fullmatch(item.strip())
        name = found["name"].lower() if found else ""
        if name == "python" and found:
            python = found["rest"].strip(" =") or None
        elif _OF_THE_IMAGE.fullmatch(name):
            notes.append(f"{item} is not installed: the image has its own")
        elif name != "pip":
            try:
                lines.append(pip_requirement(item))
            except ValueError as error:
                faults.append(str(error))
    refuse(faults)
    return Environment(requirements=tuple(lines), folder=folder, python=python, notes=tuple(notes))


def _docker(raw: dict[str, Any]) -> Environment:
    image = raw["image"]
    if not isinstance(image, str):
        raise BadInput(["docker_env: image must be a text, the name of an image in ECR"])
    if not _ECR.fullmatch(image):
        raise BadInput(
            [
                f"docker_env: SageMaker takes images from ECR only, got {image}: push it there "
                "(ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG), or give image_uri"
            ]
        )
    listed = raw.get("environment") or []
    copied = [item for item in listed if isinstance(item, str)]
    notes = []
    if copied:
        notes.append(f"{', '.join(copied)} stay on this machine: what they hold might be a secret")
    if raw.get("volumes"):
        notes.append("docker_env's volumes are not mounted: pass files as parameters of type path")
    pairs = [item for item in listed if not isinstance(item, str)]
    if any(len(pair) != 2 or isinstance(value, (list, dict)) for pair in pairs for value in pair or [[]]):
        raise BadInput(["docker_env: environment must hold names, and pairs of a name and a text: [COLOUR, blue]"])
    variables = tuple((str(item[0]), str(item[1])) for item in pairs)
    return Environment(image_uri=image, variables=variables, notes=tuple(notes))


def python_note(asked: str | None, image_uri: str) -> str | None:
    """A sentence where the image's Python is not the one that the project asks for."""
    if asked is None:
        return None
    found = re.search(r"-py(\d)(\d+)", image_uri)
    wanted = re.search(r"(\d+)\.(\d+)", asked)
    if found and wanted and found.groups() == wanted.groups():
        return None
    has = f"has Python {found[1]}.{found[2]}" if found else "brings a Python of its own"
    return f"the project asks for Python {asked}, and the image {has}: the image decides"


def mentions_mlflow(requirements: Iterable[str], files: Iterable[Path]) -> bool:
    """Whether a project seems to use MLflow: a requirement or a Python file names it."""
    if any("mlflow" in line for line in requirements):
        return True
    return any(scripts_with("mlflow", files))


def scripts_with(word: str, files: Iterable[Path]) -> Iterator[Path]:
    """The scripts and notebooks among the files that hold a word; none that is too large for one, or cannot be read."""
    for path in files:
        if path.suffix in {".py", ".ipynb"}:
            with suppress(BadInput):
                if word.encode() in read_bytes(path, LARGEST_SCRIPT):
                    yield path
