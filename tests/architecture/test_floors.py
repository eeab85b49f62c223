"""The floors of the house: which folder may import which, and which folder may open which door to the outside."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from paretune.launchers.archive import package_files

SOURCE = Path(__file__).parents[2] / "src"

FLOORS = (
    ("core",),
    ("storage", "specification", "presentation"),
    ("pricing", "tracking"),
    ("estimating",),
    ("training", "launchers", "models"),
    ("ledger", "projects"),
    ("jobs",),
    ("studies",),
    ("commands",),
    ("cli",),
)
"""The folders of the first level. A folder imports folders of earlier lines only."""

DOORS = {
    "mlflow": {"tracking", "projects", "commands"},
    "optuna": {"studies"},
    "pydoe": {"commands"},
    "formulaic": {"commands"},
    **{package: {"launchers"} for package in ("botocore", "sagemaker")},
    "alembic": {"storage", "ledger", "studies", "tracking"},
    "sqlalchemy": {"storage", "ledger", "studies", "tracking"},
    "boto3": {"launchers", "training"},  # the latter inside a job on SageMaker, whose image has it
    **{
        package: {"training"} for package in ("torch", "transformers", "datasets", "peft", "accelerate", "bitsandbytes")
    },
    "huggingface_hub": {"training", "models"},  # the latter for model cards
    "statsmodels": {"commands"},
    "mcp": {"commands"},
}
"""Package to the folders that may import it."""
FRAMES = {"paretune.core.result": {"pandas"}}
"""Module of the lower floors to what it imports when somebody asks for it: a result as a pandas frame."""
CLOSED_TO_TRAINING = {"launchers", "tracking", "projects", "ledger", "models", "jobs", "studies", "commands", "cli"}


@cache
def modules() -> dict[str, Path]:
    """Full name to file; a package has the name of its folder."""
    named = {}
    for path in sorted((SOURCE / "paretune").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def folder_of(name: str) -> str:
    """Folder of a module below `paretune`, such as `launchers.sagemaker`; empty for `paretune` itself."""
    return ".".join(modules()[name].relative_to(SOURCE / "paretune").parts[:-1])


@cache
def imports_of(name: str) -> frozenset[str]:
    """Full names of all that a module imports, at its top, inside functions and for type checkers alike."""
    result = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively in line {node.lineno}"
            base = node.module or ""
            # `from paretune.training import device` imports a module, `from paretune.core.clock import Clock` a name.
            result |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"__import__", "importlib.import_module"}:
            result |= {word.value for word in node.args if isinstance(word, ast.Constant)}
    return frozenset(result)


def folders_used() -> dict[str, set[str]]:
    """Folder to the other folders of paretune that its modules import."""
    used: dict[str, set[str]] = {}
    for name in modules():
        custom = {other for other in imports_of(name) if other in modules()}
        used.setdefault(folder_of(name), set()).update(folder_of(other) for other in custom)
    return {folder: others - {folder} for folder, others in used.items()}


def users_of(package: str) -> set[str]:
    """Top folders that import an outside package."""
    using = {name for name in modules() if any(other.partition(".")[0] == package for other in imports_of(name))}
    return {folder_of(name).partition(".")[0] for name in using}


def test_every_folder_of_the_first_level_has_a_floor() -> None:
    loose = {name for name in modules() if not folder_of(name)} - {"paretune", "paretune.__main__"}

    assert {folder_of(name).partition(".")[0] for name in modules()} - {""} == {name for row in FLOORS for name in row}
    assert not loose


def test_no_import_between_folders_runs_upwards() -> None:
    floor = {name: number for number, row in enumerate(FLOORS) for name in row}
    upwards = {
        f"{folder} imports {other}"
        for folder, others in folders_used().items()
        for inner, outer in ((folder.partition(".")[0], other.partition(".")[0]) for other in others)
        for other in (outer,)
        if inner and inner != outer and (not outer or floor[outer] >= floor[inner])
    }

    assert not upwards


def test_the_core_imports_no_command_and_commands_import_hardly_each_other() -> None:
    shared = "paretune.commands.command"  # what a command is
    commands = {name for name in modules() if name.startswith("paretune.commands.") and name != shared}
    between = {(name.split(".")[2], other.split(".")[2]) for name in commands for other in imports_of(name) & commands}

    allowed = {("report", "bill"), ("mcp", "estimate")}  # rates of the bill; agents ask for estimates
    assert {(command, other) for command, other in between if command != other} <= allowed


def test_the_walk_sees_imports_at_the_top_and_inside_functions() -> None:
    assert "paretune.specification.container" in imports_of("paretune.jobs.launch")
    assert "paretune.launchers.local" in imports_of("paretune.launchers.registry")  # inside a function
    assert "paretune.training.device" in imports_of("paretune.training.callback")  # from a package


def test_no_imports_run_in_a_circle() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        for other in sorted(imports_of(name) & set(modules())):
            visit(other, (*path, name))
        done.add(name)

    for name in modules():
        visit(name, ())


def test_a_door_to_the_outside_is_one_folder() -> None:
    for package, folders in DOORS.items():
        assert users_of(package) <= folders, package
    for package in ("mlflow", "optuna", "pydoe", "formulaic", "boto3", "torch", "transformers", "datasets", "peft"):
        assert users_of(package), f"nothing imports {package}: the test above could not fail"
    assert {folder_of(name) for name in modules() if "optuna" in imports_of(name)} == {"studies.search"}


def test_the_launching_wing_and_the_training_wing_meet_only_in_plain_values() -> None:
    used = folders_used()

    for folder, others in used.items():
        if folder.partition(".")[0] == "training":
            assert not {other.partition(".")[0] for other in others} & CLOSED_TO_TRAINING, folder
        else:
            assert not {other for other in others if other.partition(".")[0] == "training"}, folder


def test_what_travels_into_a_job_holds_all_that_it_imports() -> None:
    there = {path for path in package_files(SOURCE / "paretune").values() if path.suffix == ".py"}
    starts = ["paretune.training.__main__", "paretune.tracking.in_job"]
    needed: set[str] = set()
    while starts:
        name = starts.pop()
        needed.add(name)
        parents = {name.rpartition(".")[0], name.rpartition(".")[0].rpartition(".")[0]} & set(modules())
        imported = imports_of(name) if name != "paretune" else frozenset()  # its names are imported when they are used
        starts += sorted(((imported & set(modules())) | parents) - needed)

    assert not {name for name in needed if modules()[name] not in there}
    assert len(needed) > 20


def test_the_lower_floors_need_the_standard_library_only() -> None:
    for name in modules():
        if folder_of(name) in {"core", "specification"}:
            others = {other.partition(".")[0] for other in imports_of(name)} - sys.stdlib_module_names
            assert others <= {"paretune", *FRAMES.get(name, ())}, name


def run_python(program: str, folder: Path) -> str:
    """Output of a program in an empty current folder, which is its home too."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_and_launching_leave_torch_and_the_cloud_alone(tmp_path: Path) -> None:
    # boto3 is not among them: MLflow imports it with its SageMaker plugin.
    heavy = ["torch", "transformers", "datasets", "peft", "sagemaker", "optuna", "paretune.training"]
    output = run_python(
        "import sys, paretune.cli.main, paretune.jobs.launch, paretune.commands.mcp.front\n"
        "import paretune.launchers.local\n"
        f"print([name for name in {heavy} if name in sys.modules])",
        tmp_path,
    )

    assert output == "[]\n"


