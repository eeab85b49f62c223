"""How far off is the memory that is estimated for jobs of this machine, and does all fit that is said to?

    python benchmarks/estimate_memory.py            # about fifteen minutes; what else runs does not matter

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.core.clock import SystemClock
from paretune.estimating.estimates import Estimate, Estimator, architecture_of
from paretune.estimating.evidence import Evidence
from paretune.estimating.traced.cache import TracedSteps
from paretune.jobs.estimates.estimate import step_settings
from paretune.jobs.estimates.tracing import trace
from paretune.jobs.preparation import load_cached_inputs
from paretune.spec.job import BUNDLED_MODEL, JobSpec
from paretune.tracking import Tracking

CHOSEN_ON = ("MiniLM", "GPT-2")
BERT = {"model_type": "bert", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}
MODELS: Mapping[str, Mapping[str, Any] | None] = {
    "MiniLM": None,  # the bundled one
    "GPT-2": {"model_type": "gpt2", "n_embd": 512, "n_layer": 6, "n_head": 8},
    "BERT": {**BERT, "intermediate_size": 2048},
    "Llama": {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "DistilBERT": {"model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072},
}
"""Configurations with the vocabulary of the bundled model; their weights are random."""
AGAIN = '{"max_steps": 2, "eval_strategy": "no", "gradient_checkpointing": true}'
SETTINGS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("MiniLM", {}),
    ("MiniLM", {"per_device_train_batch_size": 64}),
    ("MiniLM", {"per_device_train_batch_size": 32, "max_seq_length": 256}),
    ("MiniLM", {"per_device_train_batch_size": 64, "fine_tuning": "head", "max_seq_length": 256}),
    ("MiniLM", {"per_device_train_batch_size": 64, "fine_tuning": "lora"}),
    ("MiniLM", {"per_device_train_batch_size": 64, "training_arguments": AGAIN}),
    ("MiniLM", {"per_device_train_batch_size": 32, "instance_count": 2}),
    ("MiniLM", {"per_device_train_batch_size": 32, "instance_count": 2, "strategy": "fsdp"}),
    ("GPT-2", {"task": "causal-lm"}),
    ("GPT-2", {"task": "causal-lm", "per_device_train_batch_size": 4, "max_seq_length": 256}),
    ("GPT-2", {"task": "causal-lm", "per_device_train_batch_size": 32, "training_arguments": AGAIN}),
    ("GPT-2", {"per_device_train_batch_size": 32, "fine_tuning": "lora"}),
    ("BERT", {"per_device_train_batch_size": 32}),
    ("BERT", {"per_device_train_batch_size": 8, "max_seq_length": 512}),
    ("BERT", {"per_device_train_batch_size": 32, "training_arguments": AGAIN}),
    ("BERT", {"per_device_train_batch_size": 64, "fine_tuning": "head"}),
    ("BERT", {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}),
    ("Llama", {"task": "causal-lm", "per_device_train_batch_size": 8}),
    ("Llama", {"task": "causal-lm", "per_device_train_batch_size": 32, "training_arguments": AGAIN}),
    ("Llama", {"per_device_train_batch_size": 32, "max_seq_length": 64}),
    ("Llama", {"per_device_train_batch_size": 32, "fine_tuning": "lora"}),
    ("Llama", {"per_device_train_batch_size": 16, "instance_count": 2, "strategy": "fsdp"}),
    ("Llama", {"per_device_train_batch_size": 16, "instance_count": 2}),
    ("DistilBERT", {"per_device_train_batch_size": 32}),
    ("DistilBERT", {"per_device_train_batch_size": 32, "fine_tuning": "lora", "max_seq_length": 256}),
    ("DistilBERT", {"per_device_train_batch_size": 64, "fine_tuning": "head"}),
    ("DistilBERT", {"per_device_train_batch_size": 16, "instance_count": 2, "strategy": "fsdp"}),
)
_USUAL = {"max_train_samples": 300, "max_eval_samples": 64, "seed": 1}
_WORDS = ["the", "a", "film", "story", "actor", "scene", "music", "plot", "is", "was", "and", "with", "very", "quite", "great", "warm", "dull", "cold", "stale", "moving"]
_STEPS = '{"max_steps": 2, "eval_strategy": "no"}'


def main() -> None:
    """Print one line per setting, then the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="settings, from the first one on")
    parser.add_argument(
        "--peaks", type=Path, help="JSON file of measured peaks: settings in it are not run again, others are added"
    )
    parser.add_argument("--models", default=",".join(MODELS), help="only settings of these models")
    asked = arguments.parse(parser, settings=1)
    made = published.conditions("paretune", "torch", "transformers", "peft")
    print(made, flush=True)
    peaks = Peaks(asked.peaks and asked.peaks.absolute())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.pop("MLFLOW_RUN_ID", None)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        os.environ["PARETUNE_HOME"] = f"{folder}/home"
        chosen = [setting for setting in SETTINGS[: asked.settings] if setting[0] in asked.models.split(",")]
        found = [(model, *compared(model, changes, Path(folder), peaks)) for model, changes in chosen]
    report(made, found)


