"""Aligned columns for a terminal."""

from collections.abc import Collection, Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Header and rows, one line each; columns that are empty in all rows are left out, `right` right-aligned."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    aligned = []
    for name, *cells in columns:
        width = max(map(len, (name, *cells)))
        aligned.append([cell.rjust(width) if name in right else cell.ljust(width) for cell in (name, *cells)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))
