"""Pages and notebooks for users: what they show is what happens."""

import doctest
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from paretune.cli import main
from paretune.presentation.text import limit_usd
from tests.support.pages import PAGES, commands_of, job_of

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
assert NOTEBOOKS


@pytest.mark.slow
def test_the_page_of_the_python_interface_shows_what_happens(next_to_the_studies: Path) -> None:
    result = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False)

    assert result.attempted
    assert not result.failed


def test_the_page_for_studies_of_optuna_shows_what_happens(next_to_the_studies: Path) -> None:
    result = doctest.testfile(str(ROOT / "docs" / "optuna.md"), module_relative=False)

    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_the_notebook_runs_to_its_end(path: Path, next_to_the_studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(next_to_the_studies / "user"))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(next_to_the_studies)}}).execute()

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
    texts = re.sub(r'"\n +f?"', "", code)  # a string over several lines is one string
    patterns = [".{1,200}?".join(map(re.escape, quote.split("…"))) for quote in quotes]

    assert quotes
    assert not [pattern for pattern in patterns if not re.search(pattern, texts)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_table_of_a_page_has_a_heading(path: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)

    assert not [table for table in tables if not re.match(r"\|.*\|\n\|(?: ?:?-+:? ?\|)+\n", table)]


WORDS = {
    "api.md": 1503,
    "evidence.md": 3792,
    "faq.md": 588,
    "how-it-works.md": 1275,
    "index.md": 1661,
    "log.md": 1480,
    "money.md": 1836,
    "optuna.md": 558,
    "own-data.md": 1309,
    "own-training.md": 1766,
    "published.md": 1824,
    "reference/commands.md": 1097,
    "reference/files.md": 790,
    "reference/job-parameters.md": 1475,
    "reference/recorded.md": 1324,
    "sagemaker.md": 2222,
    "tutorial.md": 1499,
}
"""Words of each page in docs/ on 2026-12-01. Who adds a page adds it here."""
MOST_WORDS_OF_README = 900


def test_pages_grow_by_a_tenth_at_most_unless_a_new_one_is_named() -> None:
    counted = {path.relative_to(ROOT / "docs").as_posix(): words_of(path) for path in (ROOT / "docs").rglob("*.md")}

    assert counted.keys() == WORDS.keys()
    assert sum(counted.values()) <= 1.1 * sum(WORDS.values()), "shorten the pages, or name a new one in WORDS"
    assert words_of(ROOT / "README.md") <= MOST_WORDS_OF_README


def words_of(path: Path) -> int:
    return len(path.read_text().split())


def test_no_page_explains_words_that_no_answer_has() -> None:
    pages = "\n".join(path.read_text() for path in PAGES if path.name not in ("CHANGELOG.md", "log.md"))

    assert "within noise" not in pages
    assert "unknown after one run" not in pages
    assert (
        "These runs cannot tell its val_f1 from that of trials 0 and 6" in (ROOT / "docs" / "tutorial.md").read_text()
    )


def command_in(text: str, name: str) -> list[str]:
    """Return the words of the first `paretune NAME` line of a page."""
    return next(words[1:] for words in commands_of(text) if job_of(words)[0] == name)


def test_the_page_of_money_shows_what_the_estimate_prints(
    next_to_the_studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "money.md").read_text()
    assert main([*command_in(page, "estimate"), "--json"]) == 0
    rows = {(row["instance_count"], row["instance_type"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    number = r"([\d.]+)"
    stated = rf"{number} \({number} to {number}\)"

    shown = re.findall(rf"^\| (\* )?(\d) x (ml\.\S+) \| {stated} \| {stated} \|$", page, re.MULTILINE)

    assert len(shown) == 4
    for star, count, instance_type, *figures in shown:
        row = rows[int(count), instance_type]
        assert bool(star) == row["on_front"]
        seconds = [row[name] / 60 for name in ("seconds", "seconds_low", "seconds_high")]
        assert [float(text) for text in figures[:3]] == pytest.approx(seconds, abs=0.5)
        dollars = [row[name] for name in ("cost_usd", "cost_usd_low", "cost_usd_high")]
        assert [float(text) for text in figures[3:]] == pytest.approx(dollars, abs=0.005)


def test_the_worst_cases_in_the_pages_are_those_of_their_commands(
    next_to_the_studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    money = (ROOT / "docs" / "money.md").read_text()
    (line,) = [words for words in commands_of(money) if "--max_cost_usd" in words]
    assert main([*line[1:], "--json"]) == 4
    (shown,) = re.findall(r"worst case ([\d.]+ USD)", json.loads(capsys.readouterr().out)["error"]["message"])
    assert f"its **worst case** is {shown}" in money

    sagemaker = (ROOT / "docs" / "sagemaker.md").read_text()
    (line, *_) = [words for words in commands_of(sagemaker) if "--dry_run" in words]
    words = [word for word in line[1:] if word not in {"--role", "SageMakerTraining"}]
    assert main([*words, "--launcher", "simulated", "--json"]) == 0
    worst_usd = json.loads(capsys.readouterr().out)["worst_case_usd"]
    assert f"worst case: {limit_usd(worst_usd)} " in sagemaker


@pytest.mark.usefixtures("no_settings")
def test_the_page_of_money_counts_the_prices_that_come_along(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "money.md").read_text()
    (counts,) = re.findall(r"(\d+) types in us-east-1 and (\d+) in us-west-2", page)

    for region, count in zip(("us-east-1", "us-west-2"), counts, strict=True):
        assert main(["prices", "--region", region, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert sum(row["price_usd_per_hour"] is not None for row in rows) == int(count)


def test_a_shipped_table_of_prices_is_found_from_every_folder(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARETUNE_PRICES", "studies/polarity_prices.csv")  # as the pages recommend

    assert main(["prices", "--instance_type", "ml.p3.16xlarge", "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["price_usd_per_hour"] == 28.152
