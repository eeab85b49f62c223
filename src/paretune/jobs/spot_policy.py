"""Whether a job that has to be finished in time is on spot instances or on demand.

The policy is `choose`, a pure function of the time left, the progress and the phases that the estimate predicts. It
waits for spot capacity, and changes to on demand at the last moment at which an on-demand job is still done in time
with the requested probability. SageMaker shows no availability, so it decides by the states of the job alone. It
returns to spot if the training proves faster than its estimate. "Can't Be Late" (Wu et al., NSDI 2024) keeps to a
uniform progress; where the availability cannot be seen that is dearer, as `benchmarks/deadline.py` shows.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist

from paretune.estimating.phases import BOOT_SECONDS, Seconds
from paretune.estimating.posterior import Z80
from paretune.specification.container import CHECKPOINT_EVERY_S

INTERRUPTIONS_PER_HOUR = 0.65
"""1,052 in 1,621 hours on spot, of the six traces on which `benchmarks/deadline.py` chooses constants."""
SPOT_RISK = 0.5
"""Part of the allowed probability of being late that spot instances may use up; chosen on the same traces."""
SPOT_SHARE = 0.3
"""Spot dollars as a share of on-demand dollars; about that of V100s in the traces' years. Assumed."""
STOP_S = 90.0
"""From a stop request to the end of a job: two minutes at most for a checkpoint, and its upload. Assumed."""
WORTH_WAITING_S = 1800.0
"""Least time to wait for spot capacity for which a job leaves its on-demand instances; chosen on the same traces."""
WORTH_RETURNING_S = 7200.0
"""Least rest of the training for which it does; chosen on the same traces."""
EXPECTED_SHARES = ((0.0, 1.0), (0.07, 0.82), (0.4, 0.74))
"""Time to wait for spot as a share of the seconds on demand, and dollars as a share of those on demand; same traces."""
_AROUND = ("starting", "data", "image", "uploading")
_WITHIN = 6.0  # standard deviations, in which probabilities are looked for


def seconds_at(phases: Mapping[str, Seconds], progress: float, z: float) -> float:
    """Seconds that an on-demand job takes from its request to its model, `z` standard deviations above the usual.

    `progress` is the share of the training that is in a checkpoint. Deviations of the phases are independent, and each
    phase is log-normal.
    """
    training = phases["training"]
    boot = min(BOOT_SECONDS, training.seconds / 2) if "starting" in phases else 0.0
    rest = training.scaled((1 - progress) * (1 - boot / training.seconds)) if training.seconds else training
    parts = [rest, *(phases[name] for name in _AROUND if name in phases)]
    deviations = [part.seconds * math.expm1(abs(z) * _log_deviation(part)) for part in parts]
    return boot + sum(part.seconds for part in parts) + math.copysign(math.hypot(*deviations), z)


def probability(phases: Mapping[str, Seconds], progress: float, left_s: float) -> float:
    """Probability that an on-demand job which is requested now is done within `left_s` seconds."""
    low, high = -_WITHIN, _WITHIN
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if seconds_at(phases, progress, middle) <= left_s else (low, middle)
    return NormalDist().cdf((low + high) / 2)


class On(Enum):
    """The instances that a job is on."""

    NOTHING = "waiting for spot"
    SPOT = "spot"
    DEMAND = "on demand"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The decision on what a job does now.

    Attributes:
        spot: whether it is on spot instances, or waits for them; else on demand.
        review_s: seconds for which this holds if nothing changes.
    """

    spot: bool
    review_s: float = math.inf


def choose(phases: Mapping[str, Seconds], on: On, *, left_s: float, progress: float, confidence: float) -> Choice:
    """Whether a job is to be on spot instances or on demand.

    Args:
        phases: of the job on demand, as the estimate and the job itself predict them.
        on: where it is; it trains there, or waits for spot capacity.
        left_s: seconds until the job has to be finished.
        progress: share of the training that is in a checkpoint.
        confidence: probability with which it has to be.
    """
    rest_s = (1 - progress) * phases["training"].seconds
    interrupted = -math.expm1(-INTERRUPTIONS_PER_HOUR * rest_s / 3600)
    if on is On.SPOT:  # to stay is right if there is time to start again, or if that is riskier than to stay
        if probability(phases, progress, left_s - CHECKPOINT_EVERY_S) >= confidence:
            return Choice(spot=True)
        return Choice(spot=1 - interrupted >= probability(phases, progress, left_s - STOP_S))
    risk = SPOT_RISK * (1 - confidence) / max(interrupted, 1e-9)
    z = NormalDist().inv_cdf(1 - min(risk, 0.5))
    lost_s = starting_s(phases) + CHECKPOINT_EVERY_S / 2  # by an interruption
    slack_s = left_s - seconds_at(phases, progress, z) - lost_s
    if on is On.NOTHING:
        return Choice(spot=slack_s > 0, review_s=max(0.0, slack_s))
    returns = slack_s - STOP_S > WORTH_WAITING_S and rest_s > WORTH_RETURNING_S
    return Choice(spot=returns)


def starting_s(phases: Mapping[str, Seconds]) -> float:
    """Usual seconds from capacity to the first step of training."""
    return sum(phases[name].seconds for name in _AROUND[:3] if name in phases) + BOOT_SECONDS


def expected_share(slack: float) -> float:
    """Expected dollars as a share of those on demand, if `slack` of the seconds on demand can be waited for spot."""
    for (low, share), (high, following) in itertools.pairwise(EXPECTED_SHARES):
        if slack < high:
            return share + (following - share) * (slack - low) / (high - low)
    return EXPECTED_SHARES[-1][1]


def _log_deviation(seconds: Seconds) -> float:
    """Standard deviation of the logarithm, from the interval that holds 80 %."""
    if not 0 < seconds.seconds_low < seconds.seconds_high:
        return 0.0
    return math.log(seconds.seconds_high / seconds.seconds_low) / (2 * Z80)
