"""One whole job on a tiny model, in this process's children, looked at in MLflow."""

from pathlib import Path

from mlflow import MlflowClient

from paretune.cli import main


def test_a_job_on_a_csv_file_is_recorded_with_its_quality_speed_and_cost(
    workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    code = main(["main", "--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32"])

    assert code == 0
    (run,) = MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert {"f1", "cost_usd", "train_seconds", "job_seconds", "baseline_f1_tfidf"} <= set(run.data.metrics)
    assert run.data.tags["paretune.state"] == "Completed"
