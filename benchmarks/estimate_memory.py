"""Measure the error of predicted memory of local jobs, before any job of their models has run.

    python benchmarks/estimate_memory.py              # a second, with the peaks in results/local_peaks.csv
    python benchmarks/estimate_memory.py --measure    # ten minutes: runs these jobs first

Each job makes two steps on rows as long as max_seq_length. The jobs need a CPU with avx512_bf16. The constants for CPUs
in paretune.estimating.memory were chosen only on the models of CHOSEN_ON.
"""

import argparse
import csv
import datetime
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import published

from paretune.core import machine
from paretune.estimating.architecture import Architecture, of_config, well_known
from paretune.estimating.estimator import Estimator
from paretune.estimating.evidence import Evidence
from paretune.estimating.memory import MemoryPrediction
from paretune.jobs.launch import launch
from paretune.specification.inputs import BUNDLED_MODEL
from paretune.specification.job import JobSpec
from paretune.training.downloads import bundled_model

PEAKS = Path(__file__).parent / "results" / "local_peaks.csv"
CHOSEN_ON = ("MiniLM", "GPT-2")
MODELS: Mapping[str, Mapping[str, Any] | None] = {
    "MiniLM": None,  # the bundled one
    "GPT-2": {"model_type": "gpt2", "n_embd": 384, "n_layer": 6, "n_head": 6},
    "BERT": {
        "model_type": "bert",
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
    },
    "Llama": {
        "model_type": "llama",
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    },
    "DistilBERT": {"model_type": "distilbert", "dim": 512, "n_layers": 4, "n_heads": 8, "hidden_dim": 2048},
}
"""Names to configurations. The models have random weights and the vocabulary of the bundled model."""


def main() -> None:
    """Print a line for each job, then the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="run the jobs and store their peaks first")
    if arguments.parse(parser).measure:
        measure()
    jobs = list(csv.DictReader(PEAKS.open()))
    rows = [(row["model"], row["changes"], float(row["peak_gib"])) for row in jobs]
    with mock.patch.object(machine, "processor_flags", return_value={"avx512_bf16"}):  # as where they ran
        results = [(model, estimated(model, json.loads(changes)), peak) for model, changes, peak in rows]
    for (model, memory, peak), (_, changes, _) in zip(results, rows, strict=True):
        interval = f"({memory.gib_low:.2f} to {memory.gib_high:.2f}; {memory.gib / peak - 1:+6.1%})"
        print(f"  {peak:5.2f} GiB measured, {memory.gib:5.2f} {interval}: {model}; {changes}")
    report(results, jobs[0]["measured"])


def measure() -> None:
    """Run the jobs of `PEAKS` on this machine, as `paretune train` does, and store their peaks."""
    with PEAKS.open() as file:
        jobs = list(csv.DictReader(file))
    source = random.Random(0)
    words = ("a", "film", "was", "warm", "dull", "great")
    rows = [f"{' '.join(source.choices(words, k=600))},{number % 2}" for number in range(400)]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"PARETUNE_HOME": folder, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        Path("rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
        for job in jobs:
            chosen = {"dataset": "rows.csv", "max_train_samples": "300", "max_eval_samples": "16", "seed": "1"}
            chosen["model"] = model_folder(job["model"])
            outcome = launch(JobSpec.read(chosen | json.loads(job["changes"])), quiet=True)
            job["peak_gib"] = f"{outcome.metrics['peak_memory_gib']:.2f}"
            job["measured"] = f"{datetime.date.today()}, commit {published.commit()}"
            print(f"# {job['peak_gib']} GiB: {job['model']} {job['changes']}", file=sys.stderr, flush=True)
        with PEAKS.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(jobs[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(jobs)


def model_folder(model: str) -> str:
    """Return the bundled model, or make a folder with random weights and the bundled tokenizer for one of MODELS."""
    config = MODELS[model]
    if config is None or Path(model).exists():
        return BUNDLED_MODEL if config is None else model
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    kind = AutoModelForCausalLM if model in ("GPT-2", "Llama") else AutoModelForMaskedLM
    kind.from_config(AutoConfig.for_model(**config, vocab_size=30522, pad_token_id=0)).save_pretrained(model)
    AutoTokenizer.from_pretrained(bundled_model(BUNDLED_MODEL)).save_pretrained(model)
    return model


def architecture(model: str, task: str) -> Architecture:
    """Return the architecture of one of MODELS."""
    config = MODELS[model]
    built = well_known(BUNDLED_MODEL) if config is None else of_config({**config, "vocab_size": 30522}, task)
    assert built is not None
    return built


def estimated(model: str, changes: Mapping[str, str]) -> MemoryPrediction:
    """Estimate the memory of a job of two steps on 300 rows of 600 tokens, which causal-lm cuts into more rows."""
    spec = JobSpec.read({"dataset": "rows.csv", "max_train_samples": "300", "seed": "1", **changes})
    cut = max(1.0, 600 / spec.max_seq_length) if spec.task == "causal-lm" else 1.0
    facts = {"train_rows": 300 * cut, "train_tokens": 300 * cut * spec.max_seq_length, "validation_rows": 16 * cut}
    item = Estimator(Evidence()).estimate(spec, architecture(model, spec.task), None, facts=facts)
    assert item is not None
    assert item.memory is not None
    return item.memory


def report(results: list[tuple[str, MemoryPrediction, float]], made: str) -> None:
    """Print the errors for the models that constants were chosen on, for the others, and for all."""
    exceeded = sum(measured > item.gib_high for _, item, measured in results)
    inside = sum(item.gib_low <= measured <= item.gib_high for _, item, measured in results)
    rows = []
    for title, models in (
        ("models whose jobs the constants were chosen on", CHOSEN_ON),
        ("models that were kept aside", tuple(name for name in MODELS if name not in CHOSEN_ON)),
        ("all", tuple(MODELS)),
    ):
        off = [abs(item.gib / measured - 1) for model, item, measured in results if model in models]
        rows.append([title, str(len(off)), f"{statistics.median(off):.1%}", f"{max(off):.1%}"])
    low, high = min(each[2] for each in results), max(each[2] for each in results)
    message = [
        f"Local jobs of {low:.2f} to {high:.2f} GiB, measured on {made}, estimated from no earlier job "
        f"({published.conditions('paretune')}).",
        f"{inside} of {len(results)} were inside their interval, and {exceeded} took more than its upper end, which is",
        "what is said to fit.",
        "",
        *published.table(["", "settings", "median error", "worst"], rows),
    ]
    print(published.block("estimate_memory", message))


if __name__ == "__main__":
    main()
