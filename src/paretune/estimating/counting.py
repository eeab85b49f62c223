"""The work of one device of a job: the FLOP, bytes, kernels and exchanges of a step, and the rates of the device.

The rates of arithmetic and memory are the peaks in the data sheet, times the share of each that chips usually reach.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paretune.estimating.formats import BYTES, Formats
from paretune.estimating.hardware import DeviceShare
from paretune.estimating.phases import BOOT_SECONDS, kind_of, usual
from paretune.estimating.trainer import (
    adapter_bytes,
    blocking_bytes,
    launch_factor,
    left_behind,
    optimizer_of,
    score_bytes,
)
from paretune.estimating.workload import Setting, gathered_bytes, share_in_layers
from paretune.specification.declaration import spell
from paretune.specification.metrics import CAUSAL_LM
from paretune.specification.parallelism import DEVICE_MAP, DIVISIONS, SHARDED, pipeline_parts

TCP = "tcp"
"""Name of the fitted constant for networks without EFA."""
# Shares of peak arithmetic that matrix products reach: on a GPU in fp32; and on a GPU in half precision or on a CPU.
_MATMUL_FP32, _MATMUL = 0.7, 0.5
_STREAM = 0.75  # share of its memory bandwidth that a GPU reaches between the matrix products
_ATTENTION = 1.3  # time of a FLOP in attention, with softmax, masks and memory, relative to one in a linear layer
_GROWTH = 0.2  # growth of startup time with log(instances): a job starts when its slowest instance is ready
_STARTUP_LOCAL_S = 9.0  # seconds of a local process before the first step: imports, model, warm-up
_COMPILING_S = 50.0  # seconds per process; a guess between the time of a first compilation and of later ones
_GBPS = 1e9 / 8  # bytes/s
_EFA_GBPS = 100.0  # instances with at least this bandwidth use EFA, which bypasses the operating system's kernel
# Bytes of activations that are written and read for each token, layer and unit of width. The first figure is for half
# precision, the second for fp32 or autocast, which casts weights and keeps norms and softmax in fp32.
_MOVED_BYTES, _MOVED_BYTES_CAST = 200.0, 300.0
_FUSED = 0.5  # share of these bytes, and of the kernels, that remains after compilation
# Bytes of memory traffic per weight and micro-batch: to cast the weight, to read it for two products, and to write and
# accumulate its gradient. bf16 weights need no cast. Frozen weights are only read, once per pass. 4-bit weights are
# first unpacked, which reads half a byte, and writes and reads two bytes, at a fifth of the bandwidth.
_READ_BYTES, _READ_BYTES_BF16, _READ_BYTES_UNPACKED = 20.0, 10.0, 22.0
# Kernels per layer, forward and backward together: (without autocast, with autocast). They were counted at the
# dispatcher, below autograd, in BERT base and in transformers' Llama with 16 layers (torch 2.13); dropout counts as one
# kernel. paretune's own Llama launches only 69 per layer without autocast, but most jobs that the constants were fitted
# to ran transformers' version.
_KERNELS = {"encoder": (51, 86), "decoder": (113, 151)}
# Bytes per weight of a fused AdamW step in fp32: 24, to read and write the weight and two moments. Reading the gradient
# is not counted, which would make 28; the fitted factor `update` (timing.py) covers it. fp32 masters of bf16 weights
# add 6 bytes to convert the gradient, and 6 to round the result into the model.
_UPDATE_BYTES, _MASTER_BYTES = 24.0, 12.0
LONG_ROWS = 16_000  # tokens of a row from which on a language model is a kind of its own, without any source


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one device, its rates, and the names of the fitted constants that apply to the job.

    Each number describes one job. `timing` also stacks the numbers of several jobs into arrays with one entry per job.
    """

    constants: Mapping[str, str]  # name of the constant by role; empty if the role does not apply to the job
    cluster: str  # instance type, count, and how the devices share the model
    kind: str  # kind of job by which intervals are calibrated (timing.CALIBRATION); empty if no rates judge it
    is_local: bool  # whether the job runs as processes on this machine rather than on instances
    is_ahead: bool  # whether the host launches kernels ahead, while earlier ones still run
    instances: int
    devices: int  # devices per instance that train
    steps: float
    tokens: float  # tokens of the whole job
    accumulation: int  # micro-batches per step
    flops: float  # FLOP per micro-batch; those of attention have a higher weight, because they take longer
    moved: float  # bytes that pass through the memory per micro-batch
    kernels: float  # kernels launched per micro-batch, one after the other
    updated: float  # bytes that the optimizer moves per step
    update_kernels: float  # kernels that the optimizer launches per step
    bubble: float  # pipeline: time that a device waits for other stages, divided by the time that it works
    micro_link: float  # bytes per micro-batch through a link between devices of an instance; overlaps with arithmetic
    micro_network: float  # bytes per micro-batch through an instance's network connection; overlaps with arithmetic
    step_link: float  # like micro_link, but per step
    step_network: float  # like micro_network, but per step
    blocking_link: float  # like micro_link, but arithmetic has to wait for these bytes
    blocking_network: float  # like micro_network, but arithmetic has to wait for these bytes
    evaluated_flops: float  # FLOP of all evaluations together, on one device
    saved: float  # bytes that are uploaded: the model, and checkpoints if a program leaves them in its folder
    packed: float  # bytes that SageMaker first packs into model.tar.gz
    before: float  # usual seconds before the first step
    after: float  # usual seconds after the last step, without uploading the model
    arithmetic: float  # FLOP/s that matrix products reach, derived from the data sheet
    memory: float  # bytes/s of memory traffic
    link: float  # bytes/s to a neighboring device in the instance
    network: float  # bytes/s of an instance's network connection
    flow: float  # highest bytes/s of one exchange: the limit of a TCP flow, or the whole connection with EFA


