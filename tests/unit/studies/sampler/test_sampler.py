"""`SplitSampler` in studies of plain Optuna: a toy replaces training and bill."""

import itertools
import math
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial, TrialState

import paretune
from paretune.studies.sampler.belief import Aims
from paretune.studies.sampler.candidates import CLAIM, MOST_LISTED, PROBE, Jobs, Space, rows_of
from paretune.studies.sampler.decision import margin_of
from paretune.studies.sampler.process import Axes, Axis, Points
from paretune.studies.sampler.quality import QualityModel
from paretune.studies.sampler.sampler import SplitSampler
from paretune.studies.sampler.seconds import SecondsModel
from tests.support.toy_trainings import ROWS, SPACE, SPEED, START_S, USD_PER_S, f1_of, job, outcome

PACKAGE = Path(__file__).parents[4] / "examples" / "optunahub" / "package" / "samplers" / "split"
BATCH = "per_device_train_batch_size"
Toy = Callable[[optuna.Study, Trial], None]


def train(study: optuna.Study, trial: Trial) -> None:
    """Run a job that ends well."""
    values = outcome(trial)
    study.tell(trial, values, state=TrialState.PRUNED if values is None else None)


def searched(sampler: SplitSampler, toy: Toy = train, storage: str | None = None, most: int = 60) -> optuna.Study:
    """Return a study that runs until the sampler is done."""
    directions = ["minimize", "maximize"]
    study = optuna.create_study(
        directions=directions, sampler=sampler, storage=storage, study_name="toy", load_if_exists=True
    )
    for _ in range(most):
        if sampler.is_done(study):
            break
        toy(study, study.ask(sampler.space))
    return study


def fail(trial: Trial, study: optuna.Study, outcome: str, seconds: float) -> None:
    trial.set_user_attr("outcome", outcome)
    trial.set_user_attr("seconds", seconds)
    study.tell(trial, state=TrialState.FAIL)


def test_probes_then_the_usual_training_then_the_front_for_a_part_of_what_all_jobs_cost() -> None:
    study = searched(SplitSampler(job(), SPACE))

    trained = [trial for trial in study.trials if not trial.params["probe_steps"]]
    first = trained[0].params
    assert first["per_device_train_batch_size"] == 32
    assert first["learning_rate"] == pytest.approx(3e-5, rel=0.3)
    assert len(study.trials) < 40  # it stops by itself
    paid = [trial.user_attrs["seconds"] * USD_PER_S[trial.params["instance_type"]] for trial in study.trials]
    of_probes = sum(usd for usd, trial in zip(paid, study.trials, strict=True) if trial.params["probe_steps"])
    assert of_probes < 0.25 * sum(paid), "a probe runs only if it saves more than it costs"
    best = max(trial.values[1] for trial in study.best_trials)
    assert best == pytest.approx(0.9, abs=0.002)
    cheapest = min(trial.values[0] for trial in study.best_trials)
    assert cheapest == pytest.approx(USD_PER_S["ml.g5.xlarge"] * (START_S + ROWS / 64 * (0.05 + 64 / 180)), rel=1e-6)


def test_a_study_that_is_loaded_again_goes_on_as_if_it_had_never_been_left(tmp_path: Path) -> None:
    whole = searched(SplitSampler(job(), SPACE), most=8)
    storage = f"sqlite:///{tmp_path / 'toy.db'}"
    for _ in range(8):
        parts = searched(SplitSampler(job(), SPACE), storage=storage, most=1)

    assert [trial.params for trial in parts.trials] == [trial.params for trial in whole.trials]


def test_a_job_that_may_no_longer_start_is_not_chosen() -> None:
    sampler, may_start = SplitSampler(job(), SPACE), [True]
    study = searched(sampler, most=3)
    sampler.accepts = lambda job, expected: may_start[-1]
    assert sampler.next_job(study) is not None

    may_start.append(False)

    assert sampler.next_job(study) is None


def test_a_training_that_had_claimed_a_probe_and_did_not_run_as_one_is_a_training() -> None:
    sampler = SplitSampler(job(), SPACE)
    (first, *_) = sampler._space.candidates
    asked = {name: first.point[name] for name in SPACE if name != PROBE}
    trial = optuna.trial.create_trial(
        params=asked,
        distributions={name: SPACE[name] for name in asked},
        values=[1.0, 0.8],
        system_attrs={CLAIM: {**asked, PROBE: 40}},
    )

    (row,) = rows_of([trial], sampler._space, ("cost_usd", "f1"))

    assert row.is_training


