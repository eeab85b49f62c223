"""What a project's environment file means to pip."""

from pathlib import Path

import pytest
from mlflow.projects.utils import load_project

from paretune.core.errors import BadInput
from paretune.projects.project import read_environment

CONDA = "channels: [x]\ndependencies:\n  - python=3.10\n  - pip\n  - pip: [-r more.txt, ./wheels/a.whl]\n"
PYTHON = "python: '3.11'\nbuild_dependencies: [pip==24.0]\ndependencies: ['-r requirements.txt', -e .]\n"


def environment(folder: Path, project: str, **files: str) -> tuple[list[str], str]:
    """What the project with these files asks for; `__` in a name is a dot."""
    (folder / "MLproject").write_text(project)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return read_environment(load_project(str(folder)), folder)


def test_the_files_of_mlflow_are_read_as_requirements(tmp_path: Path) -> None:
    assert environment(tmp_path, "conda_env: conda.yaml", conda__yaml=CONDA) == (["-r more.txt", "./wheels/a.whl"], ".")
    lines = ["pip==24.0", "-r requirements.txt", "-e ."]
    assert environment(tmp_path, "python_env: python_env.yaml", python_env__yaml=PYTHON) == (lines, ".")
    assert environment(tmp_path, "docker_env: {image: 'python:3.12'}") == ([], ".")


def test_relative_paths_of_a_conda_file_begin_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "conda.yaml").write_text("dependencies: [{pip: [-e ..]}]")

    assert environment(tmp_path, "conda_env: envs/conda.yaml") == (["-e .."], "envs")


@pytest.mark.parametrize("text", ["dependencies: numpy", "dependencies: [{pip: [a]}]", "[]x: ]", "- a"])
def test_a_broken_python_environment_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"python_env\.yaml"):
        environment(tmp_path, "name: x", python_env__yaml=text)


def test_other_packages_of_conda_and_a_file_outside_the_project_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "conda.yaml").write_text(CONDA)

    with pytest.raises(BadInput, match=r"conda\.yaml must lie in the project's folder"):
        environment(tmp_path / "own", "conda_env: ../conda.yaml")
    with pytest.raises(BadInput, match=r"which lacks numpy=1\.26: name them there"):
        environment(tmp_path, "conda_env: conda.yaml", conda__yaml=CONDA + "  - numpy=1.26\n")
