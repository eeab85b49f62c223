"""Measure the error of estimated memory for jobs of this machine, and whether jobs that are said to fit do.

    python benchmarks/estimate_memory.py            # about ten minutes; what else runs does not matter

Each setting is an ordinary local job of two steps and an evaluation, in processes of its own. Its highest resident
memory is compared with what is estimated from a traced step before any job of these models has run. The constants of
estimating/memory.py were chosen on the models of `CHOSEN_ON`; all others were never looked at for it. A setting is said
to fit a memory that holds the upper end of its interval, so one that needed more did not fit.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.commands.estimate.estimate import step_settings
from paretune.commands.estimate.tracing import trace
from paretune.estimating.estimator import Estimate, Estimator, architecture_of
from paretune.estimating.evidence import Evidence
from paretune.estimating.traced_step import TracedSteps
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplaces
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.inputs import BUNDLED_MODEL
from paretune.specification.job import JobSpec

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
    },
    "DistilBERT": {"model_type": "distilbert", "dim": 512, "n_layers": 4, "n_heads": 8, "hidden_dim": 2048},
}
"""Configurations with the vocabulary of the bundled model; their weights are random."""
AGAIN = '{"max_steps": 2, "eval_strategy": "no", "gradient_checkpointing": true}'
EVALUATE_FEW = '{"max_steps": 2, "eval_strategy": "no", "per_device_eval_batch_size": 8}'
LARGE: Mapping[str, object] = {"per_device_train_batch_size": 32}
BY_TWO: Mapping[str, object] = {"instance_count": 2, "strategy": "fsdp", "per_device_train_batch_size": 8}
SETTINGS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("MiniLM", {}),
    ("MiniLM", {"per_device_train_batch_size": 64}),
    ("MiniLM", {**LARGE, "max_seq_length": 256}),
    ("MiniLM", {"per_device_train_batch_size": 64, "fine_tuning": "head", "max_seq_length": 256}),
    ("MiniLM", {**LARGE, "fine_tuning": "lora"}),
    ("MiniLM", {**LARGE, "training_arguments": AGAIN}),
    ("MiniLM", {"instance_count": 2}),
    ("MiniLM", {"instance_count": 2, "strategy": "fsdp"}),
    ("GPT-2", {"task": "causal-lm", "per_device_train_batch_size": 8}),
    ("GPT-2", {**LARGE}),
    ("BERT", {}),
    ("BERT", {"training_arguments": AGAIN}),
    ("BERT", {"fine_tuning": "head"}),
    ("BERT", {"gradient_accumulation_steps": 2}),
    ("BERT", {"per_device_train_batch_size": 4, "max_seq_length": 256}),
    ("Llama", {}),
    ("Llama", {"training_arguments": AGAIN}),
    ("Llama", {"fine_tuning": "lora"}),
    ("DistilBERT", {}),
    ("DistilBERT", {"per_device_train_batch_size": 24}),
    ("Llama", {"instance_count": 2, "strategy": "fsdp"}),
    ("DistilBERT", {"fine_tuning": "head"}),
    ("MiniLM", {**LARGE, "fine_tuning": "qlora"}),
    ("GPT-2", {"task": "causal-lm", **BY_TWO, "pipeline_parallel_degree": 2}),
    ("BERT", {**LARGE, "training_arguments.gradient_checkpointing": True}),
    ("BERT", {**BY_TWO, "cpu_offload": True}),
    ("Llama", {**BY_TWO, "tensor_parallel_degree": 2}),
    (
        "Llama",
        {
            **BY_TWO,
            "task": "causal-lm",
            "pipeline_parallel_degree": 2,
            "training_arguments.gradient_checkpointing": True,
        },
    ),
)
_USUAL = {"max_train_samples": 300, "max_eval_samples": 16, "seed": 1}
_WORDS = ("the", "a", "film", "story", "was", "with", "very", "great", "warm", "dull", "stale", "moving")
_STEPS = '{"max_steps": 2, "eval_strategy": "no"}'


def main() -> None:
    """Print one line per setting, then the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="settings, from the first one on")
    parser.add_argument(
        "--peaks", type=Path, help="JSON file of measured peaks: settings in it are not run again, others are added"
    )
    parser.add_argument("--models", default=",".join(MODELS), help="only settings of these models")
    options = arguments.parse(parser, settings=1)
    made = published.conditions("paretune", "torch", "transformers", "peft")
    print(made, flush=True)
    peaks_file = options.peaks and options.peaks.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PARETUNE_HOME"] = f"{folder}/home"
        chosen = [setting for setting in SETTINGS[: options.settings] if setting[0] in options.models.split(",")]
        jobs = [job_of(model, changes, Path(folder)) for model, changes in chosen]
        names = [
            f"{model}; {', '.join(f'{key}={value}' for key, value in changes.items())}" for model, changes in chosen
        ]
        peaks = Peaks(peaks_file)
        measured = [peaks.of(name, spec) for name, spec in zip(names, jobs, strict=True)]
        estimates = estimated(jobs, [facts for _, facts in measured], Path(folder))
    result = [(setting[0], item, peak) for setting, item, (peak, _) in zip(chosen, estimates, measured, strict=True)]
    for name, (_, item, peak) in zip(names, result, strict=True):
        low, high, off = item.memory.gib_low, item.memory.gib_high, item.memory.gib / peak - 1
        basis = "" if item.is_traced else ", by formula"
        print(
            f"  {peak:5.2f} GiB measured, {item.memory.gib:5.2f} ({low:.2f} to {high:.2f}{basis}; {off:+6.1%}): {name}"
        )
    report(made, result)


