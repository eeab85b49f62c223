"""An MLflow project as a job: the command of an entry point, its environment, and its files."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mlflow.projects.utils import load_project

from paretune.core.errors import BadInput
from paretune.specification.container import UserCode
from paretune.specification.job import JobSpec
from paretune.user_code.inputs import code_inputs
from paretune.user_code.project import declared_parameters, read_environment

AWKWARD = """it's "so" $HOME `id` \\ grün\n{x} 100%"""


# --- environments

CONDA = "channels: [x]\ndependencies:\n  - python=3.10\n  - pip\n  - pip: [-r more.txt, ./wheels/a.whl]\n"
PYTHON = "python: '3.11'\nbuild_dependencies: [pip==24.0]\ndependencies: ['-r requirements.txt', -e .]\n"


def environment(folder: Path, project: str, **files: str) -> tuple[list[str], str]:
    """Return what the project with these files needs; `__` in a name stands for a dot."""
    (folder / "MLproject").write_text(project)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return read_environment(load_project(str(folder)), folder)


def test_the_files_of_mlflow_are_read_as_requirements(tmp_path: Path) -> None:
    assert environment(tmp_path, "conda_env: conda.yaml", conda__yaml=CONDA) == (["-r more.txt", "./wheels/a.whl"], ".")
    lines = ["pip==24.0", "-r requirements.txt", "-e ."]
    assert environment(tmp_path, "python_env: python_env.yaml", python_env__yaml=PYTHON) == (lines, ".")
    assert environment(tmp_path, "docker_env: {image: 'python:3.12'}") == ([], ".")
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "conda.yaml").write_text("dependencies: [{pip: [-e ..]}]")
    assert environment(tmp_path, "conda_env: envs/conda.yaml") == (["-e .."], "envs")  # relative to its folder


@pytest.mark.parametrize("text", ["dependencies: numpy", "[]x: ]"])
def test_a_broken_python_environment_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"python_env\.yaml"):
        environment(tmp_path, "name: x", python_env__yaml=text)


def test_other_packages_of_conda_and_a_file_outside_the_project_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "conda.yaml").write_text(CONDA)

    with pytest.raises(BadInput, match=r"conda\.yaml must be in the project's folder"):
        environment(tmp_path / "own", "conda_env: ../conda.yaml")
    with pytest.raises(BadInput, match=r"which lacks numpy=1\.26: list them there"):
        environment(tmp_path, "conda_env: conda.yaml", conda__yaml=CONDA + "  - numpy=1.26\n")
    others = "  - python-dateutil\n  - pip-tools=7\n  - python.app\n"
    with pytest.raises(BadInput, match=r"which lacks python-dateutil, pip-tools=7, python\.app: list them there"):
        environment(tmp_path, "conda_env: conda.yaml", conda__yaml=CONDA + others)


# --- jobs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project in git, with data that git ignores."""
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    (folder / "MLproject").write_text(
        "name: mine\npython_env: env.yaml\nentry_points:\n  train:\n    parameters:\n"
        "      alpha: {type: float, default: 0.5}\n      rows: {type: path, default: data/rows.csv}\n"
        "      seed: {type: float, default: 0}\n      word: string\n"
        '    command: "python train.py {alpha} {rows} {seed} {word}"\n'
    )
    (folder / "env.yaml").write_text("dependencies: [numpy]\n")
    (folder / "train.py").write_text("print('trained')\n")
    (folder / ".gitignore").write_text("data/*.csv\nraw/\n")
    (folder / "data" / "rows.csv").write_text("1\n")
    (folder / "data" / "kept.txt").write_text("kept\n")
    (folder / "raw").mkdir()
    (folder / "raw" / "large.bin").write_text("large\n")
    (folder / "mlruns").mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def payload(project: Path, home: Path, **changes: Any) -> UserCode:
    arguments = {"training_arguments": {"word": "it's"}, "entry_point": "train"} | changes
    made = code_inputs(JobSpec(project=str(project), **arguments).code_request, home).code
    assert made is not None
    return made


def line_of(code: UserCode) -> str:
    """Return the command line of a job."""
    return code.command.shown(JobSpec().plan())


