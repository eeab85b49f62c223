"""The command that a job runs."""

import shlex
from pathlib import Path

import pytest
from mlflow.projects.utils import load_project

from paretune.core.errors import BadInput
from paretune.projects.project import read_command

AWKWARD = """it's "so" $HOME `id` \\ grün\n{x} 100%"""


def read(folder: Path, entry: str, parameters: dict[str, str]) -> tuple[str, dict[str, Path]]:
    (folder / "MLproject").write_text(f"name: x\nentry_points:\n  main:\n{entry}")
    return read_command(load_project(str(folder)), "main", parameters, folder)


ENTRY = """
    parameters:
      data-set: path
      code: {type: path, default: .}
      site: uri
      word: string
    command: "python a.py {data-set} {code} {site} {word}"
"""


def test_local_files_are_called_as_they_are_in_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my rows.csv").write_text("a")
    arguments = {"data-set": "my rows.csv", "site": "s3://b/k", "word": AWKWARD, "extra": "a b"}
    command, inputs = read(tmp_path, ENTRY, arguments)

    assert inputs == {"data_set": tmp_path / "my rows.csv", "code_1": tmp_path}
    assert shlex.split(command) == [
        *("python", "a.py", "/opt/ml/input/data/data_set/my rows.csv", "/opt/ml/input/data/code_1", "s3://b/k"),
        *(AWKWARD, "--extra", "a b"),
    ]


def test_a_script_that_is_no_entry_point_runs_as_mlflow_runs_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command, _ = read_command(load_project(str(tmp_path)), "train.py", {"rate": "0.1"}, tmp_path)

    assert command == "python train.py --rate 0.1"


def test_a_command_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no command"):
        read(tmp_path, "    command: [echo]\n", {})
