"""What a job gets to run an entry point of a project."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.projects.project import declared_parameters, project_inputs
from paretune.specification.container import ProjectPayload
from paretune.specification.job import JobSpec


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in git, with data that git ignores."""
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


def payload(project: Path, home: Path, **changes: Any) -> ProjectPayload:
    arguments = {"project_parameters": {"word": "it's"}, "entry_point": "train"} | changes
    made = project_inputs(JobSpec(project=str(project), **arguments), home).project
    assert made is not None
    return made


def command(project: Path, home: Path, **changes: Any) -> str:
    return str(payload(project, home, **changes).document["command"])


def test_here_the_command_reads_files_where_they_are_and_what_git_ignores_is_linked(
    project: Path, tmp_path: Path
) -> None:
    made = payload(project, tmp_path)

    assert made.document["command"] == f"python train.py 0.5 {project / 'data' / 'rows.csv'} 0 'it'\"'\"'s'"
    assert {name for name in made.code if name.startswith("project/")} == {
        *("project/MLproject", "project/env.yaml", "project/train.py", "project/.gitignore", "project/data/kept.txt"),
    }
    assert dict(made.beside) == {"project/data/rows.csv": project / "data" / "rows.csv", "project/raw": project / "raw"}
    assert made.document["requirements"] == []
    assert not list(tmp_path.glob("downloads-*"))


def test_on_sagemaker_files_travel_and_the_environment_is_installed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    made = payload(project, tmp_path, instance_type="ml.m5.large")

    assert "/opt/ml/input/data/rows/rows.csv" in made.document["command"]
    assert dict(made.inputs) == {"rows": project / "data" / "rows.csv"}
    assert made.document["requirements"] == ["numpy"]
    assert dict(made.beside) == {}


def test_a_seed_that_was_set_reaches_an_entry_point_that_declares_one(project: Path, tmp_path: Path) -> None:
    assert command(project, tmp_path, seed=7).endswith(" 7 'it'\"'\"'s'")
    both = {"word": "x", "seed": 3}
    assert command(project, tmp_path, seed=7, project_parameters=both).endswith(" 3 x")


def test_a_folder_of_scripts_is_a_project_whose_parameters_become_switches(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    text = "p.add_argument('--alpha')\np.add_argument('--fast', type=bool)\nargs, _ = p.parse_known_args()\n"
    (tmp_path / "scripts" / "run.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{text}")
    given = {"alpha": 0.1, "fast": False}
    made = payload(tmp_path / "scripts", tmp_path, entry_point="run.py", project_parameters=given)

    assert made.document["command"] == "python run.py --alpha 0.1 --fast ''"
    with pytest.raises(BadInput, match=r"run\.py has no argument alfa: it has alpha, fast$"):
        payload(tmp_path / "scripts", tmp_path, entry_point="run.py", project_parameters={"alfa": 0.1})
    assert declared_parameters(str(tmp_path / "scripts"), "run.py") == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"project_parameters": {}}, "No value given for missing parameters: 'word'"),
        ({"entry_point": "other"}, "it has train, train.py"),
        ({"entry_point": "gone.py"}, "entry_point gone.py is not in project"),
        ({"project": "./not-there"}, "project ./not-there does not exist"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    project: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    spec = {"project": str(project), "entry_point": "train", "project_parameters": {"word": "x"}} | changes
    with pytest.raises(BadInput) as refused:
        project_inputs(JobSpec(**spec), tmp_path)

    assert message in str(refused.value)
