"""Columns line up."""

from paretune.core.text_table import text_table


def test_columns_line_up_numbers_to_the_right_and_no_line_ends_in_spaces() -> None:
    assert text_table(["name", "USD"], [["a", "1.5"], ["longer", "10.25"]], {"USD"}) == (
        "name      USD\na         1.5\nlonger  10.25"
    )
    assert text_table(["a", "b"], [["long", "x"], ["s", ""]]) == "a     b\nlong  x\ns"


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    assert text_table(["a", "b", "c"], [["1", "", "2"], ["3", "", ""]]) == "a  c\n1  2\n3"
