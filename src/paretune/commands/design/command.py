"""The command `design`: a designed experiment."""

from collections.abc import Mapping

from paretune.commands.command import Command, read_file_argument, switches_of
from paretune.commands.design.file import DesignFile, DesignTerms, design_help
from paretune.commands.design.reading import read_design
from paretune.core.result import Result

_EXAMPLE = "studies/polarity_scaling.yaml"


def _read(texts: Mapping[str, str], faults: list[str]) -> DesignFile:
    return read_file_argument(read_design, texts, faults, name="design", kind="design", example=_EXAMPLE)


def _run(file: DesignFile) -> Result:
    from paretune.commands.design.run import run_design_file  # MLflow takes a second to import

    return run_design_file(file)


COMMAND = Command(
    read=_read,
    run=_run,
    parameters={"design": f"the design's file, such as {_EXAMPLE}", **design_help()},
    switches=switches_of(DesignTerms),
    takes_jobs=True,
)
