"""Designs from their file to their last row, on the simulated launcher."""

import csv
import io
import json
import os
import socket
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli.main import main
from paretune.commands.design.reading import read_design
from paretune.commands.design.table_study import TableStudy
from paretune.core.errors import BadInput
from paretune.core.result import read_rows
from paretune.specification.job import JobSpec
from tests.design_examples import TYPES, write_design


def own_run(client: MlflowClient) -> Run:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(experiments, "tags.`paretune.kind` = 'design'")
    return run


def text_of(client: MlflowClient, run: Run, name: str) -> str:
    return Path(client.download_artifacts(run.info.run_id, name)).read_text()


def test_a_design_runs_every_row_once_under_one_parent_run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = MlflowClient()
    path = write_design(workplace)
    assert main(["design", "--design", path]) == 0
    printed = capsys.readouterr()

    parent = own_run(client)
    rows = read_rows(text_of(client, parent, "design.csv"))
    assert parent.info.status == "FINISHED"
    assert [row["run"] for row in rows] == list(range(1, 13))
    assert {row["status"] for row in rows} == {"Completed"}
    assert list(rows[0])[:4] == ["run", "instance_type", "instance_count", "learning_rate"]
    children = {run.info.run_id: run for run in client.search_runs(["0"], "tags.`paretune.trial` LIKE '%'")}
    assert sorted(children) == sorted(str(row["run_id"]) for row in rows)
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    for row in rows:
        run = children[str(row["run_id"])]
        assert run.data.metrics["f1"] == row["f1"]
        assert run.data.params["instance_type"] == row["instance_type"]
        assert row["origin"] == "simulated"
    assert sum(float(str(row["cost_usd"])) for row in rows) == pytest.approx(parent.data.metrics["cost_usd"])
    assert "12 Completed (simulated)" in printed.out
    assert "D-efficiency" in printed.err
    best = max(rows, key=lambda row: float(str(row["f1"])))
    picked = [parent.data.metrics[name] for name in ("pick_f1", "pick_cost_usd")]
    assert picked == [pytest.approx(best["f1"]), pytest.approx(best["cost_usd"])]
    note = parent.data.tags["mlflow.note.content"].splitlines()
    assert note[0].startswith(f"**Simulated: best F1 {best['f1']:.4g} in run {best['run']}, ")
    assert note[2].startswith("12 of 12 runs, ")


