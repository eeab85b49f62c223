"""The trials of a study, all of them in Optuna's storage, through Optuna's public interface.

Parameters, values and states are Optuna's. What else a trial has is in its user attributes: its `kind` (search, probe
or repeat), fields of `Trial` by their names, and what `SplitSampler` reads. `state` is written last each time, so what
was written before belongs together. A trial that somebody else has added, or told while its job ran, is read as that.
Optuna lets nobody change it then: what is booked later is in the study's attributes, as `booked N` and `kept N`.
"""

import json
import logging
import math
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, LostContact, first_line
from paretune.ledger.lock import StudyLock, unusable
from paretune.pricing import Balance
from paretune.specification import metrics
from paretune.specification.parameters import Value
from paretune.storage.database import with_driver
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import violations
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.results.trials import Next, Trial, TrialStatus
from paretune.studies.sampler import candidates
from paretune.studies.sampler.candidates import own_space

STATE, RUN_ID, NOT_RUN = "state", "run_id", "NotRun"
"""User attributes `state` and `run_id`; the state of a trial whose job was never begun."""
_IMPOSSIBLE, _DESCRIBED, _MARK = "impossible_job", "described", "mark"
_RESERVED = ("repeats", "given", "changes", "worst_usd")
_BOOKED = ("measured", "cost_usd", "reason", "verdicts")
_IN_END = ("kept_usd", "billed_s", "ended_at", "refused_beside")
"""Fields of a trial: of its reservation, of its end, and those of its end that are in one attribute."""
_ENDS = {TrialState.COMPLETE: TrialStatus.COMPLETED, TrialState.PRUNED: TrialStatus.STOPPED}
_MOST_DRAWS = 12  # points that the sampler is asked for, for one trial, until one is accepted
_MOST_DIFFERENCES, _LONGEST = 8, 400  # of a description; characters of each

Point = Mapping[str, Value]
Accepts = Callable[[Point], bool]


