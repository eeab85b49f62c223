"""Jobs as batch jobs of Slurm, in folders of a file system that all nodes share.

    HOME/slurm/NAME/                    the folder of a job (container.JobFolder), which the job writes into
    HOME/launched/NAME/                 what this launcher knows of the job:
    HOME/launched/NAME/batch.sh         what Slurm runs: `node.py` on each node
    HOME/launched/NAME/order.json       the MLflow run, the time limit and the request of the job
    HOME/launched/NAME/batch-job        id of the batch job, from the response of sbatch
    HOME/launched/NAME/owner/batch-job  id of the first batch job that has started; others of this name end at once
    HOME/launched/NAME/stop             exists once the job has been asked to stop
    HOME/launched/NAME/end.json         how the job ended; written once, by the first process that notices the end
    HOME/checkpoints/RUN/               checkpoints of a run, from which its next attempt continues

The state of a job is the state of its batch job according to sacct, so Slurm needs its accounting (slurmdbd). When the
batch job reaches its limit or is stopped, it gets SIGTERM, writes a checkpoint, and ends.
"""

import fcntl
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, LaunchRefused, LostContact, refuse
from paretune.core.packages import can_be_imported
from paretune.core.shell import command_line
from paretune.launchers.base import JobStatus, Launcher, Surroundings, checkpoint_folder
from paretune.launchers.job_folder import FolderJob, fill
from paretune.launchers.offers import usual_price
from paretune.pricing import PriceList
from paretune.specification import catalog
from paretune.specification.container import (
    JobFolder,
    write_json,
    write_json_once,
)
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, cut_off, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.price import Price
from paretune.specification.rules import launch_faults
from paretune_slurm import TRAITS
from paretune_slurm.node import record_of

GRACE_S = 120  # from SIGTERM until Slurm kills what still runs; training/processes.py kills its workers after 110
_ASK_EVERY_S = 2.0  # between two calls of sacct for a job: the accounting serves the whole cluster
_ANSWER_WITHIN_S = 60.0  # of Slurm's commands
_SINCE = "now-30days"  # sacct shows only the jobs of today without it; a search of all years may take minutes
_READ_LINES = 200  # lines of the log in which the reason of a silent end is searched
_FIELDS = ("JobIDRaw", "State", "Start", "End", "ExitCode")
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESIZING")
_RUNS = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_CAUSES = {
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "NODE_FAIL": Cause.INTERNAL,
    "BOOT_FAIL": Cause.INTERNAL,
    "PREEMPTED": Cause.INTERNAL,
}
"""The causes of states of sacct. All other states are errors."""
_UNANSWERED = re.compile("timed out|zero bytes|receive failure|connection reset", re.IGNORECASE)
"""Parts of sbatch's messages if slurmctld got the request and did not answer; Slurm may have created the job."""
BATCH = """#!/bin/bash
# Slurm runs this on the first node of the job {name}.
folder={folder}
record={record}
# A job that was submitted twice, because the response of sbatch was lost, runs once.
mkdir "$record/owner" 2>/dev/null && echo "$SLURM_JOB_ID" > "$record/owner/batch-job"
[ "$(cat "$record/owner/batch-job" 2>/dev/null)" = "$SLURM_JOB_ID" ] || exit 0
{exports}
export SM_MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
hosts=localhost
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
fi
exec srun --kill-on-bad-exit=1 {node} "$hosts" "$folder" {words}
"""


