"""The model of a finished job becomes a version of a registered model, and its aliases move as the rule says.

Several jobs may register versions of one model at the same time. In a SQLite store they take turns (a lock file beside
it). On a server, which knows no compare-and-set of aliases, a version says that it wins before the alias moves, the
alias is read again right before it moves, and whoever has moved it looks afterwards for others that say so: the one
that the rule prefers has the alias when all have ended, and of equals the earlier one. A process that is killed between
the move and that look can leave the other; both stay versions of the model.
"""

from paretune.core.errors import ParetuneError, first_line
from paretune.core.untrusted import without_secrets
from paretune.models.champion import Decision, Figures, decide
from paretune.models.figures import MOST_ALIKE, condition_of_repeats, figures_in, figures_of, tags_of
from paretune.tracking import TROUBLE, RecordedRun, Tracking, schema
from paretune.tracking.registry import RegisteredVersion, Registry

CANDIDATE, CHAMPION = "candidate", "champion"
"""Aliases: the version that was registered last, and the one that is in use."""
_MOST_ROUNDS = 5  # of reading the champion again because it has changed meanwhile


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
    """Runs of finished jobs with `register` whose model has no version yet, because their command ended too early.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
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
    """Record a decision in the tags of the version."""
    registry.tag(version, {schema.CHAMPION: str(decision.moves).lower(), schema.DECISION: decision.reason})
