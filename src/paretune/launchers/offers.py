"""Decides about a job before it starts: the clusters that it may get, its limits, its worst case and what it runs.

A plan calls these functions once a job. Launchers get the results in an `Order`, and change nothing of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from paretune.core.errors import BudgetRefused
from paretune.core.tags import Attribution
from paretune.launchers.base import Launcher
from paretune.launchers.deadlines import output_of
from paretune.presentation.text import usd
from paretune.pricing import admit as admit_at
from paretune.pricing import price_region, unknown_price
from paretune.pricing import worst_case_usd as worst_case_at
from paretune.specification.container import Command, JobInputs
from paretune.specification.declaration import affecting
from paretune.specification.identity import JobIdentity
from paretune.specification.job import JobSpec
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
        training = spec.replace(**dict.fromkeys(affecting(JobSpec, "ownership"))).given()
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
        request=JobIdentity.of(spec).request,
        place=place,
        inputs=inputs,
    )


def worst_case_usd(
    spec: JobSpec, launcher: Launcher, environment: Mapping[str, str], more_s: float = 0.0
) -> float | None:
    """Return the most dollars that a job should cost on any of its instance types; None if a price is unknown.

    `more_s` are seconds that a job may be billed beyond what its launcher promises.
    """
    prices = [(each, launcher.price(each)) for each in spec.clusters()]
    known = [
        worst_case_at(each, price, _billed_after_s(each, launcher, environment) + more_s)
        for each, price in prices
        if price is not None
    ]
    return max(known) if len(known) == len(prices) else None


def admit(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str], more_s: float = 0.0) -> float | None:
    """Return a job's `worst_case_usd`, after checking it against max_cost_usd.

    Raises BudgetRefused if the worst case exceeds max_cost_usd, or if max_cost_usd is set and a price is unknown.
    """
    if spec.max_cost_usd is None:
        return worst_case_usd(spec, launcher, environment, more_s)
    priced = list[tuple[JobSpec, Price, float]]()
    for each in spec.clusters():
        if (price := launcher.price(each)) is None:
            consequence = f"max_cost_usd, {usd(spec.max_cost_usd)}, cannot be enforced"
            raise BudgetRefused(unknown_price(each.instance_type, region_of(each, launcher, environment), consequence))
        priced.append((each, price, _billed_after_s(each, launcher, environment) + more_s))
    # Check the most expensive type, so that a limit of the dollars in the refusal covers all types.
    admit_at(*max(priced, key=lambda one: worst_case_at(*one)))
    return worst_case_usd(spec, launcher, environment, more_s)


def _billed_after_s(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str]) -> float:
    """Return the most seconds billed beyond a job's maximum runtime, for stopping and uploading results."""
    uploads = launcher.uploads_are_billed and spec.has_instances
    return output_of(spec, environment).billed_after_limit_s if uploads else launcher.stop_s


def region_of(spec: JobSpec, launcher: Launcher, environment: Mapping[str, str]) -> str:
    """Return the region whose prices apply to a job; "" without regions. Raises BadInput if it is unknown."""
    return (
        price_region(spec.instance_type, spec.region, environment) if launcher.traits.is_simulated else launcher.region
    )
