"""A study's trials in Optuna's storage. No other module imports Optuna.

For numeric choices Optuna gets the rank among the choices, so that samplers know which of them are neighbours. The
values themselves are in the trial's user attributes: `point` has all of them, and each has one by its own name.

`optuna-dashboard` opens the same storage. There a trial also has the attributes `mlflow_run_id` and `status`, that of
its job. A trial whose job completed but shows nothing about its point, such as a probe of a few steps, is pruned.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, LostContact, first_line
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialStatus
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, affecting
from paretune.storage.database import with_driver
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import violations
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.search.trial_history import TrialHistory

_MEMORY = "memory"
_POSSIBLE = "possible"
_POINT, _RUN_ID, _STATUS, _IMPOSSIBLE = "point", "mlflow_run_id", "status", "impossible_job"
_TRIES = 3
_MOST_DRAWS = 12  # points that the sampler is asked for, for one trial, until one is accepted
_FULL = 1.0  # how much a constraint is violated; 0 or less is feasible
_HARMLESS = {*affecting(JobSpec, "noise", "stopping")}
"""Changes with which a job still shows the values of its point."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A point that Optuna has suggested, or that `OptunaStudy.ask_for` has added."""

    number: int
    point: Mapping[str, Value]


class OptunaStudy:
    """The trials of one study; studies of the same name in a storage, a SQLAlchemy address, are one.

    Raises:
        BadInput: the storage does not answer, or holds a study of this name with other objectives.
    """

    def __init__(self, file: StudyFile, storage: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._file = file
        self._ranked = {name: sorted(entry.values) for name, entry in file.search.items() if _is_ordered(entry)}
        self._space = {self._key(name): _distribution(name, entry) for name, entry in file.search.items()}
        self._where = file.shown_storage or "the study's file"
        try:
            self._storage = _storage(storage)
            self._study = _opened(file, self._storage)
        except Exception as error:  # SQLAlchemy's and each driver's own
            text = f"storage {self._where} cannot be used ({first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None
        # With the same seed, a driver that starts again would suggest the same points as the one before it.
        trials = self._study.get_trials(deepcopy=False)
        self._study.sampler = _sampler(file, (file.seed + 7919 * len(trials)) % 2**32)
        if [direction.name.lower() for direction in self._study.directions] != list(file.objectives.values()):
            raise BadInput([f"study {file.name} was begun with other objectives: give it another name (name=...)"])

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate the errors of Optuna when its storage goes away into LostContact: the same command continues."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            text = f"it does not answer ({first_line(error)}): the same command continues the study"
            raise LostContact(f"storage {self._where}: {text}") from error

    def ask(
        self,
        accepts: Callable[[Mapping[str, Value]], bool] = lambda point: True,
        otherwise: Mapping[str, Value] | None = None,
    ) -> Suggestion:
        """The next trial: the sampler's first point that `accepts` is true of, or `otherwise` if none is accepted."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            try:
                for _ in range(_MOST_DRAWS):
                    point = self._drawn(trial)
                    if otherwise is None or accepts(point):
                        break
                else:
                    point = dict(otherwise or point)
            except BaseException:  # such as an interruption
                self.tell_failed(trial.number)
                raise
            for name, value in point.items():
                coded = self._coded(name, value)
                distribution = _with(self._space[self._key(name)], coded)
                repr_ = distribution.to_internal_repr(coded)
                self._study._storage.set_trial_param(trial._trial_id, self._key(name), repr_, distribution)
            for name, attribute in self._attributes(point).items():
                trial.set_user_attr(name, attribute)
        return Suggestion(number=trial.number, point=point)

    def _drawn(self, trial: optuna.Trial) -> dict[str, Value]:
        """A point of the sampler for a trial that has none yet, another one at each call."""
        sampler, study = self._study.sampler, self._study
        frozen = study._storage.get_trial(trial._trial_id)
        relative = sampler.infer_relative_search_space(study, frozen)
        drawn = sampler.sample_relative(study, frozen, relative)
        for name, distribution in self._space.items():
            if distribution.single():
                drawn[name] = optuna.distributions._get_single_value(distribution)
            elif name not in drawn or relative.get(name) != distribution:
                drawn[name] = sampler.sample_independent(study, frozen, name, distribution)
        values = {name: drawn[self._key(name)] for name in self._file.search}
        return {name: self._ranked[name][it] if name in self._ranked else it for name, it in values.items()}

    def _coded(self, name: str, value: Value) -> Value:
        """The value as Optuna gets it: its rank if it is an ordered choice."""
        return self._ranked[name].index(value) if name in self._ranked else value

    def ask_for(self, point: Mapping[str, Value]) -> Suggestion:
        """A trial at this point, whatever the sampler thinks: made at once."""
        params = {self._key(name): self._coded(name, value) for name, value in point.items()}
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=params,
            distributions={key: _with(self._space[key], value) for key, value in params.items()},
            user_attrs=self._attributes(point),
        )
        identity = self._study._storage.create_new_trial(self._study._study_id, template_trial=template)
        return Suggestion(number=self._study._storage.get_trial(identity).number, point=dict(point))

    def _attributes(self, point: Mapping[str, Value]) -> dict[str, Any]:
        """User attributes with the values of a point; empty if no parameter is coded by its rank."""
        ranked = {name: value for name, value in point.items() if name in self._ranked}
        return {_POINT: dict(point), **ranked} if ranked else {}

    def _key(self, name: str) -> str:
        return f"rank of {name}" if name in self._ranked else name

    def report_outcome(self, entry: TrialEntry, history: TrialHistory, number: int | None = None) -> None:
        """Tell Optuna how a trial has ended.

        A job that is retryable, or failed once, is failed; one that completed with other parameters than its point,
        such as a probe, is pruned; one that ran out of memory or failed again is infeasible. `number` is that of a
        trial with an equal job, by default the entry's.
        """
        number, end = entry.trial if number is None else number, entry.end
        assert end is not None  # it was booked
        is_off_point = bool(set(entry.note.changes) - _HARMLESS)
        self._describe(number, entry, "Probe" if entry.parameters.get("probe_steps") else end.status.value)
        values = history.values(end.metrics, entry.parameters)
        if is_off_point and end.status is TrialStatus.COMPLETED:
            self._tell_state(number, TrialState.PRUNED)
        elif end.retryable or is_off_point:
            self.tell_failed(number)
        elif set(self._file.objectives) <= set(values):
            self.tell(number, values, violations(values, self._file.constraints))
        elif entry.identity in history.settled and self._is_infeasible(end):
            self.tell_infeasible(number, out_of_memory=end.status is TrialStatus.OUT_OF_MEMORY)
        else:
            self.tell_failed(number)

    def _is_infeasible(self, end: TrialEnd) -> bool:
        """Whether no job can be at its point: out of memory, failed twice, or an objective that is not finite."""
        if end.status is TrialStatus.COMPLETED:
            values = [end.metrics[name] for name in self._file.objectives if name in end.metrics]
            return not all(math.isfinite(value) for value in values)
        return end.status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.FAILED}

    def tell(self, number: int, values: Mapping[str, float], violations: Mapping[str, float] | None = None) -> None:
        """Tell Optuna all objectives of a trial, and by how much it misses each constraint; 0 or less is met."""
        trial = self._study._storage.get_trial(self._id_of(number))
        if trial.state.is_finished():
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            live = optuna.trial.Trial(self._study, trial._trial_id)
            for name, amount in {_MEMORY: 0.0, _POSSIBLE: 0.0, **(violations or {})}.items():
                if name not in trial.constraints:
                    live.set_constraint(name, amount)
            self._study.tell(number, values=[values[name] for name in self._file.objectives], skip_if_finished=True)

    def tell_infeasible(self, number: int, *, out_of_memory: bool = False, job: str = "") -> None:
        """Tell Optuna by a violated constraint that a point is impossible: a plain failure would be suggested again.

        Its values are the worst of all trials, which no sampler uses beyond the constraint. `job` is the hash of a job
        that was refused for what it asks, for `impossible`.
        """
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        feasible = (trial for trial in complete if all(amount <= 0 for amount in trial.constraints.values()))
        objectives = self._file.objectives
        values = [trial.values for trial in feasible if trial.values is not None] or [[0.0] * len(objectives)]
        worst = {
            name: max(column) if direction == "minimize" else min(column)
            for (name, direction), column in zip(objectives.items(), zip(*values, strict=True), strict=True)
        }
        if job:
            self._study._storage.set_trial_user_attr(self._id_of(number), _IMPOSSIBLE, job)
        self.tell(number, worst, {_MEMORY if out_of_memory else _POSSIBLE: _FULL})

    def tell_failed(self, number: int) -> None:
        """Tell Optuna that a trial has shown nothing: no capacity, a quota, a broken instance, a budget."""
        self._tell_state(number, TrialState.FAIL)

    def _tell_state(self, number: int, state: TrialState) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # told before a driver died
            self._study.tell(number, state=state, skip_if_finished=True)

    def _describe(self, number: int, entry: TrialEntry, status: str) -> None:
        """Set the attributes with run and status, unless the trial is finished."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # told before
            for name, text in {_RUN_ID: entry.run_id, _STATUS: status}.items():
                self._study._storage.set_trial_user_attr(self._id_of(number), name, text)

    def impossible(self) -> set[str]:
        """Hashes of jobs that a driver was refused for what they ask."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return {str(trial.user_attrs[_IMPOSSIBLE]) for trial in complete if _IMPOSSIBLE in trial.user_attrs}

    def running(self) -> list[int]:
        """Numbers of the trials that have not finished."""
        return [trial.number for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _id_of(self, number: int) -> int:
        return self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)


def _storage(address: str) -> RDBStorage:
    options = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else {}  # seconds for a lock
    address = with_driver(address)
    for _ in range(_TRIES - 1):
        with suppress(Exception):  # another driver may be making the tables at this moment
            return RDBStorage(address, engine_kwargs=options)
    return RDBStorage(address, engine_kwargs=options)


def _opened(file: StudyFile, storage: RDBStorage) -> optuna.Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            study_name=file.name,
            storage=storage,
            sampler=_sampler(file, file.seed),
            directions=[StudyDirection[word.upper()] for word in file.objectives.values()],
            load_if_exists=True,
        )
        if len(study.directions) == len(file.objectives) and not study.metric_names:
            study.set_metric_names(list(file.objectives))  # as the dashboard shows them
        return study


def _with(distribution: BaseDistribution, value: Value) -> BaseDistribution:
    """The distribution, wide enough for a number outside of it."""
    if not isinstance(distribution, IntDistribution | FloatDistribution):
        return distribution
    number: Any = int(value) if isinstance(distribution, IntDistribution) else float(value)
    low, high = min(distribution.low, number), max(distribution.high, number)
    return type(distribution)(low, high, log=distribution.log)


def _is_ordered(entry: Choices | Range) -> TypeGuard[Choices]:
    """Whether choices are two numbers or more."""
    if isinstance(entry, Range) or len(entry.values) < 2:
        return False
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in entry.values)


def _distribution(name: str, entry: Choices | Range) -> BaseDistribution:
    if _is_ordered(entry):
        return IntDistribution(0, len(entry.values) - 1)
    if isinstance(entry, Choices):
        return CategoricalDistribution(list(entry.values))
    if is_whole(name, entry):
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log)
    return FloatDistribution(entry.low, entry.high, log=entry.log)


def _sampler(file: StudyFile, seed: int) -> BaseSampler:
    if file.sampler == "gp":
        return GPSampler(seed=seed)
    if file.sampler == "nsga2":
        return NSGAIISampler(seed=seed)
    if file.sampler in {"random", "grid"}:  # the points of a grid are asked for one by one
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=10, multivariate=True, constant_liar=True)
