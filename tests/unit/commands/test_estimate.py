"""`paretune estimate` for users: from what was typed to the jobs of a table, and the table as users read it."""

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow.artifacts
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

import paretune
from paretune.commands.estimate import EstimateRequest
from paretune.commands.estimate.table import COLUMNS, EstimateTable, on_front
from paretune.core.errors import BadInput
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.estimating.timing import Prediction
from paretune.specification import catalog
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from tests.support.recorded_jobs import put_run
from tests.support.tags import tags_of

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(no_settings: None, typed: Command) -> Command:
    """Return a function that runs `paretune estimate ...` in an empty folder and returns code, output and errors."""
    return lambda **texts: typed("estimate", *(f"--{name}={text}" for name, text in texts.items()))


def runs_of(client: MlflowClient) -> list[Run]:
    """Return all runs of the store, newest first."""
    experiments = [item.experiment_id for item in client.search_experiments()]
    return list(client.search_runs(experiments, order_by=["attributes.start_time DESC"]))


def put_job(client: MlflowClient, origin: str, seconds: float, **changes: Any) -> None:
    """Record a finished job."""
    put_run(
        client, JobSpec(**changes).as_text(), {"origin": origin, "state": "Completed"}, {"billable_seconds": seconds}
    )


def test_the_rows_of_two_regions_name_their_region(no_settings: None, workplace: Path) -> None:
    job = JobSpec(instance_type="ml.g5.xlarge", max_train_samples=1000)
    table = paretune.estimate(job, region=["us-east-1", "us-west-2"])
    header, *lines = str(table).splitlines()[1:4]

    assert [row["region"] for row in table.rows()] == ["us-east-1", "us-west-2"]
    assert "region" in header
    assert ["us-east-1" in lines[0], "us-west-2" in lines[1]] == [True, True]
    assert table.notes()[0].startswith("prices of us-east-1, us-west-2, SageMaker Training")
    assert not any("us-east-1 is not known" in text for text in table.warnings)  # us-west-2 has no listed price


def test_dollars_by_a_doubtful_price_say_so_in_their_row(
    run: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "ml.g5.xlarge,us-east-1,2.0,2020,an old note"
    (workplace / "own.csv").write_text(f"instance_type,region,price_usd_per_hour,as_of,source\n{row}\n")
    monkeypatch.setenv("PARETUNE_PRICES", "own.csv")
    out = run(instance_type="ml.g5.xlarge,ml.g5.12xlarge", max_train_samples="1000")[1]

    doubtful, listed = (next(line for line in out.splitlines() if f"1 x {name} " in line) for name in TYPES)
    lines = out.splitlines()
    assert lines[lines.index(doubtful) + 1] == "     price of 2020"
    assert "price" not in lines[lines.index(listed) + 1]


def test_a_type_whose_price_names_no_region_says_so(run: Command, workplace: Path) -> None:
    out = run(instance_type="ml.p5en.48xlarge,ml.g5.xlarge", max_train_samples="1000")[1]

    assert (
        "ml.p5en.48xlarge has no price: the only list that has one, of 2026-10-07, names no region (72.63 USD per hour)"
        in out
    )
    assert "ml.g5.xlarge has no price" not in out


TYPES = ("ml.g5.xlarge", "ml.g5.12xlarge")
CLUSTERS = {"instance_type": "ml.g5.12xlarge,ml.p4d.24xlarge", "instance_count": "1,2,4"}


def test_clusters_make_a_table_that_is_printed_and_kept_in_the_run_of_mlflow_run(
    run: Command, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"max_train_samples": "100000", "max_seq_length": "256"}
    assert run(**CLUSTERS, **rows)[0] == 0
    assert runs_of(client) == []
    monkeypatch.setenv("MLFLOW_RUN_ID", client.create_run("0").info.run_id)
    code, out, err = run(**CLUSTERS, **rows)
    monkeypatch.delenv("MLFLOW_RUN_ID")

    assert (code, err) == (0, "")
    (recorded,) = runs_of(client)
    assert (recorded.info.status, tags_of(recorded)["paretune.origin"]) == ("FINISHED", "estimated")
    assert tags_of(recorded)["mlflow.note.content"].startswith("**Estimated, no job was run for this table.**")
    text = mlflow.artifacts.load_text(f"{recorded.info.artifact_uri}/estimate.csv")
    table = list(csv.DictReader(io.StringIO(text)))
    assert tuple(table[0]) == COLUMNS
    assert [(row["instance_type"], row["instance_count"]) for row in table] == [
        (name, count) for name in ("ml.g5.12xlarge", "ml.p4d.24xlarge") for count in ("1", "2", "4")
    ]
    for row in table:
        assert 0 < float(row["seconds_low"]) < float(row["seconds"]) < float(row["seconds_high"])
        assert float(row["cost_usd"]) == pytest.approx(
            float(row["seconds"]) * int(row["instance_count"]) * float(row["price_usd_per_hour"]) / 3600, rel=1e-3
        )
        assert row["basis"].endswith("data sheets: nothing similar was measured")
        assert row["basis"] in out
    marked = [line for line in out.splitlines() if line.startswith("*")]
    assert len(marked) == sum(row["on_front"] == "true" for row in table) > 0
    assert "no job was run for this table" in out
    assert "prices of us-east-1" in out
    assert recorded.info.run_id in out
    assert "nothing similar was measured" in run(instance_type="ml.g5.12xlarge")[1]  # an estimate is no evidence


def test_measured_and_published_runs_are_used_and_simulated_ones_only_for_simulated_jobs(
    run: Command, client: MlflowClient
) -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "max_train_samples": 50_000}
    put_job(client, "measured", 1000.0, **job)
    put_job(client, "published", 1000.0, **job)
    put_job(client, "simulated", 9000.0, **job)
    texts = {name: str(value) for name, value in job.items()}

    _, out, _ = run(**texts)
    assert "2 runs (1 published) of this model on this cluster" in out
    assert " 16 m 39 s (" in out or " 16 m 40 s (" in out  # 1000 s
    _, out, _ = run(**texts, launcher="simulated")
    assert "3 runs (1 published, 1 simulated) of this model on this cluster" in out