class StudyTable:
    """The trials of one study; studies of the same name in a storage, a SQLAlchemy address, are one.

    The `lock` is looked at before anything is written; `origin` is that of its jobs. Raises BadInput if the storage
    does not answer, or holds a study of this name with other objectives.
    """

    def __init__(self, file: StudyFile, storage: str, lock: StudyLock | None = None, origin: str = "measured") -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._file, self._lock, self._origin = file, lock or StudyLock(), origin
        self.distributions = {name: distribution_of(name, entry) for name, entry in file.search.items()}
        self._of_sampler = own_space(file.job.given(), self.distributions) if file.takes_split else {}
        self._where = file.shown_storage or "the study's file"
        self._all_read: list[FrozenTrial] | None = None  # what was read since something was written
        try:
            self._storage, self.study = _opened(file, storage)
            self._study_id = self._storage.get_study_id_from_name(file.name)
            count = len(self._all())
        except Exception as error:  # SQLAlchemy's and each driver's own
            raise unusable(storage, error) from None
        # With the same seed, a driver that starts again would suggest the same points as the one before it.
        sampler = _sampler(file, (file.seed + 7919 * count) % 2**32)
        self.study.sampler = self._chosen = _Chosen(sampler, self.distributions, self._of_sampler)
        if [direction.name.lower() for direction in self.study.directions] != list(file.objectives.values()):
            raise BadInput([f"study {file.name} was begun with other objectives: give it another name (name=...)"])

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate the errors of Optuna when its storage goes away into LostContact: the same command continues."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError, UpdateFinishedTrialError) as error:
            text = f"it does not answer ({first_line(error)}): the same command continues the study"
            raise LostContact(f"storage {self._where}: {text}") from error

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def open(self, run_id: str, described: str) -> tuple[str, str]:
        """Describe the study unless that is done; returns its MLflow run id, empty if it has none yet, and its mark.

        `described` holds its values by their names, as JSON; BadInput if the study was begun with others. The mark is a
        random tag that no other study has, even of the same name in another storage.
        """
        attributes = self.study.user_attrs
        if _DESCRIBED not in attributes:
            attributes = {_MARK: uuid.uuid4().hex, RUN_ID: run_id, _DESCRIBED: described}
            for name, text in attributes.items():
                self.study.set_user_attr(name, text)
        if attributes[_DESCRIBED] != described:
            text = f"study {self._file.name} was begun with another search space, job or objectives: give it another "
            text += f"name (name=...), or the same file ({_difference(attributes[_DESCRIBED], described)})"
            raise BadInput([text])
        return attributes[RUN_ID], attributes[_MARK]

    def name_study_run(self, run_id: str) -> None:
        """Record the study's MLflow run."""
        self.study.set_user_attr(RUN_ID, run_id)

    def ask(self, accepts: Accepts, otherwise: Point) -> tuple[int, Point]:
        """Number and point of the next trial: the sampler's first one that `accepts` is true of, or `otherwise`."""
        return self._asked(lambda draw: next(filter(accepts, (draw() for _ in range(_MOST_DRAWS))), otherwise))

    def ask_for(self, point: Point, changes: Mapping[str, Any]) -> int:
        """The number of a trial at this point, whatever the sampler thinks; `changes` are those of its job."""
        of_sampler = {name: changes[name] for name in self._of_sampler if name in changes}
        return self._asked(lambda _: {**point, **of_sampler})[0]

    def ask_waiting(self) -> tuple[int, Point] | None:
        """Number and point of a trial that somebody has put into the queue of the study; None if it is empty."""
        if not any(trial.state is TrialState.WAITING for trial in self._all()):
            return None
        return self._asked(lambda draw: draw())

    def _asked(self, choose: "_Choose") -> tuple[int, Point]:
        self.look_again()
        self._lock.check()
        self._chosen.choose = choose
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self.study.ask(self._chosen.space)
        return trial.number, {name: trial.params[name] for name in self._file.search}

    def reserve(self, trial: Trial) -> None:
        """Record the job of a trial with its worst case: from now on it is begun, and found after a kill."""
        kind = "repeat" if trial.repeats is not None else "probe" if trial.is_probe else "search"
        fields = {name: getattr(trial, name) for name in _RESERVED}
        self._write(trial.number, {"kind": kind, **fields, STATE: TrialStatus.RUNNING.value})

    def name_run(self, number: int, run_id: str) -> None:
        """Record the MLflow run of a trial."""
        with suppress(UpdateFinishedTrialError):  # somebody has told it: the run is named when it is booked
            self._write(number, {RUN_ID: run_id})

    def book(self, trial: Trial) -> None:
        """Record how the job of a trial has ended and what it cost, in place of its reservation."""
        end = {"follows": trial.follows.value, **{name: getattr(trial, name) for name in _IN_END}}
        values = {name: getattr(trial, name) for name in _BOOKED}
        values |= {"end": end, **_shown(trial), STATE: trial.status.value}
        try:
            self._write(trial.number, values)
        except UpdateFinishedTrialError:  # somebody has told it
            self.study.set_user_attr(f"booked {trial.number}", {**values, RUN_ID: trial.run_id})

    def book_kept(self, number: int, usd: float) -> None:
        """Record the cost of the warm pool kept after a trial's job, in place of its reservation."""
        self._lock.check()
        self.study.set_user_attr(f"kept {number}", usd)

    def tell(self, trial: Trial, number: int | None = None) -> None:
        """Tell Optuna how a trial has ended; `number` is that of another trial with the same job, by default its own.

        A probe is pruned: it has no objectives.
        """
        if number is None:
            number = trial.number
        else:
            self._write(number, {**_shown(trial), STATE: NOT_RUN})
        if trial.is_probe and trial.status is TrialStatus.COMPLETED:
            self._tell(number, TrialState.PRUNED)
        elif set(self._file.objectives) <= set(trial.values):
            self._tell(number, None, trial.values)
        else:
            self._tell(number, TrialState.FAIL)

    def drop(self, number: int, impossible: str = "") -> None:
        """Tell Optuna that no job of a trial is begun; `impossible` is the hash of a job that could not be."""
        with suppress(UpdateFinishedTrialError):
            self._write(number, {_IMPOSSIBLE: impossible or None, STATE: NOT_RUN})
        self._tell(number, TrialState.FAIL)

    def abandoned(self) -> list[int]:
        """Numbers of the trials that were asked for and have no job yet."""
        asked = [trial for trial in self._all() if trial.state is TrialState.RUNNING]
        return [trial.number for trial in asked if STATE not in trial.user_attrs]

    def impossible(self) -> set[str]:
        """Hashes of the jobs that could not be."""
        return {trial.user_attrs.get(_IMPOSSIBLE, "") for trial in self._all()} - {""}

    def trials(self) -> tuple[list[Trial], list[Trial]]:
        """The trials whose jobs have not ended, by number, and those that have ended, in the order of booking."""
        later = self.study.user_attrs
        by_end = sorted(
            self._all(),
            key=lambda each: (each.datetime_complete is None, each.datetime_complete or each.number, each.number),
        )
        running, ended = [], []
        for frozen in by_end:
            trial = self._trial(frozen, later.get(f"booked {frozen.number}", {}))
            if trial is None:
                continue
            if trial.status is TrialStatus.RUNNING:
                running.append(trial)
                continue
            if (kept_usd := later.get(f"kept {trial.number}")) is not None:
                trial = replace(trial, cost_usd=(trial.cost_usd or 0.0) + kept_usd, kept_usd=0.0)
            ended.append(trial)
        return sorted(running, key=lambda trial: trial.number), ended

    def look_again(self) -> None:
        """Read the storage anew when it is asked next: somebody else may have written to it."""
        self._all_read = None

    def _all(self) -> list[FrozenTrial]:
        if self._all_read is None:
            self._all_read = self.study.get_trials(deepcopy=False)
        return self._all_read

    def told(self) -> set[int]:
        """Numbers of the trials that Optuna knows the end of."""
        return {trial.number for trial in self._all() if trial.state.is_finished()}

    def balance(self) -> Balance:
        """Dollars of the study that are spent and reserved."""
        running, ended = self.trials()
        reserved = [trial.worst_usd or 0.0 for trial in running] + [trial.kept_usd or 0.0 for trial in ended]
        return Balance(spent_usd=sum(trial.cost_usd or 0.0 for trial in ended), committed_usd=sum(reserved))

    def _trial(self, frozen: FrozenTrial, later: Mapping[str, Any]) -> Trial | None:
        """A trial as it stands; None if no job of it was begun, or that is not known yet."""
        told = {**frozen.user_attrs, **later}
        point = {name: frozen.params[name] for name in self._file.search if name in frozen.params}
        if told.get(STATE) == NOT_RUN or (STATE not in told and not frozen.state.is_finished()):
            return None
        of_optuna = self.values(dict(zip(self._file.objectives, frozen.values or (), strict=False)))
        fields: dict[str, Any] = {"number": frozen.number, "point": point, "origin": self._origin}
        if STATE not in told:  # somebody has added it
            with suppress(BadInput):
                status = _ENDS.get(frozen.state, TrialStatus.FAILED)
                reason = "" if status is TrialStatus.COMPLETED else "somebody told so in Optuna's storage"
                fields |= {"given": self._file.spec_at(point).changed(), "measured": of_optuna, "values": of_optuna}
                return Trial(**fields, status=status, reason=reason)
            return None
        status, end = TrialStatus(told[STATE]), dict(told.get("end", {}))
        fields |= {name: told[name] for name in (*_RESERVED, *_BOOKED, RUN_ID) if name in told} | end
        fields |= {"verdicts": tuple(told.get("verdicts", ())), "follows": Next(end.get("follows", Next.NOTHING))}
        values = {} if "probe_steps" in told["given"] else self.values(told.get("measured", {}))
        if later and frozen.state is TrialState.COMPLETE:  # somebody told its values
            status, values = TrialStatus.COMPLETED, of_optuna
        return Trial(**fields, status=status, values=values)

    def values(self, measured: Mapping[str, float]) -> dict[str, float]:
        """The study's objectives and constraints among a job's metrics."""
        names = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        return {name: measured[name] for name in names if name in measured and math.isfinite(measured[name])}

    def _write(self, number: int, attributes: Mapping[str, Any]) -> None:
        self.look_again()
        self._lock.check()
        for name, value in attributes.items():
            if value is not None and value not in ({}, (), ""):
                self._storage.set_trial_user_attr(self._id_of(number), name, value)

    def _tell(self, number: int, state: TrialState | None, values: Mapping[str, float] | None = None) -> None:
        self.look_again()
        with warnings.catch_warnings(), suppress(UpdateFinishedTrialError):  # told before a driver died
            warnings.simplefilter("ignore")
            if values is not None and self._file.constraints:
                trial = optuna.Trial(self.study, self._id_of(number))
                for name, amount in violations(values, self._file.constraints).items():
                    trial.set_constraint(name, amount)
            told = None if values is None else [values[name] for name in self._file.objectives]
            self.study.tell(number, told, state=state, skip_if_finished=True)

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