def test_a_batch_that_does_not_fit_is_halved_and_never_tried_on_that_type_again() -> None:
    tried: list[tuple[str, int]] = []

    def toy(study: optuna.Study, trial: Trial) -> None:
        tried.append((trial.params["instance_type"], trial.params["per_device_train_batch_size"]))
        if tried[-1][0] == "ml.g4dn.xlarge" and tried[-1][1] > 16:
            fail(trial, study, "out_of_memory", 150.0)
        else:
            train(study, trial)

    searched(SplitSampler(job(), SPACE), toy)

    too_large = [batch for name, batch in tried if name == "ml.g4dn.xlarge" and batch > 16]
    assert too_large == sorted(too_large, reverse=True), "what needs more memory than a job that ran out of it is left"
    assert len(too_large) == len(set(too_large)) <= 2


SEVERAL = SPACE | {"instance_count": CategoricalDistribution([1, 2, 4])}


def test_a_deadline_is_kept_although_time_is_no_objective() -> None:
    deadline = {"job_seconds": {"max": 400.0}}  # one instance cannot meet it

    study = searched(SplitSampler(job(), SEVERAL, constraints=deadline))

    trainings = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    in_time = [trial for trial in trainings if trial.user_attrs["seconds"] <= 400.0]
    assert in_time[0] in trainings[:3], "only the first run on each type may be too long: no speed is known before it"
    assert len(in_time) > len(trainings) / 2
    assert max(trial.values[1] for trial in in_time) > 0.85


def test_a_bound_on_the_training_does_not_count_the_startup() -> None:
    bound = {"train_seconds": {"max": 700.0}}  # the fastest job trains for 634 s, but is billed for 754 s

    study = searched(SplitSampler(job(), SPACE, constraints=bound), most=14)

    trainings = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    in_time = [trial for trial in trainings if trial.user_attrs["seconds"] - START_S <= 700.0]
    assert len(in_time) > 3
    assert max(trial.values[1] for trial in in_time) > 0.88


def test_a_least_throughput_is_no_least_time() -> None:
    bounds = {"throughput_samples_per_second": {"min": 500.0}}
    aims = Aims(objectives=["cost_usd", "f1"], metric="f1", constraints=bounds, spread=None, stops=True)

    assert aims.meets(np.array([1.0]), np.array([60.0]), np.array([0.9])).all()


def test_a_model_that_fits_on_several_instances_only_is_trained_on_the_fewest_of_those() -> None:
    def toy(study: optuna.Study, trial: Trial) -> None:
        if trial.params["instance_count"] == 1:
            fail(trial, study, "out_of_memory", 150.0)
        else:
            train(study, trial)

    study = searched(SplitSampler(job(strategy="fsdp", model="gpt2"), SEVERAL), toy)

    counts = {trial.params["instance_count"] for trial in study.trials if trial.state == TrialState.COMPLETE}
    assert counts == {2}


def test_a_region_where_trainings_diverge_is_left_after_a_few_of_them() -> None:
    def toy(study: optuna.Study, trial: Trial) -> None:
        if trial.params["learning_rate"] > 6e-5 and not trial.params["probe_steps"]:
            fail(trial, study, "failed", 300.0)
        else:
            train(study, trial)

    study = searched(SplitSampler(job(), SPACE), toy)

    failed = [trial for trial in study.trials if trial.state == TrialState.FAIL]
    assert len(failed) <= 12
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.005)


def test_a_job_without_capacity_is_asked_for_again_and_one_that_fails_twice_is_not() -> None:
    asked: list[Any] = []

    def toy(study: optuna.Study, trial: Trial) -> None:
        asked.append(tuple(trial.params.values()))
        if len(asked) == 1:
            fail(trial, study, "interrupted", 0.0)
        elif not trial.params["probe_steps"] and trial.params["learning_rate"] < 4e-5:
            fail(trial, study, "failed", 100.0)
        else:
            train(study, trial)

    searched(SplitSampler(job(), SPACE), toy)

    assert asked[0] == asked[1]
    failed = [params for params in asked if not params[3] and params[2] < 4e-5]
    assert failed
    assert max(failed.count(params) for params in failed) <= 2


