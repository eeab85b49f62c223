"""Effect of larger clusters, or of any other factor, on seconds, dollars, F1 and throughput."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from paretune.commands.report.factors import COMPUTING, DEVICES, OF_THE_CLUSTER, SHAPE
from paretune.commands.report.observations import Kind, Observation, grouped, sorted_levels, varying
from paretune.commands.report.spread import Spread
from paretune.core.errors import BadInput
from paretune.presentation.numbers import dollars, duration, with_error
from paretune.presentation.table import Cell, Column, Table
from paretune.specification import metrics

_SAME_WORK = 0.01  # largest relative difference of rows x epochs that rounded steps make


@dataclass(frozen=True, kw_only=True)
class Level:
    """The runs of one shape, or of one value of another factor."""

    name: str  # the shape, such as 2 x ml.p3.16xlarge, or the value
    runs: tuple[Observation, ...]

    @property
    def devices(self) -> int | None:
        """Accelerators of the cluster, or None if they are unknown or differ between the runs."""
        counts = {run.devices for run in self.runs}
        return counts.pop() if len(counts) == 1 else None

    def spread(self, quantity: str) -> Spread | None:
        """Return the values of a metric over the runs, or None if no run recorded it."""
        return Spread.of(run.value(quantity) for run in self.runs)

    def mean(self, quantity: str) -> float | None:
        """Return the mean of a metric over the runs, or None if no run recorded it."""
        spread = self.spread(quantity)
        return None if spread is None else spread.mean

    def by_size(self, quantity: str) -> dict[float | None, list[float]]:
        """Return the values of a metric by the size of the data of their runs."""
        values: dict[float | None, list[float]] = {}
        for run in self.runs:
            if (value := run.value(quantity)) is not None:
                values.setdefault(run.data_size, []).append(value)
        return values

    @property
    def marks(self) -> list[str]:
        """Settings that seconds depend on and in which its runs differ, in words."""
        return [
            f"{COMPUTING[name]} differs: {', '.join(values)}" for name, values in varying(self.runs, COMPUTING).items()
        ]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The runs of one kind by the levels of a factor: shapes by their devices, else levels by size or name."""

    kind: Kind
    factor: str
    levels: tuple[Level, ...]

    @property
    def runs(self) -> list[Observation]:
        """All runs of its levels."""
        return [run for level in self.levels for run in level.runs]

    @cached_property
    def confounded(self) -> dict[str, list[str]]:
        """Settings that differ between levels but not within them, so that no difference is due to the factor alone."""
        names = {name: word for name, word in COMPUTING.items() if name != self.factor}
        within = {name for level in self.levels for name in varying(level.runs, names)}
        return {name: values for name, values in varying(self.runs, names).items() if name not in within}

    @property
    def is_equal_work(self) -> bool:
        """Whether all runs train on equally many rows times epochs, as far as that is known."""
        work = [run.samples for run in self.runs if run.samples is not None]
        return not work or max(work) <= (1 + _SAME_WORK) * min(work)

    def saved_s(self, number: int) -> float | None:
        """Return the mean seconds that a level saves against the level before it."""
        return self._step(number, metrics.BILLABLE_SECONDS, -1)

    def extra_usd(self, number: int) -> float | None:
        """Return the mean dollars that a level costs more than the level before it."""
        return self._step(number, metrics.COST_USD, 1)

    def speed_up(self, number: int) -> float | None:
        """Return the mean seconds of the first level divided by those of this level."""
        first, seconds = (level.mean(metrics.BILLABLE_SECONDS) for level in (self.levels[0], self.levels[number]))
        return None if first is None or seconds is None else first / seconds

    def efficiency(self, number: int) -> float | None:
        """Return speed-up divided by the ratio of devices: 1 is perfect; None if devices are unknown or all equal."""
        counts, speed_up = [level.devices for level in self.levels], self.speed_up(number)
        first, devices = counts[0], counts[number]
        if first is None or devices is None or speed_up is None or len(set(counts)) == 1:
            return None
        return speed_up * first / devices

    def _step(self, number: int, quantity: str, sign: int) -> float | None:
        if number == 0:
            return None
        before, value = (self.levels[index].mean(quantity) for index in (number - 1, number))
        return None if before is None or value is None else sign * (value - before)

    def table(self) -> Table:
        """Return a row per level."""
        word = "shape" if self.factor == SHAPE else self.factor
        steps = range(len(self.levels))
        columns: list[Column[int]] = [
            Column(word, lambda step: self.levels[step].name),
            Column("devices", lambda step: self.levels[step].devices),
            Column("n", lambda step: len(self.levels[step].runs)),
            Column("time", lambda step: seconds_cell(self.levels[step].spread(metrics.BILLABLE_SECONDS))),
            Column("cost (USD)", lambda step: dollars_cell(self.levels[step].spread(metrics.COST_USD))),
            Column("F1", lambda step: number_cell(self.levels[step].spread(metrics.F1), 4)),
            Column("samples/s", lambda step: number_cell(self.levels[step].spread(metrics.THROUGHPUT_SAMPLES), 1)),
            Column("time saved, one step up", self.saved_s, duration),
            Column("cost, one step up (USD)", self.extra_usd, signed_dollars),
            Column("speed-up", self.speed_up, ".2f"),
            Column("efficiency", self.efficiency, ".0%"),
            Column("estimated before", lambda step: self.levels[step].mean(metrics.ESTIMATED_SECONDS), duration),
            Column("remark", lambda step: "; ".join(self.levels[step].marks)),
        ]
        return Table.of(columns, steps).without_empty_columns()

    def rows(self) -> list[dict[str, object]]:
        """Return the table as numbers: seconds, USD, shares."""
        rows = []
        for number, level in enumerate(self.levels):
            row: dict[str, object] = {
                **{name: getattr(self.kind, name) for name in ("origin", "is_notional", "model", "dataset")},
                "factor": self.factor,
                "level": level.name,
                "devices": level.devices,
                "n": len(level.runs),
            }
            for quantity in (*_QUANTITIES, metrics.THROUGHPUT_SAMPLES, metrics.ESTIMATED_SECONDS):
                spread = level.spread(quantity)
                row[f"{quantity}_mean"] = None if spread is None else spread.mean
                row[f"{quantity}_deviation"] = None if spread is None else spread.deviation
            row |= {"saved_seconds": self.saved_s(number), "dearer_usd": self.extra_usd(number)}
            row |= {"speed_up": self.speed_up(number), "efficiency": self.efficiency(number)}
            rows.append(row | {"remark": "; ".join(level.marks)})
        return rows


