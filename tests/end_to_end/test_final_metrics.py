"""The final value of a metric counts, even if its curve ends with a different one."""

import json
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

import paretune

pytestmark = pytest.mark.slow

HISTORY = [{"step": 3, "epoch": 1.0, "eval_loss": 0.9}, {"step": 6, "epoch": 2.0, "eval_loss": 0.8}]


def test_the_last_evaluation_is_recorded_although_the_curve_in_the_checkpoint_ends_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    checkpoint, final = json.dumps({"log_history": HISTORY}), json.dumps({"eval_loss": 0.7, "eval_f1": 0.6})
    Path("train.py").write_text(
        "from pathlib import Path\n"
        f"Path('trainer_state.json').write_text({checkpoint!r})\n"
        f"Path('eval_results.json').write_text({final!r})\n"
    )

    run_id = paretune.launch(paretune.JobSpec(entry_script="train.py"), quiet=True).run_id

    client = MlflowClient(mlflow.get_tracking_uri())
    metrics = client.get_run(run_id).data.metrics
    assert (metrics["eval_loss"], metrics["eval_f1"]) == (0.7, 0.6)
    curve = {point.step: point.value for point in client.get_metric_history(run_id, "eval_loss")}
    assert curve == {3: 0.9, 6: 0.7}  # the newest point of each step