@pytest.mark.parametrize("rows", [1e25, 1e305])
def test_runs_whose_figures_cannot_be_right_leave_the_estimate_of_data_sheets(
    run: Command, client: MlflowClient, rows: float
) -> None:
    job, tags = JobSpec(instance_type="ml.g5.xlarge"), {"origin": "published", "state": "Completed"}
    put_run(client, job.as_text(), tags, {"billable_seconds": 1e-9, "train_rows": rows})

    code, out, _ = run(instance_type="ml.g5.xlarge")

    assert code == 0
    assert "data sheets: nothing similar was measured" in out


def test_rows_without_a_dataset_are_as_long_as_max_seq_length_and_the_table_says_so(run: Command) -> None:
    # Otherwise the estimate would assume 75 times fewer tokens, as in the default data set.
    job = {"model": "meta-llama/Llama-3.1-8B", "task": "causal-lm", "fine_tuning": "lora"}
    lengths = {"max_seq_length": "2048", "instance_type": "ml.p4d.24xlarge"}
    code, out, _ = run(**job, **lengths, max_train_samples="1000", json="true")
    table = json.loads(out)
    (row,) = table["rows"]

    assert code == 0
    assert row["tokens"] == pytest.approx(1000 * 2048, rel=0.03)  # whole steps
    assert row["dataset"] is None
    assert "data: 1,000 rows of 2,048 tokens, assumed because dataset is not given" in table["remarks"]
    more = json.loads(run(**job, **lengths, max_train_samples="8000", json="true")[1])["rows"][0]
    assert row["largest_batch_that_fits"] == more["largest_batch_that_fits"] == 1


