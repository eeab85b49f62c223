"""Results of earlier studies of the same model, read from their MLflow runs when a study begins.

Only runs that had ended before the study's own run was opened count. So a driver that is started again reads the same
runs and makes the same decisions. Simulated studies use simulated runs only, measured studies measured ones; published
runs, and those of a user's own training, are not used.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput
from paretune.estimating.memory_limits import Footprint
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting, spell
from paretune.studies.definition.quality import LAST, Quality
from paretune.studies.results.quality_model import F1_PRIOR, Key, QualityModel, Source, quality_key
from paretune.studies.search.default_job import default_job
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.candidates import step_of
from paretune.studies.search.split.rows import rows_of, seconds_of_a_row
from paretune.tracking import RecordedJob, RecordedRun, schema

_MOST_RUNS = 1000
"""Runs that are read, the newest: 1.5 ms each."""
_MOST_STUDIES = 6
"""Earlier studies that are borrowed from, those of the same data first, then those with most runs."""
FEWEST = 3
"""Values of F1 that an earlier study must have: fewer show no shape."""
_MOST_VALUES = 80
"""Values of F1 that the surface of an earlier study is fitted to."""
_NONE = {True: 0.25, False: 0.4}
"""Probability that earlier studies tell nothing, where one of them is of the same data, and where none is."""
_DIFFERENCES = {True: {0.003: 0.5, 0.007: 0.3, 0.02: 0.2}, False: {0.003: 0.1, 0.007: 0.4, 0.02: 0.5}}
"""Standard deviations of the difference between two studies with their probabilities, for the same and other data."""
_KIN = {True: 3.0, False: 1.0}  # times as likely as a study of other data is to be the one that tells most
_LEVEL = {True: 0.01, False: 0.1}  # standard deviation of the level that two studies differ by
_KINDS = ("study", "design")
"""Kinds of the runs whose jobs are borrowed."""
_DATA = affecting(JobSpec, "data", "evaluation", without=("seconds", "memory"))
"""Parameters that say which rows are trained on and judged on, such as `dataset`."""


@dataclass(frozen=True, kw_only=True)
class EarlierStudy:
    """Results of one earlier study that tell something about the jobs of this one.

    Attributes:
        name: of the study; of several together, all their names.
        is_same_data: whether it trained and judged on the rows that this study does; else on other data.
        qualities: quality keys, and F1 or another quality, of which more is better.
        log_seconds: step keys, and the logarithm of the seconds of a row.
        overheads: number of instances, and billed seconds around a training.
        footprints: memory footprints of jobs, and whether they fitted; of the same data alone.
        runs: number of runs.
        parents: the studies' own runs, because names may be equal.
    """

    name: str
    is_same_data: bool
    parents: frozenset[str]
    qualities: tuple[tuple[Key, float], ...] = ()
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
            qualities=self.qualities + other.qualities,
            log_seconds=self.log_seconds + other.log_seconds,
            overheads=self.overheads + other.overheads,
            footprints=self.footprints + other.footprints,
            runs=self.runs + other.runs,
        )


def earlier_studies(driver: Driver) -> list[EarlierStudy]:
    """The earlier studies to learn from; none if `borrow` is false, or if MLflow has none.

    Raises:
        TrackingUnavailable: MLflow does not answer. Without these studies a driver would decide otherwise than before.
    """
    file = driver.file
    spec, quality = default_job(file), file.judged_by
    if not file.borrow or file.is_own or spec is None or quality is None or "model" in file.search:
        return []
    study_runs = driver.workplace.tracking.runs(f"attributes.run_id = '{driver.run_id}'")
    if not study_runs or "'" in spell(spec.model):
        return []
    before_ms = round(study_runs[0].started * 1000)
    runs = _runs_before(driver, spec, before_ms)
    names = _names_before(driver, before_ms) if runs else {}
    return _chosen(_by_study(runs, names, spec, quality, set(file.search)))


def sources_of(studies: Iterable[EarlierStudy], kinds: set[tuple[str, ...]]) -> list[Source]:
    """Surfaces of the studies that have enough values of F1 of jobs of these kinds, as hypotheses about this one."""
    values = {study: [pair for pair in study.qualities if pair[0][0] in kinds] for study in studies}
    useful = {study: thinned(pairs, _MOST_VALUES) for study, pairs in values.items() if len(pairs) >= FEWEST}
    kin = sum(_KIN[study.is_same_data] for study in useful)
    some = 1 - _NONE[any(study.is_same_data for study in useful)]
    sources = []
    for study, pairs in useful.items():
        model = QualityModel([key for key, _ in pairs], [value for _, value in pairs], F1_PRIOR)
        share = some * _KIN[study.is_same_data] / kin
        sizes = {size: share * likely for size, likely in _DIFFERENCES[study.is_same_data].items()}
        level = _LEVEL[study.is_same_data]
        name = study.parents, study.is_same_data
        sources.append(Source(name=name, surface=model.surface, sizes=sizes, level=level))
    return sources


def thinned(pairs: Sequence[tuple[Key, float]], most: int) -> tuple[tuple[Key, float], ...]:
    """At most about `most` pairs, evenly spread over all of them."""
    return tuple(pairs[:: math.ceil(len(pairs) / most) or 1])


def _names_before(driver: Driver, before_ms: int) -> dict[str, str]:
    """Run ids of the studies and designs that were begun before this study, to their names."""
    tracking = driver.workplace.tracking
    condition = f"attributes.start_time < {before_ms} and tags.`{schema.KIND}`"
    runs = [run for kind in _KINDS for run in tracking.runs(f"{condition} = '{kind}'", newest=_MOST_RUNS)]
    return {run.run_id: run.tags.get(schema.STUDY) or f"run {run.run_id[:8]}" for run in runs}


def _runs_before(driver: Driver, spec: JobSpec, before_ms: int) -> list[RecordedRun]:
    """Runs of other studies' jobs with this model that had ended before this study was begun, the newest first."""
    tracking, origin = driver.workplace.tracking, driver.workplace.launcher.origin
    model = spell(spec.model)
    condition = (
        f"tags.`{schema.ORIGIN}` = '{origin}' and params.model = '{model}' and attributes.end_time < {before_ms}"
    )
    condition += f" and tags.`{schema.PARENT}` LIKE '%' and tags.`{schema.PARENT}` != '{driver.run_id}'"
    ends = (f"tags.`{schema.STATE}` = 'Completed'", f"tags.`{schema.FAILURE_REASON}` LIKE 'out of memory%'")
    runs = [run for end in ends for run in tracking.runs(f"{condition} and {end}", newest=_MOST_RUNS)]
    return list({run.run_id: run for run in runs}.values())


