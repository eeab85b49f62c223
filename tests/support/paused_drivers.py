"""Pauses and then kills the driver of a study at each step of a trial.

Run it with `python -m tests.support.paused_drivers [STEP ...]` in an empty folder. Without step numbers, it begins with
step 1 and continues until a study ends before the next step.

The study's first point runs out of memory. At each step:

1. the driver is paused, and `sync` runs as if cron had started it on another machine. It may record the end of a job,
   but nothing else;
2. the driver is killed, and `sync` runs on the driver's machine, then on another one;
3. the same command continues the study to its end.

For each step, the program prints a line of JSON with the step's name and everything that is wrong with records and
jobs.
"""

import contextlib
import gc
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from paretune.cli import main as command_line
from tests.support.faults.oracle import simulated_jobs
from tests.support.study_tables import records_of

TABLE = """instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status
ml.g5.xlarge,1,16,1e-5,,,OutOfMemory
ml.g5.xlarge,1,8,1e-5,600,0.9,Completed
"""
STUDY = """name: paused
job: {launcher: simulated, instance_type: ml.g5.xlarge, simulation.runs: runs.csv, learning_rate: 1e-5,
  max_runtime_minutes: 15}
search:
  per_device_train_batch_size: {choices: [8, 16]}
objectives: {cost_usd: minimize, f1: maximize}
sampler: grid
budget_usd: 0.5  # for these two jobs, and not for a third
"""
BUDGET_USD = 0.5
WORDS = ["study", "--study", "study.yaml", "--n_parallel", "1"]


def main() -> None:
    """Pause and kill a driver at each step, and print the results."""
    with user_s_folder(), contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(sys.stdout):
        command_line(WORDS)  # so that late imports are done before the forks
        command_line(["sync"])
    gc.freeze()
    for step in [int(word) for word in sys.argv[1:]] or itertools.count(1):
        with user_s_folder():
            name, faults = at_step(step)
        if not name:
            break
        print(json.dumps({"step": step, "name": name, "faults": faults}), flush=True)


def at_step(step: int) -> tuple[str, list[str]]:
    """Return a step's name, and everything that goes wrong there. The name is empty if the study ends first."""
    read_end, write_end = os.pipe()
    driver = fork(lambda: drive(step, write_end))
    os.close(write_end)
    name = os.read(read_end, 100).decode()
    os.close(read_end)
    if not name:
        os.waitpid(driver, 0)
        return "", []
    before, statuses = created(), {run_id: status for run_id, (status, _) in runs().items()}
    faults = [f"sync while the driver was alive: {text}" for text in sync("cron")]
    if created() != before:  # sync may record the end of a job, and nothing else
        faults.append(f"sync launched jobs while the driver was alive: {before} are now {created()}")
    for run_id, (status, _) in runs().items():
        if status != statuses[run_id] and not any(run_id in job for job in before):
            faults.append(f"sync, while the driver was alive, closed {run_id}, whose job is about to be created")
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    recorded = runs()
    for host in ("", "cron"):
        faults += [f"sync on host {host}: {text}" for text in sync(host)]
    faults += lowered(recorded)
    recorded = runs()
    if code := end_of(fork(lambda: command_line(WORDS))):
        faults.append(f"the study has ended with {code}: {Path('printed').read_text()[-2000:]}")
    return name, [*faults, *lowered(recorded), *final_faults()]


def lowered(before: dict[str, tuple[str, float]]) -> list[str]:
    """Return a fault for each run whose recorded dollars are now less than before."""
    now = runs()
    return [f"run {run_id} was lowered to {now[run_id]}" for run_id, (_, usd) in before.items() if now[run_id][1] < usd]


