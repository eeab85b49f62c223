"""Measure samples per second on one GPU: paretune, the Trainer and bare loops, with and without torch.compile.

    python benchmarks/gpu_throughput.py            # on a GPU, about a quarter of an hour

Models have random weights, and all rows are as long as max_seq_length. Each figure is one run of 40 steps after 20
warm-up steps. A batch that does not fit in memory is shown as `too large`. paretune logs every 50 steps, as it does
in jobs of 2,500 steps and more; the Trainer and the loops never log.
"""

import argparse
import gc
import json
import operator
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import arguments
import published
from estimate_gpu import make_model, rows_of_words, spec_of, trained

from paretune.specification.metrics import CAUSAL_LM, THROUGHPUT_SAMPLES

CASES: Mapping[str, Mapping[str, Any]] = {
    "BERT base": {"max_seq_length": 128},
    "Llama of 1.0B": {"max_seq_length": 512, "task": CAUSAL_LM},
}
VARIANTS = (
    *("paretune, bf16", "paretune, bf16, compiled", "Trainer defaults, fp32", "Trainer defaults, bf16"),
    *("a bare loop, bf16 with autocast", "a bare loop, bf16 weights", "a bare loop, bf16 weights, compiled"),
)
WARM_UP = 20  # steps
_RESULT = "samples/s: "


def main() -> None:
    """Print a line for each run, then a table for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", default="16,64,256", help="rows per step, with commas between them")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--variants", default=";".join(VARIANTS))
    for name in ("--variant", "--model"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    few = {"batches": "2", "steps": 22, "models": "BERT base", "variants": f"{VARIANTS[0]};{VARIANTS[3]};{VARIANTS[5]}"}
    options = arguments.parse(parser, **few)
    sizes = options.batches.split(",")
    if options.variant:
        _print_speeds(options.variant, Path(options.model), sizes, options.steps)
        return
    made = published.conditions("torch", "transformers")
    body = [f"One run each, {options.steps - WARM_UP} steps, {_device()}; {made}:"]
    with tempfile.TemporaryDirectory(prefix="throughput-gpu-") as name:
        folder = Path(name)
        rows_of_words(folder / "rows.csv")
        for model in options.models.split(","):
            path = folder / model.replace(" ", "-")
            make_model(model, path, layers=2 if options.small else None)
            head = (f"{model}, samples/s by rows a step", *sizes)
            lines = []
            for variant in options.variants.split(";"):
                cells = _cells(variant, model, path, sizes, options.steps)
                print(f"# {model}, {variant}: {', '.join(cells)}", flush=True)
                lines.append((variant, *cells))
            body += ["", *published.table(head, lines)]
    print(published.block("gpu_throughput", body))


def _device() -> str:
    return subprocess.run(
        [sys.executable, "-m", "paretune.training.device"], check=True, capture_output=True, text=True
    ).stdout.strip()


def _cells(variant: str, model: str, path: Path, sizes: Sequence[str], steps: int) -> list[str]:
    if variant.startswith("paretune"):
        return [_speed_of_job(variant, model, path, int(size), steps) for size in sizes]
    words = ["--variant", variant, "--model", str(path), "--batches", ",".join(sizes), "--steps", str(steps)]
    done = subprocess.run([sys.executable, __file__, *words], check=False, capture_output=True, text=True)
    cells = [line.removeprefix(_RESULT) for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    return cells + ["failed"] * (len(sizes) - len(cells))


def _speed_of_job(variant: str, model: str, path: Path, size: int, steps: int) -> str:
    own = {"max_steps": steps, "logging_steps": 50, "save_strategy": "no"}
    own |= {"torch_compile": variant.endswith("compiled")}
    given = {**CASES[model], "per_device_train_batch_size": size, "training_arguments": own}
    try:
        report = trained(spec_of(given, model=str(path), dataset=str(path.parent / "rows.csv")), path.parent)
    except SystemExit as error:
        if "out of memory" in str(error).lower():
            return "too large"
        print(error, file=sys.stderr)
        return "failed"
    return f"{report.metrics[THROUGHPUT_SAMPLES]:,.0f}"


def _print_speeds(variant: str, path: Path, sizes: Sequence[str], steps: int) -> None:
    """Print a line for each size: samples per second of the Trainer or of a bare loop, in this process."""
    import torch

    for size in sizes:
        try:
            print(f"{_RESULT}{_speed(variant, path, int(size), steps):,.0f}", flush=True)
        except torch.OutOfMemoryError:
            print(f"{_RESULT}too large", flush=True)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _batches(model: Path, size: int, steps: int) -> Iterator[dict[str, Any]]:
    import torch

    is_causal = json.loads((model / "config.json").read_text())["model_type"] == "llama"
    length = CASES["Llama of 1.0B" if is_causal else "BERT base"]["max_seq_length"]
    for number in range(steps):
        torch.manual_seed(number)
        tokens = torch.randint(5, 30000, (size, length))
        labels = tokens if is_causal else torch.tensor([random.randrange(2) for _ in range(size)])
        yield {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def _speed(variant: str, path: Path, size: int, steps: int) -> float:
    """Return the samples per second of the Trainer or of a bare loop, in this process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    is_causal = json.loads((path / "config.json").read_text())["model_type"] == "llama"
    model = (AutoModelForCausalLM if is_causal else AutoModelForSequenceClassification).from_pretrained(path)
    if variant.startswith("Trainer"):
        return _speed_of_trainer(model, path, size, steps, bf16=variant.endswith("bf16"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device, torch.bfloat16 if "weights" in variant else torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    step_of = torch.compile(model) if variant.endswith("compiled") else model
    started = 0.0
    for number, batch in enumerate(_batches(path, size, steps)):
        if number == WARM_UP:
            started = _now()
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(device, torch.bfloat16, enabled="autocast" in variant):
            loss = step_of(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return (steps - WARM_UP) * size / (_now() - started)


def _now() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _speed_of_trainer(model: Any, path: Path, size: int, steps: int, *, bf16: bool) -> float:
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (WARM_UP, steps):
                times.append(_now())

    settings = TrainingArguments(
        output_dir=str(path.parent / "trainer"),
        per_device_train_batch_size=1,  # each item of the data set is a whole batch
        max_steps=steps,
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=steps + 1,
    )
    rows = list(_batches(path, size, steps))
    Trainer(
        model=model, args=settings, train_dataset=rows, data_collator=operator.itemgetter(0), callbacks=[Clock()]
    ).train()
    return (steps - WARM_UP) * size / (times[1] - times[0])


if __name__ == "__main__":
    main()