def test_a_value_that_fails_costs_one_probe_not_the_budget() -> None:
    """All probes of a study use the same rate and optimizer: if jobs fail with them, others are used."""
    optimizers = {"training_arguments.optim": CategoricalDistribution(["adamw_bnb_8bit", "adamw_torch"])}
    rates = {"learning_rate": CategoricalDistribution([5e-6, 2e-5, 5e-5, 3e-4])}

    def toy(study: optuna.Study, trial: Trial) -> None:
        if trial.params["learning_rate"] == 5e-6 or trial.params["training_arguments.optim"] == "adamw_bnb_8bit":
            fail(trial, study, "failed", 100.0)
        else:
            train(study, trial)

    study = searched(SplitSampler(job(), SPACE | rates | optimizers), toy)

    states = [trial.state for trial in study.trials]
    assert states.count(TrialState.FAIL) <= 8, "at most four for each of the two values"
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)


def test_a_type_that_always_fails_does_not_keep_the_others_from_being_searched() -> None:
    def toy(study: optuna.Study, trial: Trial) -> None:
        if trial.params["instance_type"] == "ml.g4dn.xlarge":
            fail(trial, study, "failed", 100.0)
        else:
            train(study, trial)

    study = searched(SplitSampler(job(), SPACE), toy)

    assert sum(trial.state == TrialState.FAIL for trial in study.trials) <= 4
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)


def test_a_type_of_which_a_single_batch_has_run_is_not_believed_to_take_as_long_with_others() -> None:
    """All jobs of its largest batch fail."""

    def toy(study: optuna.Study, trial: Trial) -> None:
        params = trial.params
        if params["instance_type"] == "ml.g5.xlarge" and params[BATCH] == 64:
            fail(trial, study, "failed", 100.0)
        else:
            train(study, trial)

    sampler = SplitSampler(job(), SPACE)
    study = searched(sampler, toy, most=6)
    assert "FAIL" in [trial.state.name for trial in study.trials]

    candidates = [each for each in sampler._space.candidates if each.spec.instance_type == "ml.g5.xlarge"]
    by_batch = {each.point[BATCH]: each for each in candidates}
    model = SecondsModel(sampler._space, rows_of(study.trials, sampler._space, ("cost_usd", "f1")))
    seconds, _ = model.predict(Jobs(sampler._space, [by_batch[8], by_batch[64]]))

    true_s = [START_S + ROWS / batch * (0.05 + batch / SPEED["ml.g5.xlarge"]) for batch in (8, 64)]
    assert seconds == pytest.approx(true_s, rel=0.2)


def test_a_study_that_never_stops_goes_on_where_nothing_meets_a_constraint() -> None:
    few = {**SPACE, "learning_rate": CategoricalDistribution([3e-5, 1e-4])}
    too_tight = {"cost_usd": {"max": 1e-6}}
    never, auto = (SplitSampler(job(), few, constraints=too_tight, stop=stop) for stop in (False, True))

    trained = [trial for trial in searched(never).trials if not trial.params["probe_steps"]]
    assert len(trained) == 16
    study = searched(auto)
    assert len(study.trials) < 10
    assert auto.why_done(study) == "no job is expected to meet cost_usd of at most 1e-06"


def test_probes_run_side_by_side_measure_different_jobs_and_are_waited_for() -> None:
    """The learning rate changes no seconds, so probes that differ only in it would measure the same."""
    sampler = SplitSampler(job(), SPACE)
    study = searched(sampler, most=2)
    probes = list[Trial]()
    while (following := sampler.next_job(study)) is not None and following.is_probe:
        probes.append(study.ask(sampler.space))
    measured = [tuple(v for name, v in trial.params.items() if name != "learning_rate") for trial in probes]

    assert len({*measured}) == len(probes) > 1
    assert all(trial.params["probe_steps"] for trial in probes)
    assert following is None
    for trial in probes:
        train(study, trial)
    assert sampler.next_job(study) is not None


