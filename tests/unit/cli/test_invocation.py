"""How a process finds out how it was started."""

import sys
from pathlib import Path

import pytest

from paretune.cli import invocation
from paretune.cli.invocation import spelling_here

RUN = ["/env/bin/python3.11", "/env/bin/mlflow", "run"]


@pytest.mark.parametrize(
    ("typed", "repeated"),
    [
        ([".", "-P", "seed=1", "--env-manager", "local"], [".", "--env-manager", "local"]),
        (["--env-manager=uv", "-e", "study", "/a place", "-P", "a=b"], ["/a place", "--env-manager", "uv"]),
        (["-P", "a=b", ".", "--experiment-name", "mine", "--run-name", "x"], [".", "--experiment-name", "mine"]),
        (["https://host/project#sub", "-v", "main"], ["https://host/project#sub", "--version", "main"]),
    ],
)
def test_a_command_of_mlflow_run_is_repeated_with_the_options_it_was_typed_with(
    typed: list[str], repeated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation, "_parent_words", lambda: [*RUN, *typed])
    spelling = spelling_here({"MLFLOW_RUN_ID": "abc"})

    assert (spelling.words, spelling.by_mlflow) == (("mlflow", "run", *repeated), True)
    assert not spelling_here({}).by_mlflow  # the parent of another command


@pytest.mark.parametrize("parent", [[], ["bash"], ["mlflow", "ui"], [*RUN, "-e"]])
def test_where_the_parent_is_no_mlflow_run_it_is_the_program(
    parent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation, "_parent_words", lambda: parent)

    assert not spelling_here({"MLFLOW_RUN_ID": "abc"}).by_mlflow


def test_a_program_that_the_search_path_does_not_lead_to_is_spelled_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spelling_here({}).words == (sys.executable, "-m", "paretune")

    (tmp_path / "paretune").touch(mode=0o755)
    assert spelling_here({}).words == (sys.executable, "-m", "paretune")  # that of another environment
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert spelling_here({}).words == ("paretune",)
