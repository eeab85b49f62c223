"""Scripts that write into the folder of their local job what only the launcher may say."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.support.tags import tags_of
from tests.support.typed import Run

FORGE = """
import json, os, sys, time
from pathlib import Path
root = Path(os.environ["SM_OUTPUT_DATA_DIR"]).parents[1]
{lines}
print("val_f1: 0.8")
"""
LATER = "time.time() + 1e7"
FILES = {name: f"(root / {name!r}).write_text" for name in ("end.json", "process.json", "stop")}
FORGERIES = {
    "an end in the future": f"""{FILES["end.json"]}(json.dumps({{"state": "Completed", "time": {LATER}}}))""",
    "an end that is not JSON": f"""{FILES["end.json"]}("{{not json")""",
    "a start long ago": f"""{FILES["process.json"]}(json.dumps({{"started": 0, "max_seconds": 1e9, "run_id": "x",
        "oom_kills": 0, "process": [1, 0.0], "starter": [1, 0.0]}}))""",
    "a record that is not JSON": f"""{FILES["process.json"]}("{{not json")""",
    "a stop that is not JSON": f"""{FILES["stop"]}("{{not json")""",
    "a log of the future": "os.utime(root / 'output' / 'job.log', (time.time() + 1e7,) * 2)",
    "a report that is a folder": "(root / 'output' / 'failure').mkdir()",
}


@pytest.mark.parametrize("what", FORGERIES)
def test_no_file_that_a_script_leaves_in_its_folder_sets_its_state_or_its_seconds(what: str, run: Run) -> None:
    Path("forge.py").write_text(FORGE.format(lines=FORGERIES[what]))

    code, out, err = run("train", "forge.py", "--max_runtime_minutes", "5")

    assert (code, "Traceback" in err) == (0, False), err
    (recorded,) = MlflowClient().search_runs(["0"])
    assert tags_of(recorded)["paretune.state"] == "Completed"
    assert recorded.data.metrics["job_seconds"] < 100
    assert recorded.data.metrics["cost_usd"] < 0.01
    assert recorded.data.metrics["val_f1"] == 0.8
    code, out, err = run("status")
    assert (code, "no jobs are running" in out + err) == (0, True)


@pytest.mark.parametrize("word", ["capacity", "internal", "time_limit"])
def test_a_script_cannot_blame_a_service_for_its_failure(word: str, run: Run) -> None:
    lines = f"(root / 'output' / 'failure').write_text('{word}: no')\nsys.exit(1)"
    Path("forge.py").write_text(FORGE.format(lines=lines))

    code, _, err = run("train", "forge.py")

    assert code != 0
    assert "AWS" not in err
    (recorded,) = MlflowClient().search_runs(["0"])
    assert tags_of(recorded)["paretune.cause"] == "error"
    assert tags_of(recorded)["paretune.state"] == "Failed"


@pytest.mark.parametrize("name", ["end.json", "process.json"])
def test_a_broken_record_of_a_job_is_no_error_and_sync_closes_its_run(name: str, run: Run) -> None:
    Path("train.py").write_text("print('val_f1: 0.8')")
    run("train", "train.py")
    client = MlflowClient()
    (recorded,) = client.search_runs(["0"])
    run_id, job = recorded.info.run_id, tags_of(recorded)["paretune.job_name"]
    (record,) = Path(".paretune").glob(f"launched/{job}")
    for broken in {"end.json", name}:
        (record / broken).write_text("{not json")
    client.set_tag(run_id, "paretune.state", "Running")  # as a command leaves it that is killed
    client.set_tag(run_id, "paretune.watched_by", "")
    client.update_run(run_id, "RUNNING")

    code, _, err = run("status")
    assert (code, "Traceback" in err) == (0, False), err
    code, out, err = run("sync")

    assert (code, "Traceback" in err) == (0, False), err
    recorded = client.get_run(run_id)
    assert (recorded.info.status, tags_of(recorded)["paretune.state"]) == ("FINISHED", "Completed"), out + err
    assert run("sync")[0] == 0
    assert len(client.search_runs(["0"])) == 1
