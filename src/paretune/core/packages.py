"""The optional parts of the package: what belongs to them, and whether they are installed."""

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires, version

TRAIN = "train"
"""What preparing rows and training on this machine needs; a job on SageMaker has its own."""
_TORCH_WING = ("torch", "transformers", "datasets", "accelerate", "peft")
"""The packages of `train` as they are imported."""
_EXTRA = re.compile(r"extra == [\"'](\w+)[\"']")


def requirements_of(extra: str) -> tuple[str, ...]:
    """Requirements of an optional part, as pip takes them; other parts of paretune that it includes are left out."""
    found = []
    for line in requires("paretune") or ():
        requirement, _, condition = line.partition(";")
        named = _EXTRA.search(condition)
        if named is not None and named[1] == extra and not requirement.startswith("paretune"):
            found.append(requirement.strip())
    return tuple(found)


def pinned(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Requirements for the versions that are installed here, else for those that paretune asks for."""
    asked = {line.partition("==")[0]: line for line in requirements_of(TRAIN)}
    return tuple(_pinned(name, asked.get(name, name)) for name in packages)


def _pinned(name: str, asked: str) -> str:
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return asked


def installed(package: str) -> str:
    """The version of a package, without what says how it was built; `absent` where it is not installed."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "absent"


def training_is_missing() -> str:
    """What is not installed of `train` and how to install it, in one sentence; empty where all of it is there."""
    missing = [name for name in _TORCH_WING if not _is_there(name)]
    if not missing:
        return ""
    wanted = [line for line in requirements_of(TRAIN) if line.partition("==")[0] in missing] or missing
    return f"{', '.join(missing)} must be installed: `python -m pip install {' '.join(wanted)}` (the extra {TRAIN})"


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # kept out on purpose
        return False
