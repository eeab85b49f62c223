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
