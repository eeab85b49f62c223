"""The plugin that MLflow calls for `mlflow run URI --backend sagemaker`."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from mlflow import MlflowClient
from mlflow.exceptions import ExecutionException
from mlflow.projects.backend.abstract_backend import AbstractBackend

from paretune.core.errors import ParetuneError
from paretune.mlflow_backend.submitted import SageMakerSubmittedRun, tell

NAME = "sagemaker"


class SageMakerBackend(AbstractBackend):
    """Runs any MLflow project as a SageMaker training job.

    MLflow waits for a plugin's run only when it is asked to from Python (`synchronous`); its command line does not. So
    that `mlflow run` ends as it does on a laptop, a run that the command line has started is waited for when MLflow
    has finished with it, unless the configuration says `"wait": false`.
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
    ) -> SageMakerSubmittedRun:
        """Start a project's entry point and return at once; the arguments are those of `AbstractBackend`.

        Raises:
            ExecutionException: nothing was started; the message says all that is in the way.
        """
        from paretune.mlflow_backend.launching import Asked, launch  # brings the launcher, which no other backend needs

        asked = Asked(
            uri=project_uri,
            entry_point=entry_point,
            parameters=params or {},
            version=version,
            configuration=backend_config,
            tracking_uri=tracking_uri,
            experiment_id=experiment_id,
        )
        with tempfile.TemporaryDirectory(prefix="paretune-", dir=backend_config.get("STORAGE_DIR")) as downloads:
            try:
                submitted, configuration = launch(asked, MlflowClient(), dict(os.environ), Path(downloads))
            except ParetuneError as error:
                raise ExecutionException(str(error)) from error
        context = _command_line()
        if context is not None and configuration.wait:
            context.call_on_close(lambda: follow(submitted))
        return submitted


def follow(submitted: SageMakerSubmittedRun) -> None:
    """Wait for a run that the command line has started; ends the process with 1 when it does not succeed."""
    try:
        with _sigterm_as_ctrl_c():
            succeeded = submitted.wait()
    except KeyboardInterrupt:
        tell(f"interrupted: stopping {submitted.job.name}")
        submitted.cancel()
        raise
    except ExecutionException as error:
        tell(str(error))
        sys.exit(1)
    if not succeeded:
        tell(f"run {submitted.run_id} did not succeed")
        sys.exit(1)
    tell(f"run {submitted.run_id} succeeded")


def _command_line() -> click.Context | None:
    """The command `mlflow run` when it is what runs here."""
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("backend") == NAME and "backend_config" in context.params:
        return context
    return None


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A job that nobody watches any more should not be paid for, whichever signal ended the watching."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
