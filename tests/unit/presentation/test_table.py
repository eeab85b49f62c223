"""Tables in a terminal, in Markdown, as CSV and as JSON rows."""

from decimal import Decimal

from paretune.presentation.table import Cell, Column, Table

JOBS = [("ab", 1234.5, Decimal("0.1230")), ("c|d", None, Decimal("2E+1"))]
COLUMNS: list[Column[tuple[str, float | None, Decimal]]] = [
    Column("name", lambda job: job[0]),
    Column("seconds", lambda job: job[1], ",.0f"),
    Column("usd", lambda job: job[2], lambda usd: f"{usd:.2f} USD"),
    Column("remark", lambda _: None),
]
TABLE = Table.of(COLUMNS, JOBS)


def test_a_terminal_gets_aligned_columns_without_the_empty_ones() -> None:
    assert TABLE.text() == "name  seconds        usd\nab      1,234   0.12 USD\nc|d            20.00 USD"


def test_markdown_aligns_numbers_right_and_escapes_bars() -> None:
    lines = TABLE.without_empty_columns().markdown().splitlines()

    assert lines == [
        "| name | seconds | usd |",
        "| --- | ---: | ---: |",
        "| ab | 1,234 | 0.12 USD |",
        "| c\\|d |  | 20.00 USD |",
    ]


def test_files_and_json_hold_values_and_not_their_texts() -> None:
    assert TABLE.csv() == "name,seconds,usd,remark\nab,1234.5,0.123,\nc|d,,20,\n"
    assert TABLE.rows()[1] == {"name": "c|d", "seconds": None, "usd": 20.0, "remark": None}


def test_a_page_sorts_by_the_value_where_the_text_is_another_one() -> None:
    assert [cell.sort_value for cell in TABLE.cells[0]] == [None, 1234.5, Decimal("0.1230"), None]
    assert Cell("7", 7).sort_value is None


def test_a_table_without_headers_has_no_line_for_them() -> None:
    assert Table(headers=["", ""], cells=[[Cell("a"), Cell("b")]]).text() == "a  b"
