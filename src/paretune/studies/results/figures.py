"""The figures of a study: metrics with units, rounded to their errors, as pages, tables and sentences show them."""

from functools import cached_property
from statistics import median

from paretune.presentation.text import plain, time_unit, to_error, usd, with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.results.configurations import Configuration
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import Trial, label


class Figures:
    """Writes the metrics of a study's configurations. All times share one unit, and so do all dollars."""

    def __init__(self, front: StudyFront) -> None:
        self._front = front

    def unit(self, name: str) -> tuple[float, str]:
        """Return the divisor and the unit that a metric is shown with. All times of a study share one unit."""
        unit = OBJECTIVES[name].unit if name in OBJECTIVES else ""
        return self._time_unit if unit == "s" else self._money_unit if unit == "USD" else (1.0, unit)

    @cached_property
    def _money_unit(self) -> tuple[float, str]:
        """The divisor and unit of dollars. If jobs usually cost less than a cent, it is dollars per thousand jobs."""
        usd = [trial.values[metrics.COST_USD] for trial in self._trials if metrics.COST_USD in trial.values]
        return (0.001, "USD per 1,000 jobs") if usd and median(usd) < 0.01 else (1.0, "USD")

    @cached_property
    def _time_unit(self) -> tuple[float, str]:
        trials = self._trials
        seconds = [[trial.values[name] for trial in trials if name in trial.values] for name in metrics.TIMES]
        return time_unit(median(next(filter(None, seconds), [1.0])))

    @property
    def _trials(self) -> list[Trial]:
        """The trials, or what is expected if none has completed."""
        expected = [point.trial for point in self._front.expected]
        return [*self._front.trials] if self._front.has_trained else expected

    def heading(self, name: str) -> str:
        """Return the name and unit of a quantity, such as job time (h)."""
        unit = self.unit(name)[1]
        return f"{label(name)} ({unit})" if unit else label(name)

    def number(self, name: str, value: float, error: float | None = None) -> str:
        """Format a value in its unit: with its error if given (2.310 ± 0.032), else rounded to the noise of one run."""
        size = self.unit(name)[0]
        if error is None and name in self._front.noises:
            return to_error(value / size, self._front.noises[name].of_one_run(value) / size)
        return with_error(value / size, None if error is None else error / size)

    def text(self, name: str, value: float, error: float | None = None) -> str:
        """Format a value like `number`, with its unit."""
        return f"{self.number(name, value, error)} {self.unit(name)[1]}".strip()

    def stated(self, point: Configuration, name: str, *, with_unit: bool = True) -> str:
        """Return a configuration's mean, with its unit and, if known, its standard error.

        If it was not trained, return its expected value and the interval that should contain it.
        """
        text = self.number(name, point.means[name], point.errors.get(name))
        if point.is_expected and (interval := self._front.interval(point, name)) is not None:
            size, (low, high) = self.unit(name)[0], interval
            ends = (to_error(each / size, (high - low) / 2 / size) for each in (point.means[name], low, high))
            text = "{} ({} to {})".format(*ends)
        return f"{text} {self.unit(name)[1]}".strip() if with_unit else text

    def of(self, point: Configuration) -> dict[str, str]:
        """Return the objectives and what a job takes, each as text with its unit and its standard error if known."""
        names = self._front.shown_of(is_expected=point.is_expected)
        return {label(name): self.stated(point, name) for name in names if name in point.means}

    def in_words(self, point: Configuration) -> str:
        """Return the figures of a configuration (`of`) in one string."""
        return "; ".join(f"{name} {value}" for name, value in self.of(point).items())

    def gain(self, name: str, value: float, other: float) -> str:
        """Return how much better a value is than another one, in words: 1.70 USD cheaper, 2.3 times as fast."""
        if name == metrics.COST_USD:
            return f"{usd(other - value)} cheaper"
        if name in metrics.TIMES:
            times = f"{other / value:.2g}"
            return {"1": f"{other / value - 1:.1%} faster", "2": "twice as fast"}.get(times, f"{times} times as fast")
        return f"{label(name)} {self.digits(name, abs(value - other))} {'lower' if value < other else 'higher'}"

    def digits(self, name: str, difference: float) -> str:
        """Format a difference to two significant digits at most, with its unit."""
        size, unit = self.unit(name)
        text = plain(difference / size, 2)
        return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}".strip()

    def unmet(self, point: Configuration) -> list[str]:
        """Return a sentence for each constraint that the means of a configuration violate."""
        sentences = []
        for name, end in point.unmet:
            if name not in point.means:
                sentences.append(f"{label(name)} was not measured or is not finite")
                continue
            side, bound = {"min": "below", "max": "above"}[end], self._front.constraints[name][end]
            is_value = f"{label(name)} is {self.text(name, point.means[name])}"
            sentences.append(f"{is_value}, {side} {self.text(name, bound, 0.0)}")
        return sentences

    def bounds(self, name: str) -> list[str]:
        """Return the bounds that the constraints set for a metric, in words such as "F1 at least 0.9"."""
        words = {"min": "least", "max": "most"}
        ends = self._front.constraints.get(name, {}).items()
        return [f"{label(name)} at {words[end]} {self.text(name, bound, 0.0)}" for end, bound in ends]
