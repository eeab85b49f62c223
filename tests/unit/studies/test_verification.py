"""What is recommended is trained again: the same job, until it has three runs, or with a reason why not."""

import pytest

from paretune.studies.definition.space import Choices
from paretune.studies.results.front import Configuration, StudyFront
from paretune.studies.results.recommendation import Pick
from paretune.studies.search.driver import Driver
from paretune.studies.search.next_job import RUNS
from paretune.tracking import schema
from tests.support.scripted_jobs import DONE, MEMORY, SMALL
from tests.support.scripted_study import RATES, Desk, repeated, searched


@pytest.fixture(autouse=True)
def scatter(desk: Desk) -> None:
    desk.launcher.scatter = 0.001


def point_at(driver: Driver, rate: float) -> Configuration:
    """Return the point of a learning rate, with all its runs."""
    front = StudyFront.of(list(driver.trials.values()), driver.file.objectives, driver.file.constraints)
    return next(point for point in front.points if point.trial.point["learning_rate"] == rate)


def pick_at(driver: Driver, rate: float) -> Pick:
    return Pick(titles=("the knee",), point=point_at(driver, rate), reason="")


def test_a_recommended_point_is_trained_again_until_it_has_three_runs(desk: Desk) -> None:
    driver = desk.driver()
    searched(driver)

    assert repeated(driver, lambda: [pick_at(driver, RATES[1])]) == (RUNS - 1, {})
    repeats = [
        run
        for trial in point_at(driver, RATES[1]).trials
        for run in desk.tracking.runs(f"attributes.run_id = '{trial.run_id}'")
        if trial.repeats is not None
    ]
    names = [f"trial {number}, repeats 1: b16 lr2e-5 g5.xlarge: F1 .75" for number in (4, 5)]
    assert sorted(run.tags[schema.RUN_NAME][: len(names[0])] for run in repeats) == names
    assert [run.tags[schema.REPEATS] for run in repeats] == ["1", "1"]
    assert sorted(trial.spec.seed for trial in point_at(driver, RATES[1]).trials) == [42, 43, 44]
    assert repeated(driver, lambda: [pick_at(driver, RATES[1])]) == (RUNS - 1, {})


def test_a_point_with_the_largest_seed_is_repeated(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6, "seed": 2**32 - 1})
    searched(driver)

    repeated(driver, lambda: [pick_at(driver, RATES[1])])

    assert {0, 1, 2**32 - 1} <= {trial.spec.seed for trial in point_at(driver, RATES[1]).trials}


ALWAYS_EQUAL = "the training does not depend on the seed: all repeats gave exactly the same values"


@pytest.mark.parametrize(("loss_scatter", "repeats", "reasons"), [(0.0, 2, {ALWAYS_EQUAL}), (0.0002, 4, set())])
def test_a_training_that_does_not_depend_on_the_seed_not_even_in_its_loss_is_repeated_twice_in_all(
    desk: Desk, loss_scatter: float, repeats: int, reasons: set[str]
) -> None:
    driver = desk.driver()
    desk.launcher.scatter, desk.launcher.loss_scatter = 0.0, loss_scatter
    searched(driver)

    count, why = repeated(driver, lambda: [pick_at(driver, rate) for rate in RATES[:2]])

    assert (count, set(why.values())) == (repeats, reasons)
    assert (point_at(driver, RATES[0]).errors["f1"] > 0) == (not reasons)


def test_repeats_never_cost_more_than_the_search_has(desk: Desk) -> None:
    driver = desk.driver(search={"learning_rate": Choices(values=RATES[:1])})
    searched(driver)

    count, why = repeated(driver, lambda: [pick_at(driver, RATES[0])])

    assert count == 1
    assert "all repeats together may not cost more than the search" in why[0]


def test_a_point_whose_repeat_runs_out_of_memory_does_not_keep_others_from_being_repeated(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: (
        MEMORY if spec.per_device_train_batch_size == 16 and spec.seed != 42 else DONE
    )
    driver = desk.driver(search={"per_device_train_batch_size": Choices(values=(16, 8, 4, 2, 1))})
    searched(driver)

    def picks() -> list[Pick]:
        front = StudyFront.of(list(driver.trials.values()), driver.file.objectives, driver.file.constraints)
        points = {point.trial.point["per_device_train_batch_size"]: point for point in front.points}
        return [Pick(titles=("the knee",), point=points[batch], reason="") for batch in (16, 8)]

    _, why = repeated(driver, picks)

    large, small = (pick.point for pick in picks())
    assert (len(large.trials), len(small.trials)) == (1, RUNS)
    assert "ran out of memory" in why[large.number]