def test_help_and_bad_input_do_not_wait_for_mlflow(tmp_path: Path) -> None:
    output = run_python(
        "import sys, paretune.cli.main\n"
        "code = paretune.cli.main.main(['main', '--sed', '1'])\n"
        "print(code, 'mlflow' in sys.modules, 'matplotlib' in sys.modules)",
        tmp_path,
    )

    assert output == "2 False False\n"


@pytest.mark.slow
def test_importing_does_nothing_but_define(tmp_path: Path) -> None:
    names = [name for name in modules() if name != "paretune.training.__main__"]
    output = run_python(
        "import importlib, logging, os, signal, threading\n"
        "import mlflow, torch, transformers, datasets, peft, sklearn, pandas, tqdm, psutil  # the doors' own doings\n"
        "def state():\n"
        "    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]\n"
        "    return dict(os.environ), handlers, os.getcwd(), logging.root.level, threading.active_count(),"
        " torch.get_num_threads(), sorted(os.listdir('.'))\n"
        "import sys; sys.modules |= {'fcntl': None, 'resource': None}  # as on Windows\n"
        "before = state()\n"
        f"for name in {names}:\n"
        "    importlib.import_module(name)\n"
        "assert state() == before, (before, state())\n"
        "print('same')",
        tmp_path,
    )

    assert output == "same\n"


@pytest.mark.slow
def test_importing_the_launching_wing_writes_no_file(tmp_path: Path) -> None:
    launching = [name for name in modules() if not folder_of(name).startswith("training")]
    run_python(f"import importlib\nfor name in {launching}:\n    importlib.import_module(name)", tmp_path)

    assert list(tmp_path.iterdir()) == []
