"""How failures are classified, and how the first process of a container ends."""

import errno
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, write_json
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec
from paretune.specification.order import Limits, Order
from paretune.training import __main__ as job_process
from paretune.training import device
from paretune.training.__main__ import classify_failure
from tests.support.processes import wait_until


def because_of(error: Exception) -> ModuleNotFoundError:
    """Return the error that transformers raises from `error`, which one of its imports has raised."""
    missing = ModuleNotFoundError("Could not import module 'Trainer'. Are its requirements defined correctly?")
    missing.__cause__ = error
    return missing


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (BadInput(["seed must be at least 0"]), Cause.BAD_INPUT, "seed must be at least 0"),
        (ModuleNotFoundError("No module named 'peft'", name="peft"), Cause.CODE, "package peft is missing"),
        (
            because_of(ModuleNotFoundError("No module named 'google.protobuf'", name="google.protobuf")),
            Cause.CODE,
            "package google is missing",
        ),
        (
            because_of(RuntimeError("operator torchvision::nms does not exist")),
            Cause.CODE,
            "ModuleNotFoundError: Could not import module 'Trainer'. Are its requirements defined correctly?, because "
            "of RuntimeError: operator torchvision::nms does not exist",
        ),
        (
            ModuleNotFoundError("Requirement 'wandb>=0.12' not met"),
            Cause.CODE,
            "ModuleNotFoundError: Requirement 'wandb>=0.12' not met",
        ),
        (MemoryError(), Cause.OUT_OF_MEMORY, "MemoryError"),
        (OSError(28, "No space left on device"), Cause.DISK_FULL, "the disk is full"),
        (
            RuntimeError("[pair.cc:553] Connection closed by peer [10.0.0.2]:56753"),
            Cause.ERROR,
            "another process of the job ended first: [pair.cc:553] Connection closed by peer",
        ),
        (BrokenPipeError(32, "Broken pipe"), Cause.ERROR, "BrokenPipeError: [Errno 32] Broken pipe"),
        (
            ConnectionError("('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"),
            Cause.ERROR,
            "ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        ),
        (ValueError("odd"), Cause.CODE, "ValueError: odd"),
        (FileNotFoundError(2, "No such file", "rows.csv"), Cause.CODE, f"'rows.csv' (looked in {Path.cwd()})"),
        (
            subprocess.CalledProcessError(2, ["make", "data"]),
            Cause.SILENT,
            "its command 'make data' ended with exit code 2",
        ),
    ],
)
def test_a_failure_says_what_it_asks_of_the_launcher(error: Exception, cause: Cause, words: str) -> None:
    result, sentence = classify_failure(error)

    assert result is cause
    assert words in sentence


def test_a_missing_package_is_installed_where_the_job_runs() -> None:
    error = ModuleNotFoundError("No module named 'peft'", name="peft")

    assert classify_failure(error, runs_here=True)[1].endswith(f"install it for {sys.executable}")
    assert classify_failure(error)[1].endswith("or set sagemaker.training_image to an image that has it")


def test_a_cause_that_says_the_same_is_not_repeated() -> None:
    error = KeyError("label")
    error.__cause__ = KeyError("label")

    assert classify_failure(error) == (Cause.CODE, "KeyError: 'label'")


def test_a_full_disk_ends_with_the_exit_code_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path)
    folder.make()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Order, "read", full)
    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=full))  # the log is on the same disk

    assert job_process.main(folder) == errno.ENOSPC


def test_a_full_disk_does_not_fail_a_job_that_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path)
    folder.make()
    write_json(folder.document, order_of(JobSpec(), job_name="job").as_json())
    write_json(folder.resource_config, {"current_host": "a", "hosts": ["a"], "network_interface_name": "lo"})
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(device, "machine_faults", lambda spec: [])
    monkeypatch.setattr("paretune.training.job.train", lambda *_: True)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    try:
        assert job_process.main(folder) == 0
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


def test_a_training_stops_itself_at_its_deadline_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path)
    folder.make()
    limits = Limits(max_seconds=3600.0, deadline_s=0.05)
    order = order_of(JobSpec(instance_type="ml.g5.xlarge"), job_name="job", limits=limits)
    write_json(folder.document, order.as_json())
    hosts = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
    write_json(folder.resource_config, hosts)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(device, "machine_faults", lambda spec: [])

    def train(_order: Order, _folder: JobFolder, stop_requested: Callable[[], bool]) -> bool:
        wait_until(stop_requested, within_s=30, what="the deadline")
        return False

    monkeypatch.setattr("paretune.training.job.train", train)
    monkeypatch.setattr(job_process, "_end_all", lambda *_: None)
    try:
        assert job_process.main(folder) == 1
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)

    failure = folder.read_failure()
    assert failure is not None
    assert (failure.cause, failure.sentence[:22]) == (Cause.TIME_LIMIT, "the job stopped itself")