def _by_study(
    runs: Iterable[RecordedRun], names: Mapping[str, str], spec: JobSpec, quality: Quality, searched: set[str]
) -> list[EarlierStudy]:
    """The runs gathered by study; runs of a study that used other data count as another study."""
    studies: dict[tuple[str, bool], EarlierStudy] = {}
    for job in map(RecordedJob, runs):
        # KeyError: no study has begun it. Others: another version, or another program, has written it.
        with suppress(BadInput, ValueError, KeyError):
            result = _result_of(job, names[job.parent_run_id], spec, quality, searched)
            key = job.parent_run_id, result.is_same_data
            before = studies.get(key)
            studies[key] = result if before is None else replace(before + result, name=before.name)
    return list(studies.values())


def _result_of(job: RecordedJob, name: str, default: JobSpec, quality: Quality, searched: set[str]) -> EarlierStudy:
    """The results of one run, as if it had used this study's data."""
    spec = job.request.spec_as_run()
    if spec.runs_own_training or not (job.is_completed or job.ran_out_of_memory):
        raise BadInput(["a script of the user's own may do anything, and a job that was stopped shows nothing"])
    plan = job.request.used_plan(spec)
    own_data = {item: getattr(default, item) for item in _DATA if item not in searched}
    is_same = all(getattr(spec, item) == value for item, value in own_data.items())
    has_quality = job.is_completed and spec.probe_steps is None and quality.take == LAST
    value = job.metric(quality.metric) if has_quality else None
    is_whole = job.is_completed and not (job.cluster.is_spot or job.was_retried or job.metric("resumed"))
    seconds, overhead = None, None
    if is_whole:
        rows = rows_of(spec, None) if spec.max_train_samples else None
        seconds, overhead = _seconds(job, rows)
    alike = spec.replace(**own_data)
    return EarlierStudy(
        name=name,
        is_same_data=is_same,
        parents=frozenset({job.parent_run_id}),
        qualities=() if value is None else ((quality_key(alike, plan), quality.sign * value),),
        log_seconds=() if seconds is None else ((step_of(alike, plan), math.log(seconds)),),
        overheads=() if overhead is None else ((spec.instance_count, overhead),),
        footprints=((Footprint.of(alike, plan), job.is_completed),) if is_same else (),
        runs=1,
    )


def _seconds(job: RecordedJob, rows: float | None) -> tuple[float | None, float | None]:
    """Seconds of a row and around the training, or None if the run has not recorded them."""
    needed = {metrics.BILLABLE_SECONDS, metrics.THROUGHPUT_SAMPLES, metrics.TRAIN_SECONDS}
    measured = {name: value for name in needed if (value := job.run.metrics.get(name)) is not None and value > 0}
    if metrics.BILLABLE_SECONDS not in measured or (rows is None and measured.keys() != needed):
        return None, None
    return seconds_of_a_row(measured, rows or 1.0)


def _chosen(studies: Iterable[EarlierStudy]) -> list[EarlierStudy]:
    """The most useful studies, and all of those with the same data together as one more."""
    useful = [study for study in studies if len(study.qualities) >= FEWEST or study.log_seconds]
    useful = sorted(useful, key=lambda study: (not study.is_same_data, -len(study.qualities)))[:_MOST_STUDIES]
    same = [study for study in useful if study.is_same_data and len(study.qualities) >= FEWEST]
    if len(same) > 1:
        together = same[0]
        for study in same[1:]:
            together += study
        name = f"{together.name} together"
        useful.append(replace(together, name=name, log_seconds=(), overheads=(), footprints=()))  # counted already
    return useful