def test_the_mean_length_of_rows_can_be_typed_and_padding_follows(run: Command, workplace: Path) -> None:
    job = {"model": "bert-base-uncased", "max_train_samples": "23000", "max_seq_length": "512", "program": "trainer"}
    job |= {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": "8"}

    whole, short, alone = (
        json.loads(run(**job | changes, json="true")[1])
        for changes in ({}, {"row_tokens": "200"}, {"row_tokens": "200", "per_device_train_batch_size": "1"})
    )

    assert "data: 23,000 rows of 200 tokens, assumed to be padded to 343 in a batch" in short["remarks"]
    assert short["rows"][0]["seconds_compute"] == pytest.approx(
        whole["rows"][0]["seconds_compute"] * 343 / 512, rel=0.1
    )
    assert "data: 23,000 rows of 200 tokens, assumed because dataset is not given" in alone["remarks"]  # no padding
    code, _, err = run(row_tokens="200", instance_type="ml.g5.xlarge")
    assert code == 2
    assert "row_tokens needs max_train_samples" in err


def test_rows_of_a_local_parquet_file_are_counted_like_those_of_a_csv_file(run: Command, workplace: Path) -> None:
    frame = pd.DataFrame(
        {"text": ["a film about people in a small town, " * n for n in range(1, 41)], "label": [0, 1] * 20}
    )
    frame.to_parquet(workplace / "rows.parquet")
    frame.to_csv(workplace / "rows.csv", index=False)

    parquet, csv_file = (
        run(dataset=name, instance_type="ml.g5.xlarge", max_seq_length="128")[1]
        for name in ("rows.parquet", "rows.csv")
    )

    assert "data: rows.parquet, 36 rows of" in parquet
    assert parquet.replace("rows.parquet", "rows.csv") == csv_file
    (workplace / "rows.parquet").write_text("no parquet")
    code, _, err = run(dataset="rows.parquet", instance_type="ml.g5.xlarge")
    assert (code, "the number of rows of dataset rows.parquet is not known yet" in err) == (2, True)


def test_rows_of_a_local_file_are_counted_and_it_is_said_that_they_are_cut(run: Command, workplace: Path) -> None:
    text = "a film about people in a small town, " * 30  # 1,110 characters, about 266 tokens
    (workplace / "rows.csv").write_text("text,label\n" + "".join(f'"{text}",{row % 2}\n' for row in range(2000)))
    job = {"dataset": "rows.csv", "instance_type": "ml.g5.xlarge"}

    code, out, _ = run(**job, max_seq_length="128")
    (row,) = json.loads(run(**job, max_seq_length="512", json="true")[1])["rows"]

    assert code == 0
    assert "data: rows.csv, 1,800 rows of 128 tokens, counted in the file; tokens are estimated" in out
    assert "warning: max_seq_length=128 keeps about 48% of the tokens: it cuts the end off 100% of the rows" in out
    assert row["steps"] == pytest.approx(1800 / 16, abs=1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "data: bundled:rotten_tomatoes, 7,677 rows of 27 tokens, because neither dataset nor"),
        ({"dataset": "bundled:imdb"}, "data: bundled:imdb, 22,500 rows of 128 tokens"),
        ({"dataset": "me/mine", "max_train_samples": "50"}, "data: me/mine, 50 rows of 128 tokens (not prepared yet)"),
        ({"max_train_samples": "50,60"}, "data: 50 rows of 128 tokens, assumed because dataset is not given; 60 rows"),
    ],
)
def test_a_table_names_the_data_that_it_assumes(run: Command, given: dict[str, str], words: str) -> None:
    assert words in run(instance_type="ml.g5.xlarge", **given)[1]


def test_a_language_model_on_the_default_data_has_rows_of_joined_texts(run: Command) -> None:
    typed = {"model": "gpt2", "task": "causal-lm", "max_seq_length": "512", "instance_type": "ml.g5.xlarge"}
    row = json.loads(run(**typed, json="true")[1])["rows"][0]

    assert row["tokens"] == pytest.approx(7677 * 27.3, rel=0.05)
    assert row["steps"] == pytest.approx(7677 * 27.3 / 512 / 16, rel=0.05)


def test_rows_beyond_the_positions_of_a_model_are_refused(run: Command) -> None:
    code, _, err = run(model="roberta-base,bert-base-uncased", max_seq_length="1024", instance_type="ml.g5.xlarge")

    assert code == 2
    assert "max_seq_length must be at most 512 for roberta-base, got 1024" in err
    assert "max_seq_length must be at most 512 for bert-base-uncased, got 1024" in err


@pytest.fixture
def own_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes an instance type to the user's own file: name, accelerator and accelerator count."""
    caches = (catalog.rows, catalog.instances)

    def describe(texts: str) -> None:
        path = tmp_path / "instances.csv"
        columns = "accelerator_memory_gb,network_gbps,vcpus,memory_gb,local_storage_gb,price_usd_per_hour,region"
        path.write_text(
            f"instance_type,accelerator,accelerator_count,{columns}\n{texts},48,25,32,128,900,3.0,us-east-1\n"
        )
        monkeypatch.setattr(catalog, "OWN_TYPES", str(path))
        for cached in caches:
            cached.cache_clear()

    yield describe
    for cached in caches:
        cached.cache_clear()


