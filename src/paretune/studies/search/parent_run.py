"""The MLflow run of a study or a design, under which the runs of its trials are nested."""

from collections.abc import Mapping
from typing import Any

from paretune.ledger.study_ledger import StudyLedger
from paretune.tracking import RunStatus, Tracking, schema

_PAYS = ("budget", "user")


def without_payer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a job without those that say who pays: they may change while a study goes on."""
    return {name: value for name, value in job.items() if name not in _PAYS}


def open_parent_run(tracking: Tracking, ledger: StudyLedger, kind: str, name: str, described: str) -> str:
    """Id of the parent run: that of `mlflow run`, the one that another driver has opened, or a new one.

    `kind` is study or design; `described` must be equal for all drivers, see `StudyLedger.open`.
    """
    title = f"{kind} {name}"
    command_run = tracking.begin(title) if tracking.opened_run_id() else None  # `mlflow run` opens one per command
    run_id = ledger.open(command_run.run_id if command_run is not None else "", described)
    if not run_id:
        mark = {schema.STUDY_MARK: ledger.mark()}
        marked = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark[schema.STUDY_MARK]}'")
        made = tracking.run(marked[-1].run_id) if marked else tracking.create(title, mark)
        run_id = ledger.name_run(made.run_id)
        if run_id != made.run_id:  # another driver was faster
            made.set_tags({schema.KIND: f"{kind} driver", schema.STUDY_RUN: run_id})
            made.end(RunStatus.FINISHED)
    if command_run is not None and command_run.run_id != run_id:
        command_run.set_tags({schema.KIND: f"{kind} driver", schema.STUDY_RUN: run_id})
    return run_id