@pytest.mark.parametrize(
    ("jobs", "objectives", "margin"), [(1, 2, 1.0), (2, 2, 1.0), (5, 2, 0.25), (4, 3, 1.0), (6, 3, 0.5)]
)
def test_the_reference_point_is_so_far_that_the_corners_of_an_even_front_gain_as_much(
    jobs: int, objectives: int, margin: float
) -> None:
    assert margin_of(jobs, objectives) == margin
    if objectives == 2 and jobs > 1:  # each job of an even front adds the same hypervolume
        front = np.linspace(0.0, 1.0, jobs)
        widths = np.diff(np.append(front, 1.0 + margin))
        heights = np.diff(np.append(-margin, front))
        assert np.allclose(widths * heights, widths[0] * heights[0])


def test_a_training_of_ones_own_with_unknown_parameters_and_a_loss_is_searched_without_probes(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    space = {
        "instance_type": CategoricalDistribution(list(SPEED)),
        "training_arguments.depth": IntDistribution(2, 10),
        "training_arguments.kind": CategoricalDistribution(["tree", "linear"]),
    }
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")
    sampler = SplitSampler(own, space, objectives=["cost_usd", "loss"])
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    brief = SplitSampler(own.replace(max_runtime_minutes=0.5), space, objectives=["cost_usd", "loss"])
    assert brief.next_job(study) is not None  # a limit of 30 seconds means that the training is that short
    for _ in range(80):
        if sampler.is_done(study):
            break
        trial = study.ask(sampler.space)
        kind, depth = trial.params["training_arguments.kind"], trial.params["training_arguments.depth"]
        seconds = (200.0 + 30.0 * depth) / SPEED[trial.params["instance_type"]] * 60.0
        loss = 1.0 + (0.3 if kind == "linear" else 0.0) + 0.02 * (depth - 6) ** 2
        trial.set_user_attr("seconds", seconds)
        study.tell(trial, [seconds * USD_PER_S[trial.params["instance_type"]], loss])

    assert len(study.trials) < 80
    assert min(trial.values[1] for trial in study.best_trials) == pytest.approx(1.0)
    assert {trial.params["training_arguments.kind"] for trial in study.best_trials} == {"tree"}


def test_a_loss_worse_than_its_baseline_is_a_collapse_as_a_maximized_metric_is() -> None:
    def following(direction: str, sign: float) -> dict[str, Any]:
        sampler = SplitSampler(job(), SPACE, objectives=["cost_usd", "loss"])
        study = optuna.create_study(directions=["minimize", direction], sampler=sampler)
        for rate, batch in itertools.product((2e-5, 5e-5, 1e-4, 4e-4), (8, 64)):
            loss = 0.6 if rate == 4e-4 else 0.2 + 0.2 * abs(math.log10(rate / 5e-5)) + 0.001 * batch
            trial = optuna.trial.create_trial(
                params={"instance_type": "ml.g5.xlarge", BATCH: batch, "learning_rate": rate},
                distributions=SPACE,
                values=[1.0, sign * loss],
                user_attrs={"seconds": START_S + ROWS / batch, "baseline": sign * 0.5},
            )
            study.add_trial(trial)
        chosen = sampler.next_job(study)
        assert chosen is not None
        return dict(chosen.point)

    assert following("minimize", 1.0) == following("maximize", -1.0)
    assert following("minimize", 1.0)["learning_rate"] != 4e-4


def test_a_search_goes_on_if_a_collapsed_run_has_the_best_quality_so_far() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    for batch, f1, attributes in ((8, 0.46, {"baseline": 0.5}), (64, 0.0, {})):  # the second one reports no baseline
        trial = optuna.trial.create_trial(
            params={"instance_type": "ml.g5.xlarge", BATCH: batch, "learning_rate": 5e-5},
            distributions=SPACE,
            values=[1.0, f1],
            user_attrs={"seconds": START_S + ROWS / batch, **attributes},
        )
        study.add_trial(trial)
    assert SplitSampler(job(), SPACE).next_job(study) is not None


@pytest.mark.parametrize(("of_two", "are_searched"), [(0.25, False), (0.16, True)])
def test_more_instances_that_replace_accumulation_steps_are_searched_only_if_they_save_dollars(
    of_two: float, are_searched: bool
) -> None:
    rates = [1e-5, 2e-5, 3e-5, 5e-5, 1e-4]
    space = {"instance_count": CategoricalDistribution([1, 2]), "learning_rate": CategoricalDistribution(rates)}
    study = optuna.create_study(directions=["minimize", "maximize"])
    for count, rate in [*((1, rate) for rate in rates), (2, 3e-5)]:
        step_s = {1: 0.4, 2: of_two}[count]  # 8 and 4 micro-batches; two instances also exchange gradients
        seconds = START_S + step_s * ROWS / 64
        trial = optuna.trial.create_trial(
            params={"instance_count": count, "learning_rate": rate},
            distributions=space,
            values=[count * seconds, f1_of(64, rate)],
            user_attrs={"seconds": seconds, "startup_seconds": START_S, "step_seconds": step_s},
        )
        study.add_trial(trial)
    shared = job(instance_type="ml.g5.xlarge", global_batch_size=64, per_device_train_batch_size=8)
    following = SplitSampler(shared, space).next_job(study)  # all jobs on one instance have run
    assert (following is not None and following.point["instance_count"] == 2) is are_searched


def test_free_jobs_are_searched_for_the_front() -> None:
    study = searched(SplitSampler(job(), SEVERAL, price_of=lambda spec: 0.0), most=12)

    trainings = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert len(trainings) > 3
    assert max(trial.values[1] for trial in trainings) == pytest.approx(0.9, abs=0.01)


def test_free_trainings_of_ones_own_are_searched_from_the_first_one_on(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")
    space = {"training_arguments.depth": IntDistribution(2, 10)}
    sampler = SplitSampler(own, space, objectives=["job_seconds", "loss"], price_of=lambda spec: 0.0)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    for _ in range(4):
        assert sampler.next_job(study) is not None
        depth = (trial := study.ask(sampler.space)).params["training_arguments.depth"]
        study.tell(trial, [200.0 + 30.0 * depth, 1.0 + 0.02 * (depth - 6) ** 2])

    assert len({trial.params["training_arguments.depth"] for trial in study.trials}) == 4


def test_rates_alone_are_searched_although_they_change_no_seconds() -> None:
    def train_for_a_minute(study: optuna.Study, trial: Trial) -> None:
        trial.set_user_attr("seconds", 60.0)
        study.tell(trial, [0.1, 0.8 + 1000 * trial.params["learning_rate"]])

    space = {"learning_rate": CategoricalDistribution([1e-5, 3e-5, 1e-4])}
    sampler = SplitSampler(job(instance_type="ml.g5.xlarge"), space, stop="never")
    study = searched(sampler, train_for_a_minute, most=8)

    assert {trial.params["learning_rate"] for trial in study.trials} == {1e-5, 3e-5, 1e-4}


def test_ranges_of_batches_are_searched_in_powers_of_two_and_of_rates_in_octaves() -> None:
    rates = FloatDistribution(1e-5, 1e-2, log=True)
    for batches, searched in (
        (IntDistribution(12, 100), [12, 16, 32, 64, 100]),
        (IntDistribution(24, 96, step=24), [24, 48, 72, 96]),  # the step determines the values
    ):
        space = Space({"max_train_samples": 1000}, {"global_batch_size": batches, "learning_rate": rates}, None)
        assert sorted({it.point["global_batch_size"] for it in space.candidates}) == searched
        assert len({it.point["learning_rate"] for it in space.candidates}) == 11


def test_values_of_a_range_are_short_enough_to_type_again() -> None:
    rates = FloatDistribution(1.25e-4, 8e-3, log=True)
    space = Space({"max_train_samples": 1000}, {"learning_rate": rates}, None)

    searched = sorted({it.point["learning_rate"] for it in space.candidates})

    assert searched == [0.000125, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008]


def test_ten_ranges_of_a_training_of_ones_own_have_candidates_that_fit_into_memory(tmp_path: Path) -> None:
    (script := tmp_path / "train.py").touch()
    ranges = {f"training_arguments.x{number}": FloatDistribution(0.0, 1.0) for number in range(10)}

    space = Space({"entry_script": str(script), "instance_type": "ml.g5.xlarge"}, ranges, None)

    assert 1000 < len(space.candidates) <= MOST_LISTED


def test_the_example_in_plain_optuna_prints_a_front(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(PACKAGE / "example.py"))

    assert capsys.readouterr().out.count("ml.g5.xlarge") >= 2


def test_optunahub_finds_the_sampler_in_its_package() -> None:
    assert runpy.run_path(str(PACKAGE / "__init__.py"))["SplitSampler"] is SplitSampler
    head = yaml.safe_load((PACKAGE / "README.md").read_text().split("---")[1])
    assert head.keys() == {"author", "title", "description", "tags", "optuna_versions", "license"}


def test_a_study_that_never_stops_runs_every_job_once() -> None:
    few = {**SPACE, "learning_rate": CategoricalDistribution([3e-5, 1e-4])}
    study = searched(SplitSampler(job(), few, stop=False))

    trained = [tuple(trial.params.items()) for trial in study.trials if not trial.params["probe_steps"]]
    assert len(trained) == len(set(trained)) == 16


def test_a_study_ends_when_no_job_would_add_enough_for_its_dollars_and_says_so() -> None:
    sampler = SplitSampler(job(), SPACE)
    study = searched(sampler, most=87)

    reason = sampler.why_done(study)
    assert re.fullmatch(
        r"no job left is expected to add 1% to the front for the [\d.]+ USD of a median job, "
        r"and the last [\d.]+ USD have added less than 0\.5%",
        reason,
    )
    median_usd, idle_usd = map(float, re.findall(r"([\d.]+) USD", reason))
    paid = [trial.user_attrs["seconds"] * USD_PER_S[trial.params["instance_type"]] for trial in study.trials]
    assert median_usd == pytest.approx(np.median([usd for usd in paid if usd > 0.1]), rel=0.5)
    assert idle_usd == pytest.approx(sampler.since_growth_usd(study), abs=0.01)
    assert 3.0 * median_usd <= idle_usd + 0.05
    assert 15.0 * median_usd <= sum(paid) + 0.1


def test_a_study_of_few_jobs_ends_when_a_third_have_run_and_no_other_would_add_enough() -> None:
    few = {**SPACE, "learning_rate": CategoricalDistribution([3e-5, 5e-5, 1e-4])}
    sampler = SplitSampler(job(), few)
    study = searched(sampler)

    trained = [trial for trial in study.trials if trial.values]
    assert re.fullmatch(
        r"no job left is expected to add 1% to the front for the [\d.]+ USD of a median job, "
        rf"and {len(trained)} of 24 have run",
        sampler.why_done(study),
    )
    assert 8 <= len(trained) <= 12
    assert max(trial.values[1] for trial in trained) == pytest.approx(f1_of(8, 5e-5))


def test_a_study_goes_on_while_its_front_grows(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"))
    space = {"training_arguments.size": IntDistribution(1, 40)}
    sampler = SplitSampler(own, space, objectives=["cost_usd", "acc"], price_of=lambda spec: 1.0)
    study = optuna.create_study(directions=["minimize", "maximize"])
    for size in range(1, 31):  # each is better and as dear
        assert not sampler.is_done(study)
        usd = 100.0 + 0.1 * size
        study.add_trial(
            optuna.trial.create_trial(
                params={"training_arguments.size": size},
                distributions=space,
                values=[usd, 0.01 * size],
                user_attrs={"seconds": usd},
            )
        )


def test_a_script_is_not_trained_on_the_dearest_cluster_before_cheaper_ones_have_shown_what_it_costs(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").touch()
    counts = {"instance_count": CategoricalDistribution([1, 2, 4, 8, 16, 32])}
    rates = {"training_arguments.rate": FloatDistribution(1e-5, 1e-2, log=True)}
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")
    sampler = SplitSampler(
        own, counts | rates, objectives=["cost_usd", "loss"], price_of=lambda spec: 4e-4 * spec.instance_count
    )
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    for _ in range(3):
        trial = study.ask(sampler.space)
        seconds = 600.0 / math.sqrt(trial.params["instance_count"])
        trial.set_user_attr("seconds", seconds)
        loss = 1.0 + abs(math.log(trial.params["training_arguments.rate"] / 1e-3))
        study.tell(trial, [seconds * 4e-4 * trial.params["instance_count"], loss])

    assert all(trial.params["instance_count"] <= 4 for trial in study.trials)


def test_a_script_begins_on_the_cheapest_cluster_and_no_option_is_judged_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")

    def usd_per_s(spec: paretune.JobSpec) -> float:
        return 4e-4 * int(spec.training_arguments["workers"])

    firsts = []
    for name in ("batch_size", "anything"):
        space = {
            "training_arguments.workers": CategoricalDistribution([4, 8, 16, 32]),
            f"training_arguments.{name}": CategoricalDistribution([16, 64, 256]),
        }
        sampler = SplitSampler(own, space, objectives=["cost_usd", "loss"], price_of=usd_per_s)
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        first = sampler.next_job(study)
        assert first is not None
        firsts.append(list(first.point.values()))
        seconds, _ = SecondsModel(sampler._space, []).predict(sampler._space.listed)
        usd = {
            tuple(it.point.values()): s * usd_per_s(it.spec)
            for it, s in zip(sampler._space.candidates, seconds, strict=True)
        }
        assert usd[16, 64] == pytest.approx(2.0 * usd[4, 64])
        assert usd[4, 64] == pytest.approx(usd[4, 256])
    assert firsts == [[4, 64], [4, 64]]


def test_the_quality_of_our_trainings_depends_on_the_precision_and_not_on_the_type() -> None:
    types = CategoricalDistribution(["ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6e.xlarge"])
    space = Space({"max_train_samples": 1000}, {"instance_type": types}, None)

    t4, a10g, l40s = space.listed.quality.keys.tolist()
    assert a10g == l40s != t4  # bf16, and fp16 on the T4


def test_weights_in_bf16_are_searched_as_any_other_precision() -> None:
    space = SPACE | {
        "instance_type": CategoricalDistribution(["ml.g5.xlarge"]),
        "precision": CategoricalDistribution(["bf16", "bf16-true"]),
    }

    study = searched(SplitSampler(job(), space), most=6)

    assert any(trial.state == TrialState.COMPLETE for trial in study.trials)


def test_f1_in_percent_is_searched_as_its_share_is() -> None:
    def in_percent(study: optuna.Study, trial: Trial) -> None:
        values = outcome(trial)
        results = values and (values[0], 100.0 * values[1])
        study.tell(trial, results, state=None if results else TrialState.PRUNED)

    study = searched(SplitSampler(job(), SPACE), in_percent)
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(90.0, abs=0.5)


def test_no_lack_of_fit_is_taken_for_noise() -> None:
    """A deterministic quality with a sharp peak that no long length scale follows."""
    values = np.linspace(0.0, 1.0, 24)
    axes = Axes({"x": Axis((0.0, 1.0))})
    runs = Points(axes.keys([{"x": x} for x in values]), np.ones((24, 1)))
    quality = 0.6 + 0.3 * np.exp(-(((values - 0.7) / 0.05) ** 2))

    model = QualityModel(axes, runs, quality, None)

    assert model.noise < 0.005
    assert model.predict(runs)[0] == pytest.approx(quality, abs=0.02)


def test_runs_of_one_category_do_not_move_what_another_has_measured() -> None:
    settings = [{"model": "a", "x": x} for x in np.linspace(0.0, 1.0, 24)] + [
        {"model": "b", "x": x} for x in (0.4, 0.6)
    ]
    axes = Axes({"model": Axis(("a", "b")), "x": Axis((0.0, 1.0))})
    points = Points(axes.keys(settings), np.ones((26, 1)))
    quality = np.array([0.25 + 0.01 * each["x"] if each["model"] == "a" else 0.31 for each in settings])

    model = QualityModel(axes, points, quality, None)

    others = [{"model": "b", "x": 0.5}]
    mean, deviation = model.predict(Points(axes.keys(others), np.ones((1, 1))))
    assert mean[0] == pytest.approx(0.31, abs=0.01)
    assert abs(mean[0] - 0.31) < 2.0 * deviation[0]


def test_a_job_whose_parameter_was_never_suggested_is_not_paid_again(tmp_path: Path) -> None:
    """An option that only one instance type has: its values are one job on the other type."""
    (tmp_path / "own.py").touch()
    space = {
        "instance_type": CategoricalDistribution(list(SPEED)),
        "training_arguments.depth": IntDistribution(1, 4),
        "training_arguments.only_g5": IntDistribution(1, 5),
    }
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"))
    sampler = SplitSampler(own, space, objectives=["cost_usd", "acc"], stop=False)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)

    def objective(trial: Trial) -> tuple[float, float]:
        kind = trial.suggest_categorical("instance_type", list(SPEED))
        depth = trial.suggest_int("training_arguments.depth", 1, 4)
        extra = trial.suggest_int("training_arguments.only_g5", 1, 5) if kind == "ml.g5.xlarge" else 0
        trial.set_user_attr("seconds", 100.0 * depth)
        return 100.0 * depth * USD_PER_S[kind], 0.5 + 0.05 * depth + 0.01 * extra

    study.optimize(objective, n_trials=22)

    jobs = [tuple(sorted(trial.params.items())) for trial in study.trials]
    assert len(set(jobs)) == len(jobs)


def test_a_search_that_expects_no_gain_does_not_walk_the_cheap_corner(tmp_path: Path) -> None:
    """After ten equal cheap jobs, the next one is where little is known, not the cheapest that is left."""
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")
    space = {f"training_arguments.{name}": IntDistribution(1, 7) for name in ("epochs", "width")}
    sampler = SplitSampler(own, space, objectives=["cost_usd", "acc"], price_of=lambda spec: 1.0, stop=False)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    for _ in range(16):
        trial = study.ask(sampler.space)
        epochs, width = trial.params.values()
        trial.set_user_attr("seconds", 100.0 * epochs * width)
        study.tell(trial, [100.0 * epochs * width, 0.5 if epochs < 5 else 0.9])

    assert max(trial.values[1] for trial in study.trials) == 0.9


def test_beyond_the_listed_combinations_each_choice_has_candidates_near_the_front(tmp_path: Path) -> None:
    (script := tmp_path / "train.py").touch()
    ranges = {f"training_arguments.x{number}": FloatDistribution(0.0, 1.0) for number in range(6)}
    space = Space({"entry_script": str(script), "instance_type": "ml.g5.xlarge"}, ranges, None)
    best = dict.fromkeys(ranges, 0.5)

    first, second = (space.jobs_near([best], draw).jobs for draw in (1, 2))

    assert not {each.identity for each in first} >= {each.identity for each in second}, "a fresh sample each time"
    changed = [[v for v in each.point.values() if v != 0.5] for each in first]
    assert any(len(each) == 1 and 0.5 < each[0] < 0.66 for each in changed), "finer than the grid around the front"


def test_each_belief_is_listed_with_what_the_runs_have_taught(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"))
    space = {"instance_type": CategoricalDistribution([*SPEED]), "training_arguments.depth": IntDistribution(1, 7)}
    sampler = SplitSampler(own, space, objectives=["cost_usd", "acc"])
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)

    (before,) = sampler.beliefs(study).values()
    for _ in range(8):  # the dearer type is slower
        trial = study.ask(sampler.space)
        kind, depth = trial.params["instance_type"], trial.params["training_arguments.depth"]
        trial.set_user_attr("seconds", 300.0 * USD_PER_S[kind] / USD_PER_S["ml.g4dn.xlarge"])
        study.tell(trial, [trial.user_attrs["seconds"] * USD_PER_S[kind], 0.5 + 0.05 * depth])
    ((name, (assumed, doubt, learned, left)),) = sampler.beliefs(study).items()

    assert name == "seconds grow with a power of the price of the cluster"
    assert before[:2] == (assumed, doubt) == (-0.5, 0.3)
    assert learned > assumed
    assert left < doubt


@pytest.mark.parametrize("growth", [1.3, 3.0])
def test_a_search_that_never_stops_also_runs_jobs_that_can_gain_nothing(tmp_path: Path, growth: float) -> None:
    """One job is the cheapest and the best, so no other job is on any front, and most are far beyond it."""
    (tmp_path / "own.py").touch()
    own = paretune.JobSpec(entry_script=str(tmp_path / "own.py"), instance_type="ml.g5.xlarge")
    sampler = SplitSampler(
        own, {"training_arguments.depth": IntDistribution(1, 12)}, objectives=["cost_usd", "acc"], stop=False
    )
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    for _ in range(7):
        depth = (trial := study.ask(sampler.space)).params["training_arguments.depth"]
        trial.set_user_attr("seconds", 0.01 * growth**depth)
        study.tell(trial, [0.1 * growth**depth, 0.9 - 0.05 * depth])

    assert len({trial.params["training_arguments.depth"] for trial in study.trials}) == 7
    assert sampler.is_done(study)
