"""A job, its cluster and its data in the numbers that the time model and the memory model need."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture
from paretune.estimating.hardware import Accelerator
from paretune.estimating.memory import CUDA_CONTEXT_GIB, MemorySetting
from paretune.estimating.timing import TimingFeatures
from paretune.estimating.workload import Workload, workload
from paretune.spec.batch_size import BatchPlan
from paretune.spec.catalog import Instance
from paretune.spec.job import JobSpec

_GBPS = 1e9 / 8  # bytes/s
_LONGEST_OVER_MEAN = 2.5  # tokens of the longest batches of a data set over its mean row, where it is not padded
# All-reduces worth of communication in a step: sharded weights are gathered for each pass as well.
_EXCHANGES = {"ddp": 1.0, "smddp": 1.0, "deepspeed": 1.0, "fsdp": 1.5, "smp": 1.5}
_OTHERS_SHARE = 0.85  # of a machine's memory, what a training may take


@dataclass(frozen=True, kw_only=True)
class JobFeatures:
    """One job as the models see it; `usable_gib` is the memory of one device."""

    time: TimingFeatures
    memory: MemorySetting
    usable_gib: float


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """One device of a job's cluster, and its share of the training's memory.

    Attributes:
        device: of one process; the processes of a machine without accelerators share it evenly.
        precision: its number format; that of `auto` is resolved where the device is an accelerator.
        half: whether it multiplies in bf16 or fp16.
        on_processor: whether it has no accelerator.
        instances: of the cluster; 1 locally, where they are processes of one machine.
        devices: of one instance.
        usable_gib: memory that a training may take.
        weight_sharers: devices that share the weights, 1 where none do; `state_sharers` share gradients and moments.
    """

    device: Accelerator
    precision: str
    half: bool
    on_processor: bool
    instances: int
    devices: int
    usable_gib: float
    weight_sharers: int
    state_sharers: int


def share_of(spec: JobSpec) -> DeviceShare:
    """One device of the job's cluster, which is like all the others."""
    instance = spec.instance() if spec.has_instances else None
    instances, devices = (1, spec.instance_count) if instance is None else (spec.instance_count, spec.processes)
    found = _this_gpu() if instance is None else hardware.accelerator_of(instance) or hardware.unlisted_gpu(instance)
    precision = hardware.resolved_precision(spec.precision, found)
    is_open = precision == "auto" and instance is None
    half = precision in {"bf16", "fp16"} or (is_open and hardware.multiplies_bf16(hardware.processor_flags()))
    device = found or _processor_share(instance, devices)
    sharing = spec.hybrid_shard_degree or devices * instances
    return DeviceShare(
        device=device,
        precision=precision,
        half=half,
        on_processor=found is None,
        instances=instances,
        devices=devices,
        usable_gib=device.usable_gib * _OTHERS_SHARE if found is None else device.usable_gib - CUDA_CONTEXT_GIB,
        weight_sharers=sharing if spec.strategy in {"fsdp", "smp"} else 1,
        state_sharers=sharing if spec.strategy in {"fsdp", "smp", "deepspeed"} else 1,
    )


def describe(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> JobFeatures | None:
    """The job in numbers; None when its arguments do not say how many rows it trains on, or its GPU is not listed.

    `facts` are what is known of the prepared data.
    """
    work = workload(spec, plan, built, facts)
    if work is None:
        return None
    share = share_of(spec)
    device = share.device
    if math.isnan(device.fp32_flops):
        return None
    time = TimingFeatures(
        chip=f"{_chip(spec)} {share.precision}",
        model=f"{_model(spec)}{'' if spec.compiler == 'none' else f' {spec.compiler}'}",
        cluster=f"{spec.instance_type} x {spec.instance_count} {spec.strategy}",
        is_local=not spec.has_instances,
        instances=share.instances,
        devices=share.devices,
        peak_flops=device.half_flops if share.half else device.fp32_flops,
        memory_bytes_per_s=device.memory_bytes_per_s,
        # Of a local cluster, which is one machine, it is not used.
        network_bytes_per_s=spec.instance().network_gbps * _GBPS if spec.has_instances else 1e9,
        link_bytes_per_s=device.link_bytes_per_s,
        rows=plan.per_device_train_batch_size,
        accumulation=plan.gradient_accumulation_steps,
        steps=work.steps,
        flops_per_row=work.flops_per_row,
        attention_share=work.attention_share,
        evaluated_flops=work.evaluations * work.evaluated_rows * work.forward_flops_per_row,
        trained_parameters=work.trained_parameters,
        parameters=built.parameters,
        exchanges=_EXCHANGES[spec.strategy],
    )
    return JobFeatures(time=time, memory=_memory(spec, plan, built, work, share), usable_gib=share.usable_gib)


def _memory(spec: JobSpec, plan: BatchPlan, built: Architecture, work: Workload, share: DeviceShare) -> MemorySetting:
    tokens = min(float(spec.max_seq_length), _LONGEST_OVER_MEAN * work.tokens)
    rows = plan.per_device_train_batch_size
    layers = built.layers if spec.fine_tuning != "head" else 1  # a frozen encoder keeps no activations
    return MemorySetting(
        model=_model(spec),
        on_processor=share.on_processor,
        parameters=built.parameters,
        trained_parameters=work.trained_parameters,
        half=share.half,
        weight_sharers=share.weight_sharers,
        state_sharers=share.state_sharers,
        units=rows * tokens * layers * built.hidden_size,
        logits=rows * tokens * built.vocabulary if spec.task == "causal-lm" else 0.0,
    )


def _model(spec: JobSpec) -> str:
    return f"{spec.model} {spec.max_seq_length} {spec.fine_tuning}"


def _processor_share(instance: Instance | None, processes: int) -> Accelerator:
    """What one process has of the processors of an instance, or of this machine."""
    whole = hardware.processor(instance.vcpus, instance.memory_gib) if instance else hardware.this_processor()
    shared = ("fp32_flops", "half_flops", "memory_bytes_per_s", "usable_gib")
    return replace(whole, **{name: getattr(whole, name) / processes for name in shared})


@cache
def _this_gpu() -> Accelerator | None:
    return hardware.local_gpu(hidden=os.environ.get("CUDA_VISIBLE_DEVICES"))


def _chip(spec: JobSpec) -> str:
    if not spec.has_instances:
        return "local"
    instance = spec.instance()
    return instance.accelerator if instance.accelerator_count else instance.family
