"""The instances of a SageMaker job without SageMaker: each is a job folder and a process on the loopback network."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from paretune.launchers.offers import order_of
from paretune.specification.container import EventReader, JobFolder, JobReport, write_json
from paretune.specification.job import JobSpec
from tests.support.fork_server import started
from tests.support.processes import wait_until

SOURCE = Path(__file__).parents[2] / "src"


def make_job(root: Path, spec: JobSpec, *, inputs: JobFolder | None = None) -> JobFolder:
    """Return a job folder with everything that `paretune.training` reads, as a launcher would create it.

    The job is prepared, unless it trains the rows and the model of `inputs`, a job that differs only in its cluster.
    """
    if inputs is None:
        request, answer = root.with_suffix(".request"), root.with_suffix(".answer")
        request.write_text(json.dumps(spec.as_text()))
        words = [
            sys.executable,
            "-m",
            "paretune.training.prepare",
            str(request),
            str(root.parent / "data"),
            str(answer),
        ]
        with root.with_suffix(".log").open("wb") as log:
            process = started(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        assert process.wait() == 0, Path(log.name).read_text()
        made = json.loads(answer.read_text())
        dataset, model = Path(made["dataset"]), Path(made["model"])
    else:
        dataset, model = inputs.dataset.resolve(), inputs.model_source.resolve()
    folder = JobFolder(root)
    folder.make()
    write_json(folder.document, order_of(spec, job_name=root.name).as_json())
    for link, target in ((folder.dataset, dataset), (folder.model_source, model)):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    return folder


def instances_of(job: JobFolder, count: int) -> list[JobFolder]:
    """Return copies of the job's folder for `count` instances, whose host names are loopback addresses."""
    names = [f"127.0.0.{number + 1}" for number in range(count)]
    folders = []
    for number, name in enumerate(names):
        root = job.root.with_name(f"{job.root.name}-{number + 1}")
        shutil.copytree(job.root, root, symlinks=True)
        folder = JobFolder(root)
        hosts = {"current_host": name, "hosts": names, "network_interface_name": "lo"}
        write_json(folder.resource_config, hosts)
        folders.append(folder)
    return folders


def copy_checkpoints_to_all(folders: Sequence[JobFolder]) -> None:
    """Copy checkpoints as SageMaker does through S3 between attempts: every instance gets all files and loses none."""
    for source in folders:
        for target in folders:
            if target != source and source.checkpoints.exists():
                shutil.copytree(source.checkpoints, target.checkpoints, dirs_exist_ok=True)


@contextmanager
def running(
    folders: Sequence[JobFolder], *, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Start the processes of the instances, yield them, and kill them after the block."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    values = {name: value for name, value in os.environ.items() if not name.endswith("_SOCKET_IFNAME")}
    values |= {"SM_MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    values |= {} if python == sys.executable else {"PYTHONPATH": str(SOURCE)}
    values["PARETUNE_STARTER"] = str(os.getpid())  # so that the processes end if the test is killed
    values |= environment or {}
    processes = []
    try:
        for folder in folders:
            with folder.log.open("ab") as log:
                words = [python, "-m", "paretune.training", str(folder.root)]
                options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                # With the same host id, NCCL refuses two processes on one GPU.
                options["env"] = values | {"NCCL_HOSTID": folder.root.name}
                processes.append(started(words, start_new_session=True, **options))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(folders: Sequence[JobFolder], **options: Any) -> None:
    """Run the job to its end, and fail unless every instance ends with exit code 0."""
    with running(folders, **options) as processes:
        codes = [process.wait(240) for process in processes]
    assert codes == [0] * len(folders), "\n".join(folder.log.read_text()[-3000:] for folder in folders)


def wait_for_step(folder: JobFolder, step: int) -> None:
    """Wait until the training has recorded values at `step` or a later step."""
    wait_until(lambda: any(at >= step for at, _ in curves(folder)), within_s=120, what=f"step {step} is done")


def curves(folder: JobFolder) -> dict[tuple[int, str], float]:
    """Return all recorded values by step and name, except speeds, epochs and the load of the machine."""
    return {
        (event.step, name): value
        for event in EventReader(folder.events).new()
        for name, value in event.metrics.items()
        if not name.startswith("system/") and not name.endswith(("_per_second", "epoch"))
    }


def messages(folder: JobFolder) -> list[str]:
    """Return the messages that the job has written for its user."""
    return [event.message for event in EventReader(folder.events).new() if event.message]


def model_without_dropout(model: Path, folder: Path) -> Path:
    """Copy a model to `folder` and turn off its dropout, whose random numbers would differ between processes."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop")
    (folder / "config.json").write_text(json.dumps(config | {name: 0.0 for name in names if name in config}))
    return folder


def weights_of(folder: JobFolder) -> dict[str, np.ndarray]:
    """Return the weights of the model that a job saved, by name."""
    return {name: item for path in folder.model.glob("*.safetensors") for name, item in load_file(path).items()}


def check_it_is_the_same_training(job: JobFolder, expected: JobFolder) -> None:
    """Check that a job has the same curves, results and weights as the job `expected`, within rounding errors."""
    assert curves(job) == pytest.approx(curves(expected), rel=2e-3, abs=1e-5)
    report, other = (JobReport.model_validate_json(folder.report.read_text()) for folder in (job, expected))
    for name in {"eval_loss", "f1", "trainable_parameters", "total_parameters"} & other.metrics.keys():
        assert report.metrics[name] == pytest.approx(other.metrics[name], rel=2e-3), name
    assert report.confusion_matrix == other.confusion_matrix
    check_weights(job, expected)


def check_weights(job: JobFolder, expected: JobFolder) -> None:
    """Check that a job has the same weights as the job `expected`, within rounding errors."""
    weights, others = weights_of(job), weights_of(expected)
    assert {name: item.shape for name, item in weights.items()} == {name: item.shape for name, item in others.items()}
    for name, item in weights.items():
        assert item == pytest.approx(others[name], abs=1e-4), name
