"""`estimate --probe` on emulated SageMaker: by `mlflow run`, and after the command was killed while its job runs."""

import json

import pytest

from tests.support.cloud import REPOSITORY, WITHIN_S, Cloud
from tests.support.processes import command, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def asked(tiny_job: dict[str, object]) -> dict[str, object]:
    """Return the words of a command that probes a cluster with a small job."""
    return {name: value for name, value in tiny_job.items() if name != "instance_type"} | {"probe": "ml.m5.large"}


def test_mlflow_run_shows_a_probe_by_its_dry_run(cloud: Cloud, asked: dict[str, object]) -> None:
    words = ["mlflow", "run", str(REPOSITORY), "-e", "estimate", "--env-manager", "local"]
    words += [word for name, value in {**asked, "dry_run": "true"}.items() for word in ("-P", f"{name}={value}")]

    with command(words, cwd=cloud.folder, environment=cloud.environment) as running:
        assert running.wait(WITHIN_S) == 0, running.text

    assert "dry run: nothing was launched" in running.text
    assert "--probe_steps 40" in running.text
    assert not cloud.created()


def test_a_killed_probe_that_is_typed_again_follows_the_same_job_and_pays_once(
    cloud: Cloud, asked: dict[str, object]
) -> None:
    typed = {**asked, "max_train_samples": 100, "instance_type": "ml.m5.large,ml.m5.xlarge", "json": "true"}
    with cloud.start("estimate", **typed) as killed:
        wait_until(
            lambda: bool(cloud.emulator.jobs()) or killed.process.poll() is not None,
            within_s=WITHIN_S,
            what="the job of the probe exists",
        )
        assert killed.process.poll() is None, killed.text
        killed.process.kill()
        killed.process.wait()

    again = cloud.run("estimate", **typed)

    assert again.code == 0, again.text
    assert "following it" in again.text
    (request,) = cloud.created()
    assert request["ResourceConfig"]["InstanceType"] == "ml.m5.large"
    run = cloud.the_run()
    assert (run.info.status, run.data.params["probe_steps"]) == ("FINISHED", "40")
    assert run.data.metrics["cost_usd"] > 0
    answer, _ = json.JSONDecoder().raw_decode(again.text[again.text.index("\n{") + 1 :])
    probed, other = answer["rows"]
    assert (probed["instance_type"], other["instance_type"]) == ("ml.m5.large", "ml.m5.xlarge")
    assert "1 run of this model on this cluster" in probed["basis"]
    assert f"probe: run {run.info.run_id}, " in " ".join(answer["remarks"])
