"""The baseline of a study: its job with the searched parameters left at their defaults."""

from typing import Any

from paretune.core.errors import BadInput
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.pricing.budget import cost_usd
from paretune.specification import metrics
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES
from paretune.studies.definition.space import make_spec
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.driver import Driver


def default_trial(driver: Driver) -> Trial | None:
    """The first completed trial of the default job on the first instance type, or what is expected of it.

    None if neither is known, if the defaults make no job, or for `points`.
    """
    file, workplace = driver.file, driver.workplace
    types = file.search.get("instance_type")
    try:
        spec = make_spec(file.job.given(), {} if types is None else {"instance_type": types.corners[0]})
        completed = [trial for trial in driver.trials.values() if trial.status is TrialStatus.COMPLETED]
        alike = [trial for trial in completed if _computed(trial.spec) == _computed(spec)]
        if file.design is not None or alike:
            return alike[0] if alike else None
        expected = _expected(spec, workplace)
    except BadInput:
        return None
    seconds = expected.get(metrics.BILLABLE_SECONDS)
    if seconds is None:
        return None
    usd = cost_usd(workplace.launcher.price(spec), spec, seconds)
    values = expected if usd is None else expected | {metrics.COST_USD: usd}
    is_simulated = workplace.launcher.origin == "simulated"
    return Trial(
        number=-1,
        point={},
        given=spec.changed(),
        status=TrialStatus.COMPLETED,
        values={name: value for name, value in values.items() if name in file.objectives},
        cost_usd=usd,
        origin="simulated" if is_simulated else "estimated",
    )


def _computed(spec: JobSpec) -> object:
    """Equal for two jobs that train alike: a batch may be spelled in several ways."""
    return spec.plan(), spec.instance_type, spec.instance_count, spec.key_of(*COMPUTES)


def _expected(spec: JobSpec, workplace: Workplace) -> dict[str, Any]:
    """Metrics that the simulated launcher gives the job, or the seconds of its estimate; empty without any."""
    if workplace.launcher.origin == "simulated":
        calm = spec.replace(simulation={})  # without simulated failures
        document = JobDocument(job_name="paretune-default", spec=calm, plan=calm.plan())
        preview = workplace.launcher.preview(document, JobInputs())
        seconds = preview["billable_seconds"] if preview["ends"] == "Completed" else None
        metrics_of = preview["metrics"]
    else:
        inputs, price = known_inputs(spec, workplace), workplace.launcher.price(spec)
        estimate = workplace.forecast.of(spec, spec.plan(), inputs, price)
        seconds, metrics_of = None if estimate is None else estimate.time.seconds, {}
    if seconds is None:
        return {}
    return {**metrics_of, metrics.BILLABLE_SECONDS: float(seconds), metrics.JOB_SECONDS: float(seconds)}
