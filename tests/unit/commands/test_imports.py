"""Runs of other teams are imported from a table into a real MLflow store, each once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from paretune.commands.imports import ImportRequest, import_runs
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from paretune.tracking.store import Tracking
from tests.support.tags import tags_of

HEADER = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"
ROWS = (
    "ml.g5.xlarge,2,16,5e-5,900,0.8,Completed",
    "ml.g5.xlarge,1,64,5e-5,130,,OutOfMemory",
    "ml.p3.2xlarge,1,16,5e-5,500,0.7,Completed",
)

TOLD = {"model": "m", "dataset": "d", "num_train_epochs": "1", "max_seq_length": "128", "precision": "auto"}


def price_of(spec: JobSpec) -> Price | None:
    if spec.instance_type != "ml.g5.xlarge":
        return None
    return Price(usd_per_hour=2.0, region="us-east-1", as_of="2026-01-01", source="test")


def table(rows: Sequence[str] = ROWS, more: str = "", name: str = "theirs.csv") -> str:
    path = Path(name)
    path.write_text("\n".join([HEADER + more, *rows]) + "\n")
    return str(path)


def bring(path: str, **typed: str) -> dict[str, Any]:
    columns = Path(path).read_text().splitlines()[0].split(",")
    typed = {name: text for name, text in TOLD.items() if name not in columns} | typed
    request = ImportRequest.from_text({"recorded_runs": path, **typed})
    return import_runs(request, Tracking({}, SystemClock()), price_of).to_dict()


def runs(client: MlflowClient) -> list[Run]:
    return sorted(client.search_runs(["0"]), key=lambda run: int(tags_of(run)["paretune.source_line"]))


def test_each_row_becomes_a_run_with_its_whole_specification(client: MlflowClient) -> None:
    imported = bring(table(), model="bert-base-uncased", max_train_samples="5000")
    first, memory, unpriced = runs(client)

    assert (len(imported["run_ids"]), imported["known"]) == (3, 0)
    assert (tags_of(first)["paretune.origin"], tags_of(first)["paretune.source"]) == ("published", "theirs.csv")
    assert first.data.params["model"] == "bert-base-uncased"
    assert first.data.params["max_train_samples"] == "5000"
    assert (first.data.params["instance_type"], first.data.params["instance_count"]) == ("ml.g5.xlarge", "2")
    assert first.data.params["global_batch_size"] == "32"
    assert first.data.metrics == {"f1": 0.8, "billable_seconds": 900, "cost_usd": pytest.approx(1.0)}
    assert (first.info.status, memory.info.status) == ("FINISHED", "FAILED")
    assert memory.data.metrics == {"billable_seconds": 130, "cost_usd": pytest.approx(130 * 2 / 3600)}
    assert tags_of(memory)["paretune.failure_reason"].startswith("out of memory")
    assert "cost_usd" not in unpriced.data.metrics
    assert "no price of ml.p3.2xlarge is known: no cost is recorded" in str(imported["remarks"])


def test_the_same_table_again_adds_nothing_and_a_longer_one_its_new_rows(client: MlflowClient) -> None:
    bring(table())
    again = bring(table())
    longer = bring(table([*ROWS, "ml.g5.xlarge,4,16,5e-5,300,0.75,Completed"]))

    assert (len(again["run_ids"]), again["known"]) == (0, 3)
    assert (len(longer["run_ids"]), longer["known"]) == (1, 3)
    assert len(runs(client)) == 4
    assert "runs imported earlier" not in str(longer)
    assert "runs imported earlier from a table theirs.csv, with other rows or other options: 4;" in str(
        bring(table(), max_train_samples="9")
    )


def test_an_import_that_was_killed_is_finished_by_the_next(client: MlflowClient) -> None:
    bring(table())
    key = tags_of(runs(client)[0])["paretune.row_key"]
    client.delete_run(runs(client)[0].info.run_id)
    half = client.create_run("0", tags={"paretune.origin": "published", "paretune.row_key": key}).info.run_id
    again = bring(table())

    assert (again["run_ids"], again["known"]) == ([half], 2)
    assert client.get_run(half).data.metrics["f1"] == 0.8


def test_a_run_that_could_not_be_ended_is_ended_by_the_next_import(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_away(*_: object, **__: object) -> None:
        raise MlflowException("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(SqlAlchemyStore, "update_run_info", go_away)
        with pytest.raises(TrackingUnavailable, match="the same command imports the rest"):
            bring(table())

    assert len(bring(table())["run_ids"]) == 3
    assert [run.info.status for run in runs(client)] == ["FINISHED", "FAILED", "FINISHED"]


def test_a_store_that_goes_away_is_said(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(MlflowClient, "log_batch", away)
    with pytest.raises(TrackingUnavailable, match="the same command imports the rest"):
        bring(table())


def test_the_dollars_and_the_data_size_of_a_table_are_kept(client: MlflowClient) -> None:
    columns = ",hourly_price_usd,price_as_of,cost_usd,dataset_size"
    path = table([f"{ROWS[0]},3.825,2021-08,0.57,100000"], columns.replace("hourly_price_usd", "usd an hour"))
    bring(path, columns='{"usd an hour": "hourly_price_usd"}')
    (run,) = runs(client)

    assert run.data.metrics["cost_usd"] == 0.57  # and not 900 x 2 x 3.825 / 3600
    assert run.data.params["dataset_size"] == "100000"
    tags = tags_of(run)
    assert {name: tags[f"paretune.price_{name}"] for name in ("usd_per_hour", "as_of", "source")} == {
        "usd_per_hour": "3.825",
        "as_of": "2021-08",
        "source": "theirs.csv: hourly_price_usd",
    }
    assert "paretune.price_region" not in tags


def test_what_must_be_known_and_is_not_given_is_asked_for_in_one_message(workplace: Path) -> None:
    path = table([f"{ROWS[0]},"], ",model")
    typed = {name: text for name, text in TOLD.items() if name in ("dataset", "num_train_epochs")}
    with pytest.raises(BadInput) as caught:
        ImportRequest.from_text({"recorded_runs": path, **typed})

    model, length, precision = caught.value.faults
    assert model.startswith("theirs.csv: line 2: model must be known: fill it in, type it as in --model distilbert")
    assert "--max_seq_length 512, or name its column: --columns" in length
    assert "--precision fp32" in precision


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        ({}, "import needs a table"),
        ({"recorded_runs": "nowhere.csv"}, "recorded_runs must be a readable CSV file, but nowhere.csv does not exist"),
        ({"recorded_runs": "theirs.csv", "learning_rate": "1e-5"}, "learning_rate is a column of theirs.csv already"),
        ({"recorded_runs": "theirs.csv", "modle": "x"}, "unknown parameter modle: did you mean model"),
        ({"recorded_runs": "theirs.csv", "precision": "fp8"}, "precision must be one of"),
        ({"recorded_runs": "theirs.csv", "global_batch_size": "32"}, "theirs.csv: line 3: global_batch_size 32"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_imported(
    workplace: Path, texts: dict[str, str], part: str
) -> None:
    table()
    with pytest.raises(BadInput) as caught:
        ImportRequest.from_text(texts)

    assert part in str(caught.value)
    assert len([fault for fault in caught.value.faults if part in fault]) == 1


def test_the_program_of_a_row_is_recorded_and_decides_what_none_means_as_strategy(client: MlflowClient) -> None:
    rows = (
        "ml.p3.8xlarge,1,16,5e-5,900,0.8,Completed,none,trainer-4.6",
        "ml.p3.8xlarge,1,16,5e-5,800,0.8,Completed,none,",
    )
    bring(table(rows, ",strategy,program"), model="bert-base-uncased", max_train_samples="5000")
    theirs, ours = runs(client)

    assert (theirs.data.params["program"], theirs.data.params["strategy"]) == ("trainer-4.6", "dp")
    assert "program" not in ours.data.params
    assert ours.data.params.get("strategy", "ddp") == "ddp"
