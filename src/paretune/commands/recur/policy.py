"""The choice of the point that tonight's run takes: Thompson sampling among points that rarely miss the quality floor.

A point is admissible if the chance that tonight's model falls below the floor is under MOST_CHANCE. Among these and the
default, one plausible set of dollars is drawn (Thompson, Biometrika 25, 1933), and the cheapest point in it is taken,
counting the dollars of training again if its job fails or its model misses. So points with unknown dollars are tried
now and then, and ever more rarely; a point that costs more than the default is dropped. Points far from all runs are
not admissible, because their quality is unknown, until their neighbours show that they are safe. A point that is nearly
as safe as the safest one counts as safe: quality rarely depends on the cluster, and if it does, that is learnt. The
first night runs the default.

The policy has no side effects; the command and the benchmark drive the same code.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paretune.commands.recur.model import DriftingProcess, Prior, correlations
from paretune.estimating.noise import F1_DEGREES, F1_NOISE, SECONDS_DEGREES, SECONDS_NOISE
from paretune.studies.definition.quality import Quality
from paretune.studies.results.quality_model import Key, surprises

MOST_CHANCE = 0.05  # chance of missing the floor below which a point may be chosen for its dollars
MOST_DEARER = 2.0
"""Points whose expected dollars exceed this many times those of the cheapest admissible point are not drawn."""
MOST_NIGHTS = 90  # nights that are learnt from: older ones have drifted away, and the cost of learning stays bounded
REPEATS = 2
"""Differences between runs of equal points that must exist before the noise of an unknown metric is estimated."""
REST_NIGHTS = 10  # nights that a point rests after its job failed: memory, quota and capacity say nothing about quality
_DEPTH = 12.0  # noise deviations below the floor, beyond which a miss counts no worse
_EQUALLY_SAFE = 0.02  # difference of chances below which the cheaper point is preferred
_NOISE_SHARE = 0.005  # noise as a share of the floor, until a metric has shown its noise
_OF_MEDIAN = 1 / (0.6745 * math.sqrt(2))  # from the median difference of two runs to the deviation of one
_LEAST_NOISE = 1e-9
_LEVEL = 100.0  # deviation of quality before any run, in noise deviations
_SETTINGS = {0.7: 0.0, 2.0: 0.0, 8.0: 1.0}  # deviation of quality between settings, in noise, to its surprise
_CLUSTERS = {0.0: 0.0, 4.0: 3.0}  # the same between clusters: quality rarely depends on them, by 0.016 of F1 if it does
_OWN_NIGHTS = 2.0  # runs of a point itself that count as much as what the processes predict for it
_HALF_NIGHTS = 30.0  # nights after which such a run counts half
_SOUND = 2.0  # assumed runs on every cluster that ended well, and _FAILED: assumed runs that failed
_FAILED = 0.05
_COSTS = {0.3: 0.0, 0.6: 0.5}  # deviation of log dollars from their estimates, to its surprise
_QUALITY_LENGTHS = (4.0, 1.4, 1.4)  # log2 global batch, log rate, log epochs: correlations fall to 0.6 over these
_QUALITY_SLOPES = (
    0.0,
    0.0,
    5.0,
)  # the same numbers, in noise: e times the epochs add 0.01 to F1, 0.03 or nothing
_FALL = 1.0
"""Expected loss of quality, in noise, if the rate is e times the default's; four times as much for e squared.
`results.quality_model` expects the same, 0.004 of F1, around the best rate, which grows with the root of the batch."""
_COST_LENGTHS = (2.0,)  # log2 of instances, per-device batch, epochs
_OWN_LENGTHS = (0.7,)  # numbers from 0 to 1, for a training of the user's own


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point: the keys that its quality and its dollars depend on, and the logarithm of its expected dollars."""

    quality: Key
    cost: Key
    log_usd: float

    @property
    def cluster(self) -> tuple[str, ...]:
        """The categorical part of its cost key, such as the instance type."""
        return self.cost[0]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run. `value` is None if it failed or was refused, `usd` if its dollars are not known."""

    candidate: Candidate
    night: int
    value: float | None
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The job that runs tonight, and the reason."""

    index: int  # the candidate that runs first; `fallback` is trained if it misses the floor
    fallback: int
    chance: float  # chance that the chosen candidate needs a retraining
    usd: float  # its expected dollars, retraining included; `default_usd` those of the default
    default_usd: float
    admissible: int  # number of admissible candidates


