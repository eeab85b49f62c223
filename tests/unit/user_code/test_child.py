"""A user's own script, run as its job runs it: what is read from its output, how it ends, and what remains of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paretune.launchers.job_folder import fill
from paretune.launchers.offers import order_of
from paretune.specification.container import EventReader, JobFolder, JobReport, measurements_of, read_event
from paretune.specification.ending import Cause, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Limits
from paretune.user_code import script_metrics
from paretune.user_code.runner import COMMAND, LOG, TRACEBACK, VERSIONS, Events, Output, TrainerLog, trim_model_folder
from paretune.user_code.script_metrics import STORE, PrintedNumbers, ProgressReader, read_curves
from tests.support.bound_scripts import script_inputs
from tests.support.processes import wait_until


class Run:
    """A script in the folder of its job."""

    def __init__(self, folder: Path, text: str, *, deadline_s: float | None = None, **given: Any) -> None:
        self.folder, self.script, self.printed = JobFolder(folder / "ml"), folder / "train.py", ""
        self.script.write_text(text)
        spec = JobSpec(entry_script=str(self.script), **given)
        limits = Limits(max_seconds=3600.0, deadline_s=deadline_s)
        order = order_of(spec, job_name="job", limits=limits, inputs=script_inputs(spec))
        paths = {"checkpoints": folder / "checkpoints", "path": os.environ["PATH"]}
        self._command = fill(self.folder, order, gpus=0, cores=1, **paths)
        self._cwd = folder

    def start(self) -> "subprocess.Popen[str]":
        given = {name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW_", "COLUMNS"))}
        environment = {**given, **self._command.variables, "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            self._command.words,
            env=environment,
            cwd=self._cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def end(self) -> "Run":
        process = self.start()
        self.printed, _ = process.communicate(timeout=120)
        self.code = process.returncode
        return self

    @property
    def report(self) -> JobReport:
        report = JobReport.read_json(self.folder.report.read_bytes())
        assert report is not None
        return report

    @property
    def partial(self) -> JobReport:
        assert not self.folder.report.exists()
        report = JobReport.read_json(self.folder.partial.read_bytes())
        assert report is not None
        return report

    def record(self, name: str) -> str:
        return (self.folder.report.parent / STORE / name).read_text()


def test_dictionaries_of_a_trainer_are_events_under_their_own_names_with_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    output = Output(
        tmp_path / "log.txt",
        PrintedNumbers(),
        TrainerLog(10, script_metrics),
        [],
        ProgressReader(),
        Events(path, "paretune-a-1"),
    )
    for entry in (
        {"loss": "0.6931", "learning_rate": "5e-05", "epoch": "0.5"},
        {"loss": float("nan"), "epoch": 1.0},
        {"eval_loss": "0.5", "eval_f1": "0.75", "epoch": "1.25"},
        {"loss": 0.25, "epoch": 1.5},
        {"train_runtime": 3.0},
    ):
        output.take(f"{entry}\n".encode())
    output.finish()

    written = list(EventReader(path).new())
    assert measurements_of(written, "paretune-a-1") == written
    assert [(event.step, event.metrics) for event in written] == [
        (10, {"loss": 0.6931}),
        (25, {"eval_loss": 0.5, "eval_f1": 0.75}),
        (30, {"loss": 0.25}),
    ]


def test_an_event_that_a_script_with_a_trainer_prints_measures_nothing(tmp_path: Path) -> None:
    shouted = json.dumps({"time": 1.0, "step": 1, "metrics": {"val_f1": 0.99}, "message": "paid twice"})
    lines = [str({"loss": "0.6931", "epoch": "0.5"}), shouted, "val_f1: 0.5"]
    run = Run(tmp_path, "\n".join(f"print({line!r})" for line in lines))
    document = json.loads(run.folder.document.read_text())
    document["command"]["logging_steps"] = 10
    run.folder.document.write_text(json.dumps(document))

    run.end()

    written, printed = (
        list(EventReader(run.folder.events).new()),
        [*filter(None, map(read_event, run.printed.split("\n")))],
    )
    for events in (written, printed):
        (event,) = measurements_of(events, "job")
        assert (event.step, event.metrics, event.message) == (10, {"loss": 0.6931}, "")
    assert run.report.metrics["val_f1"] == 0.5


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
def test_the_report_says_whether_mlflow_can_load_what_a_script_has_left(tmp_path: Path, left: str, fault: str) -> None:
    leave = f"pathlib.Path(os.environ['SM_MODEL_DIR'], {left!r}).touch()"

    run = Run(tmp_path, f"import os, pathlib\n{leave}\nprint('f1: nan')").end()

    assert run.report.model_fault == fault
    assert run.report.not_finite == ("f1",)
    assert not list(tmp_path.rglob("mlflow.db")), "a script that logs nothing to MLflow needs no store"


def test_a_script_logs_into_the_folder_of_its_job_and_what_it_writes_elsewhere_is_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.json").write_text('{"f1": 0.1}')  # from another job in this folder
    text = (
        "import argparse, json, os, pathlib\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--alpha', type=float, default=1)\n"
        "args = parser.parse_args()\nprint('alpha:', args.alpha)\n"
        "for epoch in range(3):\n    print(f'INFO:root:epoch {epoch}: val acc {25 * epoch}%')\n"
        "pathlib.Path('out').mkdir()\n"
        "with open('out/all_results.json', 'w') as file:\n    json.dump({'f1': 0.5}, file)\n"
        "print('alpha:', args.alpha, os.environ['MLFLOW_TRACKING_URI'], os.environ['WANDB_MODE'])\n"
        "print('uri is inside:', float(os.environ['WANDB_DIR'] in os.environ['MLFLOW_TRACKING_URI']))\n"
        "print('columns:', os.environ['COLUMNS'])\n"
    )

    run = Run(tmp_path, text, training_arguments={"alpha": 0.5}).end()

    assert run.report.metrics == {"f1": 0.5, "val_acc": 0.5, "uri_is_inside": 1.0, "columns": 400.0}
    assert run.report.facts["metrics_from"] == (
        "printed: columns, uri_is_inside; out/all_results.json: f1; printed in percent and recorded as a share: val_acc"
    )
    curve = read_curves(run.folder.report.parent / STORE)["val_acc"]
    assert [point[::2] for point in curve] == [(0, 0), (1, 0.25), (2, 0.5)]
    assert run.record(COMMAND).strip() == f"python {run.script} --alpha 0.5"
    assert "python==3" in run.record(VERSIONS)
    assert "alpha: 0.5\n" in run.record(LOG)


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
def test_a_metric_counts_however_its_line_ends(tmp_path: Path, text: str) -> None:
    assert Run(tmp_path, text).end().report.metrics == {"val_f1": 0.91}


def test_threads_and_exit_handlers_of_a_script_run_to_their_end(tmp_path: Path) -> None:
    text = (
        "import atexit, threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "def finish():\n    threading.main_thread().join()\n    print('best_f1: 0.95')\n"
        "threading.Thread(target=finish).start()\n"
        "ThreadPoolExecutor().submit(print)\n"  # leaves a thread that waits for work
        "atexit.register(print, 'val_f1: 0.91')\n"
    )

    assert Run(tmp_path, text).end().report.metrics == {"best_f1": 0.95, "val_f1": 0.91}


@pytest.mark.parametrize("status", [0, 3])
def test_a_script_that_leaves_python_at_once_after_its_work_keeps_its_metrics(tmp_path: Path, status: int) -> None:
    forked = "import os\nif os.fork() == 0: os._exit(0)\nos.wait()\n"

    run = Run(tmp_path, f"{forked}print('val_f1: 0.9')\nprint('acc: 0.5', end='')\nos._exit({status})").end()

    assert run.code == status
    assert (run.report if status == 0 else run.partial).metrics["val_f1"] == 0.9
    assert status or run.report.metrics["acc"] == 0.5


def test_a_failed_script_ends_soon_even_if_its_threads_do_not(tmp_path: Path) -> None:
    text = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n1 / 0\n"

    run = Run(tmp_path, text).end()

    assert run.code == 1
    assert run.folder.read_failure() == failed(Cause.ERROR, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise ValueError('no test set')", "ValueError: no test set"),
        ("import sys; sys.exit(7)", "train.py ended with exit code 7"),
        ("import os; os._exit(3)", "train.py ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", ""),  # the launcher says so
    ],
)
def test_a_job_that_fails_after_its_training_keeps_its_metrics_and_curves(
    tmp_path: Path, end: str, reason: str
) -> None:
    text = f"for epoch in range(3):\n    print(f'epoch {{epoch}}: val_f1: {{epoch / 4}}', flush=True)\n{end}\n"

    run = Run(tmp_path, text).end()

    assert run.code != 0
    failure = run.folder.read_failure()
    assert (failure.sentence if failure else "").startswith(reason)
    assert run.partial.metrics == {"val_f1": 0.5}
    curve = read_curves(run.folder.report.parent / STORE)["val_f1"]
    assert [(point.step, point.value) for point in curve] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert "val_f1: 0.5" in run.record(LOG)


@pytest.mark.parametrize("deadline_s", [None, 4.0])
def test_a_job_that_is_stopped_or_meets_its_deadline_keeps_its_metrics_and_curves(
    tmp_path: Path, deadline_s: float | None
) -> None:
    text = (
        "import pathlib, time\n"
        "for epoch in range(3):\n    print(f'epoch {epoch}: val_f1: {epoch / 4}')\n"
        "pathlib.Path('trained').touch()\ntime.sleep(600)\n"
    )
    run = Run(tmp_path, text, deadline_s=deadline_s)

    process = run.start()
    wait_until((tmp_path / "trained").exists, within_s=60, what="the script has trained")
    if deadline_s is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGTERM
    assert run.partial.metrics == {"val_f1": 0.5}
    assert len(read_curves(run.folder.report.parent / STORE)["val_f1"]) == 3


@pytest.mark.parametrize(
    ("text", "cause", "sentence"),
    [
        ("raise RuntimeError('CUDA out of memory. Tried')", Cause.OUT_OF_MEMORY, "CUDA out of memory. Tried"),
        ("raise MemoryError", Cause.OUT_OF_MEMORY, "MemoryError"),
        ("import no_such_package", Cause.CODE, "package no_such_package is missing where the job runs: in"),
        ("raise OSError(28, 'No space left on device')", Cause.DISK_FULL, "the disk is full: [Errno 28]"),
        (
            "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('bad rows') from error",
            Cause.CODE,
            "ValueError: bad rows, because of KeyError: 'a'",
        ),
    ],
)
def test_the_reason_of_a_failure_is_the_exception_with_its_cause(
    tmp_path: Path, text: str, cause: Cause, sentence: str
) -> None:
    run = Run(tmp_path, f"print('starting')\n{text}\n").end()

    failure = run.folder.read_failure()
    assert failure is not None
    assert (failure.cause, failure.sentence[: len(sentence)]) == (cause, sentence)
    assert run.record(TRACEBACK).startswith("Traceback (most recent call last):\n  File ")
    assert "runpy" not in run.record(TRACEBACK)


@pytest.mark.parametrize(
    ("deadline_s", "remedy"),
    [
        (None, f"install it for {sys.executable}"),
        (600.0, "or set sagemaker.training_image to an image that has it"),
    ],
    ids=["a cluster's nodes", "SageMaker"],
)
def test_a_package_that_an_instance_lacks_is_installed_or_listed(
    tmp_path: Path, deadline_s: float | None, remedy: str
) -> None:
    failure = Run(tmp_path, "import no_such_package", deadline_s=deadline_s).end().folder.read_failure()

    assert failure is not None
    assert failure.sentence.endswith(remedy)


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
        (
            "import traceback\ntry:\n    {}['rate']\nexcept KeyError:\n    traceback.print_exc()\n"
            "print('\\nSet the environment variable FULL_ERROR=1 for a complete stack trace.')\nsys.exit(1)",
            "exit code 1: KeyError: 'rate'",
        ),
        (
            "print('ERROR: Cannot find key: --n_samples')\nprint('Usage: train.py')\nprint('  train.py --help')\n"
            "sys.exit(2)",
            "Cannot find key: --n_samples",
        ),
    ],
)
def test_a_script_that_ends_itself_is_quoted_with_what_it_printed_about_that(
    tmp_path: Path, text: str, reason: str
) -> None:
    run = Run(tmp_path, f"import sys\n{text}\n").end()

    failure = run.folder.read_failure()
    assert failure is not None
    sentence = failure.sentence
    assert sentence.startswith("train.py ended with exit code ")
    assert reason in sentence
    assert ("--ask_script true" in sentence) is ("No such option" in text or "Cannot find key" in text)


def test_the_traceback_of_a_script_begins_at_its_own_first_line(tmp_path: Path) -> None:
    run = Run(tmp_path, "def f():\n    return {}['lr']\nf()\n").end()

    assert run.folder.read_failure() == failed(Cause.CODE, "KeyError: 'lr'")
    assert 'train.py", line 3' in run.printed
    assert "runpy" not in run.printed


def test_a_script_may_have_a_module_named_as_one_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "code_errors.py").write_text("ERRORS_IN_CODE = ()\nRATES = {}\n")

    run = Run(tmp_path, "from code_errors import RATES\nRATES['lr']\n").end()

    assert run.folder.read_failure() == failed(Cause.CODE, "KeyError: 'lr'")


@pytest.mark.trains  # needs torchrun
def test_of_several_processes_the_first_one_is_recorded_and_all_are_in_the_log(tmp_path: Path) -> None:
    text = "import os\nprint(f\"rank {os.environ['RANK']} is here\")\nprint(f\"val_f1: 0.{os.environ['RANK']}5\")\n"

    run = Run(tmp_path, text, instance_count=2).end()

    assert run.code == 0
    assert run.report.metrics == {"val_f1": 0.05}
    assert "rank 0 is here" in run.printed
    assert "rank 1 is here" in run.printed  # maybe on the same line: two processes write at the same moment


def test_a_log_that_is_too_long_keeps_its_begin_and_its_end(tmp_path: Path) -> None:
    output = Output(tmp_path / "log.txt", PrintedNumbers(), None, [], ProgressReader(), None)
    for number in range(140):
        output.take(f"{number} {'x' * 50_000}\n".encode())
    output.finish()

    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[0].startswith("0 x")
    assert lines[-1].startswith("139 x")
    assert any(line.endswith(" bytes are left out here ...") for line in lines)
    assert (tmp_path / "log.txt").stat().st_size < 5_100_000


def test_a_secret_is_masked_in_what_the_job_keeps(tmp_path: Path) -> None:
    output = Output(tmp_path / "log.txt", PrintedNumbers(), None, [b"hush-hush"], ProgressReader(), None)
    output.take(b"token=hush-hush\n")
    output.finish()

    assert (tmp_path / "log.txt").read_text() == "token=...\n"
    assert output.masked("raise ValueError('hush-hush')") == "raise ValueError('...')"


def test_a_completed_training_has_a_report_even_if_a_part_of_it_cannot_be_written(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        "import os, pathlib\n"
        "data = pathlib.Path(os.environ['WANDB_DIR'])\n"
        "(data / 'paretune' / 'curves.jsonl').mkdir()\n"  # nothing can be written there
        "pathlib.Path('model.pt').write_text('weights')\n"
        "print('epoch 1 val_f1: 0.8'); print('epoch 2 val_f1: 0.9')\n",
    ).end()

    assert run.code == 0
    assert run.report.metrics == {"val_f1": 0.9}
    assert "curves.jsonl" in run.report.facts["metrics_fault"]
    assert run.report.facts["models"] == "model.pt (7 bytes)"


def test_the_reason_of_torchrun_is_the_exception_above_what_it_prints_itself(tmp_path: Path) -> None:
    footer = [
        "E1201 15:56:52.974000 218 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 2)",
        "Traceback (most recent call last):",
        '  File "/env/bin/torchrun", line 10, in <module>',
        "    sys.exit(main())",
        '  File "/env/site-packages/torch/distributed/run.py", line 1028, in main',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        "============================================================",
    ]
    for line in ("/env/bin/python: can't open file 'main.py': [Errno 2] No such file", "ValueError: no rows"):
        output = Output(tmp_path / "log.txt", PrintedNumbers(), None, [], ProgressReader(), None)
        output.take("\n".join(["epoch 1", line, *footer, ""]).encode())
        output.finish()
        assert output.reason() == line
