"""The pictures of a study's page, each with its words; where one cannot be drawn, the reason instead."""

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from paretune.core.errors import BadInput
from paretune.studies.results.figures import MANY, course, heat_map, hypervolume_curve, parallel, scatter
from paretune.studies.results.front import StudyFront
from paretune.studies.results.importance import FEWEST, importance
from paretune.studies.results.quantities import label
from paretune.studies.results.recommendation import job_of
from paretune.studies.results.table import searched_parameters

_MOST_PAIRS = 10  # 5 objectives; each picture takes a fifth of a second
_MOST_CELLS = 9  # rows or columns of the heat map; more values are put together
_TELLING = 0.3  # share of the variance that a forest must explain before its shares are worth reading


def pictures(front: StudyFront, picked: Sequence[int], table: str) -> list[str]:
    """All sections with figures, as HTML.

    Args:
        front: of the study.
        picked: numbers of the recommended points, which are ringed.
        table: of the front, as HTML; it stands below the figures of the fronts.
    """
    if not front.feasible:
        return []
    return [_fronts(front, picked), table, _hypervolume(front), _parallel(front), _importance(front), _heat(front)]


def _figure(front: StudyFront, svg: str, caption: str) -> str:
    origin = "Simulated. " if front.is_simulated else ""
    return f"<figure>{svg}<figcaption>{escape(origin + caption)}</figcaption></figure>"


def _fronts(front: StudyFront, picked: Sequence[int]) -> str:
    if len(front.objectives) == 1:
        (name,) = front.objectives
        caption = "A point per configuration, where its first run ended; bars are one standard error."
        return f"<h2>{escape(label(name).capitalize())}</h2>{_figure(front, course(front), caption)}"
    bars = "bars are one standard error"
    if len(front.points) > MANY:
        bars += ", left out off the front because there are too many"
    caption = (
        f"A point per configuration, means over its runs; {bars}. Numbers are those of trials. Dotted lines join what "
        "cannot be told apart in any objective."
    )
    drawn = [
        f"<h3>{escape(label(pair[1]))} against {escape(label(pair[0]))}</h3>"
        f"{_figure(front, scatter(front, pair, picked), caption)}"
        for pair in front.pairs[:_MOST_PAIRS]
    ]
    left = len(front.pairs) - _MOST_PAIRS
    more = f'<p class="note">{left} more pairs of objectives are not drawn.</p>' if left > 0 else ""
    return f"<h2>Fronts, a figure per pair of objectives</h2>{''.join(drawn)}{more}"


def _hypervolume(front: StudyFront) -> str:
    last = front.hypervolume_growth[-1][1]
    caption = (
        f"The part of the space of objectives that the front dominates; today {last:.4g}, in the units of the "
        "objectives multiplied, against the worst feasible value of each plus 10 % of its range. A long level end says "
        "that more trials have not helped."
    )
    return f"<h2>What the dollars have bought</h2>{_figure(front, hypervolume_curve(front), caption)}"


def _parallel(front: StudyFront) -> str:
    searched = [
        name
        for name in searched_parameters(front)
        if len({str(point.trial.point.get(name)) for point in front.feasible}) > 1
    ]
    if not searched:
        return ""
    caption = "A line per configuration through its parameters and objectives; blue ones are on the front."
    return f"<h2>Parallel coordinates</h2>{_figure(front, parallel(front, searched), caption)}"


def _importance(front: StudyFront) -> str:
    title = "<h2>Which parameters matter</h2>"
    done = [point for point in front.points if all(name in point.means for name in front.objectives)]
    if len(done) < FEWEST:
        few = f"Too few completed configurations to say: {len(done)}, and {FEWEST} are needed."
        return f"{title}<p>{escape(few)}</p>"
    blocks = []
    for name in front.objectives:
        found = importance([point.trial.point for point in done], [point.means[name] for point in done])
        head = f"<h3>{escape(label(name))}</h3>"
        if found is None:
            blocks.append(f'{head}<p class="note">Nothing varies.</p>')
            continue
        most = max(2.0, *found.shares.values())  # 2: what shuffling the only parameter that decides does
        rows = "".join(
            f'<tr><th scope="row">{escape(parameter)}</th><td><meter min="0" max="{most:.2f}" '
            f'value="{share:.3f}">{share:.2f}</meter></td><td class="n">{share:.2f}</td></tr>'
            for parameter, share in sorted(found.shares.items(), key=lambda item: -item[1])
        )
        doubt = "" if found.explained >= _TELLING else ": too little to read anything into these shares"
        explained = f"The forest explains {max(found.explained, 0):.0%} of the variance of unseen trials{doubt}."
        blocks.append(f'{head}<table>{rows}</table><p class="note">{escape(explained)}</p>')
    what = (
        "Growth of a random forest's squared error when one parameter is shuffled, as a share of the variance of the "
        "objective's ranks; measured on configurations that the forest has not seen. It says what the objective "
        "depends on, not in which direction."
    )
    origin = "Simulated. " if front.is_simulated else ""
    return f'{title}<p class="note">{escape(origin + what)}</p><div class="cards broad">{_cells(blocks)}</div>'


def _cells(blocks: Sequence[str]) -> str:
    return "".join(f'<section class="wide">{block}</section>' for block in blocks)


def _heat(front: StudyFront) -> str:
    name = front.quality
    if name is None:
        return ""
    title = f"<h2>{escape(label(name))} over global batch size and learning rate</h2>"
    found = []
    for point in front.points:
        plan = _batch_and_rate(point.trial.parameters)
        if plan is not None and name in point.means:
            found.append((*plan, point.means[name]))
    batches, rates = (sorted({row[place] for row in found}) for place in (0, 1))
    if len(batches) < 2 and len(rates) < 2:
        return f"{title}<p>Neither of the two was varied in completed trials.</p>"
    row_of, rows = _bins(batches)
    column_of, columns = _bins(rates)
    sums, counts = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)), dtype=int)
    for batch, rate, value in found:
        place = row_of[batch], column_of[rate]
        sums[place] += value
        counts[place] += 1
    cells = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    caption = (
        "Means over all completed configurations of a cell, whatever their cluster; in brackets how many, where it is "
        "more than one. White cells were not tried. The learning rate is the peak rate that was used, after scaling."
    )
    return f"{title}{_figure(front, heat_map(rows, columns, cells, counts, name), caption)}"


def _batch_and_rate(parameters: Mapping[str, str]) -> tuple[float, float] | None:
    try:
        plan = job_of(parameters).plan()
    except BadInput:
        return None
    return plan.global_batch_size, plan.learning_rate


def _bins(values: Sequence[float]) -> tuple[dict[Any, int], list[str]]:
    """Value to cell, and the cells' names; too many values are put together in steps of equal ratio."""
    if len(values) <= _MOST_CELLS:
        return {value: place for place, value in enumerate(values)}, [f"{value:.4g}" for value in values]
    low, high = math.log(values[0]), math.log(values[-1])
    step = (high - low) / _MOST_CELLS
    places = {value: min(int((math.log(value) - low) / step), _MOST_CELLS - 1) for value in values}
    edges = [math.exp(low + step * place) for place in range(_MOST_CELLS + 1)]
    return places, [f"{start:.2g} to\n{end:.2g}" for start, end in itertools.pairwise(edges)]
