"""What imports do when they run. pyproject.toml says, for import-linter, which folder may import which."""

import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from paretune.launchers.archive import package_files

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "paretune").rglob("*.py")
)


def test_what_travels_into_a_job_holds_all_that_it_imports() -> None:
    graph = grimp.build_graph("paretune", cache_dir=None)
    starts = {"paretune.training.__main__"}
    needed = starts.union(*(graph.find_upstream_modules(start) for start in starts))
    there = {name.removesuffix(".py").replace("/", ".") for name in package_files(SOURCE / "paretune")}

    assert needed <= {name.removesuffix(".__init__") for name in there}
    assert len(needed) > 20


def test_the_lowest_folder_needs_the_standard_library_only(tmp_path: Path) -> None:
    lowest = [name for name in MODULES if name.startswith("paretune.core")]

    run_python(f"import sys; sys.path = [{str(SOURCE)!r}, *sys.path]; import {', '.join(lowest)}", tmp_path, "-I", "-S")


def run_python(program: str, folder: Path, *options: str) -> str:
    """Return the output of a program in an empty current folder, which is also its home."""
    done = subprocess.run(
        [sys.executable, *options, "-W", "ignore", "-c", program],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bad_input_does_not_wait_for_mlflow_nor_launching_for_torch_and_the_cloud(tmp_path: Path) -> None:
    # boto3 is not among them, because MLflow imports it with its SageMaker plugin.
    heavy = ["torch", "transformers", "datasets", "peft", "sagemaker", "optuna", "paretune.training"]
    output = run_python(
        "import sys, paretune.cli\n"
        "code = paretune.cli.main(['main', '--sed', '1'])\n"
        "print(code, 'mlflow' in sys.modules, 'matplotlib' in sys.modules)\n"
        "import paretune.jobs.launch, paretune.studies.recorded_front, paretune.launchers.local\n"
        f"print([name for name in {heavy} if name in sys.modules])",
        tmp_path,
    )

    assert output == "2 False False\n[]\n"


def test_looking_for_the_model_of_a_script_waits_for_no_library(tmp_path: Path) -> None:
    output = run_python(
        "import sys\nfrom pathlib import Path\nfrom paretune.training.mlflow_model import describe\n"
        "print(describe(Path()))\nprint([name for name in ('pydantic', 'yaml', 'numpy') if name in sys.modules])",
        tmp_path,
    )

    assert output == "no config.json of a Hugging Face model\n[]\n"


@pytest.mark.slow
def test_importing_does_nothing_but_define(tmp_path: Path) -> None:
    scripts = {"paretune.training.__main__"}
    names = [name for name in MODULES if name not in scripts]
    output = run_python(
        "import importlib, logging, os, signal, threading\n"
        "import mlflow, torch, transformers, datasets, peft, sklearn, pandas, tqdm, psutil  # their own side effects\n"
        "def state():\n"
        "    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]\n"
        "    return dict(os.environ), handlers, os.getcwd(), logging.root.level, threading.active_count(),"
        " torch.get_num_threads(), sorted(os.listdir('.'))\n"
        "before = state()\n"
        f"for name in {names}:\n"
        "    importlib.import_module(name)\n"
        "assert state() == before, (before, state())\n"
        "print('same')",
        tmp_path,
    )

    assert output == "same\n"
