"""The model of a finished job: its record in MLflow, and its version in the model registry."""

from pathlib import Path

from paretune.core.errors import ParetuneError, first_line
from paretune.core.secrets import printable, without_secrets
from paretune.jobs.run_names import run_name
from paretune.specification.container import JobReport
from paretune.specification.inputs import IN_S3
from paretune.specification.plan import Card
from paretune.tracking import schema
from paretune.tracking.models import CANDIDATE
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.run_writer import Run, trouble
from paretune.tracking.store import Tracking

_REFUSED = "no: "  # begins the tag `registered` of a run that has no model to register


def record_model(run: Run, card: Card, instance_type: str, report: JobReport, location: str) -> str:
    """Record the model of a finished job, and return the address from which MLflow loads it.

    `location` is the folder or S3 URI of the model's files. The model is named like its run on the `instance_type` of
    the last attempt (`run_name`). The address is empty if there is no model, if MLflow cannot load the model of a
    user's own script, or if MLflow does not answer. A tag of the run says why an expected model is missing. Repeating
    the call changes nothing.
    """
    if card.is_probe or card.kind == "project":
        return ""  # probes leave no model, and a project's own commands log theirs
    if not location or not (location.startswith(IN_S3) or Path(location).is_dir()):
        run.set_tags({schema.NO_MODEL: f"there is no folder {location}" if location else "the job has left no model"})
        return ""
    fault = printable(report.model_fault)
    run.set_tags({schema.MODEL: location, schema.NO_MODEL: fault or None})
    if fault and card.kind == "script":
        return ""
    # MLflow rejects the name of a LoggedModel that contains / : . % or quotation marks.
    name = run_name(card, instance_type).translate(str.maketrans("/:.%\"' ", "-------")).strip("-") or "model"
    uri = run.log_model(name, location, None if card.is_users else card.task)
    run.set_tags({schema.MODEL_URI: uri or None})
    return uri


def register(name: str, run_id: str, tracking: Tracking, *, again: str = "`paretune sync`") -> str:
    """Register the model of a run as a version of `name` with the alias `candidate`; return a sentence with the result.

    A model that is already registered keeps its version. If MLflow does not answer, nothing is raised: the sentence
    says so, and that `again`, such as a command, registers the model later.
    """
    try:
        run = tracking.recorded(run_id)
        if run is None:
            return f"nothing is registered as {name}: its run has been deleted"
        if known := run.tags.get(schema.REGISTERED):
            refusal = known.removeprefix(_REFUSED)
            return f"already registered: {known}" if refusal == known else f"nothing is registered as {name}: {refusal}"
        is_simulated, fault = run.tags.get(schema.ORIGIN) == "simulated", run.tags.get(schema.NO_MODEL)
        version = None if is_simulated or fault else tracking.register_model(name, run_id)
        if version is None and run.tags.get(schema.GAP) == "true":
            return f"nothing is registered as {name} yet: MLflow did not store the whole record of the job"
        missing = fault or "its run has no model in MLflow"
        reason = "a simulated job has no model" if is_simulated else missing
        tracking.run(run_id).set_tags({schema.REGISTERED: version or f"{_REFUSED}{reason}"})
    except trouble(ParetuneError) as error:
        reason = without_secrets(first_line(error))
        return f"the model is not registered as {name} yet ({reason}): {again} registers it"
    return f"registered as {version}, {CANDIDATE}" if version else f"nothing is registered as {name}: {reason}"


def overdue(tracking: Tracking) -> list[RecordedRun]:
    """Return the runs of completed jobs whose model is still to be registered. Raises TrackingUnavailable.

    Runs whose record has gaps are left out: `sync` fills the gaps first, and then registers the model.
    """
    runs = tracking.runs(f"tags.`{schema.STATE}` = 'Completed' and params.register LIKE '_%'")
    return [run for run in runs if not run.tags.get(schema.REGISTERED) and run.tags.get(schema.GAP) != "true"]
