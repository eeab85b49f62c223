"""The most that a trial's job can cost, which is reserved before the job is created."""

import math
from dataclasses import replace

from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.spec.job import JobSpec

_RUNTIME_MARGIN = 4.0
"""Times the upper end of the estimate's interval: a job that is cut off was paid for and shows nothing."""


class WorstCase:
    """Gives jobs a maximum runtime, where a budget makes that worth while, and their cost at that runtime."""

    def __init__(self, workplace: Workplace, *, has_budget: bool) -> None:
        self._workplace = workplace
        self._has_budget = has_budget
        self._known: dict[tuple[str, float], tuple[JobSpec, float | None]] = {}
        self._doublings = 0

    def learn(self, trials: int) -> None:
        """Renew the estimates each time the number of trials has doubled: reading their runs takes a while."""
        if trials.bit_length() != self._doublings:
            self._doublings = trials.bit_length()
            self._workplace.forecast.renew()
            self._known.clear()

    def limited(self, spec: JobSpec) -> JobSpec:
        """The job with a maximum runtime not far above its estimate, so that it binds less of the budget."""
        return self._found(spec)[0]

    def usd(self, spec: JobSpec) -> float | None:
        """Dollars at the limit on its dearest instance type, None where unknown; BudgetRefused above max_cost_usd."""
        return self._found(spec)[1]

    def _found(self, spec: JobSpec) -> tuple[JobSpec, float | None]:
        key = spec.spec_hash(), spec.max_runtime_minutes
        if key not in self._known:
            limited = self._limited(spec)
            everywhere = [limited, *(limited.on_instance_type(name) for name in limited.instance_types()[1:])]
            found = [self._workplace.launcher.admit(one) for one in everywhere]
            self._known[key] = limited, None if None in found else max(usd for usd in found if usd is not None)
        return self._known[key]

    def _limited(self, spec: JobSpec) -> JobSpec:
        if not self._has_budget:
            return spec
        price = self._workplace.launcher.price(spec)
        inputs = known_inputs(spec, self._workplace)
        estimate = self._workplace.forecast.of(spec, spec.plan(), inputs, price)
        if estimate is None or not estimate.measured_here:
            return spec
        minutes = max(1.0, _RUNTIME_MARGIN * estimate.time.seconds_high / 60)
        return replace(spec, max_runtime_minutes=min(spec.max_runtime_minutes, math.ceil(10 * minutes) / 10))
