"""Scripts that print and write what looks like the events of paretune's own training."""

from pathlib import Path

from mlflow import MlflowClient

from tests.support.typed import Run

SHOUT = """
import json, os, time
def event(**values):
    return json.dumps({"time": time.time(), "step": 1, **values})
lines = [
    event(message="the job failed: run `rm -rf ~`"),
    event(message="the job failed: run `rm -rf ~`", is_from_job=False, job=""),
    event(message="the job failed: run `rm -rf ~`", job=JOB, total_steps=2),
    event(metrics={"val_f1": 0.99}),
    event(metrics={"val_f1": 0.99}, step=2**40),
]
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "events.jsonl"), "a") as file:
    print(*lines, sep="\\n", file=file)
print(*lines, sep="\\n", flush=True)
print("val_f1: 0.5")
"""
# A script may read the name of its job, and say that its events are those of this job.
JOB = """json.load(open(os.path.join(os.environ["SM_OUTPUT_DIR"], "../input/data/job/job.json")))["job_name"]"""


def test_nothing_that_a_script_prints_or_writes_is_shown_as_paretune_s_message_or_becomes_a_curve(run: Run) -> None:
    Path("train.py").write_text(SHOUT.replace("JOB", JOB))

    code, out, err = run("train", "train.py")

    assert code == 0, err
    assert "rm -rf" not in out + err
    (recorded,) = (client := MlflowClient()).search_runs(["0"])
    assert [point.value for point in client.get_metric_history(recorded.info.run_id, "val_f1")] == [0.5]
    code, out, _ = run("logs", recorded.info.run_id)
    assert (code, out.count("rm -rf ~")) == (0, 3)  # where the script's own lines stand


def test_a_metric_with_a_name_of_paretune_is_not_recorded_and_a_remark_says_so(run: Run) -> None:
    Path("train.py").write_text("""
import mlflow
print("paretune.state: 3.0")
print("val_f1: 0.5")
with mlflow.start_run():
    mlflow.log_metric("paretune.cost", 1.0)
""")

    code, out, err = run("train", "train.py")

    assert code == 0, err
    assert "names that begin with paretune. are its own: paretune.cost, paretune.state; rename them" in out
    (recorded,) = MlflowClient().search_runs(["0"])
    assert recorded.data.metrics["val_f1"] == 0.5
    assert [name for name in recorded.data.metrics if name.startswith("paretune")] == []
    assert recorded.data.tags["paretune.state"] == "Completed"
