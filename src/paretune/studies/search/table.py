"""The trials of a study in Optuna's storage, read and written through Optuna's public interface.

Optuna itself stores parameters, values and states. The other fields of a `Trial` are stored in one user attribute,
`job`, which is always written as a whole. A trial without this attribute has no job. Optuna does not allow changes to a
trial after its end. So what is recorded later, such as the cost of instances kept after its job, goes into the study's
attribute `trial N`. Further user attributes are for `SplitSampler` (see `_shown`).
"""

import json
import logging
import math
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, LostContact, first_line
from paretune.core.reading import exists
from paretune.ledger.lock import StudyLock, unusable
from paretune.pricing import Balance
from paretune.specification import metrics
from paretune.storage.database import redacted, with_driver
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import Objective, violations
from paretune.studies.definition.space import Choices, Point, Range, is_whole
from paretune.studies.results.trials import Trial
from paretune.studies.sampler import candidates
from paretune.studies.sampler.candidates import own_space
from paretune.studies.trial_status import TrialStatus

JOB, _DESCRIBED, _GIVEN, _MARK = "job", "described", "given", "mark"
_ROW = TypeAdapter(Trial)
_OF_OPTUNA = {"number", "point", "values", "origin"}
"""Fields of a trial that are not in its attribute `job`: Optuna stores them, or they follow from the study."""
_MOST_DRAWS = 12  # limit on the points that the sampler draws for one trial until one is accepted
_MOST_DIFFERENCES, _LONGEST = 8, 400  # limits on the differences that a message lists, and on the characters of each

Accepts = Callable[[Point], bool]


