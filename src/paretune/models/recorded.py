"""List the model of a finished job in MLflow, with a tag of its run that says where the files are or why not."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from yaml import YAMLError  # type: ignore[import-untyped]  # comes with huggingface_hub

from paretune.core.untrusted import at_home
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.container import JobReport
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID, BUNDLED_MODEL_LICENCE
from paretune.specification.job import JobSpec
from paretune.tracking import Run, schema
from paretune.tracking.models import JobModel, why_not

UNKNOWN = "unknown"  # Hugging Face's word for a licence that nobody has stated
_PIPELINES = {
    metrics.CAUSAL_LM: "text-generation",
    metrics.WORDS: "token-classification",
}
"""Task to the name of its pipeline on the hub."""
_PIPELINE = "text-classification"
_QUALITY = {
    metrics.F1: "F1 (macro, validation)",
    metrics.BASELINE_TFIDF: "TF-IDF + logistic regression, the same rows",
    metrics.BASELINE_MAJORITY: "most frequent class, the same rows",
    metrics.BASELINE_WORDS: "most frequent label of each word, the same rows",
    "test_f1": "F1 (macro, test)",
    metrics.PERPLEXITY: "perplexity (validation)",
    metrics.EVAL_LOSS: "loss (validation)",
}
"""Metric to what the card calls it, in its order."""
_COST = {
    metrics.COST_USD: ("whole job, USD", ".4g"),
    metrics.JOB_SECONDS: ("whole job, seconds", ",.1f"),
    metrics.TRAIN_SECONDS: ("training, seconds", ",.1f"),
    metrics.THROUGHPUT_SAMPLES: ("samples per second", ",.1f"),
}
_CARD = "README.md"
_SHOWN = (
    *("model", "dataset", "task", "fine_tuning", "learning_rate", "num_train_epochs", "max_seq_length", "precision"),
    *("instance_type", "instance_count", "entry_script"),
)
"""Parameters of the job that the list of models shows."""
_LOADED_WITH = ("torch", "transformers", "accelerate")
"""Facts of a report that are versions of packages which a model needs."""


@dataclass(frozen=True, kw_only=True)
class FinishedJob:
    """A completed job, as its model card describes it."""

    name: str  # name of its run
    run_id: str
    job_name: str
    spec: JobSpec
    report: JobReport
    location: str  # where its model is: a folder of this machine, or an S3 URI
    data_hash: str = ""  # digest of the prepared rows; empty if they are not known
    metrics: Mapping[str, float] = field(default_factory=dict)
    """All that was measured, and seconds and dollars of all attempts."""
    price: Price | None = None  # price of one instance; None if it is unknown, and then the dollars are absent


def card_of(job: FinishedJob) -> str:
    """The text of README.md, with the metadata that Hugging Face reads at its head."""
    return str(ModelCard(f"---\n{_metadata(job).to_yaml()}\n---\n\n{_text(job)}"))


def base_id(job: FinishedJob) -> str:
    """The name of the base model: a hub id, or the last part of a folder's path."""
    model = job.spec.model
    if model.startswith(BUNDLED):
        return BUNDLED_MODEL_ID
    return Path(model).name if at_home(model).is_dir() or model.startswith((".", "/", "~")) else model


def licence_of(job: FinishedJob) -> str:
    """The licence that the base model's own card states; `unknown` if there is no such card here."""
    if job.spec.entry_script is not None:
        return UNKNOWN  # what a script begins with is its own affair
    if job.spec.model.startswith(BUNDLED):
        return BUNDLED_MODEL_LICENCE
    card = _card_of_base(job.spec.model)
    if card is None:
        return UNKNOWN
    try:
        stated = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict().get("license")
    except (OSError, ValueError, YAMLError):  # no metadata that can be read
        return UNKNOWN
    return stated if isinstance(stated, str) and stated else UNKNOWN


def _card_of_base(model: str) -> Path | None:
    """The card in a local model's folder, or in the hub's cache; nothing is fetched."""
    path = at_home(model) / "README.md"
    if path.is_file():
        return path
    try:
        cached = try_to_load_from_cache(model, "README.md")
    except HFValidationError:  # no hub id
        return None
    return Path(cached) if isinstance(cached, str) else None