def test_a_gpu_of_ones_own_without_a_data_sheet_is_a_gpu_of_unknown_speed(
    run: Command, own_types: Callable[[str], None]
) -> None:
    own_types("ml.g9.xlarge,NVIDIA RTX PRO 5000,1")
    answer = run(instance_type="ml.g9.xlarge,ml.m5.4xlarge", max_train_samples="100000", json="true")[1]
    own, processors = json.loads(answer)["rows"]

    assert own["basis"].startswith("no data sheet for NVIDIA RTX PRO 5000, so its speed is a guess; ")
    assert own["seconds"] < processors["seconds"] / 2
    assert own["seconds_high"] / own["seconds_low"] > 3
    assert 40 < own["memory_gib_usable"] < 48  # of the card, not of the machine's 128


def test_chips_that_nothing_here_can_use_are_refused(run: Command, own_types: Callable[[str], None]) -> None:
    own_types("ml.g9.xlarge,RTX PRO 5000,1")
    code, _, err = run(instance_type="ml.g9.xlarge", max_train_samples="100000")

    assert code == 2
    assert "instance_type ml.g9.xlarge has RTX PRO 5000 chips, which paretune cannot use: GPUs are named NVIDIA" in err


def test_all_faults_of_all_rows_are_reported_once() -> None:
    typed = {"instance_type": "ml.g5.xlage,ml.g5.xlarge", "instance_count": "1,0", "strategy": "ddp,smddp"}
    with pytest.raises(BadInput) as refused:
        EstimateRequest.from_text({**typed, "learning_rate": "-1", "region": "us-est-1"})
    faults = refused.value.faults

    assert len(set(faults)) == len(faults)
    for message in (
        "got 'ml.g5.xlage': did you mean ml.g5.xlarge",
        "instance_count must be at least 1",
        "learning_rate must be greater than 0",
    ):
        assert [fault for fault in faults if message in fault], message


PRICE = Price(usd_per_hour=3.6, region="us-east-1", as_of="2026-11-20", source="test")


def estimate(price: Price | None = PRICE, **changes: Any) -> Estimate:
    spec = JobSpec(**{"model": "bert-base-uncased", "instance_type": "ml.g5.xlarge", **changes})
    built = well_known(spec.model)
    assert built is not None
    estimated = Estimator(Evidence()).estimate(spec, built, price)
    assert estimated is not None
    return estimated


def table(*estimates: Estimate) -> EstimateTable:
    return EstimateTable(jobs=[(item.spec, item) for item in estimates], region="us-east-1")


def read(*estimates: Estimate) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(*estimates).csv())))


def test_a_row_has_the_seconds_of_each_phase_with_their_interval() -> None:
    item = estimate()
    row, local = read(item, estimate(price=None, instance_type="local"))

    for phase in ("waiting", "starting", "data", "image", "training", "uploading"):
        low, middle, high = (float(row[f"{phase}_{name}"]) for name in ("seconds_low", "seconds", "seconds_high"))
        assert low <= middle <= high
        assert middle == pytest.approx(item.phases[phase].seconds, abs=0.1)
    billed = sum(float(row[f"{phase}_seconds"]) for phase in ("data", "image", "training", "uploading"))
    assert billed == pytest.approx(item.time.seconds, abs=0.5)
    assert local["training_seconds"] == local["seconds"]
    assert {local[f"{phase}_seconds"] for phase in ("waiting", "starting", "data", "image", "uploading")} == {""}


def test_a_language_model_is_priced_by_its_tokens_and_by_days() -> None:
    cluster = {
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 120,
        "strategy": "fsdp",
        "training_arguments.gradient_checkpointing": True,
    }
    rows = {"task": "causal-lm", "dataset": "a/b", "max_seq_length": 2048, "max_train_samples": 1_200_000}
    item = estimate(model="gpt3-175b", tensor_parallel_degree=8, global_batch_size=1200, **cluster, **rows)
    (row,) = read(item)

    assert float(row["tokens"]) == 1_200_000 * 2048
    assert float(row["days"]) == pytest.approx(item.time.seconds / 86_400)
    assert float(row["usd_per_billion_tokens"]) == pytest.approx(float(row["cost_usd"]) / 2.4576, rel=1e-4)
    assert (row["tensor_parallel_degree"], row["cpu_offload"]) == ("8", "false")
    assert "USD per billion tokens" in str(table(item))
    assert "USD per billion tokens" not in str(table(estimate()))
    assert read(estimate())[0]["tokens"] == ""


