"""Paths and names of the studies and examples that come with paretune."""

from pathlib import Path

import pytest

from paretune.cli import main
from paretune.core.errors import BadInput
from paretune.storage.files import find_file, find_path
from paretune.studies.definition.file import StudyFile

REPOSITORY = Path(__file__).parents[3]
SMOKE = str(REPOSITORY / "studies" / "smoke.yaml")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which is empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ["smoke", "smoke.yaml", "studies/smoke", "studies/smoke.yaml"])
def test_a_shipped_study_is_found_in_every_folder_by_name_file_or_path(name: str) -> None:
    assert find_file(name) == SMOKE


def test_a_file_of_the_current_folder_wins_and_a_folder_of_that_name_does_not(here: Path) -> None:
    (here / "smoke.yaml").touch()
    (here / "pareto").mkdir()

    assert find_file("smoke.yaml") == "smoke.yaml"
    assert find_file("pareto") == str(REPOSITORY / "studies" / "pareto.yaml")


@pytest.mark.parametrize(
    "name",
    ["", "no such", "README.md", "../pyproject", "studies/../README.md", "/smoke", "~/smoke", "x" * 5000, "a\0b"],
)
def test_what_is_not_shipped_stays_as_it_is_written(name: str) -> None:
    assert find_file(name) == name
    assert find_path(name) == name


def test_a_path_counts_from_the_current_folder_then_from_those_given_then_from_what_is_shipped(
    here: Path, tmp_path: Path
) -> None:
    rows = "studies/rehearsal.csv"
    assert find_path(rows, tmp_path) == str(REPOSITORY / rows)

    (tmp_path / "studies").mkdir()
    (tmp_path / rows).touch()
    assert find_path(rows, tmp_path) == str(tmp_path / rows)

    (here / "studies").mkdir()
    (here / rows).touch()
    assert find_path(rows, tmp_path) == rows


def test_the_files_that_a_shipped_study_names_are_found_too() -> None:
    rows = str(REPOSITORY / "studies" / "rehearsal.csv")

    assert StudyFile.read("pareto", {"launcher": "simulated"}).job.simulation.runs == rows


def test_a_name_that_is_nowhere_is_refused_with_the_names_that_are_shipped() -> None:
    with pytest.raises(
        BadInput, match=r"no_such does not exist .* or a shipped one: batch_and_rate, .*demo, .*pareto, .*smoke"
    ):
        StudyFile.read("no_such", {})


def test_a_typed_path_of_a_job_may_be_a_shipped_one(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dataset", "studies/rehearsal.csv", "--validation_file", "none.csv"]

    assert main(["train", *words, "--dry_run"]) == 2
    assert capsys.readouterr().err.startswith("paretune: validation_file none.csv does not exist")
