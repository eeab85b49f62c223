"""Statistics of a design: model matrix, correlations, D-efficiency and detectable differences.

Every factor is coded by sum contrasts (deviations from the mean of all levels, the last level left out), also if its
levels are numbers: no shape of its effect is assumed. In a formula, a factor inside a function, such as
np.log(dataset_size), is a number.
"""

import itertools
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import t as student

from paretune.commands.design.file import DesignDraft, Point, is_number, labels
from paretune.core.errors import BadInput, first_line
from paretune.estimating.noise import F1_NOISE, SECONDS_NOISE

SIGNIFICANCE, POWER = 0.05, 0.8
"""Level and power of the two-sided test behind `Detectable`: the usual values (Cohen 1988)."""
MOST_CORRELATED = 0.2  # |r| between two factors above which their effects are hard to tell apart
_ROUNDING = 0.005  # correlations are printed with two decimals
FUNCTIONS = ("np.log", "np.log2", "np.log10", "np.sqrt", "np.exp", "poly", "bs", "C", "I", "center", "scale")
"""Functions that a formula of a design may use."""
_WORD = re.compile(r"(?<!\w)[^\W\d][\w.]*")
_ALLOWED = re.compile(r"[\w\s.+\-*:/^()=,]*")


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """The smallest differences between two levels of a factor that a design can distinguish from noise.

    A two-sided test at the level SIGNIFICANCE finds them with probability POWER, for the two levels that are hardest to
    distinguish. `seconds` is a share, `f1` absolute. Both are None if no rows are left to measure noise, or if the
    effect cannot be estimated.
    """

    factor: str
    seconds: float | None
    f1: float | None


