"""Which point tonight's run takes: Thompson sampling among those that hardly ever miss the quality floor.

A point is admissible where the chance that tonight's model is below the floor is under MOST_CHANCE. Among these and
the default, one of the possible truths about dollars is drawn (Thompson, Biometrika 25, 1933), and the cheapest point
in it is taken, with the dollars of training once more where its job fails or its model misses. So points whose
dollars are not known yet are tried now and then, and ever more rarely, and a point that costs more than the default
saves is left. Nothing is admissible by hope: far from what was run, quality is not known, and a point stays out until
its neighbours show that it is safe. Nearly as safe as the safest point is safe enough: quality hardly ever depends on
the cluster, and where it does, that is learnt. The first night runs the default.

The policy is pure: the command and the benchmark drive the same code.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paretune.commands.recur.model import DriftingProcess, Usual, likeness
from paretune.estimating.noise import F1_DEGREES, F1_NOISE, SECONDS_DEGREES, SECONDS_NOISE
from paretune.studies.definition.quality import Quality
from paretune.studies.results.f1_model import Key, surprises

MOST_CHANCE = 0.05
"""Of missing the floor, for a point that is chosen for its dollars."""
MOST_DEARER = 2.0
"""Times the dollars that are expected of the cheapest admissible point, from which on a point is not drawn at all."""
MOST_NIGHTS = 90
"""Last ones that are learnt from: what is older has drifted away, and each night stays cheap to think about."""
REPEATS = 2
"""Runs beyond the first of equal points that must have shown the noise of a metric of which nothing is known."""
REST_NIGHTS = 10
"""Nights that a point is left alone after its job failed: memory, quota and capacity say nothing about quality."""
_DEPTH = 12.0  # standard deviations of noise below the floor, from which on a miss counts no worse
_EQUALLY_SAFE = 0.02  # difference of chances below which the cheaper point is the safer one
_NOISE_SHARE = 0.005  # of the floor, until a metric has shown its noise
_OF_MEDIAN = 1 / (0.6745 * math.sqrt(2))  # from the median difference of two runs to the deviation of one
_LEAST_NOISE = 1e-9
_LEVEL = 100.0  # of quality before any run, in noise
_SETTINGS = {0.7: 0.0, 2.0: 0.0, 8.0: 1.0}  # what settings differ by in quality, in noise, and how surprising that is
_CLUSTERS = {0.0: 0.0, 4.0: 3.0}  # the same of clusters: quality hardly ever depends on them, 0.016 of F1 if it does
_OWN_NIGHTS = 2.0  # runs of a point itself that count as much as what the processes say of it
_HALF_NIGHTS = 30.0  # after which such a run counts half
_SOUND = 2.0  # runs that are thought to have ended well on every cluster, and _FAILED that are thought to have failed
_FAILED = 0.05
_COSTS = {0.3: 0.0, 0.6: 0.5}  # what the estimates of settings are off by, log dollars
_QUALITY_LENGTHS = (4.0, 1.4, 1.4)  # log2 global batch, log rate, log epochs: correlations fall to 0.6 over these
_QUALITY_SLOPES = (0.0, 0.0, 5.0)  # of the same, in noise: e times the epochs add about 0.01 to F1, or 0.03, or nothing
_FALL = 1.0
"""In noise: what quality is thought to lose by a rate that is e times the default's, four times that for e squared.
`results.f1_model` expects as much, 0.004 of F1, of the best rate, which grows with the root of the batch."""
_COST_LENGTHS = (2.0,)  # log2 of instances, per-device batch, epochs
_OWN_LENGTHS = (0.7,)  # of numbers from 0 to 1, of a training of the user's own


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point: what its quality and its dollars depend on, and the logarithm of the dollars that are expected."""

    quality: Key
    cost: Key
    log_usd: float

    @property
    def cluster(self) -> tuple[str, ...]:
        """What has a quality and failures of its own: the kinds that dollars depend on, such as the instance type."""
        return self.cost[0]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One run: the point's candidate, the night's number, and what it showed.

    `value` is None where it failed, or was refused; `usd` where its dollars are not known.
    """

    candidate: Candidate
    night: int
    value: float | None
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What runs tonight, and why. Numbers of candidates.

    Attributes:
        at: what runs first; `fallback` what is trained if that misses the floor.
        chance: of `at` missing the floor tonight.
        usd: expected dollars of `at`, those of the fallback after a miss included; `default_usd` those of the default.
        admissible: how many points were.
    """

    at: int
    fallback: int
    chance: float
    usd: float
    default_usd: float
    admissible: int


