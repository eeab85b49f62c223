"""What a person reads in the terminal: progress while a job runs, a short table at its end."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from paretune.jobs.recording import Outcome, job_name
from paretune.jobs.sync import Collected
from paretune.launchers.base import Launcher
from paretune.spec import metrics
from paretune.spec.container import Event, JobDocument, JobInputs
from paretune.spec.job import JobSpec


class ProgressPrinter:
    """A bar in a terminal; in a log file only evaluations and messages, one line each.

    Args:
        stream: where to print; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: tqdm | None = None

    def __call__(self, events: list[Event]) -> None:
        """Show what these events tell."""
        for event in events:
            if self._stream.isatty():
                self._draw(event)
            evaluation = {name: value for name, value in event.metrics.items() if name.startswith("eval/")}
            if event.message or evaluation:
                self._line(event.message or _evaluation(event.step, evaluation))

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, event: Event) -> None:
        if event.total_steps is None:
            return
        if self._bar is None:
            self._bar = tqdm(total=event.total_steps, unit="step", desc="training", file=self._stream, leave=False)
        self._bar.update(event.step - self._bar.n)
        if "train/loss" in event.metrics:
            self._bar.set_postfix(loss=f"{event.metrics['train/loss']:.3f}")

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)


def _evaluation(step: int, values: dict[str, float]) -> str:
    shown = ", ".join(
        f"{name.removeprefix('eval/')} {value:.4f}" for name, value in values.items() if name != "eval/epoch"
    )
    return f"step {step}: {shown}"


def summary(outcome: Outcome) -> str:
    """The table at the end of a job: quality against baselines, speed, seconds, cost, and where to look."""
    found = outcome.metrics
    rows = [
        ("F1 (macro, validation)", _number(found, metrics.F1, ".4f")),
        ("  TF-IDF + logistic regression", _number(found, metrics.BASELINE_TFIDF, ".4f")),
        ("  most frequent class", _number(found, metrics.BASELINE_MAJORITY, ".4f")),
        ("F1 (macro, test)", _number(found, "test_f1", ".4f")),
        ("perplexity", _number(found, metrics.PERPLEXITY, ".2f")),
        ("throughput", _number(found, metrics.THROUGHPUT_SAMPLES, ",.1f", " samples/s")),
        ("training", _number(found, metrics.TRAIN_SECONDS, ",.1f", " s")),
        ("whole job", _number(found, metrics.JOB_SECONDS, ",.1f", " s")),
        ("cost", _cost(outcome)),
        ("truncated texts", _number(found, metrics.TRUNCATED_SHARE, ".1%")),
        (outcome.origin, outcome.basis),
        ("model", outcome.model.removeprefix(f"{Path.cwd()}/")),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows if value]
    if outcome.open_command:
        lines += ["", f"  {outcome.open_command}"]
    if outcome.has_gap:
        lines.append("  MLflow was away: this run's record has gaps; the job's own files are complete")
    kind = "job" if outcome.origin == "measured" else f"{outcome.origin} job"
    return "\n".join(["", f"{kind} {outcome.job_name}", *lines])


def _number(found: Mapping[str, float], name: str, form: str, unit: str = "") -> str:
    value = found.get(name)
    return "" if value is None else f"{value:{form}}{unit}"


def _cost(outcome: Outcome) -> str:
    value = outcome.metrics.get(metrics.COST_USD)
    if value is None or outcome.price is None:
        return "unknown: no price"
    return f"{value:.5f} USD ({outcome.price.source.partition(';')[0]}, {outcome.price.usd_per_hour:g} USD per hour)"


def preview(spec: JobSpec, worst_usd: float | None, inputs: JobInputs, launcher: Launcher) -> str:
    """What a dry run prints: the job, its data, its worst-case dollars, and what would be sent where."""
    document = JobDocument(job_name=job_name("RUN", 1), spec=spec, plan=spec.plan())
    shown = {
        "specification": spec.as_text(),
        "batch": asdict(document.plan) | {"global_batch_size": document.plan.global_batch_size},
        "data": dict(inputs.dataset.facts) if inputs.dataset is not None else None,
        "request": dict(launcher.preview(document, inputs)) or None,
        "worst_case_usd": worst_usd,
    }
    text = json.dumps({name: value for name, value in shown.items() if value is not None}, indent=2, default=str)
    return f"{text}\nnothing was launched; to launch it: {replace(spec, dry_run=False).command()}"


def collected_text(collected: Sequence[Collected]) -> str:
    """What `sync` found, run by run."""
    if not collected:
        return "nothing to do: no run is unfinished"
    parts = [summary(entry.outcome) for entry in collected if entry.outcome is not None]
    parts += [f"run {entry.run_id}: {entry.remark}" for entry in collected if entry.remark]
    return "\n".join(parts)
