"""A study in Optuna's storage: its points, its objectives, and in user attributes what else a trial has shown.

`optuna-dashboard` on the same storage shows it. Only Optuna's public interface is used.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, LostContact, first_line
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.storage.database import with_driver
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import violations
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.sampler import rows
from paretune.studies.sampler.candidates import own_space
from paretune.studies.search.trial_history import TrialHistory

_RUN_ID, _STATUS, _IMPOSSIBLE = "mlflow_run_id", "status", "impossible_job"
_TRIES = 3
_MOST_DRAWS = 12  # points that the sampler is asked for, for one trial, until one is accepted

Point = Mapping[str, Value]
Accepts = Callable[[Point], bool]


class OptunaStudy:
    """The trials of one study; studies of the same name in a storage, a SQLAlchemy address, are one.

    Raises:
        BadInput: the storage does not answer, or holds a study of this name with other objectives.
    """

    def __init__(self, file: StudyFile, storage: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._file = file
        self.distributions = {name: distribution_of(name, entry) for name, entry in file.search.items()}
        self._own = own_space(file.job.given(), self.distributions) if file.takes_split else {}
        self._where = file.shown_storage or "the study's file"
        try:
            self._storage = _storage(storage)
            self.trials = _opened(file, self._storage)
        except Exception as error:  # SQLAlchemy's and each driver's own
            text = f"storage {self._where} cannot be used ({first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None
        # With the same seed, a driver that starts again would suggest the same points as the one before it.
        count = len(self.trials.get_trials(deepcopy=False))
        self._chosen = _Chosen(_sampler(file, (file.seed + 7919 * count) % 2**32))
        self.trials.sampler = self._chosen
        if [direction.name.lower() for direction in self.trials.directions] != list(file.objectives.values()):
            raise BadInput([f"study {file.name} was begun with other objectives: give it another name (name=...)"])

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate the errors of Optuna when its storage goes away into LostContact: the same command continues."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            text = f"it does not answer ({first_line(error)}): the same command continues the study"
            raise LostContact(f"storage {self._where}: {text}") from error

    def ask(self, accepts: Accepts, otherwise: Point) -> tuple[int, Point]:
        """Number and point of the next trial: the sampler's first one that `accepts` is true of, or `otherwise`."""
        self._chosen.choose = lambda draw: next(
            (point for point in (draw(self.distributions) for _ in range(_MOST_DRAWS)) if accepts(point)), otherwise
        )
        trial = self._asked(self.distributions)
        return trial.number, {name: trial.params[name] for name in self._file.search}

    def ask_for(self, point: Point, changes: Mapping[str, Any]) -> int:
        """The number of a trial at this point, whatever the sampler thinks; `changes` are those of its job."""
        own = {name: changes.get(name, each.low) for name, each in self._own.items()}
        self._chosen.choose = lambda draw: {**point, **own}
        return self._asked({**self.distributions, **self._own}).number

    def _asked(self, space: dict[str, BaseDistribution]) -> Trial:
        self._chosen.space = space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.trials.ask(space)

    def report_outcome(self, entry: TrialEntry, history: TrialHistory, number: int | None = None) -> None:
        """Tell Optuna how a trial has ended, and in user attributes what it has shown.

        A probe is pruned: it has no objectives. `number` is that of a trial with an equal job, by default the entry's.
        """
        number, end = entry.trial if number is None else number, entry.end
        assert end is not None  # it was booked
        is_probe = bool(entry.parameters.get("probe_steps")) and end.status is TrialStatus.COMPLETED
        status = "Probe" if is_probe else end.status.value
        self._describe(number, {_RUN_ID: entry.run_id, _STATUS: status, **_shown(entry, end)})
        values = history.values(end.metrics, entry.parameters)
        if is_probe:
            self._tell_state(number, TrialState.PRUNED)
        elif not end.retryable and set(self._file.objectives) <= set(values):
            self._tell(number, values)
        else:
            self.tell_failed(number)

    def tell_failed(self, number: int) -> None:
        """Tell Optuna that a trial has no objectives."""
        self._tell_state(number, TrialState.FAIL)

    def tell_impossible(self, number: int, job: str = "") -> None:
        """Tell Optuna that a point makes no job that could run; `job` is its hash, for `impossible`."""
        self._describe(number, {_STATUS: "Impossible", _IMPOSSIBLE: job})
        self.tell_failed(number)

    def impossible(self) -> set[str]:
        """Hashes of the jobs that could not be, as earlier drivers have found."""
        return {trial.user_attrs.get(_IMPOSSIBLE, "") for trial in self.trials.get_trials(deepcopy=False)} - {""}

    def running(self) -> list[int]:
        """Numbers of the trials that have not finished."""
        return [trial.number for trial in self.trials.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _tell(self, number: int, values: Mapping[str, float]) -> None:
        with warnings.catch_warnings(), suppress(UpdateFinishedTrialError):
            warnings.simplefilter("ignore")
            if self._file.constraints:
                trial = Trial(self.trials, self._id_of(number))
                for name, amount in violations(values, self._file.constraints).items():
                    trial.set_constraint(name, amount)
            self.trials.tell(number, [values[name] for name in self._file.objectives], skip_if_finished=True)

    def _tell_state(self, number: int, state: TrialState) -> None:
        with suppress(UpdateFinishedTrialError):  # told before a driver died
            self.trials.tell(number, state=state, skip_if_finished=True)

    def _describe(self, number: int, attributes: Mapping[str, Any]) -> None:
        with suppress(UpdateFinishedTrialError):  # told before
            for name, value in attributes.items():
                self._storage.set_trial_user_attr(self._id_of(number), name, value)

    def _id_of(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self._file.name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)


class _Chosen(BaseSampler):
    """Gives each trial the point that `choose` makes of the points that a sampler draws."""

    def __init__(self, sampler: BaseSampler) -> None:
        self._sampler = sampler
        self.space: dict[str, BaseDistribution] = {}
        self.choose: Callable[[Callable[[Mapping[str, BaseDistribution]], dict[str, Any]]], Mapping[str, Any]]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        def draw(space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
            relative = self._sampler.infer_relative_search_space(study, trial)
            drawn = self._sampler.sample_relative(study, trial, relative)
            rest = {name: distribution for name, distribution in space.items() if name not in drawn}
            alone = self._sampler.sample_independent
            return {**drawn, **{name: alone(study, trial, name, each) for name, each in rest.items()}}

        return dict(self.choose(draw))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler.before_trial(study, trial)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        self._sampler.after_trial(study, trial, state, values)


def _shown(entry: TrialEntry, end: TrialEnd) -> dict[str, Any]:
    """User attributes of a job that has ended, as `SplitSampler` reads them."""
    if end.status is not TrialStatus.COMPLETED:
        failed = rows.CUT_OFF if end.is_cut_off else rows.FAILED
        kinds = {TrialStatus.OUT_OF_MEMORY: rows.OUT_OF_MEMORY}
        outcome = rows.AGAIN if end.retryable else kinds.get(end.status, failed)
        return {rows.OUTCOME: outcome, rows.SECONDS: end.billed_s or 0.0}
    measured, spec = end.metrics, JobSpec.read(entry.given)
    shown: dict[str, float | None] = {rows.SECONDS: measured.get(metrics.BILLABLE_SECONDS)}
    speed, training_s = measured.get(metrics.THROUGHPUT_SAMPLES), measured.get(metrics.TRAIN_SECONDS)
    if speed and training_s is not None and not spec.runs_own_training:
        shown[rows.STEP_S] = spec.plan().global_batch_size / speed
        shown[rows.STARTUP_S] = max(0.0, measured[metrics.BILLABLE_SECONDS] - training_s)
        if spec.probe_steps is None and spec.max_train_samples is None:
            shown[rows.ROWS] = speed * training_s / spec.num_train_epochs
    if metrics.F1 in measured:
        shown[rows.BASELINE] = measured.get(metrics.BASELINE_MAJORITY)
    return {name: value for name, value in shown.items() if value is not None and math.isfinite(value)}


def distribution_of(name: str, entry: Choices | Range) -> BaseDistribution:
    """The values of a searched parameter, as Optuna describes them."""
    if isinstance(entry, Choices):
        return CategoricalDistribution(list(entry.values))
    if is_whole(name, entry):
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log)
    return FloatDistribution(entry.low, entry.high, log=entry.log)


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
            directions=[StudyDirection[word.upper()] for word in file.objectives.values()],
            load_if_exists=True,
        )
        if len(study.directions) == len(file.objectives) and not study.metric_names:
            study.set_metric_names(list(file.objectives))  # as the dashboard shows them
        return study


def _sampler(file: StudyFile, seed: int) -> BaseSampler:
    if file.sampler == "gp":
        return GPSampler(seed=seed)
    if file.sampler == "nsga2":
        return NSGAIISampler(seed=seed)
    if file.sampler == "tpe" or not (file.takes_split or file.tries_all or file.sampler == "random"):
        return TPESampler(seed=seed, n_startup_trials=10, multivariate=True, constant_liar=True)
    return RandomSampler(seed=seed)  # every point is asked for one by one