class StudyTable:
    """Reads and writes the trials of one study. Each study in a storage has its own name.

    Args:
        file: the study.
        storage: SQLAlchemy address of the storage.
        lock: checked before a trial is created or changed.
        origin: origin of the study's jobs, measured or simulated.

    Raises:
        BadInput: the storage cannot be opened or read.
    """

    def __init__(self, file: StudyFile, storage: str, lock: StudyLock | None = None, origin: str = "measured") -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._file, self._lock, self._origin = file, lock or StudyLock(), origin
        entries: Mapping[str, Choices | Range] = file.search
        if file.design is not None:
            entries = {name: Choices(values=values) for name, values in file.design.values.items()}
        self.distributions = {name: distribution_of(name, entry) for name, entry in entries.items()}
        self._of_sampler = own_space(file.job.given()) if file.takes_split else {}
        self._where = redacted(storage)
        self._read: tuple[list[FrozenTrial], dict[int, Trial]] | None = None  # cached until the next write
        try:
            self._storage, self.study = _opened(file, storage)
            self.objectives = self.study.metric_names or list(file.goals)  # in the order of Optuna's values
            self._study_id = self._storage.get_study_id_from_name(file.name)
            count = len(self._all()[0])
        except Exception as error:  # SQLAlchemy's and each driver's own
            raise unusable(storage, error) from None
        # With an unchanged seed, a restarted driver would suggest the same points as the one before it.
        self._sampler = _sampler(file, (file.seed + 7919 * count) % 2**32)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Raise LostContact instead of the errors that Optuna raises if its storage is unavailable."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError, UpdateFinishedTrialError) as error:
            text = f"it does not answer ({first_line(error)}): the same command continues the study"
            raise LostContact(f"storage {self._where}: {text}") from error

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def open(self, described: str, given: Mapping[str, Any]) -> str:
        """Store the study's description if it has none. Return the study's mark, which is unique across all storages.

        `described` is a JSON object of the study's values by name. Raises BadInput if the stored description differs.
        `given` has the keys of the study file that `stored` returns.
        """
        attributes = self.study.user_attrs
        if _DESCRIBED not in attributes:
            attributes = {_MARK: uuid.uuid4().hex, _GIVEN: dict(given), _DESCRIBED: described}
            for name, value in attributes.items():
                self.study.set_user_attr(name, value)
        if difference := _difference(attributes[_DESCRIBED], described):
            text = f"study {self._file.name} was started with a different search space, rows, job or objectives: give "
            raise BadInput([f"{text}it another name (name=...), or the same file ({difference})"])
        return str(attributes[_MARK])

    def ask(self, point: Point, changes: Mapping[str, Any], accepts: Accepts | None = None) -> tuple[int, Point]:
        """Create a trial and return its number and point. `changes` are parameters of its job that override the point.

        With `accepts`, the trial gets the first point from the sampler for which `accepts` returns True. If there is
        none among `_MOST_DRAWS`, or without `accepts`, the trial gets `point`.
        """
        self.look_again()
        self._lock.check()
        of_sampler = {name: changes[name] for name in self._of_sampler if name in changes}
        space = self.distributions | {name: self._of_sampler[name] for name in of_sampler}
        if self._file.design is not None:  # a row of a design may lack parameters that other rows have
            space = {name: self.distributions[name] for name in point}
        self.study.sampler = _Chosen(self._sampler, space, {**point, **of_sampler}, accepts)
        with warnings.catch_warnings(action="ignore"):
            trial = self.study.ask(space)
        return trial.number, {name: trial.params[name] for name in self.distributions if name in trial.params}

    def ask_waiting(self) -> tuple[int, Point] | None:
        """Return the number and point of a trial that a user has enqueued in the study; None if the queue is empty.

        What the trial does not set is drawn from the search space, or left to the job if the study has a design.

        Raises ValueError if the trial sets a parameter that the study does not vary, or none in a study with a design,
        or if Optuna refuses a value: one that is not among the choices, or not a number for a range. A number outside
        of its range is accepted.
        """
        waiting = next((trial for trial in self._all()[0] if trial.state is TrialState.WAITING), None)
        if waiting is None:
            return None
        given = waiting.system_attrs.get("fixed_params", {})
        point = {name: value for name, value in given.items() if name in self.distributions}
        asked = self.ask(point, {}, lambda point: True)  # also removes the trial from the queue if it is refused
        of_sampler = {name for name in self._of_sampler if not given.get(name)}  # as a trial that is no probe has them
        unknown = ", ".join(sorted(given.keys() - self.distributions.keys() - of_sampler))
        if unknown or (self._file.design is not None and not point):
            raise ValueError(f"its parameters must be among {', '.join(self.distributions)}, got {unknown or 'none'}")
        return asked

    def save(self, trial: Trial) -> None:
        """Record the present state of a trial, such as its reservation, its run, or its end and cost."""
        self.look_again()
        self._lock.check()
        row = _ROW.dump_python(trial, mode="json", exclude=_OF_OPTUNA, exclude_defaults=True)
        try:
            self._storage.set_trial_user_attr(self._id_of(trial.number), JOB, row)
        except UpdateFinishedTrialError:
            self.study.set_user_attr(_later(trial.number), row)

    def tell(self, trial: Trial) -> None:
        """Report to Optuna how a trial ended, with the user attributes for `SplitSampler`.

        A trial with all objectives is COMPLETE, a completed probe PRUNED, and any other FAIL.
        """
        objectives, is_probe = self.objectives, trial.is_probe and trial.status is TrialStatus.COMPLETED
        values = [trial.values[name] for name in objectives] if {*objectives} <= {*trial.values} else None
        state = TrialState.PRUNED if is_probe else TrialState.FAIL
        with suppress(UpdateFinishedTrialError):  # it has already been reported
            for name, value in _shown(trial, self._file.judged_by).items():
                self._storage.set_trial_user_attr(self._id_of(trial.number), name, value)
            if values is not None and self._file.constraints:
                of_optuna = optuna.Trial(self.study, self._id_of(trial.number))
                for name, amount in violations(trial.values, self._file.constraints).items():
                    of_optuna.set_constraint(name, amount)
        self._tell(trial.number, state if values is None else None, values)

    def drop(self, number: int) -> None:
        """Report to Optuna that a trial's job was not started, as an interruption that says nothing about its point."""
        with suppress(UpdateFinishedTrialError):  # it has already been reported
            self._storage.set_trial_user_attr(
                self._id_of(number), candidates.OUTCOME, TrialStatus.INTERRUPTED.name.lower()
            )
        self._tell(number, TrialState.FAIL)

    def abandoned(self) -> list[int]:
        """Return the numbers of the running trials that have no job."""
        asked, rows = self._all()
        return [trial.number for trial in asked if trial.state is TrialState.RUNNING and trial.number not in rows]

    def trials(self) -> tuple[list[Trial], list[Trial]]:
        """Return the running trials in order of number, and the ended ones in the order of their reports to Optuna.

        Ended trials that were not yet reported come last.
        """
        rows = list(self._all()[1].values())
        running = sorted((row for row in rows if row.status is TrialStatus.RUNNING), key=lambda trial: trial.number)
        return running, [row for row in rows if row.status is not TrialStatus.RUNNING]

    def look_again(self) -> None:
        """Read the storage again at the next access, because another process may have written to it."""
        self._read = None

    def _all(self) -> tuple[list[FrozenTrial], dict[int, Trial]]:
        """Return all of Optuna's trials, and number to `Trial` for those that have a job, in the order reported."""
        if self._read is None:
            everything, later = self.study.get_trials(deepcopy=False), self.study.user_attrs
            in_order = sorted(everything, key=lambda each: (each.datetime_complete or datetime.max, each.number))
            rows = {each.number: later.get(_later(each.number), each.user_attrs.get(JOB)) for each in in_order}
            params = {each.number: each.params for each in in_order}
            self._read = everything, {n: self._trial(n, params[n], row) for n, row in rows.items() if row is not None}
        return self._read

    def reported(self) -> set[int]:
        """Return the numbers of the trials whose ends were reported to Optuna."""
        return {trial.number for trial in self._all()[0] if trial.state.is_finished()}

    def balance(self) -> Balance:
        """Return the dollars of the study that are spent and reserved."""
        running, ended = self.trials()
        reserved = [trial.worst_usd or 0.0 for trial in running] + [trial.kept_usd or 0.0 for trial in ended]
        return Balance(spent_usd=sum(trial.cost_usd or 0.0 for trial in ended), committed_usd=sum(reserved))

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of the study's jobs: what ended ones have taken, and the time limits of running ones."""
        running, ended = self.trials()
        return sum(each.billed_s or 0.0 for each in ended), sum(60 * each.spec.max_runtime_minutes for each in running)

    def _trial(self, number: int, params: Point, row: Mapping[str, Any]) -> Trial:
        trial = _ROW.validate_python({**row, "number": number, "point": {}})
        point = {name: params[name] for name in self.distributions if name in params}
        values = {} if trial.is_probe else self.values(trial.measured)
        return replace(trial, point=point, origin=self._origin, values=values)

    def values(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return the finite values of the study's objectives and constraints among a job's metrics."""
        names = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        return {name: measured[name] for name in names if name in measured and math.isfinite(measured[name])}

    def _tell(self, number: int, state: TrialState | None, values: Sequence[float] | None = None) -> None:
        self.look_again()
        self._lock.check()
        with warnings.catch_warnings(action="ignore"):
            self.study.tell(number, values, state=state, skip_if_finished=True)

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


def _later(number: int) -> str:
    """Return the name of the study's attribute for what is recorded after a trial was reported to Optuna."""
    return f"trial {number}"


class _Chosen(BaseSampler):
    """An Optuna sampler that gives a trial the first point of `sampler` that `accepts` allows, or else `point`.

    At most `_MOST_DRAWS` points are drawn; none if `accepts` is None.
    """

    def __init__(
        self, sampler: BaseSampler, space: dict[str, BaseDistribution], point: Point, accepts: Accepts | None
    ) -> None:
        self._sampler, self._space, self._point, self._accepts = sampler, space, point, accepts

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        sampler = self._sampler
        for _ in range(_MOST_DRAWS if self._accepts else 0):
            drawn = sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))
            rest = {name: each for name, each in search_space.items() if name not in drawn}
            drawn |= {name: sampler.sample_independent(study, trial, name, each) for name, each in rest.items()}
            if self._accepts is not None and self._accepts(drawn):
                return drawn
        return dict(self._point)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._point[param_name]  # outside of its range, as in a repeat of a queued trial


