"""The payoff of a search: its cost against what every later run saves."""

import math
from dataclasses import dataclass

from paretune.estimating.noise import TELLING_ERRORS
from paretune.ledger.trial_entry import TrialStatus
from paretune.presentation.numbers import usd, with_error
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import format_value, label
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.trials import Trial


@dataclass(frozen=True, kw_only=True)
class Payoff:
    """The cost of a search, of one run of its recommendation, and of one run of the default; None if unknown.

    Attributes:
        error_usd: standard error of the difference of the two runs.
        default_basis: measured, simulated or estimated.
        quality: comparison of the recommended model with the default's in words, or empty.
        why_not: reason why the payoff is not known, or empty.
    """

    spent_usd: float
    recommended_usd: float | None = None
    default_usd: float | None = None
    error_usd: float = 0.0
    default_basis: str = ""
    later_runs: int | None = None
    quality: str = ""
    why_not: str = ""

    @property
    def saved_usd(self) -> float | None:
        """Dollars saved per later run against the default; negative if the recommended configuration is dearer."""
        if self.default_usd is None or self.recommended_usd is None:
            return None
        return self.default_usd - self.recommended_usd

    @property
    def is_saving(self) -> bool:
        """Whether a later run is cheaper by more than noise."""
        return self.saved_usd is not None and self.saved_usd > TELLING_ERRORS * self.error_usd

    @property
    def runs_to_break_even(self) -> int | None:
        """Later runs until the search has paid for itself; None if it never does, or if that is not known."""
        if not self.is_saving or self.saved_usd is None:
            return None
        # Reduced by a hair, so that 3 x 0.1 USD pay 0.3 USD after 3 runs.
        return math.ceil(self.spent_usd / self.saved_usd * (1 - 1e-12))

    def sentences(self) -> list[str]:
        """The payoff in words."""
        spent = f"The search has cost {usd(self.spent_usd)}."
        if self.saved_usd is None or self.default_usd is None or self.recommended_usd is None:
            return [spent, f"Whether it pays for itself cannot be said: {self.why_not}."]
        against = (
            f"One run of the cheapest good configuration costs {usd(self.recommended_usd)}, one of the default "
            f"configuration {usd(self.default_usd)} ({self.default_basis})"
        )
        bought = [self.quality] if self.quality else []
        if not self.is_saving:
            is_noise = abs(self.saved_usd) <= TELLING_ERRORS * self.error_usd
            difference = "a difference that cannot be told from noise" if is_noise else f"{usd(-self.saved_usd)} less"
            return [spent, f"{against}, {difference}: in dollars the search never pays for itself.", *bought]
        saving = f"{against}: every later run saves {with_error(self.saved_usd, self.error_usd)} USD."
        return [spent, saving, self._balance(self.saved_usd), *bought]

    def _balance(self, saved: float) -> str:
        runs = self.runs_to_break_even or 0
        when = f"The search pays for itself after {runs:,} later run{'s' if runs != 1 else ''}"
        if self.later_runs is None:
            return f"{when}; set later_runs to how often the winner will be trained again to see the balance."
        total = self.later_runs * saved
        planned = f"{self.later_runs:,} planned one{'s' if self.later_runs != 1 else ''}"
        if self.later_runs >= runs:
            net = usd(max(total - self.spent_usd, 0.0))
            return f"{when}; the {planned} save {usd(total)}, {net} more than it has cost."
        return f"{when}; the {planned} save only {usd(total)}, so it will not have paid for itself by then."


def payoff_of(front: StudyFront, recommended: Point | None, default: Trial | None, later_runs: int | None) -> Payoff:
    """The payoff of a study; `default` is a run of the default configuration, or its estimate (`origin` estimated)."""
    spent = front.spent_usd
    if recommended is None:
        return Payoff(spent_usd=spent, later_runs=later_runs, why_not="there is no configuration to recommend")
    if recommended.usd_per_run is None:
        return Payoff(spent_usd=spent, later_runs=later_runs, why_not="the price of its instances is not known")
    usd_of_default, why_not = _default_usd(default)
    if default is None or usd_of_default is None:
        return Payoff(spent_usd=spent, recommended_usd=recommended.usd_per_run, later_runs=later_runs, why_not=why_not)
    default_point = next(
        (point for point in front.points if default.run_id in {run.run_id for run in point.trials}), None
    )
    if default_point is not None and default_point.usd_per_run is not None:
        usd_of_default, error = default_point.usd_per_run, default_point.errors[metrics.COST_USD]
    else:
        error = front.noises[metrics.COST_USD].standard_error(usd_of_default, 1)
    is_same = default_point is not None and default_point.number == recommended.number
    same = "The default configuration is the recommended one."
    return Payoff(
        spent_usd=spent,
        recommended_usd=recommended.usd_per_run,
        default_usd=usd_of_default,
        error_usd=0.0 if is_same else math.hypot(error, recommended.errors[metrics.COST_USD]),
        default_basis=default.origin,
        later_runs=later_runs,
        quality=same if is_same else _quality(front, recommended, default),
    )


def _default_usd(default: Trial | None) -> tuple[float | None, str]:
    if default is None:
        return None, "the default configuration has neither been run nor estimated"
    if default.status is not TrialStatus.COMPLETED and default.origin != "estimated":
        reason = default.reason or default.status.value
        return None, f"the default configuration has not completed ({reason})"
    value = value_of(default, metrics.COST_USD)
    return value, "" if value is not None else "the price of the default configuration is not known"


def _quality(front: StudyFront, recommended: Point, default: Trial) -> str:
    """The recommended model against that of the default configuration, in words; empty if not known."""
    name = front.quality
    if name is None or name not in default.values or name not in recommended.means:
        return ""
    noise = front.noises[name]
    value, default_value = recommended.means[name], default.values[name]
    error = math.hypot(recommended.errors[name], noise.standard_error(default_value, 1))
    text = format_value(name, value, recommended.errors[name])
    if abs(value - default_value) <= TELLING_ERRORS * error:
        return f"Its {label(name)} is {text}; that of the default, {with_error(default_value)}, cannot be told from it."
    word = "better" if (value > default_value) == (front.objectives[name] == "maximize") else "worse"
    return f"Its {label(name)} is {text}, {word} than the default's {with_error(default_value)}."
