"""One setting of jobs against another: native against compiled, full against LoRA, one strategy against the next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial

from paretune.commands.report.factors import DEFAULTS, OF_THE_CLUSTER, SHAPE, VERSIONS
from paretune.commands.report.observations import Kind, Observation, grouped, sorted_levels, varying
from paretune.commands.report.scaling import Level, apart_by, dollars_cell, number_cell, seconds_cell
from paretune.commands.report.spread import CONFIDENCE, Compared, difference, ratio
from paretune.core.errors import BadInput
from paretune.presentation.table import Cell, Column, Table
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting

_EXPECTED_DIFFERENCES = {"seed", "dataset", "model", "instance_type", "instance_count"}
_RATIOS = (metrics.THROUGHPUT_SAMPLES, metrics.BILLABLE_SECONDS, metrics.COST_USD)
_COMPARED = {
    metrics.THROUGHPUT_SAMPLES: "samples/s",
    metrics.TRAIN_SECONDS: "training time",
    metrics.BILLABLE_SECONDS: "billed time",
    metrics.COST_USD: "cost (USD)",
    metrics.PEAK_MEMORY_GIB: "memory per device (GiB)",
    metrics.F1: "F1",
    metrics.PERPLEXITY: "perplexity",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The runs of one kind by the values of a setting; of one shape, too, unless the setting belongs to the cluster.

    The first level is the default of the setting if that ran, else the first by size or name.
    """

    kind: Kind
    by: str
    levels: tuple[Level, ...]

    @property
    def runs(self) -> list[Observation]:
        """All runs of its levels."""
        return [run for level in self.levels for run in level.runs]

    @cached_property
    def other_differences(self) -> dict[str, list[str]]:
        """Further settings in which the runs differ, by name: they may matter, too."""
        computing = affecting(JobSpec, *COMPUTES, "evaluation")
        names = {name: name for name in (*computing, VERSIONS) if name not in _EXPECTED_DIFFERENCES | {self.by}}
        return varying(self.runs, names)

    def ratio(self, level: Level, quantity: str) -> Compared | None:
        """Return the level's mean of a metric over that of the first level; None for the first or if missing."""
        values, base = level.by_size(quantity), self.levels[0].by_size(quantity)
        return None if level is self.levels[0] or not values or not base else ratio(values, base)

    def f1_difference(self, level: Level) -> Compared | None:
        """Return the level's mean F1 minus that of the first level; None for the first or if one is missing."""
        values, base = level.by_size(metrics.F1), self.levels[0].by_size(metrics.F1)
        return None if level is self.levels[0] or not values or not base else difference(values, base)

    def table(self) -> Table:
        """Return a row per level: means with sample standard deviations, and ratios to the first level."""
        columns: list[Column[Level]] = [
            Column(self.by, lambda level: level.name or "(none)"),
            Column("n", lambda level: len(level.runs)),
        ]
        columns += [Column(header, partial(_cell, quantity=quantity)) for quantity, header in _COMPARED.items()]
        columns += [
            Column(
                f"{_COMPARED[quantity].removesuffix(' (USD)')} / first", partial(self._ratio_cell, quantity=quantity)
            )
            for quantity in _RATIOS
        ]
        return Table.of(columns, self.levels).without_empty_columns()

    def _ratio_cell(self, level: Level, *, quantity: str) -> Cell | None:
        ratio = self.ratio(level, quantity)
        if ratio is None:
            return None
        ends = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
        return Cell(f"{ratio.value:.3f}{ends}", ratio.value)

    def rows(self) -> list[dict[str, object]]:
        """Return the table as numbers."""
        rows = []
        for level in self.levels:
            row: dict[str, object] = {item.name: getattr(self.kind, item.name) for item in fields(self.kind)}
            row |= {"by": self.by, "level": level.name, "n": len(level.runs)}
            for quantity in _COMPARED:
                spread = level.spread(quantity)
                row[f"{quantity}_mean"] = None if spread is None else spread.mean
                row[f"{quantity}_deviation"] = None if spread is None else spread.deviation
            for quantity in _RATIOS:
                ratio = self.ratio(level, quantity)
                row |= {f"{quantity}_ratio{end}": getattr(ratio, name, None) for end, name in _ENDS.items()}
            less = self.f1_difference(level)
            rows.append(
                row | {f"{metrics.F1}_difference{end}": getattr(less, name, None) for end, name in _ENDS.items()}
            )
        return rows

    def findings(self) -> list[str]:
        """Return sentences on ratios and differences of F1, whether they exceed noise, and what else differs."""
        sentences = []
        first = self.levels[0].name or "(none)"
        for level in self.levels[1:]:
            against = f"{level.name or '(none)'} against {first}"
            for quantity in _RATIOS:
                ratio = self.ratio(level, quantity)
                if ratio is not None:
                    word = _COMPARED[quantity].removesuffix(" (USD)")
                    sentences.append(f"{against}: {word} x {_words(ratio, '.3f', 1)}.")
            if (less := self.f1_difference(level)) is not None:
                sentences.append(f"{against}: {_COMPARED[metrics.F1]} {_words(less, '+.4f', 0)}.")
        for name, values in self.other_differences.items():
            listed = ", ".join(values[:6]) + (" and more" if len(values) > 6 else "")
            sentences.append(f"{self.by} is not all that differs between these runs: so does {name} ({listed}).")
        return sentences


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def comparisons(runs: Iterable[Observation], by: str) -> tuple[list[Comparison], list[str]]:
    """Return the runs to compare by a setting, and a sentence for groups with one value; raises BadInput."""
    apart = () if by in OF_THE_CLUSTER else (SHAPE,)
    comparable, left_out = [], []
    for kind, group in sorted(apart_by(runs, apart).items()):
        by_value = grouped(group, lambda run: run.setting(by))
        if len(by_value) < 2:
            value = str(next(iter(by_value))) or "unknown"
            left_out.append(f"{kind}: {len(group)} run{'s' * (len(group) > 1)}, all with {by} {value}")
            continue
        levels = [Level(name=name, runs=tuple(by_value[name])) for name in _ordered(map(str, by_value), by)]
        comparable.append(Comparison(kind=kind, by=by, levels=tuple(levels)))
    if not comparable:
        reasons = "; ".join(left_out) or "no completed run matches"
        raise BadInput([f"view=compare needs runs with at least two values of {by}, got {reasons}: choose more runs"])
    return comparable, left_out


