"""The views of `report`, each with its sections."""

from collections import Counter
from collections.abc import Callable, Sequence

from paretune.commands.report import comparison_figures, scaling_figures
from paretune.commands.report.comparison import comparisons
from paretune.commands.report.factors import SHAPE
from paretune.commands.report.findings import findings
from paretune.commands.report.observations import Observation, day, observations
from paretune.commands.report.report import Report, Section
from paretune.commands.report.scaling import scalings
from paretune.commands.report.spread import CONFIDENCE
from paretune.tracking import RecordedJob

Curve = Sequence[tuple[int, float, float]]  # points of a curve: step, seconds since the epoch, value
LOSS = "train/loss"
_MEANS = "Means ± sample standard deviations of the runs that tell the quantity; time is billed per instance"
_APART = "Origins, data sets and models stand in tables of their own: compare within one only."


def scaling_report(jobs: Sequence[RecordedJob], factor: str | None) -> Report:
    """Report the effect of larger clusters, or of another factor; raises BadInput if nothing varies."""
    factor = factor or SHAPE
    runs = observations(jobs)
    comparable, left_out = scalings(runs, factor)
    sections = [
        Section(
            heading=f"{_heading(str(group.kind))}, by {factor}",
            tables=[(_MEANS, group.table())],
            sentences=findings(group),
            pictures=scaling_figures.pictures(group, number),
        )
        for number, group in enumerate(comparable)
    ]
    return Report(
        title=f"Report by {factor}",
        about=_about(jobs, runs),
        sections=[*sections, *_left_out(left_out)],
        rows=[row for group in comparable for row in group.rows()],
    )


def comparison_report(jobs: Sequence[RecordedJob], by: str, curve: Callable[[str, str], Curve]) -> Report:
    """Report a setting's values against each other, by `curve` of run id and name; raises BadInput if it has one."""
    runs = observations(jobs)
    comparable, left_out = comparisons(runs, by)
    sections = []
    for number, group in enumerate(comparable):
        losses = {run.job.run_id: curve(run.job.run_id, LOSS) for run in group.runs}
        sections.append(
            Section(
                heading=f"{_heading(str(group.kind))}, by {by}",
                tables=[(f"{_MEANS}; ratios to the first row with {CONFIDENCE:.0%} intervals", group.table())],
                sentences=group.findings(),
                pictures=comparison_figures.pictures(group, number, losses),
            )
        )
    return Report(
        title=f"Report by {by}",
        about=_about(jobs, runs),
        sections=[*sections, *_left_out(left_out)],
        rows=[row for group in comparable for row in group.rows()],
    )


def dates(jobs: Sequence[RecordedJob]) -> str:
    """Return the number, dates and origins of jobs: 230 jobs from 2026-10-01 to 2026-11-21 (200 measured, ...)."""
    days = sorted(filter(None, map(day, jobs)))
    counts = Counter(job.origin for job in jobs)
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(counts.items()))
    when = "" if not days else f" of {days[0]}" if days[0] == days[-1] else f" from {days[0]} to {days[-1]}"
    return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}{when} ({origins})."


def _about(jobs: Sequence[RecordedJob], runs: Sequence[Observation]) -> list[str]:
    left = len(jobs) - len(runs)
    are = "is" if left == 1 else "are"
    out = f"{left} of them {are} left out: not completed, a probe, or of another project." if left else ""
    origins = {group.kind for group in runs}
    return [*filter(None, [dates(jobs), out, _APART if len(origins) > 1 else ""])]


def _left_out(sentences: Sequence[str]) -> list[Section]:
    return (
        [Section(heading="Nothing to compare with", sentences=[f"{group}." for group in sentences])]
        if sentences
        else []
    )


def _heading(words: str) -> str:
    return words[:1].upper() + words[1:]
