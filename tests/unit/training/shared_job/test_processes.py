"""A shared job as a launcher starts it: `python -m paretune.training FOLDER`, in one process and in two."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from paretune.specification.container import FailureKind, JobFolder, write_json
from paretune.specification.job import JobSpec
from tests.unit.training.conftest import SPEC
from tests.unit.training.shared_job.test_trials import LORA, document_of, ends_of, events_of

pytestmark = pytest.mark.slow

TWO = replace(SPEC, instance_count=2, per_device_train_batch_size=2)


@contextmanager
def started(folder: JobFolder, *specs: JobSpec) -> Iterator[subprocess.Popen[str]]:
    write_json(folder.document, document_of(*specs).as_json())
    command = [sys.executable, "-m", "paretune.training", str(folder.root)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        try:
            yield job
        finally:
            job.kill()


def run(folder: JobFolder, *specs: JobSpec) -> int:
    with started(folder, *specs) as job:
        message, _ = job.communicate(timeout=120)
        print(message)
        return job.returncode


def test_two_processes_stop_together_go_on_together_and_fail_together(folder: JobFolder) -> None:
    request = folder.of_member("m0").stop_request
    request.parent.mkdir(parents=True)
    request.touch()
    impossible = replace(TWO, training_arguments={"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "no"})

    assert run(folder, TWO, replace(TWO, seed=1), impossible, TWO) == 1

    ends = ends_of(folder)
    assert list(ends) == ["m0", "m1", "m2"]
    assert ends["m0"].report is ends["m0"].failure is None
    assert 1 <= max(event.step for event in events_of(folder, "m0")) <= 2
    assert ends["m1"].report is not None
    assert ends["m1"].report.facts["steps"] == 6
    assert (folder.of_member("m1").model / "model.safetensors").is_file()
    assert ends["m2"].failure is not None
    assert ends["m2"].failure[0] is FailureKind.ERROR
    assert folder.read_failure() is not None
    assert not folder.report.exists()


def test_a_terminated_job_leaves_checkpoints_of_all_trials_side_by_side(folder: JobFolder) -> None:
    specs = [replace(LORA, lora_dropout=0.0, num_train_epochs=500.0, learning_rate=rate) for rate in (1e-4, 2e-4)]
    with started(folder, *specs) as job:
        deadline = time.monotonic() + 90
        while not any(event.step > 3 for event in events_of(folder, "m1")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)

    assert job.returncode == 0
    assert folder.stopped.exists()
    assert not ends_of(folder)
    for member in ("m0", "m1"):
        assert list(folder.of_member(member).checkpoints.glob("checkpoint-*/complete.json"))
