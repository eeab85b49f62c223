"""Workplaces: each choice of the parameter `launcher` can be opened."""

from pathlib import Path

import pytest

from paretune.core.clock import Interruption
from paretune.jobs.workplace import Workplaces
from paretune.specification.job import JobSpec

LAUNCHERS = JobSpec.schema_at(["launcher"])["enum"]


@pytest.mark.parametrize("name", sorted({*LAUNCHERS} - {"auto"}))
def test_a_job_is_opened_on_the_launcher_that_it_names(name: str, tmp_path: Path) -> None:
    instance_type = "ml.m5.large" if name == "sagemaker" else "local"
    spec = JobSpec(launcher=name, instance_type=instance_type, region="eu-west-1")

    workplace = Workplaces(environment={}, interruption=Interruption(), home=tmp_path).of(spec)

    assert workplace.launcher.name == name
    assert (workplace.launcher.virtual_clock is workplace.clock) == (name == "simulated")
