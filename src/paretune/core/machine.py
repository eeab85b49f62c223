"""Facts about this machine: its name, its CPU, and the memory and cores that this process may use."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from paretune.core.tags import login_of


def usable_memory_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that this process may use: its container's limit, or less if the machine has less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups 2 and 1; no limit: "max" or a huge number
        with suppress(OSError, ValueError):
            sizes.append(int((folder / name).read_text()))
    return min(sizes)


def usable_cores() -> int:
    """Return the number of logical cores that this process's affinity and its container let it use."""
    import joblib  # type: ignore[import-untyped]

    return int(joblib.cpu_count())


def busy_sentence() -> str:
    """Return a warning if the load average shows that this machine is busy; otherwise an empty string."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    is_busy = load > 1.5 * cores  # not 1.0, because a job that has just ended is still part of the average
    busy = f"this machine is busy, with a load average of {load:.1f} on {cores} cores"
    return f"{busy}: a job on it takes longer than on an idle one" if is_busy else ""


def may_have_gpu() -> bool:
    """Return whether this machine may have a GPU; False only on Linux without any GPU's device file."""
    devices = (Path("/dev/nvidia0"), Path("/dev/kfd"), Path("/dev/dxg"))  # of Nvidia's, AMD's and WSL's driver
    return platform.system() != "Linux" or any(each.exists() for each in devices)


def machine_name() -> str:
    """Return host name, architecture and number of cores. Measurements apply only to machines with the same name."""
    return f"{platform.node()} {platform.machine()} {os.cpu_count()}"


def host_in(machine: str) -> str:
    """Return the host name in the name of a machine."""
    return machine.rsplit(" ", 2)[0]


def user_here(environment: Mapping[str, str]) -> str:
    """Return the login name of the user and the machine, such as `ana@laptop`."""
    return f"{login_of(environment)}@{host_in(machine_name())}"


@cache
def processor_flags() -> set[str]:
    """Return the feature flags of this machine's CPU as Linux lists them; empty on other systems."""
    return {flag for value in processor_facts("flags", "features") for flag in value.split()}


def processor_facts(*names: str) -> list[str]:
    """Return the values in /proc/cpuinfo whose names begin with one of these words; empty on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(":")[2].strip() for line in lines if line.lower().startswith(names)]


def processor_name() -> str:
    """Return the name of this machine's CPU."""
    return next(iter(processor_facts("model name")), platform.processor() or platform.machine())
