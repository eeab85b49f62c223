"""Studies with `in_job: search` that are killed: `python -m tests.killed_searches KILLS SEED LAUNCHER`, in its folder.

Drivers, jobs on this machine, or both are killed at random moments. Drivers are forks, as in `killed_drivers`. A study
is repeated until it ends by itself, then judged, and another one with another name follows.
Printed after each study, as JSON: the kills by kind, the studies, and the defects that their records show.
"""

import gc
import itertools
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import psutil

from paretune.launchers.processes import Process
from paretune.ledger.trial_entry import TrialStatus
from paretune.specification.container import EventReader
from paretune.studies.search.split.in_job import RUNGS
from paretune.studies.search.trial_job import SEARCH
from tests.killed_drivers import _drive, _import_everything
from tests.unit.studies.search.split.test_in_job import write_curves

LOCAL = """
name: killed
job: {launcher: local, max_train_samples: 64, max_eval_samples: 32, num_train_epochs: 4, max_seq_length: 16}
search:
  per_device_train_batch_size: {choices: [8, 16]}
  learning_rate: {choices: [1e-5, 1e-4]}
n_trials: 4
in_job: search
"""
SIMULATED = """
name: killed
job: {launcher: simulated, recorded_runs: table.csv, dataset: someone/reviews, max_train_samples: 6400,
  instance_type: ml.g5.xlarge, num_train_epochs: 8}
search:
  per_device_train_batch_size: {choices: [32, 64]}
  learning_rate: {choices: [1e-5, 3e-5, 1e-4, 3e-4]}
n_trials: 8
budget_usd: 30
in_job: search
"""
LONGEST_S = {"local": 50.0, "simulated": 2.5}
"""Drivers are killed within so many seconds: processor time of those whose jobs are simulated, else wall time."""
_MOST_STARTS = 40  # of one study
_GOOD = {TrialStatus.COMPLETED, TrialStatus.STOPPED}


def main() -> None:
    """Kill studies, and judge what they have recorded."""
    kills, seed, launcher = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    write_curves(Path("table.csv"))
    Path("study.yaml").write_text(LOCAL if launcher == "local" else SIMULATED)
    _import_everything("study", ["study.yaml", *(["--launcher", "simulated"] if launcher == "local" else [])])
    draw, done, defects, number = random.Random(seed), Counter[str](), list[str](), 0
    _run(
        ["prepared", "--n_trials", "2"], draw, math.inf, launcher
    )  # the data, and the store, whose migration must not be killed
    while done.total() < kills:
        number += 1
        for start in range(_MOST_STARTS):
            may_kill = done.total() < kills and start < _MOST_STARTS - 1
            kind = _run([f"killed {number}"], draw, LONGEST_S[launcher] if may_kill else math.inf, launcher)
            if not kind:
                break
            done[kind] += 1
        defects += [f"study {number}: {text}" for text in _defects(f"killed {number}")]
        print(json.dumps({"killed": done, "studies": number, "defects": defects}), flush=True)


def _run(name: list[str], draw: random.Random, longest_s: float, launcher: str) -> str:
    """Run a driver until it ends or is killed within `longest_s`; returns what was killed, or an empty text.

    `name` is that of the study, with further words of its command.
    """
    child = os.fork()
    if child == 0:
        _drive(["study", "study.yaml", "--name", *name])
    kind = draw.choice(["driver", "job", "both"]) if launcher == "local" else "driver"
    clock = time.monotonic if launcher == "local" else lambda: psutil.Process(child).cpu_times().user
    if _ends_within(draw.uniform(0.0, 1.0) * longest_s, child, clock):
        return ""
    jobs = [] if kind == "driver" else _living_jobs()
    kind = kind if jobs else "driver"
    for job in jobs:
        job.kill_all()
    if kind == "job" and _ends_within(draw.uniform(0.0, 1.0) * longest_s, child, clock):  # the driver went on
        return kind
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "job and driver" if kind == "job" else kind