class Peaks:
    """Measured peaks and the facts of the data, by setting; kept in a file, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = json.loads(path.read_text()) if path is not None and path.exists() else {}

    def of(self, name: str, spec: JobSpec, folder: Path) -> tuple[float, dict[str, float]]:
        """Highest memory of the job, GiB, and its facts; it is run if it is not known."""
        if name not in self._known:
            run_job(spec)
            (newest,) = Tracking({}, SystemClock()).runs("tags.`paretune.state` = 'Completed'", newest=1)
            inputs = load_cached_inputs(spec, folder / "home")
            assert inputs is not None and inputs.dataset is not None
            self._known[name] = newest.metrics["peak_memory_gib"], dict(inputs.dataset.facts)
            if self._path is not None:
                self._path.write_text(json.dumps(self._known, indent=1) + "\n")
        measured, facts = self._known[name]
        return measured, facts


def compared(model: str, changes: Mapping[str, object], folder: Path, peaks: Peaks) -> tuple[Estimate, float]:
    """What is estimated of a setting, and what its job has taken, GiB."""
    name = model_folder(model, folder)
    texts = {**_USUAL, "dataset": str(texts_file(folder)), "training_arguments": _STEPS, **changes, "model": name}
    spec = JobSpec.from_text({key: str(value) for key, value in texts.items()})
    said = ", ".join(f"{key}={value}" for key, value in changes.items())
    measured, facts = peaks.of(f"{model}; {said}", spec, folder)
    built, steps = architecture_of(name, spec.task, {}), TracedSteps(folder / "home")
    trace(step_settings([spec], {name: built}, [facts]), steps, os.environ)
    found = Estimator(Evidence(), steps).estimate(spec, built, None, facts=facts)
    assert found is not None  # max_train_samples is given
    off = found.memory.gib / measured - 1
    basis = "traced" if found.is_traced else "FORMULA"
    low, high = found.memory.gib_low, found.memory.gib_high
    print(
        f"  {model:10} {measured:6.2f} GiB measured, {found.memory.gib:6.2f} {basis} ({low:.2f} to {high:.2f}; "
        f"{off:+6.1%}); {said}",
        flush=True,
    )
    return found, measured


def texts_file(folder: Path) -> Path:
    """Labelled rows of some 600 tokens, so that every batch is as long as max_seq_length."""
    path = folder / "texts.csv"
    if not path.exists():
        source = random.Random(0)
        rows = [f"{' '.join(source.choices(_WORDS, k=600))},{number % 2}" for number in range(400)]
        path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def model_folder(model: str, folder: Path) -> str:
    """A model with random weights and the tokenizer of the bundled one, as a Hugging Face folder."""
    config = MODELS[model]
    if config is None:
        return BUNDLED_MODEL
    path = folder / model
    if not path.exists():
        made = subprocess.run(
            [sys.executable, "-c", _MAKE, str(path), json.dumps({**config, "vocab_size": 30522, "pad_token_id": 0})],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise SystemExit(made.stderr[-2000:])
    return str(path)


_MAKE = """
import json, sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from paretune.training.rows.bundled import model_folder

path, config = sys.argv[1], json.loads(sys.argv[2])
config = AutoConfig.for_model(config.pop("model_type"), **config)
kind = AutoModelForCausalLM if config.model_type in ("gpt2", "llama") else AutoModelForMaskedLM
kind.from_config(config).save_pretrained(path)
AutoTokenizer.from_pretrained(model_folder("bundled:all-MiniLM-L6-v2")).save_pretrained(path)
"""


def run_job(spec: JobSpec) -> None:
    """One job."""
    words = [word for name, value in spec.changed().items() for word in (f"--{name}", value)]
    command = [sys.executable, "-c", "from paretune.cli.main import run; run()", "main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr[-2000:]}")


def report(made: str, found: list[tuple[str, Estimate, float]]) -> None:
    """The errors of the models that constants were chosen on, of the others, and of all."""
    exceeded = sum(measured > item.memory.gib_high for _, item, measured in found)
    inside = sum(item.memory.gib_low <= measured <= item.memory.gib_high for _, item, measured in found)
    rows = []
    for title, models in (
        ("models whose jobs the constants were chosen on", CHOSEN_ON),
        ("models that were kept aside", tuple(name for name in MODELS if name not in CHOSEN_ON)),
        ("all", tuple(MODELS)),
    ):
        off = [abs(item.memory.gib / measured - 1) for model, item, measured in found if model in models]
        if off:
            rows.append([title, str(len(off)), f"{statistics.median(off):.1%}", f"{max(off):.1%}"])
    low, high = min(each[2] for each in found), max(each[2] for each in found)
    said = [
        f"Measured {made}: local jobs of {low:.2f} to {high:.2f} GiB, estimated from a traced step and no earlier job.",
        f"{inside} of {len(found)} were inside their interval, and {exceeded} took more than its upper end, which is",
        "what is said to fit.",
        "",
        *published.table(["", "settings", "median error", "worst"], rows),
    ]
    print(published.block("estimate_memory", said))


if __name__ == "__main__":
    main()
