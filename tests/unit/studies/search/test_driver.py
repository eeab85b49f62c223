"""A driver and its method, on a launcher whose jobs end as a test wants, with real storage and a real MLflow."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.tracking._tracking_service.utils import _get_store
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LaunchRefused,
    LostContact,
    TrackingUnavailable,
)
from paretune.core.interruption import Interruption
from paretune.jobs.follow import Sync
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, WarmPoolStatus
from paretune.launchers.deadlines import Output
from paretune.launchers.processes import process_text
from paretune.presentation.text import usd
from paretune.specification.container import JobInputs, JobReport
from paretune.specification.ending import Cause, cut_off, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.price import Price
from paretune.studies.definition.space import Choices, Range
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver, Start
from paretune.studies.search.ended_trials import MOST_REFUSED, EndedTrials
from paretune.studies.search.table import StudyTable
from paretune.studies.trial_status import TrialStatus
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking
from tests.support.scripted_jobs import (
    BROKEN,
    CAPACITY,
    DONE,
    ENDLESS,
    INTERNAL,
    LARGE,
    MEMORY,
    OTHER,
    SECONDS,
    SMALL,
    End,
    ScriptedJob,
)
from tests.support.scripted_study import RATES, Desk, JudgedLauncher, always_done, searched, until_ended
from tests.support.tags import tags_of

USD = SECONDS / 3600  # of each job, at one dollar an hour
CUT_OFF = cut_off("it ran longer than 6 m")
QUOTA = LaunchRefused("the account-level quota is 0 instances")
KEEPING = {"instance_type": SMALL, "max_runtime_minutes": 6, "sagemaker": {"keep_alive_minutes": 60}}


def rates(driver: Driver, *statuses: TrialStatus) -> list[float]:
    expected = statuses or (TrialStatus.COMPLETED,)
    return sorted(float(trial.point["learning_rate"]) for trial in driver.trials.values() if trial.status in expected)


def test_a_grid_is_tried_once_and_its_bill_adds_up(desk: Desk) -> None:
    driver = desk.driver(n_parallel=2)
    assert searched(driver) == "every point was tried"

    assert rates(driver) == list(RATES)
    assert driver.table.balance().spent_usd == pytest.approx(4 * USD)
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert sum(run.data.metrics["cost_usd"] for run in runs) == pytest.approx(4 * USD)
    assert {tags_of(run)["mlflow.parentRunId"] for run in runs} == {desk.run_id}

    again = desk.next_driver()
    assert searched(again) == "every point was tried"
    assert len(desk.launcher.created) == 4  # it is not paid for again


def test_every_row_of_a_large_design_is_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paretune.studies.search.next_job._MOST_POINTS", len(RATES) - 1)
    driver = desk.driver(search={}, points={"full": {"learning_rate": list(RATES)}}, sampler=None)

    assert searched(driver) == "every point was tried"
    assert rates(driver) == list(RATES)


def test_a_trial_is_admitted_as_every_job_is_and_refused_before_it_is_paid(desk: Desk) -> None:
    class Full(JudgedLauncher):
        def fit(self, spec: JobSpec, place: Mapping[str, Any], inputs: JobInputs) -> Mapping[str, Any]:
            if spec.learning_rate == RATES[0]:
                raise BadInput(["the disk is too small for its data"])
            return super().fit(spec, place, inputs)

    desk.launcher = Full(always_done)
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6, "global_batch_size": 512})
    searched(driver)

    assert rates(driver) == list(RATES[1:])
    (refused,) = (trial for trial in driver.trials.values() if trial.status is TrialStatus.FAILED)
    assert (refused.reason, refused.cost_usd) == ("the disk is too small for its data", 0.0)
    assert len(desk.launcher.created) == 3
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.state` = 'Completed'")
    assert {"is not scaled" in tags_of(run)["paretune.warnings"] for run in runs} == {True}


def test_points_that_cannot_be_paid_are_neither_trials_nor_lines(desk: Desk) -> None:
    types = {"instance_type": Choices(values=(LARGE, SMALL)), "learning_rate": Choices(values=RATES)}
    driver = desk.driver(search=types, job={"max_runtime_minutes": 6}, budget_usd=0.15, sampler="random")
    reason = searched(driver)

    assert len(driver.trials) >= 4
    assert len(driver.trials) == len({tuple(trial.point.items()) for trial in driver.trials.values()})
    assert {trial.state.name for trial in driver.table.study.get_trials()} == {"COMPLETE"}  # rejected points leave none
    assert desk.said == ["study scripted: 8 points; trial 0 runs: ml.g5.xlarge, rate 1e-5, batch 16"]
    assert "no remaining point's worst case fits what is left of the budget" in reason


def test_a_study_whose_jobs_may_all_cost_more_than_max_cost_usd_names_that_and_not_its_budget(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6, "max_cost_usd": 0.0001})
    remedy = "raise it, or lower max_runtime_minutes, which bounds each job"
    assert searched(driver) == f"no remaining point's worst case fits max_cost_usd: {remedy}"


def test_a_type_without_a_price_is_left_out_and_named(desk: Desk) -> None:
    types = {"instance_type": Choices(values=("ml.p3.2xlarge", SMALL)), "learning_rate": Choices(values=RATES[:2])}
    driver = desk.driver(search=types, job={"max_runtime_minutes": 6})

    assert searched(driver) == "every point was tried"

    assert {trial.point["instance_type"] for trial in driver.trials.values()} == {SMALL}
    text = "some jobs are skipped: the price of ml.p3.2xlarge in us-east-1 is not known, "
    text += "so it cannot be charged to a budget: "
    assert any(line.startswith(text) for line in desk.said)


def test_a_point_without_memory_is_never_tried_again(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: MEMORY if spec.learning_rate == RATES[2] else DONE
    driver = desk.driver(sampler="random", n_trials=40)
    searched(driver)
    assert rates(driver, TrialStatus.OUT_OF_MEMORY) == [RATES[2]]
    assert sorted(rates(driver)) == [rate for rate in RATES if rate != RATES[2]]


@pytest.mark.parametrize("n_trials", [3, 4])
def test_a_point_without_capacity_is_tried_again_later_and_counts_once(desk: Desk, n_trials: int) -> None:
    desk.launcher.judge = lambda spec, times: CAPACITY if len(desk.launcher.asked) == 1 else DONE
    start = desk.clock.now()
    driver = desk.driver(n_trials=n_trials)
    searched(driver)

    assert len(rates(driver)) == driver.ended.counted == n_trials
    assert len(desk.launcher.asked) == n_trials + 1
    assert desk.clock.now() - start > 300


def test_a_job_that_is_refused_while_another_runs_is_tried_again_after_five_minutes(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: ENDLESS if len(desk.launcher.asked) == 1 else QUOTA
    driver = desk.driver(n_parallel=2)
    for rate in RATES[:2]:
        driver.begin(Start({"learning_rate": rate}))

    ((refused, not_before),) = driver.ended.retries.values()
    assert not_before - refused.ended_at == 300


def test_a_next_attempt_that_aws_refuses_is_tried_again_later(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: (
        CAPACITY if spec.instance_type == SMALL else QUOTA if len(desk.launcher.asked) < 4 else DONE
    )
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 6, "fallback_instance_types": LARGE})
    assert searched(driver) == "every point was tried"

    assert rates(driver) == list(RATES)


def test_what_a_job_took_on_a_fallback_type_is_not_taken_for_that_of_its_own_type(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: (
        CAPACITY if (spec.instance_type, spec.learning_rate) == (SMALL, RATES[0]) else DONE
    )
    job = {"instance_type": SMALL, "max_runtime_minutes": 6, "fallback_instance_types": LARGE}
    driver = desk.driver(job=job, budget_usd=100.0)
    searched(driver)

    front = StudyFront.of(list(driver.trials.values()), driver.file.objectives, {})
    usd = {point.trial.point["learning_rate"]: point.means["cost_usd"] for point in front.points}
    assert usd == pytest.approx({RATES[0]: 3 * USD, **dict.fromkeys(RATES[1:], USD)})  # with the refused attempt
    (moved,) = (trial for trial in driver.trials.values() if trial.ran_on)
    assert (moved.ran_on, moved.point["learning_rate"]) == (LARGE, RATES[0])
    jobs = [driver.file.spec_at({"learning_rate": rate}) for rate in RATES]
    limits = [driver.money.limits.shortest(spec).max_runtime_minutes for spec in jobs]
    assert limits == [6, *[1.3] * (len(RATES) - 1)]  # the others took 36 s
    attributes = [trial.user_attrs for trial in driver.table.study.get_trials()]
    assert ["seconds" in each for each in attributes].count(False) == 1


@pytest.mark.parametrize(
    ("objective", "of_the_type"), [("cost_usd", {"seconds", "step_seconds"}), ("train_seconds", set[str]())]
)
def test_the_sampler_learns_from_dollars_if_a_job_ran_on_a_fallback_type_but_from_seconds_if_those_matter(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, objective: str, of_the_type: set[str]
) -> None:
    measured = {"f1": 0.75, "train_seconds": 30.0, "throughput_samples_per_second": 100.0}
    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics=measured))
    desk.launcher.judge = lambda spec, times: CAPACITY if spec.instance_type == SMALL and times == 0 else DONE
    driver = desk.driver(
        job={"instance_type": SMALL, "max_runtime_minutes": 6, "fallback_instance_types": LARGE},
        objectives={objective: "minimize", "f1": "maximize"},
    )
    searched(driver)

    assert {trial.ran_on for trial in driver.trials.values()} == {LARGE}
    of_speed = {"seconds", "startup_seconds", "step_seconds", "train_rows"}
    shown = [trial.user_attrs.keys() & of_speed for trial in driver.table.study.get_trials()]
    assert shown == [of_speed - of_the_type] * len(RATES)


@pytest.mark.parametrize(("n_trials", "more"), [(None, ""), (2, " with --n_trials 4")])
def test_two_equal_errors_of_the_code_end_a_study(desk: Desk, n_trials: int | None, more: str) -> None:
    missing = failed(Cause.CODE, "ModuleNotFoundError: No module named 'evaluate'")
    desk.launcher.judge = lambda spec, times: missing
    job = {"instance_type": SMALL, "max_runtime_minutes": 6, "entry_script": str(desk.folder / "own.py")}
    (desk.folder / "own.py").touch()
    with pytest.raises(JobFailed) as error:
        searched(desk.driver(job=job, n_trials=n_trials))

    assert len(desk.launcher.asked) == 2
    assert error.value.exit_code == 3
    assert "trials 0 and 1 failed with the same error in the code, and no trial has completed" in str(error.value)
    assert str(error.value).endswith(f"to its requirements.txt; then the same command{more} continues")
    desk.launcher.judge = always_done  # the package was added
    driver = desk.next_driver(job=job)
    searched(driver)
    assert rates(driver) == list(RATES)  # including those that had failed


def test_a_preparation_that_dies_ends_its_trial_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = list[JobSpec]()

    def dies_once(spec: JobSpec, workplace: Workplace, meanwhile: Callable[[], None], **_: object) -> JobInputs:
        prepared.append(spec)
        meanwhile()
        if len(prepared) == 2:
            raise JobFailed("of the preparation", "it was killed")
        return JobInputs()

    monkeypatch.setattr("paretune.jobs.plan.inputs_of", dies_once)
    driver = desk.driver(n_parallel=2)
    searched(driver)

    statuses = [trial.status for trial in driver.trials.values()]
    assert statuses.count(TrialStatus.FAILED) == 1
    assert statuses.count(TrialStatus.COMPLETED) == 3


@pytest.mark.parametrize(("looks", "fewest", "most"), [(1, 1, 2), (24, 5, 99)])
def test_a_quota_of_one_job_makes_the_others_wait_however_long_it_takes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, looks: int, fewest: int, most: int
) -> None:
    running, refused, submit = list[Driver](), list[str](), desk.launcher.submit

    def lasting(order: Order) -> Job:
        if len(running[0].running) > 1:
            refused.append(order.offer.computation)
            raise QUOTA
        job = submit(order)
        vars(job)["runs"] = looks
        return job

    monkeypatch.setattr(desk.launcher, "submit", lasting)
    monkeypatch.setattr("paretune.studies.search.ended_trials.LIMIT_RETRY_S", 100.0)
    running.append(desk.driver(n_parallel=4))
    searched(running[0])

    assert rates(running[0]) == list(RATES)
    assert max(map(refused.count, refused)) >= fewest
    assert len(refused) <= most


def test_a_launcher_that_refuses_everything_ends_the_study_with_its_reason(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: QUOTA
    driver = desk.driver()
    with pytest.raises(LaunchRefused, match="quota is 0 instances"):
        searched(driver)
    assert len(desk.launcher.asked) == MOST_REFUSED
    assert driver.table.balance().committed_usd == 0.0
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert [run.info.status for run in runs] == ["FAILED"] * MOST_REFUSED

    desk.launcher.judge = always_done  # the quota was raised
    begun = desk.clock.now()
    again = desk.next_driver()
    searched(again)
    assert rates(again) == list(RATES)
    assert desk.clock.now() - begun < 240  # it does not wait for what was fixed


def test_refusals_between_free_jobs_that_ran_do_not_end_a_study(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    free = Price(usd_per_hour=0.0, region="r", as_of="2026-01-01", source="test")
    monkeypatch.setattr(desk.launcher, "price", lambda spec: free)
    desk.launcher.judge = lambda spec, times: QUOTA if times == 0 and spec.learning_rate != RATES[3] else DONE
    driver = desk.driver()

    for rate in RATES[:3]:  # each is refused before another job runs
        driver.begin(Start({"learning_rate": rate}))
        driver.begin(Start({"learning_rate": RATES[3]}, {"seed": round(rate * 1e5)}))
        until_ended(driver)

    assert rates(driver, TrialStatus.REFUSED) == list(RATES[:3])
    assert searched(driver) == "every point was tried"


def test_a_job_that_fails_by_itself_is_not_run_again_unless_the_sampler_asks_for_it(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: BROKEN
    driver = desk.driver()
    searched(driver)
    assert len(desk.launcher.created) == 4

    for _ in range(3):
        driver.begin(Start({"learning_rate": RATES[0]}))
        until_ended(driver)
    assert len(desk.launcher.created) == 4 + 1


def test_an_option_that_cannot_run_does_not_end_a_study_in_which_others_can(desk: Desk) -> None:
    missing = failed(Cause.CODE, "ModuleNotFoundError: No module named 'bitsandbytes'")
    desk.launcher.judge = lambda spec, times: missing if spec.training_arguments["opt"] == "adam8bit" else DONE
    (desk.folder / "own.py").write_text("p.add_argument('--opt')\n")
    options = {"training_arguments.opt": Choices(values=("adam8bit", "sgd", "adam"))}
    job = {"instance_type": SMALL, "max_runtime_minutes": 6, "entry_script": str(desk.folder / "own.py")}
    driver = desk.driver(job=job, search={**options, "learning_rate": Choices(values=RATES[:3])})

    assert searched(driver) == "every point was tried"
    assert len(rates(driver)) == 6

    desk.launcher.judge = lambda spec, times: missing
    with pytest.raises(JobFailed, match="failed with the same error in the code"):
        searched(desk.driver(name="broken", job=job, search={**options, "learning_rate": Choices(values=RATES[:3])}))


def test_jobs_side_by_side_that_are_cut_off_by_one_wrong_estimate_double_later_limits_once(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 20000}, budget_usd=1e6)
    spec = driver.file.spec_at({"learning_rate": RATES[0]})
    limits = [driver.money.limits.shortest(spec).max_runtime_minutes]
    for _ in range(2):
        given = driver.money.limits.shortest(spec).given_text()
        for number in range(8):
            point = {"learning_rate": RATES[0]}
            driver.money.add(Trial(number=number, point=point, status=TrialStatus.CUT_OFF, given=given, cost_usd=0.1))
        limits.append(driver.money.limits.shortest(spec).max_runtime_minutes)

    assert limits[0] < 1500
    assert limits[1] / limits[0] == pytest.approx(2.0, rel=0.15)  # plus, once, the seconds of a slow start
    assert limits[2] / limits[1] == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize(("ending", "tries"), [(BROKEN, 2), (CAPACITY, 4 + 2)])
def test_points_that_fail_are_tried_once_more_by_the_next_command_and_then_given_up(
    desk: Desk, ending: End, tries: int
) -> None:
    desk.launcher.judge = lambda spec, times: ending
    for _ in range(4):
        driver = desk.next_driver(n_parallel=2)
        assert searched(driver) == "every point was tried"

    assert len(desk.launcher.created) == tries * len(RATES)


def test_two_trials_that_meet_the_limit_end_a_study_and_are_tried_again_once_it_was_raised(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: DONE if spec.max_runtime_minutes > 6 else CUT_OFF
    with pytest.raises(JobFailed, match=r"were stopped at max_runtime_minutes 6, .*, such as --max_runtime_minutes 24"):
        searched(desk.driver())
    assert len(desk.launcher.asked) == 2

    driver = desk.next_driver(job={"instance_type": SMALL, "max_runtime_minutes": 24})
    searched(driver)
    assert rates(driver) == list(RATES)
    assert len(desk.launcher.created) == 2 + len(RATES)


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_that_ends_jobs_on_slow_types_does_not_end_a_study_before_others_were_tried(
    desk: Desk, seed: int
) -> None:
    types = list[str]()

    def judge(spec: JobSpec, times: int) -> End:
        types.extend({spec.instance_type} - {*types})
        return DONE if types.index(spec.instance_type) == 2 else CUT_OFF

    desk.launcher.judge = judge
    driver = desk.driver(
        job={"max_runtime_minutes": 6},
        seed=seed,
        search={"instance_type": Choices(values=[SMALL, LARGE, OTHER]), "learning_rate": Choices(values=RATES[:2])},
    )

    searched(driver)
    done = [trial for trial in driver.trials.values() if trial.status is TrialStatus.COMPLETED]
    assert {trial.point["instance_type"] for trial in done} == {types[2]}


@pytest.mark.parametrize(
    ("n_trials", "goal", "bounds"), [(2, "ndcg", {}), (6, "ndcg", {}), (6, "other", {"ndcg": {"min": 0.1}})]
)
def test_a_study_ends_after_two_jobs_that_log_no_such_metric_and_goes_on_once_that_is_fixed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, n_trials: int, goal: str, bounds: dict[str, dict[str, float]]
) -> None:
    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics={"eval_ndcg": 0.5, "other": 1.0}))
    (desk.folder / "own.py").write_text("p.add_argument('--learning_rate')\n")
    job = {"instance_type": SMALL, "entry_script": str(desk.folder / "own.py")}
    terms = {"job": job, "objectives": {"cost_usd": "minimize", goal: "maximize"}, "constraints": bounds}
    driver = desk.driver(**terms, n_trials=n_trials)
    reason = searched(driver)

    assert len(driver.trials) == 2
    assert "none has logged ndcg, which this study needs (they have logged " in reason
    assert "eval_ndcg" in reason

    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics={"ndcg": 0.5, "other": 1.0}))
    again = desk.next_driver(**terms, n_trials=6)
    assert searched(again) == "every point was tried"


def test_a_study_with_once_that_ends_without_its_metric_names_the_command_that_continues_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics={"eval_ndcg": 0.5}))
    (desk.folder / "own.py").write_text("p.add_argument('--learning_rate')\n")
    job = {"instance_type": SMALL, "entry_script": str(desk.folder / "own.py")}
    terms = {"job": job, "objectives": {"cost_usd": "minimize", "ndcg": "maximize"}}
    searched(desk.driver(**terms, n_trials=2))

    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics={"ndcg": 0.5}))
    with_once = desk.next_driver(**terms, once=True)
    assert searched(with_once).endswith("; then the command without once=true continues")
    assert searched(desk.next_driver(**terms)) == "every point was tried"


def test_a_search_goes_on_after_trials_whose_objective_is_no_finite_number(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(job: ScriptedJob) -> JobReport:
        is_high = desk.launcher.specs[job.order.offer.computation].learning_rate in RATES[:3]
        return JobReport(metrics={} if is_high else {"f1": 0.8}, not_finite=("f1", "loss") if is_high else ())

    monkeypatch.setattr(ScriptedJob, "report", report)
    (desk.folder / "own.py").write_text("p.add_argument('--learning_rate')\n")
    driver = desk.driver(job={"instance_type": SMALL, "entry_script": str(desk.folder / "own.py")})

    assert searched(driver) == "every point was tried"
    assert rates(driver) == [RATES[3]]
    assert rates(driver, TrialStatus.DIVERGED) == list(RATES[:3])
    assert {trial.reason for trial in driver.trials.values()} == {"", "f1 ended NaN or infinite"}


@pytest.mark.parametrize("is_noted", [True, False])
def test_what_a_dead_driver_was_running_is_taken_over(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    first = desk.next_driver()
    save = first.table.save

    def dies_once_there_is_a_run(trial: Trial) -> None:
        if trial.run_id and not is_noted:
            raise KeyboardInterrupt
        save(trial)

    monkeypatch.setattr(first.table, "save", dies_once_there_is_a_run)
    with suppress(KeyboardInterrupt):
        first.begin(Start({"learning_rate": RATES[0]}))
    (run,) = MlflowClient().search_runs(["0"], "tags.`paretune.trial` = '0'")
    desk.tracking.run(run.info.run_id).set_tags({"paretune.watched_by": ""})
    if not is_noted:
        MlflowClient().set_terminated(run.info.run_id, "FAILED")  # as `sync` closes a run without a job

    second = desk.next_driver()
    assert [job.number for job in second.running] == [0]
    assert desk.tracking.run(run.info.run_id).tags()["paretune.watched_by"] == process_text()
    assert MlflowClient().get_run(run.info.run_id).info.status == "RUNNING"
    assert desk.said[-2:] == [
        "study scripted continues: 0 trials run, 0.00 USD spent",
        "trial 0: it was running when the last command ended; following its job if it still runs",
    ]
    searched(second)
    assert len(desk.launcher.created) == 4
    assert rates(second) == list(RATES)
    assert len(MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")) == 4


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_repeat_whose_driver_was_killed_stays_one_job_and_the_repeat_of_its_trial(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    first, save = desk.driver(n_parallel=2), StudyTable.save
    first.begin(Start({"learning_rate": RATES[0]}))
    until_ended(first)
    first.begin(Start({"learning_rate": RATES[1]}))  # another trial runs beside the repeat

    def dies_once_there_is_a_run(table: StudyTable, trial: Trial) -> None:
        if trial.run_id and not is_noted:
            raise KeyboardInterrupt
        save(table, trial)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(StudyTable, "save", dies_once_there_is_a_run)
        first.begin(Start({"learning_rate": RATES[0]}, {"seed": 7}, repeats=0))

    second = desk.next_driver(n_parallel=2)
    assert [(job.number, job.trial.repeats, job.spec.seed) for job in second.running] == [(1, None, 42), (2, 0, 7)]
    until_ended(second)

    assert len(desk.launcher.created) == 3
    assert [trial.repeats for trial in second.trials.values()] == [None, None, 0]
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.repeats` = '0'")
    assert [tags_of(run)["paretune.trial"] for run in runs] == ["2"]
    assert second.table.balance().spent_usd == pytest.approx(3 * USD)


def test_a_later_attempt_keeps_the_owner_of_its_trial_whoever_continues_the_study(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.launcher.judge = lambda spec, times: DONE if times else INTERNAL
    monkeypatch.setenv("LOGNAME", "ana")
    desk.driver().begin(Start({"learning_rate": RATES[0]}))

    monkeypatch.setenv("LOGNAME", "bob")
    until_ended(desk.next_driver())

    assert [order.owner.user for order in desk.launcher.orders] == ["ana", "ana"]


def test_a_retry_that_runs_is_not_started_again_by_the_next_command(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: CAPACITY if not times and spec.learning_rate == RATES[0] else ENDLESS
    first = desk.driver(n_parallel=2, once=True)
    first.begin(Start({"learning_rate": RATES[0]}))
    until_ended(first)
    desk.clock.sleep(300.0)
    with suppress(CallAgain):
        searched(first)
    assert len(first.running) == 2

    second = desk.next_driver(n_parallel=2, once=True)
    assert len(second.under_way) == 2
    with suppress(CallAgain):
        searched(second)
    assert not any("not run" in line for line in desk.said)


def test_a_point_that_a_dead_driver_has_only_asked_for_is_tried_by_the_next_one(desk: Desk) -> None:
    desk.driver().table.ask({"learning_rate": RATES[0]}, {})

    driver = desk.next_driver()
    assert driver.table.abandoned() == []
    searched(driver)
    assert rates(driver) == list(RATES)


HERE = {"account": "111111111111", "region": "us-east-1"}


def test_a_trial_whose_job_is_elsewhere_is_neither_started_again_nor_given_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.launcher, "location_tags", lambda: HERE)
    desk.launcher.keeps = True
    first = desk.driver(job=KEEPING)
    first.begin(Start({"learning_rate": RATES[1]}))
    until_ended(first)
    first.begin(Start({"learning_rate": RATES[0]}))
    jobs, desk.launcher.jobs = desk.launcher.jobs, {}  # as in a region or an account without these jobs
    monkeypatch.setattr(desk.launcher, "location_tags", lambda: HERE | {"region": "eu-west-1"})
    second = desk.driver(job=KEEPING)
    with pytest.raises(LostContact, match="cannot be followed from here: its job is in the region us-east-1") as lost:
        second.adopt()
    second.stop(lost.value)
    second.finish()
    assert len(desk.launcher.created) == 2
    assert [trial.number for trial in second.table.trials()[0]] == [1]
    assert [trial.kept_usd for trial in second.table.trials()[1]] == [pytest.approx(1.0)]

    desk.launcher.jobs = jobs
    monkeypatch.setattr(desk.launcher, "location_tags", lambda: HERE)
    third = desk.next_driver(job=KEEPING)
    assert [job.number for job in third.running] == [1]
    assert len(desk.launcher.created) == 2


@pytest.mark.parametrize("silent", ["MLflow", "AWS"])
def test_a_trial_is_neither_started_again_nor_given_up_while_the_state_of_its_job_is_unknown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    def deaf(_: str) -> None:
        raise LaunchRefused("AWS does not answer")

    first = desk.driver()
    first.begin(Start({"learning_rate": RATES[0]}))
    if silent == "AWS":
        monkeypatch.setattr(desk.launcher, "attach", deaf)
    else:
        desk.launcher.jobs.clear()
        monkeypatch.setattr(Run, "tags", lambda _: {})
    with pytest.raises(LostContact, match=f"{silent} does not .*: if .* was started, the same command finds"):
        until_ended(desk.next_driver())
    assert len(desk.launcher.created) == 1
    assert [trial.number for trial in desk.driver().table.trials()[0]] == [0]


def test_all_jobs_are_stopped_and_recorded_although_the_storage_of_trials_goes_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.launcher.judge = lambda spec, times: "endless"
    driver = desk.driver(n_parallel=2)
    for rate in RATES[:2]:
        driver.begin(Start({"learning_rate": rate}))

    def away(*_: object, **__: object) -> None:
        raise SQLAlchemyError("the storage does not answer")

    monkeypatch.setattr(driver.table, "tell", away)
    driver.stop(Interrupted("interrupted by SIGINT"))

    assert driver.table.balance().committed_usd == 0.0
    assert driver.table.balance().spent_usd == pytest.approx(2 * USD)


def test_an_interrupted_study_stops_its_jobs_records_them_and_asks_for_their_points_again(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: DONE if times or spec.learning_rate == RATES[2] else ENDLESS
    driver = desk.driver(n_parallel=3)
    for rate in RATES[:3]:
        driver.begin(Start({"learning_rate": rate}))
    driver.stop(Interrupted("interrupted by SIGINT"))

    assert driver.running == ()
    assert driver.table.balance().committed_usd == 0.0
    assert driver.table.balance().spent_usd == pytest.approx(3 * USD)
    assert not driver.table.abandoned()
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED", "KILLED"]
    assert rates(driver) == [RATES[2]]  # it completed before it could be stopped

    again = desk.next_driver()
    desk.launcher.judge = lambda spec, times: DONE
    searched(again)
    assert rates(again) == list(RATES)
    spent_usd = sum(trial.cost_usd or 0.0 for trial in again.trials.values())
    assert spent_usd == pytest.approx(again.table.balance().spent_usd)  # the page shows all that was paid


def test_a_job_that_cannot_outlive_its_driver_is_run_again(desk: Desk) -> None:
    desk.launcher.jobs_outlive_submitter = False
    first = desk.driver()
    first.begin(Start({"learning_rate": RATES[0]}))
    for job in desk.launcher.jobs.values():
        job.ending = BROKEN  # it ended with the process that started it

    second = desk.next_driver()
    searched(second)
    assert rates(second) == list(RATES)
    assert second.table.balance().spent_usd == pytest.approx(5 * USD)
    assert not any("already running" in line for line in desk.said)


def test_an_impossible_point_is_reported_and_costs_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = desk.launcher.place

    def place(spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        if spec.learning_rate == RATES[0]:
            raise BadInput(["no such thing"])
        return placed(spec, account=account)

    monkeypatch.setattr(desk.launcher, "place", place)
    driver = desk.driver(search={"learning_rate": Range(low=1e-5, high=4e-5)}, sampler="random", n_trials=3)
    assert driver.begin(Start({"learning_rate": RATES[0]})) == "no such thing"
    assert searched(driver) == "3 trials were run"
    assert driver.table.balance().spent_usd == pytest.approx(3 * USD)


def test_instances_kept_after_trials_stay_promised_and_are_given_back_and_recorded_at_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, looks = ScriptedJob.warm_pool, itertools.count()

    def sometimes(job: ScriptedJob) -> WarmPoolStatus | None:
        if next(looks) % 3 == 2:
            raise LostContact("AWS does not answer")
        return pool(job)

    monkeypatch.setattr(ScriptedJob, "warm_pool", sometimes)
    desk.launcher.keeps = True
    driver = desk.driver(job=KEEPING)
    assert searched(driver) == "every point was tried"
    before = driver.table.balance()
    assert before.committed_usd == pytest.approx(4 * 1.0)
    assert before.spent_usd == pytest.approx(4 * USD)

    driver.finish()

    assert driver.table.balance().committed_usd == 0.0
    assert driver.table.balance().spent_usd == pytest.approx(4 * (USD + 9 / 3600))
    assert [trial.cost_usd for trial in driver.trials.values()] == pytest.approx([USD + 9 / 3600] * 4)
    assert [trial.values["cost_usd"] for trial in driver.trials.values()] == pytest.approx([USD] * 4)
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert sum(run.data.metrics["cost_usd"] for run in runs) == pytest.approx(driver.table.balance().spent_usd)


def test_instances_kept_by_a_driver_that_died_are_given_back_by_the_next_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object, **__: object) -> None:
        raise TrackingUnavailable("the MLflow store answers 503")

    desk.launcher.keeps = True
    first = desk.driver(job=KEEPING)
    searched(first)

    driver = desk.next_driver(job=KEEPING)
    with monkeypatch.context() as outage:
        outage.setattr(Tracking, "recorded", no_answer)
        driver.finish()
    kept = [text for text in desk.said if "are still billed: `paretune sync`" in text]
    assert len(kept) == len(RATES)
    driver.finish()

    assert driver.table.balance().committed_usd == 0.0
    assert not any(pool.is_kept for pool in desk.launcher.pools.values())


def test_a_run_that_was_removed_does_not_end_a_study_whose_instances_are_kept(desk: Desk) -> None:
    desk.launcher.keeps = True
    searched(desk.driver(job=KEEPING))
    driver = desk.next_driver(job=KEEPING)
    for trial in driver.table.trials()[1]:
        MlflowClient().delete_run(trial.run_id)
        _get_store()._hard_delete_run(trial.run_id)  # type: ignore[no-untyped-call]  # as `mlflow gc` does

    driver.finish()

    assert len([text for text in desk.said if "are still billed: `paretune sync`" in text]) == len(RATES)


def test_a_job_beyond_its_worst_case_is_recorded_in_full_reported_and_learned_from(desk: Desk) -> None:
    driver = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 0.5}, budget_usd=100.0)
    assert searched(driver) == "every point was tried"

    per_second, trials = 1.0 / 3600, list(driver.trials.values())
    over_usd = (SECONDS - 30) * per_second
    assert [trial.cost_usd for trial in trials] == pytest.approx([SECONDS * per_second] * len(RATES))
    (line,) = [text for text in desk.said if "more than its worst case" in text]
    assert f"{usd(over_usd)} more" in line
    tags = [desk.tracking.run(trial.run_id).tags() for trial in trials]
    assert [float(tag.get("paretune.over_bound_usd", 0)) for tag in tags] == pytest.approx(
        [over_usd, 0, 0, 0], rel=1e-4
    )
    reserved = [trial.worst_usd for trial in trials]
    assert reserved == pytest.approx([30 * per_second, *[SECONDS * per_second] * 3])
    restarted = desk.driver(job={"instance_type": SMALL, "max_runtime_minutes": 0.5})
    restarted.adopt()
    assert restarted.money.exceeded_s == pytest.approx(SECONDS - 30)


@pytest.mark.parametrize("is_shared", [False, True])
def test_uploads_of_unknown_length_are_reserved_until_a_trial_has_completed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    (desk.folder / "team.yaml").write_text("budgets: [{name: team, usd_per_month: 1.4}]")
    job = {"max_runtime_minutes": 30} | ({"budget": str(desk.folder / "team.yaml")} if is_shared else {})
    monkeypatch.setattr(Output, "first_upload_s", 900.0)
    monkeypatch.setattr(Output, "longest_upload_s", 40.0)
    monkeypatch.setattr(ScriptedJob, "phase_seconds", lambda job: {"uploading": 70.0})
    driver = desk.driver(job={"instance_type": SMALL, **job}, budget_usd=100.0 if is_shared else 1.4, n_parallel=2)
    with_dearer = JobSpec(instance_type=SMALL, fallback_instance_types=LARGE, max_runtime_minutes=30)
    assert driver.money.worst_usd(with_dearer) == pytest.approx(2 * (0.5 + 900 / 3600))
    searched(driver)

    reserved = [trial.worst_usd for trial in driver.trials.values()]
    assert reserved[0] == pytest.approx(0.5 + 900 / 3600)  # two of them do not fit together
    assert max(reserved[1:]) <= 0.5 + 30 / 3600 + 1e-9  # the upload took 30 s more than its bound
    assert driver.money.exceeded_s == pytest.approx(30.0)


def test_a_trial_that_somebody_queues_in_optuna_is_run_next(desk: Desk) -> None:
    driver = desk.driver(n_trials=2)
    for rate in (RATES[3], 2.5e-5, RATES[2]):  # the second is not one of the choices
        driver.table.study.enqueue_trial({"learning_rate": rate})
    searched(driver)

    assert rates(driver) == [RATES[2], RATES[3]]
    assert f"a queued trial: not run: '2.5e-05' not in {RATES}." in desk.said
    assert not driver.table.abandoned()

    poor = desk.next_driver(budget_usd=2 * USD + 0.05)
    poor.table.study.enqueue_trial({"learning_rate": RATES[1]})
    searched(poor)
    assert rates(poor) == [RATES[2], RATES[3]]
    assert "trial 3: not run: worst case 0.100 USD does not fit what is left of the budget (0.0500 USD)" in desk.said


def test_a_queued_point_outside_of_its_range_is_retried_and_repeated_there(desk: Desk) -> None:
    driver = desk.driver(search={"learning_rate": Range(low=1e-5, high=1e-4, log=True)}, sampler="random", n_trials=1)
    driver.table.study.enqueue_trial({"learning_rate": 2e-4})
    searched(driver)
    (ran,) = driver.trials.values()

    _, again = driver.table.ask(ran.point, {})

    assert ran.point == again == {"learning_rate": 2e-4}


def test_a_completed_job_is_final_whatever_the_clocks_of_two_drivers_say(desk: Desk) -> None:
    driver = desk.driver(n_trials=1)
    searched(driver)
    (done,) = driver.trials.values()
    refused = replace(done, number=0, status=TrialStatus.REFUSED, cost_usd=None, ended_at=done.ended_at + 18_000.0)

    ended = EndedTrials(driver.file, [replace(done, number=1), refused])  # by the time at which they ended

    assert list(ended.final.values()) == [1]
    assert not ended.retries


def test_a_queued_trial_with_an_unknown_parameter_is_refused(desk: Desk) -> None:
    driver = desk.driver(n_trials=1)
    for given in ({"learning_rat": 1.0}, {"probe_steps": 40}):
        driver.table.study.enqueue_trial({"learning_rate": RATES[3], **given})
    searched(driver)

    allowed = "a queued trial: not run: its parameters must be among learning_rate, got"
    assert desk.said[:2] == [f"{allowed} learning_rat", f"{allowed} probe_steps"]


def test_a_row_that_somebody_queues_in_optuna_is_run_next_in_a_design(desk: Desk) -> None:
    rows = {"full": {"learning_rate": list(RATES), "global_batch_size": [16, 32]}}
    driver = desk.driver(search={}, points=rows, sampler=None, n_trials=2)
    queued = {"learning_rate": RATES[3], "global_batch_size": 32}
    for given in ({}, {**queued, "learning_rat": RATES[0]}, {**queued, "learning_rate": 2.5e-5}, queued):
        driver.table.study.enqueue_trial(given)
    searched(driver)

    assert next(iter(driver.trials.values())).point == queued
    assert len(desk.launcher.created) == 2
    allowed = "a queued trial: not run: its parameters must be among learning_rate, global_batch_size, got"
    assert desk.said[:2] == [f"{allowed} none", f"{allowed} learning_rat"]
    assert desk.said[2].startswith("a queued trial: not run: '2.5e-05' not in ")
    assert not driver.table.abandoned()


def test_a_round_that_is_interrupted_leaves_its_job_to_the_next_one(desk: Desk) -> None:
    desk.launcher.judge = lambda spec, times: ENDLESS
    driver = desk.driver(once=True)
    driver.begin(Start({"learning_rate": RATES[0]}))

    driver.stop(Interrupted("interrupted by SIGINT"))

    (run,) = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert run.info.status == "RUNNING"


@pytest.mark.parametrize(
    "error",
    [
        TrackingUnavailable("the MLflow store answers 503"),
        LaunchRefused("AWS does not answer"),
        ZeroDivisionError("a bug of a page"),
        LostContact("AWS does not answer"),
    ],
)
def test_no_error_of_a_server_or_of_a_page_stops_a_paid_job(desk: Desk, error: Exception) -> None:
    desk.launcher.keeps = True
    driver = desk.driver(n_parallel=2, job=KEEPING)
    driver.begin(Start({"learning_rate": RATES[3]}))
    until_ended(driver)
    desk.launcher.judge = lambda spec, times: ENDLESS
    for rate in RATES[:2]:
        driver.begin(Start({"learning_rate": rate}))

    driver.stop(error)

    assert all(pool.is_kept for pool in desk.launcher.pools.values())  # for the jobs that continue
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert [run.info.status for run in runs] == ["RUNNING", "RUNNING", "FINISHED"]
    assert not any(tags_of(run).get("paretune.watched_by") for run in runs)  # `sync` may follow them at once
    desk.launcher.judge = always_done
    for job in desk.launcher.jobs.values():
        job.ending = DONE
    again = desk.next_driver(job=KEEPING)
    searched(again)
    assert len(desk.launcher.created) == len(RATES)
    assert rates(again) == list(RATES)
    again.stop(error)  # an error of the last page
    assert not any(pool.is_kept for pool in desk.launcher.pools.values())


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_a_reservation_that_is_refused_ends_the_study_with_its_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BudgetRefused("the budget has another storage this month")

    driver = desk.driver(sampler=sampler, n_trials=4)
    monkeypatch.setattr(type(driver.workplace), "check_budgets", refuse)

    assert searched(driver) == "the budget has another storage this month"
    assert desk.launcher.created == []

    monkeypatch.undo()
    again = desk.next_driver(sampler=sampler, n_trials=4)
    searched(again)
    assert len(desk.launcher.created) >= 4  # a trial dropped before it began says nothing about its point


@pytest.mark.parametrize("is_driven", [False, True])
def test_a_trial_without_memory_gets_a_smaller_batch_from_its_study_only(desk: Desk, is_driven: bool) -> None:
    desk.launcher.judge = lambda spec, times: MEMORY
    driver = desk.driver()
    driver.begin(Start({"learning_rate": RATES[0]}))
    if is_driven:
        until_ended(driver)
    else:  # the driver was killed
        driver.running[0].record.run.set_tags({"paretune.watched_by": ""})
        workplace = driver.workplace
        Sync(workplace_at=lambda *_: workplace, tracking=desk.tracking, interruption=Interruption()).run()

    (run,) = desk.tracking.runs("tags.`paretune.trial` = '0'")
    assert (len(desk.launcher.created) > 1) is is_driven
    assert run.tags["paretune.state"] == "Failed"
    assert run.metrics["cost_usd"] == pytest.approx(0.01 * len(desk.launcher.created))
    if not is_driven:
        until_ended(desk.next_driver())
        assert [trial.status for trial in desk.ended] == [TrialStatus.OUT_OF_MEMORY]
        assert len(desk.launcher.created) == 1
