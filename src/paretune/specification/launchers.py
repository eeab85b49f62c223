"""The installed launchers, and what each of them declares about itself.

A package adds a launcher by an entry point in the group `paretune.launchers` that names its `LauncherTraits`:

    [project.entry-points."paretune.launchers"]
    mine = "my_package:TRAITS"

Code that depends on where a job runs asks `JobSpec.runs_on` for one of these traits, never for a launcher's name. No
launcher is imported for that: `launchers.base.open_launcher` imports the one that a command uses.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from paretune.core.errors import BadInput, did_you_mean, first_line

GROUP = "paretune.launchers"
AUTO = "auto"  # the launcher whose instance types begin as the job's does, or else this machine
LOCAL = "local"  # the launcher of this machine, and the instance type of its jobs


@dataclass(frozen=True, kw_only=True)
class LauncherTraits:
    """The traits that a launcher declares. Reading them imports no library and contacts no service.

    Attributes:
        name: its value of `JobSpec.launcher`, which is the name of its entry point.
        title: its name in messages, such as SageMaker.
        implementation: its class, a `launchers.base.Launcher`, as "package.module:Class".
        is_billed: whether its jobs cost money, or would if they were not simulated; if not, their dollars are notional.
        is_simulated: whether its jobs only pretend to run.
        runs_here: whether its jobs share this machine with the command that launches them.
        files_travel: whether code, data and models are uploaded, and checkpoints copied to the launcher's storage. Then
            the next attempts of a job use those of the first, and `submit` gets no inputs for them.
        has_instances: whether its clusters consist of instance types, which a table describes.
        instance_prefix: the beginning of the names of its instance types, by which launcher=auto recognizes them; empty
            if only launcher=NAME uses them.
        instance_table: CSV of its instance types, with the columns of sagemaker/instances.csv; `region` is empty if
            `has_regions` is False. A missing file has no rows.
        has_regions: whether the parameter `region` chooses where its jobs run and what they cost.
        has_spot: whether its jobs may use interruptible instances (the parameter `spot`).
        has_fallbacks: whether its jobs may move to other instance types without capacity.
        special_strategies: strategies that need a library of the launcher, such as smddp, with the instance types or
            families that have it.
        keeps_instances: whether instances may stay, billed, for the next job.
        disk_remedy: what to do when a job's disk is full.
        is_experimental: whether it has only run jobs of an emulator: help, dry runs and results say so.
    """

    name: str
    title: str
    implementation: str
    is_billed: bool = True
    is_simulated: bool = False
    runs_here: bool = False
    files_travel: bool = False
    has_instances: bool = False
    instance_prefix: str = ""
    instance_table: Path | None = None
    has_regions: bool = False
    has_spot: bool = False
    has_fallbacks: bool = False
    special_strategies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_instances: bool = False
    disk_remedy: str = "make room on the disk that holds its files"
    is_experimental: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the traits as they travel in a job's document, without the table."""
        return {**asdict(self), "instance_table": None}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the installed launchers in alphabetical order."""
    return tuple(sorted(entry_points(group=GROUP).names))


@cache
def known() -> dict[str, LauncherTraits]:
    """Return the traits of all launchers by name. Raises BadInput that names a plug-in that cannot be loaded."""
    if find_spec("paretune.launchers") is None:  # in a job, whose document carries the launcher that it needs
        return {}
    return {entry.name: _loaded(entry) for entry in entry_points(group=GROUP)}


def _loaded(entry: Any) -> LauncherTraits:
    remedy = f"update or uninstall the package {entry.dist.name if entry.dist else entry.module}"
    try:
        traits = entry.load()
    except Exception as error:  # another package may raise anything
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise BadInput([f"the launcher {entry.name} cannot be read ({reason}): {remedy}"]) from error
    if not isinstance(traits, LauncherTraits) or traits.name != entry.name:
        raise BadInput([f"{entry.value} must be the LauncherTraits of a launcher named {entry.name}: {remedy}"])
    return traits


def add(raw: Mapping[str, Any]) -> None:
    """Add a launcher from the result of `as_json`: a job may run where the package of its launcher is not installed."""
    known().setdefault(raw["name"], LauncherTraits(**raw))


def chosen(launcher: str, instance_type: str) -> LauncherTraits:
    """Return the launcher of a job with these parameters; `launcher` must be AUTO or a known one."""
    if launcher != AUTO:
        return known()[launcher]
    prefixes = ((item.instance_prefix, item) for item in known().values() if item.instance_prefix)
    return next((item for prefix, item in prefixes if instance_type.startswith(prefix)), None) or known()[LOCAL]


def uses_instances(launcher: str, instance_type: str) -> bool:
    """Return whether a job runs on instances of a table, real or simulated, rather than on this machine."""
    traits = chosen(launcher, instance_type)
    return traits.has_instances and not (traits.is_simulated and instance_type == LOCAL)


def known_launcher(name: str) -> str:
    """Return `name`, or raise the error of a field for a launcher that is not installed."""
    if name == AUTO or name in known():
        return name
    allowed = (AUTO, *sorted(known()))
    text = f"launcher must be one of {', '.join(allowed)}, got {name!r}"
    hint = did_you_mean(name, allowed, lead=": ", most=1) or ": install the package that adds it, or take one of these"
    raise PydanticCustomError("rule", "{text}", {"text": f"{text}{hint}"})
