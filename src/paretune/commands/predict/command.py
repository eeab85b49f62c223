"""The command `predict`: a trained model on the rows of a file."""

from paretune.commands.command import Command, help_lines, reader_of, switches_of
from paretune.commands.predict.request import PredictRequest
from paretune.core.result import CommandOutput


def _run(request: PredictRequest) -> CommandOutput:
    from paretune.commands.predict.run import run_predict  # MLflow takes a second to import

    return run_predict(request)


COMMAND = Command(
    read=reader_of(PredictRequest, "predict"),
    run=_run,
    parameters=help_lines(PredictRequest),
    switches=switches_of(PredictRequest),
)
