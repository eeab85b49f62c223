"""The model of a finished job becomes a version of a registered model, and its aliases move as the rule says.

Several jobs may register versions of one model at the same time. In a SQLite store they take turns (a lock file beside
it). On a server, which knows no compare-and-set of aliases, a version says that it wins before the alias moves, the
alias is read again right before it moves, and whoever has moved it looks afterwards for others that say so: the one
that the rule prefers has the alias when all have ended, and of equals the earlier one. A process that is killed between
the move and that look can leave the other; both stay versions of the model.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from paretune.core.errors import ParetuneError, first_line
from paretune.core.untrusted import without_secrets
from paretune.estimating.noise import (
    F1_DEGREES,
    F1_NOISE,
    Scatter,
    binomial_error,
    posterior_deviation,
    widened,
)
from paretune.models.champion import QUALITIES, Decision, Figures, decide
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.tracking import TROUBLE, RecordedJob, RecordedRun, Tracking, schema
from paretune.tracking.registry import RegisteredVersion, Registry

MOST_ALIKE = 1000  # runs that were judged on the same rows and may be repeats, the newest
_BASELINES = (metrics.BASELINE_MAJORITY, metrics.BASELINE_TFIDF, metrics.BASELINE_WORDS)
_NUMBERS = {"error": "noise", "parameters": "parameters", "seconds_per_1000_rows": "seconds_per_1000_rows"}
"""Field of `Figures` to its tag, beside the metrics themselves."""
_TEXTS = {"metric": schema.JUDGED_BY, "rows": schema.VALIDATION_ROWS, "measured_on": schema.MEASURED_ON}
CANDIDATE, CHAMPION = "candidate", "champion"  # aliases: the version registered last, and the one in use
_MOST_ROUNDS = 5  # of reading the champion again because it has changed meanwhile


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


def register(name: str, run_id: str, tracking: Tracking) -> str:
    """Register the model of the finished job of a run as a version of `name`; returns a sentence on the outcome.

    A run whose model is registered already keeps its version. If MLflow does not answer, the sentence says so and
    `sync` registers the model later: no job fails because of it.
    """
    try:
        (run,) = tracking.runs(f"attributes.run_id = '{run_id}'")
        if run.tags.get(schema.REGISTERED):
            return f"registered before: {run.tags[schema.REGISTERED]}"
        registry = tracking.registry()
        with registry.alone():
            return _register(name, run, tracking, registry)
    except (*TROUBLE, ParetuneError) as error:
        reason = without_secrets(first_line(error))
        return f"the model is not registered as {name} yet ({reason}): `paretune sync` does it"


def overdue(tracking: Tracking) -> list[RecordedRun]:
    """Runs of finished jobs with `register` whose model has no version yet; raises TrackingUnavailable."""
    runs = tracking.runs(f"tags.`{schema.STATE}` = 'Completed' and params.register LIKE '_%'")
    return [run for run in runs if not run.tags.get(schema.REGISTERED) and run.tags.get(schema.GAP) != "true"]


def _register(name: str, run: RecordedRun, tracking: Tracking, registry: Registry) -> str:
    version = next((recorded for recorded in registry.versions(name) if recorded.run_id == run.run_id), None)
    if version is None:
        model = registry.model(run.run_id)
        is_simulated = run.tags.get(schema.ORIGIN) == "simulated"
        if model is None and run.tags.get(schema.GAP) == "true":
            return f"nothing is registered as {name} yet: MLflow has not taken its model"
        if model is None or is_simulated:
            missing = run.tags.get(schema.NO_MODEL) or "its run has no model in MLflow (see log_model)"
            reason = "a simulated job has no model" if is_simulated else missing
            tracking.run(run.run_id).set_tags({schema.REGISTERED: f"no: {reason}"})
            return f"nothing is registered as {name}: {reason}"
        condition = condition_of_repeats(run)
        alike = tracking.runs(condition, newest=MOST_ALIKE) if condition else []
        figures, basis = figures_of(run, alike)
        version = registry.add(name, model, run.run_id, tags_of(figures, basis, run))
    registry.point(CANDIDATE, version)
    decision = _settle(registry, version)
    tracking.run(run.run_id).set_tags({schema.REGISTERED: str(version)})
    if decision.moves:
        return f"registered as {version}, {CANDIDATE} and {CHAMPION}: {decision.reason}"
    champion = registry.at(name, CHAMPION)
    other = "there is no champion" if champion is None else f"{CHAMPION} is {champion}"
    return f"registered as {version}, {CANDIDATE}; {other}: {decision.reason}"


def _settle(registry: Registry, version: RegisteredVersion) -> Decision:
    """Decide about the champion, move its alias, and record why."""
    figures = figures_in(version.tags)
    champion = registry.at(version.name, CHAMPION)
    for _ in range(_MOST_ROUNDS):
        if champion is not None and champion.version == version.version:
            return Decision(moves=True, reason=champion.tags.get(schema.DECISION, "it has been moved there"))
        decision = decide(figures, None if champion is None else figures_in(champion.tags))
        _record(registry, version, decision)
        if not decision.moves:
            return decision
        now = registry.at(version.name, CHAMPION)
        if now == champion or (now and champion and now.version == champion.version):
            break
        champion = now
    registry.point(CHAMPION, version)
    rival = _better_rival(registry, version, figures, 0 if champion is None else champion.version)
    if rival is None:
        return decision
    registry.point(CHAMPION, rival)
    against = decide(figures, figures_in(rival.tags)).reason
    yielded = Decision(moves=False, reason=f"{rival} was registered at the same time, and {against}")
    _record(registry, version, yielded)
    return yielded


def _better_rival(
    registry: Registry, version: RegisteredVersion, figures: Figures, former_version: int
) -> RegisteredVersion | None:
    """The version that another process has made champion meanwhile and that the rule prefers; None without one."""
    best: RegisteredVersion | None = None
    for other in registry.versions(version.name):
        is_later = other.version > former_version and other.version != version.version
        if is_later and other.tags.get(schema.CHAMPION) == "true":
            best_figures, rival = (figures, version) if best is None else (figures_in(best.tags), best)
            if _gives_way(best_figures, rival.version, figures_in(other.tags), other.version):
                best = other
    return best


def _gives_way(champion: Figures, version: int, rival: Figures, rival_version: int) -> bool:
    """Whether a champion gives way to another one that was decided at the same time; of equals the earlier stays."""
    if decide(champion, rival).moves:
        return False
    return decide(rival, champion).moves or rival_version < version


def _record(registry: Registry, version: RegisteredVersion, decision: Decision) -> None:
    registry.tag(version, {schema.CHAMPION: str(decision.moves).lower(), schema.DECISION: decision.reason})
