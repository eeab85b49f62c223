"""`SplitSampler` for people who know Optuna: Optuna's own suite for samplers, and the usual ways to use Optuna."""

import math
import multiprocessing
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)
from optuna.trial import Trial, TrialState

import paretune
from paretune.core.errors import BadInput
from paretune.studies.sampler.decision import Decision
from paretune.studies.sampler.sampler import SplitSampler
from tests.support.toy_trainings import ROWS, SPACE, SPEED, START_S, USD_PER_S, f1_of, job, outcome

DIRECTIONS = ["minimize", "maximize"]


class TestSuiteOfOptuna(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: SplitSampler(job(), SPACE)


def objective(trial: Trial) -> tuple[float, float]:
    """Run the toy training as somebody would write it with `suggest_*`, with support for probes."""
    trial.suggest_categorical("instance_type", list(SPEED))
    trial.suggest_categorical("per_device_train_batch_size", [8, 16, 32, 64])
    trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
    trial.suggest_int("probe_steps", 0, 40)
    if (values := outcome(trial)) is None:
        raise optuna.TrialPruned
    return values


def ordinary(trial: Trial) -> tuple[float, float]:
    """Run the same training as somebody who does not know about probes would write it."""
    usd, seconds, f1 = bill_of(trial)
    trial.set_user_attr("seconds", seconds)
    return usd, f1


def bill_of(trial: Trial) -> tuple[float, float, float]:
    """Return dollars, seconds and F1 of the training that a trial suggests."""
    kind = trial.suggest_categorical("instance_type", list(SPEED))
    batch = trial.suggest_categorical("per_device_train_batch_size", [8, 16, 32, 64])
    rate = trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
    seconds = START_S + (0.05 + batch / SPEED[kind]) * ROWS / batch
    return seconds * USD_PER_S[kind], seconds, f1_of(batch, rate)


def doubled(study: optuna.Study) -> list[tuple[object, ...]]:
    """Return the jobs that were paid for more than once."""
    counts = Counter(tuple(sorted(trial.params.items())) for trial in study.trials)
    return [params for params, count in counts.items() if count > 1]


def test_optimize_ends_by_itself_and_pays_no_job_twice() -> None:
    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.optimize(objective, n_trials=60)

    assert len(study.trials) < 40
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)
    assert doubled(study) == []


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_objective_that_knows_of_no_probes_is_never_asked_for_one(n_jobs: int) -> None:
    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.optimize(ordinary, n_trials=40, n_jobs=n_jobs)

    assert doubled(study) == []
    first = study.trials[0].params  # no probe at a corner of the space, which would be paid for as a whole training run
    assert first["per_device_train_batch_size"] == 32
    assert len(study.trials) < 40  # it ends by itself
    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)


@pytest.mark.parametrize("cost", ["job_seconds", "billable_seconds", "cost_usd"])
def test_an_objective_of_seconds_or_dollars_says_what_a_trial_has_cost(cost: str) -> None:
    def chosen(*, has_attribute: bool) -> list[dict[str, object]]:
        def objective(trial: Trial) -> tuple[float, float]:
            usd, seconds, f1 = bill_of(trial)
            if has_attribute:  # without it, only the objective says that this job took more than microseconds
                trial.set_user_attr("seconds", seconds)
            return usd if cost == "cost_usd" else seconds, f1

        sampler = SplitSampler(job(), SPACE, objectives=(cost, "f1"))
        study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
        study.optimize(objective, n_trials=12)
        return [trial.params for trial in study.trials]

    assert chosen(has_attribute=False) == chosen(has_attribute=True)


def test_dollars_in_another_unit_than_the_prices_end_no_search_early() -> None:
    def objective(trial: Trial) -> tuple[float, float]:
        usd, _, f1 = bill_of(trial)
        return 1000.0 * usd, f1

    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.optimize(objective, n_trials=40)

    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)


def test_trials_that_are_asked_for_without_probes_get_none_after_the_first() -> None:
    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    for _ in range(6):
        trial = study.ask()
        study.tell(trial, ordinary(trial))

    assert doubled(study) == []


def test_four_threads_pay_no_job_twice() -> None:
    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.optimize(objective, n_trials=24, n_jobs=4)

    assert doubled(study) == []


def _work(storage: str) -> None:
    study = optuna.load_study(study_name="toy", storage=storage, sampler=SplitSampler(job(), SPACE))
    study.optimize(objective, n_trials=10)


