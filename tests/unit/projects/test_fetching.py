"""The folder of a project."""

import os
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.projects.project import read_project


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("entry_points: {5: {command: echo}}", "names of entry_points must be texts"),
        ("entry_points: {~: {command: echo}}", "names of entry_points must be texts"),
        ("name: x\n" + "#\n" * 60_000, "has more than 100,000 bytes"),
    ],
    ids=["a number", "nothing", "large"],
)
def test_a_project_file_that_does_harm_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "MLproject").write_text(content)

    with pytest.raises(BadInput, match=message):
        read_project(str(tmp_path))


def test_a_project_file_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "MLproject")

    with pytest.raises(BadInput, match="MLproject is not a file"):
        read_project(str(tmp_path))


def test_a_project_file_may_say_a_thing_once_and_refer_to_it(tmp_path: Path) -> None:
    (tmp_path / "MLproject").write_text(
        "entry_points:\n  main: &a {parameters: {b: float}, command: 'echo {b}'}\n  other: *a\n"
    )
    project, root = read_project(str(tmp_path))

    assert (sorted(project._entry_points), root) == (["main", "other"], tmp_path)
