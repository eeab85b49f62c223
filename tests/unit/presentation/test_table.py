"""Tables of texts in a terminal and in Markdown."""

import pandas as pd

from paretune.presentation.table import aligned, markdown_table, texts

FRAME = pd.DataFrame({"name": ["a|b", "long\nname"], "usd": [1.5, None], "nothing": [None, None]})
TABLE = texts(FRAME, {"run": "name", "USD": ("usd", ",.2f"), "empty": "nothing"})


def test_unknown_values_are_empty_and_empty_columns_left_out() -> None:
    assert TABLE.to_dict("list") == {"run": ["a|b", "long\nname"], "USD": ["1.50", ""]}


def test_numbers_are_aligned_right() -> None:
    frame = pd.DataFrame({"name": ["a", "bcd"], "n": ["10", "9"]})

    assert aligned(frame) == "name   n\na     10\nbcd    9"


def test_nothing_leaves_a_cell_of_markdown() -> None:
    assert markdown_table(TABLE) == "| run | USD |\n| --- | --- |\n| a\\|b | 1.50 |\n| long name |  |"
