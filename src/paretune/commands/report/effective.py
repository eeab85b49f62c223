"""The effective rates that `reconcile` has learnt from bills."""

from collections.abc import Mapping, Sequence

from paretune.commands.bill.rates import FILE, EffectiveRate, read_rates
from paretune.core.errors import BadInput
from paretune.tracking import RecordedJob, Tracking, schema

_MOST = 24  # bills that are looked at, newest first: of two years


def effective_rates(tracking: Tracking, jobs: Sequence[RecordedJob]) -> Mapping[tuple[str, str], EffectiveRate]:
    """The rate of each instance type and region, of the newest bill that has it.

    Raises:
        BadInput: no bill tells what is paid for any of the `jobs`, or for an hour of anything.
        TrackingUnavailable: MLflow does not answer.
    """
    found: dict[tuple[str, str], EffectiveRate] = {}
    for run in tracking.runs(f"tags.`{schema.KIND}` = 'reconcile'", newest=_MOST):
        text = tracking.artifact_text(run.run_id, FILE)
        for key, rate in read_rates(text or "").items():
            if key not in found or rate.as_of > found[key].as_of:
                found[key] = rate
    if not found and all(job.bill.effective_usd is None for job in jobs):
        raise BadInput(
            [
                "rate=effective needs a bill that has been read: `paretune reconcile --bill FILE` reads one (CUR 2.0), "
                "and says which instance types it has no effective rate of"
            ]
        )
    return found
