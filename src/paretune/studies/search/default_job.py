"""What a study is weighed against: its job with the searched parameters left at their defaults."""

import math
from collections.abc import Iterable
from typing import Any

from paretune.core.errors import BadInput
from paretune.jobs.preparation import known_inputs
from paretune.ledger.trial_entry import TrialStatus
from paretune.pricing.budget import cost_usd
from paretune.specification import metrics
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, Value, spell
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_inside, is_whole, make_spec
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver


def default_job(file: StudyFile) -> JobSpec | None:
    """The job that somebody runs who does not search: defaults, on the first instance type; None where it is none."""
    chosen = {"instance_type": file.search["instance_type"].corners[0]} if "instance_type" in file.search else {}
    try:
        return make_spec(file.job, chosen)
    except BadInput:
        return None


def default_point(driver: Driver) -> dict[str, Value] | None:
    """The point nearest to the defaults, on its cheapest instance type, tried first; None where it makes no job."""
    file, spec = driver.file, default_job(driver.file)
    if spec is None:
        return None
    plan = spec.plan()
    point = {name: entry.corners[0] for name, entry in file.search.items()}
    for name in file.search.keys() - {"instance_type"}:
        if is_inside(name):
            point[name] = _middle(name, file.search[name])
        else:
            point[name] = _nearest(getattr(plan if hasattr(plan, name) else spec, name), file.search[name])
    try:
        if "instance_type" in point:
            on_each = [{**point, "instance_type": name} for name in file.search["instance_type"].corners]
            point = min(on_each, key=lambda one: _usd_per_hour(file.spec_at(one), driver))
        file.spec_at(point)
    except BadInput:
        return None
    return point


def _nearest(wanted: Any, entry: Choices | Range) -> Value:
    """The value of a search that is nearest to the default; the first where one of them is no number."""
    values = entry.corners
    if wanted in values or not all(isinstance(value, int | float) for value in (wanted, *values)):
        return next((value for value in values if value == wanted), values[0])
    if isinstance(entry, Range):
        kept = min(max(float(wanted), entry.low), entry.high)
        return round(kept) if isinstance(wanted, int) else kept
    return min(values, key=lambda value: _distance(float(value), float(wanted)))


def _middle(name: str, entry: Choices | Range) -> Value:
    """A value of a parameter whose default nobody here knows: the first choice, the middle of a range."""
    if isinstance(entry, Choices):
        return entry.values[0]
    return round(entry.at(0.5)) if is_whole(name, entry) else entry.at(0.5)


def _distance(one: float, other: float) -> float:
    """By ratio, where both have one."""
    return abs(math.log(one / other)) if one > 0 and other > 0 else abs(one - other)


def _usd_per_hour(spec: JobSpec, driver: Driver) -> float:
    price = driver.workplace.launcher.price(spec)
    return math.inf if price is None else price.usd_per_hour


def default_trial(driver: Driver) -> Trial | None:
    """A trial of the default job, the first that has completed; or its estimate; None where neither is known."""
    spec = default_job(driver.file)
    return None if spec is None else _run(spec, driver.trials.values()) or _estimated(spec, driver)


def _run(spec: JobSpec, trials: Iterable[Trial]) -> Trial | None:
    wanted, rates = _computed(spec), {"", spell(spec.unscaled_learning_rate)}
    completed = (trial for trial in trials if trial.status is TrialStatus.COMPLETED)
    # The specification of a trial is read again only where it may be the one: that takes a while.
    likely = (trial for trial in completed if trial.parameters.get("learning_rate", "") in rates)
    return next((trial for trial in likely if _computed(JobSpec.from_text(trial.parameters)) == wanted), None)


def _computed(spec: JobSpec) -> object:
    """What two jobs have in common that train alike: a batch may be spelled in several ways."""
    return spec.plan(), spec.instance_type, spec.instance_count, spec.key_of(*COMPUTES)


def _estimated(spec: JobSpec, driver: Driver) -> Trial | None:
    workplace = driver.workplace
    inputs, price = known_inputs(spec, workplace), workplace.launcher.price(spec)
    found, origin = {}, "estimated"
    if workplace.launcher.origin == "simulated":
        found, origin = _rehearsed(spec, driver), workplace.launcher.origin
    elif (estimate := workplace.forecast.time_of(spec, spec.plan(), inputs, price)) is not None:
        found = {metrics.JOB_SECONDS: estimate.time.seconds, metrics.BILLABLE_SECONDS: estimate.time.seconds}
    if not found:
        return None
    usd = cost_usd(price, spec, found[metrics.BILLABLE_SECONDS])
    if usd is not None:
        found[metrics.COST_USD] = usd
    return Trial(
        number=-1,
        run_id="",
        point={},
        parameters=spec.as_text(),
        status=TrialStatus.COMPLETED,
        values={name: value for name, value in found.items() if name in driver.file.objectives},
        cost_usd=found.get(metrics.COST_USD),
        origin=origin,
        seed=spec.seed,
    )


def _rehearsed(spec: JobSpec, driver: Driver) -> dict[str, float]:
    """What the simulated launcher would say of the job; empty where it cannot."""
    try:
        calm = spec.replace(simulation={})  # whatever trouble it would meet
        document = JobDocument(job_name="paretune-default", spec=calm, plan=calm.plan())
        said = driver.workplace.launcher.preview(document, JobInputs())
    except BadInput:
        return {}
    if said.get("ends") != "Completed":
        return {}
    seconds = float(said["billable_seconds"])
    return {**said["metrics"], metrics.BILLABLE_SECONDS: seconds, metrics.JOB_SECONDS: seconds}
