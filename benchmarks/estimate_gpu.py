"""Measure the error of predicted speed and memory of jobs on one GPU, before any job has run there.

    python benchmarks/estimate_gpu.py                 # a second: predicts the jobs of results/gpu_jobs.csv
    python benchmarks/estimate_gpu.py --measure       # on a GPU, ten minutes: runs the jobs and prints that file

Models have random weights. Rows have random words, because speed and memory do not depend on the words, and all are
longer than max_seq_length. No result of this benchmark was used to choose a constant of paretune.estimating.
"""

import argparse
import csv
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.estimating.architecture import of_config
from paretune.estimating.estimator import Estimator
from paretune.estimating.evidence import Evidence
from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, JobReport, write_json
from paretune.specification.inputs import BUNDLED_MODEL
from paretune.specification.job import JobSpec
from paretune.specification.metrics import MFU, PEAK_MEMORY_GIB, THROUGHPUT_SAMPLES

JOBS = Path(__file__).parent / "results" / "gpu_jobs.csv"
INSTANCE = "ml.p5.4xlarge"  # one H100
STEPS, ROWS, WORDS = 60, 1000, 600
_LLAMA = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "DistilBERT": {"model_type": "distilbert"},
    "BERT base": {"model_type": "bert"},
    "BERT large": {
        "model_type": "bert",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    "Llama of 1.0B": {"model_type": "llama", "intermediate_size": 8192, **_LLAMA},
}
_CAUSAL = {"task": "causal-lm", "max_seq_length": 512}
TRAINED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("DistilBERT", {"per_device_train_batch_size": 64}),
    ("BERT base", {"per_device_train_batch_size": 16, "precision": "fp32"}),
    ("BERT base", {"per_device_train_batch_size": 16}),
    ("BERT base", {"per_device_train_batch_size": 64}),
    ("BERT base", {"per_device_train_batch_size": 64, "precision": "fp16"}),
    ("BERT base", {"per_device_train_batch_size": 32, "max_seq_length": 512}),
    ("BERT base", {"per_device_train_batch_size": 32, "max_seq_length": 512, "fine_tuning": "lora"}),
    ("BERT large", {"per_device_train_batch_size": 16, "max_seq_length": 512}),
    ("Llama of 1.0B", {"per_device_train_batch_size": 4, **_CAUSAL}),
    (
        "Llama of 1.0B",
        {"per_device_train_batch_size": 8, "training_arguments": {"gradient_checkpointing": True}, **_CAUSAL},
    ),
    ("Llama of 1.0B", {"per_device_train_batch_size": 8, "fine_tuning": "lora", **_CAUSAL}),
    ("Llama of 1.0B", {"per_device_train_batch_size": 8, "fine_tuning": "qlora", **_CAUSAL}),
)
"""Models, and changes of their jobs. Unless stated otherwise, max_seq_length is 128 and the precision bf16."""


def main() -> None:
    """Print one line per job, then the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="run the jobs on this machine's GPU and print the file")
    options = arguments.parse(parser)
    if options.measure:
        writer = csv.writer(sys.stdout)
        writer.writerow(["model", "changes", "samples_per_second", "peak_gib", "mfu"])
        for row in measured():
            writer.writerow(row)
            sys.stdout.flush()
        return
    compare()


def spec_of(changes: Mapping[str, Any], **inputs: Any) -> JobSpec:
    """Return a job with these changes, without evaluations."""
    arguments_of_trainer = {"max_steps": STEPS, "eval_strategy": "no", **changes.get("training_arguments", {})}
    given = {"precision": "bf16", "max_seq_length": 128, **changes, **inputs}
    return JobSpec(max_train_samples=ROWS, **given | {"training_arguments": arguments_of_trainer})


def rows_of_words(path: Path) -> None:
    """Write rows of random words, each with more tokens than any max_seq_length here."""
    words = [f"{first}{second}" for first in ("un", "re", "over", "out") for second in ("done", "run", "come", "go")]
    source = random.Random(0)
    lines = [f"{' '.join(source.choices(words, k=WORDS))},{number % 2}" for number in range(ROWS + 500)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


def measured() -> Iterator[list[str]]:
    """Run each job once, and yield its row of the file."""
    with tempfile.TemporaryDirectory(prefix="gpu-") as name:
        folder = Path(name)
        rows_of_words(folder / "rows.csv")
        for model, changes in TRAINED:
            path = folder / model.replace(" ", "-")
            if not path.exists():
                make_model(model, path)
            spec = spec_of(changes, model=str(path), dataset=str(folder / "rows.csv"))
            report = trained(spec, folder)
            speed, peak = report.metrics[THROUGHPUT_SAMPLES], report.metrics[PEAK_MEMORY_GIB]
            mfu = f"{report.metrics[MFU]:.3f}" if MFU in report.metrics else ""
            yield [model, json.dumps(changes), f"{speed:.1f}", f"{peak:.2f}", mfu]


def _config(model: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**{"vocab_size": 30522, **MODELS[model]})


def make_model(model: str, path: Path, *, layers: int | None = None, **changes: Any) -> None:
    """Write the folder of a model with random weights; `layers` and `changes` replace values of its configuration."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    from paretune.training.downloads import bundled_model

    config = _config(model)
    config.num_hidden_layers = layers or config.num_hidden_layers
    config.update(changes)
    kind = AutoModelForCausalLM if config.model_type == "llama" else AutoModelForMaskedLM
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        kind.from_config(config).save_pretrained(path)
    for file in bundled_model(BUNDLED_MODEL).glob("*"):  # its vocabulary has 30,522 tokens
        if file.name.startswith(("tokenizer", "vocab", "special_tokens")):
            shutil.copy(file, path)


