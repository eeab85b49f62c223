"""The command `report`: compares recorded runs in tables and sentences, at recorded or other prices.

A report reads runs and does not change them. Measured, simulated and published runs never share a mean, a sum or a line
of a chart, and neither do billed and notional dollars. This module finds the runs, and saves the report in the
command's own run. `tables` makes the report of each view.
"""

import os
from collections.abc import Iterator
from datetime import date, datetime
from typing import ClassVar, Literal

from paretune.commands.command import command_of
from paretune.core.clock import SystemClock
from paretune.core.errors import did_you_mean
from paretune.core.result import CommandOutput, as_json, read_rows
from paretune.core.secrets import without_secrets
from paretune.core.shell import command_line
from paretune.specification.catalog import region_faults
from paretune.specification.declaration import Parameters, Rules, parameter
from paretune.specification.job import DEFAULTS

SHAPE, DEVICES = "shape", "devices"
FACTORS = (SHAPE, DEVICES, *DEFAULTS)
NESTED = ("training_arguments", "lora")
"""Parameters that contain others, each of which is a factor: training_arguments.torch_compile, lora.r."""
MOST_RUNS = 2_000
"""Limit on the runs of view=runs. MLflow needs about 1.5 ms of CPU and 45 kB to read one (20,000 runs, MLflow 3.17.2,
SQLite, 2026-11-30)."""
TOTAL_KEYS = ("study", "month", "user", "team", "tag", "instance_type")  # keys by which dollars are added up


class ReportRequest(Parameters):
    """The view of a report, its runs, and the terms on which they are priced again. Raises BadInput with all faults."""

    view: Literal["runs", "scaling", "compare"] = parameter("runs")
    """runs: a row per run, and totals of dollars; scaling: larger clusters; compare: the values of one setting"""
    by: str | None = parameter(None)
    """view=runs: totals by study, month, user, team, tag or instance_type; other views: shape (instance type and
    number of instances), devices or a job parameter"""
    rate: Literal["list", "effective"] = parameter("list")
    """list: dollars at list prices; effective: dollars according to the bills that `reconcile` has read"""
    filter: str | None = parameter(None, also="study experiment")
    """which runs, in MLflow's search language, such as "metrics.f1 > 0.9 and params.seed = '1'"."""
    region: str | None = parameter(None)
    """price the runs again with this region's prices"""
    price_date: str | None = parameter(None)
    """price the runs again with the prices of this day, such as 2026-11-20"""

    rules: ClassVar[Rules] = (lambda request: request._all_faults(),)

    def _all_faults(self) -> Iterator[str]:
        yield from region_faults(self.region)
        is_factor = self.by in FACTORS or str(self.by).partition(".")[0] in NESTED
        if self.view == "compare" and self.by is None:
            yield "view=compare needs the setting whose values are compared, such as by=precision"
        elif self.by is not None and self.view == "runs" and self.by not in TOTAL_KEYS:
            hint = "set view=compare" if is_factor else did_you_mean(self.by, TOTAL_KEYS) or "choose one"
            yield f"by must be one of {', '.join(TOTAL_KEYS)} with view=runs, got {self.by!r}: {hint}"
        elif self.by is not None and self.view != "runs" and not is_factor:
            must = f"by must be {SHAPE}, {DEVICES} or a parameter of a job with view={self.view}"
            hint = did_you_mean(self.by, FACTORS, or_longer=True) or "see `paretune train --help all`"
            yield f"{must}, got {self.by!r}: {hint}"
        terms = [name for name in ("region", "price_date") if getattr(self, name) is not None]
        if self.rate == "effective":
            yield from (f"{name} has no effect with rate=effective: leave one of them out" for name in terms)
            terms.append("rate=effective")
        for name in terms if self.view != "runs" else ():
            yield f"{name} has an effect only with view=runs, got view={self.view}: leave it out"
        try:
            _ = self.on
        except ValueError:
            yield f"price_date must be a day such as 2026-11-20, got {self.price_date!r}"

    @property
    def on(self) -> date | None:
        """The day of the prices, or None if none was given. Raises ValueError if `price_date` is not a day."""
        return datetime.strptime(self.price_date, "%Y-%m-%d").date() if self.price_date else None


def _run(request: ReportRequest) -> CommandOutput:
    from paretune.commands.report.tables import costs_report, groups_report  # pandas and MLflow take seconds to import
    from paretune.pricing import PriceList
    from paretune.studies.definition.objectives import recorded_goals
    from paretune.tracking import schema
    from paretune.tracking.store import Tracking

    environment = dict(os.environ)
    prices, tracking = PriceList.read(environment), Tracking(environment, SystemClock())
    is_job = f"tags.`{schema.STATE}` != ''"  # every run of a job has a state, and no other run has one
    newest = MOST_RUNS + 1 if request.view == "runs" else None  # one more, to see whether there are more
    jobs = tracking.runs(" and ".join(filter(None, [is_job, request.filter])), newest)
    if not jobs:
        fitting = " that matches the filter" if request.filter else ""
        first = "" if fitting else f": `{command_line('train')}` records one, `{command_line('demo')}` shows a study"
        text = f"no job{fitting} is recorded in {without_secrets(tracking.uri)}{first}"
        return CommandOutput(text=text, document={"rows": []})
    if request.view == "runs":
        studies = tracking.runs(f"tags.`{schema.KIND}` = 'study'")
        goals = {study.run_id: recorded_goals(study.params) for study in studies if "objectives" in study.params}
        report = costs_report(request, jobs, prices, date.today(), goals)
    else:
        report = groups_report(jobs, request.by or SHAPE, is_drawn=request.view == "scaling")
    csv, is_simulated = report.csv(), {job.origin for job in jobs} == {"simulated"}
    run_id, open_command = tracking.keep(
        "report",
        report.note(),
        {"report.csv": csv, "report.md": report.markdown(), "report.html": report.html()},
        request.given_text(),
        "simulated" if is_simulated else None,
    )
    where = f"report.csv is in run {run_id}, with report.md and report.html: {open_command}"
    return CommandOutput(
        text="\n\n".join([str(report), where]),
        document={
            "run_id": run_id,
            "rows": as_json(read_rows(csv)),
            **({"totals": as_json(report.totals)} if report.totals else {}),
            "findings": report.findings,
            "open_command": open_command,
        },
    )


REPORT = command_of(ReportRequest, _run)
