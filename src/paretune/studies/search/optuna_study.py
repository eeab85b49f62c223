"""A study's trials in Optuna's storage. No other module imports Optuna.

Of numeric choices Optuna gets the rank among the choices, so that samplers know which of them are neighbours; the
values themselves are in the trial's user attributes: `point` has all of them, and each has its own by its name.

`optuna-dashboard` opens the same storage. There a trial also has the attributes `mlflow_run_id` and `status`, which is
what became of its job; one whose job completed and says nothing of its own point, such as a probe of a few steps, is
pruned, not failed.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import violations
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.search.trial_history import TrialHistory

_MEMORY = "memory"
_POSSIBLE = "possible"
_POINT, _RUN_ID, _STATUS, _IMPOSSIBLE = "point", "mlflow_run_id", "status", "impossible_job"
_TRIES = 3
_MOST_DRAWS = 12
"""Points that the sampler is asked for, for one trial, until one is taken."""
_FULL = 1.0  # how much a constraint is violated; 0 or less is feasible
_HARMLESS = {*affecting(JobSpec, "noise", "stopping"), "trials_per_job"}
"""Changes with which a job still says what its point is worth."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A point that Optuna has suggested, or that was given to it by `OptunaStudy.ask_for`."""

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
        where = self._where = file.shown_storage or "the study's file"
        try:
            self._storage = _storage(storage)
            self._study = _opened(file, self._storage)
        except Exception as error:  # SQLAlchemy's and each driver's own
            text = f"storage {where} cannot be used ({first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None
        # A driver that starts again would else suggest what the one before it has suggested.
        begun = self._study.get_trials(deepcopy=False)
        self._study.sampler = _sampler(file, (file.seed + 7919 * len(begun)) % 2**32)
        self._told_before = frozenset(trial.number for trial in begun if trial.state.is_finished())
        if [direction.name.lower() for direction in self._study.directions] != list(file.objectives.values()):
            raise BadInput([f"study {file.name} was begun with other objectives: give it another name (name=...)"])

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate what Optuna raises when its storage goes away.

        Raises:
            LostContact: it does not answer; the same command goes on with the study.
        """
        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            text = f"it does not answer ({first_line(error)}): the same command goes on with the study"
            raise LostContact(f"storage {self._where}: {text}") from error

    def ask(
        self,
        takes: Callable[[Mapping[str, Value]], bool] = lambda point: True,
        otherwise: Mapping[str, Value] | None = None,
    ) -> Suggestion:
        """The next point: the first that `takes` is true of, or `otherwise` where none of the sampler's is taken.

        It is one trial, however many points are drawn for it.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            try:
                for _ in range(_MOST_DRAWS):
                    point = self._drawn(trial)
                    if otherwise is None or takes(point):
                        break
                else:
                    point = dict(otherwise or point)
            except BaseException:  # such as an interruption
                self.tell_failed(trial.number)
                raise
            for name, value in point.items():
                distribution = _with(self._space[self._key(name)], told := self._told(name, value))
                repr_ = distribution.to_internal_repr(told)
                self._study._storage.set_trial_param(trial._trial_id, self._key(name), repr_, distribution)
            for name, told in self._told_by_value(point).items():
                trial.set_user_attr(name, told)
        return Suggestion(number=trial.number, point=point)

    def _drawn(self, trial: optuna.Trial) -> dict[str, Value]:
        """A point of the sampler's for a trial that has none yet, another one at each call."""
        sampler, study = self._study.sampler, self._study
        frozen = study._storage.get_trial(trial._trial_id)
        known = sampler.infer_relative_search_space(study, frozen)
        told = sampler.sample_relative(study, frozen, known)
        for name, distribution in self._space.items():
            if distribution.single():
                told[name] = _only(distribution)
            elif name not in told or known.get(name) != distribution:
                told[name] = sampler.sample_independent(study, frozen, name, distribution)
        values = {name: told[self._key(name)] for name in self._file.search}
        return {name: self._ranked[name][it] if name in self._ranked else it for name, it in values.items()}

    def _told(self, name: str, value: Value) -> Value:
        """What Optuna gets for a value."""
        return self._ranked[name].index(value) if name in self._ranked else value

    def ask_for(self, point: Mapping[str, Value]) -> Suggestion:
        """A trial at this point, whatever the sampler thinks: made at once, so that no other driver gets it."""
        told = {self._key(name): self._told(name, value) for name, value in point.items()}
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=told,
            distributions={key: _with(self._space[key], value) for key, value in told.items()},
            user_attrs=self._told_by_value(point),
        )
        identity = self._study._storage.create_new_trial(self._study._study_id, template_trial=template)
        return Suggestion(number=self._study._storage.get_trial(identity).number, point=dict(point))

    def _told_by_value(self, point: Mapping[str, Value]) -> dict[str, Any]:
        """The user attributes that say what Optuna's own parameters say only by rank; none where they say it."""
        own = {name: value for name, value in point.items() if name in self._ranked}
        return {_POINT: dict(point), **own} if own else {}

    def _key(self, name: str) -> str:
        return f"rank of {name}" if name in self._ranked else name

    def report_outcome(self, entry: TrialEntry, history: TrialHistory, number: int | None = None) -> None:
        """Tell how a trial has ended.

        A job that was stopped early is told with the values it was expected to reach. A job that is retryable, failed
        once is told as failed, one that completed with other parameters than its point, such as a probe, as pruned; one
        that ran out of memory or failed again as infeasible. `number` is that of a trial with an equal job, by default
        the entry's own.
        """
        number, ended = entry.trial if number is None else number, entry.ended
        assert ended is not None  # it was booked
        if number in self._told_before:  # Optuna reads a trial anew to say so, in 5 ms: half a minute of 5,000
            return
        is_elsewhere = bool(set(entry.note.changes) - _HARMLESS)
        self._describe(number, entry, "Probe" if entry.parameters.get("probe_steps") else ended.status.value)
        found = ended.expected if ended.status is TrialStatus.STOPPED else ended.metrics
        values = history.values(found, entry.parameters)
        if is_elsewhere and ended.status is TrialStatus.COMPLETED:
            self._tell_state(number, TrialState.PRUNED)
        elif ended.retryable or is_elsewhere:
            self.tell_failed(number)
        elif set(self._file.objectives) <= set(values):
            self.tell(number, values, violations(values, self._file.constraints))
        elif entry.identity in history.settled and self._is_infeasible(ended):
            self.tell_infeasible(number, out_of_memory=ended.status is TrialStatus.OUT_OF_MEMORY)
        else:
            self.tell_failed(number)

    def _is_infeasible(self, ended: TrialEnd) -> bool:
        """Whether no job can be at its point: out of memory, failed twice, or an objective that is not finite."""
        if ended.status is TrialStatus.COMPLETED:
            values = [ended.metrics[name] for name in self._file.objectives if name in ended.metrics]
            return not all(math.isfinite(value) for value in values)
        return ended.status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.FAILED}

    def tell(self, number: int, values: Mapping[str, float], violations: Mapping[str, float] | None = None) -> None:
        """All objectives that a trial has reached, and by how much it misses each constraint; 0 or less is met."""
        self._finish(number, [values[name] for name in self._file.objectives], violations or {})

    def tell_infeasible(self, number: int, *, out_of_memory: bool = False, job: str = "") -> None:
        """That a point cannot be: told as a constraint, for a plain failure would be suggested again and again.

        `job` is the hash of a job that was refused for what it asks, for `impossible`.
        Its values are the worst that were seen, which no sampler looks at beyond the constraint.
        """
        told = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        feasible = (trial for trial in told if all(amount <= 0 for amount in trial.constraints.values()))
        ends = [max if direction == "minimize" else min for direction in self._file.objectives.values()]
        seen = [trial.values for trial in feasible if trial.values is not None] or [[0.0] * len(ends)]
        worst = [end(column) for end, column in zip(ends, zip(*seen, strict=True), strict=True)]
        if job:
            identity = self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)
            self._study._storage.set_trial_user_attr(identity, _IMPOSSIBLE, job)
        self._finish(number, worst, {_MEMORY if out_of_memory else _POSSIBLE: _FULL})

    def tell_failed(self, number: int) -> None:
        """That a trial has shown nothing: capacity, quota, a broken instance, a budget."""
        self._tell_state(number, TrialState.FAIL)

    def _tell_state(self, number: int, state: TrialState) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # another driver was faster, and told the same
            self._study.tell(number, state=state, skip_if_finished=True)

    def _describe(self, number: int, entry: TrialEntry, status: str) -> None:
        """What became of a trial's job, and where it is recorded; nothing where Optuna knows its end already."""
        identity = self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)
        known = {_RUN_ID: entry.run_id, _STATUS: status}
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # told before, by this driver or another
            for name, text in known.items():
                self._study._storage.set_trial_user_attr(identity, name, text)

    def impossible(self) -> set[str]:
        """Hashes of jobs that a driver was refused for what they ask."""
        told = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return {str(trial.user_attrs[_IMPOSSIBLE]) for trial in told if _IMPOSSIBLE in trial.user_attrs}

    def running(self) -> dict[int, float]:
        """Trials that were asked for and not told about, by any driver, and when: seconds since the epoch."""
        found = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number: trial.datetime_start.timestamp() if trial.datetime_start else 0.0 for trial in found}

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _finish(self, number: int, values: Sequence[float], violations: Mapping[str, float]) -> None:
        identity = self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)
        trial = self._study._storage.get_trial(identity)
        if trial.state.is_finished():
            return
        # Another driver may be faster, and tell the same; of a constraint that it has set Optuna warns.
        with suppress(optuna.exceptions.UpdateFinishedTrialError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            live = optuna.trial.Trial(self._study, trial._trial_id)
            for name, amount in {_MEMORY: 0.0, _POSSIBLE: 0.0, **violations}.items():
                if name not in trial.constraints:
                    live.set_constraint(name, amount)
            self._study.tell(number, values=list(values), skip_if_finished=True)


def _storage(address: str) -> RDBStorage:
    options = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else {}  # seconds for a lock
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
    if isinstance(distribution, IntDistribution):
        low, high = min(distribution.low, int(value)), max(distribution.high, int(value))
        return IntDistribution(low, high, log=distribution.log)
    if isinstance(distribution, FloatDistribution):
        low_, high_ = min(distribution.low, float(value)), max(distribution.high, float(value))
        return FloatDistribution(low_, high_, log=distribution.log)
    return distribution


def _only(distribution: BaseDistribution) -> Value:
    """The value of a distribution that has no other."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]  # type: ignore[return-value]  # they were made of values
    assert isinstance(distribution, IntDistribution | FloatDistribution)  # `_distribution` makes no others
    return distribution.low


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
