"""Fits the models of a split search to all jobs that have ended."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paretune.estimating.memory_limits import Footprint
from paretune.estimating.noise import F1_NOISE
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from paretune.studies.results.answer import Borrowed
from paretune.studies.results.f1_model import F1Model, Key
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.affordability import Affordability
from paretune.studies.search.split.borrowed_f1 import BorrowedF1Model, sources_of
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.earlier import earlier_studies
from paretune.studies.search.split.earlier_seconds import EarlierSeconds
from paretune.studies.search.split.knowledge import Knowledge
from paretune.studies.search.split.own_training import JobSecondsModel, OwnQualityModel
from paretune.studies.search.split.predictions import Outcomes, Predictions
from paretune.studies.search.split.rows import OVERHEAD_S, DataRows, rows_of, seconds_of_a_row
from paretune.studies.search.split.seconds_model import SecondsModel


@dataclass(frozen=True, kw_only=True)
class _Measurements:
    """Results of completed jobs; `ran` and `instance_types` are of the jobs whose quality was measured."""

    step_keys: Sequence[Key]
    log_seconds: Sequence[float]
    overheads: Mapping[int, Sequence[float]]  # by number of instances
    quality_keys: Sequence[Key]
    instance_types: Sequence[str]
    ran: Sequence[tuple[float, float, float]]  # seconds, dollars, quality
    pairs: frozenset[tuple[Key, Key]]  # what seconds and quality of each of these jobs depend on


class Learner:
    """Learns from the trials of a driver, and from earlier studies of the same model.

    Attributes:
        has_borrowed_quality: whether earlier studies tell the quality of some jobs.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory_limits = driver.history.memory_limits
        self.space = CandidateSpace(driver.file, driver.workplace.launcher)
        self._data_rows = DataRows(self.space.candidates[0].spec, driver) if self.space.candidates else None
        self._earlier = earlier_studies(driver)
        self._earlier_seconds = EarlierSeconds(self._earlier) if self._earlier else None
        self._sources = sources_of(self._earlier, {kinds for kinds, _ in self.space.quality_keys})
        self.has_borrowed_quality = bool(self._sources)
        self._earlier_overheads: dict[int, list[float]] = {}
        for study in self._earlier:
            for count, seconds in study.overheads:
                self._earlier_overheads.setdefault(count, []).append(seconds)
            for footprint, did_fit in study.footprints:  # own jobs that ran out of memory count more, see `chance`
                (self._memory_limits.fitted if did_fit else self._memory_limits.ran_out)(footprint)

    def borrowed(self, knowledge: Knowledge | None) -> list[Borrowed]:
        """Earlier studies, each with the probability that quality here is like there, None before anything was learnt.

        The probability that several of them together tell it is a part of the probability of each.
        """
        weights_of = {} if knowledge is None else knowledge.source_weights
        borrowed = []
        for study in self._earlier:
            if len(study.parents) == 1:
                weights = [
                    weight
                    for (parents, is_same), weight in weights_of.items()
                    if study.parents <= parents and is_same is study.is_same_data
                ]
                weight = sum(weights) if weights else None
                item = Borrowed(study=study.name, runs=study.runs, is_same_data=study.is_same_data)
                borrowed.append(replace(item, weight=weight))
        return borrowed

    def learn(
        self, expected: Iterable[JobSpec] = (), *, left_usd: float = math.inf, reach_usd: float = math.inf
    ) -> Knowledge:
        """Fit both models to all that has ended; jobs under way, `expected`, count as if they had gone as expected.

        `left_usd` are the dollars that the next job may be promised, and `reach_usd` what will be left of the budget
        when the jobs under way have cost what is expected.
        """
        space = self.space
        pending = [(spec, spec.plan()) for spec in expected]
        trainings = [(spec, plan) for spec, plan in pending if spec.probe_steps is None]
        data_rows = self._data_rows.count() if self._data_rows else None
        measured = self._measurements(data_rows)
        self._memory_limits.set_pending(Footprint.of(spec, plan) for spec, plan in pending)
        times = self._seconds_model(measured).condition_on([space.step_key(spec, plan) for spec, plan in pending])
        overheads = {
            count: float(np.median(seconds))
            for count, seconds in {**self._earlier_overheads, **measured.overheads}.items()
        }
        training_keys = [space.quality_key(spec, plan) for spec, plan in trainings]
        quality, usual_noise = self._quality_model(measured)
        weights = dict(quality.weights()) if isinstance(quality, BorrowedF1Model) else {}
        ran, pairs, shift_evidence = list(measured.ran), set(measured.pairs), 0.0
        if measured.ran:
            shift_evidence = quality.shift_evidence(measured.instance_types)
            expected_quality = quality.predict(training_keys).mean
            quality = quality.condition_on(training_keys)
            for (spec, plan), key, value in zip(trainings, training_keys, expected_quality, strict=True):
                row_s = math.exp(float(times.predict([space.step_key(spec, plan)]).mean[0]))
                seconds = self._overhead_s(spec, overheads) + self._rows(spec, data_rows) * row_s
                ran.append((seconds, seconds * space.usd_per_second_of(spec), float(value)))
                pairs.add((space.step_key(spec, plan), key))
        specs = [item.spec for item in space.candidates]
        was_run = np.array([keys in pairs for keys in zip(space.step_keys, space.quality_keys, strict=True)])
        trained = {*measured.quality_keys, *training_keys}
        predictions = Predictions.of(
            space,
            times,
            quality,
            self._memory_limits,
            rows=np.array([self._rows(spec, data_rows) for spec in specs]),
            overhead_s=np.array([self._overhead_s(spec, overheads) for spec in specs]),
            usual_noise=usual_noise,
            has_quality=bool(measured.ran),
        )
        affordability = Affordability.of(
            space,
            predictions,
            was_run=was_run,
            knows_rows=np.array([not space.is_own and bool(data_rows or spec.max_train_samples) for spec in specs]),
            left_usd=left_usd,
            reach_usd=reach_usd,
        )
        return Knowledge(
            space=space,
            constraints=self._driver.file.constraints,
            predictions=predictions,
            affordability=affordability,
            ran=Outcomes.of(ran),
            was_run=was_run,
            was_trained=np.array([key in trained for key in space.quality_keys], dtype=bool),
            shift_evidence=shift_evidence,
            source_weights=weights,
        )

    def _measurements(self, data_rows: float | None) -> _Measurements:
        space, metric = self.space, self.space.quality.metric
        step_keys, log_seconds, quality_keys, instance_types, ran = [], [], [], [], []
        overheads: dict[int, list[float]] = {}
        pairs = set()
        for number, measured in self._driver.history.measured.items():
            spec = JobSpec.from_text(self._driver.trials[number].parameters)
            plan, billed_s = spec.plan(), measured[metrics.BILLABLE_SECONDS]
            row_s, overhead_s = billed_s, 0.0  # the whole job counts as one row
            if not space.is_own:
                row_s, overhead_s = seconds_of_a_row(measured, self._rows(spec, data_rows))
            step_keys.append(space.step_key(spec, plan))
            log_seconds.append(math.log(row_s))
            overheads.setdefault(spec.instance_count, []).append(overhead_s)
            if metric in measured:
                quality_keys.append(space.quality_key(spec, plan))
                instance_types.append(spec.instance_type)
                ran.append((billed_s, billed_s * space.usd_per_second_of(spec), space.quality.sign * measured[metric]))
                pairs.add((step_keys[-1], quality_keys[-1]))
        return _Measurements(
            step_keys=step_keys,
            log_seconds=log_seconds,
            overheads=overheads,
            quality_keys=quality_keys,
            instance_types=instance_types,
            ran=ran,
            pairs=frozenset(pairs),
        )

    def _seconds_model(self, measured: _Measurements) -> SecondsModel | JobSecondsModel:
        if self.space.is_own:
            return JobSecondsModel(measured.step_keys, measured.log_seconds, len(self.space.step_keys[0][1]))
        return SecondsModel(measured.step_keys, measured.log_seconds, self._earlier_seconds)

    def _quality_model(self, measured: _Measurements) -> tuple[F1Model | BorrowedF1Model | OwnQualityModel, float]:
        """The model, and the standard deviation of one run that is likely before any job is repeated."""
        keys, values = measured.quality_keys, [quality for _, _, quality in measured.ran]
        if self.space.is_own:
            model = OwnQualityModel(keys, values, len(self.space.quality_keys[0][1]))
            return model, model.usual_noise
        return (BorrowedF1Model(keys, values, self._sources) if self._sources else F1Model(keys, values)), F1_NOISE

    def _rows(self, spec: JobSpec, data_rows: float | None) -> float:
        """Rows of a job; of the user's own training, whose rows are unknown, the whole job counts as one."""
        return 1.0 if self.space.is_own else rows_of(spec, data_rows)

    def _overhead_s(self, spec: Placement, overheads: Mapping[int, float]) -> float:
        """Billed seconds around a training: of the jobs with the nearest number of instances."""
        if self.space.is_own:
            return 0.0
        if not overheads:  # nobody limits jobs to less than twice what starting takes
            return min(OVERHEAD_S, spec.max_runtime_minutes * 60 / 2)
        return overheads[min(overheads, key=lambda count: abs(math.log(count / spec.instance_count)))]