class SlurmJob(FolderJob):
    """A batch job."""

    def __init__(self, name: str, root: Path, number: str, clock: Clock, slurm: "Slurm") -> None:
        super().__init__(name, root)
        self.number, self._clock, self._slurm = number, clock, slurm
        self._asked_at, self._row = -math.inf, dict[str, str]()
        self._record = record_of(root)
        self._stop, self._end = self._record / "stop", self._record / "end.json"
        self._order: dict[str, Any] = json.loads((self._record / "order.json").read_text())

    @property
    def run_id(self) -> str:
        return str(self._order["run_id"])

    def state(self) -> JobState:
        if self._end.exists():
            return self._ending().state
        state = self._accounted()["State"]
        if state in (*_WAITS, *_RUNS):
            if not self._stop.exists():
                return JobState.RUNNING
            if self._clock.now() - self._stop.stat().st_mtime > GRACE_S:
                self._slurm.cancel(self.number)
            return JobState.STOPPING
        row = self._accounted()
        ended_at = float(row["End"]) if row["End"].isdigit() else self._clock.now()
        end = {**self._ended(state).as_json(), "seconds": self._seconds(row), "time": ended_at}
        write_json_once(self._end, end)
        return self._ending().state

    def stop(self) -> None:
        """Send the training a signal, so that it writes a checkpoint; cancel a job that still waits for nodes."""
        if not self.state().is_terminal and not self._stop.exists():
            self._stop.touch()
            self._slurm.cancel(self.number, "--state=PENDING")
            self._slurm.cancel(self.number, "--signal=TERM")

    def status(self) -> JobStatus:
        facts = {"slurm_job": self.number}
        if not self.state().is_terminal:
            seconds = self._seconds(self._accounted())
            return JobStatus(seconds=seconds, billable_seconds=seconds, facts=facts)
        end, ending = self._read_end(), self._ending().explained(self.log_tail(_READ_LINES))
        return JobStatus(
            ending=ending,
            seconds=end["seconds"],
            billable_seconds=end["seconds"],
            ended_at=end["time"],
            report=self.report() if ending.has_completed else None,
            partial=None if ending.has_completed else self.partial_report(),
            facts=facts,
            model=str(self.folder.model) if ending.has_completed and any(self.folder.model.glob("*")) else "",
        )

    def detail(self) -> str:
        return "" if self._end.exists() else self._accounted()["State"].capitalize()

    def _accounted(self) -> dict[str, str]:
        """Return what Slurm's accounting says of the batch job that trains.

        If the job was submitted twice, because the response of sbatch was lost, that is the one that started first.
        """
        with suppress(OSError):
            owner = (self._record / "owner" / "batch-job").read_text().strip()
            if owner and owner != self.number:
                self.number, self._row, self._asked_at = owner, {}, -math.inf
        if self._clock.monotonic() - self._asked_at >= self._slurm.ask_every_s:
            self._row = self._slurm.accounted(self.number) or self._row
            self._asked_at = self._clock.monotonic()
        return self._row or {"State": "PENDING", "Start": "", "End": ""}  # sacct shows a new job with a delay

    def _seconds(self, row: Mapping[str, str]) -> float:
        """Return the whole seconds since the job got its nodes, until its end or until now."""
        if not row["Start"].isdigit():
            return 0.0
        until = int(row["End"]) if row["End"].isdigit() else int(self._clock.now())
        return float(max(0, until - int(row["Start"])))

    def _ended(self, state: str) -> Ending:
        row = self._accounted()
        if state == "COMPLETED" and self.report() is not None:
            return COMPLETED
        if self._stop.exists():
            return STOPPED
        if state.startswith("CANCELLED"):
            return Ending(JobState.STOPPED, Cause.ERROR, f"Slurm says that it was {state.lower()}")
        says = f"Slurm says {state} (exit code {row.get('ExitCode', '')}) of batch job {self.number}"
        cause, limit_s = _CAUSES.get(state, Cause.ERROR), float(self._order["max_seconds"])
        if cause is Cause.INTERNAL:  # before the limit: a preempted training also stops with a checkpoint
            return failed(cause, says)
        if state == "TIMEOUT" or self.folder.stopped.exists() or self._seconds(row) >= limit_s:
            return cut_off(f"it ran longer than {limit_s / 60:g} minutes")
        return self.folder.read_failure() or failed(cause, says)

    def _ending(self) -> Ending:
        return Ending.from_json(self._read_end())

    def _read_end(self) -> dict[str, Any]:
        end: dict[str, Any] = json.loads(self._end.read_text())
        return end


