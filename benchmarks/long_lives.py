"""Do long studies stay sound: rounds that are killed, many drivers, many jobs at a time, many trials?

    python benchmarks/long_lives.py                     # 30 simulated days: 8,640 rounds of four hosts; about an hour
    python benchmarks/long_lives.py --part drivers      # eight processes on one study; --storage postgresql://...
    python benchmarks/long_lives.py --part jobs         # 200 simulated jobs at a time under one driver
    python benchmarks/long_lives.py --part memory       # 10,000 trials of one driver beside Optuna and MLflow alone
    python benchmarks/long_lives.py --small             # a minute of the first

Rounds: `study --once` every five virtual minutes from one of four hosts at random, whose clocks differ by up to 90
seconds. A third of the rounds is killed at a random statement of a random storage (Optuna's, the ledger's, MLflow's)
or around a call of the launcher: nothing more of it is executed, not even its clean-up. In the end the bill of all
simulated jobs is held against the ledger and MLflow. Nothing is billed. The rule that ends a study whose front grows no
more is off, so that it lasts. Memory: resident MiB of the process, after garbage collection.
"""

import argparse
import gc
import logging
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import arguments

HOSTS, APART_S, SKEW_S = 4, 300.0, 90.0
KILLED = "killed"
MEMORY = "{:8,} trials {:6.1f} MiB {:6.0f} s of the processor"


class Killed(BaseException):
    """The process has been killed."""


class Kills:
    """Ends a round at a random statement; nothing is executed after it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._thread = threading.get_ident()
        self._left = math.inf
        self._is_on = False
        self._longest = 40  # statements of a round

    def begin(self, is_killed: bool) -> None:
        """A round begins, which is to be killed or not."""
        self._is_on, self._done = True, 0
        self._left = self._draw.randint(1, self._longest) if is_killed else math.inf

    def end(self) -> None:
        """The round has ended."""
        if math.isinf(self._left) and self._done:
            self._longest = self._done  # the first rounds make tables, and take more
        self._is_on = False

    def __call__(self, *_: Any) -> None:
        """A moment at which the round may be killed."""
        if not self._is_on or threading.get_ident() != self._thread:
            return
        self._done += 1
        if self._done >= self._left:
            raise Killed

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call with a moment to be killed before and after it."""

        def called(*options: Any, **named: Any) -> Any:
            self()
            result = call(*options, **named)
            self()
            return result

        return called


@dataclass
class Life:
    """One study, played in rounds by several hosts in this process."""

    folder: Path
    draw: random.Random
    kills: Kills
    apart_s: float = APART_S
    messages: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        from paretune.core.interruption import Interruption
        from paretune.jobs.workplace import Workplaces
        from paretune.launchers.simulated.virtual_clock import VirtualClock

        home = self.folder / ".paretune"
        home.mkdir(exist_ok=True)
        self.file = study_of(self.folder, n_trials=1_000_000, once="true", n_parallel=4)
        spec = self.file.spec_at({name: entry.corners[0] for name, entry in self.file.search.items()})
        self.workplaces = [
            Workplaces(environment=dict(os.environ), interruption=Interruption(), home=home).of(spec)
            for _ in range(HOSTS)
        ]
        self.skews = [self.draw.uniform(-SKEW_S, SKEW_S) for _ in range(HOSTS)]
        self.clock = VirtualClock(home)
        self.storage = f"sqlite:///{home / 'studies.db'}"

    def play(self, *, is_killed: bool = False) -> int:
        """A round of a random host; its exit code, -1 where it was killed."""
        from paretune.core.errors import ParetuneError
        from paretune.ledger.study_ledger import StudyLedger
        from paretune.studies.run import drive, hold_lease
        from paretune.studies.search.driver import Driver
        from paretune.studies.search.optuna_study import OptunaStudy
        from paretune.studies.search.study_run import StudyRunWriter

        number = self.draw.randrange(HOSTS)
        workplace, holder = self.workplaces[number], f"host-{number} 1 0"
        began, driver = time.perf_counter(), None
        with ExitStack() as stack:

            def now() -> float:
                return self.clock.now() + self.skews[number]

            self.kills.begin(is_killed)
            try:
                ledger = StudyLedger(self.storage, self.file.name)
                stack.callback(ledger.close)
                ledger.lease.now = now
                with hold_lease(ledger, now, holder):
                    study = OptunaStudy(self.file, self.storage)
                    stack.callback(study.close)
                    record = StudyRunWriter(self.file, ledger, workplace.tracking, self.messages.append)
                    driver = Driver(
                        self.file,
                        study,
                        ledger,
                        run_id=record.run_id,
                        workplace=workplace,
                        now=now,
                        on_trial=record.trial_ended,
                        say=self.messages.append,
                        owner=holder,
                    )
                    record.watch(driver)
                    drive(driver, record)
                code = 0
            except Killed:
                code = -1
            except ParetuneError as error:
                self.messages.append(str(error))
                code = error.exit_code
            finally:
                self.kills.end()
                if driver is not None:  # the threads of a killed process end with it
                    driver._heartbeat.stop()
                    for run_id in list(workplace.watches._runs):
                        workplace.watches.release(run_id)
        self.seconds.append(time.perf_counter() - began)
        self.codes[KILLED if code == -1 else str(code)] += 1
        self.clock.sleep(self.apart_s)
        return code

    def finish(self) -> None:
        """Begin no more trials, and play rounds until the study has ended."""
        from paretune.ledger.study_ledger import StudyLedger

        ledger = StudyLedger(self.storage, self.file.name)
        started = len(ledger.running()) + sum(bool(item.note.counts) for item in ledger.booked(0))
        ledger.close()
        self.file = study_of(self.folder, n_trials=max(1, min(started, 10)), once="true", n_parallel=4)
        self.apart_s = 4 * 3600.0
        while (code := self.play()) != 0:
            assert code == 75, self.messages[-1]


