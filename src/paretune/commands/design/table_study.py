"""The table of a design as a study: its points are the rows, tried in their order, none of them twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.commands.design.file import DesignFile
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.definition.space import Choices

ROW = "run"
"""The one parameter of the points."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TableStudy(StudyFile):
    """A study of the rows of a design; `jobs` are theirs. A grid, so that no sampler and no stopping rule has a say."""

    jobs: Sequence[JobSpec]

    @classmethod
    def of(cls, file: DesignFile, jobs: Sequence[JobSpec]) -> "TableStudy":
        """The study that runs these jobs.

        Its objectives are all that its task measures, and the file's own responses: they are what is kept of a row.
        None of its jobs is stopped early, for that is done where F1 and what follows from the cluster are the only
        objectives.
        """
        task = jobs[0].task
        measured = {name: item.direction for name, item in OBJECTIVES.items() if item.task in (None, task)}
        own = {name: "maximize" for name in file.own_responses if name not in OBJECTIVES}
        return cls(
            name=file.name,
            search={ROW: Choices(values=tuple(range(1, len(jobs) + 1)))},
            objectives=measured | own,
            sampler="grid",
            budget_usd=file.budget_usd,
            n_parallel=file.n_parallel,
            storage=file.storage,
            seed=file.seed,
            jobs=jobs,
        )

    def __post_init__(self) -> None:
        """Nothing: the design was checked."""

    @property
    def trials_per_job(self) -> int:
        """Rows that one job trains."""
        return max(job.trials_per_job for job in self.jobs)

    @property
    def budget(self) -> str | None:
        """That of its rows, which all have the same."""
        return self.jobs[0].budget

    @property
    def keeps_order(self) -> bool:
        """The order of the rows is part of the design."""
        return True

    def spec_at(self, point: Mapping[str, Any]) -> JobSpec:
        """The job of a row."""
        return self.jobs[int(point[ROW]) - 1]
