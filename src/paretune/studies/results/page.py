"""The page of a study, pareto.html: one file with nothing from anywhere else, readable without scripts and offline."""

from collections.abc import Sequence
from html import escape

from paretune.spec import metrics
from paretune.spec.parameters import spell
from paretune.studies.results.front import StudyFront
from paretune.studies.results.payoff import Payoff
from paretune.studies.results.pictures import pictures
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.quantities import axis, said, usd, with_error
from paretune.studies.results.recommendation import Pick, failures
from paretune.studies.results.table import searched_parameters
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
    searched = searched_parameters(front)
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
        f"{axis(name)}: {said(name, noise.of_one_run(typical.means[name]))}"
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
    searched = searched_parameters(front)
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
            + ["" if trial.status is TrialStatus.RUNNING else with_error(trial.spent_usd)]
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
