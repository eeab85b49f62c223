"""What MLflow keeps of a user's own training, here and on the emulator, even if the training fails or is stopped."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

import paretune
from paretune.cli import main
from paretune.core.errors import JobFailed
from tests.support.cloud import Cloud
from tests.support.processes import command, wait_until
from tests.support.processes import paretune as paretune_words
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

SECRET = "planted-secret-4411"  # noqa: S105
TRAIN = """
import argparse, os, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--end", default="")
given = parser.parse_args()
print("password is", os.environ.get("DATABASE_PASSWORD"))
for epoch in range(given.epochs):
    print(f"epoch {epoch}: val_f1: {epoch * given.lr}")
Path("trained").touch()
if given.end == "fails":
    {}["test set"]
elif given.end == "waits":
    time.sleep(600)
"""
ARTIFACTS = {"log.txt", "command.txt", "versions.txt", "report.json", "code"}
OF_THE_JOB = {"cost_usd", "job_seconds", "billable_seconds"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, a git repository with a script that was changed since its last commit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("DATABASE_PASSWORD", SECRET)
    write_script(tmp_path)
    return tmp_path


def write_script(folder: Path) -> None:
    (folder / "train.py").write_text("print('an earlier version')\n")
    git = ["git", "-C", str(folder), "-c", "user.name=Ana", "-c", "user.email=ana@example.com"]
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *words], check=True)
    (folder / "train.py").write_text(TRAIN)


def texts_of(run: Run, client: MlflowClient, folder: Path) -> dict[str, str]:
    """Return the text artifacts of a run by name."""
    client.download_artifacts(run.info.run_id, "", str(folder))
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def check(run: Run, client: MlflowClient, texts: dict[str, str], given: dict[str, Any]) -> None:
    """Check that a run has its metric with the curve, what was passed, and the artifacts of any job."""
    assert {name.partition("/")[0] for name in texts} >= ARTIFACTS
    points = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "val_f1")}
    assert points == pytest.approx({0: 0.0, 1: 0.5, 2: 1.0})
    assert run.data.metrics["val_f1"] == 1.0
    assert run.data.params["learning_rate"] == "0.5"
    assert {name: run.data.params[f"training_arguments.{name}"] for name in given} == given
    passed = " ".join(["--lr 0.5", *(f"--{name} {text}" for name, text in given.items())])
    assert texts["command.txt"].strip().endswith(f"train.py {passed}")
    assert "epoch 2: val_f1: 1.0" in texts["log.txt"]
    assert texts["code/train.py"] == TRAIN
    assert "-print('an earlier version')" in texts["code/git_changes.diff"]
    assert len(texts["code/git_commit.txt"].strip()) == 40
    assert "mlflow==" in texts["versions.txt"]
    assert SECRET not in json.dumps(texts)


@pytest.mark.parametrize("end", ["", "fails"])
def test_the_run_of_a_script_has_its_metrics_log_code_command_line_and_versions(folder: Path, end: str) -> None:
    arguments = {"epochs": 3, **({"end": end} if end else {})}
    spec = paretune.JobSpec(entry_script="train.py", learning_rate=0.5, training_arguments=arguments)
    if end:
        with pytest.raises(JobFailed, match="KeyError: 'test set'"):
            paretune.launch(spec, quiet=True)
    else:
        paretune.launch(spec, quiet=True)

    client = MlflowClient(mlflow.get_tracking_uri())
    (run,) = client.search_runs(["0"])
    texts = texts_of(run, client, folder / "downloaded")
    assert run.info.status == ("FAILED" if end else "FINISHED")
    check(run, client, texts, {name: str(value) for name, value in arguments.items()})
    assert ("KeyError: 'test set'" in texts.get("traceback.txt", "")) is bool(end)


def test_a_job_that_is_interrupted_or_meets_its_time_limit_keeps_its_metrics(folder: Path) -> None:
    arguments = {"--training_arguments.epochs": "3", "--training_arguments.end": "waits", "--learning_rate": "0.5"}
    words = paretune_words("train", "train.py", *(word for pair in arguments.items() for word in pair))
    with command(words, cwd=folder, environment=dict(os.environ)) as running:
        wait_until((folder / "trained").exists, within_s=100, what="the script has trained")
        running.process.send_signal(signal.SIGINT)
        assert running.wait(100) == 130
    spec = paretune.JobSpec(
        entry_script="train.py",
        learning_rate=0.5,
        training_arguments={"epochs": 3, "end": "waits"},
        max_runtime_minutes=0.3,
    )
    with pytest.raises(JobFailed, match=r"it ran longer than 18\.0 s"):
        paretune.launch(spec, quiet=True)

    client = MlflowClient(mlflow.get_tracking_uri())
    runs = client.search_runs(["0"])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]
    for number, run in enumerate(runs):
        texts = texts_of(run, client, folder / f"downloaded-{number}")
        check(run, client, texts, {"epochs": "3", "end": "waits"})


def test_a_script_that_fails_on_sagemaker_leaves_the_same_record(cloud: Cloud, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    write_script(source)
    cloud.environment["DATABASE_PASSWORD"] = SECRET
    job = {"entry_script": str(source / "train.py"), "instance_type": "ml.m5.xlarge", "learning_rate": 0.5}

    done = cloud.run("train", **job, training_arguments={"epochs": 3, "end": "fails"}, max_runtime_minutes=5)

    assert done.code == 3
    assert "KeyError: 'test set'" in done.text
    run = cloud.the_run()
    assert run.info.status == "FAILED"
    texts = texts_of(run, cloud.client, tmp_path / "downloaded")
    check(run, cloud.client, texts, {"epochs": "3", "end": "fails"})
    assert "KeyError: 'test set'" in texts["traceback.txt"]


OUT_OF_MEMORY = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int)
parser.add_argument("--gradient_accumulation_steps", type=int)
given = parser.parse_args()
if given.batch_size > 4:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
print(f"steps: {given.gradient_accumulation_steps}\\nval_f1: {given.batch_size}")
"""


