"""The table of a design: its rows in the order they are run, their jobs, and what they can tell."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paretune.commands.design.file import DesignFile, Point, flat, labels
from paretune.commands.design.model import MOST_CORRELATED, POWER, SIGNIFICANCE, DesignModel, Detectable, are_correlated
from paretune.commands.design.points import centre_points, choose
from paretune.commands.design.rows import RowJob
from paretune.core.errors import BadInput
from paretune.core.text_table import text_table
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job of a design; `run` from 1, in the order they are begun. A repeated one has another seed."""

    run: int
    point: Point
    job: RowJob

    @property
    def spec(self) -> JobSpec:
        """Its job."""
        return self.job.spec

    def factors(self) -> dict[str, str]:
        """Parameter to value, of what varies in the design."""
        return {name: spell(value) for name, value in flat(self.point).items()}


@dataclass(frozen=True, kw_only=True)
class DesignPlan:
    """The rows of a design; `points` are theirs without centre points and replicates, for which the model holds."""

    file: DesignFile
    rows: Sequence[Row]
    points: Sequence[Point]
    model: DesignModel

    @classmethod
    def of(cls, file: DesignFile) -> "DesignPlan":
        """The plan of a design; the same file gives the same plan.

        Raises:
            BadInput: the formula cannot be read, there are too few rows for it, or a centre point makes no job.
        """
        model = DesignModel(file)
        points = choose(file, model)
        if not points:
            raise BadInput([f"design {file.design} has no row that exclude leaves: take a rule out, or design: full"])
        every = [*points, *centre_points(file)] * file.replicates
        if file.randomise:
            random.Random(file.seed).shuffle(every)
        seen = Counter[str]()
        rows = []
        for run, point in enumerate(every, start=1):
            job = file.job_at(point)
            identity = job.spec.spec_hash()
            spec = job.spec.replace(seed=job.spec.seed + seen[identity]) if seen[identity] else job.spec
            rows.append(
                Row(run=run, point=point, job=RowJob(spec=spec, steps=job.steps, requested_steps=job.requested_steps))
            )
            seen[identity] += 1
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
        """What it can tell about each factor."""
        return [self.model.detectable(self.points, factor) for factor in self.file.factors]

    def warnings(self) -> list[str]:
        """What is to be known before it is paid, a sentence each."""
        found = [
            f"{one} and {other} are correlated (r = {r:.2f}, above {MOST_CORRELATED:g} in size): their effects are "
            "hard to tell apart; raise runs, or take other levels"
            for (one, other), r in self.between_factors.items()
            if are_correlated(r)
        ]
        if not self.d_efficiency:
            found.append(
                "the effects of the model cannot all be estimated from these rows: raise runs, or take levels out"
            )
        elif any(item.seconds is None for item in self.detectable):
            found.append("no rows are left to measure noise, so nothing can be told from it: raise runs, or replicates")
        return found

    def findings(self) -> list[str]:
        """Correlations, D-efficiency and power, a line each."""
        lines = [
            f"D-efficiency {self.d_efficiency:.2f} ({self.model.terms} terms, sum contrasts), {len(self.rows)} runs"
        ]
        lines += [f"r of {one} and {other}: {r:.2f}" for (one, other), r in self.between_factors.items()]
        for item in self.detectable:
            if item.seconds is not None and item.f1 is not None:
                text = f"{item.factor}: differences from {item.seconds:.1%} of the seconds and {item.f1:.4f} of F1"
                lines.append(f"{text} are found with probability {POWER:.0%} (level {SIGNIFICANCE:.0%})")
        return lines

    def table(self, more: Mapping[str, Sequence[str]]) -> str:
        """The rows for a terminal, `more` beside them: heading to a cell for each row."""
        names = {name: labels(levels) for name, levels in self.file.factors.items()}
        head = ["run", *names, "epochs", "steps", "deviation", *more]
        cells = []
        for at, row in enumerate(self.rows):
            levels = [_label(self.file, name, row, names[name]) for name in names]
            off = row.job.deviation
            steps = "" if row.job.steps is None else f"{row.job.steps:,}"
            own = [str(row.run), *levels, f"{row.spec.num_train_epochs:g}", steps, "" if off is None else f"{off:+.2%}"]
            cells.append([*own, *(column[at] for column in more.values())])
        return text_table(head, cells, [name for name in head if name not in names])


def _label(file: DesignFile, factor: str, row: Row, names: Sequence[str]) -> str:
    levels = list(file.factors[factor])
    level = row.point[factor]
    return names[levels.index(level)] if level in levels else ", ".join(map(spell, level.values()))