_QUANTITIES = (metrics.BILLABLE_SECONDS, metrics.COST_USD, metrics.F1)


def scalings(runs: Iterable[Observation], factor: str = SHAPE) -> tuple[list[Scaling], list[str]]:
    """Return the runs of kinds with two levels of the factor, and a sentence for the others; raises BadInput."""
    comparable, left_out = [], []
    kinds = _of_equal_work(apart_by(runs, ())) if factor in OF_THE_CLUSTER else apart_by(runs, (SHAPE,))
    for kind, group in sorted(kinds.items()):
        levels = _levels(group, factor)
        if len(levels) > 1:
            comparable.append(Scaling(kind=kind, factor=factor, levels=tuple(levels)))
        else:
            left_out.append(
                f"{kind}: {len(group)} run{'s' * (len(group) > 1)}, all with {factor} {levels[0].name or 'unknown'}"
            )
    if not comparable:
        groups = "; ".join(left_out) or "no completed run matches"
        raise BadInput(
            [
                f"view=scaling compares at least two values of {factor}, got {groups}: "
                "choose more runs, or another factor"
            ]
        )
    return comparable, left_out


def _levels(group: Sequence[Observation], factor: str) -> list[Level]:
    by_name = grouped(group, lambda run: run.setting(factor))
    levels = [Level(name=name, runs=tuple(by_name[name])) for name in sorted_levels(map(str, by_name))]
    if factor in (SHAPE, DEVICES, "instance_type"):
        levels.sort(key=lambda level: (level.devices or 0, level.name))
    return levels


def apart_by(runs: Iterable[Observation], names: Sequence[str]) -> dict[Kind, list[Observation]]:
    """Return the runs by their kind and by their values of these settings."""
    groups: dict[Kind, list[Observation]] = {}
    for run in runs:
        values = ", ".join(run.setting(name) for name in names)
        groups.setdefault(replace(run.kind, apart=values), []).append(run)
    return groups


def _of_equal_work(kinds: Mapping[Kind, Sequence[Observation]]) -> dict[Kind, list[Observation]]:
    """Return the runs by their kind and by their rows x epochs; those of unknown work are of the only known one."""
    groups: dict[Kind, list[Observation]] = {}
    for kind, runs in kinds.items():
        parts: list[list[Observation]] = []
        for run in sorted((run for run in runs if run.samples), key=lambda run: run.samples or 0.0):
            if not parts or (run.samples or 0.0) > (1 + _SAME_WORK) * (parts[-1][0].samples or 0.0):
                parts.append([])
            parts[-1].append(run)
        if len(parts) < 2:
            groups[kind] = list(runs)
            continue
        for part in parts:
            groups[replace(kind, apart=f"{part[0].samples:,.0f} rows x epochs")] = part
        if unknown := [run for run in runs if not run.samples]:
            groups[replace(kind, apart="an unknown number of rows x epochs")] = unknown
    return groups


def seconds_cell(spread: Spread | None) -> Cell | None:
    """Return mean and deviation of a duration, such as 18 h 17 m ± 6 m 30 s."""
    if spread is None:
        return None
    margin = "" if spread.deviation is None else f" ± {duration(spread.deviation)}"
    return Cell(f"{duration(spread.mean)}{margin}", spread.mean)


def dollars_cell(spread: Spread | None) -> Cell | None:
    """Return mean and deviation in dollars, without the unit."""
    if spread is None:
        return None
    if spread.mean < 1:
        return Cell(with_error(spread.mean, spread.deviation), spread.mean)
    return number_cell(spread, 2)


def number_cell(spread: Spread | None, decimals: int) -> Cell | None:
    """Return mean and deviation with this number of decimals."""
    if spread is None:
        return None
    margin = "" if spread.deviation is None else f" ± {spread.deviation:,.{decimals}f}"
    return Cell(f"{spread.mean:,.{decimals}f}{margin}", spread.mean)


def signed_dollars(value: float) -> str:
    """Return a difference in dollars, such as + 20.57, - 0.0123."""
    return f"{'-' if value < 0 else '+'} {dollars(abs(value))}"
