"""The page of a study, pareto.html: one file with nothing from anywhere else, readable without scripts and offline."""

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from paretune.core.errors import BadInput
from paretune.spec import metrics
from paretune.spec.parameters import spell
from paretune.studies.results.figures import MANY, course, heat_map, hypervolume_curve, parallel, scatter
from paretune.studies.results.front import StudyFront
from paretune.studies.results.importance import FEWEST, importance
from paretune.studies.results.payoff import Payoff
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.quantities import axis, format_value, label, usd, with_error
from paretune.studies.results.recommendation import Pick, failures, job_of
from paretune.studies.results.trials import Trial, TrialStatus

_MOST_POINTS = 30  # rows of the table of the front
_STYLE = """
body { margin: 0 auto; padding: 16px 20px 48px; max-width: 900px; background: #fff; color: #1a1a1a;
  font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color-scheme: light; }
h1 { font-size: 24px; margin: 8px 0 4px; } h2 { font-size: 19px; margin: 36px 0 8px; }
h3 { font-size: 16px; margin: 0; }
p { margin: 6px 0; max-width: 75ch; }
.lead { font-size: 17px; }
.banner { background: #fff4d6; border: 2px solid #8a5a00; color: #4a3000; padding: 8px 12px; font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); gap: 12px; margin: 12px 0; }
.card { border: 1px solid #767676; border-radius: 6px; padding: 12px; min-width: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 12px; margin: 8px 0; }
dt { color: #4a4a4a; } dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
pre { background: #f3f3f3; border: 1px solid #c4c4c4; padding: 8px; margin: 6px 0; font-size: 12px;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
.bar { display: flex; height: 18px; border: 1px solid #767676; border-radius: 3px; overflow: hidden; margin: 6px 0; }
.spent { background: #0072b2; } .committed { background: #e69f00; }
.legend span { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 12px; vertical-align: -1px; }
.note { color: #4a4a4a; font-size: 13.5px; }
figure { margin: 14px 0; } figcaption { color: #333; font-size: 13.5px; max-width: 80ch; }
svg { max-width: 100%; height: auto; } svg * { stroke-linejoin: round; stroke-linecap: butt; }
.wide { overflow-x: auto; } .tall { max-height: 640px; overflow: auto; border: 1px solid #c4c4c4; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 13.5px; color: #333; padding: 4px 0; }
th, td { padding: 3px 9px; border-bottom: 1px solid #d6d6d6; text-align: left; white-space: nowrap; }
td.n { text-align: right; } td.why { white-space: normal; }
thead th { white-space: normal; vertical-align: bottom; position: sticky; top: 0;
  background: #fff; border-bottom: 2px solid #767676; }
tr.best { background: #e5f1f9; } meter { width: 120px; height: 14px; }
.broad { grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); }
@media print { .tall { max-height: none; } }
"""