def _metadata(job: FinishedJob) -> ModelCardData:
    is_ours = job.spec.entry_script is None
    task, f1 = _PIPELINES.get(job.spec.task, _PIPELINE), job.metrics.get(metrics.F1)
    dataset = Path(job.spec.dataset).name
    results = []
    if f1 is not None and is_ours:
        result = EvalResult(
            task_type=task,
            dataset_type=dataset,
            dataset_name=dataset,
            dataset_split="validation",
            metric_type=metrics.F1,
            metric_name="macro F1",
            metric_value=round(f1, 6),
        )
        results = [result]
    return ModelCardData(
        base_model=base_id(job) if is_ours and job.spec.init == "pretrained" else None,
        license=licence_of(job),
        library_name="transformers",
        pipeline_tag=task if is_ours else None,
        tags=["paretune"],
        model_name=job.name,
        eval_results=results or None,
    )


def _text(job: FinishedJob) -> str:
    parts = [
        f"# {job.name}",
        _origin(job),
        _table("result", _quality(job)),
        _table("cost", _cost(job)),
        _table("what it was made from", _sources(job)),
        "## Use\n\n" + _use(job),
        f"## Repeat\n\n```bash\n{job.spec.command()}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _origin(job: FinishedJob) -> str:
    spec = job.spec
    if spec.entry_script is not None:
        description = f"Trained by the script `{Path(spec.entry_script).name}`"
    elif spec.init == "random":
        description = (
            f"A model of the shape of {base_id(job)}, trained from random weights on {Path(spec.dataset).name}"
        )
    else:
        description = f"{base_id(job)}, fine-tuned ({spec.fine_tuning}) on {Path(spec.dataset).name}"
    return f"{description}. All figures are measured, of one run: by how much repeats differ is not in them."


def _quality(job: FinishedJob) -> dict[str, str]:
    return {title: f"{job.metrics[name]:.4f}" for name, title in _QUALITY.items() if name in job.metrics}


def _cost(job: FinishedJob) -> dict[str, str]:
    rows = {title: f"{job.metrics[name]:{form}}" for name, (title, form) in _COST.items() if name in job.metrics}
    if job.price is not None:
        rows["one instance"] = f"{job.price.stated} ({job.price.source.partition(';')[0]})"
    cluster = f"{job.spec.instance_count} x {job.spec.instance_type}" if job.spec.has_instances else "this machine"
    return rows | {"cluster": cluster}


def _sources(job: FinishedJob) -> dict[str, str]:
    is_ours = job.spec.entry_script is None
    versions = [f"{name} {job.report.facts[name]}" for name in ("torch", "transformers") if name in job.report.facts]
    named = {
        "base model": base_id(job) if is_ours else "",
        "licence of the base": licence_of(job),
        "data": Path(job.spec.dataset).name if is_ours else "",
        "hash of the prepared rows": job.data_hash,
        "classes": ", ".join(job.report.labels),
        "language": UNKNOWN if is_ours else "",
        "versions": ", ".join(versions),
        "MLflow run": job.run_id,
        "job": job.job_name,
    }
    return {title: text for title, text in named.items() if text}


def _use(job: FinishedJob) -> str:
    if job.spec.entry_script is not None:
        return f"The files are at `{job.location}`."
    task = _PIPELINES.get(job.spec.task, _PIPELINE)
    fetch, folder = "", "."
    if job.location.startswith("s3://"):
        unpack = f"mkdir -p model && aws s3 cp {job.location} - | tar -xz -C model"
        command = f"aws s3 cp --recursive {job.location} model" if job.location.endswith("/") else unpack
        fetch = f"```bash\n{command}\n```\n\n"
        folder = "model"
    call = f'print(pipeline("{task}", model="{folder}")("a text"))'
    return f"{fetch}```python\nfrom transformers import pipeline\n\n{call}\n```"


def _table(title: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {text.replace('|', '&#124;')} |" for name, text in rows.items()]
    return "\n".join([f"| {title} | |", "| --- | --- |", *lines]) if lines else ""


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
    run.set_tags({schema.MODEL_URI: uri or None})
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
