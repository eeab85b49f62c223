"""The state of knowledge of a split search, and how much each candidate would add to it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paretune.core.pareto import front
from paretune.specification import metrics
from paretune.studies.results.hypervolume import hypervolume, hypervolume_improvement, reference_point
from paretune.studies.results.quality_model import SourceName
from paretune.studies.results.trials import Trial
from paretune.studies.search.split.affordability import Affordability
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.predictions import Outcomes, Predictions, meets_constraints

_MOST_AGAIN = 0.25  # the same for one whose run has collapsed before
_MOST_COLLAPSES = 0.4  # probability of a collapse from which on a job is not worth its dollars
_LEAST_MARGIN = 0.05  # of the least dollars or seconds
_REACH = 3.0
"""Times the least dollars or seconds of the predicted front, up to which the front may grow although no better quality
is expected there: a model that is sure too early never looks. Chosen on development worlds of benchmarks/search."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """Predictions, dollars and results after some jobs. Arrays have one entry per candidate.

    Attributes:
        ran: outcomes of the jobs that have ended, and the expected ones of trainings under way.
        was_run: a job with the same seconds and quality has ended or is under way.
        was_trained: a job with the same quality has ended or is under way.
        again: indices of candidates whose run has collapsed, to its trial.
        source_weights: earlier studies (run ids of their parents, and whether their data are the same) to the
            probability that quality here is like there.
    """

    space: CandidateSpace
    constraints: Mapping[str, Mapping[str, float]]
    predictions: Predictions
    affordability: Affordability
    ran: Outcomes
    was_run: np.ndarray
    was_trained: np.ndarray
    again: Mapping[int, Trial]
    source_weights: Mapping[SourceName, float]

    def information_gain(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what is known."""
        mean, is_known = self.predictions.mean, self.predictions.is_known
        return np.where(is_known, 0.0, self._gains(mean.only(is_known & self._meets(mean))))

    def expected_improvement(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what was run."""
        return np.where(self.was_run, 0.0, self._gains(self.ran.only(self._meets(self.ran))))

    @property
    def has_collapsed(self) -> np.ndarray:
        """Whether the only run of a candidate has collapsed."""
        return np.isin(np.arange(len(self.space.candidates)), list(self.again))

    def undominated(self) -> np.ndarray:
        """Indices of candidates that were not run and are as good as known, without those that another one beats."""
        indices = np.flatnonzero(self.predictions.is_known & ~self.was_run)
        mean = self.predictions.mean.only(indices)
        values = np.stack([*(getattr(mean, goal) for goal in self.space.goals), -mean.quality], axis=1)
        return np.asarray(indices[np.array(front(values.tolist(), [False] * values.shape[1]), dtype=bool)])

    def prediction(self, index: int) -> dict[str, float]:
        """Seconds and quality that a verification of the candidate at `index` is compared with."""
        quality = self.space.quality
        return {
            metrics.BILLABLE_SECONDS: float(self.predictions.seconds[index]),
            quality.metric: quality.sign * float(self.predictions.mean.quality[index]),
        }

    def all_metrics(self, index: int, outcomes: Outcomes) -> dict[str, float]:
        """Everything that a study may have as an objective, of the candidate at `index`."""
        seconds = float(outcomes.seconds[index])
        training_s = seconds - float(self.predictions.overhead_s[index])
        return {
            metrics.COST_USD: float(outcomes.usd[index]),
            metrics.BILLABLE_SECONDS: seconds,
            metrics.JOB_SECONDS: seconds,
            metrics.TRAIN_SECONDS: training_s,
            metrics.THROUGHPUT_SAMPLES: float(self.predictions.rows[index]) / training_s,
            self.space.quality.metric: self.space.quality.sign * float(outcomes.quality[index]),
        }

    def _gains(self, base: Outcomes) -> np.ndarray:
        """Expected share of the hypervolume that each candidate would add to `base`, over all objectives.

        Relative to the predicted front, with a reference point a tenth of its range beyond its worst values.
        """
        expected, goals = self.predictions, self.space.goals
        is_possible = ~expected.is_impossible & self._meets(expected.mean)
        if not is_possible.any():
            return np.zeros(len(self.space.candidates))
        predicted = expected.mean.only(is_possible).front(goals)
        reference = self._reference(predicted, expected.optimistic.only(is_possible).front(goals))
        whole = hypervolume(predicted.tolist(), reference.tolist())
        gains, base_front = np.zeros(len(self.space.candidates)), base.front(goals)
        for weight, outcomes in expected.cases:
            improvement = hypervolume_improvement(outcomes.points(goals), base_front, reference)
            gains += weight * np.where(self._meets(outcomes), improvement, 0.0)
        is_lost = self.affordability.is_hopeless | (expected.collapse_probability > _MOST_COLLAPSES)
        is_lost |= self.has_collapsed & (expected.collapse_probability > _MOST_AGAIN)
        misses = (expected.quality_deviation <= expected.quality_tolerance) & ~self._meets(expected.mean)
        gains[is_lost | misses | expected.is_fit_pending] = 0.0
        chance = expected.fit_chance * self.affordability.in_time * (1 - expected.collapse_probability)
        return np.asarray(gains * chance / max(whole, 1e-12))

    def _reference(self, predicted: np.ndarray, optimistic: np.ndarray) -> np.ndarray:
        """A tenth of its range beyond the predicted front; further if a dearer point may be a better one.

        A predicted front may be a single point, so there is a least distance.
        """
        possible = self.predictions.mean.only(~self.predictions.is_impossible)
        least = [_LEAST_MARGIN * float(getattr(possible, goal).min()) for goal in self.space.goals]
        least.append(self.predictions.usual_noise)
        reference = np.maximum(reference_point(predicted.tolist()), predicted.max(axis=0) + least)
        reach = np.maximum(optimistic[:, :-1].max(axis=0) + least[:-1], _REACH * predicted[:, :-1].min(axis=0))
        reference[:-1] = np.maximum(reference[:-1], reach)
        return np.asarray(reference)

    def _meets(self, outcomes: Outcomes) -> np.ndarray:
        return meets_constraints(outcomes, self.constraints, self.space)
