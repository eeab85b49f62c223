"""What a project's environment file means to pip."""

from pathlib import Path

import pytest
from mlflow.projects.utils import load_project

from paretune.core.errors import BadInput
from paretune.projects.environment import Environment, pip_requirement, read_environment


def environment(folder: Path, project: str, **files: str) -> Environment:
    """What the project with these files asks for; `__` in a name is a dot."""
    (folder / "MLproject").write_text(project)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return read_environment(load_project(str(folder)), folder)


@pytest.mark.parametrize(
    ("conda", "pip"),
    [
        ("numpy", "numpy"),
        ("numpy=1.26", "numpy==1.26.*"),
        ("numpy=1.26.*", "numpy==1.26.*"),
        ("numpy==1.26.4", "numpy==1.26.4"),
        ("numpy=1.26.4=py310h1234_0", "numpy==1.26.4"),
        ("numpy=1.26=*", "numpy==1.26.*"),
        ("numpy 1.26.*", "numpy==1.26.*"),
        ("numpy >=1.20,<2", "numpy>=1.20,<2"),
        ("numpy~=1.21", "numpy~=1.21"),
        ("conda-forge::scikit-learn=1.5", "scikit-learn==1.5.*"),
        ("conda-forge/linux-64::scikit-learn", "scikit-learn"),
        ("pytorch=2.4", "torch==2.4.*"),
        ("PyYAML=6", "pyyaml==6.*"),
        ("python=3.10", None),
        ("cudatoolkit=11", None),
    ],
)
def test_a_conda_package_is_written_as_pip_calls_it(conda: str, pip: str | None) -> None:
    assert pip_requirement(conda) == ([] if pip is None else [pip])


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("r-base=4.3", "not one that pip can install: leave it out"),
        ("libsndfile", "not one that pip can install: leave it out"),
        ("_libgcc_mutex=0.1", "not one that pip can install: leave it out"),
        ("numpy=1.2|1.3", "not one that pip can install: leave it out"),
        ("??", "not one that pip can install: leave it out"),
    ],
)
def test_what_pip_cannot_install_is_refused(package: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        pip_requirement(package)


def test_a_conda_file_gives_packages_and_pip_lines(tmp_path: Path) -> None:
    result = environment(
        tmp_path,
        "conda_env: conda.yaml",
        conda__yaml="channels: [x]\ndependencies:\n  - python=3.10\n  - pip=24\n  - numpy=1.26\n  - cudatoolkit=11\n"
        "  - pip:\n    - -r more.txt\n    - ./wheels/a.whl\n",
    )

    assert result == Environment(requirements=("numpy==1.26.*", "-r more.txt", "./wheels/a.whl"))


def test_relative_paths_of_a_conda_file_begin_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "conda.yaml").write_text("dependencies: [{pip: [-e ..]}]")

    assert environment(tmp_path, "conda_env: envs/conda.yaml").folder == "envs"


def test_a_python_environment_is_pip_s_own_language(tmp_path: Path) -> None:
    result = environment(
        tmp_path,
        "name: without a word about it",
        python_env__yaml="python: '3.11'\nbuild_dependencies: [pip==24.0]\n"
        "dependencies: ['-r requirements.txt', -e .]\n",
    )

    assert result == Environment(requirements=("pip==24.0", "-r requirements.txt", "-e ."))


@pytest.mark.parametrize("text", ["dependencies: numpy", "dependencies: [{pip: [a]}]", "[]x: ]", "- a"])
def test_a_broken_python_environment_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"python_env\.yaml"):
        environment(tmp_path, "name: x", python_env__yaml=text)


def test_a_conda_file_outside_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "conda.yaml").write_text("dependencies: [numpy]")

    with pytest.raises(BadInput, match=r"conda\.yaml must lie in the project's folder"):
        environment(tmp_path / "own", "conda_env: ../conda.yaml")


@pytest.mark.parametrize("project", ["name: x", "docker_env: {image: 'python:3.12'}"])
def test_without_an_environment_file_nothing_is_installed(tmp_path: Path, project: str) -> None:
    assert environment(tmp_path, project, requirements__txt="numpy") == Environment()
