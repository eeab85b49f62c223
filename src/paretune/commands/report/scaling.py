"""What larger clusters, or any other factor of runs, do to seconds, dollars, F1 and throughput."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from paretune.commands.report.factors import COMPUTING, DEVICES, OF_THE_CLUSTER, SHAPE
from paretune.commands.report.observations import Kind, Observation, grouped, sorted_levels, varying
from paretune.commands.report.spread import Spread
from paretune.core.errors import BadInput
from paretune.presentation.numbers import dollars, duration, with_error
from paretune.presentation.table import Cell, Column, Table
from paretune.specification import metrics

_SAME_WORK = 0.01  # of rows x epochs: rounded steps make no larger a difference


@dataclass(frozen=True, kw_only=True)
class Level:
    """The runs of one shape, or of one value of another factor.

    Attributes:
        name: the shape, such as 2 x ml.p3.16xlarge, or the value.
    """

    name: str
    found: tuple[Observation, ...]

    @property
    def devices(self) -> int | None:
        """Accelerators of the cluster; None where they are not known, or the runs differ in them."""
        counts = {one.devices for one in self.found}
        return counts.pop() if len(counts) == 1 else None

    def spread(self, quantity: str) -> Spread | None:
        """Of a metric over its runs; None where no run tells it."""
        return Spread.of(one.value(quantity) for one in self.found)

    def mean(self, quantity: str) -> float | None:
        """Of a metric over its runs; None where no run tells it."""
        spread = self.spread(quantity)
        return None if spread is None else spread.mean

    @property
    def marks(self) -> list[str]:
        """What its runs differ in although seconds depend on it, in words."""
        return [
            f"{COMPUTING[name]} differs: {', '.join(values)}" for name, values in varying(self.found, COMPUTING).items()
        ]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The runs of one kind by the levels of a factor: shapes by their devices, else levels by size or name."""

    kind: Kind
    factor: str
    levels: tuple[Level, ...]

    @property
    def found(self) -> list[Observation]:
        """All its runs."""
        return [one for level in self.levels for one in level.found]

    @cached_property
    def confounded(self) -> dict[str, list[str]]:
        """What is the same within each level and not in all of them, so that no difference is the factor's alone."""
        names = {name: word for name, word in COMPUTING.items() if name != self.factor}
        within = {name for level in self.levels for name in varying(level.found, names)}
        return {name: values for name, values in varying(self.found, names).items() if name not in within}

    @property
    def is_equal_work(self) -> bool:
        """Whether all runs train on as many rows times epochs, as far as that is known."""
        work = [one.samples for one in self.found if one.samples is not None]
        return not work or max(work) <= (1 + _SAME_WORK) * min(work)

    def saved_s(self, place: int) -> float | None:
        """Mean seconds that the level at `place` takes less than the one before it."""
        return self._step(place, metrics.BILLABLE_SECONDS, -1)

    def dearer_usd(self, place: int) -> float | None:
        """Mean dollars that the level at `place` costs more than the one before it."""
        return self._step(place, metrics.COST_USD, 1)

    def speed_up(self, place: int) -> float | None:
        """Mean seconds of the first level over those of the level at `place`."""
        first, own = (level.mean(metrics.BILLABLE_SECONDS) for level in (self.levels[0], self.levels[place]))
        return None if first is None or own is None else first / own

    def efficiency(self, place: int) -> float | None:
        """Speed-up over the ratio of devices: 1 is a perfect scaling; None where devices are not known or all equal."""
        counts, speed_up = [level.devices for level in self.levels], self.speed_up(place)
        first, own = counts[0], counts[place]
        if first is None or own is None or speed_up is None or len(set(counts)) == 1:
            return None
        return speed_up * first / own

    def _step(self, place: int, quantity: str, sign: int) -> float | None:
        if place == 0:
            return None
        before, own = (self.levels[index].mean(quantity) for index in (place - 1, place))
        return None if before is None or own is None else sign * (own - before)

    def table(self) -> Table:
        """A row per level."""
        word = "shape" if self.factor == SHAPE else self.factor
        steps = range(len(self.levels))
        columns: list[Column[int]] = [
            Column(word, lambda step: self.levels[step].name),
            Column("devices", lambda step: self.levels[step].devices),
            Column("n", lambda step: len(self.levels[step].found)),
            Column("time", lambda step: seconds_cell(self.levels[step].spread(metrics.BILLABLE_SECONDS))),
            Column("cost (USD)", lambda step: dollars_cell(self.levels[step].spread(metrics.COST_USD))),
            Column("F1", lambda step: number_cell(self.levels[step].spread(metrics.F1), 4)),
            Column("samples/s", lambda step: number_cell(self.levels[step].spread(metrics.THROUGHPUT_SAMPLES), 1)),
            Column("time saved, one step up", self.saved_s, duration),
            Column("cost, one step up (USD)", self.dearer_usd, signed_dollars),
            Column("speed-up", self.speed_up, ".2f"),
            Column("efficiency", self.efficiency, ".0%"),
            Column("estimated before", lambda step: self.levels[step].mean(metrics.ESTIMATED_SECONDS), duration),
            Column("remark", lambda step: "; ".join(self.levels[step].marks)),
        ]
        return Table.of(columns, steps).without_empty_columns()

    def rows(self) -> list[dict[str, object]]:
        """Everything of the table as numbers: seconds, USD, shares."""
        found = []
        for place, level in enumerate(self.levels):
            row: dict[str, object] = {
                **{name: getattr(self.kind, name) for name in ("origin", "is_notional", "model", "dataset")},
                "factor": self.factor,
                "level": level.name,
                "devices": level.devices,
                "n": len(level.found),
            }
            for quantity in (*_QUANTITIES, metrics.THROUGHPUT_SAMPLES, metrics.ESTIMATED_SECONDS):
                spread = level.spread(quantity)
                row[f"{quantity}_mean"] = None if spread is None else spread.mean
                row[f"{quantity}_deviation"] = None if spread is None else spread.deviation
            row |= {"saved_seconds": self.saved_s(place), "dearer_usd": self.dearer_usd(place)}
            row |= {"speed_up": self.speed_up(place), "efficiency": self.efficiency(place)}
            found.append(row | {"remark": "; ".join(level.marks)})
        return found


