"""What depends on the task: reading labels, the loss, the metrics, and baselines to compare with.

The labels of N rows are an array. For classification, it has class ids (N,) int64. For multi-label, it has flags 0 and
1 (N, C) float32 for C labels. For token-classification, it has N lists with a class id for each word.

The cell of a multi-label row may be a list, a list that JSON, Python or NumPy has written as text, or text with |
between the labels (with commas if no row has a |). Or the data set has C columns of 0 and 1, and `label_column` lists
their names, separated by commas.
"""

import ast
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, multilabel_confusion_matrix
from sklearn.preprocessing import MultiLabelBinarizer

from paretune.core.errors import refuse
from paretune.core.reading import parse_json
from paretune.specification import metrics
from paretune.specification.container import MOST_CLASSES_IN_MATRIX
from paretune.specification.inputs import NUMBERS_REMEDY, DataArguments, class_faults
from paretune.training.output_layer import summed_entropy

if TYPE_CHECKING:
    import datasets

_TFIDF_ROWS = 50_000  # maximum rows for fitting a baseline: more rows take time and hardly change the result
_FITTED_CELLS = 500_000  # multi-label: maximum rows x labels (at least 2,000 rows); each label has its own regression
_FITTED_WEIGHTS = 2_000_000
"""Largest number of weights of one regression, classes x words. Its solver keeps 20 copies of them: 320 MB."""
_EXAMPLES = 5  # a fault names at most this many rows or labels
_REMEDIES = {  # maps the type of a cell that is not a class to a remedy
    list: ": set task=multi-label for rows with several labels, or label_column to another column",
    float: NUMBERS_REMEDY,
}
_GAP = re.compile(r"""(?<=['"])\s+(?=['"])|(?<=\d)\s+(?=-?\d)(?=[^'"]*$)""")  # between items that NumPy prints
Texts = tuple[Sequence[str], np.ndarray]  # texts and their labels