_Choose = Callable[[Callable[[], dict[str, Any]]], Mapping[str, Any]]


class _Chosen(BaseSampler):
    """Gives each trial the point that `choose` makes of the points that a sampler draws."""

    def __init__(
        self, sampler: BaseSampler, drawn: Mapping[str, BaseDistribution], further: Mapping[str, IntDistribution]
    ) -> None:
        self._sampler, self._drawn = sampler, drawn
        self._plain = {name: each.low for name, each in further.items()}  # values that change nothing
        self.space: dict[str, BaseDistribution] = {**drawn, **further}
        self.choose: _Choose

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        sampler = self._sampler

        def draw() -> dict[str, Any]:
            drawn = sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))
            rest = {name: each for name, each in self._drawn.items() if name not in drawn}
            return drawn | {name: sampler.sample_independent(study, trial, name, each) for name, each in rest.items()}

        return {**self._plain, **self.choose(draw)}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


def _shown(trial: Trial) -> dict[str, Any]:
    """User attributes of a job that has ended, as `SplitSampler` reads them."""
    if trial.status is not TrialStatus.COMPLETED:
        failed = candidates.CUT_OFF if trial.is_cut_off else candidates.FAILED
        kinds = {TrialStatus.OUT_OF_MEMORY: candidates.OUT_OF_MEMORY}
        outcome = candidates.AGAIN if trial.is_retryable else kinds.get(trial.status, failed)
        return {candidates.OUTCOME: outcome, candidates.SECONDS: trial.billed_s or 0.0}
    measured, spec = trial.measured, trial.spec
    shown: dict[str, float | None] = {candidates.SECONDS: measured.get(metrics.BILLABLE_SECONDS)}
    speed, training_s = measured.get(metrics.THROUGHPUT_SAMPLES), measured.get(metrics.TRAIN_SECONDS)
    if speed and training_s is not None and not spec.runs_user_code:
        shown[candidates.STEP_S] = spec.plan().global_batch_size / speed
        shown[candidates.STARTUP_S] = max(0.0, measured[metrics.BILLABLE_SECONDS] - training_s)
        if spec.probe_steps is None and spec.max_train_samples is None:
            shown[candidates.ROWS] = speed * training_s / spec.num_train_epochs
    if metrics.F1 in measured:
        shown[candidates.BASELINE] = measured.get(metrics.BASELINE_MAJORITY)
    return {name: value for name, value in shown.items() if value is not None and math.isfinite(value)}


