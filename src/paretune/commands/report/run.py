"""The command `report`: recorded runs as tables, figures and findings, priced again; the errors of their estimates."""

import os
from dataclasses import asdict, fields
from datetime import date

from paretune.commands.report.accuracy import accuracy, estimate_errors
from paretune.commands.report.effective import effective_rates
from paretune.commands.report.estimated import TABLE, estimated_jobs
from paretune.commands.report.report import Report, Section
from paretune.commands.report.repricing import Terms, remarks, reprice, with_new_costs
from paretune.commands.report.request import ReportRequest
from paretune.commands.report.tables import about_kinds, cost_rows, cost_table, error_tables, front_changes
from paretune.commands.report.totals.picture import dollars_against_f1
from paretune.commands.report.totals.sums import totals
from paretune.commands.report.totals.tables import rows, sentences, tables
from paretune.commands.report.views import comparison_report, dates, scaling_report
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput, as_json, read_rows
from paretune.pricing.prices import PriceList
from paretune.specification.parameters import spell, split_list
from paretune.tracking import RecordedJob, RunStatus, Tracking, schema, without_password

_FRONT = "no other run is as cheap and as good; cost = seconds x instances x price"
_JOBS = f"tags.`{schema.STATE}` != ''"  # every job has a state once it is created, and nothing else has one
_IDS = 200  # of runs, in one question


def run_report(request: ReportRequest) -> CommandOutput:
    """The report, kept with the command's own run; the runs in it stay as they are."""
    environment, clock = dict(os.environ), SystemClock()
    prices = PriceList.read(environment)
    tracking = Tracking(environment, clock)
    jobs = [job for job in _jobs(request, tracking) if _has_rate(job, request.learning_rates)]
    if request.view != "runs" and not request.runs:
        jobs += [job for job in _estimated(request, tracking) if _has_rate(job, request.learning_rates)]
    if request.view == "scaling":
        report = scaling_report(jobs, request.factor)
    elif request.view == "compare":
        report = comparison_report(jobs, request.by or "", tracking.curve)
    elif jobs:
        terms = Terms(
            region=request.region,
            on=request.on,
            spot_share=request.spot_share,
            rates=effective_rates(tracking, jobs) if request.rate == "effective" else None,
        )
        report = _runs(terms, request.by, jobs, prices, _studies(jobs, tracking), clock)
    else:
        text = "no job is recorded" + (" that fits the filter" if request.filter else "")
        return CommandOutput(text=text, document={"rows": []})
    run_id = _keep(report, request, tracking, {job.origin for job in jobs})
    where = tracking.open_command(run_id)
    files = ", ".join(["report.html", "report.md", *(["totals.csv"] if report.totals else [])])
    return CommandOutput(
        text=f"{report.text()}\n\nreport.csv is in run {run_id}, with {files} and figures: {where}",
        document={
            "run_id": run_id,
            "rows": as_json(read_rows(report.csv())),
            **({"totals": as_json(report.totals)} if report.totals else {}),
            "findings": [sentence for section in report.sections for sentence in section.sentences],
            "open_command": where,
        },
    )


def _runs(
    terms: Terms,
    by: str | None,
    jobs: list[RecordedJob],
    prices: PriceList,
    studies: dict[str, str],
    clock: Clock,
) -> Report:
    """A line per run, priced again where that is asked for, totals of dollars, and the errors of estimates."""
    errors, costs = estimate_errors(jobs), reprice(jobs, prices, terms)
    said = [f"front *: {_FRONT}", *about_kinds(costs)]
    if terms.are_new:
        said += [*front_changes(costs), *remarks(costs, terms, date.fromtimestamp(clock.now()))]
    added = totals(jobs, studies, by)
    priced = jobs if terms.rates is None else with_new_costs(costs)
    picture = dollars_against_f1(priced, studies, by or "instance_type")
    sections = [
        Section(
            heading="Runs",
            tables=[("Newest first", cost_table(costs, terms))],
            sentences=said,
            pictures=[] if picture is None else [picture],
        ),
        Section(heading="Dollars, as they were recorded", tables=tables(added), sentences=sentences(added)),
    ]
    if errors:
        by_run, means = error_tables(errors, accuracy(errors))
        of_errors = [("By run", by_run), ("In the mean", means)]
        sections.append(Section(heading="Estimates against measurements", tables=of_errors))
    return Report(
        title="Report on recorded runs",
        about=[dates(jobs)],
        sections=sections,
        rows=cost_rows(costs, errors),
        totals=rows(added),
    )


