"""Seconds of a row on each kind of cluster from earlier studies, used before this study has measured them there.

Each kind has the four numbers of `seconds_model`, fitted to the earlier jobs. This study is faster or slower than those
by one factor for all kinds (software, lengths of texts), and by a smaller one for each kind. Both are learnt from own
jobs: the first one on any kind tells the factor for all of them. If own jobs disagree about it, earlier jobs count less
everywhere.
"""

import math
from collections.abc import Sequence

import numpy as np

from paretune.studies.results.quality_model import Key, NormalPrediction
from paretune.studies.search.split.earlier import EarlierStudy, thinned
from paretune.studies.search.split.seconds_model import Fitted, SecondsModel, seconds_with

_FACTOR = {True: 0.15, False: 0.4}
"""Standard deviation of the logarithm of the factor, from studies of the same data, and of other data."""
_MOST = 200  # jobs that the four numbers are fitted to
_KIND_FACTOR = 0.03
"""Least standard deviation of the logarithm of the factor of one kind of cluster around the common one."""


class EarlierSeconds:
    """Four numbers for each kind of cluster that earlier studies have measured."""

    def __init__(self, studies: Sequence[EarlierStudy]) -> None:
        self._fitted: dict[bool, Fitted] = {}
        self.noise = 0.0
        """Relative standard deviation of one of their jobs around the four numbers."""
        for is_same in (True, False):
            pairs = [pair for study in studies if study.is_same_data is is_same for pair in study.log_seconds]
            pairs = list(thinned(pairs, _MOST))
            model = SecondsModel([key for key, _ in pairs], [value for _, value in pairs])
            self._fitted[is_same] = model.fitted
            self.noise = max(self.noise, model.noise)
        same = self._fitted[True]
        self._fitted[False] = {kinds: parts for kinds, parts in self._fitted[False].items() if kinds not in same}

    def given(self, keys: Sequence[Key], log_seconds: Sequence[float]) -> Fitted:
        """Prior of each kind: its four numbers and their covariance, given this study's jobs so far."""
        return {
            kinds: parts
            for is_same, fitted in self._fitted.items()
            for kinds, parts in self._moved(fitted, _FACTOR[is_same], keys, log_seconds).items()
        }

    def _moved(self, fitted: Fitted, usual: float, keys: Sequence[Key], log_seconds: Sequence[float]) -> Fitted:
        pairs = [(key, value) for key, value in zip(keys, log_seconds, strict=True) if key[0] in fitted]
        factor, variance, scatter = 0.0, usual**2, _KIND_FACTOR
        if pairs:
            expected = _predicted(fitted, [key for key, _ in pairs])
            off = np.array([value for _, value in pairs]) - expected.mean
            usual = max(usual, abs(float(np.median(off))))
            precision = 1 / (expected.deviation**2 + _KIND_FACTOR**2 + self.noise**2)
            variance = 1 / (precision.sum() + 1 / usual**2)
            factor = variance * float(precision @ off)
            scatter = max(_KIND_FACTOR, math.sqrt(float(np.mean((off - factor) ** 2))))
        along = np.array([1.0, 1.0, 1.0, 0.0])
        wider = (variance + scatter**2) * np.outer(along, along) + np.diag([scatter**2, 0.0, scatter**2, 0.0])
        return {kinds: (parts + factor * along, covariance + wider) for kinds, (parts, covariance) in fitted.items()}


def _predicted(fitted: Fitted, keys: Sequence[Key]) -> NormalPrediction:
    """Logarithms of seconds of a row of N clusters of these kinds."""
    means, deviations = [], []
    for kinds, numbers in keys:
        parts, covariance = fitted[kinds]
        mean, slopes = seconds_with(np.array([numbers], dtype=float), parts)
        means.append(float(mean[0]))
        deviations.append(math.sqrt(float(slopes[0] @ covariance @ slopes[0])))
    return NormalPrediction(np.array(means), np.array(deviations))
