"""A user's own script: what is read from its output, and what remains of its model; tests/foreign run such scripts."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paretune.core import watchdog
from paretune.core.script_metrics import STORE, PrintedNumbers, read_curves
from paretune.specification.container import EventReader, JobDocument, JobFolder, JobReport, write_json
from paretune.specification.job import JobSpec
from paretune.training.__main__ import main
from paretune.training.meter import EventWriter
from paretune.training.script import PrintedMetrics, run_script, trim_model_folder


@pytest.fixture(autouse=True)
def this_process_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the threads and exit handlers of this process, which runs scripts as if it were a job's process."""
    monkeypatch.setattr("threading._shutdown", lambda: None)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: None)


def test_printed_dictionaries_of_texts_become_curves(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    output, events = PrintedMetrics(io.StringIO(), EventWriter(path), PrintedNumbers()), EventReader(path)

    print({"loss": "0.6931", "learning_rate": "5e-05", "epoch": "0.5"}, file=output)
    print({"eval_loss": "0.5", "eval_f1": "0.75", "epoch": "0.5"}, file=output)
    print({"loss": float("nan"), "epoch": 0.75}, file=output)
    print({"loss": 0.25, "epoch": 1.0}, file=output)

    assert [(event.step, event.metrics) for event in events.new()] == [
        (10, {"train/loss": 0.6931, "train/learning_rate": 5e-05, "train/epoch": 0.5}),
        (10, {"eval/loss": 0.5, "eval/f1": 0.75, "eval/epoch": 0.5}),
        (20, {"train/epoch": 0.75}),
        (30, {"train/loss": 0.25, "train/epoch": 1.0}),
    ]


@pytest.mark.parametrize(("weights", "left"), [("model.safetensors", []), ("training_args.bin", ["checkpoint-20"])])
def test_checkpoints_of_a_script_do_not_travel_as_its_model(tmp_path: Path, weights: str, left: list[str]) -> None:
    for name in ("checkpoint-3", "checkpoint-20", "checkpoint-of-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / weights).touch()

    trim_model_folder(tmp_path)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(["checkpoint-of-mine", weights, *left])


@pytest.mark.parametrize(
    ("left", "fault"),
    [
        ("MLmodel", "its MLmodel has no flavor python_function"),
        ("weights.npz", "no config.json of a Hugging Face model"),
    ],
)
def test_the_report_says_whether_mlflow_can_load_what_a_script_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, fault: str
) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    leave = f"pathlib.Path({str(folder.model)!r}, {left!r}).touch()"
    script.write_text(f"import mlflow, pathlib\n{leave}\nprint('f1: nan')")
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))

    run_script(JobDocument.first("job", JobSpec(entry_script=str(script))), folder)

    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    assert report.model_fault == fault
    assert report.not_finite == ("f1",)
    assert not list(tmp_path.rglob("mlflow.db")), "a script that logs nothing to MLflow needs no store"


def test_a_script_logs_into_the_folder_of_its_job_and_what_it_writes_elsewhere_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.json").write_text('{"f1": 0.1}')  # from another job in this folder
    script.write_text(
        "import argparse, json, os, pathlib\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--alpha', type=float, default=1)\n"
        "args = parser.parse_args()\nprint('alpha:', args.alpha)\n"
        "for epoch in range(3):\n    print(f'INFO:root:epoch {epoch}: val acc {25 * epoch}%')\n"
        "pathlib.Path('out').mkdir()\n"
        "with open('out/all_results.json', 'w') as file:\n    json.dump({'f1': 0.5}, file)\n"
        "print('alpha:', args.alpha, os.environ['MLFLOW_TRACKING_URI'], os.environ['WANDB_MODE'])\n"
        "print('uri is inside:', float(os.environ['WANDB_DIR'] in os.environ['MLFLOW_TRACKING_URI']))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))
    spec = JobSpec(entry_script=str(script), training_arguments={"alpha": 0.5})

    run_script(JobDocument.first("job", spec), folder)

    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    assert report.metrics == {"f1": 0.5, "val_acc": 0.5, "uri_is_inside": 1.0}
    assert report.facts["metrics_from"] == (
        "out/all_results.json: f1; printed: uri_is_inside; printed in percent and recorded as a share: val_acc"
    )
    assert [point[::2] for point in read_curves(folder.report.parent / STORE)["val_acc"]] == [
        (0, 0),
        (1, 0.25),
        (2, 0.5),
    ]
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_files_of_runs_on_an_instance_go_to_the_results_also_if_another_process_starts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text("print('f1: 0.5')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))
    document = replace(JobDocument.first("job", JobSpec(entry_script=str(script))), deadline_s=600)

    for rank in "20":
        monkeypatch.setenv("RANK", rank)
        run_script(document, folder)

    assert Path("mlruns").resolve() == folder.report.parent.resolve() / STORE / "mlruns"


@pytest.mark.parametrize(
    "text",
    [
        "print('val_f1: 0.91', end='')",
        "for f1 in (0.5, 0.91):\n    print(f'val_f1: {f1}', end='\\r')",
        "for f1 in (0.5, 0.91):\n    print(f'val_f1: {f1}', end='\\r')\nprint('done')",
        "import sys\nsys.stdout.writelines(['epoch 1\\n', 'val_f1: 0.91\\n'])",
        "import sys\nsys.stderr.write('val_f1: 0.91')\nsys.exit()",
    ],
)
def test_a_metric_counts_however_its_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text(text)
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))

    run_script(JobDocument.first("job", JobSpec(entry_script=str(script))), folder)

    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    assert report.metrics == {"val_f1": 0.91}


