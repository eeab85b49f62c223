"""Measure the speed of paretune's training, and compare it with other training loops and with the limit.

    python benchmarks/training_throughput.py                       # CPU: MiniLM on movie reviews, a few minutes
    python benchmarks/training_throughput.py --precision fp32      # as on a CPU without bf16

All variants have the same model, rows and batch size. They run one at a time, each in its own process, and take turns
until each has run --repeats times. The table has the median of samples per second with the range, the ratio to the
Trainer, and the share of the limit.

    trainer     Trainer defaults with dynamic padding, fp32
    paretune    a paretune job, as `paretune train` runs it
    loop        a bare PyTorch loop over the same batches, with the same precision and optimizer
    products    only the matrix products, forward and backward: no training on these batches can be faster
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import arguments
import published
import training_jobs

from paretune.specification.container import PreparedDataset
from paretune.specification.job import JobSpec

_NAMES = {
    "trainer": "Trainer defaults with dynamic padding, fp32",
    "paretune": "**paretune**",
    "loop": "a bare PyTorch loop over the same batches, fused AdamW",
    "products": "the matrix products of these batches alone: the limit",
}
"""Variants to their names in the table."""


def main() -> None:
    """Run all variants and print the table."""
    options = _options()
    if options.variant:
        print(_run_variant(options))
        return
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        options.model_name = options.model
        options.prepared, options.model = _inputs(options, Path(folder))
        made = _print_conditions(options)
        names = options.variants.split(",")
        speed: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(options.repeats):
            for name in names:
                speed[name].append(_child(options, name, seed=repeat))
    _print_table(made, speed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of a timed run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="rows per step")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument(
        "--precision", choices=("auto", "fp32"), default="auto", help="of all variants except the Trainer's"
    )
    parser.add_argument("--dataset", default="bundled:rotten_tomatoes")
    parser.add_argument("--model", default="bundled:all-MiniLM-L6-v2")
    parser.add_argument("--variants", default=",".join(_NAMES))
    parser.add_argument("--max-train-samples", type=int, help="rows of --dataset that are trained on; default: all")
    parser.add_argument("--max-eval-samples", type=int, help="rows of --dataset that are evaluated on; default: all")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--prepared", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    few = {"steps": 8, "repeats": 1, "batch": 2, "max_train_samples": 40, "max_eval_samples": 16}
    return arguments.parse(parser, **few)


def _inputs(options: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """Return the prepared data set and the model folder."""
    spec = JobSpec(
        model=options.model,
        dataset=options.dataset,
        max_seq_length=options.max_seq_length,
        max_train_samples=options.max_train_samples,
        max_eval_samples=options.max_eval_samples,
    )
    return training_jobs.prepared(spec, folder)


def _child(options: argparse.Namespace, name: str, *, seed: int) -> float:
    words = [sys.executable, __file__, "--variant", name, "--seed", str(seed)]
    for option in ("steps", "batch", "learning_rate", "max_seq_length", "precision", "prepared", "model"):
        words += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    result = subprocess.run(words, check=False, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{name}: {result.stderr[-2000:]}")
    found = float(result.stdout.strip().splitlines()[-1])
    print(f"# {name:<11} seed {seed}: {found}", file=sys.stderr, flush=True)
    return found


def _run_variant(options: argparse.Namespace) -> float:
    # Imported here, because torch in the parent process would take memory and threads from its children.
    from throughput_variants import bare_loop, matrix_products, paretune_job, trainer_defaults

    prepared = PreparedDataset.read(Path(options.prepared))
    run = {"trainer": trainer_defaults, "loop": bare_loop, "products": matrix_products, "paretune": paretune_job}
    return run[options.variant](options, prepared)


def _print_conditions(options: argparse.Namespace) -> str:
    """Print and return a line with the conditions of the measurement."""
    import torch

    from paretune.training import device

    facts = PreparedDataset.read(Path(options.prepared)).facts
    rows, tokens = facts["train_rows"], facts["train_tokens"]
    made = [published.conditions("torch", "transformers")]
    made.append(f"{device.device_name() if device.has_gpu() else f'{torch.get_num_threads()} threads of PyTorch'}")
    made.append(device.choose_precision(options.precision))
    made.append(f"{options.model_name} on {rows:,.0f} rows of {tokens / rows:.1f} tokens")
    made.append(f"batch {options.batch}, {options.steps} steps, {options.repeats} repeats")
    print(", ".join(made), flush=True)
    return ", ".join(made)


def _print_table(made: str, speed: dict[str, list[float]]) -> None:
    """Print the table as a block."""
    head = ("", "samples/s, median (range)", "x Trainer", "share of the limit")
    lines = []
    for name, runs in speed.items():
        middle = statistics.median(runs)
        shown = f"{middle:.1f} ({min(runs):.1f} to {max(runs):.1f})"
        ratios = _over(middle, speed.get("trainer"), ".2f"), _over(middle, speed.get("products"), ".0%")
        lines.append((_NAMES[name], shown, *ratios))
    print(published.block("training_throughput", [f"Measured {made}:", "", *published.table(head, lines)]))


def _over(value: float, runs: list[float] | None, form: str) -> str:
    """Format a rate divided by the median rate of some runs; empty without runs."""
    return format(value / statistics.median(runs), form) if runs else ""


if __name__ == "__main__":
    main()