@dataclass(frozen=True, kw_only=True)
class SummedLoss:
    """The sum of the cross-entropies of B rows, in fp32, times `factor`.

    `smoothing` has no effect on flags. The caller divides the sum by the number of labels in a step on all devices. The
    models of transformers would divide it by the number of labels in one batch.
    """

    task: str
    smoothing: float = 0.0
    factor: float = 1.0

    def of_logits(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of logits.

        Shapes: `logits` (B, C) with `labels` (B,) of classes or (B, C) of flags; or `logits` (B, T, V) and `labels`
        (B, T) for T tokens with V possible labels, where IGNORED means no label. For causal-lm, labels are the tokens
        themselves.
        """
        functional = torch.nn.functional
        if self.task == metrics.MULTI_LABEL:
            entropy = partial(functional.binary_cross_entropy_with_logits, reduction="sum")
            return entropy(logits.float(), labels.float()) * self.factor
        if self.task == metrics.CAUSAL_LM:
            logits, labels = logits[:, :-1], labels[:, 1:]
        entropy = partial(functional.cross_entropy, reduction="sum", label_smoothing=self.smoothing)
        if self.task == metrics.CAUSAL_LM and not logits.requires_grad:  # row by row: else all logits are copied
            rows = [entropy(row.float(), of_row) for row, of_row in zip(logits, labels, strict=True)]
            return torch.stack(rows).sum() * self.factor
        return entropy(logits.flatten(0, -2).float(), labels.flatten()) * self.factor

    def of_hidden(
        self, labels: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the loss of a language model from the input (B, T, H) of its output layer, without its logits."""
        inputs, targets = hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten().to(hidden.device)
        return summed_entropy(inputs, weight, bias, targets, self.smoothing) * self.factor


class Evaluation:
    """Computes the metrics of a task.

    After an evaluation, `report_entries` has its confusion matrix, or the counts for each label of a multi-label task.
    It is empty for token-classification, and for more classes than MOST_CLASSES_IN_MATRIX.
    """

    def __init__(self, task: str, names: Sequence[str]) -> None:
        self._task, self._names = task, names
        self.report_entries: Mapping[str, Any] | None = None

    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the predictions that are kept until all rows are evaluated: class ids, or a flag for each label."""
        return logits >= 0 if self._task == metrics.MULTI_LABEL else logits.argmax(-1)

    def __call__(self, predicted: Any, labels: Any) -> dict[str, float]:
        """Return the metrics of the predictions and labels of N rows. Rows of words may have different lengths."""
        if self._task == metrics.TOKEN_CLASSIFICATION:  # the first token of a word has a label, all others -100
            self.report_entries = {}
            words_of_rows = (
                [[self._names[number] for number in row[of != -100]] for row, of in zip(side, labels, strict=True)]
                for side in (labels, predicted)
            )
            return word_metrics(*words_of_rows)
        predicted, labels = np.asarray(predicted), np.asarray(labels)
        if self._task == metrics.MULTI_LABEL:
            truth = labels.astype(bool)
            counts = multilabel_confusion_matrix(truth, predicted)[:, [1, 0, 1, 0], [1, 1, 0, 0]]
            self.report_entries = {"label_counts": tuple(tuple(map(int, row)) for row in counts)}
            return {
                metrics.F1: macro_f1(truth, predicted),
                metrics.F1_MICRO: float(f1_score(truth, predicted, average="micro", zero_division=0)),
                metrics.SUBSET_ACCURACY: float((truth == predicted).all(axis=1).mean()),  # all labels right
            }
        self.report_entries = {}
        if len(self._names) <= MOST_CLASSES_IN_MATRIX:
            confusion = confusion_matrix(labels, predicted, labels=np.arange(len(self._names)))
            self.report_entries = {"confusion_matrix": tuple(tuple(map(int, row)) for row in confusion)}
        return {metrics.F1: macro_f1(labels, predicted), metrics.ACCURACY: float(accuracy_score(labels, predicted))}


_LAST, _ALONE = ("E", "L"), ("S", "U")
_OF_ENTITIES = {f"{prefix}-" for prefix in ("B", "I", *_LAST, *_ALONE)}


def word_metrics(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the F1 of entities and the accuracy of words, from the labels of N rows of words.

    An entity is right if its kind, first word and last word are right. F1 is micro-averaged over all kinds, as in
    `seqeval` (Tjong Kim Sang and De Meulder, CoNLL 2003). If no label in `truth` begins with B- or I-, F1 is the macro
    F1 of the words.
    """
    flat, answers = ([label for row in rows for label in row] for rows in (truth, predicted))
    if any(label.startswith(("B-", "I-")) for label in flat):
        pairs = [(entities(row), entities(other)) for row, other in zip(truth, predicted, strict=True)]
        right = sum(len(row & other) for row, other in pairs)
        f1 = 2 * right / max(1, sum(len(row) + len(other) for row, other in pairs))
    else:
        f1 = macro_f1(flat, answers)
    return {metrics.F1: f1, metrics.ACCURACY: sum(map(operator.eq, flat, answers)) / max(1, len(flat))}


def entities(labels: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return kind, first word and end (exclusive) of each entity in a row. A stray I- label begins a new entity.

    The last word of an entity may have E- or L-, and an entity of one word S- or U- (BIOES and BILOU).
    """
    spans, kind, first, has_ended = set[tuple[str, int, int]](), "", 0, False
    for number, label in enumerate([*labels, ""]):
        prefix, _, name = label.partition("-") if label[:2] in _OF_ENTITIES else ("", "", "")
        if kind and (has_ended or prefix not in ("I", *_LAST) or name != kind):
            spans.add((kind, first, number))
            kind = ""
        if prefix and not kind:
            kind, first = name, number
        has_ended = prefix in (*_LAST, *_ALONE)
    return spans


def macro_f1(labels: Any, predicted: Any) -> float:
    """Return the mean F1 over labels, or over the classes that occur. If a class is never predicted, its F1 is 0."""
    return float(f1_score(labels, predicted, average="macro", zero_division=0))


def text_baselines(train: Texts, validation: Texts) -> dict[str, float]:
    """Return the macro F1 of two baselines: the most frequent answer, and logistic regression (C = 5) on TF-IDF.

    The most frequent answer is a class or, for multi-label, a set of labels. For multi-label, each label has its own
    regression (threshold 0.5). The regression is left out if no word occurs in two texts, or if all rows to fit have
    the same class.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    (texts, labels), (validation_texts, truth) = ((part[0], part[1].astype(int)) for part in (train, validation))
    answers, counts = np.unique(labels, axis=0, return_counts=True)
    most_frequent = np.broadcast_to(answers[counts.argmax()], truth.shape)
    baselines = {metrics.BASELINE_MAJORITY: macro_f1(truth, most_frequent)}
    has_flags = labels.ndim == 2
    most = min(_TFIDF_ROWS, max(2_000, _FITTED_CELLS // labels.shape[1])) if has_flags else _TFIDF_ROWS
    index = np.random.default_rng(0).permutation(len(texts))[:most]
    if not has_flags and len(np.unique(labels[index])) < 2:
        return baselines
    words = max(1, _FITTED_WEIGHTS // (1 if has_flags else len(answers)))  # the most frequent words are kept
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=words)
    try:
        features = vectorizer.fit_transform([texts[row] for row in index])
    except ValueError:  # no word occurs in two texts
        return baselines
    regression = LogisticRegression(C=5, max_iter=1000)
    model = (OneVsRestClassifier(regression) if has_flags else regression).fit(features, labels[index])
    predicted = model.predict(vectorizer.transform(validation_texts))
    return baselines | {metrics.BASELINE_TFIDF: macro_f1(truth, predicted)}


def word_baselines(train: Texts, validation: Texts, names: Sequence[str]) -> dict[str, float]:
    """Return the F1 of a baseline that gives each word its most frequent label.

    Words that occur in no training row get the most frequent label of all words.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for text, labels in zip(*train, strict=True):
        for word, label in zip(text.split(), labels, strict=True):
            counts[word][label] += 1
    usual = sum(counts.values(), Counter[int]()).most_common(1)[0][0]
    best = {word: labels.most_common(1)[0][0] for word, labels in counts.items()}
    predicted = [[names[best.get(word, usual)] for word in text.split()] for text in validation[0]]
    truth = [[names[number] for number in labels] for labels in validation[1]]
    return {metrics.BASELINE_WORDS: word_metrics(truth, predicted)[metrics.F1]}


def read_targets(
    data: DataArguments, tables: dict[str, "datasets.Dataset"]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the labels of each split and the C class names; both are empty for causal-lm.

    Removes a test split from `tables` if its labels are hidden: if the data set declares the names of its classes, and
    all test labels are -1. Raises BadInput if cells contain anything but labels, if words lack labels, or if labels are
    neither declared nor in any training row.
    """
    if data.task == metrics.CAUSAL_LM:
        return {}, ()
    import datasets  # jobs read prepared rows and do not need it

    columns = data.label_columns(tables["train"].column_names)
    if data.task == metrics.MULTI_LABEL and len(columns) > 1:
        return _flags(columns, tables), columns
    feature = tables["train"].features[data.label_column]
    feature = getattr(feature, "feature", feature)
    declared = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else ()
    cells = {split: _whole_numbers(cells_of(table, data.label_column)) for split, table in tables.items()}
    if declared and set(map(str, cells.get("test", ()))) == {"-1"}:
        del cells["test"], tables["test"]
    rows = _rows_of_labels(data, cells, declared)
    if data.task == metrics.TOKEN_CLASSIFICATION:
        refuse(_word_faults(data, tables, rows))
    names = declared or tuple(sorted({label for row in rows["train"] for label in row}, key=_numbers_first))
    refuse(_label_faults(data, names, rows))
    return {split: _as_targets(data.task, part, names) for split, part in rows.items()}, names


def _rows_of_labels(
    data: DataArguments, cells: Mapping[str, Sequence[Any]], declared: Sequence[str]
) -> dict[str, list[list[str]]]:
    has_bars = any(isinstance(cell, str) and "|" in cell for split in cells.values() for cell in split)
    has_one = data.task == metrics.CLASSIFICATION
    rule = "one class per row, as text or a whole number"
    if not has_one:
        rule = "lists of texts or whole numbers, or text such as a|b"
    if declared:
        names = ", ".join(declared[:_EXAMPLES]) + ", ..." * (len(declared) > _EXAMPLES)
        rule = f"only numbers below {len(declared)}, or only names that the data set declares ({names})"
    rows, faults = {}, []
    for split, values in cells.items():
        parsed = [_labels_of(data.task, cell, "|" if has_bars else ",") for cell in values]
        known = _declared_names(parsed, declared) if declared else None
        wrong = [
            number
            for number, row in enumerate(parsed)
            if row is None or (known is not None and any(item not in known for item in row))
        ]
        if wrong:
            others = f"{len(wrong)} {split} rows contain something else: {_examples(wrong, values)}"
            remedy = _REMEDIES.get(type(values[wrong[0]]), "") if has_one else ""
            faults.append(f"label_column {data.label_column!r} must hold {rule}; {others}{remedy}")
            continue
        rows[split] = [[str(item) if known is None else known[item] for item in row or ()] for row in parsed]
    refuse(faults)
    return rows


def _declared_names(rows: Sequence[Sequence[Any] | None], declared: Sequence[str]) -> dict[Any, str]:
    """Return the declared name of each label that `rows` may contain.

    All labels must be numbers, which a CSV file has as text, or all must be names. So a name such as "3" is not taken
    for a number.
    """
    texts = {item for row in rows for item in row or () if isinstance(item, str)}
    names = dict(zip(declared, declared, strict=True))
    numbers = {str(number): name for number, name in enumerate(declared)}
    return dict[Any, str](enumerate(declared)) | (names if texts <= {*names} else numbers)


def _word_faults(
    data: DataArguments, tables: Mapping[str, "datasets.Dataset"], rows: Mapping[str, list[list[str]]]
) -> list[str]:
    faults = []
    for split, labels in rows.items():
        texts = cells_of(tables[split], data.text_column)
        counts = [(len(words_of(text)), len(row)) for text, row in zip(texts, labels, strict=True)]
        wrong = [number for number, (words, of_words) in enumerate(counts) if words != of_words]
        if wrong:
            rule = f"label_column {data.label_column!r} must hold a label for each word of {data.text_column!r}"
            first = "row {} has {} words and {} labels".format(wrong[0] + 1, *counts[wrong[0]])
            faults.append(f"{rule}; {len(wrong)} of {len(labels)} {split} rows do not: {first}")
    return faults


def _label_faults(data: DataArguments, names: Sequence[str], rows: Mapping[str, list[list[str]]]) -> list[str]:
    used = {label for row in rows["train"] for label in row}
    if faults := class_faults(data, used, names, len(rows["train"])):
        return faults
    faults, learned = [], {*names}
    for split, labels in rows.items():
        unknown = Counter(label for row in labels for label in row if label not in learned)
        if unknown:
            examples = ", ".join(map(repr, list(unknown)[:_EXAMPLES]))
            faults.append(f"{unknown.total()} labels of {split} rows occur in no training row: {examples}")
    return faults


def _as_targets(task: str, rows: Sequence[Sequence[str]], names: Sequence[str]) -> np.ndarray:
    if task == metrics.MULTI_LABEL:
        return np.asarray(MultiLabelBinarizer(classes=names).fit_transform(rows), dtype=np.float32)
    number_of = {name: number for number, name in enumerate(names)}
    numbers = [[number_of[label] for label in row] for row in rows]
    if task == metrics.CLASSIFICATION:
        return np.array(numbers).reshape(-1)
    return np.fromiter(numbers, dtype=object, count=len(rows))  # rows have different lengths


def missing_faults(
    data: DataArguments, labels: np.ndarray | None, names: Sequence[str], *, is_limited: bool
) -> list[str]:
    """Return a fault if any class or label in `names` is missing from the sampled training rows; none for words.

    `is_limited` says whether max_train_samples has left rows out.
    """
    if labels is None or data.task == metrics.TOKEN_CLASSIFICATION:
        return []
    present = np.unique(labels) if data.task == metrics.CLASSIFICATION else np.flatnonzero(labels.any(axis=0))
    missing = [name for number, name in enumerate(names) if number not in present]
    lacking = f"the training rows lack {len(missing)} of {len(names)} labels ({', '.join(missing[:_EXAMPLES])})"
    remedy = "raise max_train_samples" if is_limited else "give more rows of each"
    return [f"{lacking}: {remedy}, or leave them out"] if missing else []


def cells_of(table: "datasets.Dataset", column: str) -> list[Any]:
    """Return a column's raw values, not decoded by its feature. Raises UnicodeDecodeError if text is not UTF-8."""
    # `table.data` would also have the rows that `select` has left out.
    values: list[Any] = table.with_format("arrow", columns=[column])[:][column].to_pylist()
    return values


def _whole_numbers(cells: Sequence[Any]) -> Sequence[Any]:
    """Return a column's cells, as integers if they are floats without fractions.

    pandas stores whole numbers as floats if the column has missing cells.
    """
    values = [cell for cell in cells if cell is not None]
    if not all(isinstance(cell, float) and cell.is_integer() for cell in values):
        return cells
    return [None if cell is None else int(cell) for cell in cells]


def words_of(cell: Any) -> list[str]:
    """Return the words in a cell: a list, a list that was written as text, or text with spaces between the words."""
    words = _listed(cell)
    return [str(item) for item in words] if isinstance(words, list) else str(cell).split()


def _listed(cell: Any) -> Any:
    """Return the list in a string that JSON, Python, pandas or NumPy wrote, or None if it cannot be parsed.

    Cells that are not strings in square brackets are returned unchanged.
    """
    text = cell.strip() if isinstance(cell, str) else ""
    if not (text.startswith("[") and text.endswith("]")):
        return cell
    with suppress(ValueError):
        return parse_json(text, lax=True)  # Python would read JSON's escapes of one emoji as two invalid characters
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(_GAP.sub(", ", text))
    return None


def _examples(rows: Sequence[int], cells: Sequence[Any]) -> str:
    return ", ".join(f"row {row + 1} has {cells[row]!r}" for row in rows[:_EXAMPLES])


def _flags(columns: Sequence[str], tables: Mapping[str, "datasets.Dataset"]) -> dict[str, np.ndarray]:
    """Return labels from columns of 0 and 1, or false and true."""
    faults, labels = [], {}
    for split, table in tables.items():
        frame = table.select_columns([*columns]).to_pandas().apply(pd.to_numeric, errors="coerce")
        for column in columns:
            wrong = np.flatnonzero(~frame[column].isin([0, 1])).tolist()
            if wrong:
                examples = _examples(wrong, cells_of(table, column))
                faults.append(f"label_column: {column!r} must hold 0 or 1, and {split} {examples}")
        labels[split] = frame.to_numpy(np.float32)
    refuse(faults)
    return labels


def _labels_of(task: str, cell: Any, separator: str) -> list[Any] | None:
    """Return the labels in a row's cell, or None if the cell contains anything else."""
    if task == metrics.CLASSIFICATION:
        return [cell] if isinstance(cell, str | int) else None
    if isinstance(cell, str) and (cell := _listed(cell)) is None:
        return None
    has_one_per_word = task == metrics.TOKEN_CLASSIFICATION
    if isinstance(cell, str):
        parts = cell.split() if has_one_per_word else cell.split(separator)
        return [part.strip() for part in parts if part.strip()]
    if not has_one_per_word and (cell is None or (isinstance(cell, int) and not isinstance(cell, bool))):
        cell = [] if cell is None else [cell]
    if not isinstance(cell, list) or not all(isinstance(item, str | int) for item in cell):
        return None
    return [item.strip() if isinstance(item, str) else item for item in cell]


def _numbers_first(name: str) -> tuple[bool, int, str]:
    """Return the sort key of a label name: whole numbers come first, by value, then other names."""
    is_number = name.removeprefix("-").isdecimal()
    return not is_number, int(name) if is_number else 0, name
