"""Runs `report`: finds the recorded runs, builds the report and keeps it with the command's own run."""

import os
from collections.abc import Mapping
from datetime import date

from paretune.commands.report.accuracy import accuracy, estimate_errors
from paretune.commands.report.command import ReportRequest
from paretune.commands.report.dollars_picture import dollars_against_f1
from paretune.commands.report.observations import TABLE, estimated_jobs, with_rate
from paretune.commands.report.report import Report, Section
from paretune.commands.report.repricing import Terms, remarks, reprice, with_new_costs
from paretune.commands.report.tables import about_kinds, cost_rows, cost_table, error_tables, front_changes
from paretune.commands.report.totals import ALL, total_rows, total_sentences, total_tables, totals
from paretune.commands.report.views import comparison_report, dates, scaling_report
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput, as_json, read_rows
from paretune.core.untrusted import markdown, without_secrets
from paretune.presentation.numbers import usd
from paretune.pricing.prices import PriceList
from paretune.specification.parameters import split_list
from paretune.tracking import RecordedJob, RunStatus, Tracking, schema

_FRONT = "no other run is as cheap and as good; cost = seconds x instances x price"
_JOBS = f"tags.`{schema.STATE}` != ''"  # every job has a state as soon as it is created, and no other run has one
_MOST_IDS = 200  # run ids in one query


def run_report(request: ReportRequest) -> CommandOutput:
    """Report recorded runs; the runs themselves do not change."""
    environment, clock = dict(os.environ), SystemClock()
    prices = PriceList.read(environment)
    tracking = Tracking(environment, clock)
    jobs = _jobs(request, tracking)
    if request.view != "runs" and not request.runs:
        condition = " and ".join(filter(None, [f"tags.`{schema.KIND}` = 'estimate'", request.filter]))
        estimated = estimated_jobs(tracking.runs(condition), lambda run_id: tracking.artifact_text(run_id, TABLE))
        jobs += estimated
    jobs = with_rate(jobs, request.learning_rates)
    if request.view == "scaling":
        report = scaling_report(jobs, request.factor)
    elif request.view == "compare":
        report = comparison_report(jobs, request.by or "", tracking.curve)
    elif jobs:
        terms = Terms(
            region=request.region,
            on=request.on,
            spot_share=request.spot_share,
            is_effective=request.rate == "effective",
        )
        report = _runs_report(terms, request.by, jobs, prices, _studies(jobs, tracking), clock)
    else:
        text = "no job is recorded" + (" that fits the filter" if request.filter else "")
        return CommandOutput(text=text, document={"rows": []})
    run_id = _log(report, request, tracking, {job.origin for job in jobs})
    open_command = tracking.open_command(run_id)
    files = ", ".join(["report.html", "report.md", *(["totals.csv"] if report.totals else [])])
    return CommandOutput(
        text=f"{report.text()}\n\nreport.csv is in run {run_id}, with {files} and figures: {open_command}",
        document={
            "run_id": run_id,
            "rows": as_json(read_rows(report.csv())),
            **({"totals": as_json(report.totals)} if report.totals else {}),
            "findings": [sentence for section in report.sections for sentence in section.sentences],
            "open_command": open_command,
        },
    )