def _ordered(names: Iterable[str], by: str) -> list[str]:
    """Return the names by size or alphabet, the default first."""
    return sorted(sorted_levels(names), key=lambda name: name != DEFAULTS.get(by))


def _cell(level: Level, *, quantity: str) -> Cell | None:
    spread = level.spread(quantity)
    if quantity in (metrics.TRAIN_SECONDS, metrics.BILLABLE_SECONDS):
        return seconds_cell(spread)
    if quantity == metrics.COST_USD:
        return dollars_cell(spread)
    return number_cell(spread, 4 if quantity == metrics.F1 else 2)


def _words(comparison: Compared, form: str, equal: int) -> str:
    """Return the comparison in words; `equal` is its value if both means are equal."""
    value = format(comparison.value, form)
    if comparison.low is None or comparison.high is None:
        return f"{value}; too few repeats to tell it from {equal}"
    is_equal = comparison.low <= equal <= comparison.high
    verdict = f"cannot be told from {equal}" if is_equal else f"differs from {equal} by more than noise"
    return f"{value} ({CONFIDENCE:.0%} interval {comparison.low:{form}} to {comparison.high:{form}}), {verdict}"


def loss_curves(
    comparison: Comparison, curve_of: dict[str, Sequence[tuple[int, float, float]]]
) -> dict[str, list[list[tuple[int, float | None, float]]]]:
    """Return level to the loss curves of its runs; a point is step, dollars until then, loss.

    `curve_of` has step, seconds since the epoch and loss by run id. Dollars are those of the time since the run began
    at its hourly price, at most its cost. If its points were not recorded as they came (a virtual clock, an imported
    curve), they are its cost in proportion to its steps; None without a cost.
    """
    curves: dict[str, list[list[tuple[int, float | None, float]]]] = {}
    for level in comparison.levels:
        for run in level.runs:
            curve = curve_of.get(run.job.run_id, ())
            if curve:
                curves.setdefault(level.name, []).append(
                    [(step, _dollars_at(run, step, time, curve[-1][0]), loss) for step, time, loss in curve]
                )
    return curves


def _dollars_at(run: Observation, step: int, time: float, last: int) -> float | None:
    cost, seconds, began = run.job.bill.cost_usd, run.seconds, run.job.run.started
    if cost is None or not seconds:
        return None
    passed = time - began
    if run.job.origin == "measured" and passed >= 0:
        return min(cost * passed / seconds, cost)
    return cost * step / last if last else None
