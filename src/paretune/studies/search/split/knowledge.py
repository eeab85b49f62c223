"""The state of knowledge of a split search, and how much each candidate would add to it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paretune.core.pareto import front
from paretune.specification import metrics
from paretune.studies.results.hypervolume import hypervolume, hypervolume_improvement, reference_point
from paretune.studies.search.split.affordability import Affordability
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.predictions import Outcomes, Predictions, meets_constraints

_LEAST_MARGIN = 0.05  # of the least dollars or seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """Predictions, dollars and results after some jobs. Arrays have one entry per candidate.

    Attributes:
        ran: outcomes of the jobs that have ended, and the expected ones of trainings under way.
        was_run: a job with the same seconds and quality has ended or is under way.
        was_trained: a job with the same quality has ended or is under way.
        shift_evidence: logarithm of how much likelier the measured qualities are if they depend on the instance type.
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
    shift_evidence: float
    source_weights: Mapping[tuple[frozenset[str], bool], float]

    def information_gain(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what is known."""
        mean, is_known = self.predictions.mean, self.predictions.is_known
        return np.where(is_known, 0.0, self._gains(mean.only(is_known & self._meets(mean))))

    def expected_improvement(self) -> np.ndarray:
        """Share of the hypervolume that each candidate is expected to add to the front of what was run."""
        return np.where(self.was_run, 0.0, self._gains(self.ran.only(self._meets(self.ran))))

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
        """Expected share of the hypervolume that each candidate would add to `base`, in its best pair of objectives.

        Relative to the predicted front, with a reference point a tenth of its range beyond its worst values.
        """
        expected = self.predictions
        gains = np.zeros(len(self.space.candidates))
        is_possible = ~expected.is_impossible & self._meets(expected.mean)
        if not is_possible.any():
            return gains
        for goal in self.space.goals:
            predicted = expected.mean.only(is_possible).front(goal)
            reference = self._reference(predicted, expected.optimistic.only(is_possible).front(goal), goal)
            whole = hypervolume(predicted.tolist(), reference.tolist())
            base_front = base.front(goal)
            added = np.zeros(len(gains))
            for weight, outcomes in expected.cases:
                improvement = hypervolume_improvement(outcomes.points(goal), base_front, reference)
                added += weight * np.where(self._meets(outcomes), improvement, 0.0)
            gains = np.maximum(gains, added / max(whole, 1e-12))
        gains[self.affordability.is_hopeless | expected.is_fit_pending] = 0.0
        return np.asarray(gains * expected.fit_chance * self.affordability.in_time)

    def _reference(self, predicted: np.ndarray, optimistic: np.ndarray, goal: str) -> np.ndarray:
        """A tenth of its range beyond the predicted front; further if a dearer point may be a better one.

        A predicted front may be a single point, so there is a least distance.
        """
        possible = self.predictions.mean.only(~self.predictions.is_impossible)
        least = np.array([_LEAST_MARGIN * float(getattr(possible, goal).min()), self.predictions.usual_noise])
        reference = np.maximum(reference_point(predicted.tolist()), predicted.max(axis=0) + least)
        reference[0] = max(reference[0], optimistic[:, 0].max() + least[0])
        return np.asarray(reference)

    def _meets(self, outcomes: Outcomes) -> np.ndarray:
        return meets_constraints(outcomes, self.constraints, self.space)
