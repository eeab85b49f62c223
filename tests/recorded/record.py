"""Record folders with version 0.3.3: `python -m tests.recorded.record [NAME...]`, all of them by default.

Run it with the version whose folders are wanted, never with a later one: the archives beside this file are of 0.3.3
(`git log` names the commit that has added them), and later versions must open them as they are. Commands are started as
a user starts them, and killed (SIGKILL) at a moment that is looked for in the databases. The folders are:

    interrupted    a study of 8 trials, killed when 3 were booked, one ran, and one was reserved and had no run yet
    finished       the same study, gone on with to its end
    round          a study in rounds, killed within a round: its lease is held, jobs are under way
    rounds_ended   the same study, played to its end, which is noted down
    month          budgets of a month: a job that is booked, one whose launcher was killed, and a study that was killed
    jobs           single jobs: completed, failed, and one whose launcher was killed
    ledger_0       as interrupted, by a commit before the ledger's tables had versions
    month_1        as month, by a commit that wrote version 1 of the tables of budgets

The last two are recorded only where they are named: check out the commit that EARLIER names elsewhere, and put its src
first on PYTHONPATH.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tests.recorded import pack

TYPES, COUNTS, BATCHES, RATES = ("ml.g5.xlarge", "ml.g6.xlarge"), (1, 2), (8, 16, 32), (1e-5, 3e-5, 1e-4)
EARLIER = {"ledger_0": "f4a5206", "month_1": "427e5fa"}
"""Folder to the commit that has written it."""
TEAM = {
    "budgets": [
        {"name": "all", "usd_per_month": 20},
        {"name": "nlp", "usd_per_month": 8, "tags": {"team": "nlp"}},
    ]
}
OF_THE_TEAM = ("--tags", '{"team": "nlp"}', "--budget", "team.yaml", "--user", "ana")
COMMAND = "import sys; from paretune.cli.main import main; sys.exit(main(sys.argv[1:]))"
OPEN = "SELECT run_id FROM paretune_ledger WHERE ended IS NULL"
BOOKED = "SELECT run_id FROM paretune_ledger WHERE ended IS NOT NULL"


def main() -> None:
    """Record the folders that are named."""
    made = {"interrupted": interrupted, "round": in_rounds, "month": month, "jobs": jobs}
    made |= {"ledger_0": interrupted, "month_1": month}
    for name in sys.argv[1:] or [name for name in made if name not in EARLIER]:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent, "place").resolve()
            folder.mkdir()
            made[name](folder, name)


def interrupted(folder: Path, name: str) -> None:
    """`interrupted` and `finished`; of an earlier version the first one only."""
    write_study(folder, n_trials=8, method="joint", sampler="random")
    words = ("study", "--study", "study.yaml")

    def is_moment() -> bool:
        run_ids = [run_id for (run_id,) in rows(folder, OPEN)]
        booked = rows(folder, BOOKED)
        return len(booked) >= 3 and "" in run_ids and any(has_job(folder, run_id) for run_id in run_ids if run_id)

    require(kill_at(folder, is_moment, *words), name)
    pack(folder, name)
    if name not in EARLIER:
        require(run(folder, *words) == 0, "finished")
        pack(folder, "finished")


def in_rounds(folder: Path, name: str) -> None:
    """`round` and `rounds_ended`."""
    write_study(folder, n_trials=6, n_parallel=2, method="split", sampler=None)
    words = ("study", "--study", "study.yaml", "--once")

    def is_moment() -> bool:
        held = rows(folder, "SELECT * FROM paretune_leases WHERE holder != ''")
        under_way = rows(folder, OPEN)
        booked = rows(folder, BOOKED)
        return bool(held and len(booked) >= 5) and any(has_job(folder, run_id) for (run_id,) in under_way)

    require(any(kill_at(folder, is_moment, *words) for _ in range(60)), name)
    pack(folder, name)
    require(any(run(folder, *words) == 0 for _ in range(60)), "rounds_ended")
    pack(folder, "rounds_ended")


def month(folder: Path, name: str) -> None:
    """`month`: what is booked, and what two killed processes have reserved."""
    write_study(folder, n_trials=6, method="joint", sampler="random", budget_usd=None)
    (folder / "team.yaml").write_text(yaml.safe_dump(TEAM, sort_keys=False))
    require(run(folder, *job(0), *OF_THE_TEAM) == 0, name)
    kill_job(folder, *job(1), *OF_THE_TEAM)

    def is_moment() -> bool:
        entries = rows(folder, "SELECT run_id, booked_usd FROM paretune_budget_entries")
        under_way = [run_id for run_id, booked_usd in entries if booked_usd is None]
        return len(entries) - len(under_way) >= 3 and "" in under_way and len(under_way) >= 3

    require(kill_at(folder, is_moment, "study", "--study", "study.yaml", *OF_THE_TEAM), name)
    pack(folder, name)


def jobs(folder: Path, name: str) -> None:
    """`jobs`: single jobs, without a study and without budgets."""
    write_table(folder)
    require(run(folder, *job(0)) == 0, name)
    require(run(folder, *job(2)) == 0, name)
    require(run(folder, *job(3), "--simulation", '{"failure_rate": 1}') == 3, name)
    kill_job(folder, *job(1))
    pack(folder, name)


def job(number: int) -> tuple[str, ...]:
    """The words of a command that runs one job of the table."""
    kind, count, batch, rate = list(product(TYPES, COUNTS, BATCHES[:2], RATES))[5 * number]
    cluster = ("--instance_type", kind, "--instance_count", str(count), "--per_device_train_batch_size", str(batch))
    custom = ("--learning_rate", str(rate), "--num_train_epochs", "2", "--max_runtime_minutes", "60")
    return ("main", "--launcher", "simulated", "--recorded_runs", "runs.csv", *cluster, *custom)


def kill_job(folder: Path, *words: str) -> None:
    """Begin a job and kill its launcher while it runs."""

    def is_moment() -> bool:
        running = rows(folder, "SELECT run_uuid FROM runs WHERE status = 'RUNNING'", "mlflow.db")
        return any(has_job(folder, run_id) for (run_id,) in running)

    require(kill_at(folder, is_moment, *words), " ".join(words))


def write_table(folder: Path) -> None:
    """Runs on a grid: seconds fall with instances, F1 falls with the batch, and the largest batch does not fit."""
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    lines = [f"{header},f1,status,f1_epoch_1,f1_epoch_2"]
    for kind, count, batch, rate in product(TYPES, COUNTS, BATCHES, RATES):
        seconds = 120 + 1500 / count**0.9 * (8 / batch) ** 0.3
        f1 = 0.9 - 0.002 * batch * count - 0.01 * abs(rate * 3e4 - 1)
        finished = ",OutOfMemory,," if batch == BATCHES[-1] else f"{f1:.4f},Completed,{f1 - 0.1:.4f},{f1:.4f}"
        lines.append(f"{kind},{count},{batch},{rate},2,{seconds:.1f},{finished}")
    (folder / "runs.csv").write_text("\n".join(lines) + "\n")


def write_study(folder: Path, **changes: Any) -> None:
    """study.yaml and its table; some jobs fail, find no capacity or run out of memory."""
    write_table(folder)
    study = {
        "name": "recorded",
        "job": {
            "launcher": "simulated",
            "recorded_runs": "runs.csv",
            "num_train_epochs": 2,
            "max_runtime_minutes": 60,
            "simulation": {"failure_rate": 0.1, "capacity_error_rate": 0.1, "f1_noise": 0.002},
        },
        "search": {
            "instance_type": {"choices": list(TYPES)},
            "instance_count": {"choices": list(COUNTS)},
            "per_device_train_batch_size": {"choices": list(BATCHES)},
            "learning_rate": {"low": 1e-5, "high": 1e-4, "log": True},
        },
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "n_parallel": 3,
        "budget_usd": 20.0,
        **changes,
    }
    reference = {key: value for key, value in study.items() if value is not None}
    (folder / "study.yaml").write_text(yaml.safe_dump(reference, sort_keys=False))


def begin(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command in the folder."""
    workspace = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "PARETUNE_HOME": str(folder / ".paretune"),
        "PARETUNE_TRACE_SECONDS": "0",
        "HF_HUB_OFFLINE": "1",
        "LOGNAME": "ana",
    }
    log = (folder / "driver.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words], cwd=folder, env=os.environ | workspace, stdout=log, stderr=log
        )