def trained(spec: JobSpec, folder: Path) -> JobReport:
    """Run a job on this machine and return its report. Raises SystemExit with the end of its log if it fails."""
    job, answer = JobFolder(folder / "job"), folder / "answer.json"
    shutil.rmtree(job.root, ignore_errors=True)
    job.make()
    write_json(folder / "request.json", spec.as_text())
    words = [sys.executable, "-m", "paretune.training.prepare", str(folder / "request.json"), str(folder / "data")]
    subprocess.run([*words, str(answer)], check=True, capture_output=True)
    made = json.loads(answer.read_text())
    write_json(job.document, order_of(spec, job_name="gpu").as_json())
    job.dataset.symlink_to(made["dataset"])
    job.model_source.symlink_to(made["model"])
    result = subprocess.run(
        [sys.executable, "-m", "paretune.training", str(job.root)], check=False, capture_output=True, text=True
    )
    if result.returncode:
        raise SystemExit(f"{spec.given()}: {result.stderr[-3000:]}")
    return JobReport.model_validate_json(job.report.read_text())


def compare() -> None:
    """Estimate each job of the file as if it ran on INSTANCE, without any earlier job, and print the errors."""
    rows, speeds, memories, inside = [], [], [], 0
    for row in csv.DictReader(JOBS.open()):
        changes = json.loads(row["changes"])
        rate, peak = float(row["samples_per_second"] or "nan"), float(row["peak_gib"] or "nan")
        spec = spec_of(changes, instance_type=INSTANCE, dataset="rows.csv")
        facts = {"train_rows": ROWS, "train_tokens": ROWS * spec.max_seq_length, "validation_rows": 500}
        built = of_config(_config(row["model"]).to_dict(), spec.task)
        assert built is not None
        item = Estimator(Evidence()).estimate(spec, built, None, facts=facts)
        assert item is not None
        assert item.memory is not None
        speed, memory = item.plan.global_batch_size / item.time.step_seconds / rate - 1, item.memory.gib / peak - 1
        inside += item.memory.gib_low <= peak <= item.memory.gib_high
        memories.append(memory)
        speeds.append(speed)
        settings = ", ".join(f"{name} {value}" for name, value in changes.items() if name != "task")
        pairs = ((f"{peak:.1f}", memory), (f"{rate:.0f}", speed))
        cells = [
            cell for shown, error in pairs for cell in (["", ""] if math.isnan(error) else [shown, f"{error:+.0%}"])
        ]
        rows.append([row["model"], settings, *cells])
    memories, speeds = ([abs(error) for error in errors if not math.isnan(error)] for errors in (memories, speeds))
    of_memory, of_speed = statistics.median(memories), statistics.median(speeds)
    message = [
        f"{len(rows)} jobs on one H200 (torch 2.11, CUDA 13.0), measured on 2026-11-26, and speeds of BERT base in",
        f"bf16 and of Llama on 2026-11-27. Estimates are of jobs on {INSTANCE}, whose H100 is as fast, from no earlier",
        f"job ({published.conditions('paretune')}).",
        f"{inside} of {len(memories)} peaks were inside their interval; median error of the memory {of_memory:.0%},",
        f"of the {len(speeds)} speeds {of_speed:.0%}.",
        "",
        *published.table(["model", "settings", "peak GiB", "predicted", "samples/s", "predicted"], rows),
    ]
    print(published.block("estimate_gpu", message))


if __name__ == "__main__":
    main()
