"""CPU seconds of LoRA trials as jobs of their own, one after the other in one job, and side by side in one job.

Each way runs the processes that a launcher would start, `python -m paretune.training FOLDER`, with their start-up.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.specification.container import EventReader, JobDocument, JobFolder, JobReport, write_json
from paretune.specification.job import JobSpec
from paretune.specification.metrics import F1

_NAMES = {
    "alone": "a job for each trial",
    "in turn": "one job, one trial after the other",
    "side by side": "one job, all trials side by side",
}
"""Ways in the words of the README."""
_IN_TURN = """
import runpy
from paretune.training.shared_job import job
groups = job.groups_of
job.groups_of = lambda documents, is_possible: groups(documents, is_possible=False)
runpy.run_module("paretune.training", run_name="__main__", alter_sys=True)
"""


def main() -> None:
    """Run all ways and print the table."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="shared-job-") as name:
        workspace = Path(name)
        specs = _specs(options)
        inputs = _inputs(specs[0], workspace)
        made = _conditions(options, specs[0])
        results: dict[str, list[dict[str, Any]]] = {way: [] for way in _NAMES}
        for repeat in range(options.repeats):
            for way, runs in results.items():
                runs.append(_measure(way, specs, inputs, workspace / f"{repeat}-{way.replace(' ', '-')}"))
                seconds = {name: runs[-1][name] for name in ("cpu", "wall")}
                print(f"# {way:<12} {seconds}, F1 {_scores(runs[-1])}", flush=True)
    _print_table(made, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=8, help="learning rates, each twice the one before")
    parser.add_argument("--lowest-rate", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=8, help="rows per step")
    parser.add_argument("--max-train-samples", type=int, default=1024)
    parser.add_argument("--max-eval-samples", type=int, default=256)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="bundled:all-MiniLM-L6-v2")
    parser.add_argument("--dataset", default="bundled:rotten_tomatoes")
    few = {"trials": 2, "repeats": 1, "max_train_samples": 24, "max_eval_samples": 8}
    return arguments.parse(parser, **few)


def _specs(options: argparse.Namespace) -> list[JobSpec]:
    spec = JobSpec(
        model=options.model,
        dataset=options.dataset,
        fine_tuning="lora",
        per_device_train_batch_size=options.batch,
        max_train_samples=options.max_train_samples,
        max_eval_samples=options.max_eval_samples,
        precision=options.precision,
    )
    return [replace(spec, learning_rate=options.lowest_rate * 2**number) for number in range(options.trials)]


def _inputs(spec: JobSpec, workspace: Path) -> tuple[Path, Path]:
    """(Prepared data set, model folder)."""
    request, answer = workspace / "request.json", workspace / "answer.json"
    write_json(request, spec.as_text())
    command = [
        sys.executable,
        "-m",
        "paretune.training.prepare",
        str(request),
        str(workspace / "datasets"),
        str(answer),
    ]
    subprocess.run(command, check=False, capture_output=True)
    results = json.loads(answer.read_text())
    if "faults" in results:
        raise SystemExit("\n".join(results["faults"]))
    return Path(results["dataset"]), Path(results["model"])


def _conditions(options: argparse.Namespace, spec: JobSpec) -> str:
    """The conditions of the measurement, in one line."""
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    made = [published.conditions("torch", "transformers", "peft"), f"{threads} threads of PyTorch"]
    made.append(f"{options.trials} LoRA learning rates from {options.lowest_rate:g}, each twice the one before")
    made.append(f"{spec.model} on {spec.max_train_samples} rows of {spec.dataset}, {spec.max_eval_samples} to evaluate")
    made.append(f"batch {options.batch}, precision {options.precision}, {options.repeats} repeats")
    print(", ".join(made), flush=True)
    return ", ".join(made)


def _measure(way: str, specs: Sequence[JobSpec], inputs: tuple[Path, Path], workspace: Path) -> dict[str, Any]:
    """CPU and wall seconds of all processes together, and what became of each trial."""
    documents = [JobDocument(job_name=f"job.{n}", spec=spec, plan=spec.plan()) for n, spec in enumerate(specs)]
    if way == "alone":
        jobs = [replace(document, job_name=f"job-{number}") for number, document in enumerate(documents)]
        folders = [_folder(workspace / str(number), job, inputs) for number, job in enumerate(jobs)]
        trials = folders
    else:
        limit = len(specs) * specs[0].max_runtime_minutes
        whole = replace(documents[0].spec, max_runtime_minutes=limit)
        job = replace(documents[0], job_name="job", spec=whole, members=tuple(documents))
        folders = [_folder(workspace, job, inputs)]
        trials = [folders[0].of_member(document.member) for document in documents]
    program = ["-c", _IN_TURN] if way == "in turn" else ["-m", "paretune.training"]
    began, before = time.perf_counter(), os.times()
    for folder in folders:
        done = subprocess.run([sys.executable, *program, folder.root], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    reports = [JobReport.read(trial.report) for trial in trials]
    peak = max(report.metrics["peak_memory_gib"] for report in reports)
    wall = time.perf_counter() - began
    return {"cpu": cpu, "wall": wall, "peak": peak, "f1": [report.metrics[F1] for report in reports],
            "losses": [_losses(trial) for trial in trials]}  # fmt: skip


def _folder(root: Path, document: JobDocument, inputs: tuple[Path, Path]) -> JobFolder:
    folder = JobFolder(root)
    folder.make()
    write_json(folder.document, document.as_json())
    for link, source in zip((folder.dataset, folder.model_source), inputs, strict=True):
        link.symlink_to(source.resolve())
    return folder


def _losses(trial: JobFolder) -> list[float]:
    """The training and evaluation losses of a trial."""
    events = [event for event in EventReader(trial.events).new() if event.member == trial.member]
    names = ("train/loss", "eval/loss")
    return [event.metrics[name] for event in events for name in names if name in event.metrics]


def _scores(run: dict[str, Any]) -> str:
    return ", ".join(f"{score:.3f}" for score in run["f1"])


def _print_table(made: str, results: dict[str, list[dict[str, Any]]]) -> None:
    """Print the table as the block of the README."""
    head = ("", "CPU seconds, median (range)", "of jobs alone", "wall seconds", "GiB", "largest loss difference", "F1")
    base = statistics.median(run["cpu"] for run in results["alone"])
    lines = []
    for way, runs in results.items():
        seconds = [run["cpu"] for run in runs]
        middle = statistics.median(seconds)
        pairs = [(run["losses"], alone["losses"]) for run, alone in zip(runs, results["alone"], strict=True)]
        apart = [abs(a - b) for mine, its in pairs for left, right in zip(mine, its, strict=True)
                 for a, b in zip(left, right, strict=True)]  # fmt: skip
        lines.append(
            (
                _NAMES[way],
                f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
                f"{middle / base:.2f}",
                f"{statistics.median(run['wall'] for run in runs):.1f}",
                f"{max(run['peak'] for run in runs):.2f}",
                "" if way == "alone" else f"{max(apart):.1g}",
                _scores(runs[-1]),
            )
        )
    print(published.block("shared_job", [f"Measured {made}:", "", *published.table(head, lines)]))


if __name__ == "__main__":
    main()