class Policy:
    """Chooses among `candidates`, of which number `default` is what runs without this command.

    `floor` is the quality's least value, or its largest where less is better. `is_own`: the numbers of the candidates'
    quality are those of a training of the user's own, from 0 to 1.
    """

    def __init__(
        self, candidates: Sequence[Candidate], default: int, quality: Quality, floor: float, *, is_own: bool = False
    ) -> None:
        self.candidates = list(candidates)
        self.default = default
        self.floor = floor
        self.sign = quality.sign
        known = quality.noise or (F1_NOISE if quality.is_share else None)
        self._known_noise = None if known is None else known * (abs(floor) if quality.is_relative else 1.0)
        self._lengths = _OWN_LENGTHS if is_own else _QUALITY_LENGTHS
        self._falls = 0.0 if is_own else _FALL
        self._slopes = () if is_own else _QUALITY_SLOPES

    def knowledge(self, history: Sequence[Seen], night: int) -> "Knowledge":
        """What is known of every candidate before another run of that night."""
        recent = [one for one in history if one.night > night - MOST_NIGHTS]
        return Knowledge(self, recent, night)

    def choose(
        self, history: Sequence[Seen], night: int, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """The point of tonight; `allowed` are the candidates that may run, such as those that a budget covers."""
        return self.knowledge(history, night).choice(rng, allowed)

    def chances(self, seen: Sequence[Seen], candidates: Sequence[Candidate], night: int) -> np.ndarray:
        """N chances that a run of these candidates, if its job does not fail, misses the floor on a night."""
        noise = self.noise(seen) or _NOISE_SHARE * abs(self.floor) or 1.0
        known = [(one, one.value) for one in seen if one.value is not None]
        above = [self.sign * (value - self.floor) / noise for _, value in known]
        above = [float(np.clip(each, -_DEPTH, _LEVEL)) if not math.isnan(each) else -_DEPTH for each in above]
        usual = Usual(
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
        values = [each - self._expected(one.candidate.quality) for (one, _), each in zip(known, above, strict=True)]
        keys, nights = [one.candidate.quality for one, _ in known], [one.night for one, _ in known]
        process = DriftingProcess(keys, nights, values, usual, [one.candidate.cluster for one, _ in known])
        limits = -np.array([self._expected(one.quality) for one in candidates])
        wanted = process.predict([one.quality for one in candidates], night, [one.cluster for one in candidates])
        return wanted.chance_below(limits)

    def noise(self, seen: Sequence[Seen]) -> float | None:
        """Standard deviation of one run: what is known of the metric, else what runs of equal points have differed by.

        None until there are REPEATS of these. A median, so that a sudden fall of all points counts little.
        """
        if self._known_noise is not None:
            return self._known_noise
        last: dict[Candidate, float] = {}
        apart = []
        for one in seen:
            if one.value is not None and math.isfinite(one.value):
                apart += [abs(one.value - last[one.candidate])] if one.candidate in last else []
                last[one.candidate] = one.value
        if len(apart) < REPEATS:
            return None
        return max(float(np.median(apart)) * _OF_MEDIAN, 0.1 * _NOISE_SHARE * abs(self.floor), _LEAST_NOISE)

    def _expected(self, key: Key) -> float:
        """What a setting's quality is thought to lack, more being better, before any run: 0 for the default."""
        if not self._falls:
            return 0.0
        (batch, rate, *_), (own_batch, own_rate, *_) = key[1], self.candidates[self.default].quality[1]
        octaves = (rate - own_rate) / math.log(2) - (batch - own_batch) / 2
        return -self._falls * (octaves * math.log(2)) ** 2

    def cost_process(self, seen: Sequence[Seen]) -> DriftingProcess:
        """The process of log dollars over what was expected of them.

        Those of a job that failed count where they are more than was expected of the whole job.
        """
        paid = [(one, math.log(one.usd)) for one in seen if one.usd]
        known = [(one, paid) for one, paid in paid if one.value is not None or paid > one.candidate.log_usd]
        usual = Usual(
            level=1.0,
            noise=SECONDS_NOISE,
            noises=surprises(SECONDS_DEGREES),
            walks=(0.1, 0.5, 2.0),
            shapes=_COSTS,
            lengths=_COST_LENGTHS,
            kinds_alike=0.3,
        )
        keys, nights = [one.candidate.cost for one, _ in known], [one.night for one, _ in known]
        return DriftingProcess(keys, nights, [value - one.candidate.log_usd for one, value in known], usual)

    def meets(self, value: float | None) -> bool:
        """Whether a value is on the right side of the floor."""
        return value is not None and self.sign * value >= self.sign * self.floor


class Knowledge:
    """Chances and dollars of every candidate on one night, from the runs that were `seen`."""

    def __init__(self, policy: Policy, seen: Sequence[Seen], night: int) -> None:
        self._policy, self._seen, self._night = policy, seen, night
        self._cost = policy.cost_process(seen)
        self._log_usd = np.array([one.log_usd for one in policy.candidates])
        self._cost_keys = [one.cost for one in policy.candidates]

    @cached_property
    def chances(self) -> np.ndarray:
        """Chance of each candidate to miss the floor, if its job does not fail."""
        pairs = [(one.quality, one.cluster) for one in self._policy.candidates]
        distinct = dict(zip(pairs, self._policy.candidates, strict=True))
        found = self._policy.chances(self._seen, list(distinct.values()), self._night)
        of_pair = dict(zip(distinct, found, strict=True))
        return np.array([of_pair[pair] for pair in pairs])

    @cached_property
    def failing(self) -> np.ndarray:
        """Chance of each candidate's job to fail: as often as jobs of its cluster did, near its own batch above all.

        What was refused has cost nothing and does not count.
        """
        ran = [one for one in self._seen if one.value is not None or one.usd is not None]
        failed = np.array([one.value is None for one in ran], dtype=float)
        alike = likeness(self._cost_keys, [one.candidate.cost for one in ran], _COST_LENGTHS, 0.0)
        weights = alike * self._fresh(ran)
        of_the_cluster = (_FAILED + weights @ failed) / (_SOUND + weights.sum(axis=1))
        return self._with_own(of_the_cluster, np.isclose(alike, 1.0), ran, failed)

    @cached_property
    def missing(self) -> np.ndarray:
        """Chance of each candidate to be followed by a retraining: its job fails, or its model misses the floor."""
        ended = [one for one in self._seen if one.value is not None]
        missed = np.array([not self._policy.meets(one.value) for one in ended], dtype=float)
        same = [[one == seen.candidate for seen in ended] for one in self._policy.candidates]
        own = np.array(same, dtype=float).reshape(len(same), len(ended))
        return np.asarray(1 - (1 - self._with_own(self.chances, own, ended, missed)) * (1 - self.failing))

    def _with_own(self, chances: np.ndarray, own: np.ndarray, seen: Sequence[Seen], happened: np.ndarray) -> np.ndarray:
        """Chances of N candidates, each also by how often it `happened` in those of the V runs that are its `own`."""
        weights = own * self._fresh(seen)
        return np.asarray((_OWN_NIGHTS * chances + weights @ happened) / (_OWN_NIGHTS + weights.sum(axis=1)))

    def _fresh(self, seen: Sequence[Seen]) -> np.ndarray:
        """How much each run still counts: half as much after _HALF_NIGHTS."""
        return 0.5 ** ((self._night - np.array([one.night for one in seen], dtype=float)) / _HALF_NIGHTS)

    @cached_property
    def usd(self) -> np.ndarray:
        """Expected dollars of each candidate."""
        return np.asarray(np.exp(self._log_usd + self._cost.predict(self._cost_keys, self._night).mean))

    @cached_property
    def _barred(self) -> set[int]:
        """Candidates that failed lately: the first time for REST_NIGHTS, then twice as long each time."""
        failures: dict[tuple[Key, Key], list[int]] = {}
        for one in self._seen:
            if one.value is None:
                failures.setdefault((one.candidate.quality, one.candidate.cost), []).append(one.night)
        return {
            at
            for at, one in enumerate(self._policy.candidates)
            for nights in [failures.get((one.quality, one.cost), [])]
            if nights and self._night - max(nights) < REST_NIGHTS * 2 ** (len(nights) - 1)
        }

    def retrain(self, missed: Collection[int], *, is_last: bool, allowed: Collection[int] | None = None) -> int:
        """What to train after candidates that have `missed` tonight: the safest point, as the last one the default.

        So a night is hardly ever worse than what would have run without this command. The default is not taken where it
        has missed tonight itself.
        """
        default = self._policy.default
        if (
            is_last
            and default not in missed
            and default not in self._barred
            and (allowed is None or default in allowed)
        ):
            return default
        return self.fallback(allowed)

    def fallback(self, allowed: Collection[int] | None = None) -> int:
        """The safest of the candidates that have met the floor before, and the default; it may have missed tonight."""
        policy = self._policy
        met = {one.candidate.quality for one in self._seen if policy.meets(one.value)}
        ran = {one.candidate.cost for one in self._seen if policy.meets(one.value)}
        safe = [at for at, one in enumerate(policy.candidates) if one.quality in met and one.cost in ran]
        wanted = [at for at in dict.fromkeys([*safe, policy.default]) if allowed is None or at in allowed]
        wanted = [at for at in wanted if at not in self._barred] or self._able(allowed)
        least = min(self.chances[at] for at in wanted)
        return min((at for at in wanted if self.chances[at] <= least + _EQUALLY_SAFE), key=lambda at: self.usd[at])

    def _able(self, allowed: Collection[int] | None) -> list[int]:
        """Candidates that may run and do not rest; the default where there are none."""
        able = [at for at in range(len(self._log_usd)) if (allowed is None or at in allowed) and at not in self._barred]
        return able or [self._policy.default]

    @property
    def is_blind(self) -> bool:
        """Whether no run has shown its quality yet, or too few how much that scatters: the default runs, if it can."""
        return self._policy.noise(self._seen) is None or all(one.value is None for one in self._seen)

    def choice(self, rng: np.random.Generator, allowed: Collection[int] | None = None) -> Choice:
        """What to run; see `Policy.choose`."""
        default, chances = self._policy.default, self.chances
        able = self._able(allowed)
        fallback = self.fallback(allowed)
        again = float(self.usd[fallback])
        expected = self.usd + self.missing * again
        admissible = [at for at in able if chances[at] < MOST_CHANCE]
        most = max(MOST_CHANCE, min(chances[at] for at in able) + _EQUALLY_SAFE)
        among = [at for at in able if chances[at] < most]
        among += [default] if default in able and default not in among else []
        at = default if default in able and self.is_blind else self._drawn(among, again, rng)
        return Choice(
            at=at,
            fallback=fallback,
            chance=float(self.missing[at]),
            usd=float(expected[at]),
            default_usd=float(self.usd[default]),
            admissible=len(admissible),
        )

    def _drawn(self, among: Sequence[int], again_usd: float, rng: np.random.Generator) -> int:
        """The cheapest point in one of the possible truths, with the `again_usd` of training again after a miss."""
        dearest = MOST_DEARER * min(self.usd[at] for at in among)
        among = [at for at in among if self.usd[at] <= dearest]
        drawn = self._cost.draw([self._cost_keys[at] for at in among], self._night, rng)
        dollars = np.exp(self._log_usd[among] + drawn) + self.missing[among] * again_usd
        return among[int(np.argmin(dollars))]
