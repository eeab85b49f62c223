"""Whether a search paid for itself: its cost against what every later run saves."""

import math
from dataclasses import dataclass

from paretune.estimating.noise import TELLING_ERRORS, are_alike
from paretune.presentation.numbers import usd, with_error
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.trials import Trial, label


@dataclass(frozen=True, kw_only=True)
class Payoff:
    """The cost of a search, of one run of its recommendation, and of one run of the default."""

    spent_usd: float
    recommended_usd: float = 0.0
    default_usd: float = 0.0
    error_usd: float = 0.0  # standard error of the difference of the two runs
    default_basis: str = ""  # measured, simulated or estimated
    quality: str = ""  # comparison of the recommended model with the default's in words, or empty
    why_not: str = ""  # reason why the payoff is not known, or empty

    @property
    def saved_usd(self) -> float | None:
        """Dollars saved per later run against the default; negative if the recommended configuration is dearer."""
        return None if self.why_not else self.default_usd - self.recommended_usd

    @property
    def runs_to_break_even(self) -> int | None:
        """Later runs until the search has paid for itself; None if they are not cheaper beyond noise, or not known."""
        if self.saved_usd is None or self.saved_usd <= TELLING_ERRORS * self.error_usd:
            return None
        # Reduced by a hair, so that 3 x 0.1 USD pay 0.3 USD after 3 runs.
        return math.ceil(self.spent_usd / self.saved_usd * (1 - 1e-12))

    def sentences(self) -> list[str]:
        """The payoff in words."""
        spent = f"The search has cost {usd(self.spent_usd)}."
        if self.saved_usd is None:
            return [spent, f"Whether it pays for itself cannot be said: {self.why_not}."]
        against = (
            f"One run of the cheapest good configuration costs {usd(self.recommended_usd)}, one of the default "
            f"configuration {usd(self.default_usd)} ({self.default_basis})"
        )
        quality = [self.quality] if self.quality else []
        runs = self.runs_to_break_even
        if runs is None:
            is_noise = abs(self.saved_usd) <= TELLING_ERRORS * self.error_usd
            difference = "a difference that cannot be told from noise" if is_noise else f"{usd(-self.saved_usd)} less"
            return [spent, f"{against}, {difference}: in dollars the search never pays for itself.", *quality]
        saving = f"{against}: every later run saves {with_error(self.saved_usd, self.error_usd)} USD."
        when = f"The search pays for itself after {runs:,} later run{'s' if runs != 1 else ''}."
        return [spent, saving, when, *quality]


def payoff_of(front: StudyFront, recommended: Point | None, default: Trial | None) -> Payoff:
    """The payoff of a study; `default` is a completed run of the default configuration, or its estimate."""
    default_usd = None if default is None else value_of(default, metrics.COST_USD)
    usd_per_run = None if recommended is None else recommended.usd_per_run
    if recommended is None or default is None or default_usd is None or usd_per_run is None:
        return Payoff(spent_usd=front.spent_usd, why_not=_why_not(recommended, default))
    point = front.point_of(default)
    if point is not None and point.usd_per_run is not None:
        default_usd, error_usd = point.usd_per_run, point.errors[metrics.COST_USD]
    else:
        error_usd = front.noises[metrics.COST_USD].standard_error(default_usd, 1)
    is_same = point is not None and point.number == recommended.number
    same = "The default configuration is the recommended one."
    return Payoff(
        spent_usd=front.spent_usd,
        recommended_usd=usd_per_run,
        default_usd=default_usd,
        error_usd=0.0 if is_same else math.hypot(error_usd, recommended.errors[metrics.COST_USD]),
        default_basis=default.origin,
        quality=same if is_same else _quality(front, recommended, default),
    )


def _why_not(recommended: Point | None, default: Trial | None) -> str:
    if recommended is None:
        return "there is no configuration to recommend"
    if recommended.usd_per_run is not None and default is None:
        return "the default configuration has neither been run nor estimated"
    which = "recommended" if recommended.usd_per_run is None else "default"
    return f"the price of the {which} configuration is not known"


def _quality(front: StudyFront, recommended: Point, default: Trial) -> str:
    """The comparison of both models, by the runs that trained; empty if one is not known."""
    name = front.quality
    if name is None or name not in default.values or name not in recommended.means:
        return ""
    point, default_value, default_error = front.point_of(default), default.values[name], 0.0
    if point is not None:
        default_value, default_error = point.measured[name]
    elif default.origin == "measured":  # a rehearsed default has the value that the simulation adds noise to
        default_error = front.noises[name].standard_error(default_value, 1)
    value, error = recommended.measured[name]
    text, default_text = front.text(name, value, error), front.text(name, default_value, default_error)
    runs = f"its {recommended.trained} runs in the mean" if recommended.trained > 1 else "its run"
    if are_alike(value, default_value, error, default_error):
        return f"The {label(name)} of {runs}, {text}, and that of the default, {default_text}, are equal within noise."
    word = "better" if (value > default_value) == (front.objectives[name] == "maximize") else "worse"
    return f"The {label(name)} of {runs}, {text}, is {word} than the default's, {default_text}."
