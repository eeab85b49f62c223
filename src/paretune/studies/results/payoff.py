"""Whether a search paid for itself: its cost against what every later run saves, beside the default configuration."""

import math

from paretune.estimating.noise import TELLING_ERRORS, are_alike
from paretune.presentation.numbers import usd, with_error
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.trials import Trial, label


def payoff(front: StudyFront, recommended: Point | None, default: Trial | None) -> list[str]:
    """The payoff in sentences; `default` is a run of the default configuration, or what is expected of it."""
    spent = f"The search has cost {usd(front.spent_usd)}."
    point = None if default is None else front.point_of(default)
    if recommended is not None and point is not None and point.number == recommended.number:
        same = "The default configuration is the recommended one: in dollars the search never pays for itself."
        return [spent, same]
    cost_usd = None if recommended is None else recommended.usd_per_run
    default_usd = value_of(default, metrics.COST_USD) if default is not None and point is None else None
    default_usd = point.usd_per_run if point is not None else default_usd
    if recommended is None or default is None or cost_usd is None or default_usd is None:
        which = "recommended" if cost_usd is None else "default"
        return [spent, f"Whether it pays for itself cannot be said: no dollars of a {which} configuration are known."]
    noise = front.noises[metrics.COST_USD].standard_error(default_usd, 1)
    error = point.errors[metrics.COST_USD] if point is not None else noise
    error, saved = math.hypot(error, recommended.errors[metrics.COST_USD]), default_usd - cost_usd
    against = (
        f"One run of the cheapest good configuration costs {usd(cost_usd)}, one of the default configuration "
        f"{usd(default_usd)} ({default.origin})"
    )
    quality = _quality(front, recommended, default, point)
    if saved <= TELLING_ERRORS * error:
        is_noise = abs(saved) <= TELLING_ERRORS * error
        difference = "a difference that cannot be told from noise" if is_noise else f"{usd(-saved)} less"
        return [spent, f"{against}, {difference}: in dollars the search never pays for itself.", *quality]
    # Reduced by a hair, so that 3 x 0.1 USD pay 0.3 USD after 3 runs.
    runs = math.ceil(front.spent_usd / saved * (1 - 1e-12))
    saving = f"{against}: every later run saves {with_error(saved, error)} USD."
    return [spent, saving, f"The search pays for itself after {runs:,} later run{'s' if runs != 1 else ''}.", *quality]


def _quality(front: StudyFront, recommended: Point, default: Trial, point: Point | None) -> list[str]:
    """The comparison of both models, by the runs that trained; empty if one is not known."""
    name = front.quality
    if name is None or name not in default.values or name not in recommended.means:
        return []
    default_value, default_error = (default.values[name], 0.0) if point is None else point.measured[name]
    value, error = recommended.measured[name]
    text, default_text = front.text(name, value, error), front.text(name, default_value, default_error)
    runs = f"its {recommended.trained} runs in the mean" if recommended.trained > 1 else "its run"
    both = f"The {label(name)} of {runs}, {text},"
    if are_alike(value, default_value, error, default_error):
        return [f"{both} and that of the default, {default_text}, are equal within noise."]
    word = "better" if (value > default_value) == (front.objectives[name] == "maximize") else "worse"
    return [f"{both} is {word} than the default's, {default_text}."]
