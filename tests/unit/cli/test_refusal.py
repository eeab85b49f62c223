"""What a refused command leaves in the run that `mlflow run` had opened for it."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main


def test_refused_input_leaves_its_reason_in_the_run_that_mlflow_run_has_opened(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient()
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    assert main(["train", "--learning_rate", "fast"]) == 2

    tags = client.get_run(run_id).data.tags
    assert "learning_rate" in tags["paretune.failure_reason"]
    assert tags["mlflow.note.content"].startswith("**Refused, nothing was launched.**")


def test_by_hand_refused_input_leaves_no_run(workplace: Path) -> None:
    assert main(["train", "--learning_rate", "fast"]) == 2

    assert MlflowClient().search_runs(["0"]) == []
