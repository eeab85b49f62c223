"""A user's own script: its command line, what is read from its output, and one that runs for real."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.core.script_metrics import PrintedNumbers
from paretune.specification.container import EventReader
from paretune.specification.metrics import EVAL_LOSS, F1, THROUGHPUT_SAMPLES, TRAIN_SECONDS
from paretune.training.callback import EventWriter
from paretune.training.script import PrintedMetrics, trim_model_folder

SCRIPT = '''
"""A script as people write them: nothing in it knows of paretune."""
from dataclasses import dataclass, field

import numpy as np
from datasets import load_dataset
from sklearn.metrics import f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ScriptArguments:
    model_name_or_path: str = field()
    train_file: str = field()
    max_seq_length: int = field(default=128)
    lowercase: bool = field(default=False)


def main():
    script, training = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_args_into_dataclasses()
    assert script.lowercase
    tokenizer = AutoTokenizer.from_pretrained(script.model_name_or_path)
    rows = load_dataset("csv", data_files=script.train_file, split="train").class_encode_column("label")
    rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=script.max_seq_length))
    parts = rows.train_test_split(0.2, seed=0)
    model = AutoModelForSequenceClassification.from_pretrained(script.model_name_or_path, num_labels=2)
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda said: {
            "f1": f1_score(said.label_ids, np.argmax(said.predictions, axis=-1), average="macro")
        },
    )
    done = trainer.train()
    trainer.save_model()
    trainer.save_metrics("train", done.metrics)
    trainer.save_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
'''


# --- what it prints


@pytest.fixture
def reader(tmp_path: Path) -> tuple[PrintedMetrics, io.StringIO, EventReader]:
    """A reader over a stream of its own, the stream, and the events that were written."""
    stream, path = io.StringIO(), tmp_path / "events.jsonl"
    return PrintedMetrics(stream, EventWriter(path), PrintedNumbers()), stream, EventReader(path)


def test_printed_dictionaries_of_texts_become_curves(
    reader: tuple[PrintedMetrics, io.StringIO, EventReader],
) -> None:
    output, _, events = reader

    print({"loss": "0.6931", "grad_norm": "1.5", "learning_rate": "5e-05", "epoch": "0.5"}, file=output)
    print({"eval_loss": "0.5", "eval_f1": "0.75", "epoch": "0.5"}, file=output)
    print({"loss": 0.25, "epoch": 1.0}, file=output)

    first, evaluation, second = events.new()
    assert (first.step, first.metrics) == (
        10,
        {"train/loss": 0.6931, "train/grad_norm": 1.5, "train/learning_rate": 5e-05, "train/epoch": 0.5},
    )
    assert (evaluation.step, evaluation.metrics) == (10, {"eval/loss": 0.5, "eval/f1": 0.75, "eval/epoch": 0.5})
    assert (second.step, second.metrics) == (20, {"train/loss": 0.25, "train/epoch": 1.0})


# --- for real


def run_main(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    start = "from paretune.cli import run; run()"
    command = [sys.executable, "-c", start, "train", "--entry_script", str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_an_unmodified_trainer_script_is_run_and_recorded(workplace: Path, tiny_model: Path, reviews: Path) -> None:
    script = workplace / "mine.py"
    script.write_text(SCRIPT)

    done = run_main(
        script,
        *("--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32"),
        *("--learning_rate", "1e-3", "--num_train_epochs", "2", "--per_device_train_batch_size", "8"),
        *("--training_arguments", json.dumps({"lowercase": True, "logging_steps": 4, "eval_strategy": "epoch"})),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert {F1, EVAL_LOSS, TRAIN_SECONDS, THROUGHPUT_SAMPLES, "cost_usd", "job_seconds"} <= set(run.data.metrics)
    assert 0 <= run.data.metrics[F1] <= 1
    assert run.data.params["entry_script"] == str(script)
    losses = MlflowClient().get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in losses] == [4, 8, 12, 16, 20, 24]  # 96 rows in batches of 8, twice
    assert {point.step for point in MlflowClient().get_metric_history(run.info.run_id, "eval/f1")} == {12, 24}


@pytest.mark.parametrize(("weights", "left"), [("model.safetensors", []), ("training_args.bin", ["checkpoint-20"])])
def test_checkpoints_of_a_script_do_not_travel_as_its_model(tmp_path: Path, weights: str, left: list[str]) -> None:
    for name in ("checkpoint-3", "checkpoint-20", "checkpoint-of-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / weights).touch()

    trim_model_folder(tmp_path)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(["checkpoint-of-mine", weights, *left])
