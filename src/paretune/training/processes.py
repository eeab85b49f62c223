"""The processes of a job: starting them with torchrun, exchanging values between them, and stopping them.

On SageMaker, each container runs `python3 -m paretune.training /opt/ml`, which runs torchrun if the job has several
processes. The processes connect to the first host of the sorted list, on the port that SageMaker's own drivers use.

On SIGTERM, the processes of our own training agree on a step, write a checkpoint and exit with code 0. If a process
fails, torchrun stops the other processes of its instance. Processes of other instances lose a connection (gloo) or fail
when the process group times out (NCCL). On SageMaker, the job ends as soon as one instance fails.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from paretune.core import watchdog
from paretune.core.errors import refuse
from paretune.specification.container import Hosts, JobFolder
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.training import device

GRACE_S = 60.0  # seconds from a stop request until a process that is still writing its checkpoint is killed
SAGEMAKER_GRACE_S = 110.0  # the same on SageMaker, which kills a job 120 s after SIGTERM (StopTrainingJob)
_POLL_S = 0.5  # seconds between two checks of how many processes have arrived
_objects: Any = None  # the process group that exchanges Python objects; None is the default one
_waits = 0  # number of times that this process has waited for all others
Value = TypeVar("Value")
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def network_environment(hosts: Hosts, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that name the network interface for NCCL, gloo and TensorPipe, if `environment` lacks them."""
    return {name: hosts.network_interface for name in _INTERFACES if name not in environment}


def torchrun_arguments(processes: int, hosts: Hosts | None, root: Path, *, grace_s: float) -> list[str]:
    """Return torchrun's arguments for the `processes` of this machine. Without `hosts`, there is no other machine.

    `root` is the job's folder. On SIGTERM, torchrun waits `grace_s` seconds before it kills its processes.
    """
    if hosts is None:
        arguments = ["--standalone"]
    else:
        arguments = [
            f"--nnodes={len(hosts.names)}",
            f"--node-rank={hosts.rank}",
            f"--master-addr={hosts.names[0]}",
            f"--master-port={os.environ.get('SM_MASTER_PORT', '7777')}",
        ]
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import PContext

    if "--shutdown-timeout" in run.get_args_parser().format_help():
        arguments.append(f"--shutdown-timeout={grace_s:.0f}")
    else:  # torch 2.9, in AWS's newest Hugging Face image, has no such option, only a default in its code
        close: Any = PContext.close
        close.__defaults__ = (None, int(grace_s))
    return [*arguments, f"--nproc-per-node={processes}", "-m", "paretune.training", str(root)]


def run_on_all_devices(order: Order, hosts: Hosts | None, folder: JobFolder, *, grace_s: float) -> bool:
    """Run a job in one process per device of this instance, after checking the machine if it is an instance.

    Returns False, without running anything, if this process is the only one of the job. Raises BadInput if the machine
    does not suit the job, and the errors of `run_torchrun`.
    """
    spec = JobSpec.read(order.training)
    if hosts is not None:
        refuse(device.machine_faults(spec.instance() if spec.has_instances else None))
        os.environ.update(network_environment(hosts, os.environ))
    if spec.processes_here == 1 and (hosts is None or len(hosts.names) == 1):
        return False
    run_torchrun(torchrun_arguments(spec.processes_here, hosts, folder.root, grace_s=grace_s), folder)
    return True


def run_torchrun(arguments: list[str], folder: JobFolder) -> None:
    """Run torchrun in this process until all processes of this instance have ended.

    Processes that finished, or stopped as requested, have left a file in the job's folder that says so. Raises
    RuntimeError if a process failed (the message names the process), or if the processes were stopped before their
    final checkpoint, and OSError if the disk is full.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == errno.ENOSPC:  # the code of `__main__` for a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        cause = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        raise RuntimeError(f"process {rank} ended with {cause}") from error
    except SignalException as error:
        # Torchrun raises this even if all processes ended with code 0.
        if not any(path.exists() for path in (folder.stopped, folder.finished)):
            raise RuntimeError(f"stopped by {error.sigval.name} before its final checkpoint was written") from error


def is_first(*, of_instance: bool = False) -> bool:
    """Return whether this is the first process of the job, or of its instance."""
    return os.environ.get("LOCAL_RANK" if of_instance else "RANK", "0") == "0"


def exchange_objects_with(backend: str) -> None:
    """Exchange Python objects, which travel as CPU tensors, with this backend from now on.

    All processes must call this, after they have joined a default group whose backend only has GPU tensors.
    """
    global _objects
    _objects = torch.distributed.new_group(backend=backend)


def gather(value: Value) -> list[Value]:
    """Return the values of all processes in the order of their ranks. All processes must call this."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value, group=_objects)
    return values


def wait_for_all() -> None:
    """Wait until all processes have called this function. This may take hours while one handles a large model.

    Each process adds 1 to a counter in the store of the process group, and polls the counter. A collective operation
    would fail after the timeout of the group.
    """
    global _waits
    if not torch.distributed.is_initialized():
        return
    _waits += 1
    store, key = torch.distributed.distributed_c10d._get_default_store(), f"paretune waits {_waits}"
    arrived = store.add(key, 1)
    while arrived < torch.distributed.get_world_size():
        time.sleep(_POLL_S)
        arrived = store.add(key, 0)
    gather(None)  # after this, the process that has the store may end


def of_first(value: Value, source: int = 0) -> Value:
    """Return the value of the first process, or of process `source`. All processes must call this."""
    values = [value]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(values, source, group=_objects)
    return values[0]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full values of a tensor that may be divided over processes. All of them must call this."""
    whole_of = getattr(tensor, "full_tensor", None)  # a method of DTensor, whose import takes a second
    return tensor if whole_of is None else whole_of()


def watch_parent(grace_s: float = GRACE_S) -> None:
    """Send this process SIGTERM when its parent has ended, and end this process `grace_s` seconds later.

    The parent should give its process id in PARETUNE_STARTER: it may end before this process can ask for the id. The
    workers of torchrun ignore this variable, because torchrun is their parent. The parent of a container's first
    process has the id 0 and never ends. By default, Linux does not deliver SIGTERM to that first process. This function
    makes SIGTERM end it.
    """
    starter = None if "LOCAL_RANK" in os.environ else os.environ.get("PARETUNE_STARTER")
    end = partial(os._exit, 128 + signal.SIGTERM)
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: end())
    watchdog.end_with(int(starter) if starter else os.getppid(), grace_s, end)


def stop_request() -> Callable[[], bool]:
    """Treat SIGTERM as a request to stop. Returns a function that returns whether the request has arrived.

    If the training does not stop, its launcher or torchrun kills it later.
    """
    # A list, because a second signal may interrupt the handler of the first: an Event's lock would then never open.
    requested = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: requested.append(number))
    # Ctrl-C in a terminal reaches the whole process group; the launcher handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return lambda: bool(requested)
