"""List the model of a finished job in MLflow, with a tag of its run that says where the files are or why not."""

from contextlib import suppress
from pathlib import Path

from paretune.models.card import FinishedJob, card_of
from paretune.tracking import Run, schema
from paretune.tracking.models import JobModel, why_not

_CARD = "README.md"
_SHOWN = (
    *("model", "dataset", "task", "fine_tuning", "learning_rate", "num_train_epochs", "max_seq_length", "precision"),
    *("instance_type", "instance_count", "entry_script"),
)
"""Parameters of the job that the list of models shows."""
_LOADED_WITH = ("torch", "transformers", "accelerate")
"""Facts of a report that are versions of packages which a model needs."""


def record_model(run: Run, job: FinishedJob) -> str:
    """Write the card into the model's folder and the run, and record the model; returns its address in MLflow.

    The address is empty if there is no model, for which the run has the reason, or if MLflow does not answer. Doing it
    again changes nothing.
    """
    if job.spec.probe_steps is not None or job.spec.runs_project or not job.location:
        return ""  # such a job leaves none
    folder = Path(job.location) if Path(job.location).is_dir() else None
    lacking = _lacking(job, folder)
    if lacking:
        run.set_tags({schema.NO_MODEL: lacking})
        return ""
    card = card_of(job)
    run.log_text(card, _CARD)
    if folder is not None and (job.spec.entry_script is None or not (folder / _CARD).exists()):  # or the script's own
        with suppress(OSError):  # the run and the LoggedModel have it, too
            (folder / _CARD).write_text(card, encoding="utf-8")
    run.set_tags({schema.MODEL: job.location, schema.NO_MODEL: None if job.spec.log_model else "log_model=false"})
    if not job.spec.log_model:
        return ""
    model = JobModel(
        name=_name(job.name),
        location=job.location,
        folder=folder,
        card=card,
        requirements=_requirements(job),
        params={name: text for name, text in job.spec.as_text().items() if name in _SHOWN},
        dataset=(Path(job.spec.dataset).name, job.data_hash) if job.data_hash else None,
    )
    uri = run.log_model(model)
    run.set_tags({schema.MODEL_URI: uri or None, schema.NO_MODEL: run.missing or None})
    return uri


def _lacking(job: FinishedJob, folder: Path | None) -> str:
    """The reason why the job has left no model that could be recorded; empty if it has."""
    if folder is None:
        return "" if job.location.startswith("s3://") else f"there is no folder {job.location}"
    lacking = why_not(folder)
    has_adapters = job.spec.entry_script is None and (folder / "adapter_config.json").is_file()
    return f"{lacking} in {folder}" if lacking and not has_adapters else ""


def _requirements(job: FinishedJob) -> tuple[str, ...]:
    """Packages with the versions that trained, without build tags such as +cpu, which pip does not find."""
    versions = {name: str(job.report.facts.get(name, "")).partition("+")[0] for name in _LOADED_WITH}
    return tuple(f"{name}=={version}" if version else name for name, version in versions.items())


def _name(text: str) -> str:
    """A name that MLflow takes for a LoggedModel: none of / : . % and quotation marks."""
    return "".join("-" if letter in "/:.%\"' " else letter for letter in text).strip("-") or "model"