class Peaks:
    """Measured peaks and the facts of the data, by setting; kept in a file, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._inputs: dict[tuple[str, int, str], JobInputs] = {}

    def of(self, name: str, spec: JobSpec) -> tuple[float, dict[str, float]]:
        """Highest memory of the job, GiB, and its facts; it is run if it is not known."""
        if name not in self._known:
            if spec.model != BUNDLED_MODEL and not (Path(spec.model) / "tokenizer.json").exists():
                make_weights(Path(spec.model))
            workplace = Workplaces.of_process().of(spec)
            rows = (spec.model, spec.max_seq_length, spec.task)  # all else changes nothing about them
            inputs = self._inputs.get(rows) or inputs_of(spec, workplace)
            self._inputs[rows] = inputs
            assert inputs.dataset is not None
            document = JobDocument(job_name=f"peak-{len(self._known)}", spec=spec, plan=spec.plan())
            job = workplace.launcher.submit(document, inputs)
            while not job.state().is_terminal:
                time.sleep(0.5)
            finished = job.report()
            if finished is None:
                raise SystemExit(f"{name}: {job.failure()}; {job.log_tail()}")
            self._known[name] = finished.metrics["peak_memory_gib"], dict(inputs.dataset.facts)
            print(f"  {self._known[name][0]:5.2f} GiB: {name}", flush=True)
            if self._path is not None:
                self._path.write_text(json.dumps(self._known, indent=1) + "\n")
        measured, facts = self._known[name]
        return measured, facts


def job_of(model: str, changes: Mapping[str, object], folder: Path) -> JobSpec:
    """The job of a setting."""
    texts = {**_USUAL, "dataset": str(texts_file(folder)), "training_arguments": _STEPS, **changes}
    texts["model"] = model_folder(model, folder)
    return JobSpec.read({key: str(value) for key, value in texts.items()})


def estimated(jobs: list[JobSpec], facts: list[dict[str, float]], folder: Path) -> list[Estimate]:
    """Estimates of the jobs from traced steps, without any job before them."""
    built = {spec.model: architecture_of(spec.model, spec.task, {}) for spec in jobs}
    steps = TracedSteps(folder / "home")
    trace(step_settings(jobs, built, facts), steps, {**os.environ, "PARETUNE_TRACE_SECONDS": "1200"})
    estimator = Estimator(Evidence(), steps)
    result = [
        estimator.estimate(spec, built[spec.model], None, facts=reference)
        for spec, reference in zip(jobs, facts, strict=True)
    ]
    return [item for item in result if item is not None]


def texts_file(folder: Path) -> Path:
    """Labelled rows of some 600 tokens, so that every batch is as long as max_seq_length."""
    path = folder / "texts.csv"
    if not path.exists():
        source = random.Random(0)
        rows = [f"{' '.join(source.choices(_WORDS, k=600))},{number % 2}" for number in range(400)]
        path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def model_folder(model: str, folder: Path) -> str:
    """The bundled model, or a folder with a configuration."""
    config = MODELS[model]
    if config is None:
        return BUNDLED_MODEL
    path = folder / model
    path.mkdir(exist_ok=True)
    if not (path / "config.json").exists():
        (path / "config.json").write_text(json.dumps({**config, "vocab_size": 30522, "pad_token_id": 0}))
    return str(path)


def make_weights(path: Path) -> None:
    """Random weights in the folder of a configuration, and the tokenizer of the bundled model."""
    command = [sys.executable, "-c", _MAKE, str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(made.stderr[-2000:])


_MAKE = """
import sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from paretune.training.rows.bundled import model_folder

path = sys.argv[1]
config = AutoConfig.from_pretrained(path)
kind = AutoModelForCausalLM if config.model_type in ("gpt2", "llama") else AutoModelForMaskedLM
kind.from_config(config).save_pretrained(path)
AutoTokenizer.from_pretrained(model_folder("bundled:all-MiniLM-L6-v2")).save_pretrained(path)
"""


def report(made: str, results: list[tuple[str, Estimate, float]]) -> None:
    """The errors of the models that constants were chosen on, of the others, and of all."""
    exceeded = sum(measured > item.memory.gib_high for _, item, measured in results)
    inside = sum(item.memory.gib_low <= measured <= item.memory.gib_high for _, item, measured in results)
    rows = []
    for title, models in (
        ("models whose jobs the constants were chosen on", CHOSEN_ON),
        ("models that were kept aside", tuple(name for name in MODELS if name not in CHOSEN_ON)),
        ("all", tuple(MODELS)),
    ):
        off = [abs(item.memory.gib / measured - 1) for model, item, measured in results if model in models]
        if off:
            rows.append([title, str(len(off)), f"{statistics.median(off):.1%}", f"{max(off):.1%}"])
    low, high = min(each[2] for each in results), max(each[2] for each in results)
    message = [
        f"Measured {made}: local jobs of {low:.2f} to {high:.2f} GiB, estimated from a traced step and no earlier job.",
        f"{inside} of {len(results)} were inside their interval, and {exceeded} took more than its upper end, which is",
        "what is said to fit.",
        "",
        *published.table(["", "settings", "median error", "worst"], rows),
    ]
    print(published.block("estimate_memory", message))


if __name__ == "__main__":
    main()
