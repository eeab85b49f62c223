"""The baseline of a study: its job with the searched parameters left at their defaults."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from paretune.core.errors import BadInput
from paretune.jobs.preparation import known_inputs
from paretune.pricing.budget import cost_usd
from paretune.specification import metrics
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_inside, is_whole, make_spec
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.driver import Driver


def default_job(file: StudyFile) -> JobSpec | None:
    """The job without a search: defaults, on the first instance type; None if that is no valid job, or for `points`."""
    if file.design is not None:
        return None
    chosen = {"instance_type": file.search["instance_type"].corners[0]} if "instance_type" in file.search else {}
    try:
        return make_spec(file.job.given(), chosen)
    except BadInput:
        return None


def default_point(driver: Driver) -> dict[str, Value] | None:
    """The point nearest to the defaults, on its cheapest instance type, tried first; None if it makes no job."""
    file, spec = driver.file, default_job(driver.file)
    if spec is None:
        return None
    plan = spec.plan()
    point = {name: entry.corners[0] for name, entry in file.search.items()}
    for name in file.search.keys() - {"instance_type"}:
        default = None if is_inside(name) else getattr(plan if hasattr(plan, name) else spec, name)
        point[name] = _nearest(name, file.search[name], default)
    try:
        if "instance_type" in point:
            on_each = [{**point, "instance_type": name} for name in file.search["instance_type"].corners]
            point = min(on_each, key=lambda candidate: _usd_per_hour(file.spec_at(candidate), driver))
        file.spec_at(point)
    except BadInput:
        return None
    return point


def _nearest(name: str, entry: Choices | Range, default: Any) -> Value:
    """The searched value nearest to the default; if that is no number, the first one, or the middle of a range."""
    is_number = isinstance(default, int | float) and all(isinstance(value, int | float) for value in entry.corners)
    if isinstance(entry, Range):
        value = min(max(float(default), entry.low), entry.high) if is_number else entry.at(0.5)
        return round(value) if is_whole(name, entry) else value
    if not is_number:
        return default if default in entry.values else entry.values[0]
    is_ratio = all(float(value) > 0 for value in (default, *entry.values))
    scale: Callable[[float], float] = math.log if is_ratio else float
    return min(entry.values, key=lambda value: abs(scale(float(value)) - scale(float(default))))


def _usd_per_hour(spec: JobSpec, driver: Driver) -> float:
    price = driver.workplace.launcher.price(spec)
    return math.inf if price is None else price.usd_per_hour


def default_trial(driver: Driver) -> Trial | None:
    """The first completed trial of the default job, or its estimate; None if neither is known."""
    spec = default_job(driver.file)
    return None if spec is None else _run(spec, driver.trials.values()) or _estimated(spec, driver)


def _run(spec: JobSpec, trials: Iterable[Trial]) -> Trial | None:
    completed = (trial for trial in trials if trial.status is TrialStatus.COMPLETED)
    return next((trial for trial in completed if _computed(trial.spec) == _computed(spec)), None)


def _computed(spec: JobSpec) -> object:
    """Equal for two jobs that train alike: a batch may be spelled in several ways."""
    return spec.plan(), spec.instance_type, spec.instance_count, spec.key_of(*COMPUTES)


def _estimated(spec: JobSpec, driver: Driver) -> Trial | None:
    workplace = driver.workplace
    inputs, price = known_inputs(spec, workplace), workplace.launcher.price(spec)
    measured, origin = {}, "estimated"
    if workplace.launcher.origin == "simulated":
        measured, origin = _rehearsed(spec, driver), workplace.launcher.origin
    elif (estimate := workplace.forecast.of(spec, spec.plan(), inputs, price)) is not None:
        measured = {metrics.JOB_SECONDS: estimate.time.seconds, metrics.BILLABLE_SECONDS: estimate.time.seconds}
    if not measured:
        return None
    usd = cost_usd(price, spec, measured[metrics.BILLABLE_SECONDS])
    if usd is not None:
        measured[metrics.COST_USD] = usd
    return Trial(
        number=-1,
        point={},
        given=spec.changed(),
        status=TrialStatus.COMPLETED,
        values={name: value for name, value in measured.items() if name in driver.file.objectives},
        cost_usd=measured.get(metrics.COST_USD),
        origin=origin,
        seed=spec.seed,
    )


def _rehearsed(spec: JobSpec, driver: Driver) -> dict[str, float]:
    """Metrics that the simulated launcher gives the job; empty if it cannot run it."""
    try:
        calm = spec.replace(simulation={})  # without simulated failures
        document = JobDocument(job_name="paretune-default", spec=calm, plan=calm.plan())
        preview = driver.workplace.launcher.preview(document, JobInputs())
    except BadInput:
        return {}
    if preview.get("ends") != "Completed":
        return {}
    seconds = float(preview["billable_seconds"])
    return {**preview["metrics"], metrics.BILLABLE_SECONDS: seconds, metrics.JOB_SECONDS: seconds}
