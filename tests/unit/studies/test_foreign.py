"""`paretune.log_study`: anybody's Optuna study, in MLflow."""

import math
import re
from pathlib import Path

import mlflow.artifacts
import numpy as np
import optuna
import pandas
import pytest
from mlflow import MlflowClient

import paretune
from paretune.core.errors import BadInput
from tests.support.tags import tags_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # from set_metric_names


def objective(trial: optuna.Trial) -> tuple[float, float]:
    x, kind = trial.suggest_float("x", 0.0, 1.0), trial.suggest_categorical("kind", ["a", "b"])
    if x > 0.9:
        raise ValueError("too large")
    return x, x**0.5 - (0.1 if kind == "b" else 0.0)


@pytest.fixture
def study(workplace: Path) -> optuna.Study:
    """Return a study of fifteen trials, some of which have failed, and one that is still running."""
    made = optuna.create_study(
        study_name="toy", directions=["minimize", "maximize"], sampler=optuna.samplers.RandomSampler(1)
    )
    made.set_metric_names(["cost", "recall"])
    made.optimize(objective, n_trials=15, catch=ValueError)
    made.ask()
    return made


def test_every_trial_is_a_run_the_page_shows_the_front_and_further_ones_are_added(study: optuna.Study) -> None:
    result = paretune.log_study(study)

    client = MlflowClient()
    (parent,) = [run for run in client.search_runs(["0"]) if tags_of(run).get("paretune.kind") == "study"]
    runs = client.search_runs(["0"], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    trials = {trial.number: trial for trial in study.trials if trial.state.is_finished()}
    assert parent.info.run_id == result.run_id
    assert {int(tags_of(run)["paretune.trial"]) for run in runs} == trials.keys()
    for run in runs:
        trial = trials[int(tags_of(run)["paretune.trial"])]
        assert run.data.metrics == dict(zip(["cost", "recall"], trial.values or (), strict=False))
        assert run.data.params["kind"] == trial.params["kind"]
        assert run.info.status == ("FINISHED" if trial.values else "FAILED")
    best = {int(tags_of(run)["paretune.trial"]) for run in runs if tags_of(run).get("paretune.pareto_rank") == "0"}
    assert {trial.number for trial in study.best_trials if trial.params["kind"] == "a"} & best
    html = mlflow.artifacts.load_text(f"{parent.info.artifact_uri}/pareto.html")
    assert "Take trial" in html
    for word in ("dollars are notional", "paid for itself", "paretune train", "a job that can be launched"):
        assert word not in f"{html} {result}"

    rows = result.to_frame()
    assert rows["spent_usd"].isna().all()  # not 0
    assert "global_batch_size" not in rows

    before = {row["trial"]: row["run_id"] for row in result.rows()}
    study.optimize(objective, n_trials=3, catch=ValueError)
    tags = {"mlflow.parentRunId": result.run_id, "paretune.trial": str(study.trials[-1].number)}
    killed = client.create_run("0", tags=tags).info.run_id  # as a call that was killed while writing leaves it
    again = paretune.log_study(study)

    after = {row["trial"]: row["run_id"] for row in again.rows()}
    assert again.run_id == result.run_id
    assert before.items() <= after.items()
    assert len(after) == len(before) + 3
    assert len(client.search_runs(["0"])) == len(after) + 1
    assert killed in after.values()
    assert client.get_run(killed).info.status != "RUNNING"
    assert paretune.front("toy").objectives == {"cost": "minimize", "recall": "maximize"}
    assert re.search("has (a better|the best) mean recall", html)  # the maximized objective measures the model

    study.set_metric_names(["cost", "share found"])
    renamed = paretune.log_study(study)
    assert renamed.run_id != result.run_id
    assert paretune.front("toy").objectives == {"cost": "minimize", "share found": "maximize"}


# On Python 3.12 and later, Optuna 5 attributes this warning to the caller, whose warnings are errors.
@pytest.mark.filterwarnings("ignore:`constraints_func` has been deprecated:FutureWarning")
def test_what_a_study_forbids_is_not_recommended(workplace: Path) -> None:
    """Forbid trials by `constraints_func` or in a trial itself; without a constraint, one is allowed, as in Optuna."""
    sampler = optuna.samplers.NSGAIISampler(seed=0, constraints_func=lambda trial: (trial.params["x"] - 0.5,))
    by_sampler = optuna.create_study(study_name="bounded", directions=["minimize", "maximize"], sampler=sampler)
    by_trial = optuna.create_study(study_name="bounded too", directions=["minimize", "maximize"])

    def bounded(trial: optuna.Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 1)
        if trial.number != 1:
            trial.set_constraint("x", x - 0.5)
        return -x, x

    for study in (by_sampler, by_trial):
        study.set_metric_names(["cost", "recall"])
        for x in (0.4, 0.3, 0.7):
            study.enqueue_trial({"x": x})
    by_sampler.optimize(lambda trial: (-(x := trial.suggest_float("x", 0, 1)), x), n_trials=3)
    by_trial.optimize(bounded, n_trials=3)

    for study in (by_sampler, by_trial):
        result = paretune.log_study(study)
        assert result.best["trial"] == study.best_trials[0].number == 0
        ranks = {row["trial"]: row["pareto_rank"] for row in result.rows()}
        assert ranks[0] == 0
        assert ranks[2] != 0


def test_a_trial_with_an_infinite_constraint_is_not_recommended(workplace: Path) -> None:
    study = optuna.create_study(study_name="bounded", directions=["minimize"])
    for amount, value in ((math.inf, 1.0), (-math.inf, 2.0)):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        trial.set_constraint("x", amount)
        study.tell(trial, value)

    result = paretune.log_study(study)

    assert result.best["trial"] == study.best_trial.number == 1
    assert [row["trial"] for row in result.rows() if row["pareto_rank"] == 0] == [1]


def test_an_infinite_constraint_is_not_said_to_be_missing(workplace: Path) -> None:
    study = optuna.create_study(study_name="bounded", directions=["minimize"])
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    trial.set_constraint("x", math.inf)
    study.tell(trial, 1.0)

    assert "constraint x was not measured or is not finite." in str(paretune.log_study(study))


def test_a_study_whose_recording_was_interrupted_has_a_front_and_keeps_its_objectives(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_tags(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("paretune.tracking.run_writer.Run.set_tags", set_tags)  # it writes ranks, after pareto.csv
        with pytest.raises(KeyboardInterrupt):
            paretune.log_study(study)

    assert paretune.front("toy").objectives == {"cost": "minimize", "recall": "maximize"}
    study.set_metric_names(["cost", "share found"])
    paretune.log_study(study)
    assert paretune.front("toy").objectives == {"cost": "minimize", "share found": "maximize"}
    assert len(MlflowClient().search_runs(["0"], "tags.`paretune.kind` = 'study'")) == 2


def test_a_study_without_an_ended_trial_is_refused(workplace: Path) -> None:
    with pytest.raises(BadInput, match="no trial of study empty has ended yet"):
        paretune.log_study(optuna.create_study(study_name="empty"))
    with pytest.raises(BadInput, match="name must not contain an apostrophe"):
        paretune.log_study(optuna.create_study(study_name="it's"))


def test_two_studies_of_one_name_are_two_runs(study: optuna.Study) -> None:
    first = paretune.log_study(study)
    other = optuna.create_study(study_name="toy", directions=["minimize", "maximize"])
    other.set_metric_names(["cost", "recall"])
    other.optimize(lambda trial: (100.0 + trial.suggest_float("x", 0, 1), 0.5), n_trials=2)
    second = paretune.log_study(other)

    assert second.run_id != first.run_id
    assert len(second.rows()) == 2
    assert paretune.log_study(study).run_id == first.run_id


def test_numbers_of_numpy_are_numbers_of_a_front() -> None:
    runs = [{"f1": np.float32(0.5), "cost_usd": np.int64(2)}, {"f1": np.float32(0.25), "cost_usd": np.int64(3)}]
    assert [row["cost_usd"] for row in paretune.front(runs).best] == [2]


def test_a_run_without_an_origin_is_not_said_to_have_one() -> None:
    measured, unknown = {"f1": 0.9, "cost_usd": 2.0, "origin": "measured"}, {"f1": 0.8, "cost_usd": 1.0}

    assert paretune.front(pandas.DataFrame([measured, unknown])).remarks == []
    assert paretune.front([measured | {"origin": "simulated"}, unknown]).remarks == ["1 of 2 runs are simulated"]
