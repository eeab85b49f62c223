"""Figures and tables of the validation rows in a job's report, which become artifacts of its run."""

from typing import Any

import numpy as np

from paretune.core.result import csv_text
from paretune.specification.container import JobReport

_MOST_CLASSES_WITH_NUMBERS = 12
_MOST_CLASSES_WITH_NAMES = 60
_LONGEST_NAME = 30  # characters


def classification_report(report: JobReport) -> str:
    """Precision, recall, F1 and number of validation rows per class, as text."""
    from sklearn.metrics import classification_report as table

    counts = np.asarray(report.confusion_matrix)
    truth, answers = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    names = list(report.labels)
    return str(table(truth, answers, labels=range(len(names)), target_names=names, digits=4, zero_division=0))


def _can_be_drawn(name: str) -> bool:
    """Whether matplotlib's own font, which is on every machine, has all characters; else they would become boxes."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return all(font.get_char_index(ord(character)) for character in name if character.isprintable())


def confusion_figure(report: JobReport) -> Any:
    """A matplotlib figure: rows are true classes, colour the share of the class, numbers the validation rows."""
    from matplotlib.figure import Figure

    counts = np.asarray(report.confusion_matrix)
    classes = len(report.labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(2.5 + 0.45 * classes, 4.5, 16))
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    axes.set(xlabel="predicted", ylabel="true", title=f"Validation split, {counts.sum():,} rows")
    if classes <= _MOST_CLASSES_WITH_NAMES:
        names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in report.labels]
        if not all(map(_can_be_drawn, names)):
            names = [f"class {number}" for number in range(1, classes + 1)]
            axes.set(xlabel="predicted (names: classification_report.txt, in this order)")
        axes.set_xticks(range(classes), names, rotation=45, ha="right", parse_math=False)  # "$" in a name: no formula
        axes.set_yticks(range(classes), names, parse_math=False)
    if classes <= _MOST_CLASSES_WITH_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
    return figure


def label_table(report: JobReport) -> str:
    """Precision, recall, F1 and number of validation rows per label, as CSV; 0 where a label was never answered."""
    columns = ["label", "rows", "answered", "precision", "recall", "f1"]
    lines = []
    for name, (both, answered, true, _) in zip(report.labels, report.label_counts, strict=True):
        precision, recall = both / max(both + answered, 1), both / max(both + true, 1)
        f1 = 2 * both / max(2 * both + answered + true, 1)
        line = [name, both + true, both + answered, f"{precision:.4f}", f"{recall:.4f}", f"{f1:.4f}"]
        lines.append(dict(zip(columns, line, strict=True)))
    return csv_text(columns, lines)
