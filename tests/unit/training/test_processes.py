"""How torchrun is called on each instance, and how processes wait for each other."""

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from paretune.specification.container import Hosts, JobFolder
from paretune.training.processes import network_environment, run_torchrun, torchrun_arguments

ROOT = Path("/opt/ml")


def hosts(current: str, *names: str) -> Hosts:
    return Hosts(names=names or ("algo-1", "algo-2"), current=current, network_interface="eth0")


def test_an_instance_starts_its_processes_and_meets_the_others_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SM_MASTER_PORT", raising=False)
    parsed = run.parse_args(torchrun_arguments(4, hosts("algo-2"), ROOT, grace_s=110))

    assert (parsed.nnodes, parsed.node_rank, parsed.nproc_per_node) == ("2", 1, "4")
    assert (parsed.master_addr, parsed.master_port, parsed.rdzv_backend) == ("algo-1", 7777, "static")
    assert parsed.max_restarts == 0
    assert parsed.shutdown_timeout == 110
    assert (parsed.module, parsed.training_script, parsed.training_script_args) == (
        True,
        "paretune.training",
        ["/opt/ml"],
    )


def test_processes_of_one_machine_meet_on_a_free_port() -> None:
    parsed = run.parse_args(torchrun_arguments(3, None, ROOT, grace_s=60))

    assert parsed.standalone
    assert parsed.nproc_per_node == "3"


@pytest.mark.parametrize("ended", ["stopped", "finished"])
def test_torchrun_that_is_stopped_has_not_failed_if_its_processes_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    folder = JobFolder(tmp_path)
    folder.make()

    def stop(_: list[str]) -> None:
        raise SignalException("Process 1 got signal: 15", signal.SIGTERM)

    monkeypatch.setattr(run, "main", stop)
    with pytest.raises(RuntimeError, match="stopped by SIGTERM before its final checkpoint was written"):
        run_torchrun([], folder)

    getattr(folder, ended).touch()

    run_torchrun([], folder)


def test_the_full_disk_of_one_process_is_that_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_: list[str]) -> None:
        raise ChildFailedError("job", {0: ProcessFailure(local_rank=0, pid=1, exitcode=errno.ENOSPC, error_file="")})

    monkeypatch.setattr(run, "main", fill)

    with pytest.raises(OSError, match="No space left on device"):
        run_torchrun([], JobFolder(tmp_path))


def test_the_network_is_the_cluster_s_unless_the_user_chose_one() -> None:
    result = network_environment(hosts("algo-1"), {"NCCL_SOCKET_IFNAME": "ib0"})

    assert result == {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}


_STOPPED_TWICE = """
import signal, sys
from paretune.training.processes import stop_request

def interrupt(frame, event, argument):
    if event == "line":
        signal.raise_signal(signal.SIGTERM)
    return interrupt

requested = stop_request()
sys.settrace(interrupt)  # from here on, a signal interrupts each line of the handler
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
assert requested()
"""


def test_a_second_request_to_stop_may_arrive_during_the_first() -> None:
    subprocess.run([sys.executable, "-c", _STOPPED_TWICE], timeout=120, check=True)


_WAITS = """
import sys, time
from pathlib import Path
from paretune.specification.job import JobSpec
from paretune.training import processes, strategies
folder = Path(sys.argv[1])
(folder / sys.argv[2]).touch()
while len([*folder.iterdir()]) < 2:  # imports take longer than the limit on a busy machine
    time.sleep(0.05)
strategies.PROCESS_TIMEOUT_S = 8
strategies.begin(JobSpec(instance_count=2).degrees)
if processes.is_first():
    time.sleep(20)  # writes a large model
processes.wait_for_all()
"""


@pytest.mark.slow
def test_the_others_wait_for_longer_than_their_time_limit_while_the_first_one_writes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    words = [sys.executable, "-c", _WAITS, str(tmp_path)]
    started = [subprocess.Popen([*words, rank], env=os.environ | group | {"RANK": rank}) for rank in "01"]

    try:
        assert [each.wait(240) for each in started] == [0, 0]
    finally:
        for each in started:
            each.kill()
            each.wait()
