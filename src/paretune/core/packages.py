"""The extras of paretune: the packages that belong to each, and whether they are installed."""

import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PURPOSES = {
    "train": "to train on this machine",
    "design": "for designs that are neither full nor a table",
    "mcp": "to serve agents",
    "sagemaker": "to launch jobs on SageMaker",
}
_OF_MAKE_VENV = ("train", "design", "demo")  # extras that `make venv` installs
_EXTRA = re.compile(r"extra == [\"'](\w+)[\"']")


def version_of(package: str) -> str:
    """Return the installed version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def pinned(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return requirements that pin the installed versions; packages that are not installed get paretune's ranges."""
    ranges = {name: requirement for name, requirement, _ in _requirements()}
    plain = {name: version_of(name).partition("+")[0] for name in packages}
    return tuple(f"{name}=={number}" if number else ranges.get(name, name) for name, number in plain.items())


def missing(extra: str) -> str:
    """Return a sentence that says why an extra cannot be used and which command installs it; empty if it can be used.

    Jobs on SageMaker that run the user's own code do not need `train` on this machine, because their image has its
    packages. paretune's own training needs it everywhere, because its rows are tokenized on this machine.
    """
    sdk = version_of("sagemaker")
    if extra == "sagemaker" and sdk.startswith(("1.", "2.")):
        return (
            f"jobs on SageMaker need version 3 of the SageMaker SDK, and sagemaker {sdk} is installed here under the "
            f"same name: `pip install 'paretune[{extra}]'` in a separate environment; everything else works here"
        )
    is_there = version_of if extra == "sagemaker" else can_be_imported
    needed = [name for name, _, owner in _requirements() if owner == extra and name != "paretune"]
    names = [name for name in needed if not is_there(name)]
    return f"{', '.join(names)} must be installed {_PURPOSES[extra]}: {install(extra)}" if names else ""


def can_be_imported(name: str) -> bool:
    """Return whether a package or module is installed, without importing it (its parents are imported)."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its parent is missing, or it is blocked deliberately
        return False


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Yield name, requirement in pip's format and extra of each dependency; no extra if it is always needed."""
    for line in requires("paretune") or ():
        requirement, _, condition = line.partition(";")
        extra = _EXTRA.search(condition)
        yield re.split(r"[^\w.-]", requirement, maxsplit=1)[0], requirement.strip(), extra[1] if extra else ""


def install(extra: str) -> str:
    """Return the command that installs an extra into this environment, in backticks for a message."""
    return f"`{install_command(extra)}`"


def install_command(extra: str) -> str:
    """Return the command that installs an extra into this environment.

    In the environment that `make demo` and `make venv` make in a clone, `make venv` installs all that training needs.
    """
    clone = _clone()
    if clone is not None and extra in _OF_MAKE_VENV and Path(sys.prefix).resolve() == clone / ".venv":
        return shlex.join(["make", *(() if Path.cwd() == clone else ("-C", str(clone))), "venv"])
    source = [f"paretune[{extra}]"]
    if clone is not None:
        source = ["-c", str(clone / "constraints.txt"), "-e", f"{clone}[{extra}]"]
    return shlex.join([*_installer(), *source])


def _installer() -> list[str]:
    """Return the words that install packages into this environment, with pip or uv."""
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent.absolute() == Path(sys.executable).parent.absolute():
        return ["pip", "install"]
    if can_be_imported("pip"):
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]


def _clone() -> Path | None:
    """Return the clone of paretune that is installed in editable form here; None if a wheel is installed."""
    with suppress(PackageNotFoundError):
        origin = json.loads(distribution("paretune").read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path)).resolve()
    return None