def page(
    front: StudyFront,
    picks: Sequence[Pick],
    opening: Sequence[str],
    payoff: Payoff,
    *,
    name: str,
    budget_usd: float | None,
    committed_usd: float,
) -> str:
    """The whole HTML document.

    Args:
        front: of the study.
        picks: what is recommended.
        opening: the answer in a few sentences.
        payoff: whether the search paid for itself.
        name: of the study.
        budget_usd: all the study may spend; None for no limit.
        committed_usd: worst cases of the jobs that run.
    """
    title = f"{name}{_simulated(front)}"
    completed = sum(trial.status is TrialStatus.COMPLETED for trial in front.trials)
    goal = ", ".join(f"{'less' if way == 'minimize' else 'more'} {axis(it)}" for it, way in front.objectives.items())
    words = {"min": "at least", "max": "at most"}
    limits = [
        f"{axis(it)} {words[end]} {limit:g}" for it, ends in front.constraints.items() for end, limit in ends.items()
    ]
    wanted = f"Wanted: {goal}" + (f"; required: {', '.join(limits)}" if limits else "")
    counted = f"{len(front.trials)} trials, {completed} completed; configurations on the front: {len(front.best)}."
    parts = [
        f"<h1>{escape(title)}</h1>",
        _banner(front),
        f'<p class="note">{escape(counted)} {escape(wanted)}.</p>',
        "".join(f'<p class="lead">{escape(line)}</p>' for line in opening),
        _cards(front, picks),
        f"<h2>Whether the search paid for itself{_simulated(front)}</h2>{_paragraphs(payoff.sentences())}",
        _budget(front, budget_usd, committed_usd),
        *pictures(front, [pick.point.number for pick in picks], _front_table(front)),
        _noise(front),
        _failures(front),
        _trials_table(front),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _banner(front: StudyFront) -> str:
    if not front.is_simulated:
        return ""
    origins = {trial.origin for trial in front.trials}
    what = "all numbers, dollars included, are" if origins == {"simulated"} else "some of the numbers are"
    return f'<p class="banner" role="note">Simulated: {what} from a simulation; nobody has been billed for them.</p>'


def _cards(front: StudyFront, picks: Sequence[Pick]) -> str:
    cards, commands = [], []
    for pick in picks:
        runs = len(pick.point.trials)
        figures = "".join(
            f"<dt>{escape(it)}</dt><dd>{escape(value)}</dd>" for it, value in pick.figures(front.objectives)
        )
        alike = ", ".join(str(point.number) for point in pick.alike)
        same = f'<p class="note">Cannot be told apart from trial {alike}.</p>' if alike else ""
        title = ", and ".join(pick.titles)
        cards.append(
            f'<section class="card"><h3>{escape(title[:1].upper() + title[1:])}</h3>'
            f'<p class="note">Trial {pick.point.number}, {runs} run{"s" if runs > 1 else ""}: '
            f"{escape(pick.setting())}</p><dl>{figures}</dl><p>{escape(pick.why)}</p>{same}</section>"
        )
        commands.append(_commands(title, pick))
    if not cards:
        return ""
    note = "± is one standard error of the mean; where it comes from is said below."
    return (
        f'<h2>Recommended{_simulated(front)}</h2><div class="cards">{"".join(cards)}</div><p class="note">{note}</p>'
        f"<h2>To launch it</h2>{''.join(commands)}"
    )


def _commands(title: str, pick: Pick) -> str:
    title = title[:1].upper() + title[1:]
    if not pick.command:
        return f"<p>{escape(title)}: its parameters are none of a job that can be launched.</p>"
    if not pick.real_command:
        return f"<p>{escape(title)}, trial {pick.point.number}:</p><pre>{escape(pick.command)}</pre>"
    return (
        f"<p>{escape(title)}, trial {pick.point.number}, again in the simulation:</p><pre>{escape(pick.command)}</pre>"
        f'<p class="note">for real, and for money:</p><pre>{escape(pick.real_command)}</pre>'
    )


def _simulated(front: StudyFront) -> str:
    return " (simulated)" if front.is_simulated else ""


def _budget(front: StudyFront, budget_usd: float | None, committed_usd: float) -> str:
    spent = front.spent_usd
    rows = [("spent", usd(spent)), ("committed to running jobs, at worst", usd(committed_usd))]
    bar = ""
    if budget_usd is not None:
        rows += [("left", usd(budget_usd - spent - committed_usd)), ("budget", usd(budget_usd))]
        widths = [100 * min(part / budget_usd, 1.0) if budget_usd > 0 else 0.0 for part in (spent, committed_usd)]
        about = f"{widths[0]:.0f} % of the budget spent, {widths[1]:.0f} % committed"
        bar = (
            f'<div class="bar" role="img" aria-label="{about}">'
            f'<div class="spent" style="width:{widths[0]:.2f}%"></div>'
            f'<div class="committed" style="width:{widths[1]:.2f}%"></div></div>'
            '<p class="note legend"><span class="spent"></span>spent<span class="committed"></span>committed</p>'
        )
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<h2>Budget{_simulated(front)}</h2>{bar}<dl>{listed}</dl>"


def _front_table(front: StudyFront) -> str:
    """The front, cheapest first, with errors and with what cannot be told apart."""
    if not front.best:
        return ""
    leader = {point.number: group.recommended.number for group in front.groups for point in group.others}
    ordered = sorted(front.best, key=front.cost_of)
    names = list(dict.fromkeys([*front.objectives, metrics.COST_USD]))
    names = [name for name in names if any(name in point.means for point in ordered)]
    searched = front.searched
    head = ["trial", "runs", *(axis(name) for name in names), *searched, "like trial"]
    rows = [
        [
            *(str(point.number), str(len(point.trials))),
            *(_mean(point, name) for name in names),
            *(_parameter(point.trial, name) for name in searched),
            str(leader.get(point.number, "")),
        ]
        for point in ordered[:_MOST_POINTS]
    ]
    more = len(ordered) - _MOST_POINTS
    caption = "No other configuration is at least as good in every objective and better in one; mean ± standard error. "
    caption += "The last column names the cheapest one that it cannot be told apart from."
    caption += f" The cheapest {_MOST_POINTS}; {more} more are in the table of all trials." if more > 0 else ""
    table = _table(head, rows, caption, numbers=len(names) + 2)
    return f'<h2>The Pareto front over all objectives</h2><div class="wide">{table}</div>'


def _mean(point: Point, name: str) -> str:
    return with_error(point.means[name], point.errors[name]) if name in point.means else ""


def _noise(front: StudyFront) -> str:
    if not front.points:
        return ""
    typical = sorted(front.points, key=lambda point: point.number)[len(front.points) // 2]
    lines = [
        f"{axis(name)}: {format_value(name, noise.of_one_run(typical.means[name]))}"
        + (f" ({noise.deviation:.1%})" if noise.is_relative else "")
        + f", {noise.basis}."
        for name in front.objectives
        if (noise := front.noises[name]) and name in typical.means
    ]
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        "<h2>How far one run scatters</h2><p>Two configurations are told apart when they differ by more than 2 "
        f"standard errors of the difference. Standard deviation of one run:</p><ul>{listed}</ul>"
    )


def _failures(front: StudyFront) -> str:
    lines = failures(front.trials)
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>Trials without a result</h2><ul>{listed}</ul>" if lines else ""


def _trials_table(front: StudyFront) -> str:
    if not front.trials:
        return ""
    searched = front.searched
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    head = ["trial", "rank", *(axis(name) for name in objectives), "cost (USD)", "spent (USD)", *searched]
    head += ["status", "run id", "remark"]
    rows, best = [], set()
    for place, trial in enumerate(front.trials):
        rank = front.rank(trial)
        if rank == 0:
            best.add(place)
        values = [value_of(trial, name) for name in (*objectives, metrics.COST_USD)]
        rows.append(
            [str(trial.number), "" if rank is None else str(rank)]
            + ["" if value is None else with_error(value) for value in values]
            + [with_error(trial.spent_usd)]
            + [_parameter(trial, name) for name in searched]
            + [trial.status.value, trial.run_id, _remark(trial)]
        )
    caption = "Every trial with its own values. Rank 0 is the front (shaded); without a rank: not completed, or a "
    caption += "constraint is not met."
    table = _table(head, rows, caption, numbers=len(objectives) + 4, shaded=best)
    return f'<h2>All trials</h2><div class="tall" tabindex="0" role="region" aria-label="all trials">{table}</div>'


def _remark(trial: Trial) -> str:
    repeat = [f"repeats trial {trial.repeats} with seed {trial.seed}"] if trial.repeats is not None else []
    return "; ".join([*repeat, *([trial.reason] if trial.reason else [])])


def _parameter(trial: Trial, name: str) -> str:
    value = trial.point.get(name)
    return f"{value:.4g}" if isinstance(value, float) else spell(value)


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str,
    *,
    numbers: int,
    shaded: set[int] | frozenset[int] = frozenset(),
) -> str:
    """Rows of text; the first `numbers` columns are aligned to the right, the last may break."""
    # A long name may break after "_", so that its column is as narrow as its values.
    heads = "".join(f'<th scope="col">{escape(name).replace("_", "_<wbr>")}</th>' for name in head)
    lines = []
    for place, row in enumerate(rows):
        cells = []
        for column, cell in enumerate(row):
            kind = ' class="n"' if column < numbers else ""
            if column == len(row) - 1:
                kind = ' class="why"'
            cells.append(f"<td{kind}>{escape(cell)}</td>")
        kind = ' class="best"' if place in shaded else ""
        lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
    joined = "\n".join(lines)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{joined}</tbody></table>"


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
        name for name in front.searched if len({str(point.trial.point.get(name)) for point in front.feasible}) > 1
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