class Policy:
    """Chooses among `candidates`; the one at `default` is what would run without this command.

    `floor` is the least value of the quality metric, or its largest if less is better. With `is_own`, the numbers of
    the quality keys are those of a training of the user's own, from 0 to 1.
    """

    def __init__(
        self, candidates: Sequence[Candidate], default: int, quality: Quality, floor: float, *, is_own: bool = False
    ) -> None:
        self.candidates = list(candidates)
        self.default = default
        self.floor = floor
        self.sign = quality.sign
        noise = quality.noise or (F1_NOISE if quality.is_share else None)
        self._known_noise = None if noise is None else noise * (abs(floor) if quality.is_relative else 1.0)
        self._lengths = _OWN_LENGTHS if is_own else _QUALITY_LENGTHS
        self._falls = 0.0 if is_own else _FALL
        self._slopes = () if is_own else _QUALITY_SLOPES

    def posterior(self, history: Sequence[Observation], night: int) -> "Posterior":
        """The prediction for every candidate from the history, before another run on this night."""
        return Posterior(self, [run for run in history if run.night > night - MOST_NIGHTS], night)

    def choose(
        self,
        history: Sequence[Observation],
        night: int,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
    ) -> Choice:
        """Tonight's choice; `allowed` are the candidates that may run, such as those that a budget covers."""
        return self.posterior(history, night).choose(rng, allowed)

    def chances(self, history: Sequence[Observation], candidates: Sequence[Candidate], night: int) -> np.ndarray:
        """Chances, shape (N,), that these candidates miss the floor on a night if their jobs do not fail."""
        noise = self.noise(history) or _NOISE_SHARE * abs(self.floor) or 1.0
        measured = [(run.candidate, run.night, run.value) for run in history if run.value is not None]
        margins = [self.sign * (value - self.floor) / noise for _, _, value in measured]
        margins = [-_DEPTH if math.isnan(margin) else float(np.clip(margin, -_DEPTH, _LEVEL)) for margin in margins]
        prior = Prior(
            level=_LEVEL,
            noise=1.0,
            noises=surprises(F1_DEGREES),
            walks=(0.03, 0.15, 0.6),
            shapes=_SETTINGS,
            lengths=self._lengths,
            kinds_alike=0.3,
            slopes=self._slopes,
            shifts=_CLUSTERS,
        )
        process = DriftingProcess(
            [candidate.quality for candidate, _, _ in measured],
            [night for _, night, _ in measured],
            [margin - self._expected(run[0].quality) for run, margin in zip(measured, margins, strict=True)],
            prior,
            [candidate.cluster for candidate, _, _ in measured],
        )
        limits = -np.array([self._expected(candidate.quality) for candidate in candidates])
        clusters = [candidate.cluster for candidate in candidates]
        return process.predict([candidate.quality for candidate in candidates], night, clusters).chance_below(limits)

    def noise(self, history: Sequence[Observation]) -> float | None:
        """Standard deviation of one run: known for the metric, or estimated from runs of equal points.

        None until there are REPEATS differences. Their median is taken, so that a sudden fall of all points counts
        little.
        """
        if self._known_noise is not None:
            return self._known_noise
        last: dict[Candidate, float] = {}
        differences = []
        for run in history:
            if run.value is not None and math.isfinite(run.value):
                differences += [abs(run.value - last[run.candidate])] if run.candidate in last else []
                last[run.candidate] = run.value
        if len(differences) < REPEATS:
            return None
        return max(float(np.median(differences)) * _OF_MEDIAN, 0.1 * _NOISE_SHARE * abs(self.floor), _LEAST_NOISE)

    def _expected(self, key: Key) -> float:
        """Expected quality of a setting before any run, in noise above the default: 0 for the default."""
        if not self._falls:
            return 0.0
        (batch, rate, *_), (default_batch, default_rate, *_) = key[1], self.candidates[self.default].quality[1]
        octaves = (rate - default_rate) / math.log(2) - (batch - default_batch) / 2
        return -self._falls * (octaves * math.log(2)) ** 2

    def cost_process(self, history: Sequence[Observation]) -> DriftingProcess:
        """The process of log dollars relative to their estimates.

        Dollars of a failed job count only if they exceed the estimate for the whole job.
        """
        paid = [(run, math.log(run.usd)) for run in history if run.usd]
        paid = [(run, log_usd) for run, log_usd in paid if run.value is not None or log_usd > run.candidate.log_usd]
        prior = Prior(
            level=1.0,
            noise=SECONDS_NOISE,
            noises=surprises(SECONDS_DEGREES),
            walks=(0.1, 0.5, 2.0),
            shapes=_COSTS,
            lengths=_COST_LENGTHS,
            kinds_alike=0.3,
        )
        keys, nights = [run.candidate.cost for run, _ in paid], [run.night for run, _ in paid]
        return DriftingProcess(keys, nights, [log_usd - run.candidate.log_usd for run, log_usd in paid], prior)

    def meets(self, value: float | None) -> bool:
        """Whether a value is on the right side of the floor."""
        return value is not None and self.sign * value >= self.sign * self.floor