@pytest.mark.parametrize("spelling", ["entry_script", "project"])
def test_a_script_out_of_memory_runs_again_with_a_smaller_batch_however_it_is_named(
    folder: Path, spelling: str
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "train.py").write_text(OUT_OF_MEMORY)
    named = {"entry_script": "mine/train.py"}
    if spelling == "project":
        named = {"project": "mine", "entry_point": "train.py"}

    job = paretune.launch(paretune.JobSpec(**named, global_batch_size=16), quiet=True)

    assert job.metrics["val_f1"] == 4
    run = MlflowClient(mlflow.get_tracking_uri()).get_run(job.run_id)
    assert tags_of(run)["paretune.used_per_device_train_batch_size"] == "4"
    assert tags_of(run)["paretune.out_of_memory_retries"] == "2"


BARS = """
import warnings
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text

class Metrics(ProgressColumn):  # as Lightning's RichProgressBar has it: rich wraps its text at the terminal's width
    def render(self, task):
        scores = "val/loss: 0.001 val/acc: 1.000 val/acc_best: 1.000 train/loss: 0.011 train/acc: 0.998"
        return Text(f"v_num: 0.000 {scores}")

with Progress(TextColumn("Epoch 1/1"), BarColumn(40), TextColumn("16/16"), Metrics(), console=Console()) as bar:
    bar.add_task("", total=1, completed=1)
warnings.warn("loss is nan")
print("   | Name | Type               | Params\\n13 | acc  | MulticlassAccuracy | 0")
print("[LightGBM] [Info] Start training from score 0.5")
print(f"kpi={3}")
"""


def test_printed_values_have_their_own_names_and_nothing_else_becomes_a_metric(folder: Path) -> None:
    (folder / "bars.py").write_text(BARS)

    job = paretune.launch(paretune.JobSpec(entry_script="bars.py"), quiet=True)

    run = MlflowClient(mlflow.get_tracking_uri()).get_run(job.run_id)
    values = {
        "val/loss": 0.001,
        "val/acc": 1.0,
        "val/acc_best": 1.0,
        "train/loss": 0.011,
        "train/acc": 0.998,
        "kpi": 3.0,
    }
    assert {name: run.data.metrics[name] for name in run.data.metrics.keys() - OF_THE_JOB} == values


