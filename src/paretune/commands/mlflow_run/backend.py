"""The plugin that MLflow calls for `mlflow run URI --backend sagemaker`."""

import os
from collections.abc import Mapping
from typing import Any

import click
from mlflow.exceptions import ExecutionException
from mlflow.projects.backend.abstract_backend import AbstractBackend
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.errors import Interrupted, ParetuneError

NAME = "sagemaker"


class SageMakerBackend(AbstractBackend):
    """Runs any MLflow project as a SageMaker training job.

    MLflow waits for a plugin's run only from Python (`synchronous`); its command line does not wait. So that
    `mlflow run` ends as it does on a laptop, a run that the command line has started is waited for when MLflow has
    finished with it, unless the configuration says `"wait": false`.
    """

    def run(
        self,
        project_uri: str,
        entry_point: str,
        params: Mapping[str, str] | None,
        version: str | None,
        backend_config: Mapping[str, Any],
        tracking_uri: str,
        experiment_id: str,
    ) -> SubmittedRun:
        """Start a project's entry point and return at once; the arguments are those of `AbstractBackend`.

        Raises:
            ExecutionException: nothing was started; the message has all reasons.
            KeyboardInterrupt: the job was interrupted and has been stopped.
        """
        # Imported here because MLflow loads all plugins for every backend, and the launcher imports boto3.
        from paretune.commands.mlflow_run.project_job import read_request, start
        from paretune.commands.mlflow_run.submitted_run import follow

        try:
            request = read_request(project_uri, entry_point, params or {}, version, backend_config, os.environ)
            submitted = start(request, experiment_id)
        except Interrupted as error:
            raise KeyboardInterrupt(str(error)) from error
        except ParetuneError as error:
            raise ExecutionException(str(error)) from error
        context = _command_line()
        if context is not None and request.waits:
            context.call_on_close(lambda: follow(submitted))
        return submitted


def _command_line() -> click.Context | None:
    """The context of the command `mlflow run` with this backend; None if another program runs."""
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("backend") == NAME and "backend_config" in context.params:
        return context
    return None
