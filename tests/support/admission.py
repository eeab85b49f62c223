"""Whether a job may be paid for, on instances with a given price."""

from types import SimpleNamespace
from typing import Any

from paretune.launchers.offers import admit
from paretune.pricing import Price
from paretune.specification.job import JobSpec


def admitted(job: JobSpec, price: Price | None, after_s: float) -> float | None:
    """Return the worst case of a job that may be billed for `after_s` seconds beyond its maximum runtime.

    Raises BudgetRefused if it is above the job's max_cost_usd.
    """
    launcher: Any = SimpleNamespace(price=lambda _: price, uploads_are_billed=False, stop_s=after_s)
    return admit(job, launcher, {})
