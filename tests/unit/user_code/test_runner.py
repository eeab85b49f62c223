"""The program that runs in the job, run here in a test's folders."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from paretune.launchers.offers import order_of
from paretune.specification.container import Command, JobInputs, UserCode
from paretune.specification.job import JobSpec
from paretune.specification.order import Limits
from paretune.user_code.code import RUNNER_FILES
from paretune.user_code.runner import versions
from tests.support.processes import wait_until


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    """Return an empty /opt/ml, with the project's folder where the code is unpacked."""
    for name in ("input/data/job", "input/data/code/project", "output/data"):
        (tmp_path / "ml" / name).mkdir(parents=True)
    return tmp_path / "ml"


def prepare(ml: Path, command: str, *, deadline_s: float | None = None, **changes: Any) -> None:
    """Write the files that a job finds; `changes` are those of its bound command."""
    bound = Command(words=(command,), folder="project", **changes)
    for name, path in RUNNER_FILES.items():
        (ml / "input" / "data" / "code" / name).parent.mkdir(exist_ok=True)
        shutil.copy(path, ml / "input" / "data" / "code" / name)
    spec, inputs = JobSpec(project=str(ml)), JobInputs(code=UserCode(command=bound))
    limits = Limits(max_seconds=3600.0, deadline_s=deadline_s)
    order = order_of(spec, job_name="job", limits=limits, inputs=inputs)
    (ml / "input" / "data" / "job" / "job.json").write_text(json.dumps(order.as_json()))


def run(ml: Path, command: str, **changes: Any) -> tuple[int, list[str]]:
    """Return the exit code and the printed lines of a job."""
    process = start(ml, command, **changes)
    message, _ = process.communicate(timeout=60)
    return process.returncode, message.splitlines()


