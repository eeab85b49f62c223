"""What earlier studies of the same model have shown, read from their MLflow runs when a study begins.

Only runs count that had ended before the study's own run was opened. So a driver that is started again reads the same
and decides the same, with nothing written down. Simulated runs are for simulated studies alone, measured ones for
measured ones; published ones, and those of a user's own training, are not borrowed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput
from paretune.estimating.memory_limits import Footprint
from paretune.specification import metrics
from paretune.specification.inputs import Model
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting, spell
from paretune.studies.definition.quality import LAST, Quality
from paretune.studies.results.f1_model import Key, quality_key
from paretune.studies.search.default_job import default_job
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.candidates import step_of
from paretune.studies.search.split.rows import rows_of, seconds_of_a_row
from paretune.studies.search.trial_job import PARENT
from paretune.tracking import RecordedJob, RecordedRun, schema

_MOST_RUNS = 1000
"""Runs that are read, the newest: 1.5 ms each."""
_MOST_STUDIES = 6
"""Earlier studies that are borrowed from, those of the same data first, then those with most runs."""
FEWEST = 3
"""Values of F1 of a study that is borrowed from: fewer tell no shape."""
_KINDS = ("study", "design")
"""Kinds of the runs whose jobs are borrowed."""
_DATA = affecting(JobSpec, "data", "evaluation", without=("seconds", "memory"))
"""Parameters that say which rows are trained on and judged on, such as `dataset`."""


@dataclass(frozen=True, kw_only=True)
class EarlierStudy:
    """What one earlier study has shown of the jobs of this one.

    Attributes:
        name: as it is spoken of; of several together, all their names.
        is_same_data: whether it trained and judged on the rows that this study does; else on other data.
        worths: what F1 depends on, and F1 (any quality: more is better).
        log_seconds: what seconds of a row depend on, and their logarithm.
        overheads: number of instances, and billed seconds around a training.
        footprints: what jobs held in memory, and whether it fitted; of the same data alone.
        runs: how many runs all this is from.
        parents: the studies' own runs, for names may be equal; one, or several together.
    """

    name: str
    is_same_data: bool
    parents: frozenset[str]
    worths: tuple[tuple[Key, float], ...] = ()
    log_seconds: tuple[tuple[Key, float], ...] = ()
    overheads: tuple[tuple[int, float], ...] = ()
    footprints: tuple[tuple[Footprint, bool], ...] = ()
    runs: int = 0

    def __add__(self, other: "EarlierStudy") -> "EarlierStudy":
        """Both as one study."""
        return EarlierStudy(
            name=f"{self.name} and {other.name}",
            is_same_data=self.is_same_data and other.is_same_data,
            parents=self.parents | other.parents,
            worths=self.worths + other.worths,
            log_seconds=self.log_seconds + other.log_seconds,
            overheads=self.overheads + other.overheads,
            footprints=self.footprints + other.footprints,
            runs=self.runs + other.runs,
        )


def earlier_studies(driver: Driver) -> list[EarlierStudy]:
    """The earlier studies that are borrowed from; none where `borrow` is false, or MLflow has none.

    Raises:
        TrackingUnavailable: MLflow does not answer. To go on without would be to decide otherwise than before.
    """
    file = driver.file
    spec, quality = default_job(file), file.judged_by
    if not file.borrow or file.is_own or spec is None or quality is None or "model" in file.search:
        return []
    own = driver.workplace.tracking.runs(f"attributes.run_id = '{driver.run_id}'")
    if not own or "'" in spell(spec.model):
        return []
    before_ms = round(own[0].started * 1000)
    runs = _runs_before(driver, spec, before_ms)
    names = _names_before(driver, before_ms) if runs else {}
    return _chosen(_by_study(runs, names, spec, quality, set(file.search)))


def thinned(pairs: Sequence[tuple[Key, float]], most: int) -> tuple[tuple[Key, float], ...]:
    """About so many at most, evenly over all of them."""
    return tuple(pairs[:: math.ceil(len(pairs) / most) or 1])


def _names_before(driver: Driver, before_ms: int) -> dict[str, str]:
    """Own runs of the studies and designs that were begun before this study, to their names; of nights there are none.

    Nights repeat a few points of one job over changing data, and are no study of it.
    """
    tracking = driver.workplace.tracking
    condition = f"attributes.start_time < {before_ms} and tags.`{schema.KIND}`"
    found = [run for kind in _KINDS for run in tracking.runs(f"{condition} = '{kind}'", newest=_MOST_RUNS)]
    return {run.run_id: run.tags.get(schema.STUDY) or f"run {run.run_id[:8]}" for run in found}


def _runs_before(driver: Driver, spec: Model, before_ms: int) -> list[RecordedRun]:
    """Jobs with this model that had ended before this study was begun, and that another run began, the newest first."""
    tracking, origin = driver.workplace.tracking, driver.workplace.launcher.origin
    model = spell(spec.model)
    condition = (
        f"tags.`{schema.ORIGIN}` = '{origin}' and params.model = '{model}' and attributes.end_time < {before_ms}"
    )
    condition += f" and tags.`{PARENT}` LIKE '%' and tags.`{PARENT}` != '{driver.run_id}'"
    ends = (f"tags.`{schema.STATE}` = 'Completed'", f"tags.`{schema.FAILURE_REASON}` LIKE 'out of memory%'")
    found = [run for end in ends for run in tracking.runs(f"{condition} and {end}", newest=_MOST_RUNS)]
    return list({run.run_id: run for run in found}.values())


def _by_study(
    runs: Iterable[RecordedRun], names: Mapping[str, str], spec: JobSpec, quality: Quality, searched: set[str]
) -> list[EarlierStudy]:
    """What each study has shown; the runs of one that are of other data count as another one."""
    found: dict[tuple[str, bool], EarlierStudy] = {}
    for job in map(RecordedJob, runs):
        # A KeyError: begun by no study; otherwise written by another version, or by somebody else.
        with suppress(BadInput, ValueError, KeyError):
            shown = _shown_by(job, names[job.parent_run_id], spec, quality, searched)
            before = found.get((job.parent_run_id, shown.is_same_data))
            found[job.parent_run_id, shown.is_same_data] = (
                shown if before is None else replace(before + shown, name=before.name)
            )
    return list(found.values())


def _shown_by(job: RecordedJob, name: str, own: JobSpec, quality: Quality, searched: set[str]) -> EarlierStudy:
    """What one run has shown, in terms of this study's data."""
    spec = job.request.spec_as_run()
    if spec.runs_own_training or not (job.is_completed or job.ran_out_of_memory):
        raise BadInput(["a script of the user's own may do anything, and a job that was stopped shows nothing"])
    plan = job.request.used_plan(spec)
    theirs = {item: getattr(own, item) for item in _DATA if item not in searched}
    is_same = all(getattr(spec, item) == value for item, value in theirs.items())
    is_told = job.is_completed and spec.probe_steps is None and quality.take == LAST
    worth = job.metric(quality.metric) if is_told else None
    is_whole = job.is_completed and not (
        job.is_of_shared_job or job.cluster.is_spot or job.was_retried or job.metric("resumed")
    )
    seconds, overhead = None, None
    if is_whole:
        rows = rows_of(spec, None) if spec.max_train_samples else None
        seconds, overhead = _seconds(job, rows)
    alike = replace(spec, **theirs)
    return EarlierStudy(
        name=name,
        is_same_data=is_same,
        parents=frozenset({job.parent_run_id}),
        worths=() if worth is None else ((quality_key(alike, plan), quality.sign * worth),),
        log_seconds=() if seconds is None else ((step_of(alike, plan), math.log(seconds)),),
        overheads=() if overhead is None else ((spec.instance_count, overhead),),
        footprints=((Footprint.of(alike, plan), job.is_completed),) if is_same else (),
        runs=1,
    )


def _seconds(job: RecordedJob, rows: float | None) -> tuple[float | None, float | None]:
    """Seconds of a row and around the training; None where the run does not tell them."""
    told = {metrics.BILLABLE_SECONDS, metrics.THROUGHPUT_SAMPLES, metrics.TRAIN_SECONDS}
    measured = {name: value for name in told if (value := job.run.metrics.get(name)) is not None and value > 0}
    if metrics.BILLABLE_SECONDS not in measured or (rows is None and measured.keys() != told):
        return None, None
    return seconds_of_a_row(measured, rows or 1.0)


def _chosen(studies: Iterable[EarlierStudy]) -> list[EarlierStudy]:
    """Studies that tell something; beside those of the same data, all of them as one."""
    kept = [study for study in studies if len(study.worths) >= FEWEST or study.log_seconds]
    kept = sorted(kept, key=lambda study: (not study.is_same_data, -len(study.worths)))[:_MOST_STUDIES]
    same = [study for study in kept if study.is_same_data and len(study.worths) >= FEWEST]
    if len(same) > 1:
        together = same[0]
        for study in same[1:]:
            together += study
        name = f"{together.name} together"
        kept.append(replace(together, name=name, log_seconds=(), overheads=(), footprints=()))  # theirs count already
    return kept
