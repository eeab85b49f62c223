"""A `Workplace` for tests, made of whatever a test wants to watch."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from paretune.core.clock import Clock, Interruption, SystemClock
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Launcher
from paretune.launchers.local import LocalLauncher
from paretune.tracking import Tracking


def make_workplace(
    *,
    launcher: Launcher | None = None,
    tracking: Tracking | None = None,
    home: Path = Path(),
    clock: Clock | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    interruption: Interruption | None = None,
) -> Workplace:
    """One with these parts; a local launcher, the machine's clock and MLflow's own store where none are given."""
    clock = clock or SystemClock()
    return Workplace(
        launcher=launcher or LocalLauncher(home, clock, environment),
        home=home,
        clock=clock,
        environment=environment,
        interruption=interruption or Interruption(),
        store=tracking,
    )
