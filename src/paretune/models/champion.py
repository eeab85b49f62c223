"""Whether a model becomes the champion: the rule alone, from what is recorded of both models."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from paretune.estimating.noise import TELLING_ERRORS
from paretune.presentation.numbers import plain, with_error
from paretune.specification import metrics

QUALITIES: Mapping[str, float] = MappingProxyType({metrics.F1: 1.0, metrics.PERPLEXITY: -1.0})
"""Metric by which models are compared, the first that a run has recorded, to 1 if more is better, else -1."""
_LABELS = {metrics.F1: "F1", metrics.PERPLEXITY: "perplexity"}
_BASELINES = {metrics.BASELINE_MAJORITY: "of the most frequent class", metrics.BASELINE_TFIDF: "of TF-IDF"}
_BASELINES |= {metrics.BASELINE_WORDS: "of the most frequent label of each word"}
CHEAPER_BY = 0.1
"""Least share by which seconds or parameters must be lower to count as cheaper: the seconds of an evaluation of a
thousand rows scatter by a few per cent, and merged adapters change the number of parameters by about one."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The recorded figures of one model."""

    metric: str = ""  # name of the metric that it is judged by, of QUALITIES; empty if none was recorded
    value: float = 0.0
    error: float = 0.0  # standard error of `value`
    rows: str = ""  # digest of the rows that it was judged on; empty if it was not recorded
    baselines: Mapping[str, float] = field(default_factory=dict)  # metric of a baseline to its value on the same rows
    parameters: float | None = None  # number of parameters of the whole model; None if it was not recorded
    seconds_per_1000_rows: float | None = None
    """That it took to read so many rows while it was judged; None if not recorded."""
    measured_on: str = ""  # the machine that these seconds belong to: instance type, device and precision

    def shown(self) -> str:
        """The metric with its error, for people."""
        return f"{_LABELS.get(self.metric, self.metric)} {with_error(self.value, self.error)}"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether the alias `champion` moves, and why, with the figures."""

    moves: bool
    reason: str


def decide(new: Figures, champion: Figures | None) -> Decision:
    """Whether the model `new` takes the place of the `champion`, which is None if there is none yet.

    It does if it is better beyond noise on the same rows, by more than 2 standard errors of the difference, or if it
    differs by less and is cheaper to run. The first champion must be above its baselines.
    """
    if not new.metric:
        names = " or ".join(QUALITIES)
        return _stays(f"its run has recorded no {names}, by which models are compared")
    if champion is None:
        return _first(new)
    incomparable = _incomparable(new, champion)
    if incomparable:
        return _stays(incomparable)
    difference = QUALITIES[new.metric] * (new.value - champion.value)
    limit = TELLING_ERRORS * math.hypot(new.error, champion.error)
    compared = f"{new.shown()} against {champion.shown()} of the champion on the same rows"
    if abs(difference) > limit:
        side = "better" if difference > 0 else "worse"
        beyond = f"{side} by {plain(abs(difference), 3)}, more than the noise (2 errors: {plain(limit, 3)})"
        return Decision(moves=difference > 0, reason=f"{compared} is {beyond}")
    equal = f"{compared} is equal within noise (2 errors: {plain(limit, 3)})"
    cheaper, reason = _is_cheaper(new, champion)
    return Decision(moves=cheaper, reason=f"{equal}, and {reason}")


def _stays(reason: str) -> Decision:
    return Decision(moves=False, reason=reason)


def _first(new: Figures) -> Decision:
    if not new.baselines:
        return _stays(f"there is no champion yet, and no baseline is recorded that {new.shown()} could be above")
    name, highest = max(new.baselines.items(), key=lambda item: item[1])
    side = "above" if new.value > highest else "not above"
    best = f"{plain(highest, 4)} {_BASELINES[name]}, the best baseline"
    reason = f"there was no champion, and {new.shown()} is {side} the {best}"
    return Decision(moves=new.value > highest, reason=reason)


def _incomparable(new: Figures, champion: Figures) -> str:
    if not champion.metric:
        return "the champion has no figures of paretune in its tags, so the two cannot be compared"
    if new.metric != champion.metric:
        return f"the champion was judged by {champion.metric}, this model by {new.metric}"
    if not new.rows or not champion.rows:
        model = "this model" if not new.rows else "the champion"
        return f"the digest of the rows that {model} was judged on is not recorded"
    if new.rows != champion.rows:
        return (
            f"{new.shown()} was measured on other validation rows ({new.rows}) than {champion.shown()} of the champion "
            f"({champion.rows}): give both the same validation_file and max_eval_samples"
        )
    return ""


def _is_cheaper(new: Figures, champion: Figures) -> tuple[bool, str]:
    """Whether a model is cheaper to run, and by which figures: seconds on the same machine, else parameters."""
    same_machine = new.measured_on == champion.measured_on != ""
    if same_machine and new.seconds_per_1000_rows and champion.seconds_per_1000_rows:
        unit = f"s per 1,000 rows ({new.measured_on})"
        return _lower(new.seconds_per_1000_rows, champion.seconds_per_1000_rows, unit)
    if new.parameters and champion.parameters:
        return _lower(new.parameters, champion.parameters, "parameters")
    return False, "which is cheaper to run is not recorded"


def _lower(new: float, old: float, unit: str) -> tuple[bool, str]:
    numbers = [f"{value:,.0f}" if unit == "parameters" else plain(value, 3) for value in (new, old)]
    comparison = f"{numbers[0]} against {numbers[1]} {unit}"
    if new <= old * (1 - CHEAPER_BY):
        return True, f"cheaper to run: {comparison}"
    return False, f"not cheaper to run by {CHEAPER_BY:.0%}: {comparison}"
