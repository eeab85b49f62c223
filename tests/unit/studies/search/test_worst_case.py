"""What a study promises for a job before it begins it."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.deadlines import BEFORE_CONTAINER_S, LONGEST_BEFORE_CONTAINER_S, UNKNOWN_MODEL_BYTES
from paretune.specification.container import JobInputs
from paretune.studies.results.answer import Pick
from paretune.studies.results.front import StudyFront
from paretune.studies.run import run_study
from paretune.studies.search.driver import Driver, Start
from paretune.studies.search.next_job import Sampled, some_jobs
from tests.scripted_study import repeated, until_ended
from tests.unit.studies.search.test_split import write_table
from tests.workplaces import driver_of

STUDY = """
name: default
job: {launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: 60000}
search:
  instance_type: {choices: [ml.g5.12xlarge, ml.g5.xlarge]}
  per_device_train_batch_size: {choices: [16, 32, 64, 128]}
  learning_rate: {choices: [1e-5, 3e-5, 1e-4, 3e-4]}
n_trials: 32
sampler: random
"""
USD_PER_HOUR = 1.408  # of the ml.g5.xlarge, us-east-1


def made(folder: Path, **typed: str) -> Driver:
    write_table(folder / "table.csv")
    (folder / "study.yaml").write_text(STUDY)
    return driver_of(folder, "study.yaml", {"instance_type": "ml.g5.xlarge", "max_runtime_minutes": "90"} | typed)


def test_a_job_of_which_nothing_is_known_may_cost_its_whole_limit(workplace: Path) -> None:
    driver = made(workplace, budget_usd="50", model="someone/unheard-of")
    (spec, *_) = some_jobs(driver.file, 1)

    assert driver.money.limited(spec) == spec
    upload_s = 60 + UNKNOWN_MODEL_BYTES / 10e6
    most_s = 90 * 60 + LONGEST_BEFORE_CONTAINER_S - BEFORE_CONTAINER_S + upload_s
    assert driver.workplace.launcher.worst_case_usd(spec) == pytest.approx(most_s / 3600 * USD_PER_HOUR)


def test_an_estimated_job_may_take_four_times_the_upper_end_of_its_interval(workplace: Path) -> None:
    week = str(7 * 24 * 60)
    driver = made(workplace, budget_usd="50", max_runtime_minutes=week)
    (spec, *_) = some_jobs(driver.file, 1)
    estimate = driver.workplace.forecast.of(spec, spec.plan(), JobInputs(), None)

    assert estimate is not None
    high = estimate.time.seconds_high / 60
    expected = 4 * high + min(5, high)
    assert driver.money.limited(spec).max_runtime_minutes == pytest.approx(expected, abs=0.1)
    without = made(workplace, max_runtime_minutes=week)
    assert without.money.limited(spec) == spec


def test_a_repeat_of_a_job_that_was_billed_for_no_second_may_take_what_is_estimated(workplace: Path) -> None:
    driver = made(workplace, budget_usd="50")
    (spec, *_) = some_jobs(driver.file, 1)
    estimated = driver.money.limited(spec)

    driver.money.learn(1, {spec.spec_hash(but=["seed"]): 0.0})

    assert driver.money.limited(spec) == estimated


def test_a_repeat_may_take_twice_what_its_trial_took_whatever_limit_that_had(workplace: Path) -> None:
    week = str(7 * 24 * 60)  # without a limit of its own, a repeat would be refused for 237 USD
    driver = made(workplace, budget_usd="8", max_runtime_minutes=week, model="someone/unheard-of", n_trials="1")
    point = {"per_device_train_batch_size": 16, "learning_rate": 3e-5}
    assert driver.begin(Start(point, {"max_runtime_minutes": 90.0})) == ""
    until_ended(driver)
    (trial,) = driver.trials.values()

    front = StudyFront.of(list(driver.trials.values()), driver.file.objectives, driver.file.constraints)
    pick = Pick(titles=("the knee",), point=front.points[0], reason="")
    assert repeated(driver, lambda: [pick])[0] == 1

    repeat = list(driver.trials.values())[-1]
    took = driver.trials[trial.number].measured["job_seconds"] / 60
    assert (repeat.repeats, float(trial.given["max_runtime_minutes"])) == (trial.number, 90.0)
    assert float(repeat.given["max_runtime_minutes"]) == pytest.approx(2 * took + min(5, took), abs=0.1)


LIMITED = """
name: limited
job: {{launcher: simulated, model: bert-base-uncased, dataset: a/b, max_runtime_minutes: {minutes},
  instance_type: ml.g5.xlarge, max_train_samples: 3000, max_eval_samples: 300}}
objectives: {{job_seconds: minimize, cost_usd: minimize}}
search:
  num_train_epochs: {{choices: [1, 100]}}
sampler: {sampler}
n_trials: 4
"""


def test_a_point_that_its_limit_would_end_is_not_tried(workplace: Path) -> None:
    (workplace / "study.yaml").write_text(LIMITED.format(minutes=10, sampler="random"))
    result = run_study("study.yaml")

    assert [trial.point["num_train_epochs"] for trial in result.answer.front.trials] == [1]
    assert "every other point was tried; not tried: 1 that max_runtime_minutes would end" in result.ending


def test_a_study_is_refused_only_if_the_limit_would_end_all_its_points(workplace: Path) -> None:
    (workplace / "study.yaml").write_text(LIMITED.format(minutes=0.1, sampler="grid"))

    with pytest.raises(BadInput, match="none of the study's jobs can be launched: max_runtime_minutes must be"):
        run_study("study.yaml")
    assert isinstance(Sampled(driver_of(workplace, "study.yaml", {"force": "limit"})).propose(), Start)
