"""Fits the models of a split search to all jobs that have ended."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paretune.estimating.memory_limits import Footprint
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.studies.results.answer import Borrowed
from paretune.studies.results.quality_model import F1_PRIOR, Key, QualityModel, Surface, unknown_prior
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.affordability import Affordability
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.earlier import earlier_studies, sources_of
from paretune.studies.search.split.earlier_seconds import EarlierSeconds
from paretune.studies.search.split.knowledge import Knowledge
from paretune.studies.search.split.predictions import Outcomes, Predictions
from paretune.studies.search.split.rows import OVERHEAD_S, DataRows, rows_of, seconds_of_a_row
from paretune.studies.search.split.seconds_model import SecondsModel, job_seconds_model


@dataclass(frozen=True, kw_only=True)
class _Measurements:
    """Results of completed jobs; `ran` and `instance_types` are of the jobs whose quality was measured."""

    step_keys: Sequence[Key]
    log_seconds: Sequence[float]
    overheads: Mapping[int, Sequence[float]]  # by number of instances
    quality_keys: Sequence[Key]
    instance_types: Sequence[str]
    ran: Sequence[tuple[float, float, float]]  # seconds, dollars, quality
    pairs: Sequence[tuple[Key, Key]]  # what seconds and quality of each of these jobs depend on
    trials: Sequence[Trial]

    def without(
        self, collapsed: Sequence[bool]
    ) -> tuple[list[tuple[float, float, float]], set[tuple[Key, Key]], dict[tuple[Key, Key], Trial]]:
        """Results and pairs without jobs that have collapsed, and the trials of those to be run again, by pair.

        A job that has collapsed twice is not run again.
        """
        results = [result for result, has in zip(self.ran, collapsed, strict=True) if not has]
        done = {pair for pair, has in zip(self.pairs, collapsed, strict=True) if not has}
        again: dict[tuple[Key, Key], Trial] = {}
        for pair, trial, has in zip(self.pairs, self.trials, collapsed, strict=True):
            if has and pair not in done:
                if pair in again:
                    done.add(pair)
                again[pair] = trial
        return results, done, {pair: trial for pair, trial in again.items() if pair not in done}


class Learner:
    """Learns from the trials of a driver, and from earlier studies of the same model.

    Attributes:
        space: the candidates of the study.
        is_shifted: whether quality depends on the instance type, as matched pairs have shown.
        collapsed: numbers of the trials whose runs have collapsed.
        has_borrowed_quality: whether earlier studies tell the quality of some jobs.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.is_shifted = False
        self.collapsed: set[int] = set()
        self._jobs: dict[int, tuple[JobSpec, BatchPlan]] = {}
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
        self.space.refine(trial.point for trial in self._driver.history.front)
        pending = [(spec, spec.plan()) for spec in expected]
        trainings = [(spec, plan) for spec, plan in pending if spec.probe_steps is None]
        data_rows = self._data_rows.count() if self._data_rows else None
        measured, quality = self._measured(data_rows)
        space = self.space
        self._memory_limits.set_pending(Footprint.of(spec, plan) for spec, plan in pending)
        times = self._seconds_model(measured).condition_on([space.step_key(spec, plan) for spec, plan in pending])
        known_overheads = {**self._earlier_overheads, **measured.overheads}
        overheads = {count: float(np.median(seconds)) for count, seconds in known_overheads.items()}
        training_keys = [space.quality_key(spec, plan) for spec, plan in trainings]
        ran, pairs, again = measured.without(quality.collapsed.tolist()[: len(measured.trials)])
        if measured.ran:
            expected_quality = quality.predict(training_keys).mean
            quality = quality.condition_on(training_keys)
            for (spec, plan), key, value in zip(trainings, training_keys, expected_quality, strict=True):
                row_s = math.exp(float(times.predict([space.step_key(spec, plan)]).mean[0]))
                seconds = self._overhead_s(spec, overheads) + self._rows(spec, data_rows) * row_s
                ran.append((seconds, seconds * space.usd_per_second_of(spec), float(value)))
                pairs.add((space.step_key(spec, plan), key))
        specs = [item.spec for item in space.candidates]
        own_pairs = list(zip(space.step_keys, space.quality_keys, strict=True))
        was_run = np.array([pair in pairs for pair in own_pairs])
        trained = {*measured.quality_keys, *training_keys}
        rows = np.array([self._rows(spec, data_rows) for spec in specs])
        overhead_s = np.array([self._overhead_s(spec, overheads) for spec in specs])
        inputs: dict[str, Any] = {"rows": rows, "overhead_s": overhead_s, "has_quality": bool(measured.ran)}
        predictions = Predictions.of(space, times, quality, self._memory_limits, **inputs)
        knows_rows = np.array([not space.is_own and bool(data_rows or spec.max_train_samples) for spec in specs])
        dollars = {"left_usd": left_usd, "reach_usd": reach_usd}
        return Knowledge(
            space=space,
            constraints=self._driver.file.constraints,
            predictions=predictions,
            affordability=Affordability.of(space, predictions, was_run=was_run, knows_rows=knows_rows, **dollars),
            ran=Outcomes.of(ran),
            was_run=was_run,
            was_trained=np.array([key in trained for key in space.quality_keys], dtype=bool),
            again={index: again[pair] for index, pair in enumerate(own_pairs) if pair in again},
            source_weights=quality.surface.weights(),
        )

    def _measured(self, data_rows: float | None) -> tuple[_Measurements, QualityModel]:
        """Results so far and the model of their quality, by instance type once matched pairs show that it matters."""
        measured = self._measurements(data_rows)
        quality = self._quality_model(measured)
        if not self.is_shifted and quality.is_shifted(measured.instance_types):
            self.is_shifted, self.space, self._sources = True, self.space.by_type(), []
            return self._measured(data_rows)
        runs = zip(measured.trials, quality.collapsed[: len(measured.trials)], strict=True)
        self.collapsed = {trial.number for trial, has_collapsed in runs if has_collapsed}
        return measured, quality

    def _measurements(self, data_rows: float | None) -> _Measurements:
        space, metric = self.space, self.space.quality.metric
        step_keys, log_seconds, quality_keys, instance_types, ran = [], [], [], [], []
        overheads: dict[int, list[float]] = {}
        pairs, trials = [], []
        for number, measured in self._driver.history.measured.items():
            trial = self._driver.trials[number]
            if number not in self._jobs:
                spec = JobSpec.read(trial.parameters)
                self._jobs[number] = spec, spec.plan()
            (spec, plan), billed_s = self._jobs[number], measured[metrics.BILLABLE_SECONDS]
            row_s, overhead_s = billed_s, 0.0  # the whole job counts as one row
            if not space.is_own:
                row_s, overhead_s = seconds_of_a_row(measured, self._rows(spec, data_rows))
            step_keys.append(space.step_key(spec, plan))
            log_seconds.append(math.log(row_s))
            overheads.setdefault(spec.instance_count, []).append(overhead_s)
            if metric in measured:
                trials.append(trial)
                quality_keys.append(space.quality_key(spec, plan))
                instance_types.append(spec.instance_type)
                ran.append((billed_s, billed_s * space.usd_per_second_of(spec), space.quality.sign * measured[metric]))
                pairs.append((step_keys[-1], quality_keys[-1]))
        return _Measurements(
            step_keys=step_keys,
            log_seconds=log_seconds,
            overheads=overheads,
            quality_keys=quality_keys,
            instance_types=instance_types,
            ran=ran,
            pairs=pairs,
            trials=trials,
        )

    def _seconds_model(self, measured: _Measurements) -> SecondsModel | Surface:
        if self.space.is_own:
            return job_seconds_model(measured.step_keys, measured.log_seconds, len(self.space.step_keys[0][1]))
        return SecondsModel(measured.step_keys, measured.log_seconds, self._earlier_seconds)

    def _quality_model(self, measured: _Measurements) -> QualityModel:
        values = [quality for _, _, quality in measured.ran]
        prior = unknown_prior(values, len(self.space.quality_keys[0][1])) if self.space.is_own else F1_PRIOR
        return QualityModel(measured.quality_keys, values, prior, sources=self._sources)

    def _rows(self, spec: JobSpec, data_rows: float | None) -> float:
        """Rows of a job; of the user's own training, whose rows are unknown, the whole job counts as one."""
        return 1.0 if self.space.is_own else rows_of(spec, data_rows)

    def _overhead_s(self, spec: JobSpec, overheads: Mapping[int, float]) -> float:
        """Billed seconds around a training: of the jobs with the nearest number of instances."""
        if self.space.is_own:
            return 0.0
        if not overheads:  # nobody limits jobs to less than twice what starting takes
            return min(OVERHEAD_S, spec.max_runtime_minutes * 60 / 2)
        return overheads[min(overheads, key=lambda count: abs(math.log(count / spec.instance_count)))]
