"""What a project's environment file means to pip and to an image."""

import itertools
import os
from pathlib import Path

import pytest
from mlflow.projects.utils import load_project

from paretune.core.errors import BadInput
from paretune.core.untrusted import LARGEST_SCRIPT
from paretune.projects.environment import (
    Environment,
    pip_requirement,
    read_environment,
    scripts_with,
)


def environment(folder: Path, project: str, **files: str) -> Environment:
    """What the project with these files asks for; `__` in a name is a dot."""
    (folder / "MLproject").write_text(project)
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
    return read_environment(load_project(str(folder)), folder)


@pytest.mark.parametrize(
    ("conda", "pip"),
    [
        ("numpy", "numpy"),
        ("numpy=1.26", "numpy==1.26.*"),
        ("numpy=1.26.4", "numpy==1.26.4.*"),
        ("numpy=1.26.*", "numpy==1.26.*"),
        ("numpy==1.26.4", "numpy==1.26.4"),
        ("numpy=1.26.4=py310h1234_0", "numpy==1.26.4"),
        ("numpy=1.26=*", "numpy==1.26.*"),
        ("numpy 1.26.*", "numpy==1.26.*"),
        ("numpy >=1.20,<2", "numpy>=1.20,<2"),
        ("numpy>=1.20", "numpy>=1.20"),
        ("numpy!=1.21", "numpy!=1.21"),
        ("numpy~=1.21", "numpy~=1.21"),
        ("numpy=*", "numpy"),
        ("conda-forge::scikit-learn=1.5", "scikit-learn==1.5.*"),
        ("conda-forge/linux-64::scikit-learn", "scikit-learn"),
        ("pytorch=2.4", "torch==2.4.*"),
        ("PyYAML=6", "pyyaml==6.*"),
    ],
)
def test_a_conda_package_is_written_as_pip_calls_it(conda: str, pip: str) -> None:
    assert pip_requirement(conda) == pip


@pytest.mark.parametrize("package", ["r-base=4.3", "openjdk", "libsndfile", "_libgcc_mutex=0.1", "ffmpeg", "git"])
def test_what_is_no_python_package_is_refused(package: str) -> None:
    with pytest.raises(ValueError, match="no Python package: leave it out"):
        pip_requirement(package)


@pytest.mark.parametrize(("package", "message"), [("numpy=1.2|1.3", "alternatives"), ("??", "cannot be read")])
def test_what_pip_cannot_say_is_refused(package: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pip_requirement(package)


def test_a_conda_file_gives_packages_pip_lines_and_notes(tmp_path: Path) -> None:
    result = environment(
        tmp_path,
        "conda_env: conda.yaml",
        conda__yaml="channels: [x]\ndependencies:\n  - python=3.10\n  - pip=24\n  - numpy=1.26\n  - cudatoolkit=11\n"
        "  - pip:\n    - -r more.txt\n    - ./wheels/a.whl\n",
    )

    assert result.requirements == ("numpy==1.26.*", "-r more.txt", "./wheels/a.whl")
    assert result.python == "3.10"
    assert result.notes == ("cudatoolkit=11 is not installed: the image has its own",)


def test_relative_paths_of_a_conda_file_begin_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "conda.yaml").write_text("dependencies: [{pip: [-e ..]}]")

    assert environment(tmp_path, "conda_env: envs/conda.yaml").folder == "envs"


def test_all_faults_of_a_conda_file_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        environment(tmp_path, "conda_env: conda.yaml", conda__yaml="dependencies: [r-base, openjdk, {other: [a]}]")

    assert len(caught.value.faults) == 3


def test_a_python_environment_is_pip_s_own_language(tmp_path: Path) -> None:
    result = environment(
        tmp_path,
        "name: without a word about it",
        python_env__yaml="python: '3.11'\nbuild_dependencies: [pip==24.0]\n"
        "dependencies: ['-r requirements.txt', -e .]\n",
    )

    assert result == Environment(requirements=("pip==24.0", "-r requirements.txt", "-e ."), python="3.11")


