"""A machine on which nothing of paretune is installed: `mlflow run` of a git address, and what `make demo` recommends.

`.ci/full fresh` makes an environment with only MLflow and uv, names its folder in PARETUNE_FRESH_MLFLOW, and runs these
tests, which download gigabytes. conda is not tried: MLflow gives it the same conda.yaml, whose last section it installs
with pip, as virtualenv does.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.support.processes import free_port, wait_until
from tests.support.sentences import sentences, write_csv

VARIABLE = "PARETUNE_FRESH_MLFLOW"
ROOT = Path(__file__).parents[2]
PYTORCH = "https://download.pytorch.org/whl/cpu/torch/"
OURS = ("PARETUNE_", "MLFLOW_", "HF_", "VIRTUAL_ENV", "CONDA_", "PYTHON", "PIP_REQUIRE_VIRTUALENV")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set: `.ci/full fresh` runs this"),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a git repository with the files that git tracks here, as they are now."""
    folder = tmp_path_factory.mktemp("git") / "paretune"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    environment = folder / "conda.yaml"
    text = environment.read_text()
    if wheels := os.environ.get("PIP_FIND_LINKS"):  # has PyTorch, whose own page may not be reachable
        text = text.replace(PYTORCH, wheels)
    if shutil.which("pyenv"):  # take a Python that is installed instead of building the newest one
        versions = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True).stdout
        installed = re.findall(r"^3\.11\.\d+$", versions, re.MULTILINE) or ["3.11"]
        text = text.replace("python=3.11", f"python={installed[-1]}")
    environment.write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet", "-b", "main"], ["add", "--all"], [*author, "commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def address(clone: Path) -> Iterator[str]:
    """Serve the repository with git's own protocol, and return its address: MLflow takes file:// for a folder."""
    port = free_port()
    words = ["git", "daemon", "--export-all", f"--base-path={clone.parent}", "--listen=127.0.0.1", f"--port={port}"]
    with subprocess.Popen([*words, "--reuseaddr"]) as server:
        result = f"git://127.0.0.1:{port}/{clone.name}"
        try:
            wait_until(lambda: answers(result), within_s=30, what="git daemon")
            yield result
        finally:
            server.terminate()


def answers(address: str) -> bool:
    return subprocess.run(["git", "ls-remote", address], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty home folder, in which MLflow keeps the environments that it makes."""
    return tmp_path_factory.mktemp("home")


class Machine:
    """A machine with an empty home and an empty current folder. `programs` come first on PATH."""

    def __init__(self, home: Path, folder: Path, programs: Path | None) -> None:
        self.folder = folder
        ours = str(Path(sys.executable).parent)
        paths = [path for path in os.environ["PATH"].split(os.pathsep) if path != ours]
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith(OURS)} | {
            "HOME": str(home),
            "PATH": os.pathsep.join([*([str(programs)] if programs else []), *paths]),
        }

    def paste(self, line: str, folder: Path | None = None) -> str:
        """Paste a command line into a shell, check that it succeeds, and return what it prints."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return done.stdout + done.stderr


@pytest.mark.parametrize("manager", ["uv", "virtualenv"])
def test_mlflow_run_of_a_git_address_trains_in_an_environment_of_mlflow(
    address: str, home: Path, tmp_path: Path, manager: str
) -> None:
    if manager == "virtualenv" and shutil.which("pyenv") is None:
        pytest.skip("MLflow makes environments of virtualenv with pyenv: install it, and put it on PATH")
    machine = Machine(home, tmp_path, Path(os.environ[VARIABLE]) / "bin")
    typed = f"mlflow run {address} --env-manager {manager} -P max_train_samples=64 -P max_eval_samples=32"

    assert "Fetched 'main' branch" in machine.paste(typed)

    (run,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.source.name"] == address
    assert {"f1", "cost_usd", "throughput_samples_per_second"} <= run.data.metrics.keys()
    # The printed command works in the shell where `mlflow run` was typed, in which paretune is not installed.
    line = re.search("to launch it: (.+)", machine.paste(f"{typed} -P dry_run=true"))
    assert line is not None
    assert "max_train_samples" in machine.paste(f"{line[1]} --dry_run")


def test_what_make_demo_recommends_works_where_it_was_typed(clone: Path, home: Path) -> None:
    machine = Machine(home, clone, None)
    write_csv(clone / "reviews.csv", sentences(120))

    printed = machine.paste("make demo")

    steps = [line.strip() for line in printed.partition("Next, try your own rows")[2].splitlines()[1:5]]
    assert steps[0].startswith("make venv ")
    assert [re.findall("-m paretune (\\w+)", step) for step in steps[1:]] == [["train"], ["estimate"], ["study"]]
    for step in steps:
        machine.paste(step)
