"""One history from its seed, and what must hold at its end."""

import itertools
import json
import subprocess
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import sqlalchemy as sa

from paretune.commands.sync import sync as sync_module
from paretune.commands.sync.sync import Sync
from paretune.core.errors import ParetuneError
from paretune.jobs import launch, watch
from paretune.jobs.launch import run_job
from paretune.jobs.workplace import Workplace
from paretune.launchers import processes
from paretune.launchers.base import parse_job_name
from paretune.launchers.sagemaker import launcher as launcher_module
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.staging import Staging
from paretune.ledger.budget_file import BudgetFile
from paretune.ledger.budget_ledger import BudgetLedger
from paretune.ledger.ledger import BUDGET_ENTRIES, BUDGET_LOCK, BUDGET_METADATA, STUDY_METADATA, Ledger
from paretune.pricing.prices import PriceList
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.storage.database import _begin_by_hand, _begin_immediately
from paretune.tracking import schema
from tests.histories.store import MemoryTracking, Store
from tests.histories.training import Cloud, Life
from tests.histories.world import KERNEL, Heartbeat, Killed, Process, World
from tests.unit.launchers.sagemaker.aws import BUCKET

HOSTS = ("desk", "server")
TYPES = ("ml.g5.xlarge", "ml.g5.2xlarge", "ml.g6.xlarge")
_POOL_S = 3700.0  # longer than any warm pool lasts
CLOSE_USD = 1e-6
STUDY_EVERY = 10
"""Of so many seeds, one is that of a study."""
_ENDED = {"FINISHED", "FAILED", "KILLED"}


class _Account(Account):
    """The account of the cloud of the current history."""

    def __init__(self, cluster: Any, environment: Any) -> None:
        self.region = Cloud.region
        self._cluster, self._environment = cluster, environment

    def client(self, service: str) -> Any:
        return _Here.cloud.client(service)


