"""Scripts that fail in many ways: each shows its own last lines and the next step, and none of paretune's code."""

from pathlib import Path
from typing import Any

import pytest

import paretune
from paretune.core.errors import BadInput, JobFailed

pytestmark = pytest.mark.slow

NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22.06 GiB"
CHILD = "raise ValueError('12 of 30 words are missing')"
SCRIPTS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "missing file": (
        "print('reading settings')\nopen('settings/config.json')",
        {},
        "FileNotFoundError: [Errno 2] No such file or directory: 'settings/config.json' (looked in {folder})",
        "reading settings",
    ),
    "missing package": (
        "print('starting')\nimport no_such_package",
        {},
        "package no_such_package is missing where the job runs: install it for ",
        "ModuleNotFoundError: No module named 'no_such_package'",
    ),
    "out of memory": (
        f"print('epoch 1: loss 0.7')\nraise RuntimeError({NO_MEMORY!r})",
        {},
        "out of memory: reduce the memory that train.py needs, for example with a smaller batch, "
        "or use a larger instance",
        "epoch 1: loss 0.7",
    ),
    "exit code": (
        "raise SystemExit(3)",
        {},
        "train.py ended with exit code 3 without printing anything: check where it calls sys.exit",
        "",
    ),
    "signal": (
        "import os\nprint('epoch 1: loss 0.9', flush=True)\nos.kill(os.getpid(), 9)",
        {},
        "its process was killed by SIGKILL, usually because the machine ran out of memory: reduce its memory use",
        "epoch 1: loss 0.9",
    ),
    "child": (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}], check=True)",
        {},
        " ended with exit code 1: ValueError: 12 of 30 words are missing",
        'File "<string>", line 1, in <module>',
    ),
    "missing column": (
        "rows = [{'text': 'a', 'klass': '1'}]\nprint([row['label'] for row in rows])",
        {},
        "KeyError: 'label'",
        "line 2, in <module>",
    ),
    "keyboard": (
        "name = input('which data set? ')",
        {},
        "EOFError: EOF when reading a line (a job has no keyboard: let the script take an argument instead of calling",
        "which data set?",
    ),
    "bf16": (
        'raise ValueError("Your setup doesn\'t support bf16/gpu. You need to assign use_cpu.")',
        {},
        "You need to assign use_cpu. (the default of TRL's classes; give the job --precision fp32)",
        "line 1, in <module>",
    ),
    "endless": (
        "import time\nwhile True:\n    print('loss: 0.5', flush=True)\n    time.sleep(0.1)",
        {"max_runtime_minutes": 0.3},
        "it ran longer than 18.0 s: raise max_runtime_minutes, or train for fewer steps or rows",
        "loss: 0.5",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which contains its own paretune home and MLflow store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_fails_shows_its_own_last_lines_and_the_next_step(name: str, folder: Path) -> None:
    text, parameters, reason, line = SCRIPTS[name]
    Path("train.py").write_text(text)

    with pytest.raises(JobFailed) as failed:
        paretune.launch(paretune.JobSpec(entry_script="train.py", **parameters), quiet=True)

    first, *log = str(failed.value).splitlines()
    assert reason.format(folder=folder) in first
    assert line in "\n".join(log)
    assert not [each for each in log if "runpy" in each or f"{Path(paretune.__file__).parent}" in each]


@pytest.mark.parametrize(
    ("text", "arguments", "fault"),
    [
        ("def f(x)\n    pass", {}, "entry_script train.py, line 1: Python cannot read it: expected ':'"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()",
            {"learnin_rate": 1},
            "train.py has no argument learnin_rate: it has lr",
        ),
    ],
)
def test_a_script_that_cannot_run_is_refused_before_anything_starts(
    text: str, arguments: dict[str, Any], fault: str, folder: Path
) -> None:
    Path("train.py").write_text(text)

    with pytest.raises(BadInput) as refused:
        paretune.launch(paretune.JobSpec(entry_script="train.py", training_arguments=arguments), quiet=True)

    assert str(refused.value).startswith(fault)
    assert not (folder / ".paretune" / "jobs").exists()