def start(ml: Path, command: str, **changes: Any) -> "subprocess.Popen[str]":
    prepare(ml, command, **changes)
    words = [sys.executable, "runner.py", str(ml)]
    code = ml / "input" / "data" / "code"
    return subprocess.Popen(words, cwd=code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_command_runs_in_the_project_s_folder_and_gives_the_exit_code(ml: Path) -> None:
    code, lines = run(ml, 'echo "it\'s" grün; pwd; exit 3')

    assert (code, lines[1:]) == (3, ["it's grün", str(ml / "input" / "data" / "code" / "project")])
    assert (
        ml / "output" / "failure"
    ).read_text() == f"error: the training's command ended with exit code 3: {lines[-1]}"
    assert not (ml / "output" / "data" / "report.json").exists()


def test_a_command_that_hangs_is_ended_with_the_reason(ml: Path) -> None:
    prepare(ml, "sleep 600")
    code = ml / "input" / "data" / "code"
    slow_end = "os._exit", "time.sleep(0.5); os._exit"  # the killed command must not end the job with its own exit code
    for name, (old, new) in {"watchdog.py": ("SILENCE_S = 1800.0", "SILENCE_S = 1.0"), "runner.py": slow_end}.items():
        text = (code / name).read_text()
        assert old in text
        (code / name).write_text(text.replace(old, new))

    process = subprocess.run([sys.executable, "runner.py", str(ml)], cwd=code, capture_output=True, check=False)

    assert process.returncode == 1
    failure = (ml / "output" / "failure").read_text()
    assert failure.startswith("error: it hangs: no new event, almost no CPU time and no GPU in use for 0.0")


def test_sigterm_reaches_whatever_the_command_has_started_and_its_end_is_waited_for(ml: Path) -> None:
    child = "trap 'sleep 0.3; echo saved > saved; exit 0' TERM; touch ready; while true; do sleep 0.05; done"
    process = start(ml, f'bash -c "{child}"; echo never')
    project = ml / "input" / "data" / "code" / "project"
    wait_until((project / "ready").exists, within_s=30, what="the command runs")
    process.send_signal(signal.SIGTERM)
    message, _ = process.communicate(timeout=60)

    assert (project / "saved").read_text() == "saved\n"
    assert "never" not in message
    assert not (ml / "output" / "failure").exists()


def test_a_job_that_reports_leaves_the_numbers_that_it_printed_wrote_and_logged(ml: Path) -> None:
    store = ml / "output" / "data" / "paretune"
    store.mkdir(parents=True)
    with closing(sqlite3.connect(store / "mlflow.db")) as database, database:  # the columns of MLflow that are read
        database.execute("CREATE TABLE runs (run_uuid, lifecycle_stage, start_time)")
        database.execute("CREATE TABLE latest_metrics (key, value, is_nan, run_uuid)")
        runs = [("r", "active", 1), ("child", "active", 2), ("gone", "deleted", 3)]
        database.executemany("INSERT INTO runs VALUES (?, ?, ?)", runs)
        logged = [("auc", 0.8, 0, "r"), ("auc", 0.3, 0, "child"), ("fold", 0.4, 0, "child"), ("fold", 0.9, 0, "gone")]
        logged += [("eval_f1", 0.5, 0, "r"), ("strange", 0.0, 1, "r"), ("endless", 1.7976931348623157e308, 0, "r")]
        database.executemany("INSERT INTO latest_metrics VALUES (?, ?, ?, ?)", logged)
    (ml / "input" / "data" / "code" / "project" / "metrics.json").write_text('{"old": 1}')
    os.utime(ml / "input" / "data" / "code" / "project" / "metrics.json", (1, 1))
    print_it = "echo auc=0.1; echo 'loss: 2.5e-1'; echo lr = fast; echo 'step 3 loss=7'"
    write_it = """mkdir -p out; echo '{"rows": 3, "loss": 0.2, "name": "x", "bad": NaN}' > out/all_results.json"""
    definitions = [{"Name": "auc", "Regex": "area ([0-9.]+)"}, {"Name": "pace", "Regex": "fast ([0-9.]+)"}]
    command = f"{print_it}; {write_it}; echo fast 2, area none"
    _, lines = run(ml, command, renamed={"eval_f1": "f1"}, metric_definitions=definitions)

    report = json.loads((ml / "output" / "data" / "report.json").read_text())
    logged_and_printed = {"auc": 0.8, "fold": 0.4, "loss": 0.2, "rows": 3.0, "eval_f1": 0.5, "f1": 0.5, "pace": 2.0}
    assert report["metrics"] == logged_and_printed
    assert report["not_finite"] == ["bad", "endless", "strange"]
    sources = "MLflow: auc, f1, fold; out/all_results.json: loss, rows; metric_definitions: pace"
    assert report["facts"]["metrics_from"] == sources
    assert "auc=0.1" in lines


@pytest.mark.slow
def test_the_command_ends_with_the_process_that_has_started_the_job(ml: Path) -> None:
    prepare(ml, "touch ready; exec sleep 613.75")
    code = ml / "input" / "data" / "code"
    words = f"PARETUNE_STARTER=$$ {sys.executable} runner.py {ml} & while [ ! -e project/ready ]; do sleep 0.02; done"
    subprocess.run(["bash", "-c", words], cwd=code, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def sleepers() -> list[psutil.Process]:
        return [item for item in psutil.process_iter(["cmdline"]) if item.info["cmdline"] == ["sleep", "613.75"]]

    assert (code / "project" / "ready").exists()
    wait_until(lambda: not sleepers(), within_s=30, what="the command has ended")


def test_a_command_is_stopped_at_its_deadline_and_the_failure_says_so(ml: Path) -> None:
    code, _ = run(ml, "sleep 60", deadline_s=0.2)

    assert code != 0
    assert (ml / "output" / "failure").read_text().startswith("time_limit: the job stopped itself")


def test_the_seconds_that_the_container_took_to_start_count_against_the_deadline(
    ml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARETUNE_STARTED_AT", str(time.monotonic() - 3600))
    code, _ = run(ml, "sleep 60", deadline_s=3600.2)

    assert code != 0
    failure = (ml / "output" / "failure").read_text()
    assert failure.startswith("time_limit: the job stopped itself 60.0 minutes")


def test_a_package_is_listed_by_the_name_before_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "odd-1.5.dist-info"
    info.mkdir()
    text = "Metadata-Version: 2.1\nName: odd\nVersion: 1.5\n\nHow it is called:\nName: other\nVersion: 2\n"
    (info / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    assert "odd==1.5" in versions().splitlines()
