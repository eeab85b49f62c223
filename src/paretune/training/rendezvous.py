"""How the processes of a job are started and find each other: torchrun, once per instance.

On SageMaker each instance runs `python3 -m paretune.training /opt/ml` as the first process of its container, and that
becomes the instance's torchrun. All meet at the first host of the sorted list, on the port that SageMaker's own drivers
use. The store that the processes share, in which they agree on the step after which they stop, is held by the first
host's torchrun, not by a worker, so it is there as long as that instance is.

What happens when something ends before its time:

    SIGTERM on all instances, or on one     the processes agree on a step, write a checkpoint and end with 0; torchrun
                                            waits for them as long as they give themselves
    a process fails                         its instance's torchrun ends the others of that instance; those of other
                                            instances lose a connection (gloo) or wait until the process group's time
                                            is over (NCCL, strategies.PROCESS_TIMEOUT_S), and fail then
    an instance is gone                     as above; the failures of the others name a lost connection, not a cause
    an instance never comes                 the others wait MEETING_TIMEOUT_S, and fail

On SageMaker the job is over as soon as one instance fails, so the others are ended before that.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paretune.spec.container import Hosts
from paretune.spec.job import JobSpec

MASTER_PORT = "7777"
"""As in the SageMaker Python SDK 3.27's torchrun driver; SM_MASTER_PORT, which that driver sets, wins."""
MEETING_TIMEOUT_S = 600
"""Longest wait for the other instances at the start, in seconds; torch's own."""
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def world_size(spec: JobSpec, hosts: Hosts | None) -> int:
    """Training processes of the whole job. Without hosts all of them are on this machine."""
    return spec.processes * (spec.instance_count if hosts is None else len(hosts.names))


def network_environment(hosts: Hosts, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that tell NCCL, gloo and TensorPipe which network to use, unless `environment` already does."""
    return {name: hosts.network_interface for name in _INTERFACES if name not in environment}


def torchrun_words(spec: JobSpec, hosts: Hosts | None, root: Path, *, grace_s: float) -> list[str]:
    """Torchrun's arguments for this instance's processes.

    Args:
        spec: the job.
        hosts: the cluster; None for processes on this machine only.
        root: the job's folder.
        grace_s: how long the processes may take to end after SIGTERM.
    """
    if hosts is None:
        words = ["--standalone", f"--nproc-per-node={spec.instance_count}"]
    else:
        words = [
            f"--nnodes={len(hosts.names)}",
            f"--node-rank={hosts.rank}",
            f"--nproc-per-node={spec.processes}",
            f"--master-addr={hosts.names[0]}",
            f"--master-port={os.environ.get('SM_MASTER_PORT', MASTER_PORT)}",
            f"--rdzv-conf=timeout={MEETING_TIMEOUT_S}",
        ]
    return [*words, *_patience(grace_s), "-m", "paretune.training", str(root)]


def run_torchrun(words: list[str], stopped: Path) -> None:
    """Be torchrun until all processes of this instance have ended.

    Args:
        words: from `torchrun_words`.
        stopped: file that is there when the processes have stopped as they were asked to.

    Raises:
        RuntimeError: a process failed; it names the first one and how it ended.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(words)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        raise RuntimeError(f"process {rank} ended with {how}") from error
    except SignalException as error:
        if not stopped.exists():
            raise RuntimeError(f"stopped by {error.sigval.name} before there was a checkpoint") from error


def _patience(grace_s: float) -> list[str]:
    """Let torchrun wait `grace_s` for its processes after SIGTERM; it would kill them after 30 seconds.

    torch 2.9, in AWS's newest Hugging Face image, has no argument for it: there the default is replaced.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import PContext

    if "--shutdown-timeout" in run.get_args_parser().format_help():
        return [f"--shutdown-timeout={grace_s:.0f}"]
    close: Any = PContext.close
    close.__defaults__ = (None, int(grace_s))
    return []
