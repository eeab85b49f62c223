"""What the rows of a design can tell: model matrix, correlations, D-efficiency and detectable differences.

Every factor is coded by sum contrasts (deviations from the mean of all levels, the last level left out), be its levels
numbers or not: nothing is taken for granted about the shape of its effect. In a formula, a factor inside a function,
such as np.log(dataset_size), is a number.
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
"""Of the two-sided test that `Detectable` is about: the usual values (Cohen 1988)."""
MOST_CORRELATED = 0.2
"""|r| between two factors above which their effects are hard to tell apart."""
_ROUNDING = 0.005  # correlations are said with two decimals


FUNCTIONS = ("np.log", "np.log2", "np.log10", "np.sqrt", "np.exp", "poly", "bs", "C", "I", "center", "scale")
"""Those that a formula of a design may use."""
_WORD = re.compile(r"(?<!\w)[^\W\d][\w.]*")
_ALLOWED = re.compile(r"[\w\s.+\-*:/^()=,]*")


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """The smallest differences between two levels of a factor that a design can tell from noise.

    That is, finds in a two-sided test at the level SIGNIFICANCE with the probability POWER; of the two levels that are
    hardest to tell apart. None where no rows are left to measure noise, or the effect cannot be estimated at all.

    Attributes:
        seconds: as a share of the seconds. f1: absolute.
    """

    factor: str
    seconds: float | None
    f1: float | None


class DesignModel:
    """The model of a design, its main effects or its formula.

    Raises:
        BadInput: the formula cannot be read.
    """

    def __init__(self, draft: DesignDraft) -> None:
        self._factors = draft.factors
        self._formula = draft.model or _main_effects(draft.factors)
        self._candidates = draft.candidates()
        if draft.model is not None:
            _refuse_code(draft.model, draft.factors)
        try:
            self._spec = _fitted(self._formula, draft.factors, self._frame(self._candidates))
        except Exception as error:  # formulaic has many of its own, and a function in the formula raises any
            if draft.model is None:
                raise
            names = ", ".join(draft.factors)
            text = f"model must be a formula over the factors ({names}), got {draft.model}: {first_line(error)}"
            raise BadInput([text]) from error

    def matrix(self, points: Sequence[Point]) -> np.ndarray:
        """Model matrix (N rows, P terms), the intercept among them."""
        return self._coded(self._spec, points)

    @property
    def terms(self) -> int:
        """Columns of the model matrix."""
        return int(self.matrix(self._candidates[:1]).shape[1])

    def columns_without_intercept(self, points: Sequence[Point]) -> np.ndarray:
        """Model matrix without the column that is 1 everywhere."""
        keep = [name != "Intercept" for name in self._spec.column_names]
        return self.matrix(points)[:, keep]

    def d_efficiency(self, points: Sequence[Point]) -> float:
        """|X'X|^(1/P) / N of the model matrix X, 0 where an effect cannot be estimated.

        Depends on the coding: with sum contrasts and factors of three levels even a full design has less than 1.
        """
        matrix = self.matrix(points)
        sign, logarithm = np.linalg.slogdet(matrix.T @ matrix)
        return math.exp(logarithm / matrix.shape[1]) / len(matrix) if sign > 0 else 0.0

    def correlations(self, points: Sequence[Point]) -> tuple[list[str], np.ndarray]:
        """Names of all columns of the main effects, and their correlations (C, C); 0 where a column does not vary."""
        coded = self._coded(self._main_spec, points)[:, 1:]
        with warnings.catch_warnings():  # a column that does not vary
            warnings.simplefilter("ignore", RuntimeWarning)
            found = np.atleast_2d(np.corrcoef(coded, rowvar=False))
        return [name for _, name in self._main_columns], np.nan_to_num(found)

    def between_factors(self, points: Sequence[Point]) -> dict[tuple[str, str], float]:
        """The correlation of two factors, for each pair: the largest in size between a column of each."""
        owners = [factor for factor, _ in self._main_columns]
        _, found = self.correlations(points)
        pairs: dict[tuple[str, str], float] = {}
        for one, other in itertools.combinations(self._factors, 2):
            block = found[np.ix_([name == one for name in owners], [name == other for name in owners])]
            pairs[one, other] = float(block.flat[np.abs(block).argmax()])
        return pairs

    def detectable(self, points: Sequence[Point], factor: str) -> Detectable:
        """What the rows can tell about a factor, other factors at the mean of all rows to choose from."""
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
            math.sqrt(max(0.0, (one - other) @ inverse @ (one - other)))
            for one, other in itertools.combinations(means, 2)
        )
        size = float(student.ppf(1 - SIGNIFICANCE / 2, left) + student.ppf(POWER, left)) * spread
        return Detectable(factor=factor, seconds=size * SECONDS_NOISE, f1=size * F1_NOISE)

    @cached_property
    def _main_spec(self) -> Any:
        return _fitted(_main_effects(self._factors), self._factors, self._frame(self._candidates))

    @cached_property
    def _main_columns(self) -> list[tuple[str, str]]:
        """Factor, and its name with the level, of each column of the main effects."""
        found = []
        for name in self._main_spec.column_names[1:]:
            matched = re.fullmatch(r"C\((\w+), contr\.sum\)\[(?:S\.)?(.*)\]", name)
            factor, level = matched.groups() if matched else (name, "")
            found.append((factor, f"{factor}: {level}"))
        return found

    def _frame(self, points: Sequence[Point]) -> Any:
        """Factors as columns: numbers, or texts with all levels known."""
        import pandas

        columns = {}
        for factor, levels in self._factors.items():
            if is_number(levels):
                columns[factor] = [value for point in points for value in point[factor].values()]
            else:
                names = labels(levels)
                at = [names[list(levels).index(point[factor])] for point in points]
                columns[factor] = pandas.Categorical(at, categories=names)
        return pandas.DataFrame(columns)

    def _coded(self, spec: Any, points: Sequence[Point]) -> np.ndarray:
        return np.asarray(spec.get_model_matrix(self._frame(points)), dtype=float)


def are_correlated(r: float) -> bool:
    """Whether |r|, said with two decimals, is above MOST_CORRELATED."""
    return abs(r) > MOST_CORRELATED + _ROUNDING


def _refuse_code(formula: str, factors: Collection[str]) -> None:
    """Refuse a formula with more in it than factors, numbers, operators and FUNCTIONS: formulaic runs it as Python."""
    unknown = sorted({name for name in _WORD.findall(formula) if name not in factors and name not in FUNCTIONS})
    if _ALLOWED.fullmatch(formula) and not unknown:
        return
    got = f"unknown: {', '.join(unknown)}" if unknown else "it has other characters"
    known = f"factors ({', '.join(factors)}), numbers, + - * : / ^ ( ) and the functions {', '.join(FUNCTIONS)}"
    raise BadInput([f"model must be a formula over the factors, made of {known}, got {formula}: {got}"])


def _main_effects(factors: Mapping[str, Any]) -> str:
    return " + ".join(factors)


def _fitted(formula: str, factors: Mapping[str, Any], frame: Any) -> Any:
    """What makes a model matrix of rows, fitted to all rows to choose from."""
    from formulaic import model_matrix

    parts = re.split(r"([\w.]+\([^()]*\))", formula)  # calls, at odd places, are left as they are
    names = "|".join(map(re.escape, factors))
    parts[::2] = [re.sub(rf"\b({names})\b", r"C(\1, contr.sum)", part) for part in parts[::2]]
    return model_matrix("".join(parts), frame).model_spec