def test_a_terminal_of_80_columns_shows_all_columns_in_tables_that_fit_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unsure = estimate(per_device_train_batch_size=220, max_seq_length=256, max_train_samples=10_000)
    job: dict[str, Any] = {"task": "causal-lm", "model": "gpt2", "dataset": "a/b", "max_train_samples": 90_000}
    rows = [unsure, estimate(instance_type="ml.p6-b200.48xlarge", instance_count=16, strategy="fsdp"), estimate(**job)]
    smaller = replace(estimate(), changes={"per_device_train_batch_size": 64})
    remedied = replace(unsure, find_remedy=lambda: smaller)
    shown = {}
    for width in (80, 300):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = str(table(remedied, *rows[1:])).partition("\n\nestimated")[0].splitlines()
        assert max(map(len, lines)) <= width
        shown[width] = lines[next(number for number, line in enumerate(lines) if line.startswith("   cluster")) :]

    assert max(map(len, shown[80])) <= 80
    assert max(map(len, shown[300])) > 80
    assert "" not in shown[300]  # one table
    for column in (
        "time (80 % interval)",
        "USD (80 % interval)",
        "largest batch",
        "USD per billion tokens",
        "strategy",
    ):
        assert [sum(column in line for line in lines) for lines in shown.values()] == [1, 1]
    assert unsure.fits == "unsure"
    assert not shown[80][1].startswith("*")  # what may not fit is not on the front
    assert shown[80][2].startswith("     may not fit: ")
    assert "--per_device_train_batch_size 64 fits" in " ".join(shown[80][2:4])


def test_a_gpu_without_a_published_rate_is_named() -> None:
    assert estimate(instance_type="ml.p6-b200.48xlarge").basis.startswith("no training rate on NVIDIA B200 is known; ")
    assert "is known" not in estimate().basis


def test_only_what_surely_fits_and_has_a_price_is_on_the_front() -> None:
    # These have more arithmetic than communication.
    busy: dict[str, Any] = {"per_device_train_batch_size": 32, "max_seq_length": 512, "max_train_samples": 50_000}
    cheap, dear = estimate(**busy), estimate(**busy, instance_type="ml.g5.12xlarge", instance_count=4)
    unpriced = estimate(price=None, instance_type="ml.p4d.24xlarge")
    full = estimate(per_device_train_batch_size=4096, max_train_samples=16)

    assert full.fits == "no"
    assert full.time.seconds < cheap.time.seconds
    assert dear.time.seconds < cheap.time.seconds
    assert on_front([unpriced, cheap, full, None, dear]) == [False, True, False, False, True]
    assert on_front([]) == []


def test_a_training_of_one_s_own_has_seconds_and_dollars_where_one_has_run() -> None:
    spec = JobSpec(entry_script="train.py", instance_type="ml.g5.xlarge")
    time = Prediction(seconds=100.0, seconds_low=50.0, seconds_high=200.0)
    item = Estimate(spec=spec, plan=spec.plan(), measured_here=1, time=time, price=PRICE, basis="1 run")
    own = EstimateTable(jobs=[(spec, item), (spec.replace(instance_count=2), None)], region="us-east-1")
    known, unknown = csv.DictReader(io.StringIO(own.csv()))

    assert tuple(known) == COLUMNS
    assert (known["seconds_high"], float(known["cost_usd"]), known["basis"]) == ("200.0", pytest.approx(0.1), "1 run")
    assert (unknown["seconds"], unknown["cost_usd"], unknown["basis"]) == (
        "",
        "",
        "no run of this job yet: run it once",
    )
    assert "1 m 40 s (50.0 s to 3 m 20 s)" in str(own)
    assert "GiB" not in str(own)


def test_two_tasks_of_a_model_are_estimated_as_each_of_them_alone(no_settings: None) -> None:
    tasks = ["classification", "causal-lm"]
    job = JobSpec(model="gpt2", max_train_samples=1000, instance_type="ml.g5.xlarge")

    both = paretune.estimate(job, task=tasks).rows()
    alone = [row for task in tasks for row in paretune.estimate(job, task=task).rows()]

    for name in ("seconds", "memory_gib_per_device"):
        assert [row[name] for row in both] == [row[name] for row in alone]


