"""What is recommended is trained again, or there is a reason why not."""

import pytest

from paretune.specification.ending import cut_off
from paretune.studies.definition.space import Choices
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.configurations import Configuration
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page
from paretune.studies.search.driver import Driver
from paretune.studies.search.next_job import RUNS_OF_NOISY_PICK, RUNS_OF_PICK, wanted
from paretune.studies.trial_status import TrialStatus
from paretune.tracking import schema
from tests.support.scripted_jobs import BROKEN, DONE, MEMORY, SMALL
from tests.support.scripted_study import RATES, Desk, repeated, searched
from tests.support.study_examples import COST_AND_F1, trial_of


@pytest.fixture(autouse=True)
def scatter(desk: Desk) -> None:
    desk.launcher.scatter = 0.001


def front_of(driver: Driver, *rates: float) -> StudyFront:
    """Return the front of the trials of a driver, or of those with these learning rates alone."""
    trials = [trial for trial in driver.trials.values() if not rates or trial.point["learning_rate"] in rates]
    return StudyFront.of(trials, driver.file.objectives, driver.file.constraints)


def point_at(driver: Driver, rate: float) -> Configuration:
    """Return the point of a learning rate, with all its runs."""
    return next(point for point in front_of(driver).points if point.trial.point["learning_rate"] == rate)


def repeats_of(usd_of_f1: list[tuple[float, float]], noise: float) -> list[int]:
    """Return the numbers of the configurations that are repeated, in order, if each repeat differs by `noise`."""
    trials = [trial_of(number, usd, f1) for number, (usd, f1) in enumerate(usd_of_f1)]
    numbers = list[int]()
    while True:
        front = StudyFront.of(trials, COST_AND_F1, {})
        lacking = [point.number for point, runs in wanted(front) if point.trained < runs]
        if not lacking:
            return numbers
        first = trials[lacking[0]]
        numbers.append(first.number)
        trials.append(trial_of(len(trials), first.values["cost_usd"], first.values["f1"] - noise, repeats=first.number))


def test_only_the_recommended_point_is_repeated_unless_runs_are_noisy() -> None:
    usd_of_f1 = [(1.0, 0.80), (4.0, 0.95), (2.0, 0.90), (3.0, 0.85)]  # the last one is beaten

    assert repeats_of(usd_of_f1, 0.001) == [1]
    noisy = repeats_of([(usd, 0.9 + f1 / 100) for usd, f1 in usd_of_f1], 0.02)
    assert {0, 1, 2} <= {*noisy}
    assert noisy.count(noisy[0]) == RUNS_OF_NOISY_PICK - 1


def test_a_point_of_the_front_whose_only_run_collapsed_is_run_again_until_one_does_not() -> None:
    trials = [trial_of(0, 4.0, 0.95), trial_of(1, 5.0, 0.96), trial_of(2, 1.0, 0.34), trial_of(3, 6.0, 0.955)]
    trials.append(trial_of(4, 5.0, 0.96, repeats=1))
    front = StudyFront.of(trials, COST_AND_F1, {})
    (collapsed,) = (point for point in front.best if not point.trained)

    assert collapsed.number == 2
    assert (2, 1) in [(point.number, runs) for point, runs in wanted(front)]


def test_a_recommended_point_is_trained_again(desk: Desk) -> None:
    driver = desk.driver()
    searched(driver)

    assert repeated(driver, lambda: front_of(driver, RATES[1])) == (RUNS_OF_PICK - 1, {})
    repeats = [
        run
        for trial in point_at(driver, RATES[1]).trials
        for run in desk.tracking.runs(f"attributes.run_id = '{trial.run_id}'")
        if trial.repeats is not None
    ]
    name = "trial 4, repeats 1: b16 lr2e-5 g5.xlarge: F1 .75"
    assert [run.tags[schema.RUN_NAME][: len(name)] for run in repeats] == [name]
    assert [run.tags[schema.REPEATS] for run in repeats] == ["1"]
    assert sorted(trial.spec.seed for trial in point_at(driver, RATES[1]).trials) == [42, 43]
    assert repeated(driver, lambda: front_of(driver, RATES[1])) == (RUNS_OF_PICK - 1, {})


def test_a_point_with_the_largest_seed_is_repeated(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6, "seed": 2**32 - 1})
    searched(driver)

    repeated(driver, lambda: front_of(driver, RATES[1]))

    assert {0, 2**32 - 1} <= {trial.spec.seed for trial in point_at(driver, RATES[1]).trials}


