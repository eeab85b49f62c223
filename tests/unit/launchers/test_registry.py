"""Launchers by name: each choice of the parameter `launcher` can be opened."""

from dataclasses import fields
from pathlib import Path

import pytest

from paretune.core.clock import SystemClock
from paretune.launchers import registry
from paretune.launchers.registry import Surroundings, open_clock, open_launcher
from paretune.specification.job import JobSpec


def test_every_choice_of_the_parameter_is_registered() -> None:
    (launcher,) = (item for item in fields(JobSpec) if item.name == "launcher")

    assert {*launcher.metadata["choices"]} - {"auto"} == registry._OPEN.keys()


@pytest.mark.parametrize("name", ["local", "simulated"])
def test_a_job_is_opened_on_the_launcher_that_it_names(name: str, tmp_path: Path) -> None:
    spec = JobSpec(launcher=name)
    clock = open_clock(spec, tmp_path)

    launcher = open_launcher(spec, Surroundings(home=tmp_path, clock=clock, environment={}))

    assert launcher.name == name
    assert (launcher.virtual_clock is clock) == (name == "simulated")


def test_simulated_jobs_need_a_virtual_clock(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="VirtualClock"):
        open_launcher(JobSpec(launcher="simulated"), Surroundings(home=tmp_path, clock=SystemClock(), environment={}))