class _Launcher(SageMakerLauncher):
    """The launcher without packaging: the request has only what AWS acts on here."""

    _prices = PriceList.read({})  # type: ignore[assignment]  # once for all histories

    def check(self, spec: JobSpec) -> None:
        """Nothing: every specification here is one that AWS takes."""

    def _request(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> dict[str, Any]:
        spec = document.spec
        resources = {"InstanceType": spec.instance_type, "InstanceCount": spec.instance_count}
        if spec.keep_alive_minutes:
            resources["KeepAlivePeriodInSeconds"] = int(spec.keep_alive_minutes * 60)
        plan = {"batch": document.plan.per_device_train_batch_size}
        return {
            "TrainingJobName": document.job_name,
            "ResourceConfig": resources,
            "StoppingCondition": {"MaxRuntimeInSeconds": int(document.max_seconds)},
            "HyperParameters": {"plan": json.dumps(plan), "spec": spec.spec_hash()},
        }


class BudgetDatabase(Ledger):
    """The part of a ledger that leads to a database in memory, which outlives the processes of a history."""

    def connect_to(self, world: World) -> None:
        """Use the database of all histories."""
        self._storage = self.shown_address = "memory:"
        self._engine, self._world = self.engine(), world

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """A transaction that may be refused, whose answer may be lost, and beside which the process may die."""
        self._world.call("ledger", "begin", lambda: None)
        with super()._transaction() as connection:
            yield connection
        self._world.call("ledger", "commit", lambda: None)

    @staticmethod
    @cache
    def engine() -> sa.Engine:
        """The database."""
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        sa.event.listen(engine, "connect", _begin_by_hand)
        sa.event.listen(engine, "begin", _begin_immediately)
        with engine.begin() as connection:
            for metadata in (BUDGET_METADATA, STUDY_METADATA):
                metadata.create_all(connection)
            connection.execute(BUDGET_LOCK.insert().values(number=1))
        return engine

    @classmethod
    def empty(cls) -> None:
        """Remove the rows of earlier histories."""
        with cls.engine().begin() as connection:
            for table in (*BUDGET_METADATA.sorted_tables, *STUDY_METADATA.sorted_tables):
                if table is not BUDGET_LOCK:
                    connection.execute(table.delete())


class _Budgets(BudgetDatabase, BudgetLedger):
    """The ledger of budgets."""

    def __init__(self, file: BudgetFile, world: World) -> None:
        self.file, self._beside = file, None
        self.connect_to(world)


class _Here:
    """The cloud of the history that is played now."""

    cloud: Cloud


@contextmanager
def simulated() -> Iterator[None]:
    """Put virtual time and memory in place of the operating system, AWS, and preparations that take seconds."""
    from tests.histories.study import simulated_study  # which imports this module

    with ExitStack() as stack:
        stack.enter_context(simulated_study())
        for name, stand_in in KERNEL.modules().items():
            stack.enter_context(mock.patch.object(processes, name, stand_in))
        stack.enter_context(mock.patch.object(watch, "Heartbeat", Heartbeat))
        stack.enter_context(mock.patch.object(launcher_module, "Account", _Account))
        for module in (launch, sync_module):
            stack.enter_context(mock.patch.object(module, "inputs_of", return_value=JobInputs()))
        stack.enter_context(mock.patch.object(launch, "_foresee", _foresee))
        yield


def _foresee(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> Any:
    return launch._Forecast(inputs=inputs, smaller_batch=None, estimate=None, sentences=(), warnings=())


@dataclass(frozen=True, kw_only=True)
class Played:
    """A history that was played.

    Attributes:
        faults: what processes met.
        broken: promises that do not hold, in words.
        log: each request, if that was asked for.
    """

    seed: int
    kind: str
    steps: int
    jobs: int
    faults: list[str]
    broken: list[str]
    log: list[str]

    def described(self) -> list[str]:
        """The broken promises, each with what plays the history again."""
        return [f"seed {self.seed}, commit {commit()}: {text}" for text in self.broken]


@cache
def commit() -> str:
    """The commit of the working tree."""
    words, folder = ["git", "rev-parse", "--short", "HEAD"], Path(__file__).parent
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False).stdout.strip()


class History:
    """The world of one history, and what its users do."""

    def __init__(self, seed: int, budgets: Mapping[float, BudgetFile], *, log: bool = False) -> None:
        self.world = KERNEL.world = World(seed)
        self.world.log = [] if log else None
        self.cloud = _Here.cloud = Cloud(self.world)
        self.store = Store(self.world)
        self.budgets = budgets
        self.broken: list[str] = []
        self.cloud.training.on_create = self._check_creation

    def workplace(self, process: Process) -> Workplace:
        """A workplace of a process, as a command makes one."""
        launcher = _Launcher(JobSpec(role="arn:aws:iam::1:role/R", bucket=BUCKET), process, {}, package=Path())
        workplace = Workplace(
            launcher=launcher,
            home=Path("/nowhere"),
            clock=process,
            environment={"LOGNAME": "ana"},
            interruption=process.interruption,
            open_tracking=lambda: MemoryTracking(process, self.store),
            _budget_ledgers={file.path: _Budgets(file, self.world) for file in self.budgets.values()},
        )
        workplace.__dict__["watches"] = watch.Watches(process.now)
        return workplace

    def sync(self, process: Process) -> Any:
        """The command `sync`."""
        workplace = self.workplace(process)
        return Sync(
            workplace_of=lambda spec: workplace,
            tracking=MemoryTracking(process, self.store),
            interruption=process.interruption,
            on_events=lambda events: None,
            now=process.now,
        ).run()

    def settle(self) -> None:
        """End all faults and let `sync` collect everything; then no pool is kept any more."""
        world = self.world
        world.trouble = 0.0
        world.down.clear()
        wrong_s = max(abs(process.skew_s) for process in world.processes)
        for delay_s in (700.0 + wrong_s, _POOL_S):  # a run whose job may still be created is left open for 600 s
            world.pass_time(delay_s)
            for host in HOSTS:
                process = world.begin(self.sync, host, has_faults=False)
                world.run()
                if isinstance(process.outcome, Exception):
                    raise process.outcome

    def _check_creation(self, life: Life) -> None:
        """No job beside one that does the same, unless somebody watches that one."""
        run_id, attempt = parse_job_name(life.name) or ("", 0)
        for other in self.cloud.training.lives.values():
            if other is life or other.ended_at is not None:
                continue
            other_run, other_attempt = parse_job_name(other.name) or ("", 0)
            if other_run == run_id:
                self.broken.append(f"{life.name}: created while {other.name} runs")
            elif attempt == other_attempt == 1 and life.request["HyperParameters"] == other.request["HyperParameters"]:
                watched_by = self.store.runs[other_run].data.tags.get(schema.WATCHED_BY, "")
                if not processes.is_watched(watched_by):
                    self.broken.append(f"{life.name}: created beside {other.name}, which does the same, unwatched")

    def check(self) -> list[str]:
        """Promises that do not hold at the end."""
        lives = defaultdict(list)
        for life in self.cloud.training.lives.values():
            lives[life.run_id].append(life)
            if life.ended_at is None or life.keeps_until is not None:
                self.broken.append(f"{life.name}: runs for ever, or its instances are kept")
        bills = {run_id: sum(map(usd_of, jobs)) for run_id, jobs in lives.items()}
        for run_id, run in self.store.runs.items():
            self.broken += [f"run {run_id[-3:]}: {fault}" for fault in _faults_of_run(run, lives.get(run_id, []))]
        with BudgetDatabase.engine().begin() as connection:
            self._check_books(bills, connection.execute(sa.select(BUDGET_ENTRIES)).all())
        return self.broken

    def _check_books(self, bills: Mapping[str, float], entries: Any) -> None:
        booked, months = defaultdict(float), defaultdict(float)
        for entry in entries:
            if entry.booked_usd is None or entry.kept_usd:
                self.broken.append(f"run {entry.run_id[-3:]}: its reservation of {entry.worst_usd:.4f} USD stays")
            booked[entry.run_id] += entry.booked_usd or 0.0
            months[entry.month] += entry.booked_usd or 0.0
        if not self.limit_usd:
            return
        for run_id in {*bills, *booked}:
            if abs(bills.get(run_id, 0.0) - booked.get(run_id, 0.0)) > CLOSE_USD:
                amounts = f"{booked.get(run_id, 0.0):.4f} USD, and the bill is {bills.get(run_id, 0.0):.4f}"
                self.broken.append(f"run {run_id[-3:]}: its budget books {amounts}")
        for month, usd in months.items():
            if usd > self.limit_usd + CLOSE_USD:
                self.broken.append(f"budget of {month}: {usd:.4f} USD of {self.limit_usd:g}")

    limit_usd = 0.0


def usd_of(life: Life) -> float:
    price = _Launcher._prices.price(life.instance_type, Cloud.region)  # type: ignore[attr-defined]
    count = life.request["ResourceConfig"]["InstanceCount"]
    return float(price.usd_per_hour * count * (life.billed_s + life.pool_s) / 3600)


def _faults_of_run(run: Any, jobs: list[Life]) -> Iterator[str]:
    """Ways in which a run does not record its jobs."""
    tags, recorded = run.data.tags, run.data.metrics
    if run.info.status not in _ENDED or tags.get(schema.STATE) in {"Running", "Stopping"}:
        yield f"is left {run.info.status}, with the state {tags.get(schema.STATE)}"
    if tags.get(schema.GAP) == "true":
        yield "keeps its gap"
    for job, following in itertools.pairwise(jobs):
        if job.ending not in {"memory", "capacity"}:
            yield f"{following.name} was created after {job.name}, which is {job.ending}"
    bill = sum(map(usd_of, jobs))
    cost = recorded.get("cost_usd", 0.0)
    if abs(cost - bill) > CLOSE_USD:
        yield f"records {cost:.4f} USD, and the bill is {bill:.4f}"
    steps = [point.step for point in run.points.get("train/loss", {}).values()]
    written = {json.loads(line)["step"] for job in jobs for line in job.steps}
    if written - set(steps):
        yield f"lacks the events of steps {sorted(written - set(steps))}"
    if len(set(steps)) < len(steps):
        yield f"has events twice: steps {sorted(steps)}"


def play_job(history: History) -> None:
    """A single job from its command to the last `sync`."""
    world, draw = history.world, history.world.random
    history.limit_usd = draw.choice((0.0, *history.budgets))
    budget = history.budgets[history.limit_usd].path if history.limit_usd else None
    keep = draw.choice((0, 30))
    more: dict[str, Any] = {"keep_alive_minutes": keep} if keep else draw.choice(({}, {"spot": True}))
    if draw.random() < 0.3 and not keep:
        more = {"spot": True, "fallback_instance_types": TYPES[1], "capacity_wait_minutes": draw.choice((0, 30))}
    spec = JobSpec(
        instance_type=TYPES[0],
        **draw.choice(({}, {"region": Cloud.region, "bucket": BUCKET})),
        budget=budget,
        log_model=False,
        per_device_train_batch_size=draw.choice((1, 4, 16)),
        max_runtime_minutes=draw.choice((10, 60)),
        **more,
    )

    def command(process: Process) -> Any:
        return run_job(spec, history.workplace(process), lambda events: None)

    def next_command(process: Process) -> Any:
        following = spec.replace(learning_rate=1e-4)  # on the instances that the first job has kept
        return run_job(following, history.workplace(process), lambda events: None)

    acts: list[Callable[[Process], Any]] = [command]
    for _ in range(draw.randint(0, 3)):
        acts.append(draw.choice((command, history.sync, next_command if keep else history.sync)))
    delay_s = 0.0
    for number, act in enumerate(acts):
        world.begin(act, draw.choice(HOSTS), delay_s=delay_s, has_faults=True)
        delay_s += draw.choice((0.0, 30.0, 900.0))
        if number == len(acts) - 1 or draw.random() < 0.7:
            world.run()
            delay_s = draw.choice((0.0, 30.0, 900.0))


@cache
def budget_files(folder: Path) -> dict[float, BudgetFile]:
    """Files of budgets, by their dollars a month."""
    files = {}
    for usd in (1.0, 3.0, 40.0):
        path = folder / f"budget-{usd:g}.yaml"
        path.write_text(f"budgets: [{{name: all, usd_per_month: {usd:g}}}]\n")
        files[usd] = BudgetFile.read(str(path))
    return files


def play(seed: int, folder: Path, *, log: bool = False) -> Played:
    """Play the history of a seed; `folder` takes the files of budgets and studies."""
    from tests.histories.study import play_study  # which imports this module

    BudgetDatabase.empty()
    history = History(seed, budget_files(folder), log=log)
    world = history.world
    try:
        if seed % STUDY_EVERY:
            play_job(history)
            history.settle()
        else:
            play_study(history, folder)
        history.check()
        history.broken += [_bug(each) for each in world.processes if _is_bug(each.outcome)]
    except Exception as error:
        history.broken.append("".join(traceback.format_exception(error)) if log else f"{type(error).__name__}: {error}")
    return Played(
        seed=seed,
        kind="job" if seed % STUDY_EVERY else "study",
        steps=world.steps,
        jobs=len(history.cloud.training.lives),
        faults=world.faults,
        broken=history.broken,
        log=world.log or [],
    )


def _is_bug(outcome: Any) -> bool:
    """Whether a process ended with what no user should see."""
    return isinstance(outcome, BaseException) and not isinstance(outcome, (ParetuneError, Killed))


def _bug(process: Process) -> str:
    return f"process {process.pid} ended with {type(process.outcome).__name__}: {process.outcome}"
