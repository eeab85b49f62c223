"""The device of this process: its name, precision, memory and load, and reasons why it cannot run a job."""

import contextlib
import os
import platform
import resource
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from paretune.core import machine
from paretune.estimating import hardware
from paretune.specification.catalog import Instance
from paretune.specification.container import ALLOW_NO_GPU

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def has_gpu() -> bool:
    """Return whether PyTorch sees a CUDA device."""
    return torch.cuda.is_available()


def has_bf16() -> bool:
    """Return whether the device multiplies bf16 natively. Emulation does not count: it is slower than fp32."""
    if has_gpu():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return hardware.multiplies_bf16(machine.processor_flags())


def choose_precision(precision: str) -> str:
    """Return the number format to compute in: `precision`, or the usual one of the device if `precision` is auto."""
    if precision != "auto":
        return precision
    capability = torch.cuda.get_device_capability() if has_gpu() else None
    return hardware.usual_precision(has_bf16=has_bf16(), compute_capability=capability)


def device_name() -> str:
    """Return the name of the GPU, or of the CPU if there is no GPU."""
    return torch.cuda.get_device_name() if has_gpu() else machine.processor_name()


def peak_flops(precision: str) -> float | None:
    """Return the GPU's peak FLOP/s in bf16 or fp16; None for fp32, CPUs and unlisted GPUs."""
    if not has_gpu() or precision == "fp32":
        return None
    gpu = hardware.named(torch.cuda.get_device_name())
    return None if gpu is None else gpu.half_flops


def peak_memory_gib() -> float:
    """Return the peak memory of this process: the highest allocation on any GPU, or resident memory without a GPU."""
    if has_gpu():
        return max(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count()))) / 2**30
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def synchronize() -> None:
    """Wait until the device has finished its queued work, so that a time measured afterwards includes this work."""
    if has_gpu():
        torch.cuda.synchronize()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the GPU or the machine has too little memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def device_faults(precision: str, instances: Sequence[Instance], processes: int) -> list[str]:
    """Return reasons why the devices cannot run the job; empty if they can.

    For a job on `instances`, only the precision is checked, against the data sheets of these types. A job on this
    machine has none: the machine's devices must support the precision, and there must be enough for its `processes`.
    """
    if instances:
        return [fault for instance in instances for fault in hardware.precision_faults(precision, instance)]
    faults = list[str]()
    if precision in {"bf16", "bf16-true"} and not has_bf16():
        rule = f"precision {precision} needs a device that supports it"
        faults.append(f"{rule}, and {device_name()} does not: use auto or fp32")
    elif precision == "fp16" and not has_gpu():
        faults.append("precision fp16 needs a GPU: use auto, bf16 or fp32")
    most, unit = (torch.cuda.device_count(), "GPU") if has_gpu() else (machine.usable_cores(), "CPU core")
    if processes > most:
        rule = f"instance_count must be at most {most} on this machine (one {unit} per process)"
        faults.append(f"{rule}, got {processes}")
    return faults


def machine_faults(instance: Instance | None) -> list[str]:
    """Return reasons why this machine, an instance of SageMaker, cannot do its share of a job; empty if it can."""
    if instance is None:
        return []
    if has_gpu():
        if instance.accelerator_count <= torch.cuda.device_count():
            return []
        visible = f"PyTorch sees {torch.cuda.device_count()} GPUs on {instance.instance_type}"
        needed = f"the job needs {instance.accelerator_count}"
        return [f"{visible}, and {needed}: set sagemaker.training_image to another image"]
    if not instance.has_gpu or os.environ.get(ALLOW_NO_GPU) == "1":
        return []
    hardware_of_type = f"{instance.instance_type} has {instance.accelerator_count} x {instance.accelerator}"
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs only"
    try:
        driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        driver = "none (/proc/driver/nvidia/version is missing)"
    software = f"PyTorch {torch.__version__}, {build}, sees no GPU; driver: {driver}"
    remedy = "set sagemaker.training_image to a GPU image whose CUDA this driver supports"
    return [f"{hardware_of_type}, but {software}: {remedy}"]


def load() -> dict[str, float]:
    """Measure the load of this machine. The names are those of MLflow's system metrics."""
    memory = psutil.virtual_memory()
    values = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / 1e6,
        "system/system_memory_usage_percentage": memory.percent,
    }
    for number in range(torch.cuda.device_count()):
        values |= {f"system/gpu_{number}_{name}": value for name, value in _gpu_load(number).items()}
    return values


def _gpu_load(number: int) -> dict[str, float]:
    """Measure the load of a GPU with NVML. If NVML cannot, measure the memory of the current GPU; others have no load.

    PyTorch would create a CUDA context on the GPU to ask for its free memory, which takes about half a GB of it. On the
    current GPU, this process has a context anyway.
    """
    total, load = torch.cuda.get_device_properties(number).total_memory, dict[str, float]()
    with contextlib.suppress(Exception):  # no nvidia-ml-py, PyTorch before 2.7, or an error of NVML, such as for MIG
        used = torch.cuda.device_memory_used(number)
        load = {"memory_usage_megabytes": used / 1e6, "memory_usage_percentage": 100 * used / total}
        load["utilization_percentage"] = float(torch.cuda.utilization(number))
    if not load and number == torch.cuda.current_device():
        free, total = torch.cuda.mem_get_info(number)
        load = {"memory_usage_megabytes": (total - free) / 1e6, "memory_usage_percentage": 100 * (1 - free / total)}
    return load


if __name__ == "__main__":
    gpus = f"{torch.cuda.device_count()} x {device_name()}" if has_gpu() else "no GPU"
    print(f"PyTorch {torch.__version__} sees {gpus}")
