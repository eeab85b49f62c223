"""Which launcher a specification asks for."""

from collections.abc import Mapping
from pathlib import Path

from paretune.core.clock import Clock, SystemClock
from paretune.launchers.base import Launcher
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.spec.job import JobSpec


def clock_for(spec: JobSpec, home: Path) -> Clock:
    """The clock of the launcher that a specification asks for: the machine's, or the virtual one of `home`."""
    if not spec.is_simulated:
        return SystemClock()
    from paretune.launchers.simulated.launcher import clock_path

    return VirtualClock(clock_path(home))


def launcher_for(spec: JobSpec, home: Path, clock: Clock, environment: Mapping[str, str]) -> Launcher:
    """The launcher that a specification asks for; `clock` is the one of `clock_for`."""
    if isinstance(clock, VirtualClock):
        return _simulated(home, clock, environment)
    if not spec.on_sagemaker:
        from paretune.launchers.local import LocalLauncher

        return LocalLauncher(home, clock, environment)
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher
    from paretune.tracking import tracking_uri

    return SageMakerLauncher(spec, clock, environment, tracking_uri=tracking_uri())


def _simulated(home: Path, clock: VirtualClock, environment: Mapping[str, str]) -> Launcher:
    from paretune.estimating.recorded.rehearsal import Rehearsal
    from paretune.launchers.simulated.course import TimelineFactory
    from paretune.launchers.simulated.launcher import SimulatedLauncher
    from paretune.tracking import Tracking

    rehearsal = Rehearsal(lambda: Tracking(environment, clock), environment)
    return SimulatedLauncher(home, clock, environment, TimelineFactory(rehearsal.predict, rehearsal.recall_f1))
