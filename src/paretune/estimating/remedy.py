"""What to change in a job that does not fit in memory, so that it fits.

The global batch size stays the same: a smaller per-device batch is computed in more micro-batches.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.workload import setting_of
from paretune.specification.catalog import Instance, instances
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH, BatchPlan
from paretune.specification.price import Price
from paretune.specification.rules import launch_faults

_CHECKPOINTS = "gradient_checkpointing"
_INSTANCE_COUNTS = (2, 4, 8, 16, 32)
_PriceOf = Callable[[JobSpec], Price | None]


def with_remedy(
    item: Estimate,
    estimator: Estimator,
    built: Architecture,
    facts: Mapping[str, float] | None = None,
    price_of: _PriceOf = lambda spec: None,
) -> Estimate:
    """Return the estimate with its largest batch and, if it may not fit, with what fits instead."""
    find = partial(_remedy_for, item, estimator, built, facts, price_of)
    return replace(item, largest_batch=estimator.largest_batch(item.spec, built, facts), find_remedy=find)


def _remedy_for(
    item: Estimate, estimator: Estimator, built: Architecture, facts: Mapping[str, float] | None, price_of: _PriceOf
) -> Estimate | None:
    """Return an estimate of the same training with the first change with which it fits; None if nothing helps.

    In this order: a smaller per-device batch, gradient checkpointing, lora, qlora, shards on the GPUs of the cluster,
    shards on more GPUs, another GPU, and shards on several instances. `changes` has the changed parameters.
    """
    total = item.plan.global_batch_size
    for changes in _changes(item.spec, price_of):
        with suppress(BadInput):
            spec = _changed(item.spec, changes)
            if item.spec.leaves_batch_open and spec.plan().global_batch_size != total:
                changes[OF_THE_BATCH[2]] = total
                spec = _changed(item.spec, changes)
            if launch_faults(spec):
                continue
            plan = estimator.fitting_plan(spec, built, facts)
            fits = estimator.fits(setting_of(spec, plan, built, facts))
            if not item.spec.leaves_batch_open and (fits, plan.global_batch_size) != ("yes", total):
                with_steps = spec.global_batch_size is None or spec.gradient_accumulation_steps is not None
                most = estimator.largest_batch(spec, built, facts)
                changes |= _batch(spec.plan(), total, most, with_steps=with_steps)
                spec = _changed(item.spec, changes)
                plan = estimator.fitting_plan(spec, built, facts)
                fits = estimator.fits(setting_of(spec, plan, built, facts))
            if (fits, plan.global_batch_size) == ("yes", total):  # only now, because the time takes longest to estimate
                found = estimator.estimate(spec, built, price_of(spec), plan=plan, facts=facts)
                return None if found is None else replace(found, changes=changes)
    return None


def _changes(spec: JobSpec, price_of: _PriceOf) -> Iterator[dict[str, Any]]:
    """Yield changes that save memory, from the smallest to the largest."""
    yield {}
    less = {} if spec.checkpoints_activations else {f"training_arguments.{_CHECKPOINTS}": True}
    if less:
        yield dict(less)
    adapters = [kind for kind in ("lora", "qlora") if spec.fine_tuning in ("full", "lora") and spec.fine_tuning != kind]
    yield from ({"fine_tuning": kind, **less} for kind in adapters)
    if not spec.has_instances or spec.strategy not in ("ddp", "fsdp"):
        return
    shards = {} if spec.strategy == "fsdp" else {"strategy": "fsdp"}
    kinds: list[dict[str, Any]] = [{}, *({"fine_tuning": kind} for kind in adapters)]
    if shards and spec.processes * spec.instance_count > 1:
        yield from ({**shards, **kind, **less} for kind in kinds)
    own, larger = spec.instance(), _larger_types(spec, price_of)
    for kind in kinds:
        for each in larger:
            if each.accelerator == own.accelerator:
                yield {"instance_type": each.instance_type, **shards, **kind, **less}
        for each in larger:
            if each.accelerator != own.accelerator:
                several = shards if each.accelerator_count > 1 else {}
                yield {"instance_type": each.instance_type, **several, **kind, **less}
    for count in _INSTANCE_COUNTS:
        if count > spec.instance_count:
            yield {"instance_count": count, **shards, **less}


def _larger_types(spec: JobSpec, price_of: _PriceOf) -> list[Instance]:
    """Return the GPU types with more memory than that of the job, in all or per GPU, the least memory first.

    Types without a known price are left out if the job's own type has one.
    """
    own, has_price = spec.instance(), price_of(spec) is not None
    types = [
        each
        for each in instances().values()
        if each.has_gpu
        and each.launcher == own.launcher
        and _memory_gib(each) > _memory_gib(own)
        and (not has_price or price_of(spec.replace(instance_type=each.instance_type, fallback_instance_types=None)))
    ]
    return sorted(types, key=lambda each: (_memory_gib(each), each.vcpus))


def _memory_gib(instance: Instance) -> float:
    return instance.accelerator_count * instance.accelerator_memory_gib


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


def _batch(plan: BatchPlan, total: int, most: int, *, with_steps: bool) -> dict[str, int]:
    """Return a per-device batch of at most `most` rows, and no more than planned, with `total` rows per step; or {}."""
    share = total // plan.devices
    if share * plan.devices != total or not most:
        return {}
    size = next(size for size in range(min(most, plan.per_device_train_batch_size), 0, -1) if share % size == 0)
    values = {OF_THE_BATCH[0]: size}
    if with_steps:
        values[OF_THE_BATCH[1]] = share // size
    return values