@contextmanager
def faults(kills: Kills) -> Iterator[None]:
    """Let every statement of a storage and every call of the launcher be a moment at which a round can be killed."""
    import sqlalchemy as sa

    from paretune.launchers.simulated.launcher import SimulatedLauncher

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", kills)
    try:
        with (
            mock.patch.object(SimulatedLauncher, "submit", kills.around(SimulatedLauncher.submit)),
            mock.patch("paretune.studies.run.pass_virtual_time"),
            mock.patch("paretune.studies.search.stopping.PATIENCE", 10**9),
        ):
            yield
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", kills)


def study_of(folder: Path, *, quality: str = "f1: maximize", **terms: Any) -> Any:
    """A study of jobs of some hours, some of which fail, on a table made by a formula."""
    from paretune.studies.definition.file import StudyFile

    table = folder / "runs.csv"
    lines = [
        "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,f1"
    ]
    for count in (1, 2):
        for batch in (8, 16, 32):
            for rate in (1e-5, 1e-4):
                seconds = 30_000 / count**0.8 * (8 / batch) ** 0.3
                lines.append(f"ml.g5.xlarge,{count},{batch},{rate},2,{seconds:.1f},{0.9 - 0.001 * batch:.4f}")
    table.write_text("\n".join(lines) + "\n")
    path = folder / "study.yaml"
    path.write_text(
        "name: long life\n"
        f"job: {{launcher: simulated, recorded_runs: '{table}', instance_type: ml.g5.xlarge, num_train_epochs: 2,\n"
        "  max_runtime_minutes: 1000, simulation: {failure_rate: 0.05, capacity_error_rate: 0.05, f1_noise: 0.002}}\n"
        "search:\n"
        "  instance_count: {choices: [1, 2]}\n"
        "  per_device_train_batch_size: {choices: [8, 16, 32]}\n"
        "  learning_rate: {low: 1e-5, high: 1e-4, log: true}\n"
        f"objectives: {{cost_usd: minimize, {quality}}}\n"
        "sampler: random\n"
    )
    return StudyFile.read(str(path), {name: str(value) for name, value in terms.items()})


