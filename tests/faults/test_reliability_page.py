"""The page `docs/reliability.md` has the rows that the suite knows."""

from tests.faults.table import BEGIN, END, FAULTS, PAGE


def test_the_table_of_the_page_has_the_faults_and_outcomes_of_the_suite() -> None:
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]

    assert [(row[0], row[-1]) for row in rows[2:]] == [(fault.what, fault.outcome) for fault in FAULTS.values()]
