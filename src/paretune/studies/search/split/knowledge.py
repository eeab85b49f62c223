"""What a split search knows after each job: values of every candidate, expected and optimistic, and which are known."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, stdtrit

from paretune.core.pareto import front
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.noise import F1_NOISE
from paretune.ledger.trial_entry import TrialStatus
from paretune.pricing.prices import Price, local_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import TIMES
from paretune.studies.definition.quality import F1
from paretune.studies.results.answer import Borrowed
from paretune.studies.results.f1_model import (
    FREEDOM,
    F1Model,
    Key,
    NormalPrediction,
    quality_key,
)
from paretune.studies.results.hypervolume import hypervolume, hypervolume_improvement, reference_point
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.trials import PREDICTED, Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.borrowed_f1 import BorrowedF1Model, sources_of
from paretune.studies.search.split.candidates import candidates, step_of
from paretune.studies.search.split.earlier import EarlierStudy, earlier_studies
from paretune.studies.search.split.earlier_seconds import EarlierSeconds
from paretune.studies.search.split.own_training import JobSecondsModel, KeyOf, OwnQualityModel, key_over
from paretune.studies.search.split.rows import OVERHEAD_S, DataRows, rows_of, seconds_of_a_row
from paretune.studies.search.split.seconds_model import SecondsModel

SECONDS_KNOWN = 0.08
"""Relative deviation at which seconds are as good as measured."""
_F1_KNOWN = 1.6
"""Standard deviations of noise at which F1 is as good as measured; noise below what is usual counts as usual."""
_NODES = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
"""Deviations and weights with which the mean of a function of a normal number is worked out (Gauss and Hermite)."""
_INTERVAL_ENDS = float(stdtrit(FREEDOM, 0.5 + INTERVAL / 2))
"""Standard deviations from what is expected to either end of an interval: Student's, for they are estimated, too."""
_OPTIMISM = 0.4  # standard deviations above what is expected of F1
_LEAST_MARGIN = 0.05  # of the least dollars or seconds
_UNTIL_FULL_S = 60.0  # of training, until it runs out of memory
_COLUMNS = {metrics.BILLABLE_SECONDS: 0, metrics.JOB_SECONDS: 0, metrics.COST_USD: 1}
_QUALITY_COLUMN = 2
FIRST_PREDICTED = 1_000_000
"""Numbers of predicted points begin here, above those of all trials."""
_COMFORTABLE = 2.0
"""Times what a job takes if it goes rather badly: the limit that it gets where dollars are not few."""
_LEAST_LIMIT_S = 900.0
_START_SCATTER = 0.25
"""Standard deviation of the seconds around a training, relative: capacity, images and data come fast or slowly."""
_SURE = 1.0
"""Standard deviations above what is expected that a limit must cover: five in six jobs end before it."""
_BRIEF = 0.5
"""Share of a training's dollars from which on a probe is not worth it: the training shows as much, and F1 too."""
OF_THE_CLUSTER = {*affecting(JobSpec, "seconds", "memory", without=("quality",))}
"""Searched parameters that a training for F1 may choose freely."""
Reached = tuple[float, float, float]
"""Billed seconds, dollars and F1 of a job."""


