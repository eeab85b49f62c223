"""The description of a command for the command line: its options, how they are read, and what is run.

Every command is a constant of a module that imports quickly. `paretune NAME --help` and the refusal of wrong input must
not wait for MLflow, boto3, pandas or torch, so these are imported in functions.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Generic, TypeVar

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, ParetuneError, TrackingUnavailable, collecting
from paretune.core.result import CommandOutput, Result
from paretune.core.secrets import markdown, without_secrets
from paretune.specification.declaration import Parameters
from paretune.specification.inputs import missing_files
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile

_LONGEST_NAME = 100  # characters of a run's name that gives a reason
Request = TypeVar("Request")
Options = TypeVar("Options", bound=Parameters)


@dataclass(frozen=True, kw_only=True)
class Command(Generic[Request]):
    """One command of `paretune`.

    `read` checks the texts of the options in several steps and makes a request from them. It raises BadInput with all
    faults of the first step that fails. `run` does what the request asks for. The options are the fields of `options`
    and, if the command `takes_jobs`, the parameters of a job.
    """

    read: Callable[[Mapping[str, str]], Request]
    run: Callable[[Request], CommandOutput | Result]
    options: type[Parameters] | None = None
    takes_jobs: bool = False
    excluded: tuple[str, ...] = ()  # fields of `options` and parameters of a job that are not options

    def models(self) -> dict[str, type[Parameters]]:
        """Return the pydantic model that declares each option, by the option's name; the command's own come first."""
        own, models = self.options, dict[str, type[Parameters]]()
        models |= {} if own is None else dict.fromkeys(own.model_fields, own)
        models |= {name: JobSpec for name in JobSpec.model_fields if self.takes_jobs and name not in models}
        return {name: model for name, model in models.items() if name not in self.excluded}


def names_of(*models: type[Parameters]) -> dict[str, bool]:
    """Return the names of the parameters of these models, each with whether it has parameters inside, as `lora.r`."""
    return {name: model.schema_at([name]).get("type") == "object" for model in models for name in model.model_fields}


def command_of(options: type[Options], run: Callable[[Options], CommandOutput | Result]) -> Command[Options]:
    """Return a command whose options are the fields of a model."""
    return Command(read=options.read, run=run, options=options)


def read_with_profile(read: Callable[[Mapping[str, Any]], Request], texts: Mapping[str, str]) -> Request:
    """Return the request that the options and the profile describe; the options override the profile.

    Raises BadInput with the faults of the profile, the faults that `read` reports, and a fault for each missing file.
    """
    faults, completed = list[str](), dict[str, Any](texts)
    with collecting(faults):
        completed = with_profile(texts, os.environ)
    with collecting(faults):
        request = read(completed)
        if not faults:
            return request
    raise BadInput([*faults, *missing_files(texts)])


def describe_opened_run(kind: str, answer: str) -> None:
    """Set the name and the note of the run that `mlflow run` has opened for this command.

    Do nothing if the command was typed by hand. `answer` becomes the note. It should begin with what matters most,
    because MLflow shows only the first four lines of a note.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    from paretune.tracking import schema
    from paretune.tracking.store import Tracking

    run = Tracking(dict(os.environ), SystemClock()).begin(kind)
    run.set_tags({schema.KIND: kind, schema.NOTE: markdown(answer.replace("\n", "\n\n"))})


def describe_refused_run(error: ParetuneError) -> None:
    """Say in name and note of the run that `mlflow run` has opened why the command was refused, if nothing else does.

    Do nothing if the command was typed by hand, or if MLflow cannot be used, which the message then says already.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    from paretune.tracking import schema
    from paretune.tracking.store import Tracking

    reason = without_secrets(str(error))
    with suppress(TrackingUnavailable):
        tracking = Tracking(dict(os.environ), SystemClock())
        if schema.NOTE in tracking.run(os.environ["MLFLOW_RUN_ID"]).tags():
            return
        run = tracking.begin(shorten(f"refused: {reason}", _LONGEST_NAME, placeholder=" ..."))
        run.set_tags({schema.FAILURE_REASON: reason, schema.NOTE: markdown(f"Refused: {reason}")})
