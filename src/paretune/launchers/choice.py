"""Which launcher a specification asks for."""

from collections.abc import Mapping
from pathlib import Path

from paretune.clock import Clock
from paretune.launchers.base import Launcher
from paretune.spec import JobSpec


def launcher_for(spec: JobSpec, home: Path, clock: Clock, environment: Mapping[str, str]) -> Launcher:
    """The launcher that a specification asks for."""
    if not spec.on_sagemaker:
        from paretune.launchers.local import LocalLauncher

        return LocalLauncher(home, clock, environment)
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher
    from paretune.tracking import tracking_uri

    return SageMakerLauncher(spec, clock, environment, tracking_uri=tracking_uri())
