"""The note that MLflow's UI shows on a job's run."""

import re

from paretune.jobs.result import job_note
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

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


def test_a_note_says_what_ran_what_came_out_where_the_model_is_and_how_to_repeat_it() -> None:
    spec = JobSpec(instance_type="ml.g5.xlarge", instance_count=2, learning_rate=1e-4)

    note = job_note(spec, FOUND, state="Completed", price=PRICE, model="s3://bucket/model.tar.gz", verdicts=["Poor."])

    answer, job = note.splitlines()[:3:2]
    assert job.startswith("**all-MiniLM-L6-v2** on **rotten_tomatoes (800 rows)**: full fine-tuning, global batch size")
    assert "learning rate 0.0001, on 2 × ml.g5.xlarge." in note
    assert answer.startswith(
        "F1 **0.800** on 100 validation rows (so few rows alone leave ± 0.040; other seeds add to it)"
    )
    assert "against TF-IDF 0.740 and the most frequent class 0.330" in answer
    assert answer.endswith("; **0.5 USD** (7.2 USD per hour, notional), 250 s")
    assert "- 52.2 training samples per second" in note
    assert "- model: `s3://bucket/model.tar.gz`" in note
    assert "> **Poor.**" in note
    assert spec.command() in note


def test_a_note_of_a_failed_job_says_why_and_one_of_a_simulated_job_that_nothing_was_trained() -> None:
    failed = job_note(JobSpec(), {}, state="Failed", reason="the disk is full")
    simulated = job_note(JobSpec(), {}, state="Completed", origin="simulated")

    assert failed.startswith("**Failed**: the disk is full\n")
    assert simulated.startswith("**Simulated**, nothing was trained: ")
    assert "F1" not in failed + simulated.partition("Again:")[0]


def test_a_note_shows_html_in_names_as_text_and_links_nowhere() -> None:
    evil = "<img src=x>![a](http://host/pixel.png)`<b>`"
    spec = JobSpec(model=f"org/{evil}", dataset=evil)

    note = job_note(spec, {}, state="Failed", reason=evil, model=evil, verdicts=[evil])
    outside_code = re.sub(r"(`{2,}).*?\1", "", note)

    assert "``" in note
    assert "<" not in outside_code
    assert "](" not in outside_code