def test_threads_and_exit_handlers_of_a_script_run_to_their_end(tmp_path: Path) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text(
        "import atexit, threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "def finish():\n    threading.main_thread().join()\n    print('best_f1: 0.95')\n"
        "threading.Thread(target=finish).start()\n"
        "ThreadPoolExecutor().submit(print)\n"  # leaves a thread that waits for work
        "atexit.register(print, 'val_f1: 0.91')\n"
    )
    write_json(folder.document, JobDocument.first("job", JobSpec(entry_script=str(script))).as_json())

    subprocess.run([sys.executable, "-m", "paretune.training", str(folder.root)], check=True, timeout=120)

    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    assert report.metrics == {"best_f1": 0.95, "val_f1": 0.91}


@pytest.mark.parametrize(("status", "value"), [(0, 0.9), (3, None)])
def test_a_script_that_leaves_python_at_once_after_its_work_keeps_its_metrics(
    tmp_path: Path, status: int, value: float | None
) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    forked = "import os\nif os.fork() == 0: os._exit(0)\nos.wait()\n"
    script.write_text(f"{forked}print('val_f1: 0.9')\nprint('acc: 0.5', end='')\nos._exit({status})")
    write_json(folder.document, JobDocument.first("job", JobSpec(entry_script=str(script))).as_json())

    words = [sys.executable, "-m", "paretune.training", str(folder.root)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=tmp_path)

    assert done.returncode == status, done.stderr
    report = JobReport.read_json(folder.report.read_bytes()) if folder.report.is_file() else None
    assert (report and report.metrics) == (value and {"val_f1": 0.9, "acc": 0.5})


def test_a_failed_script_ends_at_once_even_if_its_threads_do_not(tmp_path: Path) -> None:
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text("import threading\nthreading.Thread(target=threading.Event().wait).start()\n1 / 0\n")
    write_json(folder.document, JobDocument.first("job", JobSpec(entry_script=str(script))).as_json())

    done = subprocess.run([sys.executable, "-m", "paretune.training", str(folder.root)], check=False, timeout=120)

    assert done.returncode != 0
    assert "ZeroDivisionError" in folder.failure.read_text()


BOX = "╭─ Error ─╮\n│ No such option: --learning_rate Did you │\n│ mean --learning-rate? │\n╰─────────╯"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"print({BOX!r}, file=sys.stderr)\nsys.exit(2)",
            "No such option: --learning_rate Did you mean --learning-rate?",
        ),
        ("print('wrong key', file=sys.stderr)\nprint(file=sys.stderr)\nsys.exit(3)", "exit code 3: wrong key"),
        ("sys.stderr.write('wrong key')\nsys.exit(3)", "exit code 3: wrong key"),
        ("sys.exit('no data here')", "exit code 1: no data here"),
    ],
)
def test_a_script_that_ends_itself_is_quoted_with_its_own_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    folder, printed = run_as_a_job(tmp_path, monkeypatch, capsys, f"import sys\n{text}\n")

    _, sentence = folder.read_failure() or (None, "")
    assert sentence.startswith("train.py ended with exit code ")
    assert reason in sentence
    assert ("--ask_script true" in sentence) is ("No such option" in text)
    assert "Traceback" not in printed


def test_the_traceback_of_a_script_begins_at_its_own_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, printed = run_as_a_job(tmp_path, monkeypatch, capsys, "def f():\n    return {}['lr']\nf()\n")

    assert (folder.read_failure() or (None, ""))[1] == "KeyError: 'lr'"
    assert 'train.py", line 3' in printed
    assert "runpy" not in printed
    assert "paretune" not in printed.partition("train.py")[0]


def run_as_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> tuple[JobFolder, str]:
    """Run a failing script as the process of a job does, and return the job's folder and what it has printed."""
    folder, script = JobFolder(tmp_path / "ml"), tmp_path / "train.py"
    folder.make()
    script.write_text(text)
    write_json(folder.document, JobDocument.first("job", JobSpec(entry_script=str(script))).as_json())
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr(watchdog, "end_with", lambda *_: None)
    monkeypatch.setattr(watchdog, "watch", lambda *_: None)
    assert main(folder) == 1
    out, err = capsys.readouterr()
    return folder, out + err