def _runs_report(
    terms: Terms,
    by: str | None,
    jobs: list[RecordedJob],
    prices: PriceList,
    studies: dict[str, str],
    clock: Clock,
) -> Report:
    """Return a row per run, priced again if asked for, totals of dollars, and the errors of estimates."""
    errors, costs = estimate_errors(jobs), reprice(jobs, prices, terms)
    sentences = [f"front *: {_FRONT}", *about_kinds(costs)]
    if terms.are_new:
        sentences += [*front_changes(costs), *remarks(costs, terms, date.fromtimestamp(clock.now()))]
    sums = totals(jobs, studies, by)
    priced = with_new_costs(costs) if terms.is_effective else jobs
    picture = dollars_against_f1(priced, studies, by or "instance_type")
    sections = [
        Section(
            heading="Runs",
            tables=[("Newest first", cost_table(costs, terms))],
            sentences=sentences,
            pictures=[] if picture is None else [picture],
        ),
        Section(heading="Dollars, as they were recorded", tables=total_tables(sums), sentences=total_sentences(sums)),
    ]
    if errors:
        by_run, means = error_tables(errors, accuracy(errors))
        tables = [("By run", by_run), ("In the mean", means)]
        sections.append(Section(heading="Estimates against measurements", tables=tables))
    return Report(
        title="Report on recorded runs",
        about=[dates(jobs)],
        sections=sections,
        rows=cost_rows(costs, errors),
        totals=total_rows(sums),
    )


def _log(report: Report, request: ReportRequest, tracking: Tracking, origins: set[str]) -> str:
    """Log the report as artifacts of the command's own run, marked simulated if all its jobs are; return its id."""
    run = tracking.begin("report")
    is_simulated = origins == {"simulated"}
    origin = "simulated" if is_simulated else None
    run.set_tags({schema.KIND: "report", schema.ORIGIN: origin, schema.NOTE: markdown(_note(report))})
    run.log_params(request.changed())
    for name, text in {**report.tables(), "report.md": report.markdown(), "report.html": report.html()}.items():
        run.log_text(text, name)
    for picture in report.pictures:
        run.log_figure(picture.figure(), f"{picture.name}.png")
    run.end(RunStatus.FINISHED)
    return run.run_id


def _note(report: Report) -> str:
    """The sums, or the first finding, and where the rest is."""
    sums = [row for row in report.totals if row["by"] == ALL]
    lines = [f"{row['jobs']} runs, {row['origin']}: {_figures(row)}" for row in sums]
    lines = lines or [text for section in report.sections for text in section.sentences][:1]
    return "\n\n".join([*(f"**{line}**" for line in lines), f"{report.title}: everything is in `report.html`."])


def _figures(row: Mapping[str, object]) -> str:
    cost, f1 = row["cost_usd"], row["best_f1"]
    dollars = usd(cost) if isinstance(cost, float) else "unknown dollars"
    return f"{dollars}, best F1 {f1:.4g}" if isinstance(f1, float) else dollars


def _studies(jobs: list[RecordedJob], tracking: Tracking) -> dict[str, str]:
    """Return run id to name of the studies whose name is not recorded with their jobs."""
    ids = sorted({job.parent_run_id for job in jobs if job.parent_run_id and schema.STUDY not in job.run.tags})
    names = {}
    for start in range(0, len(ids), _MOST_IDS):
        id_list = ", ".join(f"'{run_id}'" for run_id in ids[start : start + _MOST_IDS])
        for run in tracking.runs(f"attributes.run_id IN ({id_list})"):
            names[run.run_id] = run.tags.get(schema.STUDY) or RecordedJob(run).name or run.run_id
    return names


def _jobs(request: ReportRequest, tracking: Tracking) -> list[RecordedJob]:
    """Return the requested jobs, newest first, or in the order of their names; raises BadInput for a wrong name."""
    condition = " and ".join(filter(None, [_JOBS, request.filter]))
    names = split_list(request.runs)
    if not names:
        return [RecordedJob(run) for run in tracking.runs(condition)]
    faults, jobs = [], {}
    for name in names:
        matches = tracking.runs(f"{condition} and attributes.run_id LIKE '{name}%'", newest=2)
        if len(matches) == 1:
            jobs[matches[0].run_id] = RecordedJob(matches[0])
        elif matches:
            faults.append(f"runs: several begin with {name!r}: give more of its id")
        else:
            fits = " that fits the filter" if request.filter else ""
            store = without_secrets(tracking.uri)
            faults.append(f"runs: {name!r} is no job{fits} at {store}: `paretune report` lists all jobs")
    if faults:
        raise BadInput(faults)
    return list(jobs.values())