def _ends_within(seconds: float, child: int, clock: Callable[[], float]) -> bool:
    """Whether a driver ends by itself within so many seconds of a clock."""
    until = clock() + seconds
    while clock() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def _living_jobs() -> list[Process]:
    """The processes of jobs on this machine that run."""
    texts = [path.read_text() for path in Path(".paretune/jobs").glob("*/process.json")]
    processes = [Process(*json.loads(text)["process"]) for text in texts if text]
    return [process for process in processes if process.is_living()]


def _defects(study: str) -> list[str]:
    """What the ledger of a study shows that must not be: trials that ran twice, shares that miss the bill."""
    from paretune.jobs.workplace import Workplaces
    from paretune.launchers.shared_jobs import split_job_name
    from paretune.ledger.study_ledger import StudyLedger
    from paretune.specification.job import JobSpec
    from paretune.tracking import schema

    workplaces = Workplaces.of_process()
    defects = []
    with closing(StudyLedger(f"sqlite:///{Path('.paretune/studies.db').resolve()}", study)) as ledger:
        entries = ledger.booked(0)
        if ledger.running():
            defects.append(f"{len(ledger.running())} trials were not booked")
    spec = JobSpec.from_text(entries[0].parameters)
    workplace = workplaces.of(spec)
    done = Counter(entry.identity for entry in entries if entry.end is not None and not entry.end.retryable)
    defects += [f"{count} trials of one job" for count in done.values() if count > 1]
    ends = [entry.end for entry in entries if entry.note.kind == SEARCH and entry.end is not None]
    failed = [end.reason for end in ends if not end.retryable and end.status not in _GOOD]
    defects += [f"a trial of the job that searched failed: {reason}" for reason in failed]
    shares = sum(entry.booked_usd or 0.0 for entry in entries)
    runs = {run.run_id: run.tags for run in workplace.tracking.runs("")}
    names = {
        split_job_name(runs[entry.run_id].get(schema.JOB_NAME, ""))[0] for entry in entries if entry.run_id in runs
    }
    firsts = {name.rpartition("-")[0] for name in names if name}
    jobs = [
        job
        for first in firsts
        for attempt in range(1, 60)
        if (job := workplace.launcher.attach(f"{first}-{attempt}")) is not None
    ]
    price = workplace.launcher.price(spec)
    billed = sum(job.billable_seconds() for job in jobs) * (price.usd_per_hour if price is not None else 0.0) / 3600
    if abs(billed - shares) > 0.005:
        defects.append(f"shares {shares:.4f} USD, billed {billed:.4f} USD")
    if abs(billed - shares) > 1e-6 * max(1.0, billed):
        defects.append(f"not exact: shares {shares:.8f} USD, billed {billed:.8f} USD")
    for first in firsts:
        defects += _lost(
            [Path(f".paretune/jobs/{first}-{attempt}/output/data/events.jsonl") for attempt in range(1, 60)]
        )
    return defects


def _lost(attempts: Iterable[Path]) -> Iterator[str]:
    """Trials of a job on this machine that had to train more than one rung again after an attempt of it had died."""
    trained: dict[str, int] = {}
    for path in attempts:
        starts = set[str]()
        for event in EventReader(path).new() if path.exists() else ():
            member, total = event.member, event.total_steps
            if not member or not event.metrics or total is None:
                continue
            if member not in starts:
                starts.add(member)
                start, done = event.step - 1, trained.get(member, 0)
                ends = [0, *(math.ceil(share * total) for share in RUNGS)]
                again = sum(end > start and begin < done for begin, end in itertools.pairwise(ends))
                if again > 1:
                    yield f"trial {member} trained {done} steps, and went on after {start}"
            trained[member] = max(trained.get(member, 0), event.step)


if __name__ == "__main__":
    gc.freeze()
    main()
