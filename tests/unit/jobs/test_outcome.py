"""What a job returns: as text, as JSON and as the note of its run; what to do about a failure, or about its model."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from paretune.jobs.card import opening_card
from paretune.jobs.outcome import (
    JobOutcome,
    failure_message,
    script_remarks,
    sources_without_bill,
    verdicts,
    without_impossible_seconds,
)
from paretune.pricing import ML_M5_LARGE
from paretune.specification.container import JobReport
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, cut_off, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Offer
from paretune.specification.price import Price
from paretune.user_code.script_metrics import LOGGERS

MEASURED = {
    "f1": 0.87654,
    "baseline_f1_tfidf": 0.7412,
    "baseline_f1_majority": 0.3333,
    "test_f1": 0.8512,
    "throughput_samples_per_second": 1234.56,
    "train_seconds": 98.76,
    "job_seconds": 3600.0,
    "cost_usd": 0.115,
    "truncated_share": 0.125,
}


FULL = failed(Cause.DISK_FULL, "the disk is full")


def offer_of(spec: JobSpec) -> Offer:
    return Offer(instance_type=spec.instance_type, instance_count=spec.instance_count, batch=spec.plan())


def outcome(**changes: Any) -> JobOutcome:
    values: dict[str, Any] = {
        "run_id": "abc",
        "job_name": "paretune-abc-1",
        "ending": COMPLETED,
        "metrics": MEASURED,
        "open_command": "mlflow ui",
        "model": "jobs/paretune-abc-1/model",
    }
    spec, price = changes.pop("spec", JobSpec()), changes.pop("price", ML_M5_LARGE)
    values |= {"card": opening_card(spec), "offer": replace(offer_of(spec), price=price)}
    return JobOutcome(**(values | changes))


def rows_of(text: str) -> dict[str, str]:
    """Return the values of the table's lines by name, split at two spaces or more."""
    parts = [line.strip().split("  ", 1) for line in text.splitlines() if "  " in line.strip()]
    return {name: value.strip() for name, value in parts}


def test_the_summary_has_every_number_with_its_unit() -> None:
    text = str(outcome())

    assert text.splitlines()[1] == "job paretune-abc-1"
    assert rows_of(text) == {
        "F1 (macro, validation)": "0.8765",
        "TF-IDF + logistic regression": "0.7412",
        "most frequent class": "0.3333",
        "F1 (macro, test)": "0.8512",
        "throughput": "1,234.6 samples/s",
        "training": "1 m 39 s",
        "whole job": "1 h",
        "cost": "0.115 USD (notional: AWS price list, SageMaker Training, ml.m5.large, 0.115 USD per hour)",
        "truncated texts": "12.5%",
        "model": "jobs/paretune-abc-1/model",
    }
    assert "mlflow ui" in text
    listed = "one source: AWS price list us-east-1 2026-04-21 via a list; also us-east-1 2026-09-25"
    dear = Price(usd_per_hour=2.0, region="us-east-1", as_of="2026-09", source=listed, confidence="single_source")
    words = rows_of(str(outcome(price=dear)))["cost"]
    assert words.endswith(" USD (one source: AWS price list us-east-1 via a list, 2 USD per hour, price of 2026-09)")
    unpriced = {name: value for name, value in MEASURED.items() if name != "cost_usd"}
    assert rows_of(str(outcome(metrics=unpriced, price=None)))["cost"] == "unknown: no price"
    cheap = outcome(metrics={"cost_usd": 0.00003386})
    assert rows_of(str(cheap))["cost"].startswith("0.0000339 USD (")
    assert cheap.in_one_line().endswith("; 0.0000339 USD")  # and not 3.386e-05
    assert rows_of(str(outcome(metrics=unpriced)))["cost"] == "unknown"  # as are the seconds of a job that is gone


@pytest.mark.parametrize(("idle", "said"), [(0.4, ["idle 40% of the time"]), (0.33, []), (None, [])])
def test_gpus_that_are_idle_for_more_than_a_third_of_the_time_are_said_in_the_run_s_description(
    idle: float | None, said: list[str]
) -> None:
    facts: dict[str, Any] = {} if idle is None else {"gpu_idle_share": idle}

    text = outcome(report=JobReport(metrics=MEASURED, facts=facts)).note()

    assert re.findall(r"GPU: (idle \d+% of the time)", text) == said


def test_the_document_is_json_and_has_the_row_of_the_price_list() -> None:
    document = outcome(metrics={"f1": 0.5, "eval_loss": float("nan")}).to_dict()

    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["metrics"] == {"f1": 0.5, "eval_loss": None}
    price = document["price"]
    assert isinstance(price, dict)
    assert price["usd_per_hour"] == 0.115
    assert outcome(price=None).to_dict()["price"] is None


