"""What a study proposes, and what it reserves for a job before the job begins."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.deadlines import BEFORE_CONTAINER_S, LONGEST_BEFORE_CONTAINER_S, UNKNOWN_MODEL_BYTES
from paretune.launchers.offers import worst_case_usd
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import Trial
from paretune.studies.run import run_study
from paretune.studies.search.driver import Driver, Start
from paretune.studies.search.next_job import Sampled, Split, some_jobs
from paretune.studies.trial_status import TrialStatus
from tests.support.scripted_study import repeated, until_ended
from tests.support.workplaces import driver_of

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
BATCHES = (16, 32, 64, 128)
TYPES = {"ml.g5.xlarge": (1.408, 1, 64), "ml.g5.12xlarge": (7.09, 4, 128)}
"""Dollars per hour, devices, and the largest per-device batch that fits."""
ROWS = 60_000


def smooth(global_batch: int, rate: float) -> float:
    """Return an F1 that depends only on batch and rate, best if the rate follows the square root of the batch."""
    best = math.log(5e-5 * math.sqrt(global_batch / 32))
    return 0.92 - 0.01 * abs(math.log2(global_batch / 64)) - 0.015 * (math.log(rate) - best) ** 2


def write_table(path: Path) -> None:
    """Write the table of all jobs."""
    lines = ["instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"]
    for (name, (_, devices, largest)), batch, rate in itertools.product(TYPES.items(), BATCHES, RATES):
        size = batch * devices
        seconds = 200 + ROWS / size * (0.02 + batch / 40)
        done = f"{seconds:.2f},{smooth(size, rate):.5f},Completed" if batch <= largest else ",,OutOfMemory"
        lines.append(f"{name},1,{batch},{rate},{done}")
    path.write_text("\n".join(lines) + "\n")


STUDY = f"""
name: split
job: {{launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: {ROWS},
  max_runtime_minutes: 3000}}
search:
  instance_type: {{choices: [{", ".join(TYPES)}]}}
  per_device_train_batch_size: {{choices: [{", ".join(map(str, BATCHES))}]}}
  learning_rate: {{choices: [{", ".join(map(str, RATES))}]}}
