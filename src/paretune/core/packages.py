"""The extras of paretune: the packages that belong to each, and whether they are installed."""

import importlib.util
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

TRAIN = "train"
"""The extra for preparing rows and training on this machine; a job on SageMaker has these packages in its image."""
SAGEMAKER = "sagemaker"  # the extra for jobs on Amazon SageMaker
DESIGN = "design"  # the extra for fractional and optimal designs
_EXTRA = re.compile(r"extra == [\"'](\w+)[\"']")


def requirements_of(extra: str) -> tuple[str, ...]:
    """Requirements of an extra, as pip takes them; extras of paretune that it includes are left out."""
    requirements = []
    for line in requires("paretune") or ():
        requirement, _, condition = line.partition(";")
        match = _EXTRA.search(condition)
        if match is not None and match[1] == extra and not requirement.startswith("paretune"):
            requirements.append(requirement.strip())
    return tuple(requirements)


@cache
def version_of(package: str) -> str:
    """The installed version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def package_of(requirement: str) -> str:
    """Name of the package in a requirement: `torch` for `torch>=2.6`."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def pinned(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Requirements for the versions that are installed here, or paretune's own ranges for packages that are not."""
    ranges = {package_of(line): line.partition(";")[0].strip() for line in requires("paretune") or ()}
    return tuple(
        ranges.get(name, name) if installed(name) == "absent" else f"{name}=={version(name)}" for name in packages
    )


def installed(package: str) -> str:
    """The version of a package, without its build tag; `absent` if it is not installed."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "absent"


def training_is_missing() -> str:
    """One sentence with the packages of `train` that are not installed and the command for it; empty if none is."""
    return _missing(TRAIN, "to train on this machine")


def design_is_missing() -> str:
    """One sentence with the packages of `design` that are not installed and the command for it; empty if none is."""
    return _missing(DESIGN, "for designs that are neither full nor a table")


def _missing(extra: str, purpose: str) -> str:
    names = [name for name in map(package_of, requirements_of(extra)) if not _can_be_imported(name)]
    return f"{', '.join(names)} must be installed {purpose}: {_install(extra)}" if names else ""


def sagemaker_is_missing() -> str:
    """One sentence that says why jobs cannot be launched on SageMaker from this environment; empty if they can."""
    sdk = installed("sagemaker")
    if sdk.startswith(("1.", "2.")):
        return (
            f"jobs on SageMaker need version 3 of the SageMaker SDK, and sagemaker {sdk} is installed here under the "
            f"same name: {_install(SAGEMAKER)} in an environment of its own; everything else works here"
        )
    missing = [name for name in map(package_of, requirements_of(SAGEMAKER)) if installed(name) == "absent"]
    if not missing:
        return ""
    return f"{', '.join(missing)} must be installed to launch jobs on SageMaker: {_install(SAGEMAKER)}"


def _install(extra: str) -> str:
    return f"`python -m pip install 'paretune[{extra}]'`"


def _can_be_imported(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # blocked on purpose
        return False
