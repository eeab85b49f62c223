"""The table of a design as a study: its points are the rows, each tried once, in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.commands.design.file import DesignFile
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.definition.space import Choices

ROW = "run"  # the only parameter of the points: the number of the row


@dataclass(frozen=True, kw_only=True, repr=False)
class TableStudy(StudyFile):
    """A study of the rows of a design with their `jobs`. It is a grid: no sampler and no stopping rule applies."""

    jobs: Sequence[JobSpec]

    @classmethod
    def of(cls, file: DesignFile, jobs: Sequence[JobSpec]) -> "TableStudy":
        """The study that runs these jobs.

        Its objectives are all metrics of its task and the file's own responses, so that all are recorded.
        """
        task = jobs[0].task
        measured = {name: item.direction for name, item in OBJECTIVES.items() if item.task in (None, task)}
        responses = {name: "maximize" for name in file.own_responses if name not in OBJECTIVES}
        return cls(
            name=file.name,
            search={ROW: Choices(values=tuple(range(1, len(jobs) + 1)))},
            objectives=measured | responses,
            sampler="grid",
            budget_usd=file.budget_usd,
            n_parallel=file.n_parallel,
            storage=file.storage,
            seed=file.seed,
            jobs=jobs,
        )

    def __post_init__(self) -> None:
        """Check nothing: the design was checked."""

    @property
    def budget(self) -> str | None:
        """The shared budget file of its rows, which all have the same one."""
        return self.jobs[0].budget

    @property
    def keeps_order(self) -> bool:
        """The order of the rows is part of the design."""
        return True

    def spec_at(self, point: Mapping[str, Any]) -> JobSpec:
        """The job of a row."""
        return self.jobs[int(point[ROW]) - 1]
