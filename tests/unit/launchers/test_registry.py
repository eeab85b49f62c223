"""Launchers by name: each choice of the parameter `launcher` can be opened."""

from pathlib import Path

import pytest

from paretune.core.clock import SystemClock
from paretune.launchers.registry import open_launcher
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.specification.job import JobSpec

LAUNCHERS = JobSpec.schema_at(["launcher"])["enum"]


@pytest.mark.parametrize("name", sorted({*LAUNCHERS} - {"auto"}))
def test_a_job_is_opened_on_the_launcher_that_it_names(name: str, tmp_path: Path) -> None:
    instance_type = "ml.m5.large" if name == "sagemaker" else "local"
    spec = JobSpec(launcher=name, instance_type=instance_type, region="eu-west-1")
    clock = VirtualClock(tmp_path) if name == "simulated" else SystemClock()

    launcher = open_launcher(spec, tmp_path, clock, {})

    assert launcher.name == name
    assert (launcher.virtual_clock is clock) == (name == "simulated")


def test_simulated_jobs_need_a_virtual_clock(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="VirtualClock"):
        open_launcher(JobSpec(launcher="simulated"), tmp_path, SystemClock(), {})
