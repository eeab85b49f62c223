"""Packages that a training of the user's own needs are missed before its first job."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.projects.packages import package_faults
from paretune.projects.project import project_inputs
from paretune.specification.job import JobSpec


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_all_missing_packages_are_named_in_one_message_with_the_command(script: Path) -> None:
    script.write_text(
        "import os, no_such_package.part\n"
        "from absent_too import thing\n"
        "from . import relative\n"
        "import beside, pytest\n"
        "try:\n    import optional_one\nexcept ImportError:\n    pass\n"
        "def later():\n    import optional_two\n"
        "if __name__ == '__main__':\n    import sklearn_absent\n"
    )
    (script.parent / "beside.py").write_text("import another_absent\n")
    (script.parent / "requirements.txt").write_text("declared-absent>=2  # because\npytest==0.1\n-r other.txt\n")

    names = ["absent_too", "another-one", "another_absent", "declared-absent", "no_such_package", "sklearn_absent"]
    fault = f"mine needs {', '.join(names)}, which this Python does not have: python -m pip install {' '.join(names)}"
    lines = ["another-one", "never; python_version < '3'"]
    assert package_faults("mine", script.parent, [script], lines) == [fault]


@pytest.mark.parametrize("line", ["import sys; sys.path.append('src')", "import os; os.system('pip install absent')"])
def test_packages_that_a_script_finds_or_installs_itself_are_not_missed(script: Path, line: str) -> None:
    script.write_text(f"{line}\nimport absent_package\n")

    assert package_faults("mine", script.parent, [script]) == []


def test_a_project_whose_packages_are_missing_is_refused_before_a_job(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "MLproject").write_text(
        "name: p\npython_env: python_env.yaml\nentry_points:\n  main:\n    command: python train.py\n"
    )
    (folder / "python_env.yaml").write_text("dependencies:\n- declared-absent==1.0\n- pytest\n")
    (folder / "train.py").write_text("import imported_absent\n")

    with pytest.raises(BadInput, match="needs declared-absent, imported_absent, which this Python does not have"):
        project_inputs(JobSpec(project=str(folder)), tmp_path)
