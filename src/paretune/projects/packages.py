"""Packages that a training of the user's own needs and that are not installed on this machine."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from paretune.core.errors import BadInput
from paretune.core.own_script import read_own_script
from paretune.core.untrusted import LARGEST_SETTINGS, read_text

_REQUIREMENTS = "requirements.txt"


def package_faults(name: str, folder: Path, scripts: Iterable[Path], requirements: Iterable[str] = ()) -> list[str]:
    """A fault that names all packages which `name` needs and this machine does not have, with the next step.

    Args:
        name: the script or project, for the message.
        folder: where a requirements.txt may lie.
        scripts: Python files whose imports count.
        requirements: further lines as in such a file; versions are not compared, and lines that name no package are
            skipped.
    """
    try:
        has_file = (folder / _REQUIREMENTS).is_file()
        lines = read_text(folder / _REQUIREMENTS, LARGEST_SETTINGS).splitlines() if has_file else []
        missing = [package for line in [*requirements, *lines] for package in _lacking(line)]
        imported = [package for path in scripts for package in read_own_script(path).missing_packages()]
    except BadInput as error:
        return list(error.faults)
    if not (absent := sorted({*missing, *imported})):
        return []
    rule = f"{name} needs {', '.join(absent)}, which this Python does not have"
    return [f"{rule}: python -m pip install {' '.join(absent)}"]


def _lacking(line: str) -> list[str]:
    """The package that a line of a requirements file names, if it applies here and is not installed."""
    try:
        requirement = Requirement(line.partition(" #")[0])
        if requirement.marker is None or requirement.marker.evaluate():
            version(requirement.name)
    except InvalidRequirement:
        return []
    except PackageNotFoundError:
        return [requirement.name]
    return []