def run(folder: Path, *words: str) -> int:
    """Run a command in the folder to its end; its exit code."""
    return begin(folder, *words).wait()


def kill_at(folder: Path, is_moment: Callable[[], bool], *words: str) -> bool:
    """Start a command and kill it as soon as it is the moment; whether it has come before the command's own end."""
    process = begin(folder, *words)
    while process.poll() is None:
        if is_moment():
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if is_moment():  # still, and nothing moves any more
                process.kill()
                process.wait()
                return True
            process.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    return False


def rows(folder: Path, query: str, database: str = ".paretune/studies.db") -> list[tuple[Any, ...]]:
    """What a database answers; nothing where it is not there yet, or somebody writes just now."""
    if not (folder / database).exists():
        return []
    with closing(sqlite3.connect(f"file:{folder / database}?mode=ro", uri=True, timeout=0)) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []


def has_job(folder: Path, run_id: str) -> bool:
    """Whether a simulated job of an MLflow run was created."""
    return (folder / ".paretune" / "simulated" / "jobs" / f"paretune-{run_id}-1.json").exists()


def require(is_so: bool, name: str) -> None:
    """End where a folder has not become what it is to be."""
    if not is_so:
        raise SystemExit(f"{name}: it has ended otherwise: try again")


if __name__ == "__main__":
    main()