def _keep(report: Report, request: ReportRequest, tracking: Tracking, origins: set[str]) -> str:
    """The report as artifacts of the command's own run, which has the origin of its jobs where they share one."""
    own = tracking.begin("report")
    is_simulated = origins == {"simulated"}
    own.set_tags({schema.KIND: "report", schema.ORIGIN: "simulated" if is_simulated else None})
    defaults = {item.name: item.default for item in fields(request)}
    asked = {name: spell(value) for name, value in asdict(request).items() if value != defaults[name]}
    own.log_params(asked)
    for name, text in {**report.tables(), "report.md": report.markdown(), "report.html": report.html()}.items():
        own.log_text(text, name)
    for picture in report.pictures:
        own.log_figure(picture.figure(), f"{picture.name}.png")
    own.end(RunStatus.FINISHED)
    return own.run_id


def _studies(jobs: list[RecordedJob], tracking: Tracking) -> dict[str, str]:
    """Id of the run of each study that the jobs belong to, to the study's name, unless the jobs tell it themselves."""
    ids = sorted({job.parent_run_id for job in jobs if job.parent_run_id and schema.STUDY not in job.run.tags})
    names = {}
    for start in range(0, len(ids), _IDS):
        listed_ids = ", ".join(f"'{run_id}'" for run_id in ids[start : start + _IDS])
        for run in tracking.runs(f"attributes.run_id IN ({listed_ids})"):
            names[run.run_id] = run.tags.get(schema.STUDY) or RecordedJob(run).name or run.run_id
    return names


def _estimated(request: ReportRequest, tracking: Tracking) -> list[RecordedJob]:
    """The jobs that were only estimated, of all runs of `estimate` that fit the filter."""
    condition = " and ".join(filter(None, [f"tags.`{schema.KIND}` = 'estimate'", request.filter]))
    return estimated_jobs(tracking.runs(condition), lambda run_id: tracking.artifact_text(run_id, TABLE))


def _has_rate(job: RecordedJob, rate: str) -> bool:
    """Whether its learning rate is fixed, or scaled with the global batch size, as is asked for."""
    is_scaled = job.param("learning_rate_scaling") not in ("", "none")
    return rate == "all" or is_scaled == (rate == "scaled")


def _jobs(request: ReportRequest, tracking: Tracking) -> list[RecordedJob]:
    """The jobs that are asked for, newest first; named ones in the order of their names.

    Raises:
        BadInput: a name fits no job or several, or MLflow cannot read the filter.
    """
    condition = " and ".join(filter(None, [_JOBS, request.filter]))
    named = split_list(request.runs)
    if not named:
        return [RecordedJob(run) for run in tracking.runs(condition)]
    faults, found = [], {}
    for name in named:
        fitting = tracking.runs(f"{condition} and attributes.run_id LIKE '{name}%'", newest=2)
        if len(fitting) == 1:
            found[fitting[0].run_id] = RecordedJob(fitting[0])
        elif fitting:
            faults.append(f"runs: several begin with {name!r}: give more of its id")
        else:
            fits = " that fits the filter" if request.filter else ""
            place = without_password(tracking.uri)
            faults.append(f"runs: {name!r} is no job{fits} at {place}: `paretune report` lists all jobs")
    if faults:
        raise BadInput(faults)
    return list(found.values())
