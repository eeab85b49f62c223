"""The plan of a design: its rows in the order of their runs, their jobs, and what they can show."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from paretune.commands.design.file import DesignFile, Point, flat, labels
from paretune.commands.design.model import MOST_CORRELATED, POWER, SIGNIFICANCE, DesignModel, Detectable, are_correlated
from paretune.commands.design.points import centre_points, choose
from paretune.commands.design.rows import RowJob
from paretune.core.errors import BadInput
from paretune.presentation.table import Column, Table
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job of a design; `run` counts from 1 in the order of launch. A repeated row has another seed."""

    run: int
    point: Point
    job: RowJob

    @property
    def spec(self) -> JobSpec:
        """Its job."""
        return self.job.spec

    def factors(self) -> dict[str, str]:
        """Parameter to value, for the parameters that vary in the design."""
        return {name: spell(value) for name, value in flat(self.point).items()}


@dataclass(frozen=True, kw_only=True)
class DesignPlan:
    """The rows of a design; `points` leaves out centre points and replicates, which the model does not cover."""

    file: DesignFile
    rows: Sequence[Row]
    points: Sequence[Point]
    model: DesignModel

    @classmethod
    def of(cls, file: DesignFile) -> "DesignPlan":
        """The plan of a design, a pure function of its file.

        Raises:
            BadInput: the formula cannot be read, there are too few rows for it, or a centre point makes no job.
        """
        model = DesignModel(file)
        points = choose(file, model)
        if not points:
            raise BadInput([f"design {file.design} has no row that exclude leaves: take a rule out, or design: full"])
        order = [*points, *centre_points(file)] * file.replicates
        if file.randomise:
            random.Random(file.seed).shuffle(order)
        repeats = Counter[str]()
        rows = []
        for run, point in enumerate(order, start=1):
            job = file.job_at(point)
            identity = job.spec.spec_hash()
            spec = job.spec.replace(seed=job.spec.seed + repeats[identity]) if repeats[identity] else job.spec
            rows.append(
                Row(run=run, point=point, job=RowJob(spec=spec, steps=job.steps, requested_steps=job.requested_steps))
            )
            repeats[identity] += 1
        return cls(file=file, rows=rows, points=points * file.replicates, model=model)

    @cached_property
    def d_efficiency(self) -> float:
        """D-efficiency of its model, 0 to 1, with sum contrasts."""
        return self.model.d_efficiency(self.points)

    @cached_property
    def between_factors(self) -> Mapping[tuple[str, str], float]:
        """Correlation of each pair of factors."""
        return self.model.between_factors(self.points)

    @cached_property
    def correlations(self) -> tuple[list[str], np.ndarray]:
        """Columns of the main effects, and their correlations."""
        return self.model.correlations(self.points)

    @cached_property
    def detectable(self) -> list[Detectable]:
        """The detectable differences of each factor."""
        return [self.model.detectable(self.points, factor) for factor in self.file.factors]

    def warnings(self) -> list[str]:
        """Warnings to read before paying, a sentence each."""
        warnings = [
            f"{first} and {second} are correlated (r = {r:.2f}, above {MOST_CORRELATED:g} in size): their effects are "
            "hard to tell apart; raise runs, or take other levels"
            for (first, second), r in self.between_factors.items()
            if are_correlated(r)
        ]
        if not self.d_efficiency:
            warnings.append(
                "the effects of the model cannot all be estimated from these rows: raise runs, or take levels out"
            )
        elif any(item.seconds is None for item in self.detectable):
            warnings.append("no rows are left to measure noise, so no effect is significant: raise runs, or replicates")
        return warnings

    def findings(self) -> list[str]:
        """Correlations, D-efficiency and power, a line each."""
        lines = [
            f"D-efficiency {self.d_efficiency:.2f} ({self.model.terms} terms, sum contrasts), {len(self.rows)} runs"
        ]
        lines += [f"r of {first} and {second}: {r:.2f}" for (first, second), r in self.between_factors.items()]
        for item in self.detectable:
            if item.seconds is not None and item.f1 is not None:
                quality = metrics.TASKS[self.rows[0].spec.task].quality
                # The noise is that of F1 and of the loss; perplexity is exp(loss).
                parts = {
                    metrics.F1: f" and {item.f1:.4f} of F1",
                    metrics.PERPLEXITY: f" and {item.f1:.1%} of perplexity",
                }
                text = f"{item.factor}: differences from {item.seconds:.1%} of the seconds{parts.get(quality, '')}"
                lines.append(f"{text} are found with probability {POWER:.0%} (level {SIGNIFICANCE:.0%})")
        return lines

    def table(self, columns: Sequence[Column[Row]]) -> str:
        """The rows for a terminal, with further columns beside them."""
        names = {factor: labels(levels) for factor, levels in self.file.factors.items()}
        first: list[Column[Row]] = [
            Column("run", lambda row: row.run),
            *(Column(factor, partial(_label, self.file, factor, texts)) for factor, texts in names.items()),
            Column("epochs", lambda row: row.spec.num_train_epochs, "g"),
            Column("steps", lambda row: row.job.steps, ","),
            Column("deviation", lambda row: row.job.deviation, "+.2%"),
        ]
        return Table.of([*first, *columns], self.rows).text()


def _label(file: DesignFile, factor: str, names: Sequence[str], row: Row) -> str:
    levels = list(file.factors[factor])
    level = row.point[factor]
    return names[levels.index(level)] if level in levels else ", ".join(map(spell, level.values()))
