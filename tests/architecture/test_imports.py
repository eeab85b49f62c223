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
    "paretune.core.errors": 1,
    "paretune.core.clock": 1,
    "paretune.launchers.simulated.virtual_clock": 1,
    "paretune.core.interruption": 1,
    "paretune.spec.batch_size": 2,
    "paretune.spec.parameters": 2,
    "paretune.spec.catalog": 2,
    "paretune.pricing.prices": 2,
    "paretune.pricing.cache": 2,
    "paretune.spec.regions": 2,
    "paretune.core.text_table": 2,
    "paretune.spec.cluster": 2,
    "paretune.spec.simulation": 2,
    "paretune.estimating.recorded.log_grid": 2,
    "paretune.spec.job": 2,
    "paretune.spec.strategy_rules": 2,
    "paretune.estimating.architecture": 2,
    "paretune.estimating.hardware": 2,
    "paretune.estimating.workload": 2,
    "paretune.spec.metrics": 2,
    "paretune.estimating.posterior": 3,
    "paretune.estimating.timing": 3,
    "paretune.estimating.memory": 3,
    "paretune.core.pareto": 3,
    "paretune.studies.results.trials": 3,
    "paretune.studies.search.ledger": 4,
    "paretune.studies.search.ledger_tables": 4,
    "paretune.studies.search.early_stopping": 3,
    "paretune.studies.results.hypervolume": 3,
    "paretune.studies.results.noise": 3,
    "paretune.studies.results.quantities": 3,
    "paretune.studies.results.importance": 3,
    "paretune.estimating.timing_features": 3,
    "paretune.studies.definition.yaml": 3,
    "paretune.studies.definition.space": 3,
    "paretune.studies.definition.objectives": 3,
    "paretune.studies.definition.rules": 3,
    "paretune.studies.definition.reading": 3,
    "paretune.studies.definition.file": 3,
    "paretune.spec.container": 3,
    "paretune.estimating.recorded.run_table": 3,
    "paretune.estimating.recorded.import_request": 3,
    "paretune.estimating.recorded.run_lookup": 3,
    "paretune.estimating.recorded.recorded_runs": 3,
    "paretune.tracking": 3,
    "paretune.tracking.run": 3,
    "paretune.tracking.store": 3,
    "paretune.tracking.figures": 3,
    "paretune.launchers": 4,
    "paretune.launchers.base": 4,
    "paretune.jobs.choice": 4,
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
    "paretune.launchers.sagemaker.aws_errors": 4,
    "paretune.training": 4,
    "paretune.training.__main__": 4,
    "paretune.training.rows.baselines": 4,
    "paretune.training.rows.batches": 4,
    "paretune.training.checkpoints": 4,
    "paretune.training.rows.data": 4,
    "paretune.training.device": 4,
    "paretune.training.rows.bundled": 4,
    "paretune.training.rows.hub": 4,
    "paretune.training.stop_signal": 4,
    "paretune.training.loop": 4,
    "paretune.training.model": 4,
    "paretune.training.prepare": 4,
    "paretune.training.recorder": 4,
    "paretune.training.rendezvous": 4,
    "paretune.training.script": 4,
    "paretune.training.sharding": 4,
    "paretune.training.rows.sources": 4,
    "paretune.training.strategies": 4,
    "paretune.training.trainer": 4,
    "paretune.training.rows.vocabulary": 4,
    "paretune.estimating.evidence": 4,
    "paretune.estimating.estimates": 4,
    "paretune.estimating.recorded.rehearsal": 4,
    "paretune.estimating.forecast": 4,
    "paretune.estimating.hub_config": 4,
    "paretune.cli.requests.estimate_request": 4,
    "paretune.studies.results.points": 4,
    "paretune.studies.results.front": 4,
    "paretune.studies.results.payoff": 4,
    "paretune.studies.results.recommendation": 4,
    "paretune.studies.search.stopping": 5,
    "paretune.studies.results.table": 4,
    "paretune.studies.results.figures": 4,
    "paretune.studies.results.pictures": 4,
    "paretune.studies.results.page": 4,
    "paretune.cli.output.estimate_table": 5,
    "paretune.studies.results.answer": 5,
    "paretune.jobs.probing": 6,
    "paretune.jobs.prepared": 4,
    "paretune.jobs.preparation": 4,
    "paretune.spec.profile": 3,
    "paretune.tracking.in_job": 4,
    "paretune.jobs.advice": 5,
    "paretune.jobs.recording": 5,
    "paretune.jobs.importing": 5,
    "paretune.cli.output.repricing": 5,
    "paretune.cli.output.estimate_errors": 5,
    "paretune.jobs.attempts": 5,
    "paretune.jobs.launch": 5,
    "paretune.jobs.sync": 5,
    "paretune.studies.search.optuna_study": 6,
    "paretune.studies.search.trial_job": 6,
    "paretune.studies.search.driver": 6,
    "paretune.studies.search.trial_history": 6,
    "paretune.studies.search.telling": 6,
    "paretune.studies.search.room": 6,
    "paretune.studies.search.worst_case": 6,
    "paretune.studies.search.untried": 6,
    "paretune.studies.search.default_job": 6,
    "paretune.studies.search.joint": 6,
    "paretune.studies.search.study_run": 6,
    "paretune.studies.search.split.search": 6,
    "paretune.studies.search.split.actions": 6,
    "paretune.estimating.memory_limits": 4,
    "paretune.studies.search.split.seconds_model": 5,
    "paretune.studies.search.split.knowledge": 6,
    "paretune.studies.search.split.f1_model": 4,
    "paretune.studies.search.split.candidates": 4,
    "paretune.projects": 6,
    "paretune.mlflow_backend.backend": 6,
    "paretune.mlflow_backend.collection": 6,
    "paretune.mlflow_backend.command": 6,
    "paretune.mlflow_backend.configuration": 6,
    "paretune.mlflow_backend.environment": 6,
    "paretune.mlflow_backend.container_entrypoint": 6,
    "paretune.mlflow_backend.jobs": 6,
    "paretune.mlflow_backend.launching": 6,
    "paretune.mlflow_backend.orders": 6,
    "paretune.mlflow_backend.direct_logging": 6,
    "paretune.mlflow_backend.recording": 6,
    "paretune.mlflow_backend.submitted": 6,
    "paretune.cli.output.terminal": 7,
    "paretune.cli.output.report_tables": 7,
    "paretune.commands": 7,
    "paretune.cli.requests.job_request": 7,
    "paretune.cli.commands.imports": 7,
    "paretune.cli.commands.estimate": 7,
    "paretune.cli.commands.job": 7,
    "paretune.cli.commands.prices": 7,
    "paretune.cli.requests.prompts": 7,
    "paretune.cli.commands.report": 7,
    "paretune.cli.commands.study": 7,
    "paretune.cli.commands.sync": 7,
    "paretune.cli.main": 7,
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
    "optuna": {"paretune.studies.search.optuna_study"},
}
CLOSED_TO_TRAINING = ("paretune.launchers", "paretune.tracking", "paretune.jobs.launch", "paretune.cli.main")


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
            # `from paretune.training import device` imports a module, `from paretune.core.clock import Clock` a name.
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
    assert known_later - set(FLOORS) <= {"paretune.launchers.sagemaker", "paretune.studies.search.optuna_study"}


def test_the_walk_sees_imports_at_the_top_and_inside_functions() -> None:
    assert "paretune.spec.container" in imports_of("paretune.jobs.launch")
    assert "paretune.launchers.local" in imports_of("paretune.jobs.choice")  # inside launcher_for
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
        "import sys, paretune.cli.main, paretune.jobs.launch, paretune.cli.output.terminal, paretune.launchers.local\n"
        f"print([name for name in {heavy} if name in sys.modules])",
        tmp_path,
    )

    assert shown == "[]\n"


def test_help_and_bad_input_do_not_wait_for_mlflow(tmp_path: Path) -> None:
    shown = run_python(
        "import sys, paretune.cli.main\n"
        "code = paretune.cli.main.main(['main', '--sed', '1'])\n"
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
