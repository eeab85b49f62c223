"""A job, its cluster and its data as the numbers that the time model and the memory model need.

Which batches fit into memory is also concluded from jobs that did not fit (`Footprint`). Only jobs with equal values of
every parameter that affects memory are compared; one with other `training_arguments` (such as gradient_checkpointing)
shows nothing. Otherwise more rows, longer rows and fp32 instead of bf16 need more, and less memory is harder. Memory is
what CUDA reports of a device (hardware.py), not its data sheet: two types with "24 GB" differ.
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture
from paretune.estimating.hardware import Accelerator
from paretune.estimating.memory import CUDA_CONTEXT_GIB, MemorySetting
from paretune.estimating.phases import kind_of
from paretune.estimating.timing import TimingFeatures, exchange_of
from paretune.estimating.workload import (
    Workload,
    evaluation_batch,
    frozen_weight_bytes,
    quantised_weights,
    recomputes,
    workload,
)
from paretune.specification.catalog import Instance
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM
from paretune.specification.parallelism import DEEPSPEED, DEVICE_MAP, OF_STRATEGY, SHARDED, BatchPlan
from paretune.specification.parameters import spell

_GBPS = 1e9 / 8  # bytes/s
_EFA_GBPS = 100.0  # from this network bandwidth on instances talk past the kernel
_LONGEST_OVER_MEAN = 2.5  # tokens of the longest batches of a data set over its mean row, where it is not padded
# Bytes of activations that are written and read for each token, layer and unit of width: in half precision, under
# autocast, which casts weights and keeps norms and softmax in fp32, and in fp32.
_MOVED_BYTES = {"half": 200.0, "autocast": 300.0, "fp32": 300.0}
# For each weight, in a micro-batch: cast, read by two products, and its gradient made and added. Frozen ones are read
# in each pass, those of 4 bits unpacked before: 4-bit kernels reach a fifth of the bandwidth for half a byte read, and
# two written and read.
_READ_BYTES, _READ_BYTES_UNPACKED = 20.0, 22.0
# Kernels of a layer, forward and backward, in one precision and under autocast. Counted below autograd in BERT base and
# a Llama of 16 layers (torch 2.13), dropout as one.
_KERNELS = {"encoder": (51, 86), "decoder": (113, 151)}
# AdamW in fp32, in few fused kernels: gradient, weight and two moments read, the last three written; rounded. In a loop
# over tensors every intermediate is written and read, in ten kernels for each of the 15 tensors of a layer.
_UPDATE_BYTES, _UPDATE_KERNELS = 24.0, 41
_LOOP_BYTES, _LOOP_KERNELS = 84.0, 150
_KEPT_OF_A_LAYER = 2 / 34  # its input, of all activations of a layer (Korthikanti et al., arXiv 2205.05198, table 2)
# Parameters that divide devices, with their defaults; what is computed again is counted as operations.
_DIVISIONS = {name: JobSpec.model_fields[name].default for name in OF_STRATEGY if name != "strategy"}
_TOLERANCE = 1.001  # for sizes that were summed in different orders
_USABLE_SHARE = 0.85  # of a machine's memory that a training may take


@dataclass(frozen=True, kw_only=True)
class JobFeatures:
    """Features of one job."""

    time: TimingFeatures
    memory: MemorySetting
    tokens: float  # trained on in all


class DeviceShare:
    """One device of a job's cluster, and its share of the training's memory; all devices are alike."""

    def __init__(self, spec: JobSpec) -> None:
        instance = spec.instance() if spec.has_instances else None
        gpu = hardware.accelerator_of(instance) if instance else _this_gpu()
        # Locally the devices are processes of one machine; without a GPU they share its processors evenly.
        self.instances, self.devices = (spec.instance_count, spec.processes) if instance else (1, spec.instance_count)
        self.device = gpu or _processor_share(instance, self.devices)
        self.on_processor = gpu is None
        self.precision = hardware.resolved_precision(spec.precision, gpu)  # `auto` stays on a processor
        is_open = self.precision == "auto" and instance is None
        self.half = self.precision in {"bf16", "fp16"} or (
            is_open and hardware.multiplies_bf16(hardware.processor_flags())
        )
        gib = self.device.usable_gib
        self.usable_gib = gib - CUDA_CONTEXT_GIB if gpu else gib * _USABLE_SHARE
        self.degrees = spec.degrees
        # Devices that share the weights, and those that share gradients and moments; 1 if each holds all.
        self.weight_sharers = self.degrees.sharers if spec.strategy in SHARDED else 1
        self.state_sharers = self.degrees.sharers if spec.strategy in {*SHARDED, *DEEPSPEED} else 1


def describe(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> JobFeatures | None:
    """The features of a job with these facts of its data, or None if the number of training rows is unknown."""
    work = workload(spec, plan, built, facts)
    if work is None:
        return None
    share = DeviceShare(spec)
    return JobFeatures(
        time=_timing(spec, plan, built, work, share),
        memory=_memory(spec, plan, built, work, share),
        tokens=work.steps * plan.global_batch_size * work.tokens,
    )


def share_in_layers(tensor: int) -> float:
    """The share of the activations inside layers that one device of a tensor group keeps."""
    return (10 + 24 / tensor) / 34  # Korthikanti et al., arXiv 2205.05198, section 4.2.1


def _memory(spec: JobSpec, plan: BatchPlan, built: Architecture, work: Workload, share: DeviceShare) -> MemorySetting:
    tokens = min(float(spec.max_seq_length), _LONGEST_OVER_MEAN * work.tokens)
    computed_in = "fp32" if not share.half else "fp16" if share.precision == "fp16" else "bf16"
    rows, parts = plan.per_device_train_batch_size, share.degrees.tensor * share.degrees.pipeline
    layers = float(built.layers) if spec.fine_tuning != "head" else 1.0  # a frozen encoder keeps no activations
    if recomputes(spec):
        layers = 1 + (0.0 if spec.activation_offloading and not share.on_processor else layers * _KEPT_OF_A_LAYER)
    in_layers = share_in_layers(share.degrees.tensor)
    evaluated = 0 if spec.probe_steps else min(evaluation_batch(spec, plan, built.vocabulary), work.evaluated_rows)
    return MemorySetting(
        model=_model(spec),
        on_processor=share.on_processor,
        parameters=built.parameters / parts,
        trained_parameters=work.trained_parameters / parts,
        frozen_bytes=frozen_weight_bytes(spec, built, computed_in),
        half=share.half,
        offloads_weights=spec.cpu_offload and not share.on_processor,
        weight_sharers=share.weight_sharers,
        state_sharers=share.state_sharers,
        units=rows * tokens * layers * built.hidden_size * in_layers / share.degrees.pipeline,
        logits=max(rows, evaluated) * tokens * built.vocabulary if spec.task == CAUSAL_LM else 0.0,
        usable_gib=share.usable_gib,
    )


def _model(spec: JobSpec) -> str:
    return f"{spec.model} {spec.max_seq_length} {spec.fine_tuning}"


def _processor_share(instance: Instance | None, processes: int) -> Accelerator:
    whole = hardware.processor(instance.vcpus, instance.memory_gib) if instance else hardware.this_processor()
    shared = ("fp32_flops", "half_flops", "memory_bytes_per_s", "usable_gib")
    return replace(whole, **{name: getattr(whole, name) / processes for name in shared})


@cache
def _this_gpu() -> Accelerator | None:
    return hardware.local_gpu(hidden=os.environ.get("CUDA_VISIBLE_DEVICES"))


def _timing(spec: JobSpec, plan: BatchPlan, built: Architecture, work: Workload, share: DeviceShare) -> TimingFeatures:
    device, degrees, rows = share.device, spec.degrees, plan.per_device_train_batch_size
    row_devices = degrees.tensor * degrees.pipeline  # devices that share a row, and of whose weights each has a part
    # Micro-batches that a per-device batch is split into; with a device map one device works at a time.
    parts = spec.micro_batches or (1 if spec.strategy == DEVICE_MAP else degrees.pipeline)
    fast = "nvlink" if device.link_bytes_per_s > hardware.FASTEST_PCIE else "pcie"
    instance, chip = (spec.instance() if spec.has_instances else None), device.name or "local"
    # A small instance uses up its burst within minutes. A local cluster, which is one machine, has no network.
    network_gbps = 8.0 if instance is None else instance.sustained_gbps or instance.network_gbps
    # SageMaker's own library sends to all nodes at a time, others in a ring, in few flows.
    by_tcp = network_gbps < _EFA_GBPS and spec.strategy != "smddp"
    if instance is not None:
        chip = instance.accelerator if instance.accelerator_count else instance.family
    # A constant is shared within one division of the devices only.
    values = {name: getattr(spec, name) for name, usual in _DIVISIONS.items() if getattr(spec, name) != usual}
    divided = "".join(f" {name}={spell(value)}" for name, value in values.items())
    # Autocast casts weights that are trained and not sharded; on a processor that shows in no time.
    casts = share.half and spec.fine_tuning == "full" and spec.strategy not in SHARDED and not share.on_processor
    per_layer = _KERNELS["decoder" if spec.task == CAUSAL_LM else "encoder"][casts]
    # Adapters have as many again: two products, a dropout, casts, a factor and a sum beside each linear layer.
    kernels = built.layers * per_layer * work.passes / 3 * (2 if work.adapted_widths else 1)
    optimiser = str(spec.training_arguments.get("optim", "adamw_torch_fused"))
    is_loop = optimiser == "adamw_torch"
    updated = work.trained_parameters / (row_devices * share.state_sharers)
    # Sharded weights are gathered in half precision, and all but the loss is computed in it.
    kind = "fp32" if not share.half else "half" if spec.strategy in SHARDED else "autocast"
    units = _MOVED_BYTES[kind] * built.layers * built.hidden_size * work.passes / 3
    moved = work.tokens * units * share_in_layers(degrees.tensor) / degrees.pipeline
    passes = work.passes - 1 if work.adapted_widths else work.passes  # no product makes gradients of frozen weights
    packed = quantised_weights(spec, built)
    each = _READ_BYTES if spec.fine_tuning == "full" else passes * (2.0 if share.half else 4.0)
    read = (each * (built.matrices - packed) + passes * _READ_BYTES_UNPACKED * packed) / row_devices
    return TimingFeatures(
        chip=f"{chip} {share.precision}",
        unlisted_gpu="" if device.is_listed else device.name,
        model=f"{_model(spec)}{'' if not spec.is_compiled else ' compiled'}",
        cluster=f"{spec.instance_type} x {spec.instance_count} {spec.strategy}{divided}",
        kind="any" if instance is None else kind_of(instance),
        is_local=not spec.has_instances,
        is_compiled=spec.is_compiled,
        instances=share.instances,
        devices=share.devices,
        peak_flops=device.half_flops * device.sustained if share.half else device.fp32_flops,
        memory_bytes_per_s=device.memory_bytes_per_s,
        network_bytes_per_s=network_gbps * _GBPS,
        flow_bytes_per_s=instance.flow_gbps * _GBPS if instance and by_tcp else 0.0,
        link_bytes_per_s=device.link_bytes_per_s,
        link="gloo" if share.on_processor else fast,
        rows=rows,
        accumulation=plan.gradient_accumulation_steps,
        steps=work.steps,
        flops_per_row=work.flops_per_row / row_devices,
        attention_share=work.attention_share,
        moved_per_row=moved,
        read=0.0 if share.on_processor else read,
        kernels=kernels / degrees.pipeline * parts * (0.5 if spec.is_compiled else 1.0),
        host="" if share.on_processor else instance.family if instance else "local",
        bubble=(degrees.pipeline - 1) / parts,
        evaluated_flops=work.evaluations * work.evaluated_rows * work.forward_flops_per_row,
        updated=(_LOOP_BYTES if is_loop else _UPDATE_BYTES) * updated,
        update_kernels=_LOOP_KERNELS * built.layers if is_loop else _UPDATE_KERNELS,
        optimiser=optimiser,
        parameters=built.parameters,
        exchange=exchange_of(
            spec.strategy,
            degrees,
            half=share.half,
            trained=work.trained_parameters,
            parameters=built.parameters,
            layers=built.layers,
            activations=rows * work.tokens * built.hidden_size,
            recomputes=recomputes(spec),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory that one device needs in a job, and memory that it has."""

    alike: tuple[object, ...]  # all further settings that must be equal
    rows: int  # per-device batch
    dataset: str
    max_seq_length: int
    units_per_row: float  # what the activations of a row are proportional to; NaN, which equals nothing, if unknown
    half: bool  # whether the device multiplies in bf16 or fp16
    sharers: tuple[int, int]  # devices that share the weights, and gradients and moments; 1 if each holds all
    usable_gib: float  # that a training may take of the device; processes on a machine without any share it evenly
    run_id: str = field(default="", compare=False)  # the run that has measured it; empty for a question

    @classmethod
    def of(cls, spec: JobSpec, plan: BatchPlan, memory: MemorySetting | None = None) -> "Footprint":
        """The footprint of one job; `memory` is given if its model and its data are known."""
        share = DeviceShare(spec)
        return cls(
            alike=(share.on_processor, *spec.key_of("memory", but="max_seq_length")),
            rows=plan.per_device_train_batch_size,
            dataset=spec.dataset,
            max_seq_length=spec.max_seq_length,
            units_per_row=math.nan if memory is None else memory.units / plan.per_device_train_batch_size,
            half=share.half,
            sharers=(share.weight_sharers, share.state_sharers),
            usable_gib=share.usable_gib,
        )

    def why_full(self, full: Iterable["Footprint"]) -> "Footprint | None":
        """One of these jobs, which have all run out of memory, that needed no more and had no less, or None."""
        return next((other for other in full if self._is_no_easier_than(other)), None)

    def _is_no_easier_than(self, other: "Footprint") -> bool:
        return (
            self.alike == other.alike
            and self.rows >= other.rows
            and self.max_seq_length >= other.max_seq_length
            and (self.dataset == other.dataset or self.units_per_row * _TOLERANCE >= other.units_per_row)
            and self.half <= other.half
            and all(own <= theirs for own, theirs in zip(self.sharers, other.sharers, strict=True))
            and self.usable_gib <= other.usable_gib * _TOLERANCE
        )
