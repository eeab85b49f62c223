"""Peak figures of accelerators and links, rounded from their data sheets, and rough figures for CPUs.

The time model starts from these figures, and learns from measurements which share of them a training run reaches.
"""

import math
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from paretune.core import machine
from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import Formats, formats_of, trainer_formats
from paretune.specification.catalog import Instance
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED, SHARDED


@dataclass(frozen=True)
class Accelerator:
    """Peak figures of one accelerator."""

    fp32_flops: float  # FLOP/s in fp32, without TF32
    half_flops: float  # dense FLOP/s in bf16 or fp16 with fp32 accumulation
    memory_bytes_per_s: float
    link_bytes_per_s: float  # bandwidth to its neighbors in the same instance, in one direction
    usable_gib: float  # memory that CUDA reports, at most the nominal figure; for CPUs, main memory
    has_bf16: bool = True
    sustained: float = 1.0  # multiplies the share of `half_flops` that products reach; low if a power limit slows them
    sustained_fp32: float = 1.0  # the same factor for `fp32_flops`
    crowding: float = 0.0  # share by which each further GPU of an instance slows the others
    compute_capability: tuple[int, int] | None = None
    """Compute capability of an NVIDIA GPU, such as (7, 0) for sm_70. It decides which CUDA kernels run. None for
    others."""
    name: str = ""  # the name in instances.csv; for an unlisted GPU of this machine, the name that its driver reports
    is_listed: bool = True  # False for a GPU whose figures are a guess
    is_measured: bool = True  # False if no training rate on this chip was known when constants were chosen


# Peaks: NVIDIA data sheets, dense rates, read 2026-11-20, in the order of the fields. A K80 here is one of the two GPUs
# on its board. RTX PRO 4500: memory of the Server Edition, arithmetic of the card with the same number of cores
# (exxactcorp.com, hmc-tech.com).
# Compute capability: NVIDIA's page "CUDA GPU Compute Capability".
# Usable memory: MemoryInfo of EC2 DescribeInstanceTypes, MiB / 1024.
# Links: half of NVLink's two-way figure (V100 300, A100 600, H100 and H200 900, B200 and B300 1800 GB/s), else PCIe.
# Sustained, from matrix products in fp16:
# - 4096 x 4096: T4 24 of 65 TFLOP/s, because its limit of 70 W lowers the clock (NVIDIA developer forum, thread 264462,
#   read 2026-11-21). In fp32 the limit lowers it less (fitted on Pollux's single machines).
# - 8192 x 8192: V100 97 of 125, A10G 66 of 70, L4 54 to 59 of 121, H100 736 to 797 of 989 TFLOP/s
#   (zzc0721/torch-performance-test-data, issues 140, 126, 120, 79, read 2026-11-23); A100 271 of 312
#   (stas00/ml-engineering).
# Training runs reach 0.5 of the peak on a V100, and 0.5 to 0.64 on an A100, whose copies overlap with products. The
# same program reached 0.40 of an A10's peak and 0.49 of an A100's (karpathy/llm.c, pull request 621).
_ACCELERATORS = {
    "NVIDIA K80": Accelerator(
        4.1e12, 4.1e12, 240e9, 16e9, 11441 / 1024, has_bf16=False, compute_capability=(3, 7), is_measured=False
    ),
    "NVIDIA T4": Accelerator(
        8.1e12, 65e12, 320e9, 16e9, 16, has_bf16=False, sustained=0.5, sustained_fp32=0.62, compute_capability=(7, 5)
    ),
    "NVIDIA V100": Accelerator(
        15.7e12,
        125e12,
        900e9,
        150e9,
        16.0,
        has_bf16=False,
        sustained=1.15,
        compute_capability=(7, 0),
        crowding=0.02,
    ),
    "NVIDIA A10G": Accelerator(31.2e12, 70e12, 600e9, 32e9, 22888 / 1024, sustained=0.85, compute_capability=(8, 6)),
    "NVIDIA L4": Accelerator(30.3e12, 121e12, 300e9, 32e9, 22888 / 1024, sustained=0.75, compute_capability=(8, 9)),
    "NVIDIA L40S": Accelerator(
        91.6e12, 362e12, 864e9, 32e9, 45776 / 1024, compute_capability=(8, 9), is_measured=False
    ),
    "NVIDIA A100": Accelerator(19.5e12, 312e12, 1555e9, 300e9, 40.0, sustained=1.3, compute_capability=(8, 0)),
    "NVIDIA H100": Accelerator(67e12, 989e12, 3350e9, 450e9, 80.0, compute_capability=(9, 0)),
    "NVIDIA H200": Accelerator(67e12, 989e12, 4800e9, 450e9, 141.0, compute_capability=(9, 0)),
    "NVIDIA B200": Accelerator(
        75e12, 2250e12, 8000e9, 900e9, 183359 / 1024, compute_capability=(10, 0), is_measured=False
    ),
    "NVIDIA B300": Accelerator(
        75e12, 2250e12, 8000e9, 900e9, 275040 / 1024, compute_capability=(10, 3), is_measured=False
    ),
    "NVIDIA RTX PRO 6000 Blackwell": Accelerator(
        120e12, 500e12, 1597e9, 64e9, 96.0, compute_capability=(12, 0), is_measured=False
    ),
    "NVIDIA RTX PRO 4500": Accelerator(
        54.9e12, 220e12, 800e9, 64e9, 32.0, compute_capability=(12, 0), is_measured=False
    ),
}
_MEMORY_OF_LARGER = {"NVIDIA A100": 2039e9}  # bytes/s of the card with 80 GB, which has HBM2e instead of HBM2
_CONTEXT_GIB = 0.9  # GiB of a GPU that CUDA, NCCL and fragmentation take; from experience, not measured here
_USABLE_SHARE = 0.85  # share of a machine's memory that a job without a GPU may take
_REPORTED_SHARE = 0.93
"""Share of a GPU's nominal memory that CUDA reports: the lowest of the listed GPUs, such as A10G and L4, which use a
sixteenth of their GDDR6 for error correction. Consumer cards have no error correction and report all of their memory,
such as 24,564 MiB for an RTX 4090."""
_TF32 = (8, 0)  # GPUs with at least this compute capability have TF32, at half of their rate in bf16
_TENSOR_CORES = (7, 0)  # GPUs with at least this compute capability multiply fp16 faster than fp32