@pytest.mark.parametrize(("loss_scatter", "repeats"), [(0.0, 2), (0.0002, 4)])
def test_a_training_that_does_not_depend_on_the_seed_not_even_in_its_loss_is_repeated_twice_in_all(
    desk: Desk, loss_scatter: float, repeats: int
) -> None:
    driver = desk.driver()
    desk.launcher.scatter, desk.launcher.loss_scatter = 0.0, loss_scatter
    searched(driver)

    # The three points have the same dollars and F1, so all are on the front, and any noise is large beside no spread.
    assert repeated(driver, lambda: front_of(driver, *RATES[:3])) == (repeats, {})
    assert (point_at(driver, RATES[0]).errors["f1"] > 0) == (loss_scatter > 0)


@pytest.mark.parametrize(("budget_usd", "count"), [(0.15, 1), (100.0, 3)])
def test_repeats_never_cost_more_than_the_search_has_or_a_tenth_of_the_budget(
    desk: Desk, budget_usd: float, count: int
) -> None:
    desk.launcher.judge = lambda spec, times: DONE if spec.seed == 42 else BROKEN
    driver = desk.driver(search={"learning_rate": Choices(values=RATES[:1])}, budget_usd=budget_usd)
    searched(driver)

    made, why = repeated(driver, lambda: front_of(driver))

    assert made == count
    assert ("all repeats together may not cost more than" in why.get(0, "")) == (count == 1)


def test_a_point_whose_repeat_runs_out_of_memory_does_not_keep_others_from_being_repeated(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: (
        MEMORY if spec.per_device_train_batch_size == 16 and spec.seed != 42 else DONE
    )
    desk.launcher.scatter = -0.001  # so that the repeats of the other point do not beat it
    driver = desk.driver(search={"per_device_train_batch_size": Choices(values=(16, 8, 4, 2, 1))})
    searched(driver)

    def front() -> StudyFront:
        trials = [t for t in driver.trials.values() if t.point["per_device_train_batch_size"] in (16, 8)]
        return StudyFront.of(trials, driver.file.objectives, driver.file.constraints)

    _, why = repeated(driver, front)

    points = {point.trial.point["per_device_train_batch_size"]: point for point in front().points}
    large, small = points[16], points[8]
    assert len(large.trials) == 1
    assert "ran out of memory" in why[large.number]
    assert len(small.trials) >= 1


def test_a_point_is_tried_four_times_at_most_even_if_its_repeats_collapse(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: DONE if spec.seed == 42 else BROKEN
    driver = desk.driver()
    searched(driver)

    count, why = repeated(driver, lambda: front_of(driver, RATES[1]))

    assert count == 3
    assert why == {1: "0 of 3 repeats completed"}


CUT = cut_off("it ran longer than its limit")


def test_a_repeat_that_was_cut_off_is_followed_by_one_with_twice_its_limit(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: DONE if spec.seed == 42 else CUT
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 600})
    searched(driver)

    repeated(driver, lambda: front_of(driver, RATES[1]))

    repeats = [trial for trial in driver.trials.values() if trial.repeats == 1]
    limits = [trial.spec.max_runtime_minutes for trial in repeats]
    assert [trial.status for trial in repeats] == [TrialStatus.CUT_OFF] * 3
    assert limits[0] == 15  # the first run took a minute
    assert limits[1] >= 2 * limits[0]
    assert limits[2] >= 2 * limits[1]
    assert {trial.reason for trial in repeats[:1]} == {
        "it ran longer than the 15 m that the study had given it; the next one gets more"
    }


def test_a_repeat_gets_the_whole_limit_of_its_job_if_that_is_short(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6})
    searched(driver)

    repeated(driver, lambda: front_of(driver, RATES[1]))

    assert {trial.spec.max_runtime_minutes for trial in driver.trials.values() if trial.repeats == 1} == {6.0}


def test_that_all_repeats_of_the_recommended_point_were_cut_off_is_said_first(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: DONE if spec.seed == 42 else CUT
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 600})
    searched(driver)
    repeated(driver, lambda: front_of(driver, RATES[1]))

    answer = StudyAnswer(name="s", front=front_of(driver, RATES[1]))

    sentence = (
        "All 3 repeats of trial 1 were cut off at the time limit, so its figures rest on a single run: repeat it "
        "before you rely on them."
    )
    assert answer.opening()[0] == sentence
    text = page(answer)
    assert text.index(sentence) < text.index("Take trial 1")