def describe(setting: Setting, *, stack: str | None = None) -> Work:
    """Count the work of a job. `stack` names the code that trains; by default, it is the job's program."""
    spec, plan, built, work = setting.spec, setting.plan, setting.built, setting.work
    share, degrees, rows = setting.share, spec.degrees, plan.per_device_train_batch_size
    device, instance, is_local = share.device, share.instance, not spec.has_instances
    is_sharded, is_trained = spec.strategy in SHARDED, spec.fine_tuning == "full"
    # Number of devices that process a row together, each with a part of the weights.
    row_devices = degrees.tensor * degrees.pipeline
    # With a device map, only one device works at a time, so a batch is not split into parts.
    parts = 1 if spec.strategy == DEVICE_MAP else pipeline_parts(rows, degrees.pipeline, spec.max_seq_length)

    attention_factor = 1 + (_ATTENTION - 1) * work.attention_share
    evaluated = (work.evaluations * work.evaluated_rows + work.tested_rows) * work.forward_flops_per_row
    formats = setting.formats
    rounds, is_half = formats.has_masters and not share.on_processor, formats.is_half
    fused = _FUSED if spec.is_compiled else 1.0
    # With bf16 weights (including weights gathered from shards), everything except the loss runs in half precision.
    units = rows * work.tokens * built.layers * built.hidden_size * work.passes / 3
    moved = units * share_in_layers(degrees.tensor) / degrees.pipeline
    moved *= fused * (_MOVED_BYTES if is_half and not (formats.autocast or share.on_processor) else _MOVED_BYTES_CAST)
    passes = work.passes - 1 if work.adapted_widths else work.passes  # frozen weights get no gradients
    packed = work.packed_weights
    of_trained = _READ_BYTES_BF16 if formats.weights == "bf16" else _READ_BYTES
    each = of_trained if is_trained else passes * (2.0 if is_half else 4.0)
    read = (each * (built.matrices - packed) + passes * _READ_BYTES_UNPACKED * packed) / row_devices

    # Autocast casts weights that are trained and not sharded. On a CPU, these casts take no measurable time.
    casts = formats.autocast and is_trained and not (is_sharded or share.on_processor)
    per_layer = _KERNELS["decoder" if spec.task == CAUSAL_LM else "encoder"][casts] * fused
    # Adapters double the number of kernels: two products, a dropout, casts, a factor and a sum per linear layer.
    kernels = built.layers * per_layer * work.passes / 3 * (2 if work.adapted_widths else 1)
    updated = _UPDATE_BYTES * BYTES[formats.updated] / 4 + (_MASTER_BYTES if rounds else 0.0)
    optimizer = optimizer_of(setting)
    program, left = spec.trained_by, left_behind(setting)
    # What paretune launches is uploaded unpacked (CompressionType NONE). SDKs and consoles let SageMaker pack it.
    uploaded = 0.0 if is_local else left.model + left.checkpoints
    is_packed = spec.is_only_described

    # Small instances use up their network burst within minutes, so the sustained rate is used. SMDDP sends to all nodes
    # at once, whereas other libraries use a ring with few flows. Local jobs have no network.
    gbps = 8.0 if instance is None else instance.sustained_gbps or instance.network_gbps
    has_flows = gbps < _EFA_GBPS or share.on_processor  # CPUs use gloo, which supports only TCP
    by_tcp = instance is not None and has_flows and spec.strategy != "smddp"
    kind = "" if instance is None else kind_of(instance)
    before = BOOT_SECONDS + usual("data", kind).seconds + usual("image", kind).seconds if kind else _STARTUP_LOCAL_S
    before += _COMPILING_S if spec.is_compiled else 0.0
    # Jobs share a cluster's constant only if their devices share the model in the same way.
    fields = type(spec).model_fields
    values = {name: getattr(spec, name) for name in DIVISIONS if getattr(spec, name) != fields[name].default}
    divided = "".join(f" {name}={spell(value)}" for name, value in values.items())
    cluster = f"{spec.instance_type} x {spec.instance_count} {spec.strategy}{divided}"
    sent, crowded = _sent(setting), 1 + device.crowding * (share.devices - 1)
    sent["blocking_link"] += blocking_bytes(setting)
    stack = stack or ("own" if program.is_paretune else program.name)
    return Work(
        constants=_constants(setting, cluster, stack, by_tcp=by_tcp),
        cluster=cluster,
        kind=_kind(setting),
        is_local=is_local,
        is_ahead=not share.on_processor,
        instances=share.instances,
        devices=share.devices,
        steps=work.steps,
        tokens=work.steps * plan.global_batch_size * work.tokens,
        accumulation=plan.gradient_accumulation_steps,
        flops=attention_factor * rows * work.flops_per_row / row_devices,
        moved=moved + (0.0 if share.on_processor else read) + score_bytes(setting) + adapter_bytes(setting),
        kernels=kernels / degrees.pipeline * parts * launch_factor(setting),
        updated=updated * optimizer.traffic * work.trained_parameters / (row_devices * share.sharers),
        update_kernels=optimizer.kernels,
        bubble=(degrees.pipeline - 1) / parts,  # Narayanan et al., arXiv 2104.04473, section 2.2
        **sent,
        evaluated_flops=attention_factor * evaluated / (share.instances * share.devices),
        saved=0.0 if is_packed else uploaded,
        packed=uploaded if is_packed else 0.0,
        before=before * (1 + _GROWTH * math.log(share.instances)),
        after=usual("uploading", kind).seconds if kind else 0.0,
        arithmetic=_arithmetic(share, formats) / crowded,
        memory=device.memory_bytes_per_s * (1.0 if share.on_processor else _STREAM) / crowded,
        link=device.link_bytes_per_s,
        network=gbps * _GBPS,
        flow=(instance.flow_gbps if instance and by_tcp else gbps) * _GBPS,
    )