def distribution_of(name: str, entry: Choices | Range) -> BaseDistribution:
    """The values of a searched parameter, as Optuna describes them."""
    if isinstance(entry, Choices):
        return CategoricalDistribution(list(entry.values))
    if is_whole(name, entry):
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log)
    return FloatDistribution(entry.low, entry.high, log=entry.log)


def _opened(file: StudyFile, address: str) -> tuple[RDBStorage, optuna.Study]:
    options = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else {}  # seconds for a lock
    storage = None
    with suppress(Exception):  # the driver of another study may be making the tables at this moment
        storage = RDBStorage(with_driver(address), engine_kwargs=options)
    storage = storage or RDBStorage(with_driver(address), engine_kwargs=options)
    directions = [StudyDirection[word.upper()] for word in file.objectives.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(study_name=file.name, storage=storage, directions=directions, load_if_exists=True)
        if len(study.directions) == len(file.objectives) and not study.metric_names:
            study.set_metric_names(list(file.objectives))  # as the dashboard shows them
    return storage, study


def _sampler(file: StudyFile, seed: int) -> BaseSampler:
    if file.takes_split or file.tries_all or file.sampler == "random":
        return RandomSampler(seed=seed)  # of most of these every point is asked for one by one
    if file.sampler in ("gp", "nsga2"):
        return GPSampler(seed=seed) if file.sampler == "gp" else NSGAIISampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=10, multivariate=True, constant_liar=True)


def _difference(before: str, now: str) -> str:
    earlier, later = ({name: json.dumps(value) for name, value in json.loads(text).items()} for text in (before, now))
    names = sorted(name for name in {*earlier, *later} if earlier.get(name) != later.get(name))
    texts = [f"{name}: {earlier.get(name, 'none')} then, {later.get(name, 'none')} now"[:_LONGEST] for name in names]
    return "; ".join(texts[:_MOST_DIFFERENCES])