def accelerator_of(instance: Instance) -> Accelerator | None:
    """Return the GPU of an instance type with its memory on that type, or None if the type has no GPU.

    A GPU without a data sheet here has guessed figures.
    """
    if not instance.has_gpu:
        return None
    accelerator = _ACCELERATORS.get(instance.accelerator)
    if accelerator is None:
        return unlisted_gpu(instance.accelerator, _REPORTED_SHARE * instance.accelerator_memory_gib)
    accelerator = replace(accelerator, name=instance.accelerator)
    if accelerator.usable_gib >= 0.9 * instance.accelerator_memory_gib:  # of an H100 with 96 GB, 0.83
        return accelerator
    return _with_more_memory(accelerator, instance.accelerator_memory_gib)


def _with_more_memory(accelerator: Accelerator, usable_gib: float) -> Accelerator:
    """Return the same chip on a card with more memory, which may also be faster."""
    bytes_per_s = _MEMORY_OF_LARGER.get(accelerator.name, accelerator.memory_bytes_per_s)
    return replace(accelerator, usable_gib=usable_gib, memory_bytes_per_s=bytes_per_s)


@cache
def local_gpu() -> Accelerator | None:
    """Return the first GPU of this machine that is visible to CUDA, according to NVIDIA's driver.

    Returns None if there is none, or if CUDA_VISIBLE_DEVICES hides all GPUs.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip()
    if not visible or visible.startswith("-"):
        return None
    words = [
        "nvidia-smi",
        f"--id={visible.partition(',')[0]}",
        "--query-gpu=name,memory.total",
        "--format=csv,noheader,nounits",
    ]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
        model, _, mib = answer.partition("\n")[0].rpartition(", ")
        return named(model) or unlisted_gpu(model, float(mib) / 1024 if mib.isdigit() else math.nan)
    return None


def unlisted_gpu(name: str, usable_gib: float) -> Accelerator:
    """Return a guess for a GPU without a data sheet here: it has the speed of an A10G. `usable_gib` may be NaN."""
    guess = replace(_ACCELERATORS["NVIDIA A10G"], compute_capability=None)
    return replace(guess, name=name or "this GPU", usable_gib=usable_gib, is_listed=False)


def named(model: str) -> Accelerator | None:
    """Return the GPU with the name that its driver reports, such as "Tesla T4", or None if it is not listed."""
    words = model.replace("-", " ").split()
    for name, accelerator in _ACCELERATORS.items():
        if set(name.removeprefix("NVIDIA ").split()) <= set(words):
            sizes = [int(word.removesuffix("GB")) for word in words if re.fullmatch(r"\d+GB", word)]
            listed, gib = replace(accelerator, name=name), float(max(sizes, default=accelerator.usable_gib))
            return _with_more_memory(listed, gib) if gib > listed.usable_gib else replace(listed, usable_gib=gib)
    return None


def processor(cores: int, memory_gib: float) -> Accelerator:
    """Return all vCPUs of one machine, and its memory, as one device.

    Each vCPU counts as 3 GHz x 32 FLOP per cycle (AVX-512, one of two hyper-threads) = 96e9 FLOP/s in fp32, twice that
    in bf16, which only CPUs with bf16 instructions use, and 6e9 bytes/s of memory bandwidth (two hyper-threads of an
    AMD EPYC reach 12e9).
    """
    return Accelerator(
        fp32_flops=cores * 96e9,
        half_flops=cores * 192e9,
        memory_bytes_per_s=cores * 6e9,
        link_bytes_per_s=4e9,  # gloo between processes of one machine
        usable_gib=memory_gib,
    )


@cache
def this_processor() -> Accelerator:
    """Return the vCPUs and the memory of this machine that this process may use, as one device."""
    return processor(machine.usable_cores(), machine.usable_memory_bytes() / 2**30)


def multiplies_bf16(flags: set[str]) -> bool:
    """Return whether a CPU with these flags multiplies bf16 natively. Emulation would be slower than fp32."""
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def usual_precision(*, has_bf16: bool, compute_capability: tuple[int, int] | None) -> str:
    """Choose the number format for `auto`: bf16 if the device has it, else fp16 on tensor cores, else fp32.

    fp16 needs loss scaling, which bf16 does not. `compute_capability` is that of a GPU; None for a CPU.
    """
    if has_bf16:
        return "bf16"
    return "fp16" if compute_capability is not None and compute_capability >= _TENSOR_CORES else "fp32"


def resolved_precision(precision: str, accelerator: Accelerator | None) -> str:
    """Return the precision that `auto` means on this accelerator; without one (None), `auto` is returned unchanged."""
    if precision != "auto" or accelerator is None:
        return precision
    return usual_precision(has_bf16=accelerator.has_bf16, compute_capability=accelerator.compute_capability)


def precision_faults(precision: str, instance: Instance) -> list[str]:
    """Return a fault if an instance type cannot compute in this format.

    bf16 is not checked for CPU types, because no list shows which of them support it.
    """
    chip, name = accelerator_of(instance), instance.instance_type
    if precision == "fp16" and not instance.has_gpu:
        return [f"precision fp16 needs a GPU, but {name} has none: use auto or fp32"]
    if precision in {"bf16", "bf16-true"} and chip is not None and not chip.has_bf16:
        return [
            f"precision {precision} needs a GPU that supports it; {name} has {instance.accelerator}: use auto, fp16 or "
            "fp32"
        ]
    return []


class DeviceShare:
    """One device of a job's cluster, whose devices are all alike.

    Without a GPU, each process is one device and gets an equal share of the machine's vCPUs and memory.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.instance = spec.instance() if spec.has_instances else None
        gpu = accelerator_of(self.instance) if self.instance else local_gpu()
        self.instances, self.devices = (
            (spec.instance_count, spec.processes) if self.instance else (1, spec.instance_count)
        )
        self.device = gpu or _processor_share(self.instance, self.devices)
        self.on_processor = gpu is None
        # It may still be `auto` on a CPU, and for a Trainer, whose default depends on the model.
        self.precision = resolved_precision(spec.precision, gpu)
        if not spec.trained_by.is_paretune:
            self.precision = _of_trainer(spec.precision, gpu, has_tf32=bool(spec.training_arguments.get("tf32")))
        gib = self.device.usable_gib
        self.usable_gib = gib - _CONTEXT_GIB if gpu else gib * _USABLE_SHARE  # memory that the job may take
        is_guess = gpu is not None and self.instance is not None and not gpu.is_listed
        self.unsure_gib = self.instance.accelerator_memory_gib - gib if is_guess and self.instance else 0.0
        self.degrees = spec.degrees
        # Number of devices that share one copy of the weights and the training state.
        self.sharers = spec.degrees.sharers if spec.strategy in {*SHARDED, *DEEPSPEED} else 1
        self._spec = spec

    @property
    def computes_in(self) -> str:
        """The precision of the job.

        On this machine's CPU, `auto` means bf16 if the CPU has instructions for it. On any other CPU, it means fp32.
        """
        if self.precision != "auto" or not self._spec.trained_by.is_paretune:
            return self.precision
        return "bf16" if self.instance is None and multiplies_bf16(machine.processor_flags()) else "fp32"

    def formats(self, built: Architecture) -> Formats:
        """Return the number formats of the job with this model."""
        spec, of_model = self._spec, (built.kind, self.computes_in, built.stored)
        if spec.trained_by.is_paretune:
            return formats_of(spec.fine_tuning, spec.degrees, *of_model)
        return trainer_formats(spec.trained_by, spec.fine_tuning, *of_model)


def _of_trainer(precision: str, gpu: Accelerator | None, *, has_tf32: bool) -> str:
    """Return the precision of a script with the Trainer: as given, or tf32 for fp32 if its arguments have `tf32`.

    `auto` is returned unchanged, unless `tf32` says that the model is fp32.
    """
    capability = None if gpu is None else gpu.compute_capability
    is_able = capability is not None and capability >= _TF32
    return "tf32" if is_able and has_tf32 and precision in ("auto", "fp32") else precision


def _processor_share(instance: Instance | None, processes: int) -> Accelerator:
    whole = processor(instance.vcpus, instance.memory_gib) if instance else this_processor()
    shared = ("fp32_flops", "half_flops", "memory_bytes_per_s", "usable_gib")
    return replace(whole, **{name: getattr(whole, name) / processes for name in shared})