class Slurm:
    """The commands of Slurm, run with `environment`. Raises LostContact if one does not answer, or if sacct fails."""

    def __init__(self, environment: Mapping[str, str], ask_every_s: float = _ASK_EVERY_S) -> None:
        self._environment = {**environment, "SLURM_TIME_FORMAT": "%s"}  # seconds since the epoch
        self.ask_every_s = ask_every_s

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command; the caller checks its exit code."""
        try:
            return subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=self._environment,
                timeout=_ANSWER_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LostContact(f"{words[0]} does not answer ({error}): log in to the cluster and try again") from error

    def accounted(self, number: str = "", name: str = "") -> dict[str, str] | None:
        """Return what sacct shows for the batch job with an id, or for the first with a name; None without one.

        Jobs that ended over 30 days ago are found only by their ids.
        """
        which = ("-j", number) if number else ("--name", name, "--starttime", _SINCE)
        columns = f"--format={','.join(_FIELDS)}"
        done = self.run("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", columns, *which)
        if done.returncode:
            raise LostContact(f"sacct failed: {done.stderr.strip()}")
        rows = [dict(zip(_FIELDS, line.split("|"), strict=False)) for line in done.stdout.splitlines() if line]
        return rows[0] if rows else None

    def cancel(self, number: str, *options: str) -> None:
        """Cancel a batch job, or signal it; a job that has just ended is not an error."""
        self.run("scancel", *options, number)

    def submit(self, words: list[str]) -> str:
        """Run sbatch, and return the id of the batch job.

        Raises LaunchRefused with Slurm's reason, and LostContact if the job may have been created.
        """
        done = self.run("sbatch", "--parsable", *words)
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        if done.returncode and _UNANSWERED.search(reason):
            hint = f"the job may have been created: `{command_line('sync')}` finds it"
            raise LostContact(f"sbatch got no answer ({reason}): {hint}")
        if done.returncode:
            raise LaunchRefused(f"sbatch refuses the job: {reason}")
        return done.stdout.strip().partition(";")[0]


class SlurmLauncher(Launcher):
    """Submits jobs with sbatch; `home` must be on a file system that all nodes share."""

    traits = TRAITS
    stop_s = GRACE_S + 60.0  # Slurm rounds the sum of the limit and GRACE_S up to whole minutes

    def __init__(self, home: Path, clock: Clock, environment: Mapping[str, str], *, ask_every_s: float = 2.0) -> None:
        self._home, self._clock = home.resolve(), clock
        self._environment = {name: value for name, value in environment.items() if not name.startswith("MLFLOW_")}
        self._slurm = Slurm(self._environment, ask_every_s)

    @classmethod
    def open(cls, surroundings: Surroundings) -> "SlurmLauncher":
        return cls(surroundings.home, surroundings.clock, surroundings.environment)

    def location_tags(self) -> Mapping[str, str]:
        return {"slurm_home": str(self._home)}  # so that equal jobs of other folders have other names

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        """Return nothing, because the options of sbatch follow from the order. Raises BadInput with all faults."""
        faults = launch_faults(spec)
        path = self._environment.get("PATH", os.defpath)
        if missing := [name for name in ("sbatch", "sacct", "scancel") if shutil.which(name, path=path) is None]:
            faults.append(f"{', '.join(missing)} must be on the PATH: run paretune on a login node of the cluster")
        if spec.project is not None and spec.instance_count > 1:
            faults.append(f"instance_count must be 1 for a project on Slurm, got {spec.instance_count}")
        if spec.reads_secrets and not can_be_imported("boto3"):
            faults.append("environment has an AWS secret, and boto3 is not installed here: install it")
        refuse(faults)
        return {}

    def submit(self, order: Order) -> SlurmJob:
        root = self._home / "slurm" / order.job_name
        record = record_of(root)
        for folder in (root, record):
            folder.mkdir(parents=True, exist_ok=True)
        with (record / "lock").open("w") as lock:  # excludes other processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (existing := self.attach(order.job_name)) is not None:
                return existing
            number = self._slurm.submit(self._batch(root, record, order))
            (record / "batch-job").write_text(number)
        return SlurmJob(order.job_name, root, number, self._clock, self._slurm)

    def attach(self, job_name: str) -> SlurmJob | None:
        """Return the job with this name, or None if Slurm has none.

        Raises LostContact if the job has no folder in this PARETUNE_HOME, and ran in the last 30 days.
        """
        root = self._home / "slurm" / job_name
        record = record_of(root)
        known = [path for path in (record / "owner" / "batch-job", record / "batch-job") if path.is_file()]
        number = known[0].read_text().strip() if known else ""
        if not number and (row := self._slurm.accounted(name=job_name)) is not None:
            number = row["JobIDRaw"]
            if not root.is_dir():
                raise LostContact(
                    f"{job_name} is batch job {number} of Slurm, but its files are not in {root}: set PARETUNE_HOME as "
                    "it was when the job was launched; if the files were removed, create this folder, and "
                    f"`{command_line('sync')}` closes the run"
                )
            if not (record / "order.json").is_file():
                return None  # the files were removed; with them, the answer of sbatch was lost
        return SlurmJob(job_name, root, number, self._clock, self._slurm) if number else None

    def request_of(self, job_name: str) -> str:
        kept = record_of(self._home / "slurm" / job_name) / "order.json"
        return str(json.loads(kept.read_text())["request"]) if kept.is_file() else ""

    def price(self, spec: JobSpec) -> Price | None:
        return usual_price(spec, self._prices, self._environment)

    def preview(self, order: Order) -> Mapping[str, Any]:
        root = self._home / "slurm" / order.job_name
        return {"sbatch": shlex.join(["sbatch", "--parsable", *_options(root, record_of(root), order)])}

    def _batch(self, root: Path, record: Path, order: Order) -> list[str]:
        """Fill the folder of the job, write its batch script, and return the arguments of sbatch."""
        instance = catalog.instance(order.offer.instance_type)
        try:
            command = fill(
                JobFolder(root),
                order,
                checkpoints=self._home / "checkpoints" / checkpoint_folder(order),
                gpus=instance.accelerator_count,
                cores=instance.vcpus,
                path=self._environment.get("PATH", os.defpath),
            )
        except OSError as error:
            raise BadInput(
                [f"the job's folder {root} cannot be written ({error.strerror}): make room there"]
            ) from error
        variables = {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", **command.variables}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        text = BATCH.format(
            name=order.job_name,
            folder=shlex.quote(str(root)),
            record=shlex.quote(str(record)),
            exports="\n".join(exports),
            node=shlex.join([sys.executable, "-m", "paretune_slurm.node"]),
            words=shlex.join(command.words),
        )
        (record / "batch.sh").write_text(text)
        kept = {"run_id": order.run_id, "max_seconds": order.max_seconds, "request": order.request}
        write_json(record / "order.json", kept)
        return _options(root, record, order)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)


def _options(root: Path, record: Path, order: Order) -> list[str]:
    """Return the arguments of sbatch. The time limit is that of the attempt, plus GRACE_S for its checkpoint."""
    row = next(row for row in catalog.rows() if row["instance_type"] == order.offer.instance_type)
    minutes, seconds = divmod(math.ceil(order.max_seconds) + GRACE_S, 60)
    return [
        f"--job-name={order.job_name}",
        f"--nodes={order.offer.instance_count}",
        "--ntasks-per-node=1",
        f"--time={minutes}:{seconds:02}",
        f"--signal=TERM@{GRACE_S}",
        "--no-requeue",  # paretune decides whether there is another attempt
        "--open-mode=append",
        f"--output={JobFolder(root).log}",
        *shlex.split(row.get("sbatch_options") or ""),
        str(record / "batch.sh"),
    ]