def test_a_bill_of_a_script_with_the_trainer_is_what_its_command_prints(run: Command, workplace: Path) -> None:
    """The job is one of a public benchmark of 2021. It was billed for 66,142 seconds (mean of two)."""
    job = {"model": "distilbert-base-uncased", "dataset": "fancyzhx/amazon_polarity", "max_train_samples": "900000"}
    job |= {"num_train_epochs": "3", "max_seq_length": "512", "precision": "fp32", "instance_type": "ml.p3.2xlarge"}
    job |= {"per_device_train_batch_size": "32", "program": "trainer-4.6", "test_rows": "400000"}

    code, out, _ = run(**job, **{"training_arguments.eval_strategy": "epoch"})

    assert code == 0
    assert re.search(r" 18 h \d+ m \(1[56] h to 2[1-5] h\)  \d", out)
    assert "max_runtime_minutes" not in out  # nothing is launched, so no limit of paretune ends it


def test_a_program_that_is_not_known_is_refused_with_those_that_are(run: Command, workplace: Path) -> None:
    code, _, err = run(model="bert-base-uncased", max_train_samples="1000", program="keras")

    assert code == 2
    assert "program must be paretune, trainer, or trainer with a version of transformers, such as trainer-4.46" in err


def test_a_training_that_is_only_described_is_not_launched(no_settings: None, workplace: Path, typed: Command) -> None:
    code, _, err = typed("train", "--program=trainer", "--dry_run=true")
    strategy = typed("train", "--program=trainer", "--strategy=dp", "--instance_type=ml.g5.12xlarge", "--dry_run=true")

    assert (code, strategy[0]) == (2, 2)
    assert "program=trainer only describes a training, for `paretune estimate` and `paretune import`" in err
    assert "strategy=dp is only for `paretune estimate` and `paretune import`: use ddp" in strategy[2]


def test_the_first_line_names_the_program_and_the_time_of_the_other_one_is_beside_it(
    run: Command, workplace: Path
) -> None:
    job = {"model": "distilbert-base-uncased", "max_train_samples": "100000", "instance_type": "ml.g5.xlarge"}

    ours = run(**job)[1].splitlines()
    theirs = run(**job, program="trainer")[1].splitlines()
    rows = json.loads(run(**job, json="true")[1])["rows"]

    assert ours[0] == ("assumes paretune's own training; for a script with Hugging Face's Trainer: --program trainer")
    assert any("with trainer" in line for line in ours[2:])
    assert theirs[0] == "assumes Hugging Face's Trainer of transformers 5"
    assert any("with paretune" in line for line in theirs[2:])
    assert rows[0]["program"] == "paretune"
    assert rows[0]["other_program"] == "trainer"
    assert rows[0]["other_seconds"] > 4 / 3 * rows[0]["seconds"]


def test_programs_that_hardly_differ_are_not_shown_twice(run: Command, workplace: Path) -> None:
    job = {"model": "distilbert-base-uncased", "max_train_samples": "1000", "instance_type": "ml.g5.xlarge"}

    assert "with trainer" not in run(**job)[1]
    compared = run(**job, program="paretune,trainer-4.x")[1].splitlines()
    assert "program" in compared[1]
    assert ["paretune" in compared[2], "trainer-4.x" in compared[3]] == [True, True]


SCRIPT = """
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=32, num_train_epochs=3)).train()
"""


def test_a_script_with_the_trainer_is_estimated_from_its_text_before_its_first_run(
    run: Command, workplace: Path, client: MlflowClient
) -> None:
    (workplace / "train.py").write_text(SCRIPT)
    job = {"entry_script": "train.py", "max_train_samples": "100000", "instance_type": "ml.g5.xlarge"}

    out = run(**job)[1]
    put_job(client, "measured", 600.0, **job)
    known = run(**job)[1]

    assert out.startswith("assumes Hugging Face's Trainer of transformers 5\n")
    assert "read from train.py; data sheets: nothing similar was measured" in out
    assert "1 run of the same job on this cluster" in known  # a run says more than the text


