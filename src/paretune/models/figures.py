"""Figures of a model, from the run of its job, and as tags of a version of a registered model."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from paretune.estimating.noise import (
    F1_DEGREES,
    F1_NOISE,
    Scatter,
    binomial_error,
    posterior_deviation,
    widened,
)
from paretune.models.champion import QUALITIES, Figures
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.tracking import RecordedJob, RecordedRun, schema

MOST_ALIKE = 1000
"""Runs that were judged on the same rows and may be repeats, the newest."""
_BASELINES = (metrics.BASELINE_MAJORITY, metrics.BASELINE_TFIDF, metrics.BASELINE_WORDS)
_NUMBERS = {"error": "noise", "parameters": "parameters", "seconds_per_1000_rows": "seconds_per_1000_rows"}
"""Field of `Figures` to its tag, beside the metrics themselves."""
_TEXTS = {"metric": schema.JUDGED_BY, "rows": schema.VALIDATION_ROWS, "measured_on": schema.MEASURED_ON}


def figures_of(run: RecordedRun, alike: Iterable[RecordedRun]) -> tuple[Figures, str]:
    """Figures of the model of a run, and the basis of its error in words; `alike` are runs that may be repeats."""
    values = run.metrics
    metric = next((name for name in QUALITIES if name in values), "")
    value = values.get(metric, 0.0)
    error, basis = _error(metric, value, run, alike) if metric else (0.0, "")
    speed = values.get(metrics.EVALUATION_SAMPLES)
    return Figures(
        metric=metric,
        value=value,
        error=error,
        rows=run.tags.get(schema.VALIDATION_ROWS, ""),
        baselines={name: values[name] for name in _BASELINES if name in values} if metric == metrics.F1 else {},
        parameters=values.get(metrics.TOTAL_PARAMETERS),
        seconds_per_1000_rows=1000 / speed if speed else None,
        measured_on=_measured_on(run),
    ), basis


def condition_of_repeats(run: RecordedRun) -> str:
    """Search for the measured runs that were judged on the same rows; empty if the rows are not recorded."""
    rows = run.tags.get(schema.VALIDATION_ROWS, "")
    if not rows:
        return ""
    finished = f"tags.`{schema.STATE}` = 'Completed' and tags.`{schema.ORIGIN}` = 'measured'"
    return f"{finished} and tags.`{schema.VALIDATION_ROWS}` = '{rows}'"


def tags_of(figures: Figures, basis: str, run: RecordedRun) -> dict[str, str]:
    """Tags with the figures of a version of a registered model; `figures_in` reads them."""
    texts = {tag: getattr(figures, name) for name, tag in _TEXTS.items()}
    numbers: dict[str, float | None] = {name: figures.baselines.get(name) for name in _BASELINES}
    numbers |= {tag: getattr(figures, name) for name, tag in _NUMBERS.items()}
    if figures.metric:
        numbers[figures.metric] = figures.value
        texts[schema.NOISE_BASIS] = basis
    else:
        numbers.pop("noise")
    numbers[metrics.COST_USD] = run.metrics.get(metrics.COST_USD)
    texts[schema.DATASET_KEY] = run.tags.get(schema.DATASET_KEY, "")
    spelled = {f"{schema.PREFIX}{name}": f"{value:.6g}" for name, value in numbers.items() if value is not None}
    return {name: text for name, text in texts.items() if text} | spelled


def figures_in(tags: Mapping[str, str]) -> Figures:
    """The figures in the tags of a version; without a metric if paretune did not write them."""
    values: dict[str, float] = {}
    for name in (*QUALITIES, *_BASELINES, *_NUMBERS.values()):
        with suppress(KeyError, ValueError):
            values[name] = float(tags[f"{schema.PREFIX}{name}"])
    texts = {name: tags.get(tag, "") for name, tag in _TEXTS.items()}
    if texts["metric"] not in values or texts["metric"] not in QUALITIES:
        return Figures()
    return Figures(
        **texts,
        value=values[texts["metric"]],
        error=values.get("noise", 0.0),
        baselines={name: values[name] for name in _BASELINES if name in values},
        parameters=values.get("parameters"),
        seconds_per_1000_rows=values.get("seconds_per_1000_rows"),
    )


def _measured_on(run: RecordedRun) -> str:
    """Instance type, device and precision of a run, to which the seconds of its evaluation belong."""
    job = RecordedJob(run)
    count = f"{job.cluster.instance_count} x " if job.cluster.instance_count > 1 else ""
    names = [f"{count}{job.cluster.instance_type}"]
    names += [run.tags.get(tag, "") for tag in (schema.USED_DEVICE, schema.USED_PRECISION)]
    machine = run.tags.get(schema.MACHINE, "") if job.cluster.instance_type == "local" else ""
    return ", ".join(name for name in (*names, machine) if name)


def _error(metric: str, value: float, run: RecordedRun, alike: Iterable[RecordedRun]) -> tuple[float, str]:
    """Standard error of the metric of one run, and its basis in words.

    It comes from repeats, runs that differ only in their seed and were judged on the same rows. Without repeats it is
    the binomial error of F1 on so many rows, and at least the noise of repeated jobs of others.
    """
    is_relative = metric == metrics.PERPLEXITY
    scale = abs(value) if is_relative else 1.0
    rows = int(run.metrics.get("validation_rows", 0))
    seeds = _repeats(metric, run, alike)
    scatter = Scatter.of([seeds], is_relative=is_relative)
    if scatter.degrees:
        deviation = posterior_deviation(F1_NOISE, F1_DEGREES, scatter)
        return scale * widened(deviation, F1_DEGREES + scatter.degrees), f"{len(seeds)} runs that differ in their seed"
    if metric == metrics.F1 and rows and binomial_error(value, rows) > F1_NOISE:
        return binomial_error(value, rows), f"binomial standard error of F1 on {rows:,} validation rows"
    return scale * F1_NOISE, "the most that repeated SageMaker jobs of others have shown"


def _repeats(metric: str, run: RecordedRun, alike: Iterable[RecordedRun]) -> list[float]:
    """The metric of the run and of those that differ from it in nothing but chance, one for each seed."""
    chance = affecting(JobSpec, "noise")
    names = [name for name in affecting(JobSpec, *COMPUTES) if name not in chance]
    setting = [run.params.get(name, "") for name in names]
    values = {run.params.get("seed", ""): run.metrics[metric]}
    for other in alike:
        if metric in other.metrics and [other.params.get(name, "") for name in names] == setting:
            values.setdefault(other.params.get("seed", ""), other.metrics[metric])
    return list(values.values())
