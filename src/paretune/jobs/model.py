"""The model of a finished job: its card (README.md), its record in MLflow, and its version in the model registry."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from huggingface_hub import ModelCard, ModelCardData

from paretune.core.errors import ParetuneError, first_line
from paretune.core.untrusted import at_home, markdown, printable, without_secrets
from paretune.jobs.record import run_name
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID, IN_S3
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.models import CANDIDATE, JobModel
from paretune.tracking.outbox import TROUBLE
from paretune.tracking.recorded_job import RecordedRun
from paretune.tracking.run import Run
from paretune.tracking.store import Tracking

if TYPE_CHECKING:
    from paretune.jobs.outcome import JobOutcome

_PIPELINES = {metrics.CAUSAL_LM: "text-generation", metrics.TOKEN_CLASSIFICATION: "token-classification"}
"""Task to the name of its pipeline on the hub, where that is not text-classification."""
_CARD = "README.md"


def card_of(job: "JobOutcome", data_hash: str = "") -> str:
    """The text of README.md: the note of the job's run and what the model was made from; `data_hash` is of the rows."""
    spec, report, is_ours = job.spec, job.report, job.spec.entry_script is None
    data = ModelCardData(
        base_model=base_id(spec.model) if is_ours and spec.init == "pretrained" else None,
        library_name="transformers",
        pipeline_tag=_pipeline(spec) if is_ours else None,
        tags=["paretune"],
        model_name=run_name(spec),
    )
    facts = {} if report is None else report.facts
    sources = {
        "rows": data_hash and f"{Path(spec.dataset).name}, hash of the prepared rows {data_hash}",
        "classes": "" if report is None else ", ".join(report.labels),
        "versions": ", ".join(f"{name} {facts[name]}" for name in ("torch", "transformers") if name in facts),
        "MLflow run": job.run_id,
        "job": job.job_name,
        "files": job.model,
    }
    lines = "\n".join(f"- {name}: {text}" for name, text in sources.items() if text)
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n# {run_name(spec)}\n\n{job.note()}\n\n{markdown(lines)}\n"))


def base_id(model: str) -> str:
    """The name of a base model: a hub id, or the last part of a folder's path."""
    if model.startswith(BUNDLED):
        return BUNDLED_MODEL_ID
    return Path(model).name if at_home(model).is_dir() or model.startswith((".", "/", "~")) else model


def _pipeline(spec: JobSpec) -> str:
    return _PIPELINES.get(spec.task, "text-classification")


def record_model(run: Run, job: "JobOutcome") -> str:
    """Write the card into the model's folder and the run, and record the model; returns where MLflow loads it from.

    The address is empty if there is no model, for which the run has the reason, or if MLflow does not answer. Doing it
    again changes nothing.
    """
    spec = job.spec
    if spec.probe_steps is not None or spec.project is not None:
        return ""  # such a job leaves none
    is_far = job.model.startswith(IN_S3)
    if not job.model or not (is_far or Path(job.model).is_dir()):
        run.set_tags({schema.NO_MODEL: f"there is no folder {job.model}" if job.model else "the job has left no model"})
        return ""
    is_ours, fault = spec.entry_script is None, "" if job.report is None else printable(job.report.model_fault)
    run.set_tags({schema.MODEL: job.model, schema.NO_MODEL: fault or None})
    if fault and not is_ours:
        return ""
    data_hash = run.tags().get(schema.DATASET_KEY, "")
    card = card_of(job, data_hash)
    run.log_text(card, _CARD)
    with TemporaryDirectory(prefix="paretune-") as scratch:
        folder = Path(scratch if is_far else job.model)
        if is_ours or not (folder / _CARD).exists():  # or the script's own
            with suppress(OSError):  # the run has it, too
                (folder / _CARD).write_text(card, encoding="utf-8")
        model = JobModel(
            # MLflow takes no name of a LoggedModel with / : . % or quotation marks.
            name=run_name(spec).translate(str.maketrans("/:.%\"' ", "-------")).strip("-") or "model",
            location=job.model,
            folder=folder,
            kind=_pipeline(spec) if is_ours else None,
            dataset=(Path(spec.dataset).name, data_hash) if data_hash else None,
        )
        uri = run.log_model(model)
    run.set_tags({schema.MODEL_URI: uri or None})
    return uri


def register(name: str, run_id: str, tracking: Tracking) -> str:
    """Register the model of a run as a version of `name` with the alias `candidate`; returns what came of it, in words.

    A run whose model is registered already keeps its version. If MLflow does not answer, the sentence says so and
    `sync` registers the model later: no job fails because of it.
    """
    try:
        (run,) = tracking.runs(f"attributes.run_id = '{run_id}'")
        if run.tags.get(schema.REGISTERED):
            return f"registered before: {run.tags[schema.REGISTERED]}"
        is_simulated, fault = run.tags.get(schema.ORIGIN) == "simulated", run.tags.get(schema.NO_MODEL)
        version = None if is_simulated or fault else tracking.register_model(name, run_id)
        if version is None and run.tags.get(schema.GAP) == "true":
            return f"nothing is registered as {name} yet: MLflow has not taken its model"
        missing = fault or "its run has no model in MLflow"
        reason = "a simulated job has no model" if is_simulated else missing
        tracking.run(run_id).set_tags({schema.REGISTERED: version or f"no: {reason}"})
    except (*TROUBLE, ParetuneError) as error:
        reason = without_secrets(first_line(error))
        return f"the model is not registered as {name} yet ({reason}): `paretune sync` does it"
    return f"registered as {version}, {CANDIDATE}" if version else f"nothing is registered as {name}: {reason}"


def overdue(tracking: Tracking) -> list[RecordedRun]:
    """Runs of finished jobs with `register` whose model has no version yet; raises TrackingUnavailable."""
    runs = tracking.runs(f"tags.`{schema.STATE}` = 'Completed' and params.register LIKE '_%'")
    return [run for run in runs if not run.tags.get(schema.REGISTERED) and run.tags.get(schema.GAP) != "true"]
