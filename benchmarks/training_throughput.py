"""How fast is paretune's training, beside what people use and beside the limit?

    python benchmarks/training_throughput.py                       # CPU: MiniLM on movie reviews, about 25 minutes
    python benchmarks/training_throughput.py --quality-seeds 0     # speed only, about 10 minutes
    python benchmarks/training_throughput.py --random-model bert-base --prepared FOLDER --batch 64 ...   # GPU

Same model, same rows, same optimiser steps, one process after the other, variants taking turns, several repeats in one
run. Printed: median samples per second with its spread, the ratio to (b), the share of the device's peak where that is
known, and F1.

    recipe      (a) the published SageMaker benchmark's recipe: every row padded to 512 tokens, fp32, Trainer defaults
    trainer     (b) Trainer defaults with dynamic padding, fp32
    paretune    (c) a paretune job, as `paretune main` runs it
    loop        (d) a bare PyTorch loop over the same batches as (c), same precision, same optimiser: the limit
    full-table  (c) without leaving out unused embedding rows
    compiled    (c) with compiler=inductor

Source of (a): aws-samples/amazon-sagemaker-huggingface-benchmark, src/models/train_model.py, 2021, MIT-0.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from paretune.container import JobDocument, JobFolder, JobReport, PreparedDataset, write_json
from paretune.metrics import F1, MFU, THROUGHPUT_SAMPLES, training_flops
from paretune.spec import JobSpec

WARM_UP = 5  # steps that are not timed in (a), (b) and (d)
RECIPE_SHARE = 4  # (a) does a fourth of the steps: all its batches are 512 tokens long, more of them tell nothing new
NO_WEIGHT_DECAY_TO_SPEAK_OF = 1e-30  # keeps every row of the embedding table in the optimiser and changes no weight
VARIANTS = ("recipe", "trainer", "paretune", "loop", "full-table", "compiled")


def main() -> None:
    """Run all variants and print the table."""
    options = _options()
    if options.variant:
        print(json.dumps(_run_variant(options)))
        return
    with tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        options.prepared, options.model = _inputs(options, Path(folder))
        _print_conditions(options)
        names = options.variants.split(",")
        speed: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for repeat in range(options.repeats):
            for name in names:
                speed[name].append(_child(options, name, seed=repeat))
        quality: dict[str, list[float]] = {"trainer": [], "paretune": []}
        for seed in range(options.quality_seeds):
            for name, scores in quality.items():
                scores.append(_child(options, name, seed=seed, whole=True)["f1"])
    _print_table(speed, quality)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="optimiser steps of a timed run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="rows per step")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--dataset", default="embedded:rotten_tomatoes")
    parser.add_argument("--model", default="embedded:all-MiniLM-L6-v2")
    parser.add_argument("--random-model", choices=("bert-base",), help="random weights: speed only")
    parser.add_argument("--tokenizer", help="folder with the tokenizer of --random-model")
    parser.add_argument("--prepared", help="a prepared data set, instead of --dataset")
    parser.add_argument("--variants", default="recipe,trainer,paretune,loop,full-table")
    parser.add_argument("--quality-seeds", type=int, default=3, help="seeds of the F1 comparison over a whole epoch")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _inputs(options: argparse.Namespace, folder: Path) -> tuple[str, str]:
    """(prepared data set, model folder)."""
    if options.random_model:
        from transformers import BertConfig, BertForSequenceClassification

        model = folder / "bert-base"
        BertForSequenceClassification(BertConfig()).save_pretrained(model)
        if not (options.prepared and options.tokenizer):
            raise SystemExit("--random-model needs --prepared and --tokenizer")
        for file in Path(options.tokenizer).glob("*"):
            if file.name.startswith(("tokenizer", "vocab", "special_tokens")):
                shutil.copy(file, model)
        return options.prepared, str(model)
    spec = JobSpec(model=options.model, dataset=options.dataset, max_seq_length=options.max_seq_length)
    request, answer = folder / "request.json", folder / "answer.json"
    write_json(request, spec.as_text())
    command = [sys.executable, "-m", "paretune.training.prepare", str(request), str(folder / "datasets"), str(answer)]
    subprocess.run(command, check=False)
    found = json.loads(answer.read_text())
    if "faults" in found:
        raise SystemExit("\n".join(found["faults"]))
    return found["dataset"], found["model"]


def _child(options: argparse.Namespace, name: str, *, seed: int, whole: bool = False) -> dict[str, float]:
    words = [sys.executable, __file__, "--variant", name, "--seed", str(seed)]
    for option in ("steps", "batch", "learning_rate", "max_seq_length", "prepared", "model"):
        words += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    result = subprocess.run([*words, *(["--whole"] if whole else [])], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    print(f"# {name:<11} seed {seed}{' whole epoch' if whole else ''}: {found}", file=sys.stderr, flush=True)
    return found


def _run_variant(options: argparse.Namespace) -> dict[str, float]:
    prepared = PreparedDataset.read(Path(options.prepared))
    if options.variant in {"recipe", "trainer"}:
        return _trainer_defaults(options, prepared)
    if options.variant == "loop":
        return _bare_loop(options, prepared)
    return _paretune_job(options, prepared)


def _paretune_job(options: argparse.Namespace, prepared: PreparedDataset) -> dict[str, float]:
    """(c): the training process of a paretune job, in a job folder of its own."""
    extra: dict[str, Any] = {} if options.whole else {"max_steps": options.steps, "eval_strategy": "no"}
    if options.variant == "full-table":
        extra["weight_decay"] = NO_WEIGHT_DECAY_TO_SPEAK_OF
    spec = JobSpec(
        learning_rate=options.learning_rate,
        per_device_train_batch_size=options.batch,
        seed=options.seed,
        max_seq_length=options.max_seq_length,
        training_arguments=extra,
        compiler="inductor" if options.variant == "compiled" else "none",
    )
    with tempfile.TemporaryDirectory(prefix="throughput-job-") as root:
        folder = JobFolder(Path(root))
        folder.make()
        JobDocument(job_name="throughput", spec=spec, plan=spec.plan()).write(folder.document)
        folder.dataset.symlink_to(prepared.folder.resolve())
        folder.model_source.symlink_to(Path(options.model).resolve())
        result = subprocess.run(
            [sys.executable, "-m", "paretune.training", root], check=False, capture_output=True, text=True
        )
        if result.returncode:
            raise SystemExit(result.stderr)
        report = JobReport.read(folder.report)
    found = {"samples_per_second": report.metrics[THROUGHPUT_SAMPLES]}
    if MFU in report.metrics:
        found["mfu"] = report.metrics[MFU]
    return found | {"f1": report.metrics[F1]}


def _trainer_defaults(options: argparse.Namespace, prepared: PreparedDataset) -> dict[str, float]:
    """(a) and (b): the Trainer as its documentation uses it."""
    import numpy as np
    import torch
    from sklearn.metrics import f1_score
    from transformers import (
        AutoModelForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    from paretune.training.data import TokenRows

    set_seed(options.seed)
    recipe = options.variant == "recipe"
    steps = max(WARM_UP + 3, options.steps // RECIPE_SHARE) if recipe else options.steps
    rows = TokenRows(prepared.folder / "train.arrow", pad_id=0)

    class Examples(torch.utils.data.Dataset[dict[str, Any]]):
        def __init__(self, source: TokenRows) -> None:
            self.source = source

        def __len__(self) -> int:
            return len(self.source)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {name: value[0] for name, value in self.source[index].items()}

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        width = 512 if recipe else max(len(example["input_ids"]) for example in examples)
        batch = {
            name: torch.stack(
                [torch.nn.functional.pad(example[name], (0, width - len(example[name]))) for example in examples]
            )
            for name in ("input_ids", "attention_mask")
        }
        return batch | {"labels": torch.stack([example["labels"] for example in examples])}

    class Timer(TrainerCallback):  # type: ignore[misc]
        started = seconds = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == WARM_UP:
                _synchronize()
                self.started = time.perf_counter()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            _synchronize()
            self.seconds = time.perf_counter() - self.started
            self.steps = state.global_step - WARM_UP

    timer = Timer()
    with tempfile.TemporaryDirectory(prefix="throughput-trainer-") as output:
        arguments = TrainingArguments(
            output_dir=output,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=options.batch,
            per_device_eval_batch_size=64,
            num_train_epochs=1,
            max_steps=-1 if options.whole else steps,
            save_strategy="no",
            report_to="none",
            seed=options.seed,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(prepared.labels)),
            args=arguments,
            train_dataset=Examples(rows),
            eval_dataset=Examples(TokenRows(prepared.folder / "validation.arrow", pad_id=0)),
            data_collator=collate,
            compute_metrics=lambda found: {
                "f1": f1_score(found.label_ids, np.argmax(found.predictions, -1), average="macro")
            },
            callbacks=[timer],
        )
        trainer.train()
        rate = timer.steps * options.batch / timer.seconds
        return {"samples_per_second": rate} | ({"f1": trainer.evaluate()["eval_f1"]} if options.whole else {})


def _bare_loop(options: argparse.Namespace, prepared: PreparedDataset) -> dict[str, float]:
    """(d): forward, backward, clip, step, and nothing else."""
    import torch
    from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup, set_seed

    from paretune.training import device
    from paretune.training.batches import GlobalBatchSampler
    from paretune.training.data import TokenRows, as_batch
    from paretune.training.model import matrix_parameters

    set_seed(options.seed)
    place = "cuda" if device.has_gpu() else "cpu"
    rows = TokenRows(prepared.folder / "train.arrow", pad_id=0, pad_multiple=8 if device.has_gpu() else 1)
    plan = replace(JobSpec().plan(), per_device_train_batch_size=options.batch)
    sampler = GlobalBatchSampler(rows.lengths, plan, rank=0, seed=options.seed)
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(prepared.labels)).to(place)
    matrices, _ = matrix_parameters(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, options.steps)
    loader = torch.utils.data.DataLoader(rows, batch_sampler=sampler, collate_fn=as_batch, pin_memory=place == "cuda")
    samples = tokens = step = 0
    started = time.perf_counter()
    while step < options.steps:
        sampler.set_epoch(step // sampler.steps)
        for batch in loader:
            count, length = len(batch["labels"]), int(batch["attention_mask"].sum())
            batch = {name: value.to(place, non_blocking=True) for name, value in batch.items()}
            with torch.autocast(place, torch.bfloat16, enabled=device.has_bf16()):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            samples, tokens = samples + count, tokens + length
            if step == WARM_UP:
                _synchronize()
                samples, tokens, started = 0, 0, time.perf_counter()
            if step == options.steps:
                break
    _synchronize()
    seconds = time.perf_counter() - started
    found = {"samples_per_second": samples / seconds}
    peak = device.peak_flops("bf16")
    if peak is not None:
        flops = training_flops(
            parameters=matrices,
            trained_share=1.0,
            tokens=tokens,
            layers=model.config.num_hidden_layers,
            hidden_size=model.config.hidden_size,
            mean_length=tokens / samples,
        )
        found["mfu"] = flops / seconds / peak
    return found


def _synchronize() -> None:
    from paretune.training import device

    device.synchronize()


def _print_conditions(options: argparse.Namespace) -> None:
    import datetime
    import platform

    import torch
    import transformers

    from paretune.training import device

    prepared = PreparedDataset.read(Path(options.prepared))
    print(f"date         {datetime.date.today()}")
    rows, tokens = prepared.facts["train_rows"], prepared.facts["train_tokens"]
    print(f"hardware     {device.device_name()}, {torch.get_num_threads()} threads, bf16: {device.has_bf16()}")
    print(f"python       {platform.python_version()}")
    print(f"torch        {torch.__version__}")
    print(f"transformers {transformers.__version__}")
    print(f"model        {options.random_model or Path(options.model).parent.name}")
    print(f"rows         {rows:,.0f}, {tokens / rows:.1f} tokens each")
    print(f"batch {options.batch}, {options.steps} steps, {options.repeats} repeats; measured", flush=True)


def _print_table(speed: dict[str, list[dict[str, float]]], quality: dict[str, list[float]]) -> None:
    rates = {name: [run["samples_per_second"] for run in runs] for name, runs in speed.items()}
    base = statistics.median(rates["trainer"]) if "trainer" in rates else None
    print(f"\n{'':<12}{'samples/s':>10}{'range':>18}{'x trainer':>11}{'mfu':>7}{'F1 (seeds)':>24}")
    for name, values in rates.items():
        middle = statistics.median(values)
        spread = f"{min(values):.1f} to {max(values):.1f}"
        shares = [run["mfu"] for run in speed[name] if "mfu" in run]
        share = f"{statistics.median(shares):.1%}" if shares else ""
        scores = quality.get(name, [])
        f1 = f"{statistics.mean(scores):.4f} ({', '.join(f'{score:.3f}' for score in scores)})" if scores else ""
        ratio = f"{middle / base:.2f}" if base else ""
        print(f"{name:<12}{middle:>10.1f}{spread:>18}{ratio:>11}{share:>7}{f1:>24}")


if __name__ == "__main__":
    main()
