"""`estimate --probe` pays for one short job, and the table has what it measured."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from tests.support.recorded_jobs import put_run
from tests.support.tags import tags_of

Typed = Callable[..., tuple[int, str, str]]
JOB = {"max_train_samples": "4000", "launcher": "simulated", "simulation.seconds_noise": "0.05"}


@pytest.fixture
def run(no_settings: None, typed: Typed) -> Typed:
    """Return a function that runs `paretune estimate ...` for a simulated job, and returns code, output and errors."""
    return lambda **texts: typed("estimate", *(f"--{name}={text}" for name, text in {**JOB, **texts}.items()))


def jobs(client: MlflowClient) -> list[Any]:
    return [run for run in client.search_runs(["0"]) if "paretune.job_name" in tags_of(run)]


def test_a_probe_is_paid_for_once_and_narrows_the_intervals_of_types_with_the_same_gpu(
    run: Typed, workplace: Path, client: MlflowClient
) -> None:
    before = json.loads(run(instance_type="ml.g5.xlarge,ml.g5.12xlarge", json="true")[1])["rows"]
    code, out, err = run(probe="ml.g5.xlarge", json="true")
    after = {row["instance_type"]: row for row in json.loads(out)["rows"]}

    assert code == 0
    (job,) = jobs(client)
    assert job.data.params["probe_steps"] == "40"
    assert job.data.params["instance_type"] == "ml.g5.xlarge"
    first = err.splitlines()[0]
    assert first.startswith("probe: trains 40 steps on 1 x ml.g5.xlarge (at most 30 m")
    assert "USD" in first
    assert list(after) == ["ml.g5.xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge"]
    for row in before:
        probed = after[row["instance_type"]]
        assert probed["seconds_high"] / probed["seconds_low"] < row["seconds_high"] / row["seconds_low"]
    assert "1 simulated run of this model on this cluster" in after["ml.g5.xlarge"]["basis"]
    assert f"probe: run {job.info.run_id}, " in " ".join(json.loads(out)["remarks"])

    code, out, err = run(probe="ml.g5.xlarge")  # typed again

    assert code == 0
    assert [each.info.run_id for each in jobs(client)] == [job.info.run_id]
    assert f"probe: run {job.info.run_id} has measured it before; --force again pays for another one" in out
    assert "probe: trains" not in err


def test_a_probe_whose_table_would_be_refused_is_not_paid_for(
    typed: Typed, no_settings: None, workplace: Path, client: MlflowClient
) -> None:
    data = ["--dataset=someone/reviews", "--text_column=text", "--label_column=label"]

    code, _, err = typed("estimate", "--launcher=simulated", "--probe=ml.g5.xlarge", *data)

    assert code == 2
    assert "number of rows" in err
    assert jobs(client) == []


def test_a_probe_beyond_the_most_that_a_job_may_cost_is_refused_before_anything_is_paid(
    run: Typed, workplace: Path, client: MlflowClient
) -> None:
    code, out, err = run(probe="ml.g5.xlarge", max_cost_usd="0.05")

    assert code == 4
    assert not out
    assert "max_cost_usd" in err
    assert not jobs(client)


def test_a_dry_run_shows_the_probe_and_its_worst_case_and_prepares_nothing(
    run: Typed, workplace: Path, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("paretune.jobs.preparation.subprocess.Popen", refuse)  # prepares rows and their baselines
    code, out, _ = run(probe="ml.g5.xlarge", max_train_samples="5000", dry_run="true")

    assert code == 0
    assert "dry run: nothing was launched; probe: trains 40 steps on 1 x ml.g5.xlarge (at most 30 m and " in out
    assert "USD in the worst case), and then the table follows: `paretune estimate --probe ml.g5.xlarge " in out
    assert "--max_train_samples 5000" in out
    assert "--dry_run" not in out
    assert not jobs(client)


def test_the_clusters_of_the_table_can_be_typed_beside_the_probe(run: Typed, workplace: Path) -> None:
    rows = json.loads(run(probe="ml.g5.xlarge", instance_type="ml.p4d.24xlarge", json="true")[1])["rows"]

    assert [row["instance_type"] for row in rows] == ["ml.g5.xlarge", "ml.p4d.24xlarge"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"probe": "ml.g5.tiny"}, "ml.g5.tiny"),
        ({"probe": "ml.g5.xlarge", "like": "some-job"}, "probe and like cannot be combined"),
    ],
)
def test_a_probe_that_is_not_possible_is_refused(
    run: Typed, workplace: Path, client: MlflowClient, texts: dict[str, str], message: str
) -> None:
    code, _, err = run(**texts)

    assert code == 2
    assert message in err
    assert not jobs(client)


SCRIPT = """
import argparse
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int, default=-1)
args = parser.parse_args()
model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=32, max_steps=args.max_steps)).train()
"""
OWN_JOB = {"entry_script": "train.py", "max_train_samples": "100000"}


def test_a_script_is_probed_by_its_max_steps_and_the_seconds_that_its_trainer_reports(
    no_settings: None, workplace: Path, typed: Typed, client: MlflowClient
) -> None:
    (workplace / "train.py").write_text(SCRIPT)
    words = [f"--{name}={text}" for name, text in OWN_JOB.items()]
    types = "ml.g5.xlarge,ml.g5.12xlarge"
    before = json.loads(typed("estimate", *words, f"--instance_type={types}", "--json")[1])["rows"]
    probe = JobSpec(  # the script has no option for a number of rows, so its job gets none
        entry_script="train.py",
        instance_type="ml.g5.xlarge",
        max_runtime_minutes=30,
        training_arguments={"max_steps": PROBE_STEPS},
    )
    tags = {name.removeprefix("paretune."): text for name, text in schema.given_tag(probe.given()).items()}
    tags |= {"spec_hash": probe.spec_hash(), "origin": "measured", "state": "Completed"}
    put_run(client, probe.as_text(), tags, {"train_runtime": 40.0, "billable_seconds": 200.0})

    code, out, err = typed("estimate", *words, f"--instance_type={types}", "--probe=ml.g5.xlarge", "--json")

    assert code == 0, err
    answer = json.loads(out)
    assert "has measured it before" in answer["remarks"][0]
    assert "1 run of this model on this cluster" in answer["rows"][0]["basis"]
    for row, probed in zip(before, answer["rows"], strict=True):
        assert probed["seconds_high"] / probed["seconds_low"] < row["seconds_high"] / row["seconds_low"]
    assert answer["rows"][0]["seconds_low"] < 3 * 3125 * 1.0 < answer["rows"][0]["seconds_high"]  # 1 s per step


@pytest.mark.parametrize(
    ("text", "removed", "message"),
    [
        ("print('hello')", "", "probe needs a script that trains with Hugging Face's Trainer"),
        (SCRIPT.replace(", max_steps=args.max_steps", ""), "", "option max_steps that reaches the Trainer"),
        (SCRIPT, "max_train_samples", "probe needs to know how long the whole training is: give max_train_samples"),
    ],
)
def test_a_script_that_a_probe_cannot_measure_is_refused_with_what_to_do(
    no_settings: None, workplace: Path, typed: Typed, client: MlflowClient, text: str, removed: str, message: str
) -> None:
    (workplace / "train.py").write_text(text)
    words = [f"--{name}={value}" for name, value in OWN_JOB.items() if name != removed]

    code, _, err = typed("estimate", *words, "--probe=ml.g5.xlarge")

    assert code == 2
    assert message in err
    assert not jobs(client)
