"""Runs `report`: finds the recorded runs, builds the report and keeps it with the command's own run."""

import os
from collections.abc import Sequence
from datetime import date

from paretune.commands.report.command import SHAPE, ReportRequest
from paretune.commands.report.costs import ALL, costs_report
from paretune.commands.report.document import Report, Section
from paretune.commands.report.groups import groups_of, section_of
from paretune.commands.report.jobs import dates, frame_of, records
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, as_json, read_rows
from paretune.core.untrusted import markdown, without_secrets
from paretune.presentation.numbers import usd
from paretune.pricing.prices import PriceList
from paretune.tracking import RecordedJob, RunStatus, Tracking, schema

_JOBS = f"tags.`{schema.STATE}` != ''"  # every job has a state as soon as it is created, and no other run has one
_APART = "Origins, data sets and models stand in tables of their own: compare within one only."


def run_report(request: ReportRequest) -> CommandOutput:
    """Report recorded runs; the runs themselves do not change."""
    environment, clock = dict(os.environ), SystemClock()
    prices = PriceList.read(environment)
    tracking = Tracking(environment, clock)
    jobs = [RecordedJob(run) for run in tracking.runs(" and ".join(filter(None, [_JOBS, request.filter])))]
    if request.view != "runs":
        report = _grouped(request, jobs)
    elif jobs:
        report = costs_report(request, jobs, prices, date.fromtimestamp(clock.now()))
    else:
        text = "no job is recorded" + (" that fits the filter" if request.filter else "")
        return CommandOutput(text=text, document={"rows": []})
    csv = report.csv()
    run = tracking.begin("report")
    is_simulated = {job.origin for job in jobs} == {"simulated"}
    tags = {schema.KIND: "report", schema.ORIGIN: "simulated" if is_simulated else None}
    run.set_tags(tags | {schema.NOTE: markdown(_note(report))})
    run.log_params({name: without_secrets(text) for name, text in request.changed().items()})
    for name, text in {"report.csv": csv, "report.md": report.markdown(), "report.html": report.html()}.items():
        run.log_text(text, name)
    run.end(RunStatus.FINISHED)
    open_command = tracking.open_command(run.run_id)
    where = f"report.csv is in run {run.run_id}, with report.html and report.md: {open_command}"
    return CommandOutput(
        text=f"{report.text()}\n\n{where}",
        document={
            "run_id": run.run_id,
            "rows": as_json(read_rows(csv)),
            **({"totals": as_json(report.totals)} if report.totals else {}),
            "findings": [text for section in report.sections for text in section.findings()],
            "open_command": open_command,
        },
    )


def _grouped(request: ReportRequest, jobs: Sequence[RecordedJob]) -> Report:
    """The views scaling and compare; raises BadInput if nothing varies."""
    factor = request.by or SHAPE
    frame = frame_of(jobs, factor)
    used = frame[(frame.state == "Completed") & (frame.probe_steps == "")] if jobs else frame
    groups, left_out = groups_of(used, factor, request.view)
    sections, tables = zip(*(section_of(group, request.view) for group in groups), strict=True)
    left = len(frame) - len(used)
    out = f"{left} of them {'is' if left == 1 else 'are'} left out: not completed, or a probe." if left else ""
    others = [Section(heading="Nothing to compare with", sentences=[f"{group}." for group in left_out])]
    return Report(
        title=f"Report by {factor}",
        about=[*filter(None, [dates(frame), out, _APART if len(groups) + len(left_out) > 1 else ""])],
        sections=[*sections, *(others if left_out else [])],
        rows=[row for table in tables for row in records(table)],
    )


def _note(report: Report) -> str:
    """The sums, or the first finding, and where the rest is."""
    lines = [] if report.totals else [text for section in report.sections for text in section.sentences][:1]
    for row in report.totals:
        if row["by"] == ALL:
            spent = "unknown dollars" if row["cost_usd"] is None else usd(float(str(row["cost_usd"])))
            lines.append(f"{row['jobs']} runs, {row['origin']}: {spent}")
    return "\n\n".join([*(f"**{line}**" for line in lines), f"{report.title}: everything is in `report.html`."])
