"""The installed launchers, and the traits that each of them declares about itself.

A package adds a launcher with an entry point in the group `paretune.launchers`, which names its `LauncherTraits`:

    [project.entry-points."paretune.launchers"]
    mine = "my_package:TRAITS"

Code that depends on where a job runs checks a trait of `JobSpec.runs_on`, never the name of the launcher. Reading the
traits does not import the launcher itself; `launchers.base.open_launcher` does.
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
API = 2  # the form of the interface `launchers.base`, which changes when a launcher of another package must change
AUTO = "auto"  # chooses the launcher by the prefix of the job's instance type, or else this machine
LOCAL = "local"  # name of the launcher for this machine, and the instance type of its jobs


@dataclass(frozen=True, kw_only=True)
class LauncherTraits:
    """The traits of a launcher. Reading them imports no large library and contacts no service.

    Attributes:
        name: its value of `JobSpec.launcher`, which is the name of its entry point.
        title: its name in messages, such as SageMaker.
        implementation: its class, a subclass of `launchers.base.Launcher`, as "package.module:Class".
        is_billed: whether its jobs cost money, or would if they were not simulated. If False, their dollars are
            notional.
        is_simulated: whether its jobs are only simulated.
        runs_here: whether its jobs run on the same machine as the command that launches them.
        files_travel: whether it uploads code, data and models, and copies checkpoints to its storage. Then later
            attempts of a job use the files that the first one uploaded, and `submit` gets no inputs for later attempts.
        has_instances: whether its clusters consist of instances whose types are described in a table.
        instance_prefix: prefix of the names of its instance types, by which launcher=auto recognizes them; empty if
            its types are only used with launcher=NAME.
        instance_table: CSV file of its instance types, with the columns of sagemaker/instances.csv. The column `region`
            is empty if `has_regions` is False. A missing file counts as an empty table.
        has_regions: whether the parameter `region` chooses where its jobs run and what they cost.
        has_spot: whether its jobs may use interruptible instances (the parameter `spot`).
        has_fallbacks: whether its jobs may move to another instance type if the first one has no capacity.
        special_strategies: strategies that need a library of the launcher, such as smddp, with the instance types or
            families that have this library.
        keeps_instances: whether instances may be kept, and billed, for the next job.
        disk_remedy: what to do when the disk of a job is full.
        is_experimental: whether it has only run on an emulator. Help, dry runs and results mark it.
        api: the form of the interface that it implements. In form 2, since version 0.7, `submit` gets an `Order`, and
            `place` and `fit` replace `check` and `check_inputs`.
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
    api: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return the traits as JSON values for a job's document, without the table."""
        return {**asdict(self), "instance_table": None}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the installed launchers in alphabetical order."""
    return tuple(sorted(entry_points(group=GROUP).names))


@cache
def known() -> dict[str, LauncherTraits]:
    """Return the traits of all launchers by name. Raises BadInput if one of them cannot be loaded."""
    if find_spec("paretune.launchers") is None:  # inside a job, whose document has the traits of its launcher
        return {}
    return {entry.name: _loaded(entry) for entry in entry_points(group=GROUP)}


def _loaded(entry: Any) -> LauncherTraits:
    remedy = f"update or uninstall the package {entry.dist.name if entry.dist else entry.module}"
    try:
        traits = entry.load()
    except Exception as error:  # code of another package may raise anything
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise BadInput([f"the launcher {entry.name} cannot be loaded ({reason}): {remedy}"]) from error
    if not isinstance(traits, LauncherTraits) or traits.name != entry.name:
        raise BadInput([f"{entry.value} must be the LauncherTraits of a launcher named {entry.name}: {remedy}"])
    if traits.api != API:
        change = f"its author declares api={API} in LauncherTraits once it keeps `paretune.testing`"
        rule = f"the launcher {entry.name} has api={traits.api}, and this version of paretune needs api={API}"
        raise BadInput([f"{rule}: {remedy}; {change}"])
    return traits


def add(raw: Mapping[str, Any]) -> None:
    """Add a launcher, if it is unknown, from the result of `as_json`.

    A running job uses this, because the launcher's package may not be installed in it.
    """
    known().setdefault(raw["name"], LauncherTraits(**raw))


def chosen(launcher: str, instance_type: str) -> LauncherTraits:
    """Return the traits of the launcher that a job with these parameters uses.

    `launcher` must be AUTO or the name of a known launcher.
    """
    if launcher != AUTO:
        return known()[launcher]
    prefixes = ((item.instance_prefix, item) for item in known().values() if item.instance_prefix)
    return next((item for prefix, item in prefixes if instance_type.startswith(prefix)), None) or known()[LOCAL]


def uses_instances(launcher: str, instance_type: str) -> bool:
    """Return whether a job runs on instance types from a table, real or simulated, rather than on this machine."""
    traits = chosen(launcher, instance_type)
    return traits.has_instances and not (traits.is_simulated and instance_type == LOCAL)


def known_launcher(name: str) -> str:
    """Return `name`, or raise a PydanticCustomError if no launcher of this name is installed."""
    if name == AUTO or name in known():
        return name
    allowed = (AUTO, *sorted(known()))
    text = f"launcher must be one of {', '.join(allowed)}, got {name!r}"
    hint = did_you_mean(name, allowed, lead=": ", most=1) or ": install the package that adds it, or use one of these"
    raise PydanticCustomError("rule", "{text}", {"text": f"{text}{hint}"})
