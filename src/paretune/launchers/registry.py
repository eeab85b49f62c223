"""The launchers by name. To add one, add its name to the choices of the parameter `launcher` and open it here.

Each launcher is imported only where it is used: `local` needs no AWS libraries.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from paretune.core.clock import Clock
from paretune.launchers.base import Launcher
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec


def open_launcher(
    spec: JobSpec, home: Path, clock: Clock, environment: Mapping[str, str], check: Callable[[], None] = lambda: None
) -> Launcher:
    """The launcher that a job asks for.

    `home` is the folder of local and simulated jobs, `environment` the variables of the command's process. `check` is
    called during long uploads; it raises to cancel them.
    """
    if spec.is_simulated:
        return _open_simulated(home, clock, environment)
    if spec.on_sagemaker:
        return _open_sagemaker(spec, clock, environment, check)
    from paretune.launchers.local import LocalLauncher

    return LocalLauncher(home, clock, environment)


def _open_sagemaker(spec: JobSpec, clock: Clock, environment: Mapping[str, str], check: Callable[[], None]) -> Launcher:
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher

    return SageMakerLauncher(spec, clock, environment, check=check)


def _open_simulated(home: Path, clock: Clock, environment: Mapping[str, str]) -> Launcher:
    from paretune.estimating.architecture import architecture_of
    from paretune.estimating.estimator import Estimate
    from paretune.estimating.forecast import Forecast
    from paretune.launchers.simulated.launcher import SimulatedLauncher
    from paretune.launchers.simulated.timeline import TimelineFactory
    from paretune.tracking import Tracking

    if not isinstance(clock, VirtualClock):
        raise TypeError(f"simulated jobs need a VirtualClock, got {type(clock).__name__}")

    @cache
    def forecast() -> Forecast:
        return Forecast(Tracking(environment, clock))

    def predict(document: JobDocument) -> Estimate | None:
        built = architecture_of(document.spec.model, document.spec.task, environment)
        return forecast().estimator.estimate(document.spec, built, None, plan=document.plan)

    return SimulatedLauncher(home, clock, environment, TimelineFactory(predict))