@pytest.mark.slow
def test_the_same_command_again_runs_nothing_twice(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = MlflowClient()
    words = ["design", "--design", write_design(workplace)]
    assert main(words) == 0
    before = len(client.search_runs(["0"]))
    assert main(words) == 0

    assert len(client.search_runs(["0"])) == before
    assert own_run(client).info.status == "FINISHED"


def test_a_dry_run_keeps_the_plan_and_launches_nothing(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = MlflowClient()
    assert main(["design", "--design", write_design(workplace), "--dry_run", "true", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)

    assert client.search_runs(["0"]) == []
    run = own_run(client)
    assert client.get_experiment(run.info.experiment_id).name == "Default-estimates"
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == {
        "design.csv",
        "correlation.csv",
        "correlation.png",
    }
    assert output["dry_run"] is True
    assert {row["status"] for row in output["rows"]} == {"Pending"}
    assert output["worst_usd"] > 0
    header, *lines = csv.reader(io.StringIO(text_of(client, run, "correlation.csv")))
    assert len(lines) == len(header) - 1 == 3 + 2
    assert not list((workplace / ".paretune").glob("simulated/jobs/*"))


def test_a_design_warns_of_its_rows_once_for_each_kind(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"launcher": "simulated", "model": "distilbert-base-uncased", "dataset": "bundled:imdb"}
    factors = {"instance_type": list(TYPES), "global_batch_size": [16, 64, 256]}
    path = write_design(workplace, job=job, factors=factors)
    assert main(["design", "--design", path, "--dry_run", "true"]) == 0

    output = capsys.readouterr().out
    assert output.count("is above reference_batch_size 16") == 1
    assert "4 of 6 jobs, the first on 1 x ml.g" in output


@pytest.fixture
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, no region, and every connection an error."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def refuse(*address: object, **_: object) -> None:
        raise AssertionError(f"a plan asks the network: {address}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def billed(folder: Path, **changes: object) -> str:
    job = {"model": "distilbert-base-uncased", "dataset": "somebody/reviews", "max_train_samples": 9000}
    return write_design(folder, **{"job": job, "budget_usd": 500, **changes})


@pytest.mark.usefixtures("no_account")
def test_a_plan_of_billed_jobs_needs_no_aws_account(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["design", "--design", billed(workplace)]
    assert main([*words, "--dry_run", "true"]) == 0
    output = capsys.readouterr().out
    assert "prices of us-east-1, SageMaker Training, on demand" in output
    assert "estimated" in output
    assert "at worst" in output
    assert main([*words, "--dry_run", "true", "--region", "eu-west-1", "--budget_usd", "0.1"]) in (2, 4)
    assert "eu-west-1" in capsys.readouterr().err
    assert main(words) == 2
    assert "no AWS region is set" in capsys.readouterr().err


@pytest.mark.usefixtures("no_account")
def test_a_plan_says_what_no_instance_can_run_and_whose_prices_are_old(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["design", "--design", billed(workplace), "--dry_run", "true"]
    assert main([*words, "--strategy", "smddp"]) == 2
    assert "strategy smddp needs ml.p4d.24xlarge" in capsys.readouterr().err
    prices = workplace / "prices.csv"
    rows = "".join(f"{kind},us-east-1,2.5,2021,a benchmark\n" for kind in TYPES)
    prices.write_text(f"instance_type,region,price_usd_per_hour,as_of,source\n{rows}")
    assert main([*words, "--prices", str(prices), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["remarks"] == ["prices of us-east-1, SageMaker Training, on demand"]
    doubts = [text.partition(" is of 2021")[0] for text in output["warnings"] if text.startswith("price of ")]
    assert sorted(doubts) == sorted(f"price of {kind} in us-east-1" for kind in TYPES)


def test_a_design_that_may_cost_more_than_its_budget_is_refused_with_its_plan(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["design", "--design", write_design(workplace), "--budget_usd", "0.5"]) == 4
    output = capsys.readouterr().err

    assert "USD at worst" in output
    assert "budget_usd is 0.5" in output
    assert "4 x ml.g6.xlarge" in output
    assert own_run(MlflowClient()).info.status == "FAILED"
    assert not list((workplace / ".paretune").glob("simulated/jobs/*"))


def test_a_design_whose_limit_would_end_some_runs_is_refused_with_their_numbers(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"launcher": "simulated", "model": "bert-base-uncased", "dataset": "a/b", "max_runtime_minutes": 10}
    factors = {"max_train_samples": [1_000, 200_000], "seed": [1, 2]}
    job["instance_type"] = "ml.g5.xlarge"
    words = ["design", "--design", write_design(workplace, job=job, factors=factors, randomise=False)]

    assert main(words) == 2
    refusal = capsys.readouterr().err
    assert "runs 3, 4 of 4 would be ended by max_runtime_minutes: max_runtime_minutes must be at least" in refusal
    assert own_run(MlflowClient()).info.status == "FAILED"
    assert main([*words, "--dry_run", "true", "--allow_timeout", "true"]) == 0


def test_a_budget_without_a_price_is_refused_and_a_price_file_gives_it(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"launcher": "simulated", "model": "distilbert-base-uncased", "max_train_samples": 900}
    factors = {"instance_type": ["ml.p3.2xlarge", "ml.g5.xlarge"]}
    words = ["design", "--design", write_design(workplace, job=job, factors=factors), "--budget_usd", "900"]
    assert main(words) == 2
    assert "that of ml.p3.2xlarge in us-east-1 is not known" in capsys.readouterr().err

    prices = workplace / "prices.csv"
    prices.write_text(
        "instance_type,region,price_usd_per_hour,as_of,source\nml.p3.2xlarge,us-east-1,3.825,2021,a benchmark\n"
    )
    assert main([*words, "--prices", str(prices)]) == 0
    rows = read_rows(text_of(MlflowClient(), own_run(MlflowClient()), "design.csv"))
    assert all(float(str(row["cost_usd"])) > 0 for row in rows)


@pytest.mark.slow
def test_a_failed_row_is_in_the_table_and_the_others_go_on(workplace: Path) -> None:
    job = {"launcher": "simulated", "recorded_runs": "runs.csv", "num_train_epochs": 2}
    path = write_design(workplace, job={**job, "simulation": {"failure_rate": 0.4, "capacity_error_rate": 0.2}})
    assert main(["design", "--design", path]) == 0

    rows = read_rows(text_of(MlflowClient(), own_run(MlflowClient()), "design.csv"))
    assert len(rows) == 12
    assert {row["status"] for row in rows} == {"Completed", "Failed"}
    assert all(row["run_id"] for row in rows)


@pytest.mark.slow
def test_another_table_under_the_same_name_is_refused(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "--design", write_design(workplace)]) == 0
    assert main(["design", "--design", write_design(workplace, replicates=2)]) == 2

    assert "give it another name" in capsys.readouterr().err


def test_a_design_over_an_own_training_plans_its_responses_and_refuses_them_without_one(workplace: Path) -> None:
    (workplace / "own.py").touch()
    text = "name: own\njob: {entry_script: own.py}\nfactors: {learning_rate: [1e-4, 1e-3]}\nresponses: val_ndcg, loss\n"
    (workplace / "own.yaml").write_text(text)
    file = read_design("own.yaml", {})
    study = TableStudy.of(file, [JobSpec(entry_script="own.py")])

    assert file.own_responses == ("val_ndcg", "loss")
    assert {"f1", "val_ndcg", "loss"} <= set(study.objectives)
    (workplace / "own.yaml").write_text(text.replace("job: {entry_script: own.py}\n", ""))
    with pytest.raises(BadInput, match="unknown response val_ndcg"):
        read_design("own.yaml", {})