@pytest.mark.parametrize("text", ["dependencies: numpy", "dependencies: [{pip: [a]}]", "[]x: ]", "- a"])
def test_a_broken_python_environment_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"python_env\.yaml"):
        environment(tmp_path, "name: x", python_env__yaml=text)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    "content",
    [
        (BOMB + "dependencies: *h").encode(),
        b"- &a [*a]",
        b"dependencies: 5",
        b"dependencies: [5]",
        b"dependencies: {pip: a}",
        b"dependencies: [[a]]",
        b"dependencies:\n" + b"  - a\n" * 200_000,
        b"dependencies: " + b"[" * 50_000,
        b"dependencies: [caf\xe9]",
        "dependencies: [numpy]".encode("utf-16"),
        b"dependencies: [a]\ndependencies: [b]",
        b"python: [3.11]\ndependencies: 5",
        b"",
    ],
    ids=itertools.count(),
)
@pytest.mark.parametrize("kind", ["conda", "python_env"])
def test_a_broken_environment_file_is_refused_with_its_name(tmp_path: Path, content: bytes, kind: str) -> None:
    key = "conda_env" if kind == "conda" else kind
    (tmp_path / "MLproject").write_text(f"{key}: {kind}.yaml")
    (tmp_path / f"{kind}.yaml").write_bytes(content)

    with pytest.raises(BadInput) as caught:
        read_environment(load_project(str(tmp_path)), tmp_path)
    assert all(kind in fault or "conda package" in fault for fault in caught.value.faults)


@pytest.mark.parametrize("target", ["folder", "pipe", "/dev/zero"])
@pytest.mark.parametrize("name", ["conda.yaml", "python_env.yaml"])
def test_an_environment_file_that_is_none_is_refused(tmp_path: Path, name: str, target: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to(target)

    with pytest.raises(BadInput, match=r"YAML file, and .*\.yaml is a"):
        environment(tmp_path, "name: x")


def test_a_conda_file_outside_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "conda.yaml").write_text("dependencies: [numpy]")

    with pytest.raises(BadInput, match=r"conda\.yaml must lie in the project's folder"):
        environment(tmp_path / "own", "conda_env: ../conda.yaml")


@pytest.mark.parametrize("value", ["2026-02-31", "9" * 5_000, "3.10"], ids=["no date", "a number", "a version"])
def test_a_version_of_python_is_the_text_that_was_written(tmp_path: Path, value: str) -> None:
    assert environment(tmp_path, "name: x", python_env__yaml=f"python: {value}").python == value


def test_without_an_environment_nothing_is_installed(tmp_path: Path) -> None:
    assert environment(tmp_path, "name: x", requirements__txt="numpy") == Environment()


ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1"


def test_an_image_in_ecr_is_used_and_variables_of_this_machine_stay_here(tmp_path: Path) -> None:
    project = f"docker_env: {{image: '{ECR}', volumes: ['/a:/b'], environment: [[COLOUR, blue], AWS_SECRET]}}"
    result = environment(tmp_path, project)

    assert (result.image_uri, result.variables) == (ECR, (("COLOUR", "blue"),))
    assert [note.split()[0] for note in result.notes] == ["AWS_SECRET", "docker_env's"]


def test_an_image_that_sagemaker_cannot_pull_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"from ECR only, got python:3\.12"):
        environment(tmp_path, "docker_env: {image: 'python:3.12'}")


@pytest.mark.parametrize("listed", ["[[a]]", "[[]]", "[[a, b, c]]", "[[a, [b]]]", "[[a, {b: c}]]"])
def test_a_variable_of_an_image_is_a_name_or_a_pair(tmp_path: Path, listed: str) -> None:
    with pytest.raises(BadInput, match="environment must hold names, and pairs"):
        environment(tmp_path, f"docker_env: {{image: '{ECR}', environment: {listed}}}")


def test_a_script_that_cannot_be_read_mentions_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory.py").symlink_to("/proc/self/mem")
    (tmp_path / "large.py").write_bytes(b"import mlflow\n" * (LARGEST_SCRIPT // 14 + 1))

    assert list(scripts_with("mlflow", tmp_path.iterdir())) == []
