"""What a study judges models by: one metric, which way it is better, and what is known of it before any run."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from paretune.estimating.noise import F1_NOISE
from paretune.specification import metrics

DIRECTIONS = ("minimize", "maximize")
LAST, BEST = TAKES = ("last", "best")
"""Which value of a run counts of all that it has logged over its steps."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The metric that says how good a model is.

    Attributes:
        metric: its name, as runs log it.
        direction: minimize or maximize.
        take: the last value of a run, or the best over its steps.
        noise: standard deviation of one run that is likely before any repeats; None where nothing is known.
        is_relative: whether that grows with the value.
        lowest: the least value that it can have, and `highest` the largest.
        factors: names of the parameters that it depends on; none: on all that are searched; None: on global batch size,
            learning rate and epochs, as F1 of paretune's own training.
    """

    metric: str
    direction: str
    take: str = LAST
    noise: float | None = None
    is_relative: bool = False
    lowest: float = -math.inf
    highest: float = math.inf
    factors: tuple[str, ...] | None = ()

    @property
    def sign(self) -> float:
        """1 where more is better, -1 where less is."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def is_share(self) -> bool:
        """Whether it is a share of the rows that it was measured on, 0 to 1, as F1 is."""
        return (self.lowest, self.highest) == (0.0, 1.0)

    def better(self, one: float, other: float) -> float:
        """The better one of two values."""
        return max(one, other, key=lambda value: self.sign * value)


F1 = Quality(metric=metrics.F1, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0, factors=None)
_KNOWN = (
    F1,
    Quality(metric=metrics.RMSE, direction="minimize", lowest=0.0),
    Quality(metric=metrics.R2, direction="maximize", highest=1.0),
    Quality(metric=metrics.MAE, direction="minimize", lowest=0.0),
    Quality(metric=metrics.SPEARMAN, direction="maximize", lowest=-1.0, highest=1.0),
    Quality(metric=metrics.F1_MICRO, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0),
    Quality(metric=metrics.SUBSET_ACCURACY, direction="maximize", noise=F1_NOISE, lowest=0.0, highest=1.0),
    # exp(loss): what is absolute in the loss is relative here.
    Quality(metric=metrics.PERPLEXITY, direction="minimize", noise=F1_NOISE, is_relative=True, lowest=1.0),
    Quality(metric=metrics.EVAL_LOSS, direction="minimize", noise=F1_NOISE, lowest=0.0),
)
KNOWN = {quality.metric: quality for quality in _KNOWN}
"""Metrics of which something is known before any run, the most informative first."""


def quality_among(
    objectives: Mapping[str, str],
    of_the_cluster: Collection[str],
    *,
    metric: str | None = None,
    takes: Mapping[str, str] | None = None,
    factors: tuple[str, ...] | None = None,
) -> Quality | None:
    """What measures the model: `metric`, else the most informative of the known ones, else the first own objective.

    None where all objectives are `of_the_cluster`. `takes` says of metrics which value counts; `factors` that they are
    the user's own training's: what its metrics depend on.
    """
    own = (name for name in objectives if name not in of_the_cluster)
    name = metric or next((known for known in KNOWN if known in objectives), next(own, None))
    if name is None or name not in objectives:
        return None
    found = KNOWN.get(name) or Quality(metric=name, direction=objectives[name])
    found = replace(found, take=(takes or {}).get(name, LAST))
    return found if factors is None else replace(found, factors=factors)


def curve_names(metric: str) -> tuple[str, ...]:
    """Names under which the values of a metric over the steps may be told: curves of trainings, or its own name."""
    said = [metric, *_TOLD_AS.get(metric, ())]
    curves = [f"eval/{name.removeprefix('eval_')}" for name in said]
    return tuple(dict.fromkeys([*curves, f"train/{metric}", metric]))


_TOLD_AS = {metrics.F1: ("macro_f1", "f1_macro")}
