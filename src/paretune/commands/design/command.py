"""The command `design`: a designed experiment."""

from collections.abc import Mapping

from paretune.commands.command import Command, imported_later, read_file_argument, switches_of
from paretune.commands.design.file import DesignFile, DesignTerms, design_help
from paretune.commands.design.reading import read_design

_EXAMPLE = "studies/polarity_scaling.yaml"


def _read(texts: Mapping[str, str], faults: list[str]) -> DesignFile:
    return read_file_argument(read_design, texts, faults, name="design", kind="design", example=_EXAMPLE)


COMMAND = Command(
    read=_read,
    run=imported_later("paretune.commands.design.run:run_design_file"),
    parameters={"design": f"the design's file, such as {_EXAMPLE}", **design_help()},
    switches=switches_of(DesignTerms),
    takes_jobs=True,
)
