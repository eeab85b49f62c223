"""The metric that a study judges models by, and what is known about it before any run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paretune.estimating.noise import F1_NOISE
from paretune.specification import metrics

DIRECTIONS = ("minimize", "maximize")
LAST, BEST = TAKES = ("last", "best")  # which of the values counts that a run has logged over its steps


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The metric that says how good a model is."""

    metric: str
    direction: str
    take: str = LAST  # the last value of a run, or the best over its steps
    noise: float | None = None  # prior standard deviation of one run, or None if nothing is known
    is_relative: bool = False  # whether the noise grows with the value
    lowest: float = -math.inf  # end of the range of its values
    highest: float = math.inf  # its other end
    factors: tuple[str, ...] | None = ()
    """Parameters that it depends on; empty for all searched ones; None for global batch size, learning rate and epochs,
    as for F1 of paretune's own training."""

    @property
    def sign(self) -> float:
        """1 if more is better, -1 if less is."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def ends(self) -> tuple[float, float]:
        """The range of its values."""
        return self.lowest, self.highest

    @property
    def is_share(self) -> bool:
        """Whether it is a share of the validation rows, 0 to 1, as F1 is."""
        return (self.lowest, self.highest) == (0.0, 1.0)


F1 = Quality(metric=metrics.F1, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0, factors=None)
_KNOWN = (
    F1,
    Quality(metric=metrics.F1_MICRO, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0),
    Quality(metric=metrics.SUBSET_ACCURACY, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0),
    # exp(loss): an absolute difference of the loss is a relative one here.
    Quality(metric=metrics.PERPLEXITY, direction="minimize", noise=F1_NOISE, is_relative=True, lowest=1.0),
    Quality(metric=metrics.EVAL_LOSS, direction="minimize", noise=F1_NOISE, lowest=0.0),
)
KNOWN = {quality.metric: quality for quality in _KNOWN}  # metrics with prior knowledge, the most informative first


def judged_by(
    objectives: Mapping[str, str],
    *,
    metric: str | None = None,
    takes: Mapping[str, str] | None = None,
    factors: tuple[str, ...] | None = None,
) -> Quality | None:
    """The objective that measures the model: `metric`, else the most informative known one, else the first other one.

    None if all objectives follow from the cluster. `takes` maps metrics to the value that counts; `factors` are the
    parameters that the metrics of the user's own training depend on.
    """
    others = (name for name in objectives if name not in metrics.OF_THE_CLUSTER)
    name = metric or next((name for name in KNOWN if name in objectives), next(others, None))
    if name is None or name not in objectives:
        return None
    quality = KNOWN.get(name) or Quality(metric=name, direction=objectives[name])
    quality = replace(quality, take=(takes or {}).get(name, LAST))
    return quality if factors is None else replace(quality, factors=factors)


def curve_names(metric: str) -> tuple[str, ...]:
    """Names under which a run may log the values of a metric over its steps."""
    names = [metric, *_ALIASES.get(metric, ())]
    curves = [f"eval/{name.removeprefix('eval_')}" for name in names]
    return tuple(dict.fromkeys([*curves, f"train/{metric}", metric]))


_ALIASES = {metrics.F1: ("macro_f1", "f1_macro")}
