"""Environments in which jobs run, each with a user, a store, commands that can be killed, and checks of its records."""

import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.support.cloud import Cloud, spelled
from tests.support.faults.commands import Forked, begin
from tests.support.faults.oracle import Created, faults_of, local_jobs, sagemaker_job, simulated_jobs
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.stores import copy_store, user_s_own
from tests.support.tags import tags_of

SCRIPT = """
import argparse, json, os, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
arguments, _ = parser.parse_known_args()
out = Path(arguments.output_dir)
data = out.parent / "output" / "data"
with (out.parent / "output" / "begun").open("a") as notes:  # for the oracle
    print(os.getpid(), file=notes)
for step in range({steps}):
    print({{"loss": 1 / (step + 1)}}, flush=True)
    time.sleep({pause_s})
out.mkdir(exist_ok=True)
(out / "all_results.json").write_text(json.dumps({{"eval_f1": 0.5}}))
{ending}
"""
PROJECT = """
name: foreign
entry_points:
  main:
    command: "python train.py"
"""
FOREIGN = """
import time, mlflow
for step in range(5):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
    time.sleep(0.1)
"""
_TRACEBACK = re.compile("^Traceback", re.MULTILINE)  # only paretune's own, because the lines of jobs are indented
NEVER_CREATED_S = 700.0  # after this time, `sync` closes the run of a job that was never created


@dataclass
class World:
    """A user with a folder, a store, and one kind of job.

    Attributes:
        name: local, simulated, sagemaker, or project (an MLflow project that runs on SageMaker).
        job: parameters of the job.
        emulator: the AWS account, if there is one.
        attempts: how many jobs a run may have.
        may_fail: whether a run may be FAILED although its job did not fail, because its report cannot be read or its
            launcher failed.
        begun: the commands that were started.
        known: the jobs, once `faults` has checked their records.
    """

    name: str
    folder: Path
    environment: dict[str, str]
    job: dict[str, object] = field(default_factory=dict)
    emulator: Emulator | None = None
    attempts: int = 1
    may_fail: bool = False
    begun: list[Forked] = field(default_factory=list)
    known: list[Created] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """The paretune folder."""
        return self.folder / ".paretune"

    @property
    def client(self) -> MlflowClient:
        """Client of the store itself, even if a proxy is between the store and the commands."""
        return MlflowClient(f"sqlite:///{self.folder / 'mlflow.db'}")

    def open_run(self) -> str:
        """Open a run, as `mlflow run` does for a command, and return its id."""
        return str(self.client.create_run("0").info.run_id)

    def begin(self, run_id: str | None = None, **options: Any) -> Forked:
        """Start the job's command, for an existing run or for a new one."""
        custom = {"MLFLOW_RUN_ID": run_id} if run_id else {}
        return self.begin_words(["paretune", "train", *spelled(self.job)], custom, **options)

    def sync(self, within_s: float = 1200.0, **options: Any) -> str:
        """Run `sync` to its end, and return what it printed."""
        done = self.begin_words(["paretune", "sync"], **options)
        code = done.wait(within_s)
        assert code == 0, f"sync ended with {code}:\n{done.text}"
        assert not _TRACEBACK.search(done.text), done.text
        return done.text

    def recover(self) -> None:
        """Run `sync` until it has nothing to do.

        If some runs never got a job, run it at a later time, when they are old enough to be closed.
        """
        for _ in range(3):
            text = self.sync()
            if "nothing to do" in text or "another process" not in text:
                break
        if "nothing to do" not in self.sync():
            self.sync(ahead_s=NEVER_CREATED_S)
        text = self.sync()
        assert "nothing to do" in text, text

    @property
    def aws(self) -> Emulator:
        """The AWS account, in a world that has one."""
        assert self.emulator is not None
        return self.emulator

    def created(self) -> list[Created]:
        """Return all jobs that were created."""
        if self.emulator is None:
            return simulated_jobs(self.home) if self.name == "simulated" else local_jobs(self.home)
        emulator = self.emulator
        result = [sagemaker_job(emulator.described(name), emulator.job_folder(name)) for name in emulator.jobs()]
        return [replace(job, may_fail=self.may_fail) for job in result]

    def runs(self) -> list[Run]:
        """Return the runs of jobs."""
        result = self.client.search_runs(["0"], max_results=10_000)
        of_others = ("paretune.kind", "paretune.copied_from")
        return [run for run in result if not any(tags_of(run).get(name) for name in of_others)]

    def faults(self) -> list[str]:
        """Return the errors in the records, and the output of commands that printed a traceback."""
        self.known = self.created()
        result = faults_of(self.known, self.runs(), self.client, attempts=self.attempts)
        return result + [f"{done.log}: {done.text[-3000:]}" for done in self.begun if _TRACEBACK.search(done.text)]

    def write_script(self, *, steps: int = 20, pause_s: float = 0.1, ending: str = "") -> None:
        """Write the script that the job runs."""
        text = SCRIPT.format(steps=steps, pause_s=pause_s, ending=ending)
        (self.folder / "train.py").write_text(text)

    def end(self) -> None:
        """Kill all commands that are still running."""
        for done in self.begun:
            done.send(signal.SIGKILL)

    def begin_words(self, words: list[str], more: dict[str, str] | None = None, **options: Any) -> Forked:
        """Start any command."""
        done = begin(words, cwd=self.folder, environment=self.environment | (more or {}), **options)
        self.begun.append(done)
        return done


