"""What a study writes into its MLflow run, and what it prints when it ends."""

import csv
import json
import re
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.clock import SystemClock
from paretune.core.errors import CallAgain, LaunchRefused, TrackingUnavailable
from paretune.launchers.simulated.jobs import SimulatedJob
from paretune.launchers.simulated.launcher import SimulatedLauncher
from paretune.specification.order import Order
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices
from paretune.studies.recorded_front import front
from paretune.studies.run import StudyRun, run_study, run_study_file
from paretune.studies.search.driver import Start
from paretune.studies.search.table import StudyTable
from paretune.tracking import schema
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import ENDLESS, SMALL
from tests.support.scripted_study import JudgedLauncher, always_done
from tests.support.study_tables import write_study
from tests.support.tags import tags_of
from tests.support.workplaces import make_workplace


@pytest.mark.parametrize(("smallest", "warnings"), [(64, 1), (16, 0)])
def test_a_study_warns_of_what_is_true_of_all_its_points(
    workplace: Path, capsys: pytest.CaptureFixture[str], smallest: int, warnings: int
) -> None:
    job = {"launcher": "simulated", "model": "distilbert-base-uncased", "dataset": "bundled:imdb", "max_seq_length": 64}
    path = write_study(
        workplace,
        job={**job, "instance_type": "ml.g5.xlarge"},
        search={"global_batch_size": {"choices": [smallest, 128]}},
        objectives={"cost_usd": "minimize"},
        n_trials=1,
    )
    assert main(["study", "--study", str(path)]) == 0

    output = capsys.readouterr()
    assert output.err.count("is above 16") == warnings
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    assert tags_of(parent)["paretune.origin"] == "simulated"
    (trial,) = client.search_runs(["0"], "tags.`paretune.trial` = '0'")
    assert parent.data.metrics["pick_cost_usd"] == pytest.approx(trial.data.metrics["cost_usd"])
    assert "pick_f1" not in parent.data.metrics  # its F1 is unknown
    note = tags_of(parent)["mlflow.note.content"]
    assert note.startswith("**Ended: 1 trial, 0.1")
    assert " USD.** Take trial 0 (" in note
    assert parent.data.metrics["trials_done"] == 1
    assert parent.data.metrics["spent_usd"] == pytest.approx(parent.data.metrics["cost_usd"])
    assert "hypervolume" in parent.data.metrics
    assert "Simulated: none of this has run, and no number below was measured." in note
    assert note.endswith("`pareto.html`, under Artifacts.")
    assert f"viewStateShareKey={parent.info.run_id}&" in output.out


