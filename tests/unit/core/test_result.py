"""Rows, frames and JSON values of results."""

import csv
import io
from enum import Enum
from pathlib import Path

import pytest

from paretune.core.result import Result, Row, as_json, csv_text, read_rows


class Word(Enum):
    YES = "yes"


def test_json_values_are_json_s_own() -> None:
    value = {"a": (1, float("inf")), "b": Word.YES, "c": Path("x"), "d": [None, True, 0.5]}

    assert as_json(value) == {"a": [1, None], "b": "yes", "c": "x", "d": [None, True, 0.5]}


def test_cells_of_a_table_are_numbers_truths_and_texts() -> None:
    (row,) = read_rows("run_id,a,b,c,d,e,f,g\n12345,1,2.5e-5,true,,nan,ml.g5.xlarge,2024_01\n")

    texts = {"run_id": "12345", "e": "nan", "f": "ml.g5.xlarge", "g": "2024_01"}
    assert row == {**texts, "a": 1, "b": 2.5e-5, "c": True, "d": None}


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\uff1d1+1"])
def test_a_cell_that_a_spreadsheet_would_take_for_a_formula_is_text(text: str) -> None:
    table = csv_text([text, "b"], [{text: text, "b": "-0.5"}])

    assert [cell[:1] for row in csv.reader(io.StringIO(table)) for cell in row] == ["'", "b", "'", "-"]
    assert read_rows(table) == [{text: text, "b": -0.5}]


class Table(Result):
    @property
    def title(self) -> str:
        return "a & b"

    def rows(self) -> list[Row]:
        return [{"x": 1, "y": None, "z": None}, {"x": 2, "y": "<i>", "z": None}]

    def to_dict(self) -> dict[str, object]:
        return {"rows": self.rows()}

    def __str__(self) -> str:
        return self.title


def test_a_frame_keeps_columns_that_are_not_known_and_a_notebook_leaves_them_out() -> None:
    assert list(Table().to_frame().columns) == ["x", "y", "z"]
    shown = Table()._repr_html_()

    assert "<th>z</th>" not in shown
    assert "a &amp; b" in shown
    assert "&lt;i&gt;" in shown
    assert "None" not in shown
    assert "NaN" not in shown
