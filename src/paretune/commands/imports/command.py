"""The command `import`: a table of finished runs, brought into MLflow."""

from collections.abc import Mapping

from paretune.commands.command import Command, make_or_refuse, switches_of
from paretune.commands.imports.request import ImportRequest, import_help
from paretune.core.result import CommandOutput
from paretune.specification.job import JobSpec


def _read(texts: Mapping[str, str], faults: list[str]) -> ImportRequest:
    return make_or_refuse(lambda: ImportRequest.from_text(texts), faults)


def _run(request: ImportRequest) -> CommandOutput:
    from paretune.commands.imports.run import run_import  # MLflow takes a second to import

    return run_import(request)


COMMAND = Command(read=_read, run=_run, parameters=import_help(), switches=switches_of(JobSpec))
