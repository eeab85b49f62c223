"""Names runs after the settings of their jobs and, once a job has ended, its quality and dollars.

The reason is that MLflow's table of runs shows names but, by default, no metrics.
"""

from collections.abc import Mapping
from pathlib import Path

from paretune.presentation.text import plain
from paretune.specification import metrics
from paretune.specification.catalog import short_name
from paretune.specification.declaration import spell
from paretune.specification.inputs import BUNDLED, INPUT_FILES
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.tracking import schema
from paretune.user_code.binding import OF_SCRIPTS


def run_name(spec: JobSpec, result: str = "", *, takes_seed: bool = True) -> str:
    """Return the name of a job's run.

    It contains the batch, learning rate, cluster and model or, for a user's own training, its name and settings,
    without the seed if the training does not get it (`takes_seed`). The `result` of an ended job comes before the
    model, so that the result is visible in MLflow's narrow column.
    """
    head = _head(spec, takes_seed=takes_seed)
    if spec.runs_user_code:
        return f"{head}: {result}" if result else head
    model = Path(spec.model).name.removeprefix(BUNDLED)
    simulated = " simulated" if spec.is_simulated else ""
    return f"{head}{simulated}: {result}, {model}" if result else f"{head} {model}{simulated}"


def trial_in_name(tags: Mapping[str, str]) -> str:
    """Return the number of a run's trial as run names show it: `trial 7, repeats 3: `; "" for a single job."""
    if not (number := tags.get(schema.TRIAL, "")):
        return ""
    repeats = f", repeats {tags[schema.REPEATS]}" if tags.get(schema.REPEATS) else ""
    return f"trial {number}{repeats}: "


def new_name(
    tags: Mapping[str, str],
    spec: JobSpec,
    before: Mapping[str, float],
    values: Mapping[str, float],
    *,
    takes_seed: bool,
) -> str | None:
    """Return the new name of a run whose job has ended, with its quality and dollars from `values`, the job's metrics.

    Returns None if neither is known, or if the user has renamed the run: its name is neither the one that it got when
    the job started nor the one that it got with the metrics `before`.
    """
    trial, result = trial_in_name(tags), _result(spec, values)
    # A study names the run of a trial before it knows whether the training gets the seed.
    earlier = {
        f"{trial}{run_name(spec, _result(spec, each), takes_seed=with_seed)}"
        for each in (values, before, {})
        for with_seed in (True, takes_seed)
    }
    is_ours = tags.get(schema.RUN_NAME) in earlier
    return f"{trial}{run_name(spec, result, takes_seed=takes_seed)}" if result and is_ours else None


def _result(spec: JobSpec, values: Mapping[str, float]) -> str:
    return result_in_name(values, metrics.F1 if spec.runs_user_code else metrics.TASKS[spec.task].quality)


def result_in_name(values: Mapping[str, float], quality: str | None) -> str:
    """Return quality and dollars as run names show them: `F1 .812, 0.27 USD`; "" if neither is known."""
    parts, value, usd = list[str](), values.get(quality or ""), values.get(metrics.COST_USD)
    if value is not None:
        parts.append(f"F1 {value:.3f}".replace(" 0.", " .") if quality == metrics.F1 else f"{quality} {value:.4g}")
    if usd is not None:
        parts.append(dollars_in_name(usd))
    return ", ".join(parts)


def dollars_in_name(usd: float) -> str:
    """Return dollars as run names show them, to two digits: `0.27 USD`, `65 USD`."""
    return f"{plain(usd, 2)} USD"


def setting_in_name(spec: JobSpec) -> str:
    """Return the global batch size and the learning rate as run names show them: `b16 lr1e-4`."""
    plan = spec.plan()
    digits, _, power = f"{plan.learning_rate:.2e}".partition("e")
    return f"b{plan.global_batch_size} lr{float(digits):g}e{int(power)}"


def cluster_in_name(spec: JobSpec) -> str:
    """Return number and type of instances as run names show them: `2 x g5.xlarge`; "" on this machine."""
    count = f"{spec.instance_count} x " if spec.instance_count > 1 else ""
    return f"{count}{short_name(spec.instance_type)}" if spec.has_instances else ""


def settings_in_name(spec: JobSpec, *, takes_seed: bool = True) -> str:
    """Return the settings given to a user's own training, without its files, as text: `lr=0.1 epochs=3`.

    The seed is left out if the training does not get it.
    """
    given = spec.model_fields_set - {*INPUT_FILES, *([] if takes_seed else ["seed"])}
    names = [name for name in (*OF_THE_BATCH, *OF_SCRIPTS) if name in given]
    settings = {name: getattr(spec, name) for name in names} | dict(spec.training_arguments)
    return " ".join(f"{name}={spell(value)}" for name, value in settings.items())


def _head(spec: JobSpec, *, takes_seed: bool) -> str:
    if spec.project is not None:
        name = Path(spec.project.rstrip("/")).name or spec.project
        return f"{name} {spec.entry_point} {settings_in_name(spec, takes_seed=takes_seed)}".strip()[:200]
    if spec.entry_script is not None:
        return f"{Path(spec.entry_script).name} {settings_in_name(spec, takes_seed=takes_seed)}".strip()[:200]
    return f"{setting_in_name(spec)} {cluster_in_name(spec)}".strip()