def books(folder: Path, storage: str, name: str = "long life") -> dict[str, float]:
    """The bill of the jobs, its copies in the ledger and in MLflow, and their differences."""
    from mlflow import MlflowClient

    from paretune.core.interruption import Interruption
    from paretune.jobs.workplace import Workplaces
    from paretune.launchers.base import parse_job_name
    from paretune.ledger.study_ledger import StudyLedger
    from paretune.ledger.trial_entry import TrialStatus
    from paretune.pricing.budget import cost_usd
    from paretune.specification.container import JobDocument

    ledger = StudyLedger(storage, name)
    entries, balance = [*ledger.booked(0), *ledger.running()], ledger.balance()
    ledger.close()
    home = folder / ".paretune"
    billed, jobs, launcher = 0.0, Counter[str](), None
    for path in (home / "simulated" / "jobs").glob("*.json"):
        if path.name.endswith(".stop.json"):
            continue
        spec = JobDocument.read(path).spec
        workplaces = Workplaces(environment=dict(os.environ), interruption=Interruption(), home=home)
        launcher = launcher or workplaces.of(spec).launcher
        job = launcher.attach(path.stem)
        assert job is not None  # its document is there
        billed += cost_usd(launcher.price(spec), spec, job.billable_seconds()) or 0.0
        jobs[(parse_job_name(path.stem) or ("", 0))[0]] += 1
    done = Counter(entry.identity for entry in entries if entry.end and entry.end.status is TrialStatus.COMPLETED)
    client, recorded, token = MlflowClient(), 0.0, None
    runs = 0
    while runs == 0 or token:
        page = client.search_runs(["0"], "tags.`paretune.trial` LIKE '%'", max_results=1000, page_token=token)
        recorded += sum(run.data.metrics.get("cost_usd", 0.0) for run in page)
        runs, token = runs + len(page), page.token
    return {
        "trials": len(entries),
        "jobs": len(jobs),
        "runs": runs,
        "billed_usd": billed,
        "ledger_usd": balance.spent_usd,
        "mlflow_usd": recorded,
        "committed_usd": balance.committed_usd,
        "not_booked": sum(element.end is None for element in entries),
        "jobs_twice": sum(count > 1 for count in jobs.values()) + sum(count > 1 for count in done.values()),
        "jobs_without_a_trial": len(jobs.keys() - {item.run_id for item in entries}),
    }


