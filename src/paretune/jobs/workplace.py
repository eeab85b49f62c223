"""A workplace: the launcher, MLflow store, clock, home folder and budgets that jobs of a command share."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LostContact, NoAccount
from paretune.core.file_lock import locked_file
from paretune.core.interruption import Interruption
from paretune.core.machine import host_in, machine_name
from paretune.core.reading import absolute, at_home, exists, is_file, takes_files
from paretune.core.shell import command_line
from paretune.core.tags import Attribution, login_of
from paretune.estimating.architecture import architecture_of
from paretune.estimating.estimator import Estimate
from paretune.estimating.forecast import Forecast
from paretune.launchers.base import Launcher, Surroundings, open_launcher
from paretune.launchers.offers import region_of
from paretune.ledger.budget_file import BudgetFile
from paretune.presentation.text import usd
from paretune.specification import launchers
from paretune.specification.container import Event, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.specification.plan import Plan
from paretune.specification.profile import charged
from paretune.storage.database import address_fault
from paretune.tracking import schema
from paretune.tracking.kept_runs import KeptRuns

if TYPE_CHECKING:
    from paretune.ledger.budget_ledger import BudgetLedger, BudgetRequest, BudgetStatus, ReservedJob
    from paretune.tracking.store import Tracking

_HOME = ".paretune"
_BUDGET_FILES = "budget_files.txt"  # in the home folder: the budget files that its jobs have used, one on each line
STORAGE_VARIABLE = "PARETUNE_STORAGE"
"""Environment variable with the default storage of studies and budgets. It keeps passwords off command lines."""
_ELSEWHERE = {
    "account": "its job is in the AWS account {recorded}, but these credentials belong to {current}: set AWS_PROFILE",
    "region": "its job is in the region {recorded}, but this command uses {current}: set region={recorded}, or "
    "AWS_REGION",
}
"""Maps the name of a location tag to the reason why a job with another value cannot be found from here."""


def home_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of jobs, checkpoints and prepared data: PARETUNE_HOME, or .paretune in the current folder."""
    return Path(environment.get("PARETUNE_HOME") or Path.cwd() / _HOME)


def open_tracking(environment: Mapping[str, str], clock: Clock) -> "Tracking":
    """Open the MLflow store that MLflow's own settings name. Raises TrackingUnavailable."""
    from paretune.tracking.store import Tracking  # imports MLflow

    return Tracking(environment, clock)


def has_store(environment: Mapping[str, str]) -> bool:
    """Return whether MLflow's settings name a server, or a local store that exists, without importing MLflow."""
    if "mlflow" in sys.modules:
        from paretune.tracking.store import is_absent_file, tracking_uri

        return not is_absent_file(tracking_uri())
    address = environment.get("MLFLOW_TRACKING_URI", "")
    if address and not address.startswith("sqlite:///"):
        return True
    if address:
        try:
            return Path(address.removeprefix("sqlite:///")).exists()
        except OSError:  # a folder above the file cannot be entered, which `open_tracking` reports
            return True
    return Path("mlflow.db").exists() or Path("mlruns").exists()


def runs_of(environment: Mapping[str, str]) -> "Tracking | KeptRuns | None":
    """Return where recorded runs are read: None without a store, and without opening MLflow if it has not changed.

    Raises TrackingUnavailable.
    """
    if not has_store(environment):
        return None
    if (store := _store_file(environment)) is None:
        return open_tracking(environment, SystemClock())
    return KeptRuns(store, home_of(environment), lambda: open_tracking(environment, SystemClock()))


def store_lacks(environment: Mapping[str, str], text: str) -> bool:
    """Return whether the MLflow store is a SQLite file in which a short text stands nowhere, without importing MLflow.

    The text is that of an id or name, which SQLite keeps in one piece.
    """
    if (store := _store_file(environment)) is None:
        return False
    written = (store, store.with_name(f"{store.name}-wal"))
    return not any(_contains(file, text.encode()) for file in written if file.is_file() and file.stat().st_size)


def _contains(file: Path, text: bytes) -> bool:
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(text) >= 0


def _store_file(environment: Mapping[str, str]) -> Path | None:
    """Return the SQLite file of the MLflow store; None if it is another store, or if MLflow is imported.

    With MLflow, this process may have locks on the file, which it would lose by reading it in any other way.
    """
    address = environment.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    store = Path(address.removeprefix("sqlite:///"))
    return store if "mlflow" not in sys.modules and address.startswith("sqlite:///") and is_file(store) else None


