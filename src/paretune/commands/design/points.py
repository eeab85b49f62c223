"""The choice of a design's rows: all combinations, a balanced part of them, or an optimal part for its model."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from paretune.commands.design.file import D_OPTIMAL, FRACTIONAL, I_OPTIMAL, DesignFile, Point, middle
from paretune.commands.design.model import DesignModel
from paretune.core.errors import BadInput, refuse
from paretune.core.packages import design_is_missing

_CRITERIA: Mapping[str, str] = {D_OPTIMAL: "D", I_OPTIMAL: "I"}
_MOST_STARTS = 20
"""Random orders of the candidates that are tried: the result of an exchange depends on the rows it starts with."""
_COMPARISONS = 100_000
"""Comparisons of designs over all orders, about 5 seconds. With many candidates fewer orders are tried."""
_DECIMALS = 9  # precision to which two designs are compared


def choose(file: DesignFile, model: DesignModel) -> list[Point]:
    """The rows of a design before centre points and replicates, in the order of the table of all combinations.

    Raises:
        BadInput: there are fewer rows than the model has terms, or no part of the combinations is small enough.
    """
    if file.design in _CRITERIA:
        return _optimal(file, model)
    return _fraction(file) if file.design == FRACTIONAL else file.candidates()


def centre_points(file: DesignFile) -> list[Point]:
    """Rows at the middle of all factors."""
    if not file.centre_points:  # factors that are no numbers have no middle
        return []
    return [{name: middle(levels) for name, levels in file.factors.items()}] * file.centre_points


def _optimal(file: DesignFile, model: DesignModel) -> list[Point]:
    """The best rows by the criterion over several exchanges; ties go to the least correlated factors."""
    refuse([reason] if (reason := design_is_missing()) else [])
    from pydoe import optimal_design

    runs, terms = file.runs or 0, model.terms
    if runs < terms:
        raise BadInput([f"runs must be at least {terms}, the terms of the model, got {runs}"])
    points = file.candidates()
    columns = model.columns_without_intercept(points)
    copies = math.ceil(runs / len(points)) + 1  # pydoe takes each candidate once
    draw = np.random.default_rng(file.seed)
    best, best_key = list[int](), (-math.inf, -math.inf)
    starts = max(2, min(_MOST_STARTS, _COMPARISONS // (runs * copies * len(points))))
    for _ in range(starts):
        order = draw.permutation(np.tile(np.arange(len(points)), copies))
        design, facts = optimal_design(
            columns[order], runs, degree=1, criterion=_CRITERIA[file.design], method="modified_fedorov"
        )
        chosen = _rows_of(design, columns, order)
        pairs = model.between_factors([points[row] for row in chosen]).values()
        key = round(float(facts["score"]), _DECIMALS), -round(max(map(abs, pairs), default=0.0), _DECIMALS)
        if key > best_key:
            best, best_key = chosen, key
    if not model.d_efficiency([points[row] for row in best]):
        raise BadInput([f"model {file.model} cannot be estimated from these factors: take terms out of it"])
    return [points[row] for row in sorted(best)]


def _rows_of(design: np.ndarray, columns: np.ndarray, order: np.ndarray) -> list[int]:
    """The candidates whose columns make the design; among candidates with equal columns the least used one."""
    used = Counter[int]()
    for values in design:
        alike = [int(row) for row in dict.fromkeys(order) if np.allclose(columns[row], values)]
        used[min(alike, key=lambda row: used[row])] += 1
    return list(used.elements())


def _fraction(file: DesignFile) -> list[Point]:
    """A generalised subset design: the largest with at most `runs` rows, by default half of the combinations.

    Source: Surowiec et al., Analytical Chemistry 89 (2017), 6491-6497.
    """
    refuse([reason] if (reason := design_is_missing()) else [])
    from pydoe import gsd

    sizes = [len(levels) for levels in file.factors.values()]
    rows: Sequence[Sequence[int]] = []
    for reduction in range(2, max(sizes) + 1):
        try:
            rows = np.asarray(gsd(sizes, reduction), dtype=int).tolist()
        except ValueError:  # the reduction is too large for so few levels
            break
        if file.runs is None or len(rows) <= file.runs:
            break
    if not rows or (file.runs is not None and len(rows) > file.runs):
        least = f"the smallest has {len(rows)} rows" if rows else "there is none"
        raise BadInput([f"runs must hold a fraction of {math.prod(sizes)} combinations, got {file.runs}: {least}"])
    allowed = file.candidates()
    points: list[Point] = [
        {name: levels[index] for (name, levels), index in zip(file.factors.items(), row, strict=True)} for row in rows
    ]
    return [point for point in points if point in allowed]
