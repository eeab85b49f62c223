"""The floors of the house: who may import whom, and who may open which door to the outside."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

FLOORS = {
    "paretune": 0,
    "paretune.studies": 0,
    "paretune.replay": 0,
    "paretune.pricing": 0,
    "paretune.estimating": 0,
    "paretune.errors": 1,
    "paretune.clock": 1,
    "paretune.replay.virtual_clock": 1,
    "paretune.interruption": 1,
    "paretune.batch_size": 2,
    "paretune.parameters": 2,
    "paretune.catalog": 2,
    "paretune.pricing.prices": 2,
    "paretune.pricing.cache": 2,
    "paretune.pricing.regions": 2,
    "paretune.text_table": 2,
    "paretune.cluster": 2,
    "paretune.replay.simulation": 2,
    "paretune.replay.log_grid": 2,
    "paretune.spec": 2,
    "paretune.strategy_rules": 2,
    "paretune.estimating.architecture": 2,
    "paretune.estimating.hardware": 2,
    "paretune.estimating.workload": 2,
    "paretune.metrics": 2,
    "paretune.estimating.posterior": 3,
    "paretune.estimating.timing": 3,
    "paretune.estimating.memory": 3,
    "paretune.pareto": 3,
    "paretune.studies.trials": 3,
    "paretune.studies.ledger": 4,
    "paretune.studies.ledger_tables": 4,
    "paretune.studies.early_stopping": 3,
    "paretune.studies.hypervolume": 3,
    "paretune.studies.noise": 3,
    "paretune.studies.quantities": 3,
    "paretune.studies.importance": 3,
    "paretune.estimating.setting": 3,
    "paretune.studies.yaml": 3,
    "paretune.studies.space": 3,
    "paretune.studies.objectives": 3,
    "paretune.studies.rules": 3,
    "paretune.studies.reading": 3,
    "paretune.studies.file": 3,
    "paretune.container": 3,
    "paretune.replay.run_table": 3,
    "paretune.replay.import_request": 3,
    "paretune.replay.run_lookup": 3,
    "paretune.replay.recorded_runs": 3,
    "paretune.tracking": 3,
    "paretune.tracking.run": 3,
    "paretune.tracking.store": 3,
    "paretune.figures": 3,
    "paretune.launchers": 4,
    "paretune.launchers.base": 4,
    "paretune.launchers.choice": 4,
    "paretune.launchers.local": 4,
    "paretune.launchers.processes": 4,
    "paretune.launchers.simulated": 4,
    "paretune.launchers.simulated.course": 4,
    "paretune.launchers.simulated.launcher": 4,
    "paretune.launchers.simulated.timeline": 4,
    "paretune.launchers.sagemaker": 4,
    "paretune.launchers.sagemaker.account": 4,
    "paretune.launchers.sagemaker.archive": 4,
    "paretune.launchers.sagemaker.images": 4,
    "paretune.launchers.sagemaker.jobs": 4,
    "paretune.launchers.sagemaker.launcher": 4,
    "paretune.launchers.sagemaker.logs": 4,
    "paretune.launchers.sagemaker.polling": 4,
    "paretune.launchers.sagemaker.preflight": 4,
    "paretune.launchers.sagemaker.price_list": 4,
    "paretune.launchers.sagemaker.request": 4,
    "paretune.launchers.sagemaker.staging": 4,
    "paretune.launchers.sagemaker.trouble": 4,
    "paretune.training": 4,
    "paretune.training.__main__": 4,
    "paretune.training.baselines": 4,
    "paretune.training.batches": 4,
    "paretune.training.checkpoints": 4,
    "paretune.training.data": 4,
    "paretune.training.device": 4,
    "paretune.training.embedded": 4,
    "paretune.training.hub": 4,
    "paretune.training.lifeline": 4,
    "paretune.training.loop": 4,
    "paretune.training.model": 4,
    "paretune.training.prepare": 4,
    "paretune.training.recorder": 4,
    "paretune.training.rendezvous": 4,
    "paretune.training.script": 4,
    "paretune.training.sharding": 4,
    "paretune.training.sources": 4,
    "paretune.training.strategies": 4,
    "paretune.training.trainer": 4,
    "paretune.training.vocabulary": 4,
    "paretune.estimating.evidence": 4,
    "paretune.estimating.estimates": 4,
    "paretune.estimating.rehearsal": 4,
    "paretune.estimating.forecast": 4,
    "paretune.estimating.hub_config": 4,
    "paretune.estimating.request": 4,
    "paretune.studies.points": 4,
    "paretune.studies.front": 4,
    "paretune.studies.payoff": 4,
    "paretune.studies.recommendation": 4,
    "paretune.studies.stopping": 5,
    "paretune.studies.table": 4,
    "paretune.studies.figures": 4,
    "paretune.studies.pictures": 4,
    "paretune.studies.page": 4,
    "paretune.estimating.table": 5,
    "paretune.studies.answer": 5,
    "paretune.estimating.probing": 6,
    "paretune.prepared": 4,
    "paretune.preparation": 4,
    "paretune.profile": 3,
    "paretune.direct": 4,
    "paretune.advice": 5,
    "paretune.recording": 5,
    "paretune.replay.importing": 5,
    "paretune.pricing.again": 5,
    "paretune.estimating.errors_of_estimates": 5,
    "paretune.attempts": 5,
    "paretune.launch": 5,
    "paretune.sync": 5,
    "paretune.studies.study": 6,
    "paretune.studies.trial_job": 6,
    "paretune.studies.driver": 6,
    "paretune.studies.memory": 6,
    "paretune.studies.telling": 6,
    "paretune.studies.room": 6,
    "paretune.studies.worst_case": 6,
    "paretune.studies.untried": 6,
    "paretune.studies.default_job": 6,
    "paretune.studies.joint": 6,
    "paretune.studies.record": 6,
    "paretune.studies.split": 6,
    "paretune.studies.split_actions": 6,
    "paretune.studies.fitting": 4,
    "paretune.studies.split_seconds": 5,
    "paretune.studies.split_knowledge": 6,
    "paretune.studies.split_models": 4,
    "paretune.studies.split_space": 4,
    "paretune.projects": 6,
    "paretune.projects.backend": 6,
    "paretune.projects.collection": 6,
    "paretune.projects.command": 6,
    "paretune.projects.configuration": 6,
    "paretune.projects.environment": 6,
    "paretune.projects.inside": 6,
    "paretune.projects.jobs": 6,
    "paretune.projects.launching": 6,
    "paretune.projects.orders": 6,
    "paretune.projects.reach": 6,
    "paretune.projects.recording": 6,
    "paretune.projects.submitted": 6,
    "paretune.terminal": 7,
    "paretune.report_tables": 7,
    "paretune.commands": 7,
    "paretune.commands.asked": 7,
    "paretune.commands.imports": 7,
    "paretune.commands.estimate": 7,
    "paretune.commands.main": 7,
    "paretune.commands.prices": 7,
    "paretune.commands.questions": 7,
    "paretune.commands.report": 7,
    "paretune.commands.study": 7,
    "paretune.commands.sync": 7,
    "paretune.cli": 7,
}
"""Section 5 of the design. A new module is placed here by whoever adds it."""

STANDARD_LIBRARY_ONLY = [name for name, floor in FLOORS.items() if floor <= 2]
TRAINING = sorted(name for name in FLOORS if name.startswith("paretune.training"))
LAUNCHING = sorted(set(FLOORS) - set(TRAINING))
PROJECTS = {name for name in FLOORS if name.startswith("paretune.projects")}
SAGEMAKER = {name for name in FLOORS if name.startswith("paretune.launchers.sagemaker")}
DOORS = {
    "mlflow": {"paretune.tracking.run", "paretune.tracking.store", *PROJECTS},
    "torch": set(TRAINING),
    "transformers": set(TRAINING),
    "datasets": set(TRAINING),
    "peft": set(TRAINING),
    "accelerate": set(TRAINING),
    "huggingface_hub": set(TRAINING),
    "boto3": SAGEMAKER,
    "botocore": SAGEMAKER,
    "sagemaker": SAGEMAKER,
    "optuna": {"paretune.studies.study"},
}
CLOSED_TO_TRAINING = ("paretune.launchers", "paretune.tracking", "paretune.launch", "paretune.cli")


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sorted((SOURCE / "paretune").rglob("*.py"))}


@cache
def imports_of(name: str) -> frozenset[str]:
    """Full names of all that a module imports, at its top, inside functions and for type checkers alike."""
    found = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively in line {node.lineno}"
            base = node.module or ""
            # `from paretune.training import device` imports a module, `from paretune.clock import Clock` a name.
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"__import__", "importlib.import_module"}:
            found |= {word.value for word in node.args if isinstance(word, ast.Constant)}
    return frozenset(found)


def own_imports_of(name: str) -> set[str]:
    return {other for other in imports_of(name) if other.partition(".")[0] == "paretune"}


def test_every_module_has_its_floor_and_every_floor_its_module() -> None:
    known_later = {module for rooms in DOORS.values() for module in rooms}

    assert set(modules()) - set(FLOORS) == set(), "place the new module in FLOORS"
    assert set(FLOORS) - set(modules()) == set(), "take the module that is gone out of FLOORS"
    assert known_later - set(FLOORS) <= {"paretune.launchers.sagemaker", "paretune.studies.study"}


def test_the_walk_sees_imports_at_the_top_and_inside_functions() -> None:
    assert "paretune.container" in imports_of("paretune.launch")
    assert "paretune.launchers.local" in imports_of("paretune.launchers.choice")  # inside launcher_for
    assert "paretune.training.device" in imports_of("paretune.training.recorder")  # from a package


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_no_import_runs_upwards(name: str) -> None:
    upwards = {other for other in own_imports_of(name) if FLOORS[other] > FLOORS[name]}

    assert not upwards, f"{name} (floor {FLOORS[name]}) imports {upwards}"


def test_no_imports_run_in_a_circle() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        for other in sorted(own_imports_of(name)):
            visit(other, (*path, name))
        done.add(name)

    for name in modules():
        visit(name, ())


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_door_to_the_outside_has_one_room(door: str) -> None:
    users = {name for name in modules() if any(other.partition(".")[0] == door for other in imports_of(name))}

    assert users <= DOORS[door]


def test_the_doors_are_in_use() -> None:
    for door in ("mlflow", "torch", "transformers", "datasets", "peft"):
        users = {name for name in modules() if any(other.partition(".")[0] == door for other in imports_of(name))}
        assert users, f"nothing imports {door}: the test above could not fail"


@pytest.mark.parametrize("name", LAUNCHING)
def test_the_launching_wing_never_imports_the_training_wing(name: str) -> None:
    assert not {other for other in own_imports_of(name) if other.startswith("paretune.training")}


@pytest.mark.parametrize("name", TRAINING)
def test_the_training_wing_never_imports_the_launching_wing(name: str) -> None:
    closed = {
        other
        for other in imports_of(name)
        if any(other == room or other.startswith(f"{room}.") for room in CLOSED_TO_TRAINING)
        or other.partition(".")[0] in {"mlflow", "boto3", "botocore", "sagemaker", "optuna"}
    }

    assert not closed


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_the_lower_floors_need_the_standard_library_only(name: str) -> None:
    foreign = {other.partition(".")[0] for other in imports_of(name)} - sys.stdlib_module_names - {"paretune"}

    assert not foreign


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
    shown = run_python(
        "import sys, paretune.cli, paretune.launch, paretune.terminal, paretune.launchers.local\n"
        f"print([name for name in {heavy} if name in sys.modules])",
        tmp_path,
    )

    assert shown == "[]\n"


def test_help_and_bad_input_do_not_wait_for_mlflow(tmp_path: Path) -> None:
    shown = run_python(
        "import sys, paretune.cli\n"
        "code = paretune.cli.main(['main', '--sed', '1'])\n"
        "print(code, 'mlflow' in sys.modules, 'matplotlib' in sys.modules)",
        tmp_path,
    )

    assert shown == "2 False False\n"


def test_importing_does_nothing_but_define(tmp_path: Path) -> None:
    names = [name for name in modules() if name != "paretune.training.__main__"]
    shown = run_python(
        "import importlib, logging, os, signal, threading\n"
        "import mlflow, torch, transformers, datasets, peft, sklearn, pandas, tqdm, psutil  # the doors' own doings\n"
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

    assert shown == "same\n"


def test_importing_the_launching_wing_writes_no_file(tmp_path: Path) -> None:
    run_python(f"import importlib\nfor name in {LAUNCHING}:\n    importlib.import_module(name)", tmp_path)

    assert list(tmp_path.iterdir()) == []
