"""Labeled sentences whose words reveal their class."""

import random
from pathlib import Path

GOOD = tuple("great warm funny clever moving fresh lovely bright tender bold".split())  # noqa: SIM905
BAD = tuple("dull cold stale clumsy boring tired ugly flat hollow weak".split())  # noqa: SIM905
OTHER = tuple("the a film story actor scene music plot is was and with very quite rather it this".split())  # noqa: SIM905


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` sentences, each with a class that its words reveal."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        label = ("positive", "negative")[number % 2]
        words = source.choices(OTHER, k=source.randint(3, 14)) + source.choices(GOOD if number % 2 == 0 else BAD, k=2)
        source.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> Path:
    """Write rows as CSV with a header line."""
    path.write_text("\n".join([header, *(f"{text},{label}" for text, label in rows)]) + "\n")
    return path
