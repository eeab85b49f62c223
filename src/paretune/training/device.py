"""What this process trains on: device, number format, peak arithmetic rate, memory."""

import os
import platform
import resource
from pathlib import Path

import torch

from paretune.estimating import hardware
from paretune.spec import catalog
from paretune.spec.job import JobSpec


def has_gpu() -> bool:
    """Whether a CUDA device is there."""
    return torch.cuda.is_available()


def has_bf16() -> bool:
    """Whether the device multiplies bf16 natively; emulation does not count, for it is slower than fp32."""
    if has_gpu():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return hardware.multiplies_bf16(hardware.processor_flags())


def choose_precision(asked: str) -> str:
    """`fp32`, `bf16` or `fp16`; `auto` is bf16 where the device has it."""
    if asked != "auto":
        return asked
    return "bf16" if has_bf16() else "fp32"


def device_name() -> str:
    """The GPU's name, or the processor's."""
    if has_gpu():
        return torch.cuda.get_device_name()
    for line in _cpuinfo().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_flops(precision: str) -> float | None:
    """Peak FLOP/s of one device in this precision; None where it is not known."""
    if not has_gpu() or precision == "fp32":
        return None
    found = hardware.named(torch.cuda.get_device_name())
    return None if found is None else found.half_flops


def peak_memory_gib() -> float:
    """Highest memory so far: allocated on the GPU, or resident in this process."""
    if has_gpu():
        return torch.cuda.max_memory_allocated() / 2**30
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def synchronize() -> None:
    """Wait until the device has done what it was given, so that a clock read after it means something."""
    if has_gpu():
        torch.cuda.synchronize()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that the GPU's or the machine's memory did not suffice."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def device_faults(spec: JobSpec) -> list[str]:
    """Why the devices cannot run the job, this machine's or those of its instance types; empty if they can."""
    if spec.on_sagemaker:
        return [fault for name in spec.instance_types() for fault in _instance_faults(spec, catalog.instance(name))]
    faults = []
    if spec.precision == "bf16" and not has_bf16():
        faults.append(f"precision bf16 needs a device that has it; {device_name()} does not: use auto or fp32")
    if spec.precision == "fp16" and not has_gpu():
        faults.append("precision fp16 needs a GPU: use auto, bf16 or fp32")
    places = torch.cuda.device_count() if has_gpu() else len(_cores())
    if spec.instance_count > places:
        what = "GPUs" if has_gpu() else "processor cores"
        faults.append(
            f"instance_count must be at most {places} here, one per process ({what}), got {spec.instance_count}"
        )
    return faults


def _instance_faults(spec: JobSpec, instance: catalog.Instance) -> list[str]:
    """A CPU's number formats are not in the catalogue, so bf16 on one is left to the job itself."""
    faults = []
    chip = hardware.accelerator_of(instance)
    if spec.precision == "bf16" and chip is not None and not chip.has_bf16:
        faults.append(
            f"precision bf16 needs a GPU that has it; {instance.instance_type} has {instance.accelerator}: "
            "use auto, fp16 or fp32"
        )
    if spec.precision == "fp16" and not instance.has_gpu:
        faults.append(f"precision fp16 needs a GPU, {instance.instance_type} has none: use auto or fp32")
    return faults


def machine_faults(spec: JobSpec) -> list[str]:
    """Why the instance that this process runs on cannot do its share of a SageMaker job; empty if it can."""
    if has_gpu() and spec.processes > torch.cuda.device_count():
        return [
            f"processes_per_instance must be at most {torch.cuda.device_count()}, the GPUs that PyTorch sees on "
            f"{spec.instance_type}, got {spec.processes}"
        ]
    return []


def machine_warnings(spec: JobSpec) -> list[str]:
    """What is not as the instance type promises, though the job runs: sentences for people."""
    if not spec.on_sagemaker or has_gpu():
        return []
    instance = catalog.instance(spec.instance_type)
    if not instance.has_gpu:
        return []
    return [
        f"{instance.instance_type} has {instance.accelerator_count} x {instance.accelerator}, but PyTorch "
        f"{torch.__version__} in this image sees no GPU: training on the CPU; set image_uri to a GPU image"
    ]


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""