_QUANTITIES = (metrics.BILLABLE_SECONDS, metrics.COST_USD, metrics.F1)


def scalings(found: Iterable[Observation], factor: str = SHAPE) -> tuple[list[Scaling], list[str]]:
    """The runs of each kind that has at least two levels of the factor, and a sentence for each other kind.

    Raises:
        BadInput: no kind has two levels.
    """
    made, left_out = [], []
    for kind, group in sorted(apart_by(found, () if factor in OF_THE_CLUSTER else (SHAPE,)).items()):
        levels = _levels(group, factor)
        if len(levels) > 1:
            made.append(Scaling(kind=kind, factor=factor, levels=tuple(levels)))
        else:
            left_out.append(
                f"{kind}: {len(group)} run{'s' * (len(group) > 1)}, all with {factor} {levels[0].name or 'unknown'}"
            )
    if not made:
        there = "; ".join(left_out) or "no completed run matches"
        raise BadInput(
            [f"view=scaling compares at least two values of {factor}, got {there}: choose more runs, or another factor"]
        )
    return made, left_out


def _levels(group: Sequence[Observation], factor: str) -> list[Level]:
    by_name = grouped(group, lambda one: one.setting(factor))
    levels = [Level(name=name, found=tuple(by_name[name])) for name in sorted_levels(map(str, by_name))]
    if factor in (SHAPE, DEVICES, "instance_type"):
        levels.sort(key=lambda level: (level.devices or 0, level.name))
    return levels


def apart_by(found: Iterable[Observation], names: Sequence[str]) -> dict[Kind, list[Observation]]:
    """The observations by their kind and, beside it, by their values of these settings."""
    groups: dict[Kind, list[Observation]] = {}
    for one in found:
        said = ", ".join(one.setting(name) for name in names)
        groups.setdefault(replace(one.kind, apart=said), []).append(one)
    return groups


def seconds_cell(spread: Spread | None) -> Cell | None:
    """Mean and deviation of a duration: 18 h 17 m ± 6 m 30 s."""
    if spread is None:
        return None
    margin = "" if spread.deviation is None else f" ± {duration(spread.deviation)}"
    return Cell(f"{duration(spread.mean)}{margin}", spread.mean)


def dollars_cell(spread: Spread | None) -> Cell | None:
    """Mean and deviation in dollars, without the unit."""
    if spread is None:
        return None
    if spread.mean < 1:
        return Cell(with_error(spread.mean, spread.deviation), spread.mean)
    return number_cell(spread, 2)


def number_cell(spread: Spread | None, decimals: int) -> Cell | None:
    """Mean and deviation with so many decimals."""
    if spread is None:
        return None
    margin = "" if spread.deviation is None else f" ± {spread.deviation:,.{decimals}f}"
    return Cell(f"{spread.mean:,.{decimals}f}{margin}", spread.mean)


def signed_dollars(value: float) -> str:
    """A difference in dollars: + 20.57, - 0.0123."""
    return f"{'-' if value < 0 else '+'} {dollars(abs(value))}"
