"""The launchers by name. To add one, add its name to the choices of the parameter `launcher` and a line to `_OPEN`.

Each launcher is imported only where it is used: `local` needs no AWS libraries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core.clock import Clock, SystemClock
from paretune.launchers.base import Launcher
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The values that a launcher is opened with.

    Attributes:
        home: folder of local and simulated jobs.
        environment: variables of the command's process.
        check: called during long uploads; raises to cancel them.
    """

    home: Path
    clock: Clock
    environment: Mapping[str, str]
    check: Callable[[], None] = lambda: None


def open_launcher(spec: JobSpec, surroundings: Surroundings) -> Launcher:
    """The launcher that a job asks for."""
    return _OPEN[_name(spec)](spec, surroundings)


def open_clock(spec: Placement, home: Path) -> Clock:
    """The clock of a job's launcher: the machine's, or the virtual one of the home folder."""
    if not spec.is_simulated:
        return SystemClock()
    from paretune.launchers.simulated.launcher import clock_path

    return VirtualClock(clock_path(home))


def _name(spec: Placement) -> str:
    if spec.is_simulated:
        return "simulated"
    return "sagemaker" if spec.on_sagemaker else "local"


def _open_local(spec: JobSpec, surroundings: Surroundings) -> Launcher:
    from paretune.launchers.local import LocalLauncher

    return LocalLauncher(surroundings.home, surroundings.clock, surroundings.environment)


def _open_sagemaker(spec: JobSpec, surroundings: Surroundings) -> Launcher:
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher
    from paretune.launchers.sagemaker.results import ProjectResults, ReportingProjectResults, TrainingResults
    from paretune.tracking import tracking_uri

    project_results = ReportingProjectResults if spec.project is not None else ProjectResults
    return SageMakerLauncher(
        spec,
        surroundings.clock,
        surroundings.environment,
        tracking_uri="" if spec.runs_project else tracking_uri(),
        results=project_results if spec.runs_project else TrainingResults,
        check=surroundings.check,
    )


def _open_simulated(spec: JobSpec, surroundings: Surroundings) -> Launcher:
    from paretune.estimating.recorded.rehearsal import Rehearsal
    from paretune.launchers.simulated.launcher import SimulatedLauncher
    from paretune.launchers.simulated.timeline_factory import TimelineFactory
    from paretune.tracking import Tracking

    clock, environment = surroundings.clock, surroundings.environment
    if not isinstance(clock, VirtualClock):
        raise TypeError(f"simulated jobs need a VirtualClock, got {type(clock).__name__}")
    rehearsal = Rehearsal(lambda: Tracking(environment, clock), environment)
    factory = TimelineFactory(rehearsal.predict, rehearsal.recall_f1)
    return SimulatedLauncher(surroundings.home, clock, environment, factory)


_OPEN: Mapping[str, Callable[[JobSpec, Surroundings], Launcher]] = {
    "local": _open_local,
    "sagemaker": _open_sagemaker,
    "simulated": _open_simulated,
}
