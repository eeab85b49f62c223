"""How far a running training has come, as `status`, `logs` and the page of a study show it."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from paretune.specification.container import EventReader, JobFolder
from tests.support.cloud import WITHIN_S, Cloud
from tests.support.processes import Command, command, paretune, wait_until

TRAINING = """
import argparse, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4000)
parser.add_argument("--lr", type=float, default=0.1)
arguments = parser.parse_args()
for epoch in range(arguments.epochs):
    time.sleep(0.2)
    print(f"Train Epoch: {epoch} loss: {arguments.lr / (epoch + 1):.4f}", flush=True)
print("val_f1: 0.5")
"""
SILENT = "import time\nprint('loss 0.5', flush=True)\ntime.sleep(400)\n"
SHOWN = re.compile(r"\d+ %, about [\d. hms]+( and [\d.]+ USD)? left")


@pytest.fixture
def folder(workplace: Path) -> Path:
    (workplace / "train.py").write_text(TRAINING)
    (workplace / "silent.py").write_text(SILENT)
    return workplace


def answer(folder: Path, *words: str) -> str:
    environment = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with command(paretune(*words), cwd=folder, home=folder / "another", environment=environment) as running:
        assert running.wait(WITHIN_S) == 0, running.text
        return running.text


def wait_for_event(running: Command, folder: Path) -> None:
    def has_progress() -> bool:
        files = (folder / ".paretune" / "jobs").glob("*/output/data/events.jsonl")
        return any(event.progress is not None for path in files for event in EventReader(path).new())

    wait_until(lambda: running.process.poll() is not None or has_progress(), within_s=WITHIN_S, what="progress")
    assert running.process.poll() is None, running.text


def test_status_and_logs_show_how_far_a_script_has_come_by_the_counter_that_it_prints(folder: Path) -> None:
    with command(paretune("train", "train.py"), cwd=folder) as running:
        wait_for_event(running, folder)

        (job,) = json.loads(answer(folder, "status", "--json"))["running"]
        log = answer(folder, "logs", job["run_id"][:8])

        progress = job["progress"]
        assert progress["evidence"].endswith(" of 4000")  # by the default of its argument
        assert 0 < progress["share"] < 0.9
        assert progress["left_s"] > (1 - progress["share"]) * 4000 * 0.19
        assert SHOWN.search(progress["text"])
        assert re.search(rf"the job: {SHOWN.pattern}", log)
        assert '"progress"' not in log  # events of the runner are no lines of the script
        curves = MlflowClient().get_run(job["run_id"]).data.metrics
        assert not any("progress" in name or "epoch" in name for name in curves)


def test_a_script_without_a_counter_is_shown_without_one(folder: Path) -> None:
    with command(paretune("train", "silent.py"), cwd=folder) as running:

        def has_begun() -> bool:
            jobs = map(JobFolder, (folder / ".paretune" / "jobs").glob("*"))
            return any("loss 0.5" in job.log.read_text() for job in jobs if job.log.is_file())

        wait_until(has_begun, within_s=WITHIN_S, what="the script has printed its line")
        assert running.process.poll() is None

        assert "no counter so far" in answer(folder, "status")


def test_the_page_of_a_study_shows_how_far_its_jobs_have_come(folder: Path) -> None:
    study = {
        "name": "watched",
        "job": {"entry_script": "train.py", "launcher": "local"},
        "search": {"training_arguments.lr": {"choices": [0.1, 0.2]}},
        "objectives": {"val_f1": "maximize"},
        "sampler": "grid",
        "n_trials": 1,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))

    def page() -> str:  # the artifact, read without MLflow, which takes more time than all else here
        pages = [path.read_text() for path in (folder / "mlruns").glob("*/*/artifacts/pareto.html")]
        return "".join(pages)

    with command(paretune("study", "study.yaml"), cwd=folder) as running:
        wait_until(
            lambda: running.process.poll() is not None or SHOWN.search(page()),
            within_s=WITHIN_S,
            what="the page shows it",
        )
        assert running.process.poll() is None, running.text


@pytest.mark.slow
def test_status_shows_how_far_a_job_on_sagemaker_has_come_and_its_dollars_left(cloud: Cloud) -> None:
    (cloud.folder / "train.py").write_text(TRAINING)
    of_job = {"instance_type": "ml.m5.large", "training_arguments.epochs": 3000}
    with cloud.start("train", "train.py", **of_job) as running:

        def progress() -> str:
            text = cloud.run("status").text
            return text if running.process.poll() is not None or " %, about " in text else ""

        text = wait_until(progress, within_s=WITHIN_S, what="status shows progress")
        assert running.process.poll() is None, running.text
        assert re.search(r"\d+ %, about .* and 0\.\d+ USD left", text)
