"""The model of a finished job becomes a version of a registered model, with the alias `candidate`."""

from paretune.core.errors import ParetuneError, first_line
from paretune.core.untrusted import without_secrets
from paretune.specification import metrics
from paretune.tracking import TROUBLE, RecordedRun, Tracking, schema
from paretune.tracking.registry import CANDIDATE

_FIGURES = (metrics.F1, metrics.PERPLEXITY, metrics.COST_USD)
_TAGS = (schema.DATASET_KEY, schema.VALIDATION_ROWS)


def register(name: str, run_id: str, tracking: Tracking) -> str:
    """Register the model of the finished job of a run as a version of `name`; returns a sentence on the outcome.

    A run whose model is registered already keeps its version. If MLflow does not answer, the sentence says so and
    `sync` registers the model later: no job fails because of it.
    """
    try:
        (run,) = tracking.runs(f"attributes.run_id = '{run_id}'")
        if run.tags.get(schema.REGISTERED):
            return f"registered before: {run.tags[schema.REGISTERED]}"
        return _register(name, run, tracking)
    except (*TROUBLE, ParetuneError) as error:
        reason = without_secrets(first_line(error))
        return f"the model is not registered as {name} yet ({reason}): `paretune sync` does it"


def overdue(tracking: Tracking) -> list[RecordedRun]:
    """Runs of finished jobs with `register` whose model has no version yet; raises TrackingUnavailable."""
    runs = tracking.runs(f"tags.`{schema.STATE}` = 'Completed' and params.register LIKE '_%'")
    return [run for run in runs if not run.tags.get(schema.REGISTERED) and run.tags.get(schema.GAP) != "true"]


def _register(name: str, run: RecordedRun, tracking: Tracking) -> str:
    is_simulated = run.tags.get(schema.ORIGIN) == "simulated"
    version = None if is_simulated else tracking.register_model(name, run.run_id, _version_tags(run))
    if version is not None:
        tracking.run(run.run_id).set_tags({schema.REGISTERED: version})
        return f"registered as {version}, {CANDIDATE}"
    if run.tags.get(schema.GAP) == "true":
        return f"nothing is registered as {name} yet: MLflow has not taken its model"
    missing = run.tags.get(schema.NO_MODEL) or "its run has no model in MLflow (see log_model)"
    reason = "a simulated job has no model" if is_simulated else missing
    tracking.run(run.run_id).set_tags({schema.REGISTERED: f"no: {reason}"})
    return f"nothing is registered as {name}: {reason}"


def _version_tags(run: RecordedRun) -> dict[str, str]:
    figures = {f"{schema.PREFIX}{name}": f"{run.metrics[name]:.6g}" for name in _FIGURES if name in run.metrics}
    return figures | {name: run.tags[name] for name in _TAGS if name in run.tags}