def test_a_script_that_loads_its_model_in_bf16_is_estimated_with_less_memory(run: Command, workplace: Path) -> None:
    job = {"entry_script": "train.py", "max_train_samples": "100000", "instance_type": "ml.g5.xlarge", "json": "true"}
    needed = []
    for arguments in ("", ", torch_dtype=torch.bfloat16"):
        script = SCRIPT.replace('base-uncased")', f'base-uncased"{arguments})')
        (workplace / "train.py").write_text(f"import torch\n{script}")
        (row,) = json.loads(run(**job)[1])["rows"]
        needed.append(row["memory_gib_per_device"])

    assert needed[1] < needed[0]


def test_the_command_above_the_table_of_bills_prints_its_first_row(
    no_settings: None, workplace: Path, typed: Command
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "evidence.md").read_text()
    above, _, table = text.partition("<!-- published_bills: begin -->")
    command = above.rpartition("```bash\n")[2].partition("```")[0].replace("\\\n", " ")

    code, out, _ = typed(*shlex.split(command)[1:])

    assert code == 0
    assert table.splitlines()[3].split(" | ")[-1].removesuffix(" |") in out
    assert out.startswith("assumes Hugging Face's Trainer of transformers 4.6\n")


def test_a_type_that_is_dearer_and_faster_by_a_second_that_nobody_can_tell_is_not_on_the_front() -> None:
    short: dict[str, Any] = {"max_train_samples": 2700, "max_seq_length": 16}
    cheap = estimate(**short)
    dear = estimate(replace(PRICE, usd_per_hour=4 * PRICE.usd_per_hour), **short, instance_type="ml.p3.2xlarge")

    assert dear.time.seconds < cheap.time.seconds
    assert on_front([dear, cheap]) == [False, True]
    assert "start-up and transfer are 9" in str(table(dear, cheap))


def test_checkpoints_that_take_more_than_a_tenth_of_a_job_have_a_line_that_saves_them(
    run: Command, workplace: Path
) -> None:
    job = {"model": "roberta-base", "max_train_samples": "45000", "program": "trainer", "instance_type": "ml.g5.xlarge"}

    _, out, _ = run(**job)
    _, none, _ = run(**job, **{"training_arguments.save_strategy": "no"})

    line = " ".join(out.split())
    assert """of it: --training_arguments '{"save_strategy": "no"}' saves that and """ in line
    assert "checkpoints" in line
    assert "checkpoints" not in none


def test_the_table_has_samples_per_second_and_no_time_of_a_program_that_does_not_fit() -> None:
    item = estimate(max_train_samples=100_000)
    other = estimate(max_train_samples=900_000, program="trainer", per_device_train_batch_size=4096, max_seq_length=512)
    assert other.fits == "no"

    text = str(replace(table(item), others=[other]))

    assert f"{item.plan.global_batch_size / item.time.step_seconds:.0f}" in text
    assert "samples/s" in text
    assert "with trainer" in text
    assert "does not fit" in text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": "MOE", "fine_tuning": "lora"}, "a mixture of experts"),
        (
            {"fine_tuning": "qlora", "precision": "fp16", "instance_type": "ml.g4dn.xlarge"},
            "4-bit weights on a GPU without bf16",
        ),
    ],
)
def test_a_kind_of_job_that_nobody_has_measured_says_so(
    run: Command, workplace: Path, changes: dict[str, str], named: str
) -> None:
    moe = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 50_000,
        "intermediate_size": 3072,
        "moe_intermediate_size": 512,
        "num_experts": 16,
        "num_experts_per_tok": 2,
    }
    (workplace / "MOE").mkdir()
    (workplace / "MOE" / "config.json").write_text(json.dumps(moe))
    usual = {"model": "Qwen2.5-1.5B", "task": "causal-lm", "max_train_samples": "1000", "instance_type": "ml.g5.xlarge"}

    code, out, err = run(**{**usual, **changes})

    assert code == 0, err
    assert f"no published rate of {named} is known, so the interval is half as wide again" in " ".join(out.split())


def test_rows_of_a_data_file_are_counted_for_a_script_with_the_trainer(run: Command, workplace: Path) -> None:
    (workplace / "rows.csv").write_text("text,label\n" + "a good film,1\n" * 400)
    (workplace / "train.py").write_text(
        "from transformers import AutoModelForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "model = AutoModelForSequenceClassification.from_pretrained('roberta-base')\n"
        "Trainer(model=model, args=args).train()\n"
    )

    _, out, _ = run(entry_script="train.py", dataset="rows.csv", instance_type="ml.g5.xlarge")

    assert "360 rows counted in rows.csv" in out
