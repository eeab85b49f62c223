"""Why a command was refused, in the run that `mlflow run` had opened for it; by hand, refused input opens none."""

from collections.abc import Mapping
from contextlib import suppress

from paretune.core.clock import SystemClock
from paretune.core.errors import ParetuneError


def keep_reason(error: ParetuneError, environment: Mapping[str, str]) -> None:
    """Record what was wrong as reason and note of the opened run, unless a reason is there; nothing where none is open.

    A tracking server that does not answer gets no reason: the terminal has it.
    """
    run_id = environment.get("MLFLOW_RUN_ID")
    if not run_id:
        return
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    with suppress(ParetuneError):
        run = Tracking(environment, SystemClock()).run(run_id)
        if not run.tags().get(schema.FAILURE_REASON):
            note = f"**Refused, nothing was launched.**\n\n```\n{error}\n```"
            run.set_tags({schema.FAILURE_REASON: str(error), schema.NOTE: note})
