"""Measure, in four parts, what only a GPU can show. `.ci/gpu` runs all parts.

    python benchmarks/gpu_parts.py profile FOLDER         # BERT base, and a bare loop with fp32 masters
    python benchmarks/gpu_parts.py memory FOLDER          # peak memory with checkpointing, torch.compile, fp16
    python benchmarks/gpu_parts.py largest FOLDER         # a causal model at its largest batch
    python benchmarks/gpu_parts.py kernels FOLDER         # kernels and waits in the traces of the other parts

Each figure is printed as soon as it is measured. Models have random weights, and all rows are as long as
max_seq_length. `profile` profiles ten steps. The bare loop updates an fp32 copy of its weights (the masters). The
causal model has a vocabulary of 32,000 tokens. Traces of profiles are kept in FOLDER. `--small` trains models of two
layers for a few steps, on any device.
"""

import argparse
import collections
import gzip
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import arguments
import training_jobs

from paretune.estimating.architecture import of_config
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.specification.container import JobFolder
from paretune.specification.inputs import BUNDLED_MODEL
from paretune.specification.job import JobSpec
from paretune.specification.metrics import MFU, PEAK_MEMORY_GIB, THROUGHPUT_SAMPLES

INSTANCE = "ml.p5.4xlarge"  # one H100, whose estimates are shown
ROWS, WORDS = 1000, 600  # training rows, and words of each
PROFILED = 10  # number of profiled steps
ENCODER, DECODER = "BERT base", "Llama of 1.0B"
_LLAMA = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
MODELS: Mapping[str, Mapping[str, Any]] = {
    ENCODER: {"model_type": "bert"},
    DECODER: {"model_type": "llama", "intermediate_size": 8192, **_LLAMA},
}
WAYS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (ENCODER, {"precision": "fp16"}),
    (ENCODER, {"training_arguments": {"torch_compile": True}}),
    (DECODER, {"training_arguments": {"gradient_checkpointing": True}}),
)
_SMALL = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 4}
"""Configuration of the decoder with --small. Training the embeddings of a wide one takes minutes on a CPU."""
_CAUSAL = {"task": "causal-lm", "max_seq_length": 512}
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


class Bench:
    """Trains models in its own folder. If small, they have two layers, and the precision is the device's usual one."""

    def __init__(self, folder: Path, results: Path, *, is_small: bool) -> None:
        self.folder, self.results, self.is_small = folder, results, is_small
        rows_of_words(folder / "rows.csv")

    def model(self, name: str, **changes: Any) -> Path:
        """Return the folder of a model with random weights; `changes` replace values of its configuration."""
        path = self.folder / f"{name} {changes.get('vocab_size', '')}".strip().replace(" ", "-")
        if not path.exists():
            narrow = _SMALL if self.is_small and name == DECODER else {}
            make_model(name, path, layers=2 if self.is_small else None, **narrow, **changes)
        return path

    def spec(self, path: Path, batch: int, steps: int, changes: Mapping[str, Any]) -> JobSpec:
        """Return a job with these changes; if small, of 12 steps of two rows."""
        own = {
            "max_steps": 12 if self.is_small else steps,
            "logging_steps": 50,
            **changes.get("training_arguments", {}),
        }
        given = {"per_device_train_batch_size": 2 if self.is_small else batch, **changes, "training_arguments": own}
        if self.is_small:
            given |= {"precision": "auto", "max_seq_length": 32}
        return spec_of(given, model=str(path), dataset=str(self.folder / "rows.csv"))

    def train(self, label: str, path: Path, spec: JobSpec) -> None:
        """Run a job, print speed and peak memory next to their estimates, and keep its trace if it has one."""
        shutil.rmtree(self.folder / "job", ignore_errors=True)
        report = training_jobs.trained(spec, *training_jobs.prepared(spec, self.folder), self.folder / "job")
        item = estimated(spec, path)
        rate, peak = report.metrics.get(THROUGHPUT_SAMPLES), report.metrics[PEAK_MEMORY_GIB]
        speed = (
            ""
            if rate is None
            else f"{rate:,.1f} samples/s, {1000 * spec.plan().global_batch_size / rate:.1f} ms a step"
        )
        expected = f"estimated {1000 * item.time.step_seconds:.1f} ms, {item.memory.gib:.1f} GiB" if item.memory else ""
        use = f", MFU {report.metrics[MFU]:.3f}" if MFU in report.metrics else ""
        print(f"{label}: {speed}, peak {peak:.2f} GiB{use}; {expected}", flush=True)
        profile = JobFolder(self.folder / "job").profile
        if profile.exists():
            shutil.copy(
                profile / "trace.json.gz", self.results / f"{label.split(',')[0].replace(' ', '-')}.trace.json.gz"
            )
            print((profile / "profile.md").read_text(), flush=True)


def spec_of(changes: Mapping[str, Any], **inputs: Any) -> JobSpec:
    """Return a job with these changes, without evaluations."""
    arguments_of_trainer = {"eval_strategy": "no", **changes.get("training_arguments", {})}
    given = {"precision": "bf16", "max_seq_length": 128, **changes, **inputs}
    return JobSpec(max_train_samples=ROWS, **given | {"training_arguments": arguments_of_trainer})


