"""Temporary."""

from dataclasses import asdict
from typing import Literal

from paretune.launchers.base import Launcher
from paretune.launchers.deadlines import deadline_s
from paretune.specification.container import Command
from paretune.specification.declaration import affecting
from paretune.specification.job import JobSpec
from paretune.specification.order import Limits, Offer, Payload
from paretune.specification.parallelism import BatchPlan


def offers_of(spec: JobSpec, launcher: Launcher, batch: BatchPlan, *, keeps_batch: bool = False) -> tuple[Offer, ...]:
    """Return offers."""
    whole = spec.with_its_batch() if keeps_batch else spec
    offers, group, rest = list[Offer](), 0, list(spec.clusters())
    rest = [spec, *(whole.on_instance_type(name) for name in spec.instance_types()[1:])]
    while rest:
        types = launcher.types_of_request(
            rest[0].replace(fallback_instance_types=tuple(each.instance_type for each in rest[1:]) or None)
        )
        for each in rest[: len(types)]:
            offers.append(
                Offer(
                    instance_type=each.instance_type,
                    instance_count=each.instance_count,
                    processes=each.processes_here,
                    batch=batch if each is spec else each.plan(),
                    price=launcher.price(each),
                    request=group,
                )
            )
        rest, group = rest[len(types) :], group + 1
    return tuple(offers)


def limits_of(spec: JobSpec, launcher: Launcher) -> Limits:
    """Return limits."""
    return Limits(
        max_seconds=60 * spec.max_runtime_minutes,
        deadline_s=deadline_s(spec, getattr(launcher, "_environment", {})) if launcher.traits.files_travel else None,
        billed_after_s=launcher.billed_after_limit_s(spec),
        kept_s=60 * spec.sagemaker.keep_alive_minutes,
        worst_usd=launcher.worst_case_usd(spec),
        budget=spec.budget,
        is_spot=spec.spot,
    )


def payload_of(spec: JobSpec, command: Command | None) -> Payload:
    """Return payload."""
    inner = spec.replace(**dict.fromkeys(affecting(JobSpec, "ownership")))
    kind: Literal["ours", "script", "project"]
    kind = "project" if spec.project is not None else "script" if spec.entry_script is not None else "ours"
    return Payload(
        kind=kind,
        training=inner.given(),
        strategy=spec.strategy,
        command=command,
        environment=spec.environment,
        launcher=spec.runs_on.as_json(),
        instances=tuple(asdict(spec.instance(name)) for name in spec.instance_types()) if spec.has_instances else (),
    )