UNMEASURED = {
    "language model, experts": "a mixture of experts",
    "language model, 4 bits without bf16": "4-bit weights on a GPU without bf16",
    "language model, long rows": f"rows of {LONG_ROWS:,} tokens or more",
}
"""Kinds of jobs of which no published rate is known, in words."""


def _kind(setting: Setting) -> str:
    """Return the kind of job by which intervals are calibrated, or "" for devices whose speed is a guess."""
    spec, share = setting.spec, setting.share
    if not spec.has_instances or share.on_processor or not share.device.is_listed:
        return ""
    if spec.task == CAUSAL_LM and setting.built.experts:
        return "language model, experts"
    if spec.task == CAUSAL_LM and spec.fine_tuning == "qlora" and not share.device.has_bf16:
        return "language model, 4 bits without bf16"
    if spec.task == CAUSAL_LM and setting.work.tokens >= LONG_ROWS:
        return "language model, long rows"
    if share.instances > 1:
        return "several machines"
    if spec.task == CAUSAL_LM:
        return "language model, full" if spec.fine_tuning == "full" else "language model, adapters"
    return "one GPU" if share.devices == 1 else "several GPUs"


def _arithmetic(share: DeviceShare, formats: Formats) -> float:
    """Return the FLOP/s that matrix products reach on one device."""
    device = share.device
    if formats.is_half:
        return _MATMUL * device.half_flops * device.sustained
    if formats.compute == "tf32":
        return _MATMUL * device.half_flops / 2 * device.sustained
    return (_MATMUL if share.on_processor else _MATMUL_FP32) * device.fp32_flops * device.sustained_fp32