def usual_storage(home: Path, environment: Mapping[str, str]) -> str:
    """Return the default database of studies or budgets: PARETUNE_STORAGE, or a file in `home`.

    Raises BadInput if PARETUNE_STORAGE is not a usable address.
    """
    address = environment.get(STORAGE_VARIABLE)
    if not address:
        return f"sqlite:///{home / 'studies.db'}"
    if fault := address_fault(address):
        raise BadInput([f"{STORAGE_VARIABLE}: {fault}"])
    return address


@dataclass(frozen=True, kw_only=True)
class UnrecordedCost:
    """A cost that could not be recorded in the budgets of its job."""

    is_reserved: bool  # whether the worst case of the job is still reserved, until `sync` records the cost
    sentence: str  # what happened, for people


@dataclass(frozen=True, kw_only=True)
class Offline:
    """Why the account of jobs is not asked, and a launcher that makes the checks that need no account, if it opens."""

    reason: str
    launcher: Launcher | None


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Everything that is needed to launch, watch and record jobs of one launcher and region."""

    launcher: Launcher
    home: Path  # folder of jobs, checkpoints and prepared data
    clock: Clock  # the launcher's clock; a virtual one for simulated jobs
    environment: Mapping[str, str]  # environment variables of the command
    interruption: Interruption
    store: "Tracking | None" = None  # the MLflow store; by default the one that MLflow's own settings name
    on_events: Callable[[list[Event]], None] = lambda _: None  # called with the events of jobs and with messages
    offline: Offline | None = None  # set for plans without an account, at public prices; such jobs cannot be launched
    _budget_ledgers: dict[str, "BudgetLedger"] = field(default_factory=dict)

    def say(self, *messages: str) -> None:
        """Pass this process's own messages to `on_events`, in order with the events of the jobs."""
        self.on_events([Event(time=self.clock.now(), step=0, message=message) for message in messages])

    def budget_ledger(self, budget: str | None) -> "BudgetLedger | None":
        """Return the ledger of a budget file; None without a file, or if jobs are not billed.

        The ledger is in the storage that the file or PARETUNE_STORAGE names. By default, it is in a folder next to the
        file, so that everybody who uses the file on this machine shares it. Raises BadInput if the file or its storage
        cannot be used.
        """
        if budget is None:
            return None
        from paretune.ledger.budget_ledger import BudgetLedger  # imports SQLAlchemy, which estimates do not need

        if budget not in self._budget_ledgers:
            file, folder = BudgetFile.read(budget), at_home(budget).resolve().parent / _HOME
            if not self.launcher.traits.is_billed:
                return None
            self._budget_ledgers[budget] = BudgetLedger(file, usual_storage(folder, self.environment), folder)
        return self._budget_ledgers[budget]

    def attribution(self, tags: Mapping[str, str], study: str = "") -> Attribution:
        """Return study, user and team of a job with these tags; the default user is the login name."""
        return Attribution.of(tags, self.environment, study)

    def check_budgets(self, plan: Plan) -> "list[BudgetStatus]":
        """Check that a job's budgets cover its worst case, and return them. Nothing is reserved.

        Raises BudgetRefused if a budget does not cover the worst case, if the job has a budget and its price is
        unknown, or if another database has the month's accounts. Raises BadInput if the budget file or its storage
        cannot be used, and LaunchRefused if the storage does not answer.
        """
        if (ledger := self.budget_ledger(plan.limits.budget)) is None:
            return []
        return ledger.check(self._request(plan))

    def reserve(self, plan: Plan, run_id: str, job: str) -> None:
        """Reserve a job's worst case in its budgets, unless already reserved. Raises the errors of `check_budgets`.

        `job` is the name of the job's first attempt; it is kept with the reservation.
        """
        if (ledger := self.budget_ledger(plan.limits.budget)) is not None:
            with suppress(OSError):  # such as a full disk; the run names the file, too
                _remember(self.home, str(plan.limits.budget))
            ledger.reserve(self._request(plan, run_id, job))

    def has_launched(self, job: "ReservedJob") -> bool:
        """Return whether this user has launched a job with a reservation on this machine."""
        return (job.user, job.host) == (login_of(self.environment), host_in(machine_name()))

    def record_cost(
        self, budget: str | None, run_id: str, cost_usd: float | None, kept_usd: float | None
    ) -> "UnrecordedCost | None":
        """Replace the reservation of a job in a budget file with its cost; return what went wrong, or None.

        `cost_usd` is None if the cost is unknown; then the worst case is recorded. `kept_usd` is the most that
        instances kept after the job can still cost. While they are kept, the sum of cost and `kept_usd` stays reserved.
        """
        if not self.launcher.traits.is_billed:
            return None
        try:
            ledger = self.budget_ledger(budget)
            if ledger is None or ledger.record_cost(run_id, cost_usd, kept_usd) or not cost_usd:
                return None
        except (BadInput, LostContact) as error:
            until = f"until `{command_line('sync')}` records its cost"
            sentence = f"its worst case stays reserved in its budgets {until}: {error}"
            return UnrecordedCost(is_reserved=True, sentence=sentence)
        sentence = (
            f"its {usd(cost_usd)} were not recorded in the budgets of {ledger.file.path}: {ledger.shown_address} has "
            "no reservation for this job; set PARETUNE_STORAGE as it was when the job was launched"
        )
        return UnrecordedCost(is_reserved=False, sentence=sentence)

    def _request(self, plan: Plan, run_id: str = "", job: str = "") -> "BudgetRequest":
        from paretune.ledger.budget_ledger import BudgetRequest, ReservedJob

        unpriced = (offer.instance_type for offer in plan.offers if offer.price is None)
        region = self.launcher.location_tags().get("region", "") if job else ""
        store = self.tracking.store_id if job else ""
        return BudgetRequest(
            run_id=run_id,
            worst_usd=plan.limits.worst_usd,
            tags=plan.owner.of_budgets(plan.tags),
            origin=self.launcher.origin,
            now=self.clock.now(),
            instance_type=next(unpriced, plan.offer.instance_type),
            region=plan.region,
            job=ReservedJob(
                name=job,
                given=plan.identity.given,
                store=store,
                region=region,
                user=login_of(self.environment),
                host=host_in(machine_name()),
            )
            if job
            else None,
        )

    def elsewhere(self, tags: Mapping[str, str]) -> str:
        """Return why a run's job cannot be found from here: it is in another AWS account or region; "" otherwise.

        Without this check, such a job would be started and paid for a second time. If the run has no tag with an
        account or region, AWS is not asked. Raises BadInput or LaunchRefused if this command's own account or region
        is unknown.
        """
        if not {schema.ACCOUNT, schema.REGION} & tags.keys():
            return ""
        here, reasons = self.launcher.location_tags(), list[str]()
        for name, sentence in _ELSEWHERE.items():
            recorded, current = tags.get(f"{schema.PREFIX}{name}"), here.get(name)
            if None not in (recorded, current) and recorded != current:
                reasons.append(sentence.format(recorded=recorded, current=current))
        return "; ".join(reasons)

    def other_machine(self, tags: Mapping[str, str]) -> str:
        """Return a sentence that names the other machine on which a run's local job was started; "" if there is none.

        Only hosts are compared, because the number of a machine's cores may change.
        """
        host, here = host_in(tags.get(schema.MACHINE, "")), host_in(self.launcher.location_tags().get("machine", ""))
        if not host or here in ("", host):
            return ""
        there = f"run `{command_line('sync')}` there"
        return f"its job was started on another machine ({host}) and cannot be seen from here: {there}"

    @cached_property
    def tracking(self) -> "Tracking":
        """The MLflow store; raises TrackingUnavailable if it does not answer."""
        return self.store or open_tracking(self.environment, self.clock)

    @cached_property
    def forecast(self) -> Forecast:
        """Estimates of jobs, from the runs in the MLflow store if it exists; no store is created for this."""
        tracking = self.tracking if has_store(self.environment) else None
        return Forecast(tracking, simulated=self.launcher.traits.is_simulated and self.offline is None)

    def estimate(self, spec: JobSpec, inputs: JobInputs) -> Estimate | None:
        """Return the estimate of a job at its current price; see `Forecast.of`."""
        return self.forecast.of(spec, inputs, self.launcher.price)


