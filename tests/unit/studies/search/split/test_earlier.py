"""What a split search begins with: runs of earlier studies, how much they count, and what is said of it."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from paretune import run_study
from paretune.core.clock import SystemClock
from paretune.specification.job import JobSpec
from paretune.studies.results.quality_model import F1_PRIOR, Key, QualityModel, Source
from paretune.studies.search.driver import Driver
from paretune.studies.search.split import search as split
from paretune.studies.search.split.earlier import EarlierStudy, earlier_studies, sources_of
from paretune.studies.search.split.earlier_seconds import EarlierSeconds
from paretune.studies.search.split.learner import Learner
from paretune.studies.search.split.seconds_model import SecondsModel
from paretune.tracking import RunStatus, Tracking, schema
from tests.study_rig import driver_of
from tests.unit.studies.search.split.test_search import ROWS, STUDY, smooth, write_table
from tests.unit.studies.search.split.test_seconds_model import key as cluster
from tests.unit.studies.search.split.test_seconds_model import seconds

RATES, SIZES = (1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4), (16, 32, 64, 128)
GRID: list[Key] = [((), (math.log2(size), math.log(rate), 0.0)) for size in SIZES for rate in RATES]


def f1_at(key: Key) -> float:
    return smooth("", round(2 ** key[1][0]), math.exp(key[1][1]))


def study(f1: Callable[[Key], float] = f1_at, *, is_same_data: bool = True, run_id: str = "first") -> EarlierStudy:
    """An earlier study of every second point of the grid."""
    qualities = tuple((key, f1(key)) for key in GRID[::2])
    return EarlierStudy(
        name="night",
        is_same_data=is_same_data,
        parents=frozenset({run_id}),
        qualities=qualities,
        runs=len(qualities),
    )


def after(keys: list[Key], *earlier: EarlierStudy) -> QualityModel:
    """The model of a study that has measured these points, after earlier studies."""
    sources: list[Source] = sources_of(earlier, {()})
    return QualityModel(keys, [f1_at(key) for key in keys], F1_PRIOR, sources=sources)


def weight(model: QualityModel) -> float:
    return sum(model.surface.weights().values())


GOOD = [key for key in GRID if f1_at(key) > 0.88]
OWN = [GRID[index] for index in (7, 12, 3, 16)]


def test_three_own_values_that_agree_make_an_earlier_study_count_and_the_rest_as_good_as_known() -> None:
    own, others = OWN[:3], [key for key in GOOD if key not in OWN[:3]]
    borrowed, alone = after(own, study()), after(own)

    true = np.array([f1_at(key) for key in others])
    assert weight(borrowed) > 0.9
    assert np.abs(borrowed.predict(others).mean - true).mean() < 0.5 * np.abs(alone.predict(others).mean - true).mean()
    assert np.median(borrowed.predict(others).deviation) < 0.006


@pytest.mark.parametrize(
    "wrong",
    [
        lambda key: 1.5 - f1_at(key),
        lambda key: smooth("", round(2 ** key[1][0]), 8 * math.exp(key[1][1])),
        lambda key: f1_at(key) - 0.2,
    ],
    ids=["inverted", "best at an eighth of the rate", "far below"],
)
def test_an_earlier_study_that_own_values_contradict_loses_its_weight(wrong: Callable[[Key], float]) -> None:
    borrowed, alone = after(OWN, study(wrong)), after(OWN)

    assert weight(borrowed) < 0.05
    assert borrowed.predict(GRID).mean == pytest.approx(alone.predict(GRID).mean, abs=0.005)


def test_other_data_count_less_until_own_values_agree_and_their_level_does_not_matter() -> None:
    def easier(key: Key) -> float:
        return f1_at(key) + 0.05

    before = [weight(after([], study(is_same_data=is_same))) for is_same in (True, False)]
    borrowed = after(OWN, study(easier, is_same_data=False))

    assert 0.5 < before[1] < before[0] < 0.8
    assert weight(borrowed) > before[1]
    assert borrowed.predict(GOOD).mean == pytest.approx([f1_at(key) for key in GOOD], abs=0.012)


def test_of_two_earlier_studies_of_one_name_the_one_that_agrees_counts() -> None:
    good, bad = study(), study(lambda key: 1.5 - f1_at(key), run_id="second")

    found = after(OWN, bad, good).surface.weights()

    assert found[frozenset({"first"}), True] > 0.9 > 0.01 > found.get((frozenset({"second"}), True), 0.0)


def timed(*jobs: tuple[int, int], kind: str, slower: float = 1.0) -> tuple[tuple[Key, float], ...]:
    return tuple((cluster(*job, kind=kind), math.log(slower * seconds(*job))) for job in jobs)


def seconds_after(own: dict[Key, float]) -> SecondsModel:
    """Of a study that begins with jobs on two types, on one of which it has measured these own ones."""
    jobs = ((4, 1), (16, 1), (64, 1), (16, 2))
    earlier = EarlierStudy(
        name="night",
        is_same_data=True,
        parents=frozenset({"first"}),
        log_seconds=(*timed(*jobs, kind="one"), *timed(*jobs, kind="other")),
    )
    return SecondsModel(list(own), [math.log(value) for value in own.values()], EarlierSeconds([earlier]))


OTHER = [cluster(batch, kind="other") for batch in (8, 32)]


def test_one_own_job_on_one_type_tells_the_seconds_on_all_types_of_an_earlier_study() -> None:
    before, after = seconds_after({}), seconds_after({cluster(16, kind="one"): 1.2 * seconds(16)})

    assert before.predict(OTHER).deviation.min() > 0.1
    assert np.exp(after.predict(OTHER).mean) == pytest.approx([1.2 * seconds(8), 1.2 * seconds(32)], rel=0.1)
    assert after.predict(OTHER).deviation.max() < 0.08


def test_own_seconds_that_contradict_one_another_about_an_earlier_study_leave_other_types_open() -> None:
    known = seconds_after({cluster(16, kind="one"): 3 * seconds(16), cluster(64, kind="one"): 0.5 * seconds(64)})

    assert known.predict(OTHER).deviation.min() > 0.3
    assert np.exp(known.predict([cluster(16, kind="one")]).mean) == pytest.approx([3 * seconds(16)], rel=0.2)


@pytest.fixture
def store(workplace: Path) -> Iterator[Tracking]:
    """An MLflow store with an earlier study of the smooth table, and the study beside it."""
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    tracking = Tracking({}, SystemClock())
    _record_study(tracking)
    return tracking


def _record_study(tracking: Tracking, origin: str = "simulated", kind: str = "study", **spec: object) -> None:
    """A study called night, with a run for every other job of the cheap type that fits."""
    parent = tracking.create("study night", {schema.KIND: kind, schema.STUDY: "night"})
    for batch in (16, 32, 64, 128):
        for rate in (1e-5, 3e-5, 1e-4, 3e-4)[batch % 3 % 2 :: 2]:
            did_fit = batch < 128
            end = (
                {schema.STATE: "Completed"}
                if did_fit
                else {schema.STATE: "Failed", schema.FAILURE_REASON: "out of memory"}
            )
            run = tracking.create("job", {schema.PARENT: parent.run_id, schema.ORIGIN: origin, **end})
            job = {"dataset": "someone/reviews", "max_train_samples": ROWS, **spec}
            place = {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": batch, "learning_rate": rate}
            run.log_params(JobSpec(**job, **place).as_text())  # type: ignore[arg-type]
            if did_fit:
                took = 200 + ROWS / batch * (0.02 + batch / 40)
                run.log_metrics({"billable_seconds": took, "f1": smooth("", batch, rate)})
            run.end(RunStatus.FINISHED)


def begun(folder: Path, **typed: str) -> Driver:
    return driver_of(folder, "study.yaml", typed)


def test_only_runs_of_studies_that_had_ended_and_of_the_same_origin_are_borrowed(
    store: Tracking, workplace: Path
) -> None:
    driver = begun(workplace)
    found = earlier_studies(driver)
    _record_study(store)  # while the study runs: a driver that is started again decides the same
    again = earlier_studies(driver)
    _record_study(store, origin="measured")
    later = earlier_studies(begun(workplace, name="later"))

    assert [(study.name, study.is_same_data, len(study.qualities), study.runs) for study in found] == [
        ("night", True, 6, 8)
    ]
    assert again == found
    assert [study.runs for study in later] == [8, 8, 16]  # each by itself, and together; none of what was measured
    assert earlier_studies(begun(workplace, name="alone", borrow="false")) == []
    assert earlier_studies(begun(workplace, name="other", model="roberta-base")) == []
    assert {study.is_same_data for study in earlier_studies(begun(workplace, name="data", dataset="new"))} == {False}


def test_designs_are_borrowed_by_their_names(store: Tracking, workplace: Path) -> None:
    _record_study(store, kind="design")

    found = earlier_studies(begun(workplace))

    assert {study.name for study in found} == {"night", "night and night together"}
    assert [study.runs for study in found] == [8, 8, 16]  # the study, the design and both together


def test_each_of_two_earlier_studies_of_one_name_is_told_once_with_its_own_weight(
    store: Tracking, workplace: Path
) -> None:
    _record_study(store, dataset="someone/else")
    _record_study(store)
    learner = Learner(begun(workplace))

    told = learner.borrowed(learner.learn())

    assert [(one.runs, one.is_same_data) for one in told] == [(8, True), (8, True), (8, False)]
    weights = [one.weight or 0.0 for one in told]
    assert weights[0] == pytest.approx(weights[1]) == pytest.approx(2 * 3 / 10 * 0.75)  # by itself or with the other
    assert weights[2] == pytest.approx(1 / 10 * 0.75)


@pytest.mark.slow
def test_the_second_training_is_the_one_that_a_study_without_earlier_ones_begins_with(
    store: Tracking, workplace: Path
) -> None:
    def trained(driver: Driver) -> list[tuple[int, object]]:
        split.search(driver)
        specs = [JobSpec.read(driver.trials[number].parameters) for number in sorted(driver.trials)]
        return [(spec.plan().global_batch_size, spec.learning_rate) for spec in specs if spec.probe_steps is None]

    cold = trained(begun(workplace, name="cold", borrow="false", n_trials="4"))
    warm = trained(begun(workplace, n_trials="3"))

    assert warm[1] == cold[0] != warm[0]


@pytest.mark.slow
def test_a_study_tries_the_best_of_an_earlier_one_first_and_says_what_it_has_borrowed(
    store: Tracking, workplace: Path
) -> None:
    found = run_study("study.yaml", n_trials=4, quiet=True)

    trials = found.answer.front.trials
    cheap = [trial for trial in trials if trial.point["instance_type"] == "ml.g5.xlarge"]
    best = max(smooth("", 64, rate) for rate in (1e-5, 3e-5, 1e-4, 3e-4))
    assert trials[0].values["f1"] > best - 0.012
    assert not [trial for trial in cheap if trial.parameters.get("probe_steps")]
    assert not [trial for trial in cheap if trial.point["per_device_train_batch_size"] == 128]  # it ran out of memory
    said = "8 runs of study night (same model and data, weight "
    assert f"Borrowed before its first job: {said}" in found.answer.text()
    (told,) = found.to_dict()["borrowed"]
    assert told["weight"] > 0.5
    tags = store.run(found.run_id).tags()
    assert tags[schema.BORROWED].startswith(said)
    assert said in tags[schema.NOTE]