def _constants(setting: Setting, cluster: str, stack: str, *, by_tcp: bool) -> dict[str, str]:
    """Return the name of the fitted constant for each role in a job's time; empty if the role does not apply."""
    spec, share = setting.spec, setting.share
    device, instance, is_local = share.device, share.instance, not spec.has_instances
    is_alone, is_gpu = share.instances * share.devices == 1, not share.on_processor
    chip = device.name or "local"
    if instance is not None:
        chip = instance.accelerator if instance.accelerator_count else instance.family
    kind = "chip" if is_gpu or not is_local else "local"
    if is_gpu and not (device.is_listed and device.is_measured):
        kind = "unmeasured" if device.is_listed else "unlisted"
    family = instance.family if instance else "local"
    # Language models are better known than others, except with adapters on weights that are not in 4 bits.
    kind_of_model = "decoder" if spec.task == CAUSAL_LM and spec.fine_tuning in ("full", "qlora") else "model"
    return {
        "chip": f"{kind}:{chip} {_format(setting)}",
        "model": f"{kind_of_model}:{setting.work.model}{' compiled' if spec.is_compiled else ''}",
        "stack": f"stack:{stack}",
        "cluster": "" if is_alone else "processes" if is_local else f"cluster:{cluster}",
        "launch": f"launch:{family}" if is_gpu else "launch local",
        "update": f"update:{stack}" if is_gpu else "update local",
        "link": "link",
        "network": "" if share.instances == 1 else TCP if by_tcp else "efa",
        "between": "" if share.instances == 1 else f"between:{cluster}",
        "startup": "startup local" if is_local else "startup",
        "packing": "packing" if setting.spec.is_only_described and not is_local else "",
    }


def _format(setting: Setting) -> str:
    """Return the format of the products, as a job names it."""
    precision, formats = setting.share.precision, setting.formats
    if precision != "auto" or setting.spec.trained_by.is_paretune:
        return precision
    return formats.compute if formats.autocast or not formats.is_half else f"{formats.compute}-true"


def _sent(setting: Setting) -> dict[str, float]:
    """Count the bytes that devices exchange, by field of `Work`.

    An all-gather or a reduce-scatter of B bytes over a ring of n devices sends (n - 1) / n x B through every link, and
    an all-reduce sends twice that (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009).

    With sharding, every micro-batch gathers the shards for the forward pass and, without a pipeline, again for the
    backward pass, and scatters gradients. Without sharding, gradients are reduced once per step; so are the gradients
    of replicated shards. Tensor groups all-reduce activations twice forward and twice backward in each layer (Shoeybi
    et al., arXiv 1909.08053, section 3). Pipeline stages pass activations forward and gradients backward.
    """
    spec, plan, built = setting.spec, setting.plan, setting.built
    work, formats = setting.work, setting.formats
    degrees, is_sharded, bytes_each = spec.degrees, spec.strategy in SHARDED, BYTES[formats.compute]
    tensor, stages, trained = degrees.tensor, degrees.pipeline, work.trained_parameters
    of_stage = degrees.devices // stages
    here = max(1, min(degrees.per_instance, of_stage) // tensor)  # devices per instance that process different rows
    members = degrees.sharers if is_sharded else degrees.data
    within, across, copies = min(members, here), math.ceil(members / here), degrees.data // members
    # There are `tensor` rings, each with a part of the weights, and all of them share the connection of an instance.
    link, network = (within - 1) / within / (tensor * stages), (across - 1) / across / stages
    gathers = 1 if stages > 1 else 2  # a pipeline keeps gathered weights for the backward pass
    sharded = gathers * gathered_bytes(work.packed_weights, built, formats) + 4 * trained if is_sharded else 0.0
    # DDP reduces gradients in the format of the weights, FSDP in fp32.
    reduced = 0.0 if is_sharded else 2 * BYTES[formats.weights] * trained
    near = max(1, here // members)  # replicas of the shards within one instance
    far = copies / near
    copied_link = 8 * trained / members * (near - 1) / near / (tensor * stages)
    copied_network = 8 * trained * min(1.0, here / members) * (far - 1) / far / stages
    activations = bytes_each * plan.per_device_train_batch_size * work.tokens * built.hidden_size
    all_reduces = (6 if work.recomputes else 4) * built.layers / stages
    handed = 2 * activations if stages > 1 else 0.0
    is_spread = of_stage >= degrees.per_instance  # each stage fills an instance
    return {
        "micro_link": sharded * link,
        "micro_network": sharded * network,
        "step_link": reduced * link + copied_link,
        "step_network": reduced * network + copied_network,
        "blocking_link": all_reduces * 2 * (tensor - 1) / tensor * activations + (0.0 if is_spread else handed),
        "blocking_network": degrees.per_instance * handed if is_spread else 0.0,
    }
