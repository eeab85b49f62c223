"""Turns an order back into the document that launchers still take."""

from typing import Any

from paretune.launchers.base import JobSetup, Launcher
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.plan import Plan

SETUPS: dict[str, Any] = {}


def document_of(plan: Plan, order: Order, launcher: Launcher) -> tuple[JobDocument, JobInputs, JobSetup | None]:
    """Return what the launcher's old form takes."""
    spec = JobSpec.read(dict(plan.card.given)).replace(budget=plan.limits.budget)
    if order.offer.instance_type != plan.offer.instance_type:
        spec = spec.with_its_batch() if plan.takes_batch else spec
        rest = tuple(offer.instance_type for offer in order.offers[1:])
        spec = spec.on_instance_type(order.offer.instance_type).replace(fallback_instance_types=rest or None)
    document = JobDocument(
        job_name=order.job_name,
        spec=spec,
        plan=order.batch,
        attempt=order.attempt,
        spent_seconds=order.spent_seconds,
        attribution=order.owner,
        run_id=order.run_id,
        request=order.request,
    )
    setup = SETUPS.get(plan.identity.computation)
    if order.attempt == 1:
        return document, order.inputs, setup
    if launcher.traits.files_travel:
        settings = dict(plan.place) or launcher.check(spec).recorded
        from dataclasses import replace

        return replace(document, spec=spec.replace(**settings)), JobInputs(), None
    return document, order.inputs, None
