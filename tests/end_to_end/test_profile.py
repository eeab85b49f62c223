"""Profiles of whole jobs, as a user asks for them, in the artifacts of their runs."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.end_to_end.cloud import Cloud

pytestmark = pytest.mark.slow


def profile_of(client: MlflowClient, run: Run) -> dict[str, Any]:
    """The profile in the run's artifacts, looked at for completeness."""
    retained = {Path(item.path).name for item in client.list_artifacts(run.info.run_id, "profile")}
    assert retained == {"trace.json.gz", "profile.json", "profile.md"}
    folder = Path(client.download_artifacts(run.info.run_id, "profile"))
    with gzip.open(folder / "trace.json.gz", "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert "aten::addmm" in names
    result: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    assert sum(result["shares_percent"].values()) == pytest.approx(100, abs=0.3)
    assert result["summary"] in run.data.tags["paretune.remarks"]
    assert (folder / "profile.md").read_text().startswith("# Profile")
    return result


def test_a_profile_comes_back_from_sagemaker(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    done = cloud.run(**tiny_job, profile_steps=3)

    assert done.code == 0, done.text
    profile = profile_of(cloud.client, cloud.runs()[0])
    assert profile["summary"] in done.text
