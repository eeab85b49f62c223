"""The command `estimate`: how long, how much and whether it fits, before anything is paid for."""

from paretune.jobs.estimate import run_estimate
from paretune.jobs.estimate_request import EstimateRequest
from paretune.jobs.estimate_table import EstimateTable


def run(request: EstimateRequest) -> EstimateTable:
    """The recorded table; what was never measured is probed if asked for."""
    return run_estimate(request, say=lambda text: print(text, flush=True))
