"""The description of a command for the command line: its options, its reader and its runner.

Every command is a constant of a module that imports quickly: `paretune NAME --help` and refused input must not wait for
MLflow, boto3, pandas or torch, so these are imported in functions.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.clock import SystemClock
from paretune.core.errors import collecting, refuse
from paretune.core.result import CommandOutput, Result
from paretune.core.untrusted import markdown
from paretune.specification.declaration import Parameters
from paretune.specification.inputs import missing_files
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of `paretune`.

    `read` makes the request from the typed texts and raises BadInput with all its faults; `run` does the work. The
    options are the fields of `options`, and also those of a job if the command `takes_jobs`.
    """

    read: Callable[[Mapping[str, str]], Any]
    run: Callable[[Any], CommandOutput | Result]
    options: type[Parameters] | None = None
    takes_jobs: bool = False
    excluded: tuple[str, ...] = ()  # fields of `options` and parameters of a job that cannot be typed

    def models(self) -> dict[str, Any]:
        """Name of each option to the model that declares it, the command's own first."""
        options = dict.fromkeys(self.options.model_fields if self.options else (), self.options)
        job = dict.fromkeys(JobSpec.model_fields if self.takes_jobs else (), JobSpec)
        return {name: model for name, model in {**options, **job, **options}.items() if name not in self.excluded}


def command_of(options: type[Parameters], run: Callable[[Any], CommandOutput | Result]) -> Command:
    """Create a command whose options are the fields of a model."""
    return Command(read=options.read, run=run, options=options)


def read_with_profile(read: Callable[[Mapping[str, Any]], Any], texts: Mapping[str, str]) -> Any:
    """Make a request from the typed texts, completed by the profile; BadInput with the faults of files, too."""
    faults, completed, request = list[str](), dict[str, Any](texts), None
    with collecting(faults):
        completed = with_profile(texts, os.environ)
    with collecting(faults):
        request = read(completed)
    refuse([*faults, *missing_files(texts)] if faults else [])
    return request


def describe_opened_run(kind: str, answer: str) -> None:
    """Give the run that `mlflow run` has opened for this command a name, and a note that begins with the answer.

    Does nothing for a command typed by hand. MLflow shows the first four lines of a note.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    from paretune.tracking import schema
    from paretune.tracking.store import Tracking

    run = Tracking(dict(os.environ), SystemClock()).begin(kind)
    run.set_tags({schema.KIND: kind, schema.NOTE: markdown(answer.replace("\n", "\n\n"))})