@pytest.mark.slow
def test_two_processes_on_one_database_pay_no_job_twice(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'toy.db'}"
    study = optuna.create_study(study_name="toy", storage=storage, directions=DIRECTIONS)
    workers = [multiprocessing.get_context("spawn").Process(target=_work, args=(storage,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(study.trials) > 10
    assert doubled(study) == []


def test_a_job_that_another_worker_began_and_ended_meanwhile_is_not_paid_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = SplitSampler(job(), SPACE)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.optimize(objective, n_trials=8)
    decide, others = sampler._decision, list[dict[str, object]]()

    def decide_slowly(study: optuna.Study, *, without: int | None = None) -> Decision:
        decision = decide(study, without=without)
        if not others:
            assert decision.job is not None
            others.append(sampler.params(decision.job))
            study.enqueue_trial(others[0])
            other = optuna.load_study(study_name=study.study_name, storage=study._storage)
            other.optimize(objective, n_trials=1)
        return decision

    monkeypatch.setattr(sampler, "_decision", decide_slowly)

    assert study.ask(sampler.space).params != others[0]


def test_what_is_enqueued_is_trained_and_no_probe() -> None:
    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.enqueue_trial({"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 32, "learning_rate": 5e-5})
    study.optimize(objective, n_trials=1)

    assert study.trials[0].state is TrialState.COMPLETE
    assert study.trials[0].params["learning_rate"] == 5e-5


@pytest.mark.filterwarnings("ignore:Fixed parameter")  # Optuna warns, and Python 3.12 names the test as the cause
@pytest.mark.parametrize(
    ("name", "values"),
    [("decay", FloatDistribution(0.001, 0.1)), ("layers", IntDistribution(1, 32)), ("batch", IntDistribution(1, 64))],
)
def test_an_enqueued_zero_outside_of_its_range_does_not_end_the_search(
    name: str, values: BaseDistribution, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--{name}')\np.parse_args()\n")
    sampler = SplitSampler({"entry_script": str(script)}, {name: values}, objectives=("job_seconds", "acc"))
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.enqueue_trial({name: 0})
    for _ in range(4):
        assert not sampler.is_done(study)
        value = study.ask({name: values}).params[name]
        study.tell(study.trials[-1].number, [100.0 + value, 0.8 + 0.001 * value])

    assert [trial.params[name] == 0 for trial in study.trials] == [True, False, False, False]


@pytest.mark.parametrize(("usd", "f1"), [(math.nan, 0.8), (math.inf, 0.8), (0.1, -math.inf)])
def test_trainings_that_a_pruner_ends_or_that_give_no_finite_number_do_not_end_the_search(
    usd: float, f1: float
) -> None:
    trained = list[int]()

    def troubled(trial: Trial) -> tuple[float, float]:
        values = objective(trial)
        trained.append(trial.number)
        if len(trained) == 2:
            raise optuna.TrialPruned
        return (usd, f1) if len(trained) == 3 else values

    study = optuna.create_study(directions=DIRECTIONS, sampler=SplitSampler(job(), SPACE))
    study.optimize(troubled, n_trials=30)

    assert max(trial.values[1] for trial in study.best_trials) == pytest.approx(0.9, abs=0.004)


def test_a_copy_made_by_pickle_goes_on_alike() -> None:
    sampler = SplitSampler(job(), SPACE)
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler)
    study.optimize(objective, n_trials=6)
    copied = pickle.loads(pickle.dumps(sampler))  # noqa: S301

    expected, found = sampler.next_job(study), copied.next_job(study)
    assert expected is not None
    assert found is not None
    assert found.point == expected.point


@pytest.mark.parametrize(
    ("objectives", "misspelled", "words"),
    [
        (("cost_usd",), (), "none of cost_usd measures the model"),
        (("cost_usd", "f1", "accuracy"), (), "only one may measure the model"),
        (("cost_usd", "f1"), ("learning_rates",), "learning_rate"),
    ],
)
def test_objectives_or_names_that_do_not_fit_are_refused_in_a_sentence(
    objectives: tuple[str, ...], misspelled: tuple[str, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        SplitSampler(job(), SPACE | dict.fromkeys(misspelled, CategoricalDistribution([1, 2])), objectives=objectives)


def test_a_metric_that_is_no_objective_is_refused_in_a_sentence() -> None:
    sampler = SplitSampler(job(), SPACE, objectives=("cost_usd", "job_seconds"), metric="f1")
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    with pytest.raises(ValueError, match="metric f1 must be one of its objectives: cost_usd, job_seconds"):
        study.optimize(ordinary, n_trials=1)


@pytest.mark.parametrize("directions", [["maximize"], ["maximize", "maximize"]])
def test_directions_that_do_not_fit_are_refused_in_a_sentence_before_anything_is_paid(directions: list[str]) -> None:
    paid = list[int]()

    def trained(trial: Trial) -> tuple[float, ...]:
        values = ordinary(trial)
        paid.append(trial.number)
        return values[: len(directions)]

    sampler = SplitSampler(job(), SPACE)
    study = optuna.create_study(directions=directions, sampler=sampler)
    with pytest.raises(ValueError, match="create the study with as many directions"):
        study.optimize(trained, n_trials=2)
    with pytest.raises(ValueError, match="create the study with as many directions"):
        study.ask(sampler.space)
    with pytest.raises(ValueError, match="create the study with as many directions"):
        sampler.is_done(study)

    assert paid == []


def test_arguments_of_a_script_have_their_own_names(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--layers', type=int)\np.parse_args()\n"
    )
    space = {"instance_type": SPACE["instance_type"], "layers": CategoricalDistribution([1, 2])}
    sampler = SplitSampler(paretune.JobSpec(entry_script=str(script)), space, objectives=("cost_usd", "acc"))

    chosen = sampler.next_job(optuna.create_study(directions=DIRECTIONS))
    assert chosen is not None
    assert chosen.spec.training_arguments == {"layers": chosen.point["layers"]}