@dataclass
class Trial:
    """One random trial of a test: worlds with their own stores and accounts, and the faults that were caused in them.

    Attributes:
        draw: the random numbers by which a test chooses moments and cases.
        store: an empty MLflow store, which each world gets a copy of.
        root: the folder of the worlds.
        faults: descriptions of the faults that took effect.
        made: counts of kills, faults, jobs and runs in the worlds.
    """

    draw: random.Random
    store: Path
    root: Path
    faults: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)

    def count_fault(self, text: str, *, took_effect: bool = True) -> None:
        """Count a fault if it reached a command."""
        if took_effect:
            self.faults.append(text)
            self.made["faults"] += 1

    @contextmanager
    def world(self, name: str, disk_mib: int = 0, shown_after_s: float = 0.0) -> Iterator[World]:
        """Yield a world. After the block, `sync` recovers it, and its records are checked.

        `disk_mib` is the size of the disk with the user's folder; 0 for no separate disk. `shown_after_s` is the delay
        after which AWS shows a new job.
        """
        folder = self.root / name
        folder.mkdir()
        with ExitStack() as stack:
            if disk_mib:
                stack.enter_context(_disk(folder, disk_mib))
            environment = {
                text: value for text, value in os.environ.items() if not text.startswith(("AWS_", "MLFLOW_"))
            }
            environment |= user_s_own(folder) | {"MLFLOW_TRACKING_URI": copy_store(self.store, folder)}
            # MLflow retries at once, because pauses of seconds would only make the tests slower.
            environment |= {"MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0", "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0.05"}
            world = World(name, folder, environment)
            if name in ("sagemaker", "project"):
                world.emulator = stack.enter_context(Emulator(self.root / "account", shown_after_s=shown_after_s))
                world.environment = Cloud(world.emulator, folder, environment).environment
            _furnish(world)
            stack.callback(world.end)
            yield world
            world.recover()
            faults = world.faults()
            kills = sum(done.signals for done in world.begun)
            self.made.update(kills=kills, jobs=len(world.known), runs=len(world.runs()))
            assert not faults, "\n".join(faults)


@contextmanager
def _disk(folder: Path, size_mib: int) -> Iterator[None]:
    """Mount a separate disk at a folder."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs permission to mount one ({mounted.stderr.strip()}): run this test as root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _furnish(world: World) -> None:
    if world.name == "project":
        (world.folder / "project").mkdir()
        (world.folder / "project" / "MLproject").write_text(PROJECT)
        (world.folder / "project" / "train.py").write_text(FOREIGN)
        world.job = {"project": "project", "instance_type": "ml.m5.large", "max_runtime_minutes": 5}
    elif world.name == "simulated":
        world.job = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "num_train_epochs": 2}
    else:
        location = "local" if world.name == "local" else "ml.m5.large"
        world.job = {"instance_type": location, "entry_script": "train.py", "max_runtime_minutes": 10}
        world.write_script()
