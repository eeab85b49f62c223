"""A report as files: names of runs and values of parameters are other people's texts."""

from paretune.commands.report.report import Report, Section
from paretune.presentation.table import Cell, Table

NAME = "gnp\u202efdp\x1b[2J <b>"
SHOWN = r"gnp\u202efdp\x1b[2J"


def report() -> Report:
    """A report with the name in every place."""
    cells = [Cell(NAME), Cell(NAME, 1.0), Cell(NAME, address="https://example.com")]
    table = Table(headers=[NAME, "a_b", "c"], cells=[cells])
    section = Section(heading=NAME, sentences=[NAME], tables=[(NAME, table)])
    row: dict[str, object] = {"run": NAME, "usd": 0.5, "none": None}
    return Report(title=NAME, about=[NAME], sections=[section], rows=[row], totals=[row])


def test_no_file_of_a_report_holds_what_turns_or_hides_a_text() -> None:
    files = [report().html(), report().markdown(), *report().tables().values()]

    for text in files:
        assert SHOWN in text
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_a_page_shows_html_in_a_name_as_text() -> None:
    page = report().html()

    assert f"<h1>{SHOWN} &lt;b&gt;</h1>" in page
    assert "a_<wbr>b" in page


def test_markdown_shows_html_in_a_name_as_text_and_links_nowhere() -> None:
    evil = "<img src=x>\n\n![a](http://host/pixel.png)|"
    table = Table(headers=[evil], cells=[[Cell(evil)]])
    section = Section(heading=evil, sentences=[evil], tables=[(evil, table)])
    text = Report(title=evil, about=[evil], sections=[section], rows=[]).markdown()

    assert "<" not in text
    assert "](" not in text
    assert text.splitlines()[-5].endswith(r"pixel.png)\| |")  # a cell stays in its row


def test_a_report_without_rows_is_a_table_without_lines() -> None:
    assert Report(title="a", about=[], sections=[], rows=[]).csv() == "run_id\n"
