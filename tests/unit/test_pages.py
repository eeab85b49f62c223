"""Pages and notebooks for users: what they show is what happens."""

import doctest
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
assert NOTEBOOKS


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project's studies, and nothing of the user's settings."""
    (workplace / "studies").symlink_to(ROOT / "studies")
    for name in [name for name in os.environ if name.startswith(("AWS_", "PARETUNE_P"))]:
        monkeypatch.delenv(name)
    for name in ("XDG_CACHE_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(workplace / "user"))
    return workplace


@pytest.mark.slow
def test_the_page_of_the_python_interface_shows_what_happens(project: Path) -> None:
    result = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False)

    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_the_notebook_runs_to_its_end(path: Path, project: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(project)}}).execute()

    view = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    tables = [output["data"]["text/html"] for output in view if "text/html" in output.get("data", {})]
    assert len(tables) >= 7
    assert any("simulated" in table for table in tables)
    assert any("2 faults" in output.get("text", "") or "3 faults" in output.get("text", "") for output in view)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells

    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_every_message_that_the_page_of_errors_explains_is_one_of_the_code() -> None:
    quotes = re.findall(r"^#### `(.*)`$", (ROOT / "docs" / "reference" / "files.md").read_text(), re.MULTILINE)
    code = "\n".join(path.read_text() for path in (ROOT / "src" / "paretune").rglob("*.py"))
    texts = re.sub(r'"\n +f?"', "", code)  # a text over several lines is one text
    patterns = [".{1,200}?".join(map(re.escape, quote.split("…"))) for quote in quotes]

    assert quotes
    assert not [pattern for pattern in patterns if not re.search(pattern, texts)]