def drive(step: int, write_end: int) -> int:
    """Run the command, and pause it forever at a step, which is just before or after one of its writes.

    The step's name is written to `write_end`.
    """
    from paretune.jobs import outcome
    from paretune.jobs.record import JobRecord
    from paretune.launchers.simulated.launcher import SimulatedLauncher
    from paretune.studies.search.table import StudyTable
    from paretune.tracking.store import Tracking

    left = [step]

    def pause(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.write(write_end, name.encode())
            signal.pause()

    def stepwise(owner: Any, method: str) -> None:
        original = getattr(owner, method)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            pause(f"before {owner.__name__}.{method}")
            result = original(*arguments, **options)
            pause(f"after {owner.__name__}.{method}")
            return result

        setattr(owner, method, wrapped)

    for method in ("ask", "save", "tell"):
        stepwise(StudyTable, method)
    stepwise(Tracking, "create")
    stepwise(JobRecord, "name_attempt")
    stepwise(SimulatedLauncher, "submit")
    stepwise(outcome, "close_run")
    return command_line(WORDS)


def sync(host: str) -> list[str]:
    """Run `sync` as if on the machine `host` (if it is empty, on this machine), and return a fault if `sync` failed."""

    def command() -> int:
        if host:
            socket.gethostname = lambda: host
        return command_line(["sync"])

    code = end_of(fork(command))
    text = Path("printed").read_text()
    return [f"exit code {code}: {text[-2000:]}"] if code or "Traceback" in text else []


def created() -> list[str]:
    """Return the names of the jobs that were created."""
    return [job.name for job in simulated_jobs(Path(".paretune"))]


def runs() -> dict[str, tuple[str, float]]:
    """Return the status and the dollars of each trial's run."""
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    found = client.search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    return {run.info.run_id: (run.info.status, run.data.metrics.get("cost_usd", 0.0)) for run in found}


def final_faults() -> list[str]:
    """Return everything that is wrong with jobs, trials and dollars after the study has ended."""
    jobs = {job.name: job.usd or 0.0 for job in simulated_jobs(Path(".paretune"))}
    faults = [f"{sum(jobs.values())} USD were billed, budget {BUDGET_USD}"] if sum(jobs.values()) > BUDGET_USD else []
    faults += [f"{name} was launched after {name.rpartition('-')[0]}-1" for name in jobs if not name.endswith("-1")]
    running, ended, balance = records_of("study.yaml", "sqlite:///.paretune/studies.db")
    ends = [trial.status.value for trial in ended]
    if running or len(jobs) != len(ended) or ends.count("OutOfMemory") != 1:
        faults.append(f"{len(jobs)} jobs for {len(ended)} trials, which have ended {ends}, and {len(running)} run")
    if balance.committed_usd or abs(balance.spent_usd - sum(jobs.values())) > 1e-6:
        faults.append(f"{balance} of {jobs}")
    recorded = runs()
    for trial in ended:
        status, recorded_usd = recorded.get(trial.run_id, ("", 0.0))
        billed_usd = sum(usd for name, usd in jobs.items() if name.startswith(f"paretune-{trial.run_id}-"))
        if status not in {"FINISHED", "FAILED", "KILLED"}:
            faults.append(f"trial {trial.number} has not ended: {status}")
        elif max(abs((trial.cost_usd or 0.0) - billed_usd), abs(recorded_usd - billed_usd)) > 1e-6:
            faults.append(f"trial {trial.number}: {trial.cost_usd}, run {recorded_usd}, billed {billed_usd} USD")
    return faults


def fork(command: Callable[[], int]) -> int:
    """Run a command in a child process, with its output in the file `printed`, and return the process id."""
    child = os.fork()
    if child:
        return child
    code = 70
    with open("printed", "w", buffering=1) as log, contextlib.suppress(BaseException):
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = log
        try:
            code = command()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc(file=log)
        log.flush()
    os._exit(code)


def end_of(child: int) -> int:
    """Wait for the end of a child process, and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def user_s_folder() -> Iterator[None]:
    """Work in a new folder with a study and a store."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, contextlib.chdir(folder):
        Path("runs.csv").write_text(TABLE)
        Path("study.yaml").write_text(STUDY)
        os.environ |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "PARETUNE_HOME": f"{folder}/.paretune"}
        yield


if __name__ == "__main__":
    main()
