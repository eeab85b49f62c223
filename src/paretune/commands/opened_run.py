"""The run that `mlflow run` opens for every command, also for those that record nothing when typed by hand."""

import os
from collections.abc import Mapping

from paretune.core.clock import SystemClock
from paretune.core.untrusted import markdown


def describe_opened_run(kind: str, answer: str, values: Mapping[str, float] | None = None) -> None:
    """Give the run that `mlflow run` has opened for this command a name, a note and metrics.

    Does nothing for a command typed by hand. The note begins with the answer, because MLflow shows its first four
    lines.

    Args:
        kind: the command, which is the name of the run and its tag `paretune.kind`.
        answer: the text of the note; a line is a paragraph.
        values: metrics by name.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    run = Tracking(dict(os.environ), SystemClock()).begin(kind)
    run.set_tags({schema.KIND: kind, schema.NOTE: markdown(answer.replace("\n", "\n\n"))})
    if values:
        run.log_metrics(values)
