"""Tables for a terminal: columns that line up."""

from collections.abc import Collection, Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Header and rows, one line each; columns in which no row has anything are left out.

    Args:
        header: a name per column.
        rows: a text per column.
        right: names of the columns that are aligned to the right, as numbers are.
    """
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    lines = []
    for row in (header, *rows):
        cells = []
        for place in kept:
            width = max(len(header[place]), *(len(other[place]) for other in rows))
            cells.append(row[place].rjust(width) if header[place] in right else row[place].ljust(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
