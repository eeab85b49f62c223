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
    """Its id: that of `mlflow run`, the one that another driver has opened, or a new one.

    `kind` is study or design; all drivers must agree on what is `described`, see `StudyLedger.open`.
    """
    title = f"{kind} {name}"
    own = tracking.begin(title) if tracking.opened_run_id() else None
    run_id = ledger.open(own.run_id if own is not None else "", described)
    if not run_id:
        mark = {schema.STUDY_MARK: ledger.mark()}
        there = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark[schema.STUDY_MARK]}'")
        made = tracking.run(there[-1].run_id) if there else tracking.create(title, mark)
        run_id = ledger.name_run(made.run_id)
        if run_id != made.run_id:  # another driver was faster
            made.set_tags({schema.KIND: f"{kind} driver", schema.STUDY_RUN: run_id})
            made.end(RunStatus.FINISHED)
    if own is not None and own.run_id != run_id:  # `mlflow run` opens a run for every command
        own.set_tags({schema.KIND: f"{kind} driver", schema.STUDY_RUN: run_id})
    return run_id
