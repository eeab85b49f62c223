"""What to change in a job that does not fit in memory, so that it fits.

    remedy_for(item, estimator, built, facts) -> Remedy | None       the first change of `_changes` with which it fits

The global batch size stays the same: a smaller per-device batch is computed in more micro-batches.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.specification.catalog import instances
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH, BatchPlan
from paretune.specification.rules import launch_faults

if TYPE_CHECKING:
    from paretune.estimating.estimator import Estimate, Estimator

_CHECKPOINTS = "gradient_checkpointing"


def remedy_for(
    item: "Estimate", estimator: "Estimator", built: Architecture, facts: Mapping[str, float] | None = None
) -> "Estimate | None":
    """Return an estimate of the same training with the first change with which it fits; None if nothing helps.

    In this order: a smaller per-device batch, gradient checkpointing, lora, qlora, shards on several devices, and
    another GPU. `changes` has the changed parameters.
    """
    for changes in _changes(item.spec):
        with suppress(BadInput):
            spec = _changed(item.spec, changes)
            if launch_faults(spec) or (candidate := estimator.estimate(spec, built, item.price, facts=facts)) is None:
                continue
            most = estimator.largest_batch(candidate, built, facts)
            batch = _batch(candidate.plan, spec, most)
            if most and (fitting := estimator.estimate(_changed(spec, batch), built, item.price, facts=facts)):
                # The price is that of another type if the type changes.
                price = None if "instance_type" in changes else item.price
                return replace(fitting, price=price, changes={**changes, **batch})
    return None


def _changes(spec: JobSpec) -> Iterator[dict[str, Any]]:
    """Yield changes that save memory, those first that change the trained model least."""
    yield {}
    less = {} if spec.checkpoints_activations else {f"training_arguments.{_CHECKPOINTS}": True}
    if less:
        yield less
    if spec.fine_tuning == "full":
        yield {"fine_tuning": "lora", **less}
    if spec.fine_tuning in ("full", "lora"):
        yield {"fine_tuning": "qlora", **less}
    if spec.strategy == "ddp" and spec.has_instances and spec.processes * spec.instance_count > 1:
        yield {"strategy": "fsdp", **less}
        yield {"strategy": "fsdp", "fine_tuning": "qlora", **less}
    if not spec.has_instances:
        return
    own = spec.instance()
    types = [each for each in instances().values() if each.has_gpu and each.launcher == own.launcher]
    for each in sorted(types, key=lambda each: (each.accelerator_count * each.accelerator_memory_gib, each.vcpus)):
        if each.accelerator_memory_gib > own.accelerator_memory_gib and each.accelerator_count == own.accelerator_count:
            yield {"instance_type": each.instance_type, **less}


def _changed(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """Return the job with changed parameters; `training_arguments.NAME` adds to the other arguments."""
    arguments, values = dict(spec.training_arguments), dict[str, Any]()
    for name, value in changes.items():
        outer, _, inner = name.partition(".")
        if inner:
            arguments[inner] = value
        else:
            values[outer] = value
    return spec.replace(**values, **({"training_arguments": arguments} if arguments else {}))


def _batch(plan: BatchPlan, spec: JobSpec, most: int) -> dict[str, int]:
    """Return a per-device batch of at most `most` rows with the same rows per step; empty if the plan has one."""
    batch, steps = plan.per_device_train_batch_size, plan.gradient_accumulation_steps
    if batch <= most or not most:
        return {}
    fitting = next(size for size in range(most, 0, -1) if batch * steps % size == 0)
    values = {OF_THE_BATCH[0]: fitting}
    if spec.global_batch_size is None:
        values[OF_THE_BATCH[1]] = batch * steps // fitting
    return values