def test_who_presses_ctrl_c_gets_the_answer_so_far_and_the_same_command_continues(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, begun = SimulatedLauncher.submit, list[str]()

    def interrupted_at_the_third(self: SimulatedLauncher, order: Order) -> SimulatedJob:
        begun.append(order.job_name)
        if len(begun) == 3:
            signal.raise_signal(signal.SIGINT)
        return submit(self, order)

    job = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": 800}
    path = write_study(
        workplace,
        job=job,
        search={"per_device_train_batch_size": {"choices": [8, 16, 32, 64]}},
        objectives={"cost_usd": "minimize", "job_seconds": "minimize"},
        sampler="grid",
    )
    with monkeypatch.context() as terminal:
        terminal.setattr(SimulatedLauncher, "submit", interrupted_at_the_third)
        assert main(["study", "--study", str(path), "--n_parallel", "1"]) == 130

    error = capsys.readouterr().err
    assert "Take trial" in error
    assert "Front, cheapest first:" in error
    assert error.index("Take trial") < error.index("the same command continues the study")

    assert main(["study", "--study", str(path)]) == 0


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_a_simulated_search_for_an_unknown_f1_is_refused_before_its_first_trial(
    workplace: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    (workplace / "mine.csv").write_text("text,label\n" + "".join(f"row {n},{'ab'[n % 2]}\n" for n in range(400)))
    job = {"launcher": "simulated", "dataset": "mine.csv", "instance_type": "ml.g5.xlarge", "max_train_samples": 300}
    path = write_study(workplace, job=job, search={"global_batch_size": {"choices": [16, 32]}}, n_trials=2)

    assert main(["study", "--study", str(path), *more]) == 2

    assert "F1 of these jobs is unknown" in capsys.readouterr().err
    assert not MlflowClient().search_runs(["0"])


def write_replayed(workplace: Path, end: str) -> Path:
    """Write a study of two recorded jobs with this F1 and status."""
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"
    rows = [f"ml.g5.xlarge,1,16,{rate},60,{end}" for rate in ("1e-5", "1e-4")]
    (workplace / "replayed.csv").write_text("\n".join([header, *rows]))
    job = {"launcher": "simulated", "simulation.runs": "replayed.csv", "instance_type": "ml.g5.xlarge"}
    search = {"learning_rate": {"choices": [1e-5, 1e-4]}}
    return write_study(
        workplace, job=job, search=search, sampler="grid", n_trials=2, objectives={"cost_usd": "minimize"}
    )


@pytest.mark.parametrize(("refused", "code"), [(2, 0), (9, 3)])
def test_a_study_outlives_a_restart_of_its_mlflow_and_reports_a_longer_outage(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, refused: int, code: int
) -> None:
    create = Tracking.create
    away = tuple(f"trial {number}:" for number in range(1, 1 + refused))

    def away_after_one_job(self: Tracking, name: str, tags: Mapping[str, str] | None = None) -> Run:
        if name.startswith(away):
            raise TrackingUnavailable("MLflow answers 503")
        return create(self, name, tags)

    path = write_replayed(workplace, "0.8,Completed")
    with monkeypatch.context() as outage:
        outage.setattr(Tracking, "create", away_after_one_job)
        assert main(["study", "--study", str(path), "--n_parallel", "1"]) == code
    assert "MLflow answers 503" in (said := capsys.readouterr().err)
    assert ("the same command continues the study" in said) is bool(code)

    assert main(["study", "--study", str(path)]) == 0
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    assert [tags_of(run)["paretune.state"] for run in runs] == ["Completed", "Completed"]


@pytest.mark.parametrize(("jobs", "code"), [(0, 2), (1, 3)])
def test_a_study_that_is_refused_everything_after_its_first_job_does_not_say_that_nothing_was_launched(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, jobs: int, code: int
) -> None:
    submit, begun = SimulatedLauncher.submit, list[str]()

    def refusing(self: SimulatedLauncher, order: Order) -> SimulatedJob:
        if len(begun) == jobs:
            raise LaunchRefused("the quota is 0 instances")
        begun.append(order.job_name)
        return submit(self, order)

    path = write_replayed(workplace, "0.8,Completed")
    with monkeypatch.context() as outage:
        outage.setattr(SimulatedLauncher, "submit", refusing)
        assert main(["study", "--study", str(path), "--n_parallel", "1"]) == code
    assert "the quota is 0 instances (3 launches failed in a row)" in capsys.readouterr().err

    assert main(["study", "--study", str(path)]) == 0


def test_a_study_whose_trials_have_all_failed_says_how_it_continues(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_replayed(workplace, ",Failed")

    assert main(["study", "--study", str(path)]) == 3

    ending = "failed trials count toward n_trials: fix the cause, then run the same command with --n_trials 4"
    assert ending in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_registers_the_model_that_it_recommends_and_no_other(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, n_trials=5)

    assert main(["study", "--study", str(path), "--register", "sentiment-en"]) == 0

    recommended = int(re.findall(r"Take trial (\d+) ", output := capsys.readouterr().out)[0])
    reason = "nothing is registered as sentiment-en: a simulated job has no model"
    assert f"recommended trial {recommended}: {reason}" in output
    request = Tracking({}, SystemClock()).runs("tags.`paretune.registered` LIKE '%'")
    assert [run.tags[schema.TRIAL] for run in request] == [str(recommended)]
    assert "register" not in request[0].params


def test_a_study_whose_model_cannot_be_registered_now_names_the_command_that_registers_it(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(self: Tracking, run_id: str) -> None:
        raise TrackingUnavailable("MLflow answers 503")

    command = ["study", str(write_replayed(workplace, "0.8,Completed")), "--register", "sentiment-en"]
    with monkeypatch.context() as outage:
        outage.setattr(Tracking, "recorded", unavailable)
        assert main(command) == 0
    sentence = "the model is not registered as sentiment-en yet (MLflow answers 503): the same command registers it"
    assert sentence in capsys.readouterr().out

    assert main(command) == 0
    assert "nothing is registered as sentiment-en: a simulated job has no model" in capsys.readouterr().out


def test_the_model_of_a_run_that_collapsed_is_not_registered_if_others_of_its_point_have_trained(
    workplace: Path,
) -> None:
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,seed"
    fast = (0.33, 0.93, 0.94, 0.935)  # a job that is repeated because it is the fastest
    rows = [f"ml.g5.xlarge,1,16,1e-5,100,{f1},{seed}" for seed, f1 in enumerate(fast, 42)]
    rows += [f"ml.g5.xlarge,1,{batch},1e-5,400,{0.8 + n / 1e3},{42 + n}" for batch in (4, 8) for n in range(4)]
    (workplace / "seeds.csv").write_text("\n".join([header, *rows]))
    path = write_study(
        workplace,
        job={
            "launcher": "simulated",
            "simulation.runs": "seeds.csv",
            "instance_type": "ml.g5.xlarge",
            "learning_rate": 1e-5,
        },
        search={"per_device_train_batch_size": {"choices": [4, 8, 16]}},
        objectives={"job_seconds": "minimize", "f1": "maximize"},
        sampler="grid",
    )

    assert main(["study", "--study", str(path), "--register", "sentiment-en"]) == 0

    (run,) = Tracking({}, SystemClock()).runs("tags.`paretune.registered` LIKE '%'")
    assert run.metrics["f1"] > 0.9
    assert run.params["per_device_train_batch_size"] == "16"


@pytest.mark.parametrize(("terms", "count"), [({"sampler": "grid"}, 4), ({"n_trials": 3}, 3)])
def test_a_dry_run_lists_each_point_once_and_no_more_than_the_study_tries(
    workplace: Path, capsys: pytest.CaptureFixture[str], terms: dict[str, str | int], count: int
) -> None:
    job = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": 800}
    search = {"learning_rate": {"choices": [1e-5, 3e-5, 1e-4, 3e-4]}}
    goal = {"cost_usd": "minimize"}
    path = write_study(workplace, **{"job": job, "search": search, "objectives": goal, "n_trials": 4, **terms})

    assert main(["study", str(path), "--dry_run"]) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  learning_rate ")]
    assert len(lines) == len(set(lines)) == count
    assert all(re.fullmatch(r"  learning_rate \S+, worst case \d\.\d\d? USD", line) for line in lines)


@pytest.fixture
def no_account(workplace: Path, no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(workplace / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(workplace / "none"))


def test_a_dry_run_of_a_study_of_an_own_script_on_sagemaker_needs_no_account_either(
    workplace: Path, no_account: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=0.1)\n"
        "print('val_f1:', parser.parse_args().lr)\n"
    )
    types = {"choices": ["ml.g5.xlarge", "ml.g5.12xlarge"]}
    job = {"entry_script": "train.py", "max_runtime_minutes": 60, "region": "us-east-1"}
    goals = {"cost_usd": "minimize", "val_f1": "maximize"}
    terms = {"objectives": goals, "sampler": "grid", "n_trials": 2, "budget_usd": 20, "once": True}
    path = write_study(workplace, job=job, search={"instance_type": types}, **terms)

    assert main(["study", str(path), "--dry_run"]) == 0, capsys.readouterr().err

    output = capsys.readouterr().out
    assert "your AWS account was not queried: no usable AWS credentials" in output
    assert len(re.findall(r"instance_type ml\.g5\.\w+, worst case \d[\d.]* USD", output)) == 2
    (workplace / "train.py").unlink()
    assert main(["study", str(path), "--dry_run"]) == 2
    assert "train.py" in capsys.readouterr().err


@pytest.mark.trains
def test_a_dry_run_of_a_study_on_sagemaker_needs_no_account(
    workplace: Path, no_account: None, capsys: pytest.CaptureFixture[str]
) -> None:
    search = {"instance_type": {"choices": ["ml.g5.xlarge", "ml.g5.12xlarge"]}}
    job = {"max_train_samples": 800, "max_runtime_minutes": 60, "region": "us-east-1"}
    path = write_study(workplace, job=job, search=search, sampler="grid", n_trials=2, budget_usd=20)

    assert main(["study", str(path), "--dry_run"]) == 0

    output = capsys.readouterr().out
    assert "your AWS account was not queried: no usable AWS credentials" in output
    assert len(re.findall(r"instance_type ml\.g5\.\w+, worst case \d+\.\d+ USD", output)) == 2


def test_a_dry_run_bounds_jobs_as_the_study_does_and_names_those_above_max_cost_usd(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"launcher": "simulated", "max_train_samples": 800, "max_runtime_minutes": 600, "max_cost_usd": 60}
    search = {"instance_type": {"choices": ["ml.g5.xlarge", "ml.p4d.24xlarge"]}}
    path = write_study(workplace, job=job, search=search, objectives={"cost_usd": "minimize"}, n_trials=2)

    assert main(["study", str(path), "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert "instance_type ml.p4d.24xlarge, not tried: worst case " in output
    assert main(["study", str(path), "--dry_run", "--budget_usd", "9"]) == 0
    worst = re.compile(r"instance_type ml.g5.xlarge, worst case ([\d.]+) USD")
    at_most, limited = (float(worst.findall(text)[0]) for text in (output, capsys.readouterr().out))
    assert 0 < 2 * limited < at_most  # by its estimate


def test_who_owns_the_jobs_may_change_and_the_run_keeps_its_command_and_no_reason_of_an_earlier_end(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARETUNE_STORAGE", f"sqlite:///{workplace / 'shared.db'}")
    path = write_replayed(workplace, "0.9,Completed")
    assert main(["study", str(path)]) == 0
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    client.set_tag(parent.info.run_id, schema.FAILURE_REASON, "interrupted")

    assert main(["study", str(path), "--role", "Other", "--tags.team", "nlp"]) == 0

    tags = tags_of(client.get_run(parent.info.run_id))
    assert tags[schema.COMMAND].startswith("paretune study")
    assert not {schema.FAILURE_REASON, schema.DRIVEN_UNTIL} & tags.keys()


def test_a_study_that_gets_a_constraint_on_another_metric_is_another_study_and_its_run_stays_closed(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, objectives={"cost_usd": "minimize", "job_seconds": "minimize"}, n_trials=2)
    text = path.read_text().replace("sampler: random\n", "")
    path.write_text(text)
    assert main(["study", str(path)]) == 0

    path.write_text(f"{text}constraints: {{f1: {{min: 0.9}}}}\n")
    assert main(["study", str(path)]) == 2

    assert 'objectives f1: none then, "maximize" now' in capsys.readouterr().err
    (parent,) = MlflowClient().search_runs(["0"], "tags.`paretune.kind` = 'study'")
    assert parent.info.status == "FINISHED"


def test_mlflow_s_column_of_names_shows_the_answer_of_a_study_and_what_each_trial_came_to(workplace: Path) -> None:
    path = write_replayed(workplace, "0.9,Completed")
    assert main(["study", str(path)]) == 0
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    (trial,) = client.search_runs(["0"], "tags.`paretune.trial` = '0'")
    rate = trial.data.params["learning_rate"].replace("0.0001", "1e-4")
    result, model = "F1 .900, 0.0235 USD", "all-MiniLM-L6-v2"

    assert parent.info.run_name == f"study survival: g5.xlarge b16 lr1e-4 simulated, {result}"
    assert trial.info.run_name == f"trial 0: b16 lr{rate} g5.xlarge simulated: {result}, {model}"

    client.set_tag(parent.info.run_id, schema.RUN_NAME, "mine")
    assert main(["study", str(path)]) == 0
    assert client.get_run(parent.info.run_id).info.run_name == "mine"


def test_the_view_of_a_study_shows_its_front_first_and_runs_without_a_rank_last(workplace: Path) -> None:
    assert main(["study", str(write_replayed(workplace, "0.9,Completed"))]) == 0
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    failed = client.create_run("0", tags={schema.PARENT: parent.info.run_id}).info.run_id  # it has no rank
    client.log_metric(failed, "job_seconds", 0.1)
    view = json.loads(client.get_experiment("0").tags[f"mlflow.sharedViewState.{parent.info.run_id}"])
    state = json.loads(view["state"])
    order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"  # as MLflow's UI asks

    found = client.search_runs(["0"], state["searchFilter"], order_by=[order])

    assert [tags_of(run).get(schema.PARETO_RANK) for run in found] == ["0", "0", None]


def test_mlflow_shows_a_study_by_its_own_metric_from_the_best_rank_to_the_worst(workplace: Path) -> None:
    (workplace / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
        "print({'val_rae': parser.parse_args().lr})\n"
    )
    runs = [f"ml.g5.xlarge,{100 * n},{n},{0.5 + n / 100}" for n in range(1, 14)]  # each is worse and costs more
    (workplace / "own.csv").write_text("\n".join(["instance_type,billable_seconds,lr,val_rae", *runs]))
    job = {"launcher": "simulated", "entry_script": "train.py", "simulation.runs": "own.csv"}
    path = write_study(
        workplace,
        job={**job, "instance_type": "ml.g5.xlarge", "max_runtime_minutes": 60},
        search={"lr": {"choices": list(range(1, 14))}},
        objectives={"cost_usd": "minimize", "val_rae": "minimize"},
        sampler="grid",
        budget_usd=50,
    )
    assert main(["study", "--study", str(path)]) == 0
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    state = json.loads(
        json.loads(client.get_experiment("0").tags[f"mlflow.sharedViewState.{parent.info.run_id}"])["state"]
    )
    order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"
    trials = client.search_runs(["0"], state["searchFilter"], order_by=[order])
    ranks = [tags_of(trial)[schema.PARETO_RANK] for trial in trials]

    assert state["selectedColumns"][:5] == [
        "metrics.`val_rae`",
        "metrics.`cost_usd`",
        "metrics.`throughput_samples_per_second`",
        "params.`training_arguments.lr`",
        "tags.`paretune.position`",
    ]
    positions = [tags_of(trial)[schema.POSITION] for trial in trials]
    assert positions == sorted(positions)
    assert [each for each in positions if "recommended" in each]
    front = [trial.data.metrics["val_rae"] for trial in trials if tags_of(trial)[schema.PARETO_RANK] == "0"]
    assert front == sorted(front), "the best quality first"
    assert ranks[0] == "0"
    assert list(map(int, ranks)) == sorted(map(int, ranks))
    assert int(ranks[-1]) > 9
    varied = {name for trial in trials for name in trial.data.params if trial.data.params[name] != job.get(name)}
    assert "max_runtime_minutes" not in varied, "the study chooses it, and MLflow compares parameters"
    assert all(float(tags_of(trial)[schema.MAX_RUNTIME_MINUTES]) > 0 for trial in trials)


def test_a_script_without_a_seed_is_shown_as_it_is_called_repeated_once_and_stated_without_an_error(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["import argparse", "parser = argparse.ArgumentParser()", 'parser.add_argument("--lr", type=float)']
    (workplace / "train.py").write_text("\n".join([*lines, "print({'acc': parser.parse_args().lr})"]))
    runs = [f"ml.g5.xlarge,{100 * lr},{lr},{0.7123 + lr / 10}" for lr in (1, 2, 3)]
    (workplace / "own.csv").write_text("\n".join(["instance_type,billable_seconds,lr,acc", *runs]))
    job = {"launcher": "simulated", "entry_script": "train.py", "simulation.runs": "own.csv"}
    path = write_study(
        workplace,
        job={**job, "instance_type": "ml.g5.xlarge"},
        search={"lr": {"choices": [1.0, 2.0, 3.0]}},
        objectives={"cost_usd": "minimize", "acc": "maximize"},
        sampler="grid",
        n_parallel=1,
    )

    assert main(["study", "--study", str(path), "--dry_run"]) == 0
    assert "--lr 1" in capsys.readouterr().out.partition("the first of them:")[2]
    assert main(["study", "--study", str(path)]) == 0

    output = capsys.readouterr().out
    assert "rests on 2 runs." in output
    repeat = MlflowClient().search_runs(["0"], f"tags.`{schema.REPEATS}` LIKE '%'")[0]
    assert "seed" not in repeat.info.run_name
    assert re.findall(r"acc [\d.]+( ±)?", output.replace("acc 1.012; ", "acc 1.012 ")) == [""]


def test_a_study_that_another_machine_drives_from_a_storage_of_its_own_is_not_paid_twice(workplace: Path) -> None:
    tracking, clock, launcher = Tracking({}, SystemClock()), FakeClock(), JudgedLauncher(always_done)
    job = {"instance_type": SMALL, "max_runtime_minutes": 6}
    file = StudyFile(name="shared", job=job, search={"seed": Choices(values=(1, 2))}, sampler="grid", budget_usd=9)

    def begin(machine: str) -> StudyRun:
        (home := workplace / machine).mkdir(exist_ok=True)
        table = StudyTable(file, f"sqlite:///{home / 'studies.db'}")
        here = make_workplace(launcher=launcher, tracking=tracking, home=home, clock=clock)
        writer = StudyRun(file, table, here, given=file, say=lambda _: None)
        tracking.run(writer.run_id).set_tags({schema.WATCHED_BY: f"{machine} 1 1"})
        return writer

    first = begin("alpha")
    for _ in range(30):  # half an hour
        clock.sleep(60.0)
        first.driver.workplace.interruption.check()
        with pytest.raises(CallAgain, match="alpha 1 1 is working on the study shared, with different storage"):
            begin("beta")
    assert [run.run_id for run in tracking.runs(f"tags.`{schema.KIND}` = 'study'")] == [first.run_id]
    assert begin("alpha").run_id == first.run_id  # its successor, which has its storage

    clock.sleep(601.0)  # its machine has died
    begin("beta")
    with pytest.raises(CallAgain, match="beta"):
        begin("alpha")


def test_a_driver_that_slept_looks_who_has_taken_over_before_it_pays_for_anything(workplace: Path) -> None:
    tracking, clock = Tracking({}, SystemClock()), FakeClock()
    launcher = JudgedLauncher(lambda spec, times: ENDLESS)
    job = {"instance_type": SMALL, "max_runtime_minutes": 6}
    search = {"seed": Choices(values=(1, 2, 3))}
    file = StudyFile(name="shared", job=job, search=search, sampler="grid", budget_usd=9, n_parallel=1)

    def begin(machine: str, clock: FakeClock) -> StudyRun:
        (home := workplace / machine).mkdir(exist_ok=True)
        table = StudyTable(file, f"sqlite:///{home / 'studies.db'}")
        here = make_workplace(launcher=launcher, tracking=tracking, home=home, clock=clock)
        writer = StudyRun(file, table, here, given=file, say=lambda _: None)
        tracking.run(writer.run_id).set_tags({schema.WATCHED_BY: f"{machine} 1 1"})
        return writer

    class Laptop(FakeClock):
        """Is suspended for an hour after its first minute; its monotonic clock stands still meanwhile, as on Linux."""

        suspended_s = 0.0

        def now(self) -> float:
            return self.time + self.suspended_s

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.monotonic() > 60 and launcher.created and not others:
                self.suspended_s = 3600.0
                clock.time = self.now()
                others.append(begin("beta", clock))

    others, laptop = list[StudyRun](), Laptop()
    driver = begin("alpha", laptop)

    with pytest.raises(CallAgain, match=r"was asleep for 1 h, and beta 1 1 has taken over the study shared"):
        driver.work()

    assert len(launcher.created) == 1  # the job of before
    assert not any(job.stopped for job in launcher.jobs.values())
    tags = tracking.run(driver.run_id).tags()
    assert "starts no more jobs" in tags[schema.FAILURE_REASON]
    assert schema.DRIVEN_UNTIL not in tags


def test_two_schedules_of_one_machine_do_not_both_pay_for_a_study(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command with `once` is a process that has ended when the next one starts."""
    monkeypatch.setattr("paretune.studies.record.process_text", lambda: f"{socket.gethostname()} 999999999 1")
    tracking, clock, launcher = Tracking({}, SystemClock()), FakeClock(), JudgedLauncher(always_done)
    job = {"instance_type": SMALL, "max_runtime_minutes": 6}
    search = {"seed": Choices(values=(1, 2))}
    file = StudyFile(name="shared", job=job, search=search, sampler="grid", budget_usd=9, once=True)

    def begin(folder: str) -> StudyRun:
        (home := workplace / folder).mkdir(exist_ok=True)
        table = StudyTable(file, f"sqlite:///{home / 'studies.db'}")
        here = make_workplace(launcher=launcher, tracking=tracking, home=home, clock=clock)
        return StudyRun(file, table, here, given=file, say=lambda _: None)

    with pytest.raises(CallAgain, match="has not ended"):
        begin("a").work()
    clock.sleep(900.0)
    with pytest.raises(CallAgain, match="with --once is working on the study shared, with different storage"):
        begin("b")
    with pytest.raises(CallAgain, match="has not ended"):
        begin("a").work()


DESIGN = """name: design
job: {launcher: simulated, instance_type: ml.g5.xlarge, max_train_samples: 800}
points: {table: rows.csv}
objectives: {cost_usd: minimize, job_seconds: minimize}
"""


@pytest.mark.parametrize(
    ("points", "rows", "words", "difference"),
    [
        ("table: rows.csv", "learning_rate\n1e-5\n3e-5\n", ["--seed", "7"], "seed: 42 then, 7 now"),
        ("table: rows.csv", "learning_rate\n1e-5\n3e-5\n1e-4\n", [], "rows: "),
        ("table: rows.csv", "learning_rate\n1e-5\n1e-4\n", [], "rows: "),
        ("full: {learning_rate: [1e-5, 3e-5]}", "", ["--seed", "7"], "seed: 42 then, 7 now"),
    ],
)
def test_a_design_finds_its_rows_next_to_its_file_and_is_refused_once_they_have_changed(
    workplace: Path, capsys: pytest.CaptureFixture[str], points: str, rows: str, words: list[str], difference: str
) -> None:
    (folder := workplace / "designs").mkdir()
    (folder / "design.yaml").write_text(DESIGN.replace("table: rows.csv", points))
    (folder / "rows.csv").write_text("learning_rate\n1e-5\n3e-5\n")
    assert main(["study", "designs/design.yaml"]) == 0
    (folder / "rows.csv").write_text(rows)
    count = len(MlflowClient().search_runs(["0"]))
    capsys.readouterr()

    assert main(["study", "designs/design.yaml", *words]) == 2

    message = capsys.readouterr().err
    assert (
        "study design was started with a different search space, rows, job or objectives: give it another name"
        in message
    )
    assert difference in message
    assert len(MlflowClient().search_runs(["0"])) == count


def test_a_design_is_read_by_its_factors_and_its_table_adds_up_to_what_was_spent(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut off one of two rows at its limit: it is paid for like the other one."""
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    header += ",f1"
    rows = ["ml.g5.xlarge,1,16,1e-5,1,600,0.8", "ml.g5.xlarge,2,16,1e-5,1,6000,0.9"]
    (workplace / "runs.csv").write_text("\n".join([header, *rows]) + "\n")
    job = {"launcher": "simulated", "simulation.runs": str(workplace / "runs.csv"), "force": "limit"}
    job |= {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 16, "learning_rate": 1e-5}
    job |= {"max_runtime_minutes": 30, "num_train_epochs": 1}
    points = {"full": {"instance_count": [1, 2]}, "replicates": 2}
    file = StudyFile.read({"name": "factors", "job": job, "points": points, "budget_usd": 20})
    result = run_study_file(file, say=lambda _: None)

    printed = str(result)
    assert "Take trial" in printed
    assert "instances 1, batch 16" in printed
    assert "row 1" not in printed
    frame = result.to_frame()
    assert "row" not in frame
    assert sorted(frame["instance_count"].astype(int)) == [1, 1, 2, 2]

    client = MlflowClient()
    design = pd.read_csv(client.download_artifacts(result.run_id, "design.csv", str(workplace)))
    assert sorted(design["status"]) == ["Completed", "Completed", "CutOff", "CutOff"]
    assert design["cost_usd"].sum() == pytest.approx(frame["cost_usd"].sum())
    assert design["cost_usd"].sum() == pytest.approx(client.get_run(result.run_id).data.metrics["spent_usd"])
    assert sorted(design["row"]) == [1, 2, 3, 4]


def test_pareto_csv_has_the_factors_of_a_design_and_distinguishes_its_replicates(workplace: Path) -> None:
    job = {"launcher": "simulated", "num_train_epochs": 1}
    clusters = [{"instance_type": "ml.g5.xlarge", "instance_count": count} for count in (1, 2)]
    points = {"full": {"cluster": clusters}, "replicates": 2}
    file = StudyFile.read({"name": "factors", "job": job, "points": points, "budget_usd": 20})
    result = run_study_file(file, say=lambda _: None)

    text = MlflowClient().download_artifacts(result.run_id, "pareto.csv", str(workplace))
    frame = pd.read_csv(text).sort_values("trial")
    assert [*frame["cluster"]] == [f"{count} x ml.g5.xlarge" for count in frame["instance_count"]]
    first = frame.groupby("cluster")["trial"].transform("min")
    assert [*frame["repeats"].fillna(-1)] == [
        -1 if of == own else of for of, own in zip(first, frame["trial"], strict=True)
    ]
    assert [*result.to_frame()["cluster"]] == [*frame["cluster"]]


def test_no_table_of_a_design_computes_in_a_spreadsheet(workplace: Path) -> None:
    job = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "num_train_epochs": 1}
    formula = "=1+cmd|' /C calc'!A0"
    rates = [{"tags.note": formula, "learning_rate": 1e-5}, {"tags.note": "@SUM(1)", "learning_rate": 3e-5}]
    batches = [{"tags.=A1": "-1+2", "global_batch_size": 16}, {"tags.=A1": "+3", "global_batch_size": 32}]
    points = {"full": {"=rates": rates, "-batches": batches}}
    file = StudyFile.read({"name": "formulas", "job": job, "points": points, "budget_usd": 20})
    result = run_study_file(file, say=lambda _: None)

    for name in ("design.csv", "correlation.csv", "pareto.csv"):
        text = Path(MlflowClient().download_artifacts(result.run_id, name, str(workplace))).read_text()
        cells = [cell for line in csv.reader(text.splitlines()) for cell in line]
        assert cells
        assert not [cell for cell in cells if re.match(r"[=@]|[-+][^\d.]", cell)], name


def test_a_budget_below_the_rows_of_a_design_is_refused_until_the_design_has_begun(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "design.yaml").write_text(DESIGN.replace("table: rows.csv", "full: {learning_rate: [1e-5, 3e-5]}"))
    poor = ["study", "design.yaml", "--budget_usd", "0.1"]
    for more in ([], ["--dry_run"]):
        assert main([*poor, *more]) == 4
        assert "the 2 rows cost at worst " in (message := capsys.readouterr().err)
        assert "USD together, and budget_usd is 0.100 USD: raise it, take rows out" in message

    assert main(["study", "design.yaml", "--budget_usd", "9"]) == 0
    assert main([*poor, "--dry_run"]) == 0
    assert main([*poor, "--dry_run", "--name", "other"]) == 4


def test_the_dollars_of_a_design_are_those_of_the_rows_that_n_trials_allows(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = "full: {learning_rate: [1e-5, 3e-5], global_batch_size: [16, 32]}"
    (workplace / "design.yaml").write_text(DESIGN.replace("table: rows.csv", full))
    words = ["study", "design.yaml", "--n_trials", "2", "--dry_run", "--budget_usd"]

    assert main([*words, "0.01"]) == 4
    worst_usd = float(re.findall(r"the 2 rows cost at worst ([\d.]+) USD", capsys.readouterr().err)[0])
    assert main([*words, f"{1.01 * worst_usd:g}"]) == 0


def test_a_design_whose_rows_run_goes_on_with_a_budget_below_them(workplace: Path) -> None:
    tracking, clock, launcher = Tracking({}, SystemClock()), FakeClock(), JudgedLauncher(always_done)

    def begin(budget_usd: float) -> StudyRun:
        job = {"instance_type": SMALL, "max_runtime_minutes": 6, "force": "limit"}
        points = {"full": {"learning_rate": [1e-5, 3e-5]}}
        file = StudyFile(name="rows", job=job, points=points, budget_usd=budget_usd)
        here = make_workplace(launcher=launcher, tracking=tracking, home=workplace, clock=clock)
        table = StudyTable(file, f"sqlite:///{workplace / 'studies.db'}")
        return StudyRun(file, table, here, given=file, say=lambda _: None)

    begin(1.0).driver.begin(Start({"learning_rate": 1e-5}))  # by a command that was killed
    begin(0.11).work()
    assert len(launcher.created) == 2  # both rows; the second fits into what the first has left


def test_the_cheapest_that_is_good_enough_is_searched_with_probes_and_repeats_and_its_quality_is_stated(
    workplace: Path,
) -> None:
    path = write_study(
        workplace,
        name="enough",
        objectives={"cost_usd": "minimize"},
        constraints={"f1": {"min": 0.88}},
        budget_usd=4,
        sampler="split",
        n_parallel=1,
    )
    result = run_study(path, quiet=True)

    frame = result.trials_dataframe()
    assert (frame["status"] == "Probe").any()
    assert frame["repeats"].notna().any()
    assert result.best is not None
    assert result.best["means"]["f1"] >= 0.88  # type: ignore[index]
    assert "the cheapest with F1 at least 0.88" in result.best["titles"]  # type: ignore[operator]
    assert str(front("enough")) == str(front(result))
    assert "; F1 0.8" in str(result)
    good = frame[(frame["f1"] >= 0.88) & (frame["status"] == "Completed")]
    assert result.best["means"]["cost_usd"] <= 1.1 * good["cost_usd"].min()  # type: ignore[index]