@dataclass(frozen=True, kw_only=True)
class Workplaces:
    """The workplaces of one process. Jobs with the same launcher and region share a workplace."""

    environment: Mapping[str, str]
    interruption: Interruption
    home: Path
    on_events: Callable[[list[Event]], None] = lambda _: None
    _clock: Clock = field(default_factory=lambda: SystemClock())
    _workplaces: dict[tuple[object, ...], Workplace] = field(default_factory=dict)

    @classmethod
    def of_process(cls) -> "Workplaces":
        """Return the workplaces of this process. Raises BadInput if their home folder is not writable."""
        environment = dict(os.environ)
        home = home_of(environment)
        if not takes_files(home):  # it is made when it is needed
            raise BadInput([f"PARETUNE_HOME must be a folder that can be written to, got {home}"])
        interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
        return cls(environment=environment, interruption=interruption, home=home)

    def of(self, spec: JobSpec) -> Workplace:
        """Return the workplace for the launcher and region of a specification."""
        return self.at(spec.runs_on.name, spec.region)

    def at(self, launcher: str, region: str | None) -> Workplace:
        """Return the workplace of a launcher, in a region if it has regions. Raises BadInput if it is not installed."""
        traits = launchers.known().get(launcher)
        if traits is None:
            raise BadInput([f"the launcher {launcher or 'of the job'} is not installed here"])
        region = region if traits.has_regions else None
        if (traits.name, region) not in self._workplaces:
            opened = open_launcher(traits, self._surroundings(region))
            self._workplaces[traits.name, region] = Workplace(
                launcher=opened,
                home=self.home,
                clock=opened.virtual_clock or self._clock,
                environment=self.environment,
                interruption=self.interruption,
                on_events=self.on_events,
            )
        return self._workplaces[traits.name, region]

    def offline(self, spec: JobSpec, reason: str) -> Workplace:
        """Return a workplace that plans a job without its account, at public prices; `reason` says why."""
        public = self.at_public_prices(spec.instance_type, spec.region)
        region = region_of(spec, public.launcher, self.environment) or spec.region
        try:
            checks = self.at(spec.runs_on.name, region).launcher
        except NoAccount:  # for example if the AWS profile does not exist
            checks = None
        return replace(public, offline=Offline(reason=reason, launcher=checks))

    def budgets(self) -> list[str]:
        """Return the user's budget files: those of jobs from this home, of `paretune.toml`, and beside the home.

        A budget file is beside the home folder if this folder has the file's marks (see `BudgetLedger.check_storage`).
        """
        beside = (self.home.parent / mark.stem[: -len(".2026-11")] for mark in self.home.glob("*.*-*.json"))
        paths = [*_remembered(self.home), *map(str, beside)]
        budgets = [absolute(path) for path in paths if exists(path)]
        with suppress(BadInput, KeyError):
            budgets.append(str(charged({}, self.environment)["budget"]))
        return list(dict.fromkeys(budgets))

    def at_public_prices(self, instance_type: str, region: str | None) -> Workplace:
        """Return the workplace of a simulation on these instances, which needs no account and knows public prices."""
        return self.of(JobSpec(launcher="simulated", instance_type=instance_type, region=region))

    def _surroundings(self, region: str | None) -> Surroundings:
        return Surroundings(
            home=self.home,
            clock=self._clock,
            environment=self.environment,
            region=region,
            check=self.interruption.check,
            predict=self._predict,
        )

    def _predict(self, spec: JobSpec, batch: BatchPlan) -> Estimate | None:
        built = architecture_of(spec.model, spec.task, self.environment)
        return self._forecast.estimator.estimate(spec, built, None, plan=batch)

    @cached_property
    def _forecast(self) -> Forecast:
        return Forecast(open_tracking(self.environment, self._clock) if has_store(self.environment) else None)


def _remember(home: Path, budget: str) -> None:
    """Note a budget file in the home folder, so that it is found if no run names it any more. Raises OSError."""
    home.mkdir(parents=True, exist_ok=True)
    path = absolute(budget)
    with locked_file(home / _BUDGET_FILES) as file:
        if path not in _remembered(home):
            file.write(f"{path}\n")


def _remembered(home: Path) -> list[str]:
    """Return the budget files that jobs from this home folder have used."""
    with suppress(OSError):
        return (home / _BUDGET_FILES).read_text(encoding="utf-8", errors="replace").splitlines()
    return []
