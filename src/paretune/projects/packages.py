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

    Modules that lie in a folder above a script have one each, because pip must not look for those.

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
        imported = [(path, package) for path in scripts for package in read_own_script(path).missing_packages()]
    except BadInput as error:
        return list(error.faults)
    nearby = {package: module for path, package in imported if (module := _module_above(path, package))}
    faults = [
        f"{name} imports {package}, which is {module}: copy it beside the script, so that it travels with it"
        for package, module in nearby.items()
    ]
    if missing := sorted({*missing, *(package for _, package in imported)} - nearby.keys()):
        words = ", ".join(missing), " ".join(missing)
        faults.append(f"{name} needs {words[0]}, which this Python does not have: python -m pip install {words[1]}")
    return faults


def _module_above(script: Path, package: str) -> Path | None:
    """The module or package of this name in a folder above that of the script, such as the root of a repository."""
    places = (folder / file for folder in script.parents[1:4] for file in (f"{package}.py", f"{package}/__init__.py"))
    path = next((path for path in places if path.is_file()), None)
    return path.parent if path and path.name == "__init__.py" else path


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
