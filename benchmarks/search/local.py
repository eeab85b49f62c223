"""How far single runs of the local table lie from the mean of their repeats."""

from dataclasses import replace
from pathlib import Path

from paretune.estimating.recorded_runs import RunTable
from search.tables import Scatter, residuals


def scatter(*paths: Path) -> Scatter:
    """How far single runs lie from the mean of their repeats.

    F1 from all repeats in these tables, the first of which is the one that is searched; seconds from repeats within
    that one, for they were measured while nothing else ran.
    """
    tables = [RunTable.read(path) for path in paths if path.exists()]
    whole = replace(tables[0], rows=tuple(row for table in tables for row in table.rows))
    f1, _ = residuals(whole)
    _, log_seconds = residuals(tables[0])
    seconds = (
        f"seconds by {len(log_seconds)} residuals" if log_seconds else "seconds by what two SageMaker jobs differ by"
    )
    basis = f"F1 by {len(f1)} residuals of repeated runs, of points with a like F1; {seconds}"
    return Scatter(f1=tuple(f1), log_seconds=tuple(log_seconds), basis=basis)