def test_a_training_that_claims_more_seconds_than_its_job_took_has_no_train_seconds_and_a_remark_says_why() -> None:
    card, printed = (
        opening_card(JobSpec(entry_script="train.py")),
        {"train_runtime": 12.5, "train_seconds": 12.5, "f1": 0.9},
    )

    report, remarks = without_impossible_seconds(card, JobReport(metrics=printed), 1.5)

    assert report is not None
    assert report.metrics == {"train_runtime": 12.5, "f1": 0.9}
    assert remarks == ["its training reports 12.5 s, but the whole job took 1.5 s: train_seconds is not recorded"]
    assert without_impossible_seconds(card, JobReport(metrics=printed), 13.0)[1] == []
    assert without_impossible_seconds(opening_card(JobSpec()), JobReport(metrics=printed), 1.5)[1] == []


PRICE = Price(usd_per_hour=7.2, region="us-east-1", as_of="", source="a list; of July", confidence="notional")
FOUND = {
    "train_rows": 800.0,
    "validation_rows": 100.0,
    "f1": 0.8,
    "baseline_f1_tfidf": 0.74,
    "baseline_f1_majority": 0.33,
    "cost_usd": 0.5,
    "job_seconds": 250.0,
    "throughput_samples_per_second": 52.25,
}


def test_a_note_says_what_ran_how_it_ended_what_came_out_and_how_to_repeat_it() -> None:
    spec = JobSpec(instance_type="ml.g5.xlarge", instance_count=2, learning_rate=1e-4)

    note = outcome(spec=spec, metrics=FOUND, price=PRICE, verdicts=["Poor."]).note()
    full = outcome(metrics={}, ending=FULL, reason="the disk is full: make room").note()
    of_script = outcome(spec=spec.replace(entry_script="train.py"), origin="simulated").note()

    job = "b32 lr1e-4 2 x g5.xlarge all-MiniLM-L6-v2 (paretune-abc-1)"
    assert (
        note.splitlines()[0]
        == f"**{job} Completed; F1 0.800 ± 0.040 on 100 validation rows; 0.500 USD; 52.2 samples/s**"
    )
    assert "- TF-IDF + logistic regression: 0.7400" in note
    assert "> **Poor.**" in note
    assert spec.command() in note
    assert "Failed: the disk is full: make room**\n" in full
    cluster = "on 2 x ml.g5.xlarge (paretune-abc-1, simulated)"
    assert of_script.startswith(f"**train.py lr=0.0001 {cluster} Completed")


def test_a_note_shows_html_in_names_as_text_and_links_nowhere() -> None:
    evil = "<img src=x>![a](http://host/pixel.png)`<b>`"
    spec = JobSpec(model=f"org/{evil}", dataset=evil)

    note = outcome(spec=spec, ending=FULL, reason=evil, model=evil, verdicts=[evil]).note()
    outside_code = re.sub(r"(`{2,}).*?\1", "", note)

    assert "``" in note
    assert "<" not in outside_code
    assert "](" not in outside_code


def report_of(*names: str) -> JobReport:
    return JobReport(metrics=dict.fromkeys(names, 0.5))


def test_a_training_of_the_users_own_shows_all_its_metrics() -> None:
    names = ("accuracy", "loss", *(f"m{number}" for number in range(9)))
    report = report_of(*names)
    text = str(outcome(spec=JobSpec(entry_script="train.py"), metrics=report.metrics, report=report, model=""))

    assert list(rows_of(text)) == [*names, "cost"]


@pytest.mark.parametrize(
    ("names", "lacks"),
    [
        (("eval_accuracy", "train_loss"), False),
        *(((name,), False) for name in ("eval_loss", "val_loss", "validation_loss", "test_loss")),
        (("loss", "train_loss", "train_runtime"), True),
        ((), True),
    ],
)
def test_a_script_gets_a_hint_only_if_it_has_left_no_metric_of_an_evaluation(
    names: tuple[str, ...], lacks: bool
) -> None:
    remarks = script_remarks(opening_card(JobSpec(entry_script="train.py")), report_of(*names))

    assert len(remarks) == lacks
    for text in remarks:
        kind = "metric of an evaluation" if names else "metric"
        assert text.startswith(f"train.py has reported no {kind}: ")
        assert text.endswith(f" (looked in {LOGGERS})")
        assert ("do_eval" in text) is ("train_runtime" in names)
        assert "print one on a line such as `val_f1: 0.9`, or log it with MLflow" in text


@pytest.mark.parametrize("job", [{"entry_script": "train.py"}, {"project": "mine"}])
def test_metrics_of_the_users_own_training_that_ended_nan_are_listed(job: dict[str, str]) -> None:
    report = JobReport(metrics={}, not_finite=("f1", "loss"))

    remarks = script_remarks(opening_card(JobSpec(**job)), report)

    (text,) = remarks
    assert text.startswith("not recorded, because the last value was NaN or infinite: f1, loss; ")
    assert "lower its learning rate" in text


