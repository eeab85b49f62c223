"""Decides about a job before it starts: the clusters that it may get, its limits, its worst case and what it runs.

A plan calls these functions once a job. Launchers get the results in an `Order`, and change nothing of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from paretune.core.errors import BudgetRefused
from paretune.core.tags import Attribution
from paretune.launchers.base import Launcher
from paretune.launchers.deadlines import output_of
from paretune.presentation.text import duration, limit_usd, usd
from paretune.pricing import ML_M5_LARGE, ROUNDING_USD, PriceList, plan_price, price_region, unknown_price
from paretune.specification.container import Command, JobInputs
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.order import Limits, Offer, Order, Payload
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price


def offers_of(
    spec: JobSpec,
    place: Mapping[str, Any],
    price_of: Callable[[JobSpec], Price | None] = lambda _: None,
    *,
    batch: BatchPlan | None = None,
    command: Command | None = None,
) -> tuple[Offer, ...]:
    """Return the clusters that a job may get, best first: its own instance type and its fallbacks.

    Args:
        spec: the job.
        place: what the launcher has decided; `requests`, `images` and `volumes`, each by instance type, are used here.
        price_of: returns the price of a job's instances.
        batch: the batch on the first cluster, by default the one that the parameters imply. On other clusters, no
            device gets more rows at once.
        command: the command of a user's own training. If it gets the batch of the plan, other clusters keep the global
            batch size.
    """
    first = spec.plan() if batch is None else batch
    whole = spec.with_its_batch() if command is not None and command.takes_batch else spec
    types, base, offers = spec.instance_types(), payload_of(spec, command).training, list[Offer]()
    numbers: Mapping[str, int] = place.get("requests", {name: number for number, name in enumerate(types)})
    for number, name in enumerate(types):
        cluster = spec
        if number:
            cluster = whole.on_instance_type(name).replace(fallback_instance_types=types[number + 1 :] or None)
        plan = first if numbers[name] == numbers[types[0]] else cluster.plan()
        while first != spec.plan() and plan.per_device_train_batch_size > first.per_device_train_batch_size:
            plan = plan.with_less_memory() or plan
        given, image = payload_of(cluster, command).training, place.get("images", {}).get(name, {})
        offers.append(
            Offer(
                instance_type=name,
                instance_count=cluster.instance_count,
                processes=1 if cluster.project is not None else cluster.processes_here,
                batch=plan,
                price=price_of(cluster),
                request=numbers[name],
                computation=cluster.spec_hash(),
                training={key: given.get(key) for key in {**base, **given} if base.get(key) != given.get(key)},
                image=image.get("image", ""),
                packages=tuple(image.get("packages", ())),
                volume_gib=place.get("volumes", {}).get(name, 0),
            )
        )
    return tuple(offers)


def payload_of(spec: JobSpec, command: Command | None) -> Payload:
    """Return what a job runs. `command` is None for paretune's own training.

    The training does not get the parameters of the user's account, network and budget. A user's own training has a
    command, and gets no parameter but its environment variables; if it is only simulated, the simulation gets all.
    """
    command = None if spec.is_simulated else command
    training: dict[str, Any] = {"environment": dict(spec.environment)}
    if command is None:
        of_the_owner = parameters_affecting("ownership")
        training = {name: value for name, value in spec.given().items() if name not in of_the_owner}
    return Payload(
        kind=spec.kind,
        training=training,
        strategy=spec.strategy,
        command=command,
        environment=dict(spec.environment),
        launcher=spec.runs_on.as_json(),
        instances=tuple(asdict(spec.instance(name)) for name in spec.instance_types()) if spec.has_instances else (),
    )


def limits_of(
    spec: JobSpec, launcher: Launcher | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Limits:
    """Return the limits of a job; without a launcher, only those that the parameters state.

    `environment` are the variables of this process, such as those of the Hugging Face Hub.
    """
    stated = Limits(
        max_seconds=spec.max_runtime_minutes * 60,
        kept_s=spec.sagemaker.keep_alive_minutes * 60,
        budget=spec.budget,
        is_spot=spec.spot,
    )
    if launcher is None:
        return stated
    return replace(
        stated,
        deadline_s=output_of(spec, environment).deadline_s if launcher.has_deadline else None,
        billed_after_s=max(_billed_after_s(each, launcher, environment) for each in spec.clusters()),
        worst_usd=worst_case_usd(spec, launcher, environment),
    )


def order_of(
    spec: JobSpec,
    *,
    job_name: str,
    run_id: str = "",
    limits: Limits | None = None,
    place: Mapping[str, Any] | None = None,
    inputs: JobInputs | None = None,
    price_of: Callable[[JobSpec], Price | None] = lambda _: None,
    batch: BatchPlan | None = None,
    owner: Attribution | None = None,
) -> Order:
    """Return the order of the first attempt of a job.

    `limits` is what `limits_of` returned, by default only what the parameters say. `place` is what `Launcher.place` and
    `Launcher.fit` decided. `price_of` and `batch` are those of `offers_of`.
    """
    place, inputs = place or {}, inputs or JobInputs()
    return Order(
        job_name=job_name,
        run_id=run_id,
        offers=offers_of(spec, place, price_of, batch=batch, command=inputs.command),
        limits=limits or limits_of(spec),
        payload=payload_of(spec, inputs.command),
        owner=owner or Attribution(),
        tags=dict(spec.tags),
        request=spec.identity.request,
        place=place,
        inputs=inputs,
    )


def worst_case_usd(
    spec: JobSpec, launcher: Launcher, environment: Mapping[str, str], more_s: float = 0.0
) -> float | None:
    """Return the most dollars that a job should cost on any of its instance types; None if a price is unknown.

    They cover the maximum runtime, the seconds to stop and upload, `more_s` seconds that a job may be billed beyond
    what its launcher promises, and the time for which the job's instances are kept as a warm pool.
    """
    bills = [bill.usd for bill in _bills(spec, launcher, environment, more_s)]
    known = [dollars for dollars in bills if dollars is not None]
    return max(known) if len(known) == len(bills) else None


def admit(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str], more_s: float = 0.0) -> float | None:
    """Return a job's `worst_case_usd`, after checking it against max_cost_usd.

    Raises BudgetRefused if the worst case exceeds max_cost_usd, or if max_cost_usd is set and a price is unknown.
    """
    worst_usd, limit = worst_case_usd(spec, launcher, environment, more_s), spec.max_cost_usd
    if limit is None or (worst_usd is not None and worst_usd <= limit + ROUNDING_USD):
        return worst_usd
    bills = _bills(spec, launcher, environment, more_s)
    if unpriced := next((bill.job for bill in bills if bill.price is None), None):
        consequence = f"max_cost_usd, {usd(limit)}, cannot be enforced"
        region = region_of(unpriced, launcher, environment)
        raise BudgetRefused(unknown_price(unpriced.instance_type, region, consequence))
    dearest = max(bills, key=lambda bill: bill.usd or 0.0)  # a limit of its dollars covers all types
    assert dearest.price is not None
    raise BudgetRefused(
        f"worst case {limit_usd(dearest.usd or 0.0)} ({duration(dearest.longest_s)} and {duration(dearest.after_s)} to "
        f"stop and upload, x {dearest.job.instance_count} x {dearest.price.stated}) must be at most max_cost_usd, "
        f"{usd(limit)}: lower max_runtime_minutes or raise max_cost_usd"
    )


class _Bill(NamedTuple):
    """The most that a job should be billed on one of its instance types."""

    job: JobSpec
    price: Price | None
    longest_s: float  # maximum runtime, and the time of a warm pool, which is billed like a job
    after_s: float  # billed beyond the maximum runtime

    @property
    def usd(self) -> float | None:
        """The dollars, or None if the price is unknown."""
        return (
            None if self.price is None else self.price.cost_usd(self.longest_s + self.after_s, self.job.instance_count)
        )


def _bills(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str], more_s: float) -> list[_Bill]:
    longest_s = 60 * (spec.max_runtime_minutes + spec.sagemaker.keep_alive_minutes)
    return [
        _Bill(each, launcher.price(each), longest_s, _billed_after_s(each, launcher, environment) + more_s)
        for each in spec.clusters()
    ]


def usual_price(job: JobSpec, prices: PriceList, environment: Mapping[str, str]) -> Price | None:
    """Return the price of a job's instances, or None if it is unknown. Local jobs get a notional price.

    AWS is not called. Raises BadInput if the region is invalid.
    """
    if not job.has_instances:
        return ML_M5_LARGE
    region = price_region(job.instance_type, job.region, environment)
    return plan_price(job.sagemaker, job.instance_type, region) or prices.price(job.instance_type, region)


def _billed_after_s(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str]) -> float:
    """Return the most seconds billed beyond a job's maximum runtime, for stopping and uploading results."""
    uploads = launcher.uploads_are_billed and spec.has_instances
    return output_of(spec, environment).billed_after_limit_s if uploads else launcher.stop_s


def region_of(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str]) -> str:
    """Return the region whose prices apply to a job; "" without regions. Raises BadInput if it is unknown."""
    return (
        price_region(spec.instance_type, spec.region, environment) if launcher.traits.is_simulated else launcher.region
    )
