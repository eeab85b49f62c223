"""Quality and seconds of a training of the user's own, over the parameters that a study searches.

Only the parameters that change its quality are known. So both are Gaussian processes over searched parameters. Numbers
are scaled to 0 to 1, by their logarithms if the study searches them so or if they span more than RATIO; other values
are equal or not. Before any job has run, both processes are as wide as such quantities usually differ.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.estimating.noise import SECONDS_DEGREES, SECONDS_NOISE
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.studies.definition.space import INSIDE, Choices, Range, Search, parameter_of
from paretune.studies.results.f1_model import ALIKE, LENGTH, RATIO, GaussianProcess, Key, NormalPrediction, surprises

KeyOf = Callable[[JobSpec, BatchPlan], Key]
_USUAL_S = 300.0
_SECONDS_SCALE = 1.5
"""Standard deviation of the logarithm of seconds before any job has run: a minute to 25, at two in three."""
_NOISE = 0.1  # of one run, as a share of what configurations differ by, as in `results.run_noise`
_NOISES = {factor: 0.5 * math.log(factor) ** 2 for factor in (0.2, 0.5, 1.0, 2.0, 4.0)}
_LIKE_F1 = 0.03  # what configurations differ by, on the scale on which the process sees them: that of F1
_DEPTHS = 2.0  # times the median distance to the best value, from which on differences count less and less


def key_over(names: Sequence[str], search: Search) -> KeyOf:
    """A function that gives the values of these searched names in a job, as kinds and numbers."""
    scales = {name: _scale_of(search[name]) for name in names}

    def key(spec: JobSpec, plan: BatchPlan) -> Key:
        kinds, numbers = [], []
        for name, scale in scales.items():
            value = _value_in(spec, plan, name)
            if scale is None:
                kinds.append(str(value))
            else:
                numbers.append(scale(float(value)))
        return tuple(kinds), tuple(numbers)

    return key


def _value_in(spec: JobSpec, plan: BatchPlan, name: str) -> Any:
    prefix, _, inner = name.partition(INSIDE)
    if inner:
        return getattr(spec, parameter_of(prefix))[inner]
    return getattr(plan if hasattr(plan, name) else spec, name)


def _scale_of(entry: Choices | Range) -> Callable[[float], float] | None:
    """A function that maps a number to 0 to 1, or None if the values are no numbers."""
    values = entry.corners
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    low, high = (float(end(values)) for end in (min, max))
    is_log = entry.log if isinstance(entry, Range) else low > 0 and high / low >= RATIO
    if is_log:
        return lambda value: math.log(value / low) / math.log(high / low) if high > low else 0.0
    return lambda value: (value - low) / (high - low) if high > low else 0.0


class JobSecondsModel:
    """Logarithms of the seconds of whole jobs, as `SecondsModel` has those of a row."""

    def __init__(self, keys: Sequence[Key], log_seconds: Sequence[float], width: int) -> None:
        self._process = GaussianProcess(
            keys,
            [seconds - math.log(_USUAL_S) for seconds in log_seconds],
            noise=SECONDS_NOISE,
            slopes=[0.0] * width,
            scale=_SECONDS_SCALE,
            lengths=[LENGTH] * width,
            kinds_alike=ALIKE,
            noises=surprises(SECONDS_DEGREES),
        )

    def condition_on(self, keys: Sequence[Key]) -> "JobSecondsModel":
        """A copy fitted as if N further jobs had taken their expected seconds."""
        other = copy.copy(self)
        other._process = self._process.condition_on(keys)
        return other

    def predict(self, keys: Sequence[Key]) -> NormalPrediction:
        """Predict N jobs."""
        prediction = self._process.predict(keys)
        return NormalPrediction(prediction.mean + math.log(_USUAL_S), prediction.deviation)


@dataclass(frozen=True)
class QualityPrediction:
    """Predicted quality of N jobs, more being better; `warped` and `spread` as in `F1Prediction`."""

    warped: np.ndarray
    spread: np.ndarray
    best: float
    depth: float

    @property
    def mean(self) -> np.ndarray:
        """N expected values."""
        return self.at(0.0)

    @property
    def deviation(self) -> np.ndarray:
        """N standard deviations."""
        return np.asarray(self.spread * np.exp(-np.minimum(self.warped, 0.0) / self.depth))

    def at(self, deviations: float) -> np.ndarray:
        """N values, so many standard deviations above the expected ones."""
        warped = self.warped + deviations * self.spread
        below = self.depth * (np.exp(-np.minimum(warped, 0.0) / self.depth) - 1)
        return np.asarray(self.best + np.maximum(warped, 0.0) - below)


class OwnQualityModel:
    """Quality of any job, from N values of which more is better; like `F1Model` for F1.

    `usual_noise` is the standard deviation of one run that is likely before any has been repeated.
    """

    def __init__(self, keys: Sequence[Key], qualities: Sequence[float], width: int) -> None:
        values = np.array(qualities, dtype=float)
        self._best = float(values.max(initial=-math.inf)) if len(values) else 0.0
        self._depth = _DEPTHS * float(np.median(self._best - values)) if len(values) else 0.0
        self._depth = self._depth or (float(np.ptp(values)) if len(values) else 0.0) or 1.0
        warped = -self._depth * np.log1p((self._best - values) / self._depth)
        few = 1 + 2 / max(len(values), 1)  # they differ by less than all will
        spread = few * (float(warped.std()) if len(values) else 0.0) or 0.1 * abs(self._best) or 1.0
        self.usual_noise = _NOISE * spread
        self._unit = spread / _LIKE_F1
        self._process = GaussianProcess(
            keys,
            list(warped / self._unit),
            noise=_NOISE * _LIKE_F1,
            slopes=[0.0] * width,
            scale=_LIKE_F1,
            lengths=[LENGTH] * width,
            kinds_alike=ALIKE,
            noises=_NOISES,
        )

    @property
    def noise(self) -> float:
        """Standard deviation of one value, near the best."""
        return self._unit * float(np.max(self._process.noise))

    def predict(self, keys: Sequence[Key]) -> QualityPrediction:
        """Predict N points, without the noise of a single new value."""
        prediction = self._process.predict(keys)
        warped, spread = self._unit * prediction.mean, self._unit * prediction.deviation
        return QualityPrediction(warped, spread, self._best, self._depth)

    def shift_evidence(self, clusters: Sequence[str]) -> float:
        """Like `F1Model.shift_evidence`; shifts are as large as those of F1, relative to how configurations differ."""
        return self._process.shift_evidence(clusters)

    def condition_on(self, keys: Sequence[Key]) -> "OwnQualityModel":
        """A copy fitted as if N further points had their expected values."""
        other = copy.copy(self)
        other._process = self._process.condition_on(keys)
        return other