ON_SAGEMAKER = JobSpec(instance_type="ml.g5.xlarge", fallback_instance_types="ml.g5.2xlarge")


def test_the_sources_of_metrics_do_not_name_what_only_a_bill_knows() -> None:
    assert sources_without_bill("MLflow: f1, cost_usd; printed: billed_usd") == "MLflow: f1"
    assert sources_without_bill("") == ""


@pytest.mark.parametrize(
    ("spec", "cause", "remedy"),
    [
        (JobSpec(), Cause.OUT_OF_MEMORY, "out of memory, with batch 8: lower max_seq_length, set fine_tuning to"),
        (JobSpec(fine_tuning="qlora"), Cause.OUT_OF_MEMORY, "lower max_seq_length, or use a larger instance"),
        (
            JobSpec(entry_script="a.py"),
            Cause.OUT_OF_MEMORY,
            "with batch 8: reduce the memory that a.py needs, for example",
        ),
        (ON_SAGEMAKER, Cause.CAPACITY, "ml.g5.xlarge or ml.g5.2xlarge: set fallback_instance_types"),
        (
            ON_SAGEMAKER,
            Cause.DISK_FULL,
            "set a larger sagemaker.volume_size_in_gb for model, data and checkpoints or, if the instance has disks of "
            "its own, an instance_type with larger ones",
        ),
        (JobSpec(), Cause.DISK_FULL, "the reason: make room, or set PARETUNE_HOME to another disk"),
        (JobSpec(), Cause.ERROR, "the reason"),
    ],
)
def test_the_reason_of_a_failure_comes_with_what_helps_there(spec: JobSpec, cause: Cause, remedy: str) -> None:
    message = failure_message(opening_card(spec), failed(cause, "the reason"), "with batch 8")

    assert "the reason" in message
    assert remedy in message
    if cause is Cause.OUT_OF_MEMORY:
        assert failure_message(opening_card(spec), failed(cause, "the reason"), "").startswith("out of memory: ")


@pytest.mark.parametrize(
    ("ending", "remedy"),
    [
        (cut_off("it ran too long"), ": raise max_runtime_minutes, or train for fewer steps or rows"),
        (failed(Cause.SILENT, "it ended"), " without printing anything: check where it calls sys.exit"),
        (failed(Cause.ERROR, "a.py ended with exit code 3"), ""),
        (failed(Cause.CODE, "MaxRuntimeExceeded is not defined"), ""),
        (STOPPED, ""),
        (COMPLETED, ""),
    ],
)
def test_the_cause_and_not_the_sentence_decides_what_is_advised(ending: Ending, remedy: str) -> None:
    spec = JobSpec(entry_script="a.py")

    assert failure_message(opening_card(spec), ending, "") == f"{ending.sentence}{remedy}"


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "--num_train_epochs 3"),
        ({"fine_tuning": "lora", "learning_rate": 5e-5}, "--learning_rate 0.0005, --num_train_epochs 3"),
        ({"learning_rate": 0.01}, "--learning_rate 5e-05, --num_train_epochs 3"),
        ({"training_arguments": {"max_steps": 30}}, "--training_arguments.max_steps 90"),  # which overrides the epochs
    ],
)
def test_an_f1_below_that_of_words_or_of_one_class_is_said_with_what_to_change(
    changes: dict[str, Any], remedy: str
) -> None:
    words = {"baseline_f1_tfidf": 0.74}
    (text,) = verdicts(opening_card(JobSpec(**changes)), {"f1": 0.5, **words})
    (worse,) = verdicts(opening_card(JobSpec(**changes)), {"f1": 0.33, "baseline_f1_majority": 0.33, **words})

    assert text.startswith("F1 0.5000 is no better than 0.7400 on the same rows (TF-IDF")
    assert text.partition("; try ")[2] == remedy
    assert worse.startswith("F1 0.3300 is no better than 0.3300 on the same rows (most frequent class)")
    (unsure,) = verdicts(opening_card(JobSpec(**changes)), {"f1": 0.73, "validation_rows": 100, **words})
    assert ": it is unknown whether the model is better than a simple baseline; try" in unsure
    (sure,) = verdicts(opening_card(JobSpec(**changes)), {"f1": 0.73, "validation_rows": 100_000, **words})
    assert ": the model is no better than a simple baseline; try" in sure
    several = verdicts(opening_card(JobSpec(task="multi-label", **changes)), {"f1": 0.3, "baseline_f1_majority": 0.3})
    assert "on the same rows (most frequent set of labels)" in several[0]
    assert not any(
        verdicts(opening_card(JobSpec()), metrics) for metrics in ({"f1": 0.74, **words}, {"f1": 0.5}, words)
    )