budget_usd: 500
"""


def made(folder: Path, text: str = STUDY, **typed: str) -> Driver:
    """Return a driver of that study, whose jobs are replayed from the table."""
    write_table(folder / "table.csv")
    (folder / "study.yaml").write_text(text)
    return driver_of(folder, "study.yaml", typed)


def random(folder: Path, **typed: str) -> Driver:
    """Return a driver of a random search on one type."""
    usual = {"sampler": "random", "n_trials": "32", "instance_type": "ml.g5.xlarge", "max_runtime_minutes": "90"}
    return made(folder, STUDY.replace("budget_usd: 500\n", ""), **usual | typed)


def test_a_type_whose_probe_is_refused_hides_no_other_type(workplace: Path) -> None:
    dear_first = STUDY.replace("[ml.g5.xlarge, ml.g5.12xlarge]", "[ml.g5.12xlarge, ml.g5.xlarge]")
    driver = made(workplace, dear_first, budget_usd="0.5")  # two probes of the expensive type: 0.52

    driver.run(Split(driver).propose)

    assert {trial.point["instance_type"] for trial in driver.trials.values()} == {"ml.g5.xlarge"}


def test_rows_of_data_that_nobody_has_counted_are_learned_from_the_first_training(workplace: Path) -> None:
    write_table(workplace / "table.csv")
    lines = (workplace / "table.csv").read_text().splitlines()
    table = [f"{lines[0]},train_rows", *(f"{line},{ROWS}" for line in lines[1:])]
    (workplace / "table.csv").write_text("\n".join(table) + "\n")
    bound = "constraints: {train_seconds: {max: 100000}}"
    (workplace / "study.yaml").write_text(STUDY.replace(f"max_train_samples: {ROWS},", "") + bound)
    driver = driver_of(workplace, "study.yaml", {"n_trials": "5"})
    searching = Split(driver)
    driver.run(searching.propose)

    expected = searching.expected()

    assert expected
    measured = next(trial.measured for trial in driver.trials.values() if "train_seconds" in trial.measured)
    startup_s = measured["billable_seconds"] - measured["train_seconds"]
    assert startup_s > 60
    for trial in (point.trial for point in expected):
        assert trial.plan is not None
        usd, *_ = TYPES[str(trial.point["instance_type"])]
        true = 200 + ROWS / trial.plan.global_batch_size * (0.02 + trial.plan.per_device_train_batch_size / 40)
        assert trial.values["cost_usd"] == pytest.approx(true * usd / 3600, rel=0.25)
        billed_s = trial.values["cost_usd"] / usd * 3600
        assert trial.values["train_seconds"] == pytest.approx(billed_s - startup_s)


def test_a_study_of_throughput_and_f1_is_searched_as_one_of_seconds(workplace: Path) -> None:
    goals = "objectives: {throughput_samples_per_second: maximize, f1: maximize}"
    driver = made(workplace, STUDY + goals, n_trials="3")

    driver.run(Split(driver).propose)

    trained = [trial for trial in driver.trials.values() if not trial.is_probe]
    completed = [trial.values.keys() for trial in trained if trial.status is TrialStatus.COMPLETED]
    assert len(trained) == 3
    assert completed == [{"throughput_samples_per_second", "f1"}] * len(completed)
    assert len(completed) >= 2  # a batch may not fit in memory


@pytest.mark.parametrize(("budget_usd", "trained"), [("0.5", 0), ("1.6", 1), ("6", 2)])
@pytest.mark.slow
def test_a_small_budget_goes_into_trainings_and_what_it_cannot_pay_is_never_asked(
    workplace: Path, budget_usd: str, trained: int
) -> None:
    driver = made(workplace, budget_usd=budget_usd, max_runtime_minutes="10080")

    assert "job's worst case fits what is left of the budget" in driver.run(Split(driver).propose)
    assert len([trial for trial in driver.trials.values() if "f1" in trial.values]) >= trained
    assert len(driver.table.study.get_trials()) == len(driver.trials)
    assert driver.table.balance().spent_usd <= float(budget_usd)


@pytest.mark.parametrize("money", [{"n_trials": "9"}, {"budget_usd": "500"}])
def test_a_search_whose_jobs_may_all_cost_more_than_max_cost_usd_names_that(
    workplace: Path, money: dict[str, str]
) -> None:
    driver = made(workplace, STUDY.replace("budget_usd: 500\n", ""), max_cost_usd="0.01", **money)

    assert driver.run(Split(driver).propose).startswith("no job's worst case fits max_cost_usd: raise it")


@pytest.mark.parametrize("money", [{"n_trials": "99"}, {"budget_usd": "500"}])
def test_a_type_whose_probes_exceed_max_cost_usd_does_not_hide_why_a_search_ended(
    workplace: Path, money: dict[str, str]
) -> None:
    unmet = STUDY.replace("budget_usd: 500\n", "constraints: {job_seconds: {max: 60}}\n")
    driver = made(workplace, unmet, max_runtime_minutes="60", max_cost_usd="1.6", stop="auto", **money)

    ending = driver.run(Split(driver).propose)

    assert {trial.point["instance_type"] for trial in driver.trials.values()} == {"ml.g5.xlarge"}
    assert ending == "no job is expected to meet job_seconds of at most 60"


@pytest.mark.parametrize("money", [{"n_trials": "9"}, {"budget_usd": "100"}])
def test_a_search_whose_jobs_are_estimated_to_exceed_their_limit_names_that_limit(
    workplace: Path, money: dict[str, str]
) -> None:
    text = LIMITED.format(minutes=2, sampler="split").replace("job_seconds: minimize", "f1: maximize")
    (workplace / "study.yaml").write_text(text)
    driver = driver_of(workplace, "study.yaml", money)

    ending = "the estimates of all jobs exceed max_runtime_minutes (raise it, or set force=limit)"
    assert driver.run(Split(driver).propose) == ending
    forced = driver_of(workplace, "study.yaml", money | {"force": "limit"})
    assert isinstance(Split(forced).propose(), Start)


USD_PER_HOUR = 1.408  # of ml.g5.xlarge in us-east-1


def test_a_job_of_which_nothing_is_known_may_cost_its_whole_limit(workplace: Path) -> None:
    driver = random(workplace, budget_usd="50", model="someone/unheard-of")
    (spec, *_) = some_jobs(driver.file)

    assert driver.money.limits.shortest(spec) == spec
    upload_s = 60 + UNKNOWN_MODEL_BYTES / 10e6
    most_s = 90 * 60 + LONGEST_BEFORE_CONTAINER_S - BEFORE_CONTAINER_S + upload_s
    assert worst_case_usd(spec, driver.workplace.launcher, {}) == pytest.approx(most_s / 3600 * USD_PER_HOUR)


def test_an_estimated_job_may_take_four_times_the_upper_end_of_its_interval_also_if_one_was_billed_for_no_second(
    workplace: Path,
) -> None:
    week = str(7 * 24 * 60)
    driver = random(workplace, budget_usd="50", max_runtime_minutes=week)
    (spec, *_) = some_jobs(driver.file)
    estimate = driver.workplace.estimate(spec, JobInputs())

    assert estimate is not None
    high = estimate.time.seconds_high / 60
    expected = 4 * high + min(5, high)
    assert driver.money.limits.shortest(spec).max_runtime_minutes == pytest.approx(expected, abs=0.1)
    free = Trial(
        number=0, point={}, status=TrialStatus.COMPLETED, given=spec.given_text(), measured={"job_seconds": 0.0}
    )
    driver.money.limits.add(free)
    assert driver.money.limits.shortest(spec).max_runtime_minutes == pytest.approx(expected, abs=0.1)
    without = random(workplace, max_runtime_minutes=week)
    assert without.money.limits.shortest(spec) == spec


def test_a_repeat_may_take_twice_what_its_trial_took_whatever_limit_that_had(workplace: Path) -> None:
    week = str(7 * 24 * 60)  # without its own limit, a repeat would be refused: its worst case is 237 USD
    driver = random(workplace, budget_usd="8", max_runtime_minutes=week, model="someone/unheard-of", n_trials="1")
    point = {"per_device_train_batch_size": 16, "learning_rate": 3e-5}
    assert driver.begin(Start(point, {"max_runtime_minutes": 90.0})) == ""
    until_ended(driver)
    (trial,) = driver.trials.values()

    front = StudyFront.of(list(driver.trials.values()), driver.file.objectives, driver.file.constraints)
    assert repeated(driver, lambda: front)[0] == 1

    repeat = list(driver.trials.values())[-1]
    took = driver.trials[trial.number].measured["job_seconds"] / 60
    assert (repeat.repeats, float(trial.given["max_runtime_minutes"])) == (trial.number, 90.0)
    assert float(repeat.given["max_runtime_minutes"]) == pytest.approx(2 * took + min(5, took), abs=0.1)


@pytest.mark.parametrize("trained", [3, 4])
def test_from_four_trainings_on_a_search_keeps_the_dollars_of_a_repeat_whatever_limit_its_trial_had(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, trained: int
) -> None:
    driver = made(workplace, budget_usd="12")
    point = {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 16}
    for rate in (3e-5, 1e-5, 1e-4, 3e-4)[:trained]:
        assert driver.begin(Start({**point, "learning_rate": rate}, {"max_runtime_minutes": 33.0})) == ""  # takes 30
        until_ended(driver)
    kept, affordable = list[float](), driver.money.affordable

    def spied(*, keep_usd: float = 0.0) -> Callable[[JobSpec], bool]:
        kept.append(keep_usd)
        return affordable(keep_usd=keep_usd)

    monkeypatch.setattr(driver.money, "affordable", spied)
    Split(driver).propose()

    trial = min(driver.trials.values(), key=lambda each: -each.values["f1"])
    again = driver.money.worst_usd(driver.money.limits.shortest(driver.file.spec_at(trial.point)))
    assert again is not None
    assert again < 1.5 * (trial.cost_usd or 0.0)  # 1.15 times its seconds, and a slow start
    assert kept[-1] == (pytest.approx(again) if trained == 4 else 0.0)


@pytest.mark.parametrize(
    ("cut_off_minutes", "expected", "minutes"),
    [
        (None, (1800.0, 0.0), [65.0, 35.0]),  # twice half an hour, or where dollars are short once, and five minutes
        (None, (60.0, 0.0), [15.0, 2.0]),
        (None, (1800.0, 0.1), [78.3, 41.7, 38.2]),  # of half an hour and two standard deviations, at last one
        (None, (600.0, 5.0), [85.0, 45.0]),  # of at most four times the prediction
        (30.0, (600.0, 0.0), [60.0]),
    ],
)
def test_a_predicted_job_gets_twice_its_time_or_the_time_alone_and_twice_the_limit_that_ended_an_equal_one(
    workplace: Path, cut_off_minutes: float | None, expected: tuple[float, float], minutes: list[float]
) -> None:
    driver = random(workplace, budget_usd="50")
    spec = JobSpec(entry_script="train.py", instance_type="ml.g5.xlarge", max_runtime_minutes=90)
    if cut_off_minutes is not None:
        given = spec.replace(max_runtime_minutes=cut_off_minutes, seed=7).given_text()
        driver.money.limits.add(Trial(number=0, point={}, status=TrialStatus.CUT_OFF, given=given))

    assert [each.max_runtime_minutes for each in driver.money.limits.of(spec, expected)] == minutes


def test_probes_without_a_prediction_get_a_quarter_of_an_hour_and_twice_as_long_after_one_was_cut_off(
    workplace: Path,
) -> None:
    driver = made(workplace)
    probe = JobSpec(dataset="someone/reviews", max_train_samples=ROWS, probe_steps=30, max_runtime_minutes=3000)
    limits = list[list[float]]()
    for number in range(3):
        limits.append([each.max_runtime_minutes for each in driver.money.limits.of(probe)])
        given = probe.replace(max_runtime_minutes=limits[-1][0], num_train_epochs=number + 2).given_text()
        driver.money.limits.add(Trial(number=number, point={}, status=TrialStatus.CUT_OFF, given=given))

    assert limits == [[15.0], [30.0], [60.0]]


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


def test_points_that_the_limit_would_end_are_not_tried_and_a_study_of_no_others_is_refused(workplace: Path) -> None:
    (workplace / "study.yaml").write_text(LIMITED.format(minutes=10, sampler="random"))
    result = run_study("study.yaml")

    assert [trial.point["num_train_epochs"] for trial in result.answer.front.trials] == [1]
    assert (
        "every other point was tried; 1 point was skipped because its estimate exceeds max_runtime_minutes"
        in result.ending
    )

    other = LIMITED.format(minutes=0.1, sampler="grid").replace("name: limited", "name: other")
    (workplace / "study.yaml").write_text(other)
    with pytest.raises(BadInput, match="none of the study's jobs can be launched: max_runtime_minutes must be"):
        run_study("study.yaml")
    assert isinstance(Sampled(driver_of(workplace, "study.yaml", {"force": "limit"})).propose(), Start)
