"""The command `report`: tables of recorded runs, priced again, and the errors of their estimates."""

import os
from dataclasses import asdict
from datetime import date

from paretune.cli.output.accuracy import accuracy, estimate_errors
from paretune.cli.output.answer import Answer
from paretune.cli.output.report_tables import about_kinds, cost_csv, cost_table, error_tables, front_changes
from paretune.cli.output.repricing import Terms, remarks, reprice
from paretune.cli.requests.own_parameters import ReportRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.core.result import as_json, read_rows
from paretune.pricing.prices import PriceList
from paretune.spec.cluster import listed
from paretune.tracking import RecordedJob, RunStatus, Tracking, schema, without_password

_NEWEST = 200  # runs, where none are named
_FRONT = "no other run is as cheap and as good; cost = seconds x instances x price"
_JOBS = f"tags.`{schema.STATE}` != ''"  # every job has a state once it is created, and nothing else has one


def run(request: ReportRequest) -> Answer:
    """The tables, kept with the command's own run; the runs in them stay as they are."""
    environment, clock = dict(os.environ), SystemClock()
    terms = Terms(region=request.region, on=request.on, spot_share=request.spot_share)
    prices = PriceList.read(environment)
    tracking = Tracking(environment, clock)
    jobs = _jobs(request, tracking)
    if not jobs:
        text = "no job is recorded" + (" that fits the filter" if request.filter else "")
        return Answer(text=text, document={"rows": []})
    errors = estimate_errors(jobs)
    costs = reprice(jobs, prices, terms)
    lines = [cost_table(costs, terms), f"front *: {_FRONT}", *about_kinds(costs)]
    if terms.are_new:
        lines += [*front_changes(costs), *remarks(costs, terms, date.fromtimestamp(clock.now()))]
    parts = ["\n".join(lines)]
    if errors:
        parts.append(f"estimates against measurements\n{error_tables(errors, accuracy(errors))}")
    own = tracking.begin("report")
    own.set_tags({schema.KIND: "report"})
    own.log_params({name: str(value) for name, value in asdict(request).items() if value is not None})
    table = cost_csv(costs, errors)
    own.log_text(table, "report.csv")
    text = "\n\n".join(parts)
    own.log_text(f"{text}\n", "report.txt")
    own.end(RunStatus.FINISHED)
    where = tracking.open_command(own.run_id)
    return Answer(
        text=f"{text}\n\nreport.csv is in run {own.run_id}: {where}",
        document={"run_id": own.run_id, "rows": as_json(read_rows(table)), "open_command": where},
    )


def _jobs(request: ReportRequest, tracking: Tracking) -> list[RecordedJob]:
    """The jobs that are asked for, newest first; named ones in the order of their names.

    Raises:
        BadInput: a name fits no job or several, or MLflow cannot read the filter.
    """
    condition = " and ".join(filter(None, [_JOBS, request.filter]))
    named = listed(request.runs)
    if not named:
        return [RecordedJob(run) for run in tracking.runs(condition, newest=_NEWEST)]
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
            faults.append(f"runs: {name!r} is no job{fits} at {place}: `paretune report` lists the newest")
    if faults:
        raise BadInput(faults)
    return list(found.values())
