"""The program of a job that runs a training of the user's own: a script, or the command of a project."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.specification.parameters import TRAINING, parameter

PROJECT = "MLproject"
"""`entry_script` of a job that runs the command of an MLflow project."""
OWN_TRAINING = ("entry_script", "project")
"""Parameters that replace paretune's training by one of the user's own."""
ONLY_PROJECT = ("entry_point", "project_parameters")
"""Parameters that only a project accepts."""
_ONE_TRAINING = "a study compares settings of one training"


@dataclass(frozen=True, kw_only=True)
class Program:
    """Section of a job: the user's own training, if any."""

    entry_script: str | None = parameter(
        None,
        "your own training script, run instead of paretune's training",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
        group="your own script, probes and dry runs",
    )
    project: str | None = parameter(
        None,
        "MLflow project or folder with scripts, run instead of paretune's training: folder or git URI",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
    )
    entry_point: str = parameter(
        "main",
        "project: its entry point, or one of its scripts such as train.py or run.sh",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
    )
    project_parameters: Mapping[str, Any] = parameter(
        {}, "project: JSON object with the parameters of the entry point", affects=TRAINING, example='{"alpha": 0.1}'
    )
    size: str | None = parameter(
        None,
        "project, entry_script: comma-separated parameters that its run time grows with, such as max_rows",
        affects={"launcher"},
        not_searched="it says how seconds are estimated",
    )

    @property
    def runs_project(self) -> bool:
        """Whether the job runs the command of an MLflow project instead of paretune's training."""
        return self.project is not None or self.entry_script == PROJECT

    @property
    def runs_own_training(self) -> bool:
        """Whether the job runs a script or project of the user's own, of which paretune knows nothing beforehand."""
        return self.entry_script is not None or self.project is not None


def program_faults(section: Program) -> list[str]:
    """Parameters of a project without one, and a size of paretune's own training."""
    if section.project is not None:
        return []
    defaults = Program()
    faults = [
        f"{name} goes with project: give the folder or git URI of one, or leave it out"
        for name in ONLY_PROJECT
        if getattr(section, name) != getattr(defaults, name)
    ]
    if section.size is not None and not section.runs_own_training:
        faults.append("size goes with project or entry_script: paretune knows its own training; leave it out")
    return faults