class Posterior:
    """Chances and dollars of every candidate on one night, given a history of runs."""

    def __init__(self, policy: Policy, history: Sequence[Observation], night: int) -> None:
        self._policy, self._history, self._night = policy, history, night
        self._cost = policy.cost_process(history)
        self._log_usd = np.array([candidate.log_usd for candidate in policy.candidates])
        self._cost_keys = [candidate.cost for candidate in policy.candidates]

    @cached_property
    def chances(self) -> np.ndarray:
        """Chance of each candidate to miss the floor if its job does not fail."""
        pairs = [(candidate.quality, candidate.cluster) for candidate in self._policy.candidates]
        distinct = dict(zip(pairs, self._policy.candidates, strict=True))
        chances = self._policy.chances(self._history, list(distinct.values()), self._night)
        chance_of = dict(zip(distinct, chances, strict=True))
        return np.array([chance_of[pair] for pair in pairs])

    @cached_property
    def failing(self) -> np.ndarray:
        """Chance of each candidate's job to fail: from jobs on its cluster, those with a similar batch first.

        Jobs that were refused cost nothing and do not count.
        """
        ran = [run for run in self._history if run.value is not None or run.usd is not None]
        failed = np.array([run.value is None for run in ran], dtype=float)
        alike = correlations(self._cost_keys, [run.candidate.cost for run in ran], _COST_LENGTHS, 0.0)
        weights = alike * self._recency(ran)
        on_cluster = (_FAILED + weights @ failed) / (_SOUND + weights.sum(axis=1))
        return self._with_repeats(on_cluster, np.isclose(alike, 1.0), ran, failed)

    @cached_property
    def missing(self) -> np.ndarray:
        """Chance of each candidate to need a retraining: its job fails, or its model misses the floor."""
        measured = [run for run in self._history if run.value is not None]
        missed = np.array([not self._policy.meets(run.value) for run in measured], dtype=float)
        same = [[candidate == run.candidate for run in measured] for candidate in self._policy.candidates]
        is_same = np.array(same, dtype=float).reshape(len(same), len(measured))
        return np.asarray(1 - (1 - self._with_repeats(self.chances, is_same, measured, missed)) * (1 - self.failing))

    def _with_repeats(
        self, chances: np.ndarray, is_same: np.ndarray, runs: Sequence[Observation], happened: np.ndarray
    ) -> np.ndarray:
        """Chances of N candidates, updated by how often the event `happened` in their own runs, shape (N, V)."""
        weights = is_same * self._recency(runs)
        return np.asarray((_OWN_NIGHTS * chances + weights @ happened) / (_OWN_NIGHTS + weights.sum(axis=1)))

    def _recency(self, runs: Sequence[Observation]) -> np.ndarray:
        """Weight of each run: half as much after _HALF_NIGHTS."""
        return 0.5 ** ((self._night - np.array([run.night for run in runs], dtype=float)) / _HALF_NIGHTS)

    @cached_property
    def usd(self) -> np.ndarray:
        """Expected dollars of each candidate."""
        return np.asarray(np.exp(self._log_usd + self._cost.predict(self._cost_keys, self._night).mean))

    @cached_property
    def _resting(self) -> set[int]:
        """Candidates that failed lately: for REST_NIGHTS the first time, then twice as long each time."""
        failures: dict[tuple[Key, Key], list[int]] = {}
        for run in self._history:
            if run.value is None:
                failures.setdefault((run.candidate.quality, run.candidate.cost), []).append(run.night)
        return {
            index
            for index, candidate in enumerate(self._policy.candidates)
            for nights in [failures.get((candidate.quality, candidate.cost), [])]
            if nights and self._night - max(nights) < REST_NIGHTS * 2 ** (len(nights) - 1)
        }

    def retrain(self, missed: Collection[int], *, is_last: bool, allowed: Collection[int] | None = None) -> int:
        """The candidate to train after others have `missed` tonight: the safest one; the default as the last try.

        So a night is rarely worse than what would have run without this command. The default is not the last try if it
        has missed tonight itself.
        """
        default = self._policy.default
        is_free = default not in missed and default not in self._resting and (allowed is None or default in allowed)
        return default if is_last and is_free else self.fallback(allowed)

    def fallback(self, allowed: Collection[int] | None = None) -> int:
        """The safest of the default and the candidates that have met the floor before; it may have missed tonight."""
        policy = self._policy
        good = [run.candidate for run in self._history if policy.meets(run.value)]
        qualities, costs = {candidate.quality for candidate in good}, {candidate.cost for candidate in good}
        safe = [
            index
            for index, candidate in enumerate(policy.candidates)
            if candidate.quality in qualities and candidate.cost in costs
        ]
        indices = [index for index in dict.fromkeys([*safe, policy.default]) if allowed is None or index in allowed]
        indices = [index for index in indices if index not in self._resting] or self._able(allowed)
        least = min(self.chances[index] for index in indices)
        return min(
            (index for index in indices if self.chances[index] <= least + _EQUALLY_SAFE),
            key=lambda index: self.usd[index],
        )

    def _able(self, allowed: Collection[int] | None) -> list[int]:
        """Candidates that are allowed and do not rest; the default if there are none."""
        able = [
            index
            for index in range(len(self._log_usd))
            if (allowed is None or index in allowed) and index not in self._resting
        ]
        return able or [self._policy.default]

    @property
    def is_blind(self) -> bool:
        """Whether no run has shown its quality, or too few to estimate the noise: then the default runs, if it can."""
        return self._policy.noise(self._history) is None or all(run.value is None for run in self._history)

    def choose(self, rng: np.random.Generator, allowed: Collection[int] | None = None) -> Choice:
        """Tonight's choice, see `Policy.choose`."""
        default, chances = self._policy.default, self.chances
        able = self._able(allowed)
        fallback = self.fallback(allowed)
        fallback_usd = float(self.usd[fallback])
        expected_usd = self.usd + self.missing * fallback_usd
        most = max(MOST_CHANCE, min(chances[index] for index in able) + _EQUALLY_SAFE)
        safe = [index for index in able if chances[index] < most]
        safe += [default] if default in able and default not in safe else []
        index = default if default in able and self.is_blind else self._sample(safe, fallback_usd, rng)
        return Choice(
            index=index,
            fallback=fallback,
            chance=float(self.missing[index]),
            usd=float(expected_usd[index]),
            default_usd=float(self.usd[default]),
            admissible=sum(bool(chances[index] < MOST_CHANCE) for index in able),
        )

    def _sample(self, indices: Sequence[int], fallback_usd: float, rng: np.random.Generator) -> int:
        """The cheapest candidate in one draw of the dollars, with those of training again after a miss."""
        dearest = MOST_DEARER * min(self.usd[index] for index in indices)
        indices = [index for index in indices if self.usd[index] <= dearest]
        draw = self._cost.draw([self._cost_keys[index] for index in indices], self._night, rng)
        dollars = np.exp(self._log_usd[indices] + draw) + self.missing[indices] * fallback_usd
        return indices[int(np.argmin(dollars))]