def _shown(trial: Trial, quality: Objective | None) -> dict[str, Any]:
    """Return the user attributes of an ended trial that `SplitSampler` reads.

    A job that completed on a fallback type gets no seconds unless an objective or constraint depends on time: that type
    has another speed and price, so the sampler learns from the dollars. A probe reports no dollars, so it keeps its
    seconds. The baseline is an F1, so only a study that is judged by F1 has it.
    """
    if trial.status is not TrialStatus.COMPLETED:
        return {candidates.OUTCOME: trial.status.name.lower(), candidates.SECONDS: trial.billed_s or 0.0}
    measured, spec = trial.measured, trial.spec
    attributes: dict[str, float | None] = {candidates.SECONDS: measured.get(metrics.BILLABLE_SECONDS)}
    speed, training_s = measured.get(metrics.THROUGHPUT_SAMPLES), measured.get(metrics.TRAIN_SECONDS)
    if speed and training_s is not None and not spec.runs_user_code:
        attributes[candidates.STEP_S] = spec.plan().global_batch_size / speed
        attributes[candidates.STARTUP_S] = max(0.0, measured[metrics.BILLABLE_SECONDS] - training_s)
        if spec.probe_steps is None and spec.max_train_samples is None:
            attributes[candidates.ROWS] = speed * training_s / spec.num_train_epochs
    if trial.ran_on and not trial.is_probe and {*metrics.TIMES}.isdisjoint(trial.values):
        attributes |= {candidates.SECONDS: None, candidates.STEP_S: None}
    if quality is not None and quality.metric == metrics.F1:
        attributes[candidates.BASELINE] = measured.get(metrics.BASELINE_MAJORITY)
    return {name: value for name, value in attributes.items() if value is not None and math.isfinite(value)}