class Knowledge:
    """All candidates, and what is known of each from a driver's trials. Arrays have one entry per candidate."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.pool = candidates(driver.file)
        self._memory_limits = driver.history.memory_limits
        self._footprints = [Footprint.of(item.spec, item.plan) for item in self.pool]
        self.quality = driver.file.judged_by or F1
        self.is_own = driver.file.is_own
        self._step_of, self._quality_of = self._keys(driver.file)
        self._step_keys = [self._step_of(item.spec, item.plan) for item in self.pool]
        self.quality_keys = [self._quality_of(item.spec, item.plan) for item in self.pool]
        self._borrow(earlier_studies(driver))
        self._data = DataRows(self.pool[0].spec, driver) if self.pool else None
        self._columns_of = {**_COLUMNS, self.quality.metric: _QUALITY_COLUMN}
        free = set(driver.file.search) - {*driver.file.changes_quality} if self.is_own else OF_THE_CLUSTER
        rests = [tuple(item.point[name] for name in item.point if name not in free) for item in self.pool]
        numbers = {rest: number for number, rest in enumerate(dict.fromkeys(rests))}
        self.rest = np.array([numbers[rest] for rest in rests])
        self.share = np.array([item.plan.per_device_train_batch_size * item.plan.devices for item in self.pool])
        self._limits = np.array([item.spec.max_runtime_minutes * 60 for item in self.pool])
        self._prices: dict[str, Price] = {}
        self.usd_per_second = np.array([self._usd_per_second_of(item.spec) for item in self.pool])
        launcher = driver.workplace.launcher
        kept = [item.spec.keep_alive_minutes * 60 + launcher.overrun_s for item in self.pool]
        self._overruns = np.array(kept)
        wanted = ((1, {metrics.COST_USD}), (0, set(TIMES)))
        self._columns = [column for column, names in wanted if names & set(driver.file.objectives)] or [1]

    def _borrow(self, studies: Sequence[EarlierStudy]) -> None:
        """Take what earlier studies have shown of the candidates."""
        self._earlier, self._weights = studies, dict[tuple[frozenset[str], bool], float]()
        self._earlier_seconds = EarlierSeconds(studies) if studies else None
        self._sources = sources_of(studies, {kinds for kinds, _ in self.quality_keys})
        self.has_borrowed_f1 = bool(self._sources)
        self._earlier_overheads: dict[int, list[float]] = {}
        for study in studies:
            for count, seconds in study.overheads:
                self._earlier_overheads.setdefault(count, []).append(seconds)
            for footprint, did_fit in study.footprints:  # own jobs that ran out of memory count more, see `chance`
                (self._memory_limits.fitted if did_fit else self._memory_limits.ran_out)(footprint)

    def borrowed(self) -> list[Borrowed]:
        """Earlier studies, each with the probability that F1 here is like there, as far as own jobs tell.

        That several together tell it is a part of the probability of each of them.
        """
        found = []
        for study in self._earlier:
            if len(study.parents) == 1:
                shown = Borrowed(study=study.name, runs=study.runs, is_same_data=study.is_same_data)
                weights = [
                    weight
                    for (parents, is_same), weight in self._weights.items()
                    if study.parents <= parents and is_same is study.is_same_data
                ]
                found.append(replace(shown, weight=sum(weights) if weights else None))
        return found

    def learn(
        self, expected: Iterable[JobSpec] = (), *, left_usd: float = math.inf, reach_usd: float = math.inf
    ) -> None:
        """Fit both models to all that has ended; jobs under way count as if they had shown what is expected.

        `left_usd` are the dollars that the next job may be promised, and `reach_usd` what will be left of the budget
        when the jobs under way have cost what is expected.
        """
        expected = list(expected)
        self._left_usd, self._reach_usd = left_usd, reach_usd
        data_rows = self._data.count() if self._data else None
        self._tells_rows = [not self.is_own and bool(data_rows or item.spec.max_train_samples) for item in self.pool]
        self.rows = np.array([self._rows_of(item.spec, data_rows) for item in self.pool])
        steps: list[Key] = []
        log_seconds: list[float] = []
        overheads: dict[int, list[float]] = {}
        qualities: list[Key] = []
        clusters: list[str] = []  # where F1 was measured
        ran: list[Reached] = []
        was_run: set[tuple[Key, Key]] = set()  # what seconds and F1 of a job depend on
        for number, measured in self._driver.history.measured.items():
            spec = JobSpec.from_text(self._driver.trials[number].parameters)
            plan = spec.plan()
            seconds, overhead = self._seconds_of_a_row(measured, self._rows_of(spec, data_rows))
            steps.append(self._step_of(spec, plan))
            log_seconds.append(math.log(seconds))
            overheads.setdefault(spec.instance_count, []).append(overhead)
            if self.quality.metric in measured:
                qualities.append(self._quality_of(spec, plan))
                clusters.append(spec.instance_type)
                billed = measured[metrics.BILLABLE_SECONDS]
                worth = self.quality.sign * measured[self.quality.metric]
                ran.append((billed, billed * self._usd_per_second_of(spec), worth))
                was_run.add((steps[-1], qualities[-1]))
        waiting = [(spec, spec.plan()) for spec in expected]
        under_way = [self._quality_of(spec, plan) for spec, plan in waiting if spec.probe_steps is None]
        trained = {*qualities, *under_way}
        self.was_trained = np.array([key in trained for key in self.quality_keys], dtype=bool)
        self._memory_limits.set_pending(Footprint.of(spec, plan) for spec, plan in waiting)
        self._times = self._times_of(steps, log_seconds).condition_on([self._step_of(*job) for job in waiting])
        shown = {**self._earlier_overheads, **overheads}
        self._overheads = {count: float(np.median(seconds)) for count, seconds in shown.items()}
        self.overhead = np.array([self._overhead_of(item.spec) for item in self.pool])
        self.has_f1 = bool(ran)
        self._f1 = self._quality_model_of(qualities, [worth for _, _, worth in ran])
        self._weights = dict(self._f1.weights()) if isinstance(self._f1, BorrowedF1Model) else {}
        self.shift_evidence = self._f1.shift_evidence(clusters) if ran else 0.0
        if ran:
            trainings = [(spec, plan) for spec, plan in waiting if spec.probe_steps is None]
            predictions = self._f1.predict(under_way).mean
            self._f1 = self._f1.condition_on(under_way)
            ran += [
                self._expected(spec, self._rows_of(spec, data_rows), f1)
                for (spec, _), f1 in zip(trainings, predictions, strict=True)
            ]
            was_run |= {(self._step_of(spec, plan), self._quality_of(spec, plan)) for spec, plan in trainings}
        self._ran = np.array(ran, dtype=float).reshape(len(ran), 3)
        self.was_run = np.array([keys in was_run for keys in zip(self._step_keys, self.quality_keys, strict=True)])
        self._predict()

    def _expected(self, spec: JobSpec, rows: float, f1: float) -> Reached:
        """What a job under way is expected to reach."""
        row = math.exp(float(self._times.predict([self._step_of(spec, spec.plan())]).mean[0]))
        seconds = self._overhead_of(spec) + rows * row
        return seconds, seconds * self._usd_per_second_of(spec), float(f1)

    def _predict(self) -> None:
        """Expected and optimistic values of all candidates, and which of them are as good as known."""
        times, quality = self._times.predict(self._step_keys), self._f1.predict(self.quality_keys)
        self.seconds = self._seconds_at(times, 0.0)
        self.time_open, self.f1_open = times.deviation, quality.deviation
        self.f1_known = _F1_KNOWN * max(self._f1.noise, self._usual_noise)
        self._mean = self._table(self.seconds, quality.mean)
        self._optimistic_values = self._table(self.seconds, quality.at(_OPTIMISM))
        self._ends = [self._table(self._seconds_at(times, z), quality.at(z)) for z in (-_INTERVAL_ENDS, _INTERVAL_ENDS)]
        self._cases = [
            (one * other, self._table(self._seconds_at(times, z), quality.at(y)))
            for (z, one), (y, other) in itertools.product(_NODES, _NODES)
        ]
        self.chance = np.array([self._memory_limits.chance(footprint) for footprint in self._footprints])
        self.impossible = (self.chance == 0) | (self._seconds_at(times, -1.0) > self._limits)
        self.fits = self.chance == 1
        self._waits = np.array([self._memory_limits.is_pending(footprint) for footprint in self._footprints])
        # Dollars of a job at each candidate: one that runs out of memory does so soon.
        full = np.minimum(self.overhead + _UNTIL_FULL_S, self.seconds)
        self.costs = self.usd_per_second * (self.chance * self.seconds + (1 - self.chance) * full)
        self._look_at_limits(times)
        self.known = ~self.impossible & self.fits & (self.time_open < SECONDS_KNOWN) & (self.f1_open < self.f1_known)
        self.known &= self.has_f1  # what is borrowed is verified once before anything is stated

    def information_gain(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what is known."""
        return np.where(self.known, 0.0, self._gains(self._mean[self.known & self._meets(self._mean)]))

    def expected_improvement(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what was run."""
        return np.where(self.was_run, 0.0, self._gains(self._ran[self._meets(self._ran)]))

    def predicted(self, index: int) -> dict[str, float]:
        """What a verification of the candidate at `index` is held against."""
        return {metrics.BILLABLE_SECONDS: float(self.seconds[index]), self.quality.metric: self._told(index)}

    def _told(self, index: int) -> float:
        """The expected quality of the candidate at `index`, as runs log it."""
        return self.quality.sign * float(self._mean[index, 2])

    def _gains(self, base: np.ndarray) -> np.ndarray:
        """Expected share of the hypervolume that each candidate would add to `base`, in its best pair of objectives.

        Relative to the predicted front, with a reference point a tenth of its range beyond its worst values.
        """
        gains = np.zeros(len(self.pool))
        possible = ~self.impossible & self._meets(self._mean)
        if not possible.any():
            return gains
        for column in self._columns:
            predicted = _front(self._mean[possible], column)
            reference = self._reference(predicted, _front(self._optimistic_values[possible], column), column)
            whole = hypervolume(predicted.tolist(), reference.tolist())
            best = _front(base, column)
            added = np.zeros(len(self.pool))
            for weight, table in self._cases:
                points = np.stack([table[:, column], -table[:, 2]], axis=1)
                added += weight * np.where(self._meets(table), hypervolume_improvement(points, best, reference), 0.0)
            gains = np.maximum(gains, added / max(whole, 1e-12))
        gains[self.is_hopeless | self._waits] = 0.0
        return np.asarray(gains * self.chance * self._in_time)

    def _reference(self, predicted: np.ndarray, optimistic: np.ndarray, column: int) -> np.ndarray:
        """A tenth of its range beyond the predicted front; and where a dearer point may be a better one, beyond that.

        A predicted front may be a single point, so there is a least distance.
        """
        least = np.array([_LEAST_MARGIN * float(self._mean[~self.impossible, column].min()), self._usual_noise])
        found = np.maximum(reference_point(predicted.tolist()), predicted.max(axis=0) + least)
        found[0] = max(found[0], optimistic[:, 0].max() + least[0])
        return np.asarray(found)

    def _seconds_at(self, times: NormalPrediction, deviations: float | np.ndarray) -> np.ndarray:
        """Billed seconds of all candidates, so many standard deviations above what is expected."""
        return np.asarray(self.overhead + self.rows * np.exp(times.mean + deviations * times.deviation))

    def _table(self, seconds: np.ndarray, f1: np.ndarray) -> np.ndarray:
        """Seconds, dollars and F1 of all candidates, as columns."""
        return np.stack([seconds, seconds * self.usd_per_second, f1], axis=1)

    def _meets(self, table: np.ndarray) -> np.ndarray:
        """Which lines meet the constraints of the study, as far as they are about these columns."""
        meets = np.ones(len(table), dtype=bool)
        for name, bounds in self._driver.file.constraints.items():
            column = self._columns_of.get(name)
            if column is not None:
                values = self.quality.sign * table[:, column] if column == _QUALITY_COLUMN else table[:, column]
                meets &= values >= bounds.get("min", -math.inf)
                meets &= values <= bounds.get("max", math.inf)
        return meets

    def _usd_per_second_of(self, spec: JobSpec) -> float:
        """Dollars of a second on a cluster; one without a price counts as a dollar an hour."""
        if spec.instance_type not in self._prices:
            self._prices[spec.instance_type] = self._driver.workplace.launcher.price(spec) or local_price(1.0)
        return self._prices[spec.instance_type].cost_usd(1.0, spec.instance_count)

    def _look_at_limits(self, times: NormalPrediction) -> None:
        """Which candidates' jobs will probably end within the limit that can be paid, now or after those under way.

        A job that is cut off at its limit was paid for and shows nothing. Where seconds are open, a candidate is out of
        reach only if it cannot be paid even where it goes well. While jobs under way may give dollars back, a limit is
        not cut as short as for the last job.
        """
        self._slow = self._seconds_at(times, 2 * np.minimum(1.0, 0.5 / times.deviation))
        scatter = np.hypot(self._seconds_at(times, 1.0) - self.seconds, _START_SCATTER * self.overhead)
        is_open = self.time_open > SECONDS_KNOWN
        takes = np.where(is_open, self._seconds_at(times, -1.0), self.seconds + _SURE * scatter)
        margin = np.where(is_open, 0.0, _SURE * scatter) if self._left_usd < self._reach_usd else 0.0
        self.is_payable = takes + margin <= self._payable_s(self._left_usd)
        is_out_of_reach = takes + is_open * self.overhead > self._payable_s(self._reach_usd)
        self.is_hopeless = self.impossible | is_out_of_reach
        self.is_short = bool((is_out_of_reach & ~self.impossible & ~self.was_run).any())
        limits = np.minimum(self._limits, self._payable_s(self._reach_usd))
        self._in_time = ndtr((limits - self.seconds) / scatter)  # chance to end before its limit
        possible = ~self.is_hopeless & ~self.was_run
        sure = possible & ~is_open & self.fits
        needed = self.usd_per_second * (takes + self._overruns)
        self._to_follow_usd = float(needed[sure if sure.any() else possible].min(initial=math.inf))

    def _payable_s(self, usd: float) -> np.ndarray:
        """Limits of all candidates, seconds, of which so many dollars cover the worst case."""
        return np.asarray(usd / self.usd_per_second - self._overruns)

    def can_probe(self, index: int, seconds: float) -> bool:
        """Whether a probe of so many seconds can be paid, twice if need be, and some training after it."""
        usd = seconds * float(self.usd_per_second[index])
        can_follow = math.isinf(self._reach_usd) or usd + self._to_follow_usd <= self._reach_usd
        return can_follow and _COMFORTABLE * seconds <= float(self._payable_s(self._left_usd)[index])

    def is_brief(self, index: int, probe_usd: float) -> bool:
        """Whether the candidate's training is known to cost not much more than a probe of so many dollars."""
        return self._tells_rows[index] and probe_usd > _BRIEF * float(self.costs[index])

    def limit_minutes(self, index: int, *, is_probe: bool) -> float | None:
        """The limit of the candidate's job at `index`: comfortable where it can be paid; None without a budget."""
        if math.isinf(self._left_usd):
            return None
        comfortable = max(_LEAST_LIMIT_S, 0.0 if is_probe else _COMFORTABLE * float(self._slow[index]))
        if not (is_probe or self._tells_rows[index]):
            comfortable = math.inf
        payable = float(self._payable_s(self._left_usd)[index])
        return math.floor(100 * min(float(self._limits[index]), comfortable, payable) / 60) / 100

    def _keys(self, file: StudyFile) -> tuple[KeyOf, KeyOf]:
        """What gives what seconds of a job depend on, and what its quality depends on."""
        if self.is_own:
            return key_over([*file.search], file.search), key_over(file.changes_quality, file.search)
        return step_of, quality_key

    def _times_of(self, keys: Sequence[Key], log_seconds: Sequence[float]) -> "SecondsModel | JobSecondsModel":
        if self.is_own:
            return JobSecondsModel(keys, log_seconds, len(self._step_keys[0][1]))
        return SecondsModel(keys, log_seconds, self._earlier_seconds)

    def _quality_model_of(
        self, keys: Sequence[Key], worths: Sequence[float]
    ) -> "F1Model | BorrowedF1Model | OwnQualityModel":
        if not self.is_own:
            self._usual_noise = F1_NOISE
            return BorrowedF1Model(keys, worths, self._sources) if self._sources else F1Model(keys, worths)
        model = OwnQualityModel(keys, worths, len(self.quality_keys[0][1]))
        self._usual_noise = model.usual_noise
        return model

    def _rows_of(self, spec: JobSpec, data_rows: float | None) -> float:
        """Rows of a job; of the user's own training, whose rows nobody knows, the whole job counts as one."""
        return 1.0 if self.is_own else rows_of(spec, data_rows)

    def _seconds_of_a_row(self, measured: Mapping[str, float], rows: float) -> tuple[float, float]:
        return (measured[metrics.BILLABLE_SECONDS], 0.0) if self.is_own else seconds_of_a_row(measured, rows)

    def _overhead_of(self, spec: JobSpec) -> float:
        """Billed seconds around a training: of the jobs with the nearest number of instances."""
        if self.is_own:
            return 0.0
        if not self._overheads:  # nobody limits jobs to less than twice what starting takes
            return min(OVERHEAD_S, spec.max_runtime_minutes * 60 / 2)
        return self._overheads[min(self._overheads, key=lambda count: abs(math.log(count / spec.instance_count)))]

    def known_types(self) -> set[str]:
        """Instance types of which some job has shown something."""
        return {JobSpec.from_text(trial.parameters).instance_type for trial in self._driver.trials.values()}

    def as_trial(self, index: int, number: int) -> Trial:
        """The candidate at `index` as a trial that was only predicted."""
        item = self.pool[index]
        parameters = item.spec.as_text()
        reached = [self._reached(index, table) for table in (self._mean, *self._ends)]
        values, *ends = (self._driver.history.values(found, parameters) for found in reached)
        return Trial(
            number=number,
            run_id="",
            point=item.point,
            parameters=parameters,
            status=TrialStatus.COMPLETED,
            values=values,
            origin=PREDICTED,
            intervals={name: (min(end[name] for end in ends), max(end[name] for end in ends)) for name in values},
        )

    def forecast(self) -> list[Trial]:
        """Candidates that were not run and are as good as known, without those that another one of them beats."""
        indices = np.flatnonzero(self.known & ~self.was_run)
        values = self._mean[indices][:, [*self._columns, 2]] * np.array([1.0] * len(self._columns) + [-1.0])
        kept = front(values.tolist(), [False] * values.shape[1])
        best = indices[np.array(kept, dtype=bool)]
        return [self.as_trial(int(index), number) for number, index in enumerate(best, start=FIRST_PREDICTED)]

    def _reached(self, index: int, table: np.ndarray) -> dict[str, float]:
        """All objectives of a candidate, from its line of a table."""
        seconds, usd, f1 = map(float, table[index])
        training = seconds - float(self.overhead[index])
        return {
            metrics.COST_USD: usd,
            metrics.BILLABLE_SECONDS: seconds,
            metrics.JOB_SECONDS: seconds,
            metrics.TRAIN_SECONDS: training,
            metrics.THROUGHPUT_SAMPLES: float(self.rows[index]) / training,
            self.quality.metric: self.quality.sign * f1,
        }


def _front(table: np.ndarray, column: int) -> np.ndarray:
    """The non-dominated lines of a table, equal ones once: seconds or dollars, and negative F1."""
    points = np.unique(np.stack([table[:, column], -table[:, 2]], axis=1), axis=0)  # the cheapest first
    best_before = np.minimum.accumulate(np.append(np.inf, points[:, 1]))[:-1]
    return np.asarray(points[points[:, 1] < best_before])