class DesignModel:
    """The model of a design: its formula, by default the main effects; raises BadInput if it cannot be read."""

    def __init__(self, draft: DesignDraft) -> None:
        self._factors = draft.factors
        self._formula = draft.model or _main_effects(draft.factors)
        self._candidates = draft.candidates()
        if draft.model is not None:
            _refuse_code(draft.model, draft.factors)
        try:
            self._spec = _fitted(self._formula, draft.factors, self._frame(self._candidates))
        except Exception as error:  # formulaic and the functions of a formula raise many kinds
            if draft.model is None:
                raise
            names = ", ".join(draft.factors)
            text = f"model must be a formula over the factors ({names}), got {draft.model}: {first_line(error)}"
            raise BadInput([text]) from error

    def matrix(self, points: Sequence[Point]) -> np.ndarray:
        """Model matrix, shape (N rows, P terms), including the intercept."""
        return self._coded(self._spec, points)

    @property
    def terms(self) -> int:
        """Number of columns of the model matrix."""
        return int(self.matrix(self._candidates[:1]).shape[1])

    def columns_without_intercept(self, points: Sequence[Point]) -> np.ndarray:
        """Model matrix without the column that is 1 everywhere."""
        keep = [name != "Intercept" for name in self._spec.column_names]
        return self.matrix(points)[:, keep]

    def d_efficiency(self, points: Sequence[Point]) -> float:
        """|X'X|^(1/P) / N of the model matrix X; 0 if an effect cannot be estimated.

        It depends on the coding: with sum contrasts and factors of three levels even a full design has less than 1.
        """
        matrix = self.matrix(points)
        sign, logarithm = np.linalg.slogdet(matrix.T @ matrix)
        return math.exp(logarithm / matrix.shape[1]) / len(matrix) if sign > 0 else 0.0

    def correlations(self, points: Sequence[Point]) -> tuple[list[str], np.ndarray]:
        """Names of the C columns of the main effects, and their correlations, (C, C); 0 for a constant column."""
        coded = self._coded(self._main_spec, points)[:, 1:]
        with warnings.catch_warnings():  # a column that does not vary
            warnings.simplefilter("ignore", RuntimeWarning)
            correlations = np.atleast_2d(np.corrcoef(coded, rowvar=False))
        return [name for _, name in self._main_columns], np.nan_to_num(correlations)

    def between_factors(self, points: Sequence[Point]) -> dict[tuple[str, str], float]:
        """Correlation of each pair of factors: the largest in size between their columns."""
        owners = [factor for factor, _ in self._main_columns]
        _, correlations = self.correlations(points)
        pairs: dict[tuple[str, str], float] = {}
        for first, second in itertools.combinations(self._factors, 2):
            block = correlations[np.ix_([name == first for name in owners], [name == second for name in owners])]
            pairs[first, second] = float(block.flat[np.abs(block).argmax()])
        return pairs

    def detectable(self, points: Sequence[Point], factor: str) -> Detectable:
        """The detectable differences of a factor, averaged over the other factors of all candidate rows."""
        matrix = self.matrix(points)
        left = len(matrix) - int(np.linalg.matrix_rank(matrix))
        if left < 1 or len(matrix) - left < matrix.shape[1]:
            return Detectable(factor=factor, seconds=None, f1=None)
        inverse = np.linalg.inv(matrix.T @ matrix)
        means = [
            self.matrix([{**point, factor: level} for point in self._candidates]).mean(axis=0)
            for level in self._factors[factor]
        ]
        spread = max(
            math.sqrt(max(0.0, (first - second) @ inverse @ (first - second)))
            for first, second in itertools.combinations(means, 2)
        )
        size = float(student.ppf(1 - SIGNIFICANCE / 2, left) + student.ppf(POWER, left)) * spread
        return Detectable(factor=factor, seconds=size * SECONDS_NOISE, f1=size * F1_NOISE)

    @cached_property
    def _main_spec(self) -> Any:
        return _fitted(_main_effects(self._factors), self._factors, self._frame(self._candidates))

    @cached_property
    def _main_columns(self) -> list[tuple[str, str]]:
        """For each column of the main effects, its factor, and its name with the level."""
        columns = []
        for name in self._main_spec.column_names[1:]:
            matched = re.fullmatch(r"C\((\w+), contr\.sum\)\[(?:S\.)?(.*)\]", name)
            factor, level = matched.groups() if matched else (name, "")
            columns.append((factor, f"{factor}: {level}"))
        return columns

    def _frame(self, points: Sequence[Point]) -> Any:
        """The factors as columns: numbers, or categories with all levels."""
        import pandas

        columns = {}
        for factor, levels in self._factors.items():
            if is_number(levels):
                columns[factor] = [value for point in points for value in point[factor].values()]
            else:
                names = labels(levels)
                texts = [names[list(levels).index(point[factor])] for point in points]
                columns[factor] = pandas.Categorical(texts, categories=names)
        return pandas.DataFrame(columns)

    def _coded(self, spec: Any, points: Sequence[Point]) -> np.ndarray:
        return np.asarray(spec.get_model_matrix(self._frame(points)), dtype=float)


def are_correlated(r: float) -> bool:
    """Whether |r|, rounded to two decimals, is above MOST_CORRELATED."""
    return abs(r) > MOST_CORRELATED + _ROUNDING


def _refuse_code(formula: str, factors: Collection[str]) -> None:
    """Refuse a formula with anything but factors, numbers, operators and FUNCTIONS: formulaic runs it as Python."""
    unknown = sorted({name for name in _WORD.findall(formula) if name not in factors and name not in FUNCTIONS})
    if _ALLOWED.fullmatch(formula) and not unknown:
        return
    got = f"unknown: {', '.join(unknown)}" if unknown else "it has other characters"
    allowed = f"factors ({', '.join(factors)}), numbers, + - * : / ^ ( ) and the functions {', '.join(FUNCTIONS)}"
    raise BadInput([f"model must be a formula over the factors, made of {allowed}, got {formula}: {got}"])


def _main_effects(factors: Mapping[str, Any]) -> str:
    return " + ".join(factors)


def _fitted(formula: str, factors: Mapping[str, Any], frame: Any) -> Any:
    """The specification that makes model matrices, fitted to all candidate rows."""
    from formulaic import model_matrix

    parts = re.split(r"([\w.]+\([^()]*\))", formula)  # calls, at odd indices, stay as they are
    names = "|".join(map(re.escape, factors))
    parts[::2] = [re.sub(rf"\b({names})\b", r"C(\1, contr.sum)", part) for part in parts[::2]]
    return model_matrix("".join(parts), frame).model_spec