def rows_of_words(path: Path) -> None:
    """Write rows of random words."""
    words = [f"{first}{second}" for first in ("un", "re", "over", "out") for second in ("done", "run", "come", "go")]
    source = random.Random(0)
    lines = [f"{' '.join(source.choices(words, k=WORDS))},{number % 2}" for number in range(ROWS + 500)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


def make_model(model: str, path: Path, *, layers: int | None = None, **changes: Any) -> None:
    """Write the folder of a model with random weights; `layers` and `changes` replace values of its configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    from paretune.training.downloads import bundled_model

    config = AutoConfig.for_model(**{"vocab_size": 30522, **MODELS[model]})
    config.num_hidden_layers = layers or config.num_hidden_layers
    config.update(changes)
    kind = AutoModelForCausalLM if config.model_type == "llama" else AutoModelForMaskedLM
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        kind.from_config(config).save_pretrained(path)
    for file in bundled_model(BUNDLED_MODEL).glob("*"):  # its vocabulary has 30,522 tokens
        if file.name.startswith(("tokenizer", "vocab", "special_tokens")):
            shutil.copy(file, path)


def estimated(spec: JobSpec, path: Path) -> Estimate:
    """Return the estimate of the job on INSTANCE, from data sheets alone."""
    built = of_config(json.loads((path / "config.json").read_text()), spec.task)
    assert built is not None
    precision = "bf16" if spec.precision == "auto" else spec.precision
    facts = {"train_rows": ROWS, "train_tokens": ROWS * spec.max_seq_length, "validation_rows": 500}
    item = Estimator(Evidence()).estimate(
        spec.replace(instance_type=INSTANCE, precision=precision), built, None, facts=facts
    )
    assert item is not None
    return item


def profile(bench: Bench) -> None:
    """Profile a job of BERT base with 64 rows per step, and time a bare loop with fp32 masters."""
    path = bench.model(ENCODER)
    spec = bench.spec(path, 64, 120, {"profile_steps": PROFILED})
    bench.train(f"{ENCODER}, paretune, {spec.per_device_train_batch_size} rows", path, spec)
    bare(
        path,
        rows=spec.per_device_train_batch_size or 2,
        length=spec.max_seq_length,
        steps=12 if bench.is_small else 120,
    )


def bare(path: Path, *, rows: int, length: int, steps: int) -> None:
    """Print the time per step of a bare loop with bf16 weights and fp32 masters, and the table of its profile."""
    import torch
    from torch.profiler import ProfilerActivity
    from transformers import AutoModelForSequenceClassification

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForSequenceClassification.from_pretrained(path).to(device, torch.bfloat16).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().float().requires_grad_() for weight in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-5, fused=True)
    tokens, labels = torch.randint(5, 30000, (rows, length), device=device), torch.randint(2, (rows,), device=device)
    mask = torch.ones_like(tokens)

    def step() -> None:
        model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
        for weight, master in zip(weights, masters, strict=True):
            master.grad, weight.grad = None if weight.grad is None else weight.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(steps // 6):  # warm-up: memory is allocated, and kernels are chosen
        step()
    timed, started = steps - steps // 6, wait()
    for _ in range(timed):
        step()
    print(
        f"{ENCODER}, bare loop with masters, {rows} rows: {1000 * (wait() - started) / timed:.1f} ms a step", flush=True
    )
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(2 if steps < PROFILED else PROFILED):
            step()
        wait()
    print(profiler.key_averages().table(sort_by=f"self_{device}_time_total", row_limit=20, max_name_column_width=60))


def memory(bench: Bench) -> None:
    """Train each of WAYS for 30 steps."""
    for model, changes in WAYS:
        path, batch = bench.model(model), 64 if model == ENCODER else 8
        given = changes if model == ENCODER else {**_CAUSAL, **changes}
        spec = bench.spec(path, batch, 30, given)
        named = ", ".join(f"{name} {value}" for name, value in changes.items())
        bench.train(f"{model}, {named}, {spec.per_device_train_batch_size} rows", path, spec)


def largest(bench: Bench) -> None:
    """Train a model with a vocabulary of 32,000 at the largest batch that should fit; halve the batch until it fits."""
    path = bench.model(DECODER, vocab_size=32_000)
    spec = bench.spec(path, 16, 16, {**_CAUSAL, "profile_steps": 3})
    batch = 2 if bench.is_small else estimated(spec, path).largest_batch or 1
    print(f"the largest batch that is said to fit on {INSTANCE}: {batch}", flush=True)
    while batch:
        try:
            bench.train(f"{DECODER}, {batch} rows", path, spec.replace(per_device_train_batch_size=batch))
            return
        except SystemExit as error:
            if "out of memory" not in str(error).lower():
                raise
            print(f"{batch} rows: out of memory", flush=True)
            batch //= 2


def kernels(bench: Bench) -> None:
    """Count kernels, copies and waits per step in the traces that the other parts have written."""
    traces = sorted(bench.results.glob("*.trace.json.gz"))
    if not traces:
        raise SystemExit("no part has left a trace")
    for path in traces:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        steps = len({event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep")})
        kinds = collections.Counter(str(event.get("cat")) for event in events)
        waits = collections.Counter(event["name"] for event in events if event.get("name") in _WAITS)
        counted = {kind: kinds[kind] / steps for kind in ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op")}
        shown = ", ".join(f"{value:,.0f} {kind}" for kind, value in counted.items())
        print(
            f"{path.name}: a step of {steps} has {shown}, and waits {sum(waits.values()) / steps:.1f} times", flush=True
        )


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "profile": profile,
    "memory": memory,
    "largest": largest,
    "kernels": kernels,
}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS, nargs="?", default="profile")
    parser.add_argument("folder", type=Path, nargs="?", help="for traces; by default none are kept")
    options = arguments.parse(parser)
    with tempfile.TemporaryDirectory(prefix="gpu-") as name:
        results = options.folder or Path(name) / "results"
        results.mkdir(parents=True, exist_ok=True)
        PARTS[options.part](Bench(Path(name), results, is_small=options.small))


if __name__ == "__main__":
    main()
