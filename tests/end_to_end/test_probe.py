"""`estimate --probe` by `mlflow run`, on emulated SageMaker."""

import pytest

from tests.support.cloud import REPOSITORY, WITHIN_S, Cloud
from tests.support.processes import command

pytestmark = pytest.mark.slow


def test_mlflow_run_shows_a_probe_by_its_dry_run(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    asked = {name: value for name, value in tiny_job.items() if name != "instance_type"}
    asked |= {"probe": "ml.m5.large", "dry_run": "true"}
    words = ["mlflow", "run", str(REPOSITORY), "-e", "estimate", "--env-manager", "local"]
    words += [word for name, value in asked.items() for word in ("-P", f"{name}={value}")]

    with command(words, cwd=cloud.folder, environment=cloud.environment) as running:
        assert running.wait(WITHIN_S) == 0, running.text

    assert "dry run: nothing was launched" in running.text
    assert "--probe_steps 40" in running.text
    assert not cloud.created()
