"""What a user sees in MLflow's UI, in a real browser: the notes of runs.

Skipped where there is no Chromium: `apt-get install chromium`, and it runs.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from docs.screenshots import CHROMIUM, browser, mlflow_ui, open_run
from paretune.cli import main
from tests.conftest import copy_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not there: apt-get install chromium runs this"),
]


@pytest.fixture(scope="module")
def studied(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A small simulated study, with its folder as the current one: what it has printed as JSON."""
    workspace = tmp_path_factory.mktemp("studied")
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs"
    rows = [f"{header},billable_seconds,f1,status,throughput_samples_per_second,train_seconds"]
    for size, rate, seconds, f1 in (
        (8, 2e-5, 900, 0.8),
        (8, 8e-5, 900, 0.9),
        (32, 2e-5, 500, 0.7),
        (32, 8e-5, 500, 0.8),
    ):
        rows.append(f"ml.g5.xlarge,1,{size},{rate},2,{seconds},{f1},Completed,100,300")
    (workspace / "runs.csv").write_text("\n".join(rows) + "\n")
    study = {
        "name": "seen",
        "job": {
            "launcher": "simulated",
            "simulation.runs": "runs.csv",
            "instance_type": "ml.g5.xlarge",
            "num_train_epochs": 2,
        },
        "search": {
            "per_device_train_batch_size": {"choices": [8, 32]},
            "learning_rate": {"choices": [2e-5, 8e-5]},
        },
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "sampler": "grid",
    }
    (workspace / "study.yaml").write_text(json.dumps(study))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace)
        patch.setenv("PARETUNE_HOME", str(workspace / ".paretune"))
        patch.setenv("MLFLOW_TRACKING_URI", copy_store(empty_store, workspace))
        assert main(["study", "--study", "study.yaml"]) == 0
        yield {"place": workspace, "store": MlflowClient()}


def test_the_notes_of_runs_say_what_came_out(studied: dict[str, Any]) -> None:
    client, workspace = studied["store"], studied["place"]
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    best, *_ = client.search_runs(["0"], "metrics.f1 > 0.85")
    with mlflow_ui(f"sqlite:///{workspace / 'mlflow.db'}", workspace) as address, browser() as page:
        open_run(page, address, "0", parent.info.run_id)
        page.wait_for_selector("text=Simulated: nothing of this has run")
        drawn = "image => image.complete && image.naturalWidth > 100"
        page.wait_for_function(f"[...document.querySelectorAll('img')].some({drawn})")

        open_run(page, address, "0", best.info.run_id)
        page.wait_for_selector("text=nothing was trained")
        assert page.get_by_text("0.900").first.is_visible()