RESULT_FILES = """
import json
from pathlib import Path
def rows(path, *records):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.writelines(json.dumps(record) + "\\n" for record in records)
for iteration in (19, 39):  # detectron2's metrics.json: a line for each log, and one for each evaluation
    times = {"data_time": 0.01, "eta_seconds": 60.5, "time": 0.2, "lr": iteration / 1000}
    rows("output/metrics.json", {**times, "iteration": iteration, "total_loss": 40 / (iteration + 1)})
    rows("output/metrics.json", {"bbox/AP": iteration + 0.5, "iteration": iteration})
for step in (5, 10):  # LLaMA-Factory's trainer_log.jsonl
    progress = {"current_steps": step, "total_steps": 10, "percentage": 10.0 * step, "elapsed_time": "0:00:27"}
    rows("saves/trainer_log.jsonl", {**progress, "loss": 1 / step, "lr": 1e-5 * step, "epoch": step / 5})
rows("saves/trainer_log.jsonl", {**progress, "eval_loss": 0.25, "epoch": 2.0})
nested = {"val": {"f1": 0.5, "support": 12}, "test": {"f1": 0.75}, "config": {"loss_weight": 3, "error_rate": 0.1}}
Path("metrics.json").write_text(json.dumps(nested, indent=1))
"""


def test_metrics_are_read_from_detectron2_s_and_llama_factory_s_logs_and_from_nested_results(folder: Path) -> None:
    (folder / "results.py").write_text(RESULT_FILES)
    spec = paretune.JobSpec(entry_script="results.py")
    paretune.launch(spec, quiet=True)

    job = paretune.launch(spec, quiet=True)  # detectron2 and LLaMA-Factory append to the log of the first job

    client = MlflowClient(mlflow.get_tracking_uri())
    metrics = client.get_run(job.run_id).data.metrics
    values = {"total_loss": 1.0, "bbox/AP": 39.5, "loss": 0.1, "eval_loss": 0.25, "val/f1": 0.5, "test/f1": 0.75}
    values["lr"] = 0.039  # a rate that changes is a curve; of two files, that which is later in the list counts
    of_paretune = {name for name in metrics if name in OF_THE_JOB or name.startswith("estimated_")}
    assert {name: metrics[name] for name in metrics.keys() - of_paretune} == values
    curves = {"total_loss": {19: 2.0, 39: 1.0}, "bbox/AP": {19: 19.5, 39: 39.5}, "loss": {5: 0.2, 10: 0.1}}
    for name, curve in curves.items():
        points = client.get_metric_history(job.run_id, name)
        assert sorted({(point.step, point.value) for point in points}) == sorted(curve.items()), name


def test_epochs_that_stand_alone_on_a_line_are_steps_and_decimal_commas_are_read(folder: Path) -> None:
    (folder / "commas.py").write_text(
        "print(60000)\n"
        "for epoch in range(3):\n"
        "    print(epoch)\n"
        "    print(812 + epoch)\n"
        "    print('f1 0,9%d' % epoch, 'loss: %.1f' % (1 + epoch), sep='\\n')\n"
    )

    job = paretune.launch(paretune.JobSpec(entry_script="commas.py"), quiet=True)

    client = MlflowClient(mlflow.get_tracking_uri())
    assert {name: job.metrics[name] for name in ("f1", "loss")} == {"f1": 0.92, "loss": 3.0}
    for name, curve in {"f1": [0.9, 0.91, 0.92], "loss": [1.0, 2.0, 3.0]}.items():
        points = {point.step: point.value for point in client.get_metric_history(job.run_id, name)}
        assert points == dict(enumerate(curve))


BUILT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
rate = parser.parse_args().lr
for name in (chr(113) + "uo", chr(122) + "ebu"):
    print(name + "kka: %s" % (1 - rate))
"""


def test_a_printed_number_is_a_metric_if_the_command_names_it(folder: Path) -> None:
    (folder / "built.py").write_text(BUILT)

    assert main(["train", "built.py", "--metric", "quokka"]) == 0
    assert main(["train", "built.py"]) == 0

    client = MlflowClient(mlflow.get_tracking_uri())
    unnamed, named = client.search_runs(["0"])
    assert named.data.metrics["quokka"] == 0.9
    assert "zebukka" not in named.data.metrics
    assert "quokka" not in unnamed.data.metrics
    assert tags_of(named)["paretune.command"].endswith("--metric quokka")


def test_a_study_measures_a_printed_number_that_only_its_metric_names(folder: Path) -> None:
    (folder / "built.py").write_text(BUILT)
    (folder / "study.yaml").write_text(
        "name: built\nentry_script: built.py\nobjectives: {cost_usd: minimize, quokka: maximize}\n"
        "search: {lr: {choices: [0.1, 0.2]}}\nsampler: grid\nbudget_usd: 1\n"
    )

    assert main(["study", "study.yaml"]) == 0

    client = MlflowClient(mlflow.get_tracking_uri())
    trials = client.search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert {trial.data.metrics["quokka"] for trial in trials} == {0.9, 0.8}
