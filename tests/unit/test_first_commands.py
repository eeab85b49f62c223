"""`make demo` and `make check`, the first commands of README: where they install, and what they run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("python", "paretune", "ruff", "lint-imports", "mypy")
STUB = """#!/bin/sh
echo "$0 $*"
case "$*" in
  demo) echo "PATH=$PATH" ;;
  *"pip install"*) cp "$0" "$(dirname "$0")/paretune" ;;
esac
"""
MAKES_AN_ENVIRONMENT = """#!/bin/sh
mkdir -p "$3/bin" && echo "made $3"
for name in python ruff lint-imports mypy; do cp "$(dirname "$0")/stub" "$3/bin/$name"; done
"""


def stub(path: Path, text: str = STUB) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile, next to a `python3` that makes environments of commands that only print."""
    folder = tmp_path / "my clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    stub(tmp_path / "system" / "stub")
    stub(tmp_path / "system" / "python3", MAKES_AN_ENVIRONMENT)
    stub(tmp_path / "system" / "paretune")
    return folder


def search_path(clone: Path) -> str:
    return os.pathsep.join([str(clone.parent / "system"), os.defpath, os.environ["PATH"]])


def make(clone: Path, target: str, **environment: str) -> list[str]:
    """Return the lines that a target prints, without those in which make repeats a command."""
    job = subprocess.run(
        ["make", "--silent", target],
        cwd=clone,
        env={"PATH": search_path(clone), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return job.stdout.splitlines()


def test_readme_names_both_commands_before_anything_else_and_the_daily_check_types_the_second() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().partition("![")[0].splitlines()[:30])
    blocks = re.findall(r"^```bash\n(.*?)^```", first_screen, re.MULTILINE | re.DOTALL)
    typed = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]

    assert {"make demo", "make check"} <= {*typed}
    assert 'paste "make check"' in (ROOT / ".ci" / "run").read_text()


def test_without_an_environment_both_make_one_in_the_clone_and_say_how_long_it_takes(clone: Path) -> None:
    programs = clone / ".venv" / "bin"

    shown = make(clone, "demo")
    assert shown[0] == f"made {clone}/.venv"
    assert "a few minutes" in shown[1]
    assert f"{programs}/python -m pip install -c constraints.txt -e ." in shown
    # The demo recommends commands for the shell in which make was typed, where .venv is not active.
    assert shown[-2:] == [f"{programs}/paretune demo", f"PATH={search_path(clone)}"]

    (first, *_), again = (make(clone, "check") for _ in range(2))
    assert "installing" in first
    assert [line.removeprefix(f"{programs}/") for line in again] == [
        "ruff format --check .",
        "ruff check .",
        "lint-imports --no-logo --no-cache",
        "mypy ",
        "python -m pytest --durations=10",
    ]


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_in_an_environment_of_the_user_both_use_it(clone: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "my own"
    for command in COMMANDS:
        stub(own / "bin" / command)
    variables = {name: str(own), "CONDA_DEFAULT_ENV": "trainings"}

    shown = [*make(clone, "demo", **variables), *make(clone, "check", **variables)]

    assert f"{own}/bin/paretune demo" in shown
    assert f"{own}/bin/python -m pip install -c constraints.txt -e .[test,docs]" in shown
    assert f"{own}/bin/python -m pytest --durations=10" in shown
    assert not (clone / ".venv").exists()


def test_nothing_is_installed_into_the_base_of_conda(clone: Path, tmp_path: Path) -> None:
    shown = make(clone, "demo", CONDA_PREFIX=str(tmp_path / "conda"), CONDA_DEFAULT_ENV="base")

    assert f"{clone}/.venv/bin/python -m pip install -c constraints.txt -e ." in shown


def test_a_changed_list_of_packages_is_installed_again(clone: Path) -> None:
    make(clone, "check")
    (clone / "constraints.txt").write_text("torch==99\n")

    assert f"{clone}/.venv/bin/python -m pip install -c constraints.txt -e .[test,docs]" in make(clone, "check")
