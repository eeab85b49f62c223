"""Paths in the job of a study: from the current folder, then beside the file, then from the project above it."""

import os
from pathlib import Path

import pytest

from paretune.studies.definition.file import StudyFile, beside


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a study and files; the current folder is another one."""
    project, here = tmp_path / "project", tmp_path / "here"
    (project / "studies" / "tiny").mkdir(parents=True)
    here.mkdir()
    for name in ("MLproject", "studies/rows.csv", "studies/mine.csv"):
        (project / name).touch()
    (here / "mine.csv").touch()
    monkeypatch.chdir(here)
    return project


def test_a_study_finds_the_files_that_lie_beside_it(project: Path) -> None:
    path = project / "studies" / "own.yaml"
    path.write_text(
        "name: own\njob: {dataset: rows.csv, model: studies/tiny}\nsearch: {learning_rate: {low: 1e-5, high: 1e-4}}\n"
        "budget_usd: 1\n"
    )

    job = StudyFile.read(str(path), {}).job

    assert job.dataset == str(project / "studies" / "rows.csv")
    assert job.model == str(project / "studies" / "tiny")


def test_what_is_in_the_current_folder_or_nowhere_stays_as_it_is_written(project: Path) -> None:
    study = str(project / "studies" / "own.yaml")

    assert beside(study, "mine.csv") == "mine.csv"
    for text in ("gpt2", "bundled:imdb", "s3://films/rows.csv", "~nobody/rows.csv", "x" * 5000, os.sep + "no", "a\0b"):
        assert beside(study, text) == text
