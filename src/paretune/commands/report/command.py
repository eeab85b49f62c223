"""The command `report`: tables, figures and findings of recorded runs."""

from paretune.commands.command import Command, help_lines, reader_of, switches_of
from paretune.commands.report.request import ReportRequest
from paretune.core.result import CommandOutput


def _run(request: ReportRequest) -> CommandOutput:
    from paretune.commands.report.run import run_report  # MLflow takes a second to import

    return run_report(request)


COMMAND = Command(
    read=reader_of(ReportRequest, "report"),
    run=_run,
    parameters=help_lines(ReportRequest),
    switches=switches_of(ReportRequest),
)