def test_here_the_command_reads_files_where_they_are_and_what_git_ignores_is_linked(
    project: Path, tmp_path: Path
) -> None:
    made = payload(project, tmp_path, training_arguments={"word": AWKWARD, "extra": "a b"})

    words = ["python", "train.py", "0.5", str(project / "data" / "rows.csv"), "0", AWKWARD, "--extra", "a b"]
    assert shlex.split(line_of(made)) == words
    assert {name for name in made.files if name.startswith("project/")} == {
        *("project/MLproject", "project/env.yaml", "project/train.py", "project/.gitignore", "project/data/kept.txt"),
    }
    assert dict(made.linked) == {"project/data/rows.csv": project / "data" / "rows.csv", "project/raw": project / "raw"}
    assert made.command.requirements == ()
    assert not list(tmp_path.glob("downloads-*"))


def test_on_sagemaker_files_travel_and_the_environment_is_installed(project: Path, tmp_path: Path) -> None:
    made = payload(project, tmp_path, instance_type="ml.m5.large")

    assert "/opt/ml/input/data/rows/rows.csv" in line_of(made)
    assert dict(made.inputs) == {"rows": project / "data" / "rows.csv"}
    assert made.command.requirements == ("numpy",)
    assert dict(made.linked) == {}


def test_a_seed_that_was_set_reaches_an_entry_point_that_declares_one(project: Path, tmp_path: Path) -> None:
    assert line_of(payload(project, tmp_path, seed=7)).endswith(" 7 'it'\"'\"'s'")
    both = {"word": "x", "seed": 3}
    assert line_of(payload(project, tmp_path, seed=7, training_arguments=both)).endswith(" 3 x")


def test_a_folder_of_scripts_is_a_project_whose_parameters_become_switches(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    text = "p.add_argument('--alpha')\np.add_argument('--fast', type=bool)\nargs, _ = p.parse_known_args()\n"
    (tmp_path / "scripts" / "run.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{text}")
    given = {"alpha": 0.1, "fast": False}
    made = payload(tmp_path / "scripts", tmp_path, entry_point="run.py", training_arguments=given)

    assert line_of(made) == "python run.py --alpha 0.1 --fast ''"
    with pytest.raises(BadInput, match=r"run\.py has no argument alfa: did you mean alpha\?; it has alpha, fast;"):
        payload(tmp_path / "scripts", tmp_path, entry_point="run.py", training_arguments={"alfa": 0.1})
    assert declared_parameters(str(tmp_path / "scripts"), "run.py") == {}


@pytest.mark.linux
def test_a_script_of_a_folder_may_be_asked_for_its_arguments(tmp_path: Path) -> None:
    (folder := tmp_path / "scripts").mkdir()
    loop = "for name in ('alpha', 'beta'):\n    p.add_argument(f'--{name}')\np.parse_args()\n"
    (folder / "run.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{loop}")

    with pytest.raises(BadInput, match=r"run\.py has no argument alfa: did you mean alpha\?; it has alpha, beta;"):
        payload(folder, tmp_path, entry_point="run.py", ask_script=True, training_arguments={"alfa": 0.1})


def test_a_shell_script_runs_in_bash_whatever_the_shell_of_this_machine(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    (project / "run it.sh").touch()

    made = payload(project, tmp_path, entry_point="run it.sh", training_arguments={"alpha": 0.1})
    assert shlex.split(line_of(made)) == ["bash", "run it.sh", "--alpha", "0.1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training_arguments": {}}, "No value given for missing parameters: 'word'"),
        ({"entry_point": "other"}, "it has train, train.py"),
        ({"entry_point": "gone.py"}, "entry_point gone.py is not in project"),
        ({"project": "./not-there"}, "project ./not-there does not exist"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    project: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    spec = {"project": str(project), "entry_point": "train", "training_arguments": {"word": "x"}} | changes
    with pytest.raises(BadInput) as refused:
        code_inputs(JobSpec(**spec).code_request, tmp_path)

    assert message in str(refused.value)


def test_a_project_that_is_itself_an_environment_is_refused_with_one_fault(project: Path, tmp_path: Path) -> None:
    (project / "pyvenv.cfg").touch()

    with pytest.raises(BadInput, match="is itself a virtual environment") as refused:
        payload(project, tmp_path)

    assert len(refused.value.faults) == 1