def distribution_of(name: str, entry: Choices | Range) -> BaseDistribution:
    """Describe the values of a searched parameter as an Optuna distribution."""
    if isinstance(entry, Choices):
        return CategoricalDistribution(list(entry.values))
    if is_whole(name, entry):
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log)
    return FloatDistribution(entry.low, entry.high, log=entry.log)


def stored(name: str, address: str) -> dict[str, Any] | None:
    """Return the keys that `StudyTable.open` stored for a study; None if the storage has none or cannot be read.

    No storage is created.
    """
    if address.startswith("sqlite:///") and not exists(address.removeprefix("sqlite:///")):
        return None
    with suppress(Exception):  # SQLAlchemy's and each driver's own: when the study begins, `StudyTable` reports them
        storage = RDBStorage(with_driver(address), skip_table_creation=True)
        try:
            return storage.get_study_user_attrs(storage.get_study_id_from_name(name)).get(_GIVEN)
        finally:
            storage.remove_session()
            storage.engine.dispose()
    return None


def _opened(file: StudyFile, address: str) -> tuple[RDBStorage, optuna.Study]:
    options = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else {}  # seconds to wait for a lock
    storage = None
    with suppress(Exception):  # another process may be creating the tables at this moment: try once more
        storage = RDBStorage(with_driver(address), engine_kwargs=options)
    storage = storage or RDBStorage(with_driver(address), engine_kwargs=options)
    directions = [StudyDirection[word.upper()] for word in file.goals.values()]
    with warnings.catch_warnings(action="ignore"):
        study = optuna.create_study(study_name=file.name, storage=storage, directions=directions, load_if_exists=True)
        if len(study.directions) == len(file.goals) and not study.metric_names:
            study.set_metric_names(list(file.goals))  # shown by Optuna's dashboard
    return storage, study


def _sampler(file: StudyFile, seed: int) -> BaseSampler:
    if file.takes_split or file.tries_all or file.sampler == "random":
        return RandomSampler(seed=seed)  # other samplers than `random` use it only for what a queued trial lacks
    if file.sampler in ("gp", "nsga2"):
        return GPSampler(seed=seed) if file.sampler == "gp" else NSGAIISampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=10, multivariate=True, constant_liar=True)


def _difference(before: str, now: str) -> str:
    earlier, later = map(json.loads, (before, now))
    names = sorted(name for name in {*earlier, *later} if earlier.get(name) != later.get(name))
    pairs = [[json.dumps(each[name]) if name in each else "none" for each in (earlier, later)] for name in names]
    texts = [f"{name}: {then} then, {today} now"[:_LONGEST] for name, (then, today) in zip(names, pairs, strict=True)]
    return "; ".join(texts[:_MOST_DIFFERENCES])