def rounds(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The life of a study in rounds, a third of them killed."""
    draw = random.Random(options.seed)
    kills = Kills(draw)
    life = Life(folder, draw, kills, 60.0 * options.minutes)
    start = life.clock.now()
    with faults(kills):
        for number in range(options.rounds):
            life.play(is_killed=draw.random() < 1 / 3)
            if number % 500 == 499:
                print(f"  {number + 1} rounds, {time.process_time():.0f} s of processor time", flush=True)
        life.finish()
    result = books(folder, life.storage)
    threads = sum(thread.name == "heartbeat" for thread in threading.enumerate())
    days = (life.clock.now() - start) / 86400
    print(f"{sum(life.codes.values()):,} rounds in {days:.1f} virtual days; exit codes {dict(life.codes)}")
    print(f"a round takes {statistics.median(life.seconds):.2f} s (median), {max(life.seconds):.2f} s (most)")
    return result | {"heartbeats_left": threads}


def report(figures: dict[str, float]) -> None:
    """Print what the books say, and exit with 1 where they are wrong."""
    for name, value in figures.items():
        print(f"{name:24} {value:,.4f}".rstrip("0").rstrip("."))
    wrong = [
        name for name in ("not_booked", "jobs_twice", "jobs_without_a_trial", "heartbeats_left") if figures.get(name)
    ]
    if not math.isclose(figures["billed_usd"], figures["ledger_usd"], rel_tol=1e-9, abs_tol=1e-9):
        wrong.append("dollars of the ledger")
    if not math.isclose(figures["ledger_usd"], figures["mlflow_usd"], rel_tol=1e-9, abs_tol=1e-9):
        wrong.append("dollars of MLflow")
    print("the books are right" if not wrong else f"WRONG: {', '.join(wrong)}")
    sys.exit(bool(wrong))


def command(*words: str, log: Path = Path(os.devnull)) -> int:
    """A command of paretune in this process; what it prints goes into `log`."""
    from paretune.cli.main import main as paretune

    with log.open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return paretune(list(words))


def drivers(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Eight processes on one study at once."""
    import paretune.studies.run  # noqa: F401  # imported once, before the forks

    study_of(folder, quality="job_seconds: minimize", n_trials=options.trials)  # nothing is trained again at its end
    words = ["study", "--study", "study.yaml", "--n_trials", str(options.trials), "--n_parallel", "2"]
    storage = options.storage or f"sqlite:///{folder / '.paretune' / 'studies.db'}"
    began, children = time.perf_counter(), []
    for _ in range(options.drivers):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = command(*words, "--storage", storage, log=Path(f"driver-{os.getpid()}.log"))
            except BaseException:
                with Path(f"driver-{os.getpid()}.log").open("a") as log:
                    log.write(traceback.format_exc())
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for child in [child for child, code in zip(children, codes, strict=True) if code]:
        print(f"driver {child}:", *Path(f"driver-{child}.log").read_text().splitlines()[-12:], sep="\n  ")
    print(f"{options.drivers} drivers, {storage.partition(':')[0]}: {time.perf_counter() - began:.1f} s, codes {codes}")
    return books(folder, storage) | {"failed": sum(code != 0 for code in codes)}


def jobs(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Many simulated jobs at a time under one driver."""
    study_of(folder, n_trials=options.trials, n_parallel=options.jobs)
    began = time.perf_counter()
    with mock.patch("paretune.studies.search.stopping.PATIENCE", 10**9):
        code = command(
            *("study", "--study", "study.yaml"), *("--n_trials", str(options.trials), "--n_parallel", str(options.jobs))
        )
    seconds = time.perf_counter() - began
    each = f"{1000 * seconds / options.trials:.0f} ms a trial"
    print(f"{options.trials} trials, {options.jobs} jobs at a time: {seconds:.1f} s, {each}, exit code {code}")
    return books(folder, f"sqlite:///{folder / '.paretune' / 'studies.db'}")


def resident_mib() -> float:
    """MiB of main memory of this process, after garbage collection."""
    import psutil

    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


def memory(options: argparse.Namespace, folder: Path) -> None:
    """Memory and time of one driver over many trials, and of Optuna and MLflow alone."""
    from paretune.studies.search.study_run import StudyRunWriter

    marks = {*range(500, options.trials, 500), options.trials // 10, options.trials - 1}
    finished, printed, seen = StudyRunWriter.trial_ended, sys.stdout, set[int]()

    def watched(self: Any, trial: Any) -> None:
        self._next_page = math.inf
        finished(self, trial)
        if (count := len(self._driver.trials)) in marks - seen:
            seen.add(count)
            print(MEMORY.format(count, resident_mib(), time.process_time()), file=printed, flush=True)

    study_of(folder, n_trials=options.trials)
    print("paretune", flush=True)
    with (
        mock.patch("paretune.studies.search.stopping._is_matched", never_matched),
        mock.patch.object(StudyRunWriter, "trial_ended", watched),
    ):
        command("study", "--study", "study.yaml", "--n_trials", str(options.trials), "--n_parallel", "4")
    print("Optuna and MLflow alone", flush=True)
    libraries_alone(folder, marks)


def never_matched(*_: object) -> bool:
    """In place of the test that ends a study; a mock would keep all that it is called with."""
    return False


def libraries_alone(folder: Path, marks: set[int]) -> None:
    """The same number of trials in Optuna's own storage and of runs in MLflow's, in a process of its own.

    Optuna's trials are read before each one is asked for, as every sampler but the random one does.
    """
    code = f"""
import gc, mlflow, optuna, psutil, time
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(
    storage="sqlite:///{folder}/alone.db", sampler=optuna.samplers.RandomSampler(), directions=["minimize", "maximize"]
)
mlflow.set_tracking_uri("sqlite:///{folder}/alone-runs.db")
client = mlflow.MlflowClient()
for number in range({max(marks)}):
    study.get_trials(deepcopy=False)
    trial = study.ask()
    a, b, c = trial.suggest_int("a", 0, 1), trial.suggest_int("b", 0, 2), trial.suggest_float("c", 1e-5, 1e-4, log=True)
    run = client.create_run("0").info.run_id
    client.log_metric(run, "f1", b)
    client.log_text(run, "{{}}", "spec.json")
    client.set_terminated(run)
    study.tell(trial, [a + c, b])
    if number + 1 in {marks}:
        gc.collect()
        used = psutil.Process().memory_info().rss / 2**20
        print({MEMORY!r}.format(number + 1, used, time.process_time()), flush=True)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)


def main() -> None:
    """Play a part, and print what has come of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("rounds", "drivers", "jobs", "memory"), default="rounds")
    parser.add_argument("--rounds", type=int, default=8640)
    parser.add_argument("--minutes", type=float, default=APART_S / 60, help="rounds: from one to the next")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drivers", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument(
        "--trials", type=int, default=0, help="by default 60 for drivers, 600 for jobs, 10,000 for memory"
    )
    parser.add_argument("--storage", default="", help="drivers: a PostgreSQL address; SQLite by default")
    options = arguments.parse(parser, rounds=10, minutes=120.0)
    options.trials = options.trials or {"drivers": 60, "jobs": 600, "memory": 10_000}.get(options.part, 0)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        os.environ |= {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "PARETUNE_HOME": str(folder / ".paretune"),
        }
        if options.part == "memory":
            memory(options, folder)
        else:
            report({"rounds": rounds, "drivers": drivers, "jobs": jobs}[options.part](options, folder))


if __name__ == "__main__":
    main()
