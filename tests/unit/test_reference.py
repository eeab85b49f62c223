"""The pages of docs/reference: what the code has, they have."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from mlflow import MlflowClient

from paretune.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "paretune").rglob("*.py"))
CODE = "\n".join(path.read_text() for path in SOURCES)


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reference

    return reference


def test_the_committed_pages_are_what_the_code_says(reference: ModuleType) -> None:
    committed = {path.name: path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md")}

    assert {name: committed.get(name) for name in reference.pages()} == reference.pages(), (
        "run `python docs/reference.py`, which writes docs/reference from the code"
    )


def test_everything_in_a_table_is_explained(reference: ModuleType) -> None:
    silent = [
        line for text in reference.pages().values() for line in text.splitlines() if re.match(r"\| `[^|]*\|\s*\|", line)
    ]

    assert not silent, "add a comment beside the constant, or below it"


def test_what_the_code_does_not_say_itself_is_complete(reference: ModuleType) -> None:
    variables = set(re.findall(r"\bPARETUNE_[A-Z_]+", CODE))
    folders = set(re.findall(r"\bhome / \"([\w.-]+)\"", CODE))

    assert set(reference.PRODUCES) == set(COMMANDS)
    assert set(reference.VARIABLES) | reference.INTERNAL_VARIABLES == variables
    assert folders - set(reference.HOME_FILES) == set()
    assert not [name for name in reference.HOME_FILES if f'"{name}"' not in CODE]
    assert not [name for name in reference.FACTS if f'"{name.removeprefix("paretune.")}"' not in CODE]


def test_every_metric_and_tag_of_a_job_has_an_entry(
    reference: ModuleType, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000"]
    assert main(["train", *words]) == 0
    capsys.readouterr()

    page = reference.pages()["recorded.md"]
    entries = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    runs = MlflowClient().search_runs(["0"])
    metrics = {name for run in runs for name in run.data.metrics if "/" not in name}
    tags = {name for run in runs for name in run.data.tags if name.startswith("paretune.")}
    assert len(metrics) > 10
    assert {re.sub("_(low|high|best)$", "", name) for name in metrics} - entries == set()
    assert tags - entries == set()
