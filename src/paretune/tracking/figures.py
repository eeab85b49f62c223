"""Makes figures and tables from the validation results in a job's report, for the artifacts of its run."""

import re
from typing import Any

import numpy as np

from paretune.core.result import csv_text
from paretune.specification.container import JobReport

_MOST_CLASSES_WITH_NUMBERS = 12
_LONGEST_NAME = 30  # characters


def classification_report(report: JobReport) -> str:
    """Return precision, recall, F1 and number of validation rows per class, as text.

    The report's macro average of F1 is the run's metric f1. The report includes only the classes that occur in the
    validation rows or the predictions.
    """
    from sklearn.metrics import classification_report as table

    counts = np.asarray(report.confusion_matrix)
    occurring = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    counts, names = counts[np.ix_(occurring, occurring)], [report.labels[number] for number in occurring]
    truth, answers = (axis.ravel() for axis in np.indices(counts.shape))
    options: dict[str, Any] = {"sample_weight": counts.ravel(), "digits": 4, "zero_division": 0}
    text = str(table(truth, answers, labels=range(len(names)), target_names=names, **options))
    return re.sub(r"(\d+)\.0$", r"  \1", text, flags=re.MULTILINE)  # row counts are floats here: sums of weights


def confusion_figure(report: JobReport) -> Any:
    """Return a figure of the confusion matrix in scikit-learn's style; the values are shares of each true class."""
    from matplotlib import font_manager, rc_context
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    counts, names = np.asarray(report.confusion_matrix), report.labels
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(2.5 + 0.45 * len(names), 4.5, 16))
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))  # comes with matplotlib
    if not all(font.get_char_index(ord(character)) for character in "".join(names) if character.isprintable()):
        names = tuple(f"class {number}" for number in range(1, len(names) + 1))  # the font lacks a character
    matrix = ConfusionMatrixDisplay(shares, display_labels=[name[:_LONGEST_NAME] for name in names])
    options = {"include_values": len(names) <= _MOST_CLASSES_WITH_NUMBERS, "values_format": ".0%", "colorbar": False}
    with rc_context({"text.parse_math": False}):  # or "$" in a name would start a formula
        matrix.plot(ax=figure.add_subplot(), cmap="Blues", xticks_rotation=45, **options)
    figure.suptitle(f"{counts.sum():,} validation rows")
    return figure


def label_table(report: JobReport) -> str:
    """Return precision, recall, F1 and validation rows per label as CSV; a ratio whose denominator is 0 is 0."""
    columns = ["label", "rows", "answered", "precision", "recall", "f1"]
    lines = []
    for name, (both, answered, true, _) in zip(report.labels, report.label_counts, strict=True):
        precision, recall = both / max(both + answered, 1), both / max(both + true, 1)
        f1 = 2 * both / max(2 * both + answered + true, 1)
        line = [name, both + true, both + answered, f"{precision:.4f}", f"{recall:.4f}", f"{f1:.4f}"]
        lines.append(dict(zip(columns, line, strict=True)))
    return csv_text(columns, lines)
