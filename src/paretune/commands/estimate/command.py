"""The command `estimate`: seconds, dollars and memory of jobs before they are paid for."""

from collections.abc import Mapping

from paretune.commands.command import Command, read_with_profile
from paretune.commands.estimate.request import PROBE_HELP, EstimateRequest
from paretune.core.result import Result


def _read(texts: Mapping[str, str], faults: list[str]) -> EstimateRequest:
    return read_with_profile(EstimateRequest.from_text, texts, faults)


def _run(request: EstimateRequest) -> Result:
    from paretune.commands.estimate.estimate import run_estimate  # MLflow takes a second to import

    return run_estimate(request)


COMMAND = Command(read=_read, run=_run, parameters={"probe": PROBE_HELP}, takes_jobs=True)
