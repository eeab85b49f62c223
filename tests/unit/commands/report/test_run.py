"""`paretune report` with a real store."""

import csv
import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlflow.artifacts
import pytest
from mlflow import MlflowClient

from paretune.presentation.page import plotly_script
from tests.support.html_checks import has_policy
from tests.support.recorded_jobs import put_run
from tests.support.tags import tags_of
from tests.support.typed import Run

OWN = "instance_type,region,price_usd_per_hour,as_of,source\nml.g5.xlarge,eu-west-1,2,2026-10-01,mine\n"


@pytest.fixture
def store(client: MlflowClient, workplace: Path, no_settings: None, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    experiment = client.create_experiment(workplace.parent.name, artifact_location=str(workplace / "artifacts"))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    return client


@pytest.fixture
def record(store: MlflowClient) -> Callable[..., str]:
    """Return a function that records a job of an hour on one instance for 1 USD, and returns its run id."""

    def make(**others: Any) -> str:
        params = {"instance_type": "ml.g5.xlarge", "instance_count": "1", "learning_rate": "5e-5", "dataset": "d"}
        metrics = {"f1": 0.9, "billable_seconds": 3600.0, "cost_usd": 1.0}
        tags = {"origin": "measured", "state": "Completed", "price_usd_per_hour": "1", "price_region": "us-east-1"}
        for name, value in others.items():
            (params if name in params else tags if name in tags else metrics)[name] = value
        return put_run(store, params, tags, metrics, run_name="a job")

    return make


@pytest.fixture
def run(store: MlflowClient, typed: Run) -> Run:
    """Return a function that runs `paretune report ...`, and returns exit code, standard output and standard error."""
    return partial(typed, "report")


def own_run(store: MlflowClient, out: str) -> tuple[Any, list[dict[str, str]]]:
    """Return the run of the command itself, and the rows of its report.csv."""
    run_id = out.rpartition("report.csv is in run ")[2][:32]
    result = store.get_run(run_id)
    text = mlflow.artifacts.load_text(f"{result.info.artifact_uri}/report.csv")
    return result, list(csv.DictReader(io.StringIO(text)))


def test_runs_are_tabled_newest_first_with_what_they_cost(run: Run, record: Callable[..., str]) -> None:
    first, second = record(), record(f1=0.95, cost_usd=2.5, instance_type="ml.p4d.24xlarge")
    code, out, _ = run()

    assert code == 0
    header, *lines = out.partition("Newest first:\n\n")[2].splitlines()
    assert header.split()[:4] == ["run", "date", "origin", "instances"]
    assert [line.split()[0] for line in lines[:2]] == [second[:8], first[:8]]
    assert lines[0].split()[2:9] == ["measured", "1", "ml.p4d.24xlarge", "5e-05", "F1", "0.9500", "3,600"]
    assert "new cost" not in out
    assert "mixes" not in out


def test_pricing_again_shows_old_and_new_cost_and_leaves_the_runs_as_they_are(
    run: Run, record: Callable[..., str], store: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record()
    (tmp_path / "own.csv").write_text(OWN)
    monkeypatch.setenv("PARETUNE_PRICES", str(tmp_path / "own.csv"))
    before = store.get_run(run_id).to_dictionary()

    code, out, _ = run("--region", "eu-west-1")

    assert code == 0
    result, (row,) = own_run(store, out)
    assert row["run_id"] == run_id
    assert row["cost_usd"] == "1.0"
    assert float(row["new_cost_usd"]) == 2.0  # 3600 s x 2 USD / 3600
    assert (row["new_price_usd_per_hour"], row["new_price_region"]) == ("2.0", "eu-west-1")
    assert (row["new_price_as_of"], row["new_price_source"]) == ("2026-10-01", "mine")
    assert [word for word in out.split() if word in ("eu-west-1", "2026-10-01")] == ["eu-west-1", "2026-10-01"]
    assert "+1" in out
    assert tags_of(result)["paretune.kind"] == "report"
    assert "paretune.origin" not in tags_of(result)
    assert result.data.params == {"region": "eu-west-1"}
    assert result.info.status == "FINISHED"
    assert store.get_run(run_id).to_dictionary() == before


def test_a_filter_in_mlflows_language_chooses_the_runs_and_its_password_is_never_shown(
    run: Run, record: Callable[..., str], store: MlflowClient
) -> None:
    good, _ = record(f1=0.99, dataset="s3://ann:secret@host/d"), record()

    result, rows = own_run(store, run("--filter", "params.dataset = 's3://ann:secret@host/d'")[1])
    assert [row["run_id"] for row in rows] == [good]
    assert result.data.params == {"filter": "params.dataset = 's3://host/d'"}
    none = f"no job that matches the filter is recorded in {mlflow.get_tracking_uri()}\n"
    assert run("--filter", "metrics.f1 > 2")[:2] == (0, none)
    code, out, err = run("--filter", "f1 ~ 's3://ann:secret@host/d'")
    assert (code, out) == (2, "")
    assert "secret" not in err


def test_who_wants_the_runs_of_a_study_learns_of_the_filter(run: Run) -> None:
    code, _, err = run("--study", "pareto")

    assert code == 2
    assert "unknown parameter study: did you mean filter" in err


def test_a_store_without_jobs_says_so_and_stays_empty(run: Run, store: MlflowClient) -> None:
    code, out, _ = run()
    assert (code, out.partition(": `")[0]) == (0, f"no job is recorded in {mlflow.get_tracking_uri()}")
    assert store.search_runs([os.environ["MLFLOW_EXPERIMENT_ID"]]) == []


def test_a_name_of_a_run_is_text_in_every_file(run: Run, record: Callable[..., str], store: MlflowClient) -> None:
    evil = "<img src=x>\u202e\x1b[2J ![a](http://host/pixel.png)|"
    record(dataset=evil, instance_type=evil)
    out = run()[1]
    result, _ = own_run(store, out)
    endings = ("md", "html", "csv")
    files = [mlflow.artifacts.load_text(f"{result.info.artifact_uri}/report.{ending}") for ending in endings]

    assert has_policy(files[1])
    assert not {"\x1b", "\u202e"} & {*out, *"".join(files)}
    assert "<img" not in files[0] + files[1]
    assert "](http" not in files[0]


def test_a_report_that_mlflow_cannot_store_is_an_error(
    run: Run, record: Callable[..., str], store: MlflowClient, workplace: Path
) -> None:
    run_id = record()
    (workplace / "artifacts").write_text("a file, so that no artifact can be stored there")
    code, out, err = run()

    assert (code, out) == (2, "")
    assert "cannot be used" in err
    assert "job continues" not in err
    runs = store.search_runs([os.environ["MLFLOW_EXPERIMENT_ID"]])
    assert {each.info.status for each in runs if each.info.run_id != run_id} == {"FAILED"}


def test_scaling_is_drawn_on_its_page_whatever_a_data_set_is_called(
    run: Run, record: Callable[..., str], store: MlflowClient
) -> None:
    evil = "$\\frac{</script>$"
    for count in (1, 2):
        for f1 in (0.90, 0.92):
            record(instance_count=str(count), dataset=evil, f1=f1, billable_seconds=3600.0 / count)
    code, out, _ = run("--view", "scaling")

    assert code == 0
    result, _ = own_run(store, out)
    page = mlflow.artifacts.load_text(f"{result.info.artifact_uri}/report.html")
    assert has_policy(page)
    assert page.count('class="plotly-graph-div"') == 4
    assert page.count(plotly_script()) == 1
